/// What is in a directory, or below it, as it was when the listing began: asked for in pieces, in memory one piece at a time.
///
/// Parents come before what is in them, and names in bytewise order. Links are listed and not followed. Any thread may call; several
/// get different pieces.
public final class Listing: Sendable {
  private struct Level {
    var directory: UInt64
    /// With a slash at the end, or empty.
    var path: String
    /// Read and not listed yet.
    var entries: ArraySlice<(name: FileName, entry: DirectoryEntry)> = []
    /// The last name that was read.
    var last: FileName?
    var isAtEnd = false
  }

  private static let entriesPerLookMax = 256

  private let container: Container
  private let path: String
  private let isRecursive: Bool
  private let skipsHidden: Bool
  private let state: Guarded<(records: CatalogSnapshot, levels: [Level])>

  fileprivate init(
    _ container: Container, _ path: String, _ directory: UInt64, in records: CatalogSnapshot,
    recursively: Bool,
    skipsHidden: Bool
  ) {
    self.container = container
    self.path = path
    isRecursive = recursively
    self.skipsHidden = skipsHidden
    state = Guarded((records, [Level(directory: directory, path: "")]))
  }

  /// At most `countMax` more files, none at the end. When it throws, nothing is skipped: `tableDamaged`, `catalogDamaged`, `closed`.
  public func next(_ countMax: Int) throws -> [ListedFile] {
    precondition(countMax > 0, "at least one file is asked for")
    return try container.namingPath(path) {
      try container.requireOpen()
      return try state.withLock { state in
        let records = state.records
        var rest = state.levels
        var found: [(path: String, file: UInt64)] = []
        while found.count < countMax, let level = rest.last {
          guard let (name, entry) = level.entries.first else {
            if level.isAtEnd { rest.removeLast() } else { try look(&rest[rest.count - 1], in: records) }
            continue
          }
          rest[rest.count - 1].entries.removeFirst()
          if skipsHidden, name.bytes[0] == UInt8(ascii: ".") { continue }
          let path = level.path + name.description
          found.append((path, entry.file))
          guard isRecursive, entry.kind == .directory else { continue }
          guard !rest.contains(where: { $0.directory == entry.file }) else {
            throw ContainerError(.catalogDamaged, detail: "a directory is reached twice")
          }
          rest.append(Level(directory: entry.file, path: path + "/"))
        }
        let inodes = try records.inodes(found.map(\.file))
        state.levels = rest
        return zip(found, inodes).map { found, inode in
          ListedFile(path: found.path, attributes: FileAttributes(FoundFile(id: found.file, inode: inode)))
        }
      }
    }
  }

  private func look(_ level: inout Level, in records: CatalogSnapshot) throws {
    let entries = try records.entries(
      level.directory, after: level.last, countMax: Self.entriesPerLookMax)
    level.entries = entries[...]
    level.last = entries.last?.name ?? level.last
    level.isAtEnd = entries.count < Self.entriesPerLookMax
  }
}

extension CatalogReading {
  /// At most `countMax` names behind `last`, in bytewise order, and what they name.
  fileprivate func entries(_ directory: UInt64, after last: FileName?, countMax: Int) throws -> [(
    name: FileName, entry: DirectoryEntry
  )] {
    let all = CatalogKey.entries(parent: directory)
    // No name has a NUL: nothing is between a name and the same with one behind it.
    let first = last.map { CatalogKey(bytes: CatalogKey.entry(parent: directory, name: $0).bytes + [0]) }
    var cursor = try cursor(from: first ?? all)
    var found: [(name: FileName, entry: DirectoryEntry)] = []
    while found.count < countMax, let (key, value) = try cursor.nextLive(), key.hasPrefix(all) {
      let entry = try Self.decode(value) { bytes throws(MalformedBytes) in try DirectoryEntry(bytes) }
      found.append((try CatalogPlace(key).name, entry))
    }
    return found
  }
}

extension Container {
  /// Begins a listing of a directory, with `recursively` of everything below it, which goes on showing what is there now. With
  /// `skipsHidden`, what begins with a dot is left out with everything in it. Throws `noSuchFile`, `notADirectory`.
  public func listing(of text: String, recursively: Bool = false, skipsHidden: Bool = false) throws -> Listing
  {
    let path = try StorePath(text)
    return try namingPath(text) {
      try withSnapshot { records in
        Listing(
          self, text, try records.existingDirectory(path).id, in: records, recursively: recursively,
          skipsHidden: skipsHidden)
      }
    }
  }
}
