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
    for file in files {
      var entry = ByteWriter()
      entry.append(varint: file.size)
      entry.append(varint: UInt64(file.place.count))
      entry.append(file.place)
      append(entry.bytes)
    }
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
  fileprivate func queuedMessage(_ arrival: UInt64, _ value: [UInt8]) throws -> QueuedMessage {
    let record = try Self.decode(value) { bytes throws(MalformedBytes) in try QueuedRecord(bytes) }
    var bytes: [UInt8] = []
    try scan(.queuedMessages(arrival)) { bytes += $1 }
    return try Self.decode(bytes) { bytes throws(MalformedBytes) in
      var reader = ByteReader(bytes)
      let message = try reader.bytes(Int(record.messageByteCount))
      let directory = String(decoding: record.directory, as: UTF8.self)
      var files: [(path: String, size: UInt64)] = []
      for _ in 0..<record.fileCount {
        let size = try reader.varint()
        let count = try reader.varint32()
        files.append(
          (directory + "/" + String(decoding: try reader.take(Int(count)), as: UTF8.self), size))
      }
      try reader.end()
      return QueuedMessage(
        arrival: arrival, id: record.id, sender: String(decoding: record.sender, as: UTF8.self),
        message: message, directory: record.directory.isEmpty ? nil : directory, files: files)
    }
  }
}

extension Container {
  /// The messages that arrived and were not ended, oldest first.
  package func queuedMessages() throws -> [QueuedMessage] {
    try withStoredCatalog { records in
      try records.records(.all(.queued)).map { key, value in
        guard key.bytes.count == 9, let arrival = key.number(at: 1) else {
          throw ContainerError(.catalogDamaged, detail: "a queued message without a number")
        }
        return try records.queuedMessage(arrival, value)
      }
    }
  }

  /// A message was handled to the end: it leaves the queue, and its files stay. Fine when it has left before.
  package func endQueued(_ arrival: UInt64) throws {
    try transaction(durability: soon) { try $0.endQueued(arrival) }
  }
}

/// A number as keys have it: big-endian, so that order is numeric.
func orderedBytes(_ value: some FixedWidthInteger) -> [UInt8] {
  withUnsafeBytes(of: value.bigEndian) { [UInt8]($0) }
}
