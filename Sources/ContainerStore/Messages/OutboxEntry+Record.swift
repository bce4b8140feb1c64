extension OutboxEntry {
  private static let stateWaiting: UInt8 = 0
  private static let stateOffered: UInt8 = 1

  /// The value of a record of type `70`.
  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(mayBeOffered ? Self.stateOffered : Self.stateWaiting)
    writer.appendZeros(7)
    writer.append(time)
    writer.append(id)
    writer.append(fileCount)
    writer.append(byteCount)
    writer.append(storedByteCount)
    writer.append(Array(receiver.utf8))
    return writer.bytes
  }

  init(key: CatalogKey, value: [UInt8]) throws(MalformedBytes) {
    guard key.kind == .outbox, key.bytes.count == 9, let number = key.number(at: 1),
      OutboxState.numbers.contains(number)
    else {
      throw MalformedBytes(what: "a message of the outbox without a number")
    }
    var reader = ByteReader(value)
    let state = try reader.read(UInt8.self)
    guard state == Self.stateWaiting || state == Self.stateOffered else {
      throw MalformedBytes(what: "a message of the outbox in an unknown state")
    }
    mayBeOffered = state == Self.stateOffered
    try reader.zeros(7)
    self.number = number
    time = try reader.read()
    id = try reader.identifier()
    fileCount = try reader.read()
    byteCount = try reader.read()
    storedByteCount = try reader.read()
    guard let receiver = String(validating: try reader.take(reader.remaining), as: UTF8.self) else {
      throw MalformedBytes(what: "a receiver whose name is not UTF-8")
    }
    guard (1...OutgoingMessage.receiverByteCountMax).contains(receiver.utf8.count) else {
      throw MalformedBytes(what: "a receiver whose name has \(receiver.utf8.count) bytes")
    }
    self.receiver = receiver
  }
}
