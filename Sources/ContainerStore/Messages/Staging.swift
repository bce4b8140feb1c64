import SodiumPrimitives

/// The identity of an arrival: sender and message id.
struct ArrivalKey: Hashable, Sendable {
  var sender: FileName
  var id: Identifier
}

/// The directory for the files of a message that is being received:
/// `/.opendynamics/staging/<sender>/<time>/<index>`. A record of type `77` under the directory's
/// file id identifies the message. The time is the name of the message's directory in the inbox,
/// which no other message gets.
struct Staging {
  /// Messages of one sender that are staged at most, and of all senders together.
  static let countMax = 64
  static let allCountMax = 1024

  static let root = [FileName(".opendynamics")!, FileName("staging")!]

  static func directory(of sender: FileName) -> [FileName] { root + [sender] }
  static func name(_ index: Int) -> FileName { FileName(String(index))! }
  /// The index in a file's name; nil for any other name.
  static func index(_ name: FileName) -> Int? {
    Int(name.description).flatMap { $0 >= 0 && Self.name($0) == name ? $0 : nil }
  }

  /// The directory's file id.
  var directory: UInt64
  var sender: FileName
  var time: FileName

  /// The value of a record `77`.
  struct Record: Equatable {
    var key: ArrivalKey
    /// The sender's number for the message.
    var number: UInt64
    var fileCount: UInt64
    var byteCount: UInt64

    var encoded: [UInt8] {
      var writer = ByteWriter()
      writer.append(key.id)
      writer.append(number)
      writer.append(fileCount)
      writer.append(byteCount)
      return writer.bytes
    }

    /// `sender` is the name of the directory that contains the staging.
    init(_ bytes: [UInt8], sender: FileName) throws(MalformedBytes) {
      var reader = ByteReader(bytes)
      let id = try reader.identifier()
      let number = try reader.read(UInt64.self)
      let fileCount = try reader.read(UInt64.self)
      let byteCount = try reader.read(UInt64.self)
      try reader.end()
      guard OutboxState.numbers.contains(number),
        (1...UInt64(UInt32.max)).contains(fileCount), byteCount < ArrivingMessage.filesByteCountMax
      else { throw MalformedBytes(what: "a staged message that cannot be") }
      self.init(
        key: ArrivalKey(sender: sender, id: id), number: number, fileCount: fileCount, byteCount: byteCount)
    }

    init(key: ArrivalKey, number: UInt64, fileCount: UInt64, byteCount: UInt64) {
      self.key = key
      self.number = number
      self.fileCount = fileCount
      self.byteCount = byteCount
    }
  }
}

extension CatalogReading {
  /// The staged messages of one sender; the record is nil if it is missing or malformed.
  func staged(of sender: FileName) throws -> [(staging: Staging, record: Staging.Record?)] {
    guard let directory = try directoryIfThere(Staging.directory(of: sender)) else { return [] }
    return try entries(directory).filter { $0.entry.kind == .directory }.map { time, entry in
      (
        Staging(directory: entry.file, sender: sender, time: time),
        try stagingRecord(of: entry.file, from: sender)
      )
    }
  }

  func isStaged(_ key: ArrivalKey) throws -> Bool {
    try staged(of: key.sender).contains { $0.record?.key == key }
  }

  private func stagingRecord(of directory: UInt64, from sender: FileName) throws -> Staging.Record? {
    guard let bytes = try value(.staging(directory)) else { return nil }
    return try? Staging.Record(bytes, sender: sender)
  }

  /// Whether the staging directory still exists: an app may have removed it.
  func isThere(_ staging: Staging) throws -> Bool {
    guard let parent = try directoryIfThere(Staging.directory(of: staging.sender)) else { return false }
    return try entry(parent, staging.time)?.file == staging.directory
  }

  /// The time of the last change of the staging directory or its files.
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
    putStaging(directory, record.encoded)
    return Staging(directory: directory, sender: sender, time: time)
  }

  /// Removes the directory with its contents, and parent directories that become empty. Does
  /// nothing if the directory is gone.
  func dropStaging(_ staging: Staging) throws {
    guard try isThere(staging) else { return }
    try dropSubtree(staging.directory)
    let names = Staging.directory(of: staging.sender)
    try unlink(try directoryIfThere(names)!, staging.time)
    for count in (Staging.root.count...names.count).reversed() {
      guard let directory = try directoryIfThere(names[..<count]),
        let parent = try directoryIfThere(names[..<(count - 1)]),
        try cursorIsAtEnd(.entries(parent: directory))
      else { return }
      try dropDirectory(directory)
      try unlink(parent, names[count - 1])
    }
  }

  private func cursorIsAtEnd(_ prefix: CatalogKey) throws -> Bool {
    var cursor = try cursor(from: prefix)
    return try cursor.nextLive().map { !$0.key.hasPrefix(prefix) } ?? true
  }
}
