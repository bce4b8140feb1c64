import EncryptedFile
import SodiumPrimitives

/// The key of a record `61`: a message that has arrived.
struct DeliveryKey: Hashable {
  var sender: FileName
  var number: UInt64
  var id: Identifier

  init(sender: FileName, number: UInt64, id: Identifier) {
    (self.sender, self.number, self.id) = (sender, number, id)
  }

  init(_ key: CatalogKey) throws(MalformedBytes) {
    let name = key.bytes.dropFirst().dropLast(8 + Identifier.byteCount)
    guard key.kind == .delivery, name.last == 0, let sender = InboxName.sender(bytes: name.dropLast()),
      let number = key.number(at: name.endIndex), OutboxState.numbers.contains(number),
      let id = Identifier(exactly: key.bytes.suffix(Identifier.byteCount))
    else { throw MalformedBytes(what: "a delivery of a sender, or with a number, that cannot be") }
    self.init(sender: sender, number: number, id: id)
  }
}

/// The value of a record `61`.
struct NumberedDelivery: Equatable {
  /// The incarnation under which the message arrived.
  var incarnation: Incarnation
  var time: Int64

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(incarnation)
    writer.append(time)
    return writer.bytes
  }

  init(incarnation: Incarnation, time: Int64) { (self.incarnation, self.time) = (incarnation, time) }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    incarnation = try reader.incarnation()
    time = try reader.read()
    try reader.end()
  }
}
