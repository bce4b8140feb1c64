import SodiumPrimitives

/// The value of a record `78`.
struct QueuedRecord: Equatable {
  var time: Int64
  var id: Identifier
  var messageByteCount: UInt32
  var fileCount: UInt64
  var sender: [UInt8]
  /// Path of the message's directory in the inbox; empty for a message without files.
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
    time: Int64, id: Identifier, messageByteCount: UInt32, fileCount: UInt64, sender: [UInt8],
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
    id = try reader.identifier()
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
