import EncryptedFile

/// The paths of a message's files and folders below its directory in the inbox: the original paths
/// with control characters replaced, and unique whatever the sender has sent.
///
/// A path here is the bytes of its names with slashes between them, without `..` and empty names.
/// The memory kept for a path does not depend on its depth.
struct InboxPlaces {
  /// Paths of the files; nil for a file that was named before.
  private(set) var files: [[UInt8]?] = []
  /// Paths of the given folders, in the given order.
  private(set) var directories: [[UInt8]] = []
  /// The number of different folders: those given, and those that contain a file or another folder.
  let folderCount: Int

  private static let slash = UInt8(ascii: "/")

  init(files originals: [[UInt8]], directories folders: [[UInt8]] = []) {
    let places = originals.map(Self.safe)
    directories = folders.map(Self.safe)
    // Directories keep their paths, and so do the parents of files. Files that collide with a
    // directory or another file get a number.
    let tree = FolderTree(places + directories.map { $0 + [Self.slash] })
    folderCount = tree.folderCount
    var names = FreeNames(tree)
    files.reserveCapacity(originals.count)
    var seen: Set<[UInt8]> = []
    for (original, place) in zip(originals, places) {
      files.append(seen.insert(original).inserted ? names.take(place) : nil)
    }
  }

  /// Gives each file a path that no other one and no folder has.
  private struct FreeNames {
    private let tree: FolderTree
    private var taken: Set<[UInt8]> = []
    /// The last number tried. Names that begin alike as far as a number leaves them whole share one, for each
    /// number of digits: whatever a sender calls its files, no number is tried twice.
    private var lastNumber: [[UInt8]: Int] = [:]

    init(_ tree: FolderTree) { self.tree = tree }

    mutating func take(_ place: [UInt8]) -> [UInt8] {
      if isFree(place) { return place }
      // The first number of so many digits; names have a number from two on.
      var first = 1
      while true {
        let shared = InboxPlaces.numbered(place, first)
        var number = lastNumber[shared] ?? max(first - 1, 1)
        defer {
          lastNumber[shared] = number
          first *= 10
        }
        while number < first * 10 - 1 {
          number += 1
          let unique = InboxPlaces.numbered(place, number)
          if isFree(unique) { return unique }
        }
      }
    }

    private mutating func isFree(_ place: [UInt8]) -> Bool {
      !tree.hasFolder(place) && taken.insert(place).inserted
    }
  }

  /// The folders in a set of paths; a path of a folder ends with a slash. In sorted order the items
  /// of a folder are adjacent and start with the folder's name and a slash, so a search by prefix
  /// finds a folder.
  private struct FolderTree {
    private let paths: [[UInt8]]
    let folderCount: Int

    init(_ paths: [[UInt8]]) {
      self.paths = paths.sorted { Self.order($0[...], $1) < 0 }
      var count = 0
      var before: [UInt8] = []
      for path in self.paths {
        var common = 0
        while common < min(path.count, before.count), path[common] == before[common] { common += 1 }
        // Count the folders that the path does not share with the one before it.
        count += path[common...].count { $0 == InboxPlaces.slash }
        before = path
      }
      folderCount = count
    }

    func hasFolder(_ place: [UInt8]) -> Bool {
      let prefix = place + [InboxPlaces.slash]
      var (low, high) = (0, paths.count)
      while low < high {
        let middle = (low + high) / 2
        if Self.order(paths[middle][...], prefix) < 0 { low = middle + 1 } else { high = middle }
      }
      return low < paths.count && Self.order(paths[low].prefix(prefix.count), prefix) == 0
    }

    /// Negative if `left` is before `right`, zero if they are equal.
    private static func order(_ left: ArraySlice<UInt8>, _ right: [UInt8]) -> Int {
      left.withUnsafeBytes { left in right.withUnsafeBytes { right in compareBytes(left, right) } }
    }
  }

  /// Whether a file of a message can have this path: its names have no control characters, and
  /// their number is within the limit.
  static func isPossible(_ place: [UInt8]) -> Bool {
    guard String(validating: place, as: UTF8.self) != nil, !place.contains(where: InboxName.isControl) else {
      return false
    }
    return FileName.areNames(place[...])
  }

  static func bytes(_ names: [FileName]) -> [UInt8] { Array(names.map(\.bytes).joined(separator: [slash])) }

  static func names(_ path: [UInt8]) -> [FileName] {
    path.split(separator: slash).map { FileName(bytes: Array($0))! }
  }

  /// The path without its last name.
  static func parent(_ path: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    path.lastIndex(of: slash).map { path[..<$0] } ?? []
  }

  private static func numbered(_ place: [UInt8], _ number: Int) -> [UInt8] {
    let parent = parent(place[...])
    let name = Array(place[(parent.isEmpty ? 0 : parent.count + 1)...])
    return (parent.isEmpty ? [] : parent + [slash]) + InboxName.numbered(name, number)
  }

  private static func safe(_ path: [UInt8]) -> [UInt8] {
    path.contains(where: InboxName.isControl)
      ? path.map { InboxName.isControl($0) ? UInt8(ascii: "_") : $0 } : path
  }
}

extension Transaction {
  /// A free name for a new message's directory. No name is reused, and none is taken that an
  /// arriving message has reserved: each collision advances the time by one millisecond.
  func freeInboxTime(from nanoseconds: Int64, of sender: FileName) throws -> FileName {
    let places = [InboxName.directory(of: sender), Staging.directory(of: sender)]
    let directories = try places.compactMap { try directoryIfThere($0) }
    var time = nanoseconds
    while try directories.contains(where: { try entry($0, InboxName.time(time)) != nil }) {
      time += 1_000_000
    }
    return InboxName.time(time)
  }
}

extension CatalogReading {
  /// The directory at a path given as names from the root on, without following links; nil if there
  /// is none.
  func directoryIfThere(_ names: some Sequence<FileName>) throws -> UInt64? {
    var current = rootFileID
    for name in names {
      guard let entry = try entry(current, name), entry.kind == .directory else { return nil }
      current = entry.file
    }
    return current
  }
}
