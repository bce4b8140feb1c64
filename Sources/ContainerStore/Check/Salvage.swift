import EncryptedFile

/// A catalog made of what is left where blocks of tables are lost in both copies.
///
/// Records in other blocks are unchanged. In the lost ranges, records of older tables stand in, which
/// may be outdated. Names that only older tables have are put into a folder of their own, since another
/// file may have the name by now, and so are files without any name. A file whose extents may be lost
/// in part is dropped: a missing extent would read as a hole.
struct Salvage {
  private let records: CatalogSnapshot
  /// Records outside the lost ranges.
  private var kept = ChangeMap()
  /// Records of older tables in the lost ranges.
  private var older = ChangeMap()
  private var lost: [TableFile.LostRange] = []
  private var inodes: [UInt64: Inode] = [:]
  private var links: [Link] = []
  /// One name of each file, by its id.
  private var nameOf: [UInt64: Link] = [:]
  private var extents: [UInt64: [Extent]] = [:]
  private var nextFile: UInt64 = rootFileID + 1
  private(set) var findings: [Finding] = []

  /// A directory entry.
  private struct Link {
    var parent: UInt64
    var name: FileName
    var entry: DirectoryEntry
  }

  static let folderName = "from older tables"

  init(_ records: CatalogSnapshot) { self.records = records }

  /// Returns the catalog as changes to an empty one. `slabs` has the sizes of the slabs that are there.
  mutating func run(slabs: [UInt32: UInt64]) throws -> ChangeMap {
    try read()
    try readFiles()
    giveUpIncompleteFiles()
    try nameFiles()
    return try catalog(slabs)
  }

  // MARK: Reading

  private mutating func read() throws {
    let first = CatalogKey(bytes: [])
    var strict = records
    strict.readMode = .salvaging
    var cursor = try strict.cursor(from: first)
    while let (key, value) = try cursor.nextLive() {
      if !Self.isCounter(key) { kept.put(key, value) }
    }
    lost = cursor.lostRanges
    cursor = try strict.cursor(from: first)
    cursor.showsOlder = true
    while let (key, value) = try cursor.nextLive() {
      if !Self.isCounter(key), kept[key] == nil { older.put(key, value) }
    }
  }

  /// Counters are counted anew.
  private static func isCounter(_ key: CatalogKey) -> Bool { key.kind == .state || key.kind == .slab }

  private func forEach(_ body: (CatalogKey, [UInt8]) -> Void) {
    for map in [older, kept] { map.visit { key, value in if let value { body(key, value) } } }
  }

  private mutating func readFiles() throws {
    var (inodes, links, extents, last) = (inodes, links, extents, rootFileID)
    forEach { key, value in
      switch key.kind {
      case .inode:
        guard let id = key.number(at: 1), let inode = try? Inode(value) else { return }
        inodes[id] = inode
        last = max(last, id)
      case .entry:
        guard let place = try? CatalogPlace(key), let entry = try? DirectoryEntry(value) else { return }
        links.append(Link(parent: place.parent, name: place.name, entry: entry))
        last = max(last, entry.file)
      case .extent:
        guard let id = key.number(at: 1), let extent = try? Extent(key: key, value: value) else { return }
        extents[id, default: []].append(extent)
      case .pinOfFile, .queued: last = max(last, key.number(at: 1) ?? 0)
      default: break
      }
    }
    // A directory is known by its entry or by one in it, and the root in any case.
    let parents = links.filter(isKept).map(\.parent)
    for id in links.filter({ $0.entry.kind == .directory }).map(\.entry.file) + parents + [rootFileID]
    where inodes[id] == nil {
      inodes[id] = CatalogSnapshot.lostDirectory
    }
    (self.inodes, self.links, self.extents) = (inodes, links, extents)
    for link in links { nameOf[link.entry.file] = link }
    // Files of which nothing is left may have had higher ids.
    nextFile = min(last, CatalogCounters.nextFileMax) + 1 << 20
  }

  private func isKept(_ link: Link) -> Bool { kept[.entry(parent: link.parent, name: link.name)] != nil }

  // MARK: Files

  private func runs(of file: UInt64, _ inode: Inode) -> [Extent] {
    (inode.firstExtent.map { [$0] } ?? []) + (extents[file] ?? [])
  }

  private mutating func giveUpIncompleteFiles() {
    var usedByKept: [UInt32: [Range<UInt64>]] = [:]
    var outdated: Set<UInt64> = []
    var uncertain: Set<UInt64> = []
    for (id, inode) in inodes where inode.kind == .file {
      let further = extents[id] ?? []
      let isOlder =
        kept[.inode(id)] == nil || further.contains { kept[.extent(file: id, start: $0.start)] == nil }
      if isOlder { outdated.insert(id) }
      let reachesEnd =
        inode.firstExtent.map { $0.end >= SegmentLayout.segmentCount(inode.size) } ?? (inode.size == 0)
      let keys = (CatalogKey.extents(file: id), CatalogKey.extents(file: id &+ 1))
      if !reachesEnd, isOlder || lost.contains(where: { $0.overlaps(keys.0, keys.1) }) {
        uncertain.insert(id)
      }
      if isOlder { continue }
      for run in runs(of: id, inode) {
        usedByKept[run.slab, default: []].append(run.offset..<run.offset + UInt64(run.storedByteCount))
      }
    }
    for slab in usedByKept.keys { usedByKept[slab]!.sort { $0.lowerBound < $1.lowerBound } }
    func isOverwritten(_ run: Extent) -> Bool {
      let range = run.offset..<run.offset + UInt64(run.storedByteCount)
      guard let used = usedByKept[run.slab] else { return false }
      var (low, high) = (0, used.count)
      while low < high {
        let middle = (low + high) / 2
        if used[middle].upperBound <= range.lowerBound { low = middle + 1 } else { high = middle }
      }
      return low < used.count && used[low].overlaps(range)
    }
    for id in outdated.union(uncertain).sorted() {
      let inode = inodes[id]!
      let runs = runs(of: id, inode)
      let checked = try? EncryptedFileReader.checked(runs, size: inode.size)
      let covered = checked?.reduce(UInt64(0)) { $0 + UInt64($1.count) }
      let isWhole = !uncertain.contains(id) || covered == SegmentLayout.segmentCount(inode.size)
      let path = path(of: id)
      guard checked != nil, isWhole, !outdated.contains(id) || !runs.contains(where: isOverwritten) else {
        findings.append(
          Finding(.damage, .tableDamaged, "given up: where its contents are is lost", path: path))
        inodes[id] = nil
        extents[id] = nil
        continue
      }
      if outdated.contains(id) {
        findings.append(
          Finding(.damage, .tableDamaged, "taken from an older table: it may be outdated", path: path))
      }
    }
    var left = links
    left.removeAll { link in
      guard let inode = inodes[link.entry.file] else {
        // Dropped files that had an inode are reported above.
        if isKept(link), kept[.inode(link.entry.file)] == nil, older[.inode(link.entry.file)] == nil {
          findings.append(
            Finding(
              .damage, .tableDamaged, "given up: its record is lost",
              path: StorePath.text(names(of: link.parent) + [link.name])))
        }
        return true
      }
      return inode.kind != link.entry.kind || inodes[link.parent]?.kind != .directory
    }
    links = left
  }

  private func path(of file: UInt64) -> String? {
    guard let link = nameOf[file] else { return nil }
    return StorePath.text(names(of: link.parent) + [link.name])
  }

  /// The names on the way to a directory, as far as they are known.
  private func names(of directory: UInt64) -> [FileName] {
    var names: [FileName] = []
    var next = directory
    while next != rootFileID, names.count < 1000, let link = nameOf[next] {
      names.append(link.name)
      next = link.parent
    }
    return names.reversed()
  }

  // MARK: Names

  private mutating func nameFiles() throws {
    let old = links.filter { !isKept($0) }
    var new = links.filter(isKept)
    var named = Set(new.map(\.entry.file)).union([rootFileID])
    let wereNamed = named
    var folders: [[FileName]: UInt64] = [:]
    var places = Set(new.map { CatalogPlace(parent: $0.parent, name: $0.name) })
    func add(_ file: UInt64, to parent: UInt64, as wanted: FileName) {
      var name = wanted
      var number = 2
      while !places.insert(CatalogPlace(parent: parent, name: name)).inserted {
        name = FileName("\(wanted) \(number)") ?? FileName("\(file)")!
        number += 1
      }
      new.append(
        Link(parent: parent, name: name, entry: DirectoryEntry(kind: inodes[file]!.kind, file: file)))
      named.insert(file)
    }
    /// The directory at a path in the folder for what has no place.
    func folder(_ path: [FileName]) -> UInt64 {
      if let id = folders[path] { return id }
      let id = nextFile
      nextFile += 1
      inodes[id] = CatalogSnapshot.lostDirectory
      folders[path] = id
      add(
        id, to: path.isEmpty ? rootFileID : folder(Array(path.dropLast())),
        as: path.last ?? FileName(Self.folderName)!)
      return id
    }
    for link in old where !named.contains(link.entry.file) {
      // What is in a directory that has no name itself comes along with it.
      let parent = wereNamed.contains(link.parent) ? folder(names(of: link.parent)) : link.parent
      add(link.entry.file, to: parent, as: link.name)
    }
    for id in inodes.keys.sorted() where !named.contains(id) { add(id, to: folder([]), as: nameless(id)) }
    // Records of different times may lead in a circle.
    var children: [UInt64: [UInt64]] = [:]
    for link in new where link.entry.kind == .directory {
      children[link.parent, default: []].append(link.entry.file)
    }
    var reached: Set<UInt64> = []
    var open = [rootFileID]
    while let next = open.popLast() {
      if reached.insert(next).inserted { open += children[next] ?? [] }
    }
    let lostDirectories = Set(inodes.filter { $0.value.kind == .directory }.keys).subtracting(reached)
    new.removeAll { lostDirectories.contains($0.entry.file) }
    for id in lostDirectories.sorted() { add(id, to: folder([]), as: nameless(id)) }
    links = new
  }

  private func nameless(_ id: UInt64) -> FileName {
    FileName("\(inodes[id]!.kind == .directory ? "folder" : "file") \(id)")!
  }

  // MARK: The new catalog

  private mutating func catalog(_ slabs: [UInt32: UInt64]) throws -> ChangeMap {
    var map = ChangeMap()
    forEach { key, value in
      switch key.kind {
      case .inode, .entry: break
      case .extent, .attribute: if key.number(at: 1).flatMap({ inodes[$0] }) != nil { map.put(key, value) }
      default: map.put(key, value)
      }
    }
    var counts: [UInt64: UInt32] = [rootFileID: 1]
    for link in links {
      map.put(.entry(parent: link.parent, name: link.name), link.entry.encoded)
      counts[link.entry.file, default: 0] += 1
    }
    for (id, inode) in inodes {
      var inode = inode
      inode.linkCount = counts[id] ?? 1
      map.put(.inode(id), inode.encoded)
    }
    var check = CatalogCheck(CatalogSnapshot(overlay: map))
    try check.checkFiles { _ in }
    var outbox = OutboxCheck(CatalogSnapshot(overlay: map))
    try outbox.check { _, extents in check.add(extents) }
    var last: UInt32?
    for (slab, counter) in check.slabCounters() {
      var counter = counter
      // What is in the slab beyond stays as it is.
      counter.end = min(max(counter.end, slabs[slab] ?? 0), SlabCounter.slabByteCountMax)
      guard counter.liveByteCount <= counter.end else {
        throw ContainerError(.catalogDamaged, detail: "runs of slab \(slab) share bytes")
      }
      map.put(.slab(slab), counter.encoded)
      last = max(last ?? 0, slab)
    }
    let nextSlab = max(last.map { $0 + 1 } ?? 0, slabs.keys.max().map { $0 + 1 } ?? 0)
    map.put(.state, CatalogCounters(nextFile: nextFile, nextSlab: nextSlab).encoded)
    return map
  }
}
