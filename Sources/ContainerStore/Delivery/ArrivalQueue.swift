/// A message that has arrived and was not handled to the end yet.
package struct QueuedMessage: Sendable {
  /// Its place in the queue: ascending, never used again.
  package var arrival: UInt64
  /// 16 bytes.
  package var id: [UInt8]
  /// Application id.
  package var sender: String
  /// As it was offered.
  package var message: [UInt8]
  /// Its own in the inbox; nil for a message without files.
  package var directory: String?
  /// In the offered order; sizes in bytes.
  package var files: [(path: String, size: UInt64)]
}

extension CatalogKey {
  static func queued(_ arrival: UInt64) -> CatalogKey {
    CatalogKey(bytes: [Kind.queued.rawValue] + orderedBytes(arrival))
  }
  static func queuedMessages(_ arrival: UInt64) -> CatalogKey {
    CatalogKey(bytes: [Kind.queuedMessage.rawValue] + orderedBytes(arrival))
  }
  static func queuedMessage(_ arrival: UInt64, chunk: UInt32) -> CatalogKey {
    CatalogKey(bytes: queuedMessages(arrival).bytes + orderedBytes(chunk))
  }
}

/// The value of a record `78`.
struct QueuedRecord: Equatable {
  var time: Int64
  var id: [UInt8]
  var messageByteCount: UInt32
  var fileCount: UInt64
  var sender: [UInt8]
  /// Path of the directory in the inbox; empty without files.
  var directory: [UInt8]

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(time)
    writer.append(id)
    writer.append(messageByteCount)
    writer.appendZeros(3)
    writer.append(UInt8(sender.count))
    writer.append(fileCount)
    writer.append(sender)
    writer.append(directory)
    return writer.bytes
  }

  init(
    time: Int64, id: [UInt8], messageByteCount: UInt32, fileCount: UInt64, sender: [UInt8],
    directory: [UInt8]
  ) {
    self.time = time
    self.id = id
    self.messageByteCount = messageByteCount
    self.fileCount = fileCount
    self.sender = sender
    self.directory = directory
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    time = try reader.read()
    id = try reader.bytes(ArrivingMessage.idByteCount)
    messageByteCount = try reader.read()
    try reader.zeros(3)
    let senderByteCount = try reader.read(UInt8.self)
    fileCount = try reader.read()
    sender = try reader.bytes(Int(senderByteCount))
    directory = try reader.bytes(reader.remaining)
    guard let name = InboxName.sender(bytes: sender) else {
      throw MalformedBytes(what: "a queued message of a sender that cannot be")
    }
    guard messageByteCount <= ArrivingMessage.byteCountMax, fileCount <= UInt32.max else {
      throw MalformedBytes(what: "a queued message of \(messageByteCount) bytes with \(fileCount) files")
    }
    guard fileCount == 0 ? directory.isEmpty : InboxName.isDirectory(directory, of: name) else {
      throw MalformedBytes(what: "a queued message whose files are in a directory that cannot be")
    }
  }
}

/// What stands in the records `79` of a message, one behind the other.
struct QueuedContents: Equatable {
  struct File: Equatable {
    /// Below the message's directory.
    var place: [UInt8]
    var size: UInt64

    var encoded: [UInt8] {
      var writer = ByteWriter()
      writer.append(varint: size)
      writer.append(varint: UInt64(place.count))
      writer.append(place)
      return writer.bytes
    }
  }

  var message: [UInt8]
  var files: [File]

  var encoded: [UInt8] { message + files.flatMap(\.encoded) }

  init(message: [UInt8], files: [File]) {
    self.message = message
    self.files = files
  }

  init(_ bytes: [UInt8], of record: QueuedRecord) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    message = try reader.bytes(Int(record.messageByteCount))
    files = []
    var places: Set<[UInt8]> = []
    var rest = ArrivingMessage.filesByteCountMax
    for _ in 0..<record.fileCount {
      let size = try reader.varint()
      let place = try reader.bytes(Int(try reader.varint32()))
      guard size < rest else { throw MalformedBytes(what: "files that are too long together") }
      rest -= size
      guard InboxPlaces.isPossible(place), places.insert(place).inserted else {
        throw MalformedBytes(what: "a file in a place that cannot be")
      }
      files.append(File(place: place, size: size))
    }
    try reader.end()
  }
}

extension Transaction {
  static let queuedChunkByteCountMax = 32_768

  /// Puts a message behind those that wait; `files` are places below its directory, and sizes. Returns its number.
  func queue(
    _ message: ArrivingMessage, directory: String, files: some Sequence<(place: [UInt8], size: UInt64)>
  ) -> UInt64 {
    // Ascending over all openings, and no file is going to have it.
    let arrival = takeFileID()
    let record = QueuedRecord(
      time: now, id: message.id, messageByteCount: UInt32(message.message.count),
      fileCount: message.fileCount, sender: Array(message.sender.utf8), directory: Array(directory.utf8))
    put(.queued(arrival), record.encoded)
    var chunk: UInt32 = 0
    var writer = ByteWriter()
    func writeChunk() {
      put(.queuedMessage(arrival, chunk: chunk), writer.bytes)
      chunk += 1
      writer = ByteWriter()
    }
    func append(_ bytes: [UInt8]) {
      var rest = bytes[...]
      while !rest.isEmpty {
        let taken = rest.prefix(Self.queuedChunkByteCountMax - writer.bytes.count)
        writer.append(taken)
        rest = rest.dropFirst(taken.count)
        if writer.bytes.count == Self.queuedChunkByteCountMax { writeChunk() }
      }
    }
    append(message.message)
    for file in files { append(QueuedContents.File(place: file.place, size: file.size).encoded) }
    if !writer.bytes.isEmpty { writeChunk() }
    return arrival
  }

  /// Takes a message out of the queue. Fine when it is not there.
  func endQueued(_ arrival: UInt64) throws {
    guard try value(.queued(arrival)) != nil else { return }
    for (key, _) in try records(.queuedMessages(arrival)) { delete(key) }
    delete(.queued(arrival))
  }
}

extension CatalogReading {
  /// Throws `catalogDamaged` where the records of the message contradict the format or each other.
  func queuedMessage(_ arrival: UInt64, _ value: [UInt8]) throws -> QueuedMessage {
    let record = try Self.decode(value) { bytes throws(MalformedBytes) in try QueuedRecord(bytes) }
    var bytes: [UInt8] = []
    var chunk: UInt32 = 0
    try scan(.queuedMessages(arrival)) { key, value in
      // All but the last are full.
      guard key == .queuedMessage(arrival, chunk: chunk), !value.isEmpty,
        bytes.count == Int(chunk) * Transaction.queuedChunkByteCountMax
      else { throw ContainerError(.catalogDamaged, detail: "parts of the message are missing or too many") }
      bytes += value
      chunk += 1
    }
    let contents = try Self.decode(bytes) { bytes throws(MalformedBytes) in
      try QueuedContents(bytes, of: record)
    }
    let directory = String(decoding: record.directory, as: UTF8.self)
    return QueuedMessage(
      arrival: arrival, id: record.id, sender: String(decoding: record.sender, as: UTF8.self),
      message: contents.message, directory: record.directory.isEmpty ? nil : directory,
      files: contents.files.map { (directory + "/" + String(decoding: $0.place, as: UTF8.self), $0.size) })
  }
}

extension CatalogKey {
  /// Of a record `78`; nil for a key that cannot be.
  var arrival: UInt64? { kind == .queued && bytes.count == 9 ? number(at: 1) : nil }
}

extension Container {
  /// The messages that arrived and were not ended, oldest first. Those that are damaged are left out when somebody wants to hear of
  /// them, and stay where they are; else it throws `catalogDamaged` or `tableDamaged`.
  package func queuedMessages(skipping: ((ContainerError) -> Void)? = nil) throws -> [QueuedMessage] {
    try withStoredCatalog { records in
      try records.records(.all(.queued)).compactMap { key, value in
        let which = key.arrival.map { "message \($0)" } ?? "a message without a number"
        return try skippingDamage("\(which) in the queue", skipping) {
          guard let arrival = key.arrival else {
            throw ContainerError(.catalogDamaged, detail: "the number is missing")
          }
          return try records.queuedMessage(arrival, value)
        }
      }
    }
  }

  /// A message was handled to the end: it leaves the queue, and its files stay. Fine when it has left before.
  package func endQueued(_ arrival: UInt64) throws {
    try transaction(durability: soon) { try $0.endQueued(arrival) }
  }
}

/// What `body` returns; nil when there is somebody to hear that the records of `name` are damaged.
package func skippingDamage<R>(
  _ name: String, _ skipping: ((ContainerError) -> Void)?, _ body: () throws -> R
) throws -> R? {
  do {
    return try body()
  } catch let error as ContainerError where error.code == .catalogDamaged || error.code == .tableDamaged {
    let named = ContainerError(
      error.code, path: error.path, detail: [name, error.detail].compactMap { $0 }.joined(separator: ": "),
      cause: error.cause)
    guard let skipping else { throw named }
    skipping(named)
    return nil
  }
}

/// A number as keys have it: big-endian, so that order is numeric.
func orderedBytes(_ value: some FixedWidthInteger) -> [UInt8] {
  withUnsafeBytes(of: value.bigEndian) { [UInt8]($0) }
}
