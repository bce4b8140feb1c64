import EncryptedFile

/// The value of a record `60`, a sender's low-water mark: every message number below it is settled.
struct DeliveryFloor: Equatable {
  var number: UInt64
  var time: Int64

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(number)
    writer.append(time)
    return writer.bytes
  }

  init(number: UInt64, time: Int64) {
    self.number = number
    self.time = time
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    number = try reader.read()
    time = try reader.read()
    try reader.end()
    guard number > 0 else { throw MalformedBytes(what: "a delivery floor that nothing is below") }
  }
}
