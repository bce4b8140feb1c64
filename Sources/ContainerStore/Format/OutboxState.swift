/// The record of type `74`: the next number.
struct OutboxState: Equatable {
  static let numbers: Range<UInt64> = 1..<1 << 62

  var nextNumber: UInt64 = 1

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(nextNumber)
    return writer.bytes
  }

  init() {}

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    nextNumber = try reader.read()
    try reader.end()
    guard Self.numbers.contains(nextNumber) else {
      throw MalformedBytes(what: "a number of the outbox that cannot be")
    }
  }
}
