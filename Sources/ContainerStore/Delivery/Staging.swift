import EncryptedFile

/// What an arrival is known by before it is complete.
struct ArrivalKey: Hashable, Sendable {
  var sender: FileName
  /// Of the sender's container: 16 bytes.
  var incarnation: [UInt8]
  var number: UInt64
}

/// Where the files of a message that is on its way are kept: `/.opendynamics/staging/<sender>/<time>/<index>`, beside a symbolic link
/// `record` whose target says what they belong to. The link leads nowhere; as a record of the catalog it is there or not together with
/// the directory. The time is that of the message's directory in the inbox: so no other message gets it.
struct Staging {
  static let root = [FileName(".opendynamics")!, FileName("staging")!]
  static let recordName = FileName("record")!

  static func directory(of sender: FileName) -> [FileName] { root + [sender] }
  static func name(_ index: Int) -> FileName { FileName(String(index))! }
  /// Nil for a name that is no index.
  static func index(_ name: FileName) -> Int? {
    Int(name.description).flatMap { $0 >= 0 && Self.name($0) == name ? $0 : nil }
  }

  /// The directory's file id.
  var directory: UInt64
  var sender: FileName
  var time: FileName

  /// What stands in the record.
  struct Record: Equatable {
    var key: ArrivalKey
    var id: [UInt8]
    var fileCount: UInt64
    var byteCount: UInt64

    /// Five fields with blanks between them.
    var target: [UInt8] {
      let fields = [
        Identifier(key.incarnation).hex, String(key.number), Identifier(id).hex, String(fileCount),
        String(byteCount),
      ]
      return Array(fields.joined(separator: " ").utf8)
    }

    /// Nil for what is no record.
    init?(target: [UInt8], sender: FileName) {
      let fields = String(decoding: target, as: UTF8.self).split(separator: " ").map(String.init)
      guard fields.count == 5, let incarnation = Identifier(hex: fields[0])?.bytes,
        let id = Identifier(hex: fields[2])?.bytes, let number = UInt64(fields[1]),
        let fileCount = UInt64(fields[3]), let byteCount = UInt64(fields[4])
      else { return nil }
      self.init(
        key: ArrivalKey(sender: sender, incarnation: Array(incarnation), number: number), id: Array(id),
        fileCount: fileCount, byteCount: byteCount)
      // Only as it is written: no signs, leading zeros or further blanks, and counts that a message can have.
      guard self.target == target, (1...UInt64(UInt32.max)).contains(fileCount),
        byteCount < ArrivingMessage.filesByteCountMax
      else { return nil }
    }

    init(key: ArrivalKey, id: [UInt8], fileCount: UInt64, byteCount: UInt64) {
      self.key = key
      self.id = id
      self.fileCount = fileCount
      self.byteCount = byteCount
    }
  }
}

extension CatalogReading {
  /// What is staged of one sender's messages; a directory without a record that can be read has none.
  func staged(of sender: FileName) throws -> [(staging: Staging, record: Staging.Record?)] {
    guard let directory = try directoryIfThere(Staging.directory(of: sender)) else { return [] }
    return try entries(directory).filter { $0.entry.kind == .directory }.map { time, entry in
      (
        Staging(directory: entry.file, sender: sender, time: time),
        try stagingRecord(in: entry.file, of: sender)
      )
    }
  }

  private func stagingRecord(in directory: UInt64, of sender: FileName) throws -> Staging.Record? {
    guard let entry = try entry(directory, Staging.recordName), entry.kind == .symbolicLink else {
      return nil
    }
    return Staging.Record(target: try inode(entry.file).target, sender: sender)
  }

  /// Whether the staging is still what it was: an app may have removed it.
  func isThere(_ staging: Staging) throws -> Bool {
    guard let parent = try directoryIfThere(Staging.directory(of: staging.sender)) else { return false }
    return try entry(parent, staging.time)?.file == staging.directory
  }

  /// When something of it last changed.
  func lastChange(of staging: Staging) throws -> Int64 {
    var last = try inode(staging.directory).changed
    for inode in try inodes(try entries(staging.directory).map(\.entry.file)) {
      last = max(last, inode.changed)
    }
    return last
  }
}

extension Transaction {
  func makeStaging(_ record: Staging.Record) throws -> Staging {
    let sender = record.key.sender
    let time = try freeInboxTime(from: now, of: sender)
    let names = Staging.directory(of: sender) + [time]
    let directory = try directory(names, path: StorePath.text(names))
    try makeSymbolicLink(directory, Staging.recordName, to: record.target)
    return Staging(directory: directory, sender: sender, time: time)
  }

  /// Removes the directory with what is left in it, and those above it that are empty then. Fine when it is gone.
  func dropStaging(_ staging: Staging) throws {
    guard try isThere(staging) else { return }
    try dropSubtree(staging.directory, try subtree(staging.directory))
    let names = Staging.directory(of: staging.sender)
    try unlink(try directoryIfThere(names)!, staging.time)
    for count in (Staging.root.count...names.count).reversed() {
      guard let directory = try directoryIfThere(names[..<count]),
        let parent = try directoryIfThere(names[..<(count - 1)]),
        try cursorIsAtEnd(.entries(parent: directory))
      else { return }
      try dropAttributes(directory)
      delete(.inode(directory))
      try unlink(parent, names[count - 1])
    }
  }

  private func cursorIsAtEnd(_ prefix: CatalogKey) throws -> Bool {
    var cursor = try cursor(from: prefix)
    return try cursor.nextLive().map { !$0.key.hasPrefix(prefix) } ?? true
  }
}
