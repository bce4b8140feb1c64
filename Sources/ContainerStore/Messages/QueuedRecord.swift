import SodiumPrimitives

/// The value of a record `78`.
struct QueuedRecord: Equatable {
  /// What the message waits for.
  enum State: UInt8 {
    case handler = 0
    /// It was handled, and the app's reply is still to come.
    case reply = 1
    /// It is a reply, and nobody awaited it when it came.
    case claim = 2
    /// The same, and a handler may have had it before.
    case claimAgain = 3

    var isClaim: Bool { self == .claim || self == .claimAgain }
  }

  var time: Int64
  var id: Identifier
  var messageByteCount: UInt32
  var state: State
  var fileCount: UInt64
  var sender: [UInt8]
  /// Path of the message's directory in the inbox; empty for a message without files.
  var directory: [UInt8]

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(time)
    writer.append(id)
    writer.append(messageByteCount)
    writer.append(state.rawValue)
    writer.appendZeros(2)
    writer.append(UInt8(sender.count))
    writer.append(fileCount)
    writer.append(sender)
    writer.append(directory)
    return writer.bytes
  }

  init(
    time: Int64, id: Identifier, messageByteCount: UInt32, state: State = .handler, fileCount: UInt64,
    sender: [UInt8], directory: [UInt8]
  ) {
    self.time = time
    self.id = id
    self.messageByteCount = messageByteCount
    self.state = state
    self.fileCount = fileCount
    self.sender = sender
    self.directory = directory
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    time = try reader.read()
    id = try reader.identifier()
    messageByteCount = try reader.read()
    guard let state = State(rawValue: try reader.read()) else {
      throw MalformedBytes(what: "a queued message in no state")
    }
    self.state = state
    try reader.zeros(2)
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
