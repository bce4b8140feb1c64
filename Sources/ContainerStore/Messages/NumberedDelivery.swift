import EncryptedFile
import SodiumPrimitives

/// The value of a record `61`: a message at or above the low-water mark has arrived.
struct NumberedDelivery: Equatable {
  private static let delivered: UInt8 = 1
  var time: Int64
  var id: Identifier

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(Self.delivered)
    writer.appendZeros(7)
    writer.append(time)
    writer.append(id)
    return writer.bytes
  }

  init(time: Int64, id: Identifier) {
    self.time = time
    self.id = id
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    guard try reader.read(UInt8.self) == Self.delivered else {
      throw MalformedBytes(what: "a delivery in an unknown state")
    }
    try reader.zeros(7)
    time = try reader.read()
    id = try reader.identifier()
    try reader.end()
  }
}
