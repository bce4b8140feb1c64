import EncryptedFile

/// Names below the inbox.
enum InboxName {
  static let inbox = FileName("Inbox")!

  /// Throws `invalidName` for an application id that is no name, or has control characters.
  static func sender(_ id: String) throws -> FileName {
    guard let name = FileName(id), !name.bytes.contains(where: isControl) else {
      throw ContainerError(.invalidName, path: id, detail: "the sender's application id")
    }
    return name
  }

  /// Nil for what ``sender(_:)`` would refuse.
  static func sender(bytes: some Sequence<UInt8>) -> FileName? {
    String(validating: bytes, as: UTF8.self).flatMap { try? sender($0) }
  }

  /// Whether a path is `/Inbox/<sender>/` and one more name.
  static func isDirectory(_ path: [UInt8], of sender: FileName) -> Bool {
    let parent = Array(StorePath.text(directory(of: sender)).utf8) + [UInt8(ascii: "/")]
    return path.starts(with: parent) && FileName(bytes: Array(path.dropFirst(parent.count))) != nil
      && String(validating: path, as: UTF8.self) != nil
  }

  /// Where a sender's messages are.
  static func directory(of sender: FileName) -> [FileName] { [inbox, sender] }

  /// `yyyyMMdd'T'HHmmss.SSS'Z'` in UTC: fixed width, sorts by time, no blanks or colons.
  static func time(_ nanoseconds: Int64) -> FileName {
    let calendar = CalendarTime(nanoseconds)
    func digits(_ value: Int, _ width: Int) -> String {
      let text = String(value)
      return String(repeating: "0", count: max(0, width - text.count)) + text
    }
    let date = digits(calendar.year, 4) + digits(calendar.month, 2) + digits(calendar.day, 2)
    let time = digits(calendar.hour, 2) + digits(calendar.minute, 2) + digits(calendar.second, 2)
    return FileName("\(date)T\(time).\(digits(calendar.millisecond, 3))Z")!
  }

  static func isControl(_ byte: UInt8) -> Bool { byte < 0x20 || byte == 0x7f }

  /// Another name, for an original that would take the place of one that differs from it only in what was replaced.
  static func numbered(_ name: [UInt8], _ number: Int) -> [UInt8] {
    let suffix = Array("-\(number)".utf8)
    var kept = name.prefix(FileName.byteCountMax - suffix.count)
    // Not in the middle of a UTF-8 character.
    while kept.count < name.count, name[kept.count] & 0xc0 == 0x80 { kept = kept.dropLast() }
    return kept + suffix
  }
}

/// Which places the files and folders of a message get below its inbox directory: their original paths with control characters
/// replaced, no two files in the same place, whoever sent them.
///
/// A path is here the bytes of its names with slashes between them; `..` and empty names are gone already. What is remembered of a path
/// does not grow with its depth.
struct InboxPlaces {
  /// Nil for a file that was named before.
  private(set) var files: [[UInt8]?] = []
  /// In the order in which they were given.
  private(set) var directories: [[UInt8]] = []
  /// Those that were given and those above a file or another folder, each once.
  let folderCount: Int

  /// Names of a path.
  static let depthMax = 128

  private static let slash = UInt8(ascii: "/")

  init(files originals: [[UInt8]], directories folders: [[UInt8]] = []) {
    let places = originals.map(Self.safe)
    directories = folders.map(Self.safe)
    // Directories keep their places, those above a file too; files make way for them and for each other.
    let tree = FolderTree(places + directories.map { $0 + [Self.slash] })
    folderCount = tree.folderCount
    var taken: Set<[UInt8]> = []
    files.reserveCapacity(originals.count)
    // Where the search for a free number goes on, by place: of many that share one, each begins behind the one before.
    var lastNumber: [[UInt8]: Int] = [:]
    var seen: Set<[UInt8]> = []
    for (original, place) in zip(originals, places) {
      guard seen.insert(original).inserted else {
        files.append(nil)
        continue
      }
      var unique = place
      var number = lastNumber[place] ?? 1
      while tree.hasFolder(unique) || !taken.insert(unique).inserted {
        number += 1
        let parent = Self.parent(place[...])
        let name = Array(place[(parent.isEmpty ? 0 : parent.count + 1)...])
        unique = (parent.isEmpty ? [] : parent + [Self.slash]) + InboxName.numbered(name, number)
      }
      if number > 1 { lastNumber[place] = number }
      files.append(unique)
    }
  }

  /// The folders of paths, which end with a slash where the last name is a folder's. Sorted paths know them all: what is below a folder
  /// stands together, behind the folder's own name and a slash.
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
        // The folders of the path that the one before it does not have.
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

    /// Negative when `left` is before `right`, zero when they are the same.
    private static func order(_ left: ArraySlice<UInt8>, _ right: [UInt8]) -> Int {
      left.withUnsafeBytes { left in right.withUnsafeBytes { right in compareBytes(left, right) } }
    }
  }

  /// Whether a file of a message can have this place: names without control characters, not too many of them.
  static func isPossible(_ place: [UInt8]) -> Bool {
    guard String(validating: place, as: UTF8.self) != nil, !place.contains(where: InboxName.isControl) else {
      return false
    }
    return areNames(place[...])
  }

  /// Whether these are names with slashes between them, at most ``depthMax``.
  static func areNames(_ path: ArraySlice<UInt8>) -> Bool {
    let names = path.split(separator: slash, omittingEmptySubsequences: false)
    return names.count <= depthMax && names.allSatisfy { FileName(bytes: Array($0)) != nil }
  }

  static func bytes(_ names: [FileName]) -> [UInt8] { Array(names.map(\.bytes).joined(separator: [slash])) }

  static func names(_ path: [UInt8]) -> [FileName] {
    path.split(separator: slash).map { FileName(bytes: Array($0))! }
  }

  /// Without its last name.
  static func parent(_ path: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    path.lastIndex(of: slash).map { path[..<$0] } ?? []
  }

  private static func safe(_ path: [UInt8]) -> [UInt8] {
    path.contains(where: InboxName.isControl)
      ? path.map { InboxName.isControl($0) ? UInt8(ascii: "_") : $0 } : path
  }
}

extension Transaction {
  /// The name of a new message's directory. None is ever used again, nor one that a message on its way is going to have: when two share
  /// a millisecond, the time moves on by one.
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
  /// The directory that names lead to from the root on, without following links; nil when there is none.
  func directoryIfThere(_ names: some Sequence<FileName>) throws -> UInt64? {
    var current = rootFileID
    for name in names {
      guard let entry = try entry(current, name), entry.kind == .directory else { return nil }
      current = entry.file
    }
    return current
  }
}
