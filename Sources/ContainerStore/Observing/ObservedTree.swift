/// The locations of everything at and below an observed path. The catalog maps paths to files; this
/// tree maps files to paths.
///
/// Takes some 100 bytes for each file while it is observed.
struct ObservedTree {
  private struct Root: Equatable {
    var id: UInt64
    var kind: FileKind
  }

  /// A name that was added or removed.
  private struct Item {
    var id: UInt64
    var kind: FileKind
    var place: CatalogPlace
    /// Path relative to the observed directory.
    var names: [FileName]
    /// The directories between the observed one and the item, the nearest first.
    var above: [UInt64]
  }

  /// The observed path.
  let names: [FileName]
  /// The directories that lead to the path, the root first, as far as they exist.
  private var chain: [UInt64] = []
  /// The item at the path.
  private var root: Root?
  /// The location of each file below, by file id.
  private var places: [UInt64: CatalogPlace] = [:]
  /// The further locations of files with several names.
  private var furtherPlaces: [UInt64: [CatalogPlace]] = [:]

  init(_ names: [FileName], in catalog: some CatalogReading) throws {
    self.names = names
    try resolve(catalog)
    if let root, root.kind == .directory { try takeIn(root.id, catalog) { _, _ in } }
  }

  private mutating func resolve(_ catalog: some CatalogReading) throws {
    chain = [rootFileID]
    root = names.isEmpty ? Root(id: rootFileID, kind: .directory) : nil
    for (i, name) in names.enumerated() {
      guard let entry = try catalog.entry(chain[i], name) else { return }
      if i == names.count - 1 {
        root = Root(id: entry.file, kind: entry.kind)
      } else {
        guard entry.kind == .directory else { return }
        chain.append(entry.file)
      }
    }
  }

  // MARK: Locations

  private mutating func add(_ file: UInt64, _ place: CatalogPlace) {
    guard let known = places[file] else {
      places[file] = place
      return
    }
    if known != place, furtherPlaces[file]?.contains(place) != true {
      furtherPlaces[file, default: []].append(place)
    }
  }

  private mutating func remove(_ file: UInt64, _ place: CatalogPlace) {
    if places[file] == place {
      places[file] = furtherPlaces[file]?.popLast()
    } else {
      furtherPlaces[file]?.removeAll { $0 == place }
    }
    if furtherPlaces[file]?.isEmpty == true { furtherPlaces[file] = nil }
  }

  /// Adds everything below a directory, except the items at `known` locations, and calls `body` for
  /// each item, parents first, with its path relative to that directory.
  private mutating func takeIn(
    _ directory: UInt64, _ catalog: some CatalogReading, except known: Set<CatalogPlace> = [],
    _ body: ([FileName], CatalogPlace) -> Void
  ) throws {
    var open: [(id: UInt64, names: [FileName])] = [(directory, [])]
    var seen: Set<UInt64> = [directory]
    while let (id, names) = open.popLast() {
      for (name, entry) in try catalog.entries(id) {
        let place = CatalogPlace(parent: id, name: name)
        guard !known.contains(place) else { continue }
        add(entry.file, place)
        body(names + [name], place)
        guard entry.kind == .directory else { continue }
        guard seen.insert(entry.file).inserted else { throw Self.loop }
        open.append((entry.file, names + [name]))
      }
    }
  }

  /// Removes everything that is still below a directory that is no longer observed.
  private mutating func forget(_ directory: UInt64, _ catalog: some CatalogReading) throws {
    var open = [directory]
    var seen: Set<UInt64> = [directory]
    while let id = open.popLast() {
      for (name, entry) in try catalog.entries(id) {
        remove(entry.file, CatalogPlace(parent: id, name: name))
        guard entry.kind == .directory else { continue }
        guard seen.insert(entry.file).inserted else { throw Self.loop }
        open.append(entry.file)
      }
    }
  }

  private static var loop: ContainerError {
    ContainerError(.catalogDamaged, detail: "a directory is reached twice")
  }

  /// The path from the observed directory to another one, before the commit or after it; nil if the
  /// directory is elsewhere.
  private func way(to directory: UInt64, after commit: CommitChanges?) throws -> (
    names: [FileName], ids: [UInt64]
  )? {
    var names: [FileName] = []
    var ids: [UInt64] = []
    var current = directory
    while current != root?.id {
      let old = commit?.movedAway.contains(current) == true ? nil : places[current]
      guard let place = commit?.newPlaces[current] ?? old else { return nil }
      guard ids.count <= places.count + (commit?.newPlaces.count ?? 0) else { throw Self.loop }
      ids.append(current)
      names.append(place.name)
      current = place.parent
    }
    return (names.reversed(), ids)
  }

  private func text(_ below: [FileName]) -> String { StorePath.text(names + below) }

  // MARK: Commits

  /// Applies a commit and returns its changes; `catalog` is the state after the commit.
  ///
  /// The changes are a complete description: applied one after the other to a copy of the old tree,
  /// they produce the new tree.
  mutating func apply(_ commit: CommitChanges, _ catalog: Transaction) throws -> [ContainerChange] {
    if commit.entries.contains(where: { isOnTheWay($0.place) }) {
      let old = root
      try resolve(catalog)
      if root != old { return try exchange(old, catalog) }
    }
    guard let root else { return [] }
    var changes: [ContainerChange] = []
    var told: Set<CatalogPlace> = []
    if root.kind == .directory, !commit.entries.isEmpty {
      changes = try applyEntries(commit, catalog, &told)
    }
    for file in commit.files {
      var paths: [String] = file == root.id ? [text([])] : []
      for place in [places[file]].compactMap(\.self) + (furtherPlaces[file] ?? []) where !told.contains(place)
      {
        guard let way = try way(to: place.parent, after: nil) else { continue }
        paths.append(text(way.names + [place.name]))
      }
      guard !paths.isEmpty else { continue }
      let effect = try commit.effect(on: file)
      for path in paths.sorted() {
        if effect.contains(.contents) { changes.append(.changed(path: path)) }
        if effect.contains(.attributes) { changes.append(.attributesChanged(path: path)) }
      }
    }
    return changes
  }

  private func isOnTheWay(_ place: CatalogPlace) -> Bool {
    zip(chain, names).contains { $0 == place.parent && $1 == place.name }
  }

  /// Handles a commit that puts another item at the observed path itself.
  private mutating func exchange(_ old: Root?, _ catalog: Transaction) throws -> [ContainerChange] {
    places = [:]
    furtherPlaces = [:]
    let path = text([])
    if let old, let root, old.kind == root.kind, root.kind != .directory { return [.changed(path: path)] }
    var changes: [ContainerChange] = []
    if old != nil { changes.append(.removed(path: path)) }
    if let root {
      changes.append(.created(path: path))
      if root.kind == .directory {
        let names = names
        try takeIn(root.id, catalog) { below, _ in
          changes.append(.created(path: StorePath.text(names + below)))
        }
      }
    }
    return changes
  }

  /// Returns removals first, then moves, then creations. A move that does not fit into this order,
  /// for instance when two files exchange their names, is reported as a removal and a creation.
  /// `told` receives the locations of items that are new or replaced.
  private mutating func applyEntries(
    _ commit: CommitChanges, _ catalog: Transaction, _ told: inout Set<CatalogPlace>
  ) throws -> [ContainerChange] {
    var gone: [Item] = []
    var come: [Item] = []
    for entry in commit.entries {
      if let old = entry.old, let way = try way(to: entry.place.parent, after: nil) {
        gone.append(
          Item(
            id: old.file, kind: old.kind, place: entry.place, names: way.names + [entry.place.name],
            above: way.ids))
      }
      if let new = entry.new, let way = try way(to: entry.place.parent, after: commit) {
        come.append(
          Item(
            id: new.file, kind: new.kind, place: entry.place, names: way.names + [entry.place.name],
            above: way.ids))
      }
    }
    guard !gone.isEmpty || !come.isEmpty else { return [] }
    let moves = Self.moves(gone, come)
    let movedFrom = Set((moves.early + moves.late).map(\.from))
    let movedTo = Set((moves.early + moves.late).map(\.to))
    let movedPlaces = Set(movedTo.map { come[$0].place })

    // Update the locations.
    for item in gone { remove(item.id, item.place) }
    let stays = Set(come.map(\.id))
    for item in gone where item.kind == .directory && !stays.contains(item.id) {
      try forget(item.id, catalog)
    }
    for item in come { add(item.id, item.place) }

    let lost = Set(
      gone.indices.filter { gone[$0].kind == .directory && !movedFrom.contains($0) }.map { gone[$0].id })
    let fresh = Set(
      come.indices.filter { come[$0].kind == .directory && !movedTo.contains($0) }.map { come[$0].id })
    let lateDirectories = Set(moves.late.map { come[$0.to].id })
    // Whether an item is reported with the new directory that contains it. An item inside a
    // directory that was moved there is reported separately.
    let comesAlong = { (item: Item) in
      item.above.first { fresh.contains($0) || lateDirectories.contains($0) }.map { fresh.contains($0) }
        ?? false
    }
    let newByPlace = Dictionary(
      uniqueKeysWithValues: come.indices.filter { !movedTo.contains($0) }.map { (come[$0].place, $0) })
    var replaced: Set<Int> = []
    var removals: [ContainerChange] = []
    for (i, item) in gone.enumerated() where !movedFrom.contains(i) && lost.isDisjoint(with: item.above) {
      if let new = newByPlace[item.place], come[new].kind == item.kind, item.kind != .directory {
        replaced.insert(new)
      } else {
        removals.append(.removed(path: text(item.names)))
      }
    }
    var creations: [ContainerChange] = []
    var lateCreations: [ContainerChange] = []
    var changes: [ContainerChange] = []
    for (i, item) in come.enumerated() where !movedTo.contains(i) && !comesAlong(item) {
      told.insert(item.place)
      if replaced.contains(i) {
        changes.append(.changed(path: text(item.names)))
        continue
      }
      var created: [ContainerChange] = [.created(path: text(item.names))]
      if item.kind == .directory {
        let names = names + item.names
        try takeIn(item.id, catalog, except: movedPlaces) { below, place in
          told.insert(place)
          created.append(.created(path: StorePath.text(names + below)))
        }
      }
      if lateDirectories.isDisjoint(with: item.above) {
        creations += created
      } else {
        lateCreations += created
      }
    }
    let tell = { (move: Move) in
      ContainerChange.moved(
        from: StorePath.text(names + gone[move.from].names), to: StorePath.text(names + come[move.to].names))
    }
    return removals + moves.early.map(tell) + creations + moves.late.map(tell) + lateCreations + changes
  }

  /// A pair of indices: `from` in the removed items, `to` in the added ones.
  private struct Move {
    var from: Int
    var to: Int
  }

  /// Pairs the removed items with the added ones that have the same file. Early moves are possible
  /// before anything is created, and are ordered so that every target is free; late moves go into
  /// new directories.
  private static func moves(_ gone: [Item], _ come: [Item]) -> (early: [Move], late: [Move]) {
    var candidates: [Move] = []
    var goneByID: [UInt64: [Int]] = [:]
    for (i, item) in gone.enumerated() { goneByID[item.id, default: []].append(i) }
    for (i, item) in come.enumerated() {
      if let from = goneByID[item.id]?.popLast() { candidates.append(Move(from: from, to: i)) }
    }
    guard !candidates.isEmpty else { return ([], []) }
    let moved = Set(candidates.map { gone[$0.from].id })
    let lost = Set(gone.lazy.filter { $0.kind == .directory }.map(\.id))
    let fresh = Set(come.lazy.filter { $0.kind == .directory }.map(\.id)).subtracting(moved)
    let newPlaces = Set(come.map(\.place))
    var early: [Move] = []
    var late: [Move] = []
    for move in candidates {
      // Skip a move whose path would depend on the order in which other directories move.
      guard lost.isDisjoint(with: gone[move.from].above), moved.isDisjoint(with: come[move.to].above) else {
        continue
      }
      if fresh.isDisjoint(with: come[move.to].above) {
        early.append(move)
      } else if !newPlaces.contains(gone[move.from].place) {
        late.append(move)
      }
    }
    var ordered: [Move] = []
    var occupied = Set(early.map { gone[$0.from].place })
    while !early.isEmpty {
      var blocked: [Move] = []
      var ready: [Move] = []
      for move in early {
        if occupied.contains(come[move.to].place) { blocked.append(move) } else { ready.append(move) }
      }
      // The moves form a cycle: break it by freeing one source.
      if ready.isEmpty, let move = blocked.popLast() { occupied.remove(gone[move.from].place) }
      for move in ready { occupied.remove(gone[move.from].place) }
      ordered += ready
      early = blocked
    }
    return (ordered, late)
  }
}
