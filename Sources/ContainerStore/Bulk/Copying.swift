import EncryptedFile

/// Copies files inside a store, or from one to another. The copies have keys of their own.
struct Copying {
  let store: Store
  let target: Store
  let control: BulkControl

  /// See ``Container/copy(_:to:replacing:makingParents:control:)``.
  func run(
    _ from: StorePath, to: StorePath, replacing: Bool, makingParents: Bool, in records: CatalogSnapshot
  ) throws {
    let destination = to.text
    let sealing = UnitSealing(store: target)
    let from = try from.resolved(in: records, followingLast: false)
    func inTarget<R>(_ body: (CatalogSnapshot) throws -> R) throws -> R {
      store === target ? try body(records) : try target.withSnapshot(body)
    }
    let to = try inTarget { try to.resolved(in: $0, followingLast: replacing) }
    guard !to.names.isEmpty else { throw ContainerError(.fileExists, path: destination) }
    let top = try records.existing(from)
    if store === target, top.inode.kind == .directory, to.names.starts(with: from.names) {
      throw ContainerError(from.names == to.names ? .fileExists : .moveIntoItself, path: destination)
    }
    if top.inode.kind != .directory, to.namesDirectory {
      throw ContainerError(.isADirectory, path: destination)
    }
    var items: [(names: [FileName], file: FoundFile)] = [([], top)]
    if top.inode.kind == .directory { items += try records.subtree(top.id) }
    /// Throws `fileExists` for an item at the destination that may not be replaced.
    func check(_ catalog: some CatalogReading) throws {
      let place: (directory: UInt64, name: FileName)
      do {
        place = try catalog.parent(of: to)
      } catch ContainerError.noSuchFile where makingParents && top.inode.kind == .directory {
        return
      }
      guard let existing = try catalog.entry(place.directory, place.name) else { return }
      let isSame = store === target && existing.file == top.id
      guard replacing, existing.kind != .directory, top.inode.kind != .directory, !isSame else {
        throw ContainerError(.fileExists, path: destination)
      }
    }
    try inTarget { try check($0) }
    let files = items.filter { $0.file.inode.kind == .file }
    let sources = files.map(\.file)
    let paths = files.map { StorePath.text(from.names + $0.names) }
    var plan = UnitPlan()
    for (i, file) in sources.enumerated() {
      plan.addFile(extents: try records.checkedExtents(of: file, at: paths[i]))
    }
    // Read the attributes in the snapshot of the contents: the original may be gone after the
    // copying.
    let attributes = try store === target ? records.attributes(of: items.map(\.file.id)) : [:]
    let new = NewFiles(files.count, in: target)
    try target.namingPath(destination) {
      let runs = try BulkWork(plan: plan, control: control, workers: target.workers, slabs: target.slabs).run
      {
        [store] context, unit in
        try sealing.reseal(
          unit, from: store, sources: sources, paths: paths, of: new, checkInterval: 0,
          context: context)
      }
      try target.transaction(storing: runs.extents) { transaction in
        try check(transaction)
        var copies: [(file: UInt64, copy: UInt64)] = []
        for item in items where item.file.inode.kind == .directory {
          let directory = try transaction.directory(
            to.names + item.names, path: destination, permissions: item.file.inode.permissions)
          copies.append((item.file.id, directory))
        }
        for item in items where item.file.inode.kind == .symbolicLink {
          let names = to.names + item.names
          let directory = try transaction.directory(names.dropLast(), path: destination)
          let link = try transaction.makeSymbolicLink(directory, names.last!, to: item.file.inode.target)
          copies.append((item.file.id, link))
        }
        for (i, file) in files.enumerated() {
          let names = to.names + file.names
          let directory = try transaction.directory(names.dropLast(), path: destination)
          let copy = new[i]
          transaction.putFile(
            copy.id, sealing.inode(like: sources[i].inode, secret: copy.secret, now: transaction.now),
            extents: runs[i])
          try transaction.replace(directory, names.last!, with: copy.id, kind: .file)
          copies.append((sources[i].id, copy.id))
        }
        for (file, copy) in copies {
          for (name, value) in attributes[file] ?? [] { transaction.putAttribute(of: copy, name, value) }
        }
        // Set the directories' dates last, because adding entries changes them.
        let originals = Dictionary(
          uniqueKeysWithValues: items.lazy.filter { $0.file.inode.kind == .directory }
            .map { ($0.file.id, $0.file.inode.modified) })
        for (file, copy) in copies {
          guard let modified = originals[file] else { continue }
          try transaction.apply(AttributeChanges(modified: modified), to: copy)
        }
      }
    }
  }
}
