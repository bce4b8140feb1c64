import EncryptedFile

/// The key of a record `62`, a delivery by request.
struct RequestKey: Hashable {
  var sender: FileName
  /// The request's id: 1 to 255 bytes of UTF-8.
  var request: [UInt8]

  static let requestByteCountMax = 255

  init(_ key: CatalogKey) throws(MalformedBytes) {
    var reader = ByteReader(key.bytes)
    guard try reader.read(UInt8.self) == CatalogKey.Kind.deliveryByRequest.rawValue else {
      throw MalformedBytes(what: "no key of a delivery by request")
    }
    let sender = try reader.take(Int(try reader.read(UInt8.self)))
    request = try reader.bytes(reader.remaining)
    guard let sender = InboxName.sender(bytes: sender) else {
      throw MalformedBytes(what: "a delivery of a sender that cannot be")
    }
    self.sender = sender
    guard (1...Self.requestByteCountMax).contains(request.count),
      String(validating: request, as: UTF8.self) != nil
    else { throw MalformedBytes(what: "a delivery of a request that cannot be") }
  }
}
