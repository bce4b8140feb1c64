import EncryptedFile

/// Read access to a catalog, either a snapshot or a transaction. Throws `tableDamaged` when a block
/// cannot be opened.
protocol CatalogReading {
  func value(_ key: CatalogKey) throws -> [UInt8]?
  /// The values of keys, which are in ascending order: keys in the same block are found together.
  func values(_ keys: [CatalogKey]) throws -> [[UInt8]?]
  /// A cursor at the first record whose key is not before `key`.
  func cursor(from key: CatalogKey) throws -> MergedCursor
  /// Throws `diskFull` when the file's newest contents could not be stored for lack of space.
  func requireStored(_ file: UInt64) throws
  /// A file's extents in the order of their starts.
  func extents(_ file: UInt64, _ inode: Inode) throws -> [Extent]
}

extension CatalogReading {
  /// Calls `body` for the records whose keys begin with `prefix`, in order.
  func scan(_ prefix: CatalogKey, _ body: (CatalogKey, [UInt8]) throws -> Void) throws {
    var cursor = try cursor(from: prefix)
    while let (key, value) = try cursor.next(), key.hasPrefix(prefix) {
      if let value { try body(key, value) }
    }
  }

  /// Records whose keys begin with `prefix`, in order.
  func records(_ prefix: CatalogKey) throws -> [(key: CatalogKey, value: [UInt8])] {
    var found: [(key: CatalogKey, value: [UInt8])] = []
    try scan(prefix) { found.append(($0, $1)) }
    return found
  }
}

extension CatalogReading {
  func inode(_ file: UInt64) throws -> Inode {
    guard let bytes = try value(.inode(file)) else {
      throw ContainerError(.catalogDamaged, detail: "file \(file) has no inode")
    }
    return try Self.decode(bytes) { bytes throws(MalformedBytes) in try Inode(bytes) }
  }

  func entry(_ parent: UInt64, _ name: FileName) throws -> DirectoryEntry? {
    guard let bytes = try value(.entry(parent: parent, name: name)) else { return nil }
    return try Self.decode(bytes) { bytes throws(MalformedBytes) in try DirectoryEntry(bytes) }
  }

  /// Names and their targets, in bytewise order.
  func entries(_ directory: UInt64) throws -> [(name: FileName, entry: DirectoryEntry)] {
    try records(.entries(parent: directory)).map { key, value in
      guard let name = FileName(bytes: Array(key.bytes.dropFirst(9))) else {
        throw ContainerError(.catalogDamaged, detail: "a directory entry with an impossible name")
      }
      return (name, try Self.decode(value) { bytes throws(MalformedBytes) in try DirectoryEntry(bytes) })
    }
  }

  func extents(_ file: UInt64, _ inode: Inode) throws -> [Extent] { try recordedExtents(file, inode) }

  func recordedExtents(_ file: UInt64, _ inode: Inode) throws -> [Extent] {
    try requireStored(file)
    guard let first = inode.firstExtent else { return [] }
    // An extent never reaches past the size, so the first one is often the only one.
    if first.end >= SegmentLayout.segmentCount(inode.size) { return [first] }
    var extents = [first]
    try scan(.extents(file: file)) { key, value in
      extents.append(
        try Self.decode(value) { bytes throws(MalformedBytes) in try Extent(key: key, value: bytes) })
    }
    return extents
  }

  /// The inode of a file and its runs; nil where there is no such file, or its record is malformed.
  func runs(of file: UInt64) throws -> (inode: Inode, runs: ExtentMap)? {
    guard let bytes = try value(.inode(file)), let inode = try? Inode(bytes) else { return nil }
    return (inode, ExtentMap(checked: try extents(file, inode)))
  }

  /// The inodes of files. They are looked up in the order of their keys, so that each block is
  /// opened once.
  func inodes(_ files: [UInt64]) throws -> [Inode] {
    let order = files.indices.sorted { files[$0] < files[$1] }
    var found = [Inode?](repeating: nil, count: files.count)
    for (i, bytes) in zip(order, try values(order.map { .inode(files[$0]) })) {
      guard let bytes else {
        throw ContainerError(.catalogDamaged, detail: "file \(files[i]) has no inode")
      }
      found[i] = try Self.decode(bytes) { bytes throws(MalformedBytes) in try Inode(bytes) }
    }
    return found.map { $0! }
  }

  /// Extended attributes of those files that have any.
  func attributes(of files: [UInt64]) throws -> [UInt64: [(name: [UInt8], value: [UInt8])]] {
    // Most containers have no attributes: then no file is examined. Where the first ones may be lost, each file tells.
    let all = CatalogKey.all(.attribute)
    do {
      var cursor = try cursor(from: all)
      guard let first = try cursor.nextLive(), first.key.hasPrefix(all) else { return [:] }
    } catch  where TableFile.isLoss(error) {}
    var found: [UInt64: [(name: [UInt8], value: [UInt8])]] = [:]
    for file in files {
      try scan(.attributes(file: file)) { key, value in
        found[file, default: []].append((Array(key.bytes.dropFirst(9)), value))
      }
    }
    return found
  }

  /// Everything below a directory, parents before children; names are relative to it.
  func subtree(_ directory: UInt64) throws -> [(names: [FileName], file: FoundFile)] {
    var found: [(names: [FileName], file: FoundFile)] = []
    var open: [(names: [FileName], id: UInt64)] = [([], directory)]
    var seen: Set<UInt64> = [directory]
    while let (names, id) = open.popLast() {
      let entries = try entries(id)
      let inodes = try inodes(entries.map(\.entry.file))
      for (i, (name, entry)) in entries.enumerated() {
        found.append((names + [name], FoundFile(id: entry.file, inode: inodes[i])))
        guard entry.kind == .directory else { continue }
        guard seen.insert(entry.file).inserted else { throw Self.reachedTwice }
        open.append((names + [name], entry.file))
      }
    }
    return found
  }

  /// Calls `body` with a directory's entries, and with those of each directory below it, parents before children. Without the names on the
  /// way to them, which take the square of the depth in memory.
  func forEachDirectory(
    in directory: UInt64,
    _ body: (_ directory: UInt64, _ entries: [(name: FileName, entry: DirectoryEntry)]) throws -> Void
  ) throws {
    var open = [directory]
    var seen: Set<UInt64> = [directory]
    while let directory = open.popLast() {
      let entries = try entries(directory)
      for (_, entry) in entries where entry.kind == .directory {
        guard seen.insert(entry.file).inserted else { throw Self.reachedTwice }
        open.append(entry.file)
      }
      try body(directory, entries)
    }
  }

  private static var reachedTwice: ContainerError {
    ContainerError(.catalogDamaged, detail: "a directory is reached twice")
  }

  static func decode<T>(_ bytes: [UInt8], _ body: ([UInt8]) throws(MalformedBytes) -> T) throws -> T {
    do throws(MalformedBytes) { return try body(bytes) } catch {
      throw ContainerError(.catalogDamaged, detail: error.what)
    }
  }
}
