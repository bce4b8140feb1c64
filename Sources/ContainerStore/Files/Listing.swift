import Locks

/// The contents of a directory, or of everything below it, at the moment when the listing began.
/// The caller requests them in batches, and memory holds one batch at a time.
///
/// Parents precede their contents, and names are in bytewise order. Links are listed and not
/// followed. Any thread may call; concurrent calls receive different batches.
public final class Listing: Sendable {
  private struct Level {
    var directory: UInt64
    /// Path of the directory with a slash at the end; empty for the listed directory.
    var path: String
    /// Entries that were read and not listed yet.
    var entries: ArraySlice<(name: FileName, entry: DirectoryEntry)> = []
    /// The last name that was read.
    var last: FileName?
    var isAtEnd = false
  }

  private static let entriesPerLookMax = 256

  private let store: Store
  private let path: String
  private let isRecursive: Bool
  private let skipsHidden: Bool
  private let state: Guarded<(records: CatalogSnapshot, levels: [Level])>

  init(
    _ store: Store, _ path: String, _ directory: UInt64, in records: CatalogSnapshot,
    recursively: Bool,
    skipsHidden: Bool
  ) {
    self.store = store
    self.path = path
    isRecursive = recursively
    self.skipsHidden = skipsHidden
    state = Guarded((records, [Level(directory: directory, path: "")]))
  }

  /// Returns at most `countMax` more files, none at the end. A call that throws skips nothing.
  /// Throws `tableDamaged`, `catalogDamaged`, `closed`.
  public func next(_ countMax: Int) throws -> [ListedFile] {
    precondition(countMax > 0, "at least one file is asked for")
    return try store.namingPath(path) {
      try store.requireOpen()
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
  /// At most `countMax` names after `last` in bytewise order, with their entries.
  fileprivate func entries(_ directory: UInt64, after last: FileName?, countMax: Int) throws -> [(
    name: FileName, entry: DirectoryEntry
  )] {
    let all = CatalogKey.entries(parent: directory)
    // No name contains NUL, so the successor of `last` is `last` with a NUL appended.
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
