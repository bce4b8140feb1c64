import EncryptedFile

/// A request that has arrived: an entry of the receiver's ledger.
struct Delivery: Equatable {
  var time: Int64
  var fileCount: UInt64
  var byteCount: UInt64
  /// The message's inbox directory.
  var path: String

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(time)
    writer.append(fileCount)
    writer.append(byteCount)
    writer.append(Array(path.utf8))
    return writer.bytes
  }

  init(time: Int64, fileCount: UInt64, byteCount: UInt64, path: String) {
    self.time = time
    self.fileCount = fileCount
    self.byteCount = byteCount
    self.path = path
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    time = try reader.read()
    fileCount = try reader.read()
    byteCount = try reader.read()
    guard let path = String(validating: try reader.take(reader.remaining), as: UTF8.self) else {
      throw MalformedBytes(what: "a delivery to a path that is not UTF-8")
    }
    guard path.utf8.first == UInt8(ascii: "/") else {
      throw MalformedBytes(what: "a delivery to a path that is not absolute")
    }
    self.path = path
  }
}
