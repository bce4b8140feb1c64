import SodiumPrimitives

/// The record of type `74`: the incarnation, which distinguishes this outbox from that of a copy of
/// the container, and the next number.
struct OutboxState {
  static let numbers: Range<UInt64> = 1..<1 << 62

  var incarnation: Identifier
  var nextNumber: UInt64 = 1

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(incarnation)
    writer.append(nextNumber)
    return writer.bytes
  }

  init(incarnation: Identifier) { self.incarnation = incarnation }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    incarnation = try reader.identifier()
    nextNumber = try reader.read()
    try reader.end()
    guard Self.numbers.contains(nextNumber) else {
      throw MalformedBytes(what: "a number of the outbox that cannot be")
    }
  }
}
