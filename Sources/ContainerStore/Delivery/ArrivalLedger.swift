import EncryptedFile

extension CatalogKey {
  /// The sender of a numbered message: application id, a zero byte, and the 16 bytes of its container's incarnation.
  private static func sender(_ kind: Kind, _ key: ArrivalKey) -> [UInt8] {
    [kind.rawValue] + key.sender.bytes + [0] + key.incarnation
  }

  static func deliveryFloor(_ key: ArrivalKey) -> CatalogKey {
    CatalogKey(bytes: sender(.deliveryFloor, key))
  }
  static func deliveries(_ key: ArrivalKey) -> CatalogKey { CatalogKey(bytes: sender(.delivery, key)) }
  static func delivery(_ key: ArrivalKey) -> CatalogKey {
    CatalogKey(bytes: deliveries(key).bytes + orderedBytes(key.number))
  }
}

extension ArrivalKey {
  private static let incarnationByteCount = Identifier.byteCount

  /// Of a record `60`; the number is 0.
  init(deliveryFloor key: CatalogKey) throws(MalformedBytes) {
    guard key.kind == .deliveryFloor else { throw MalformedBytes(what: "no key of a delivery floor") }
    try self.init(sender: key.bytes.dropFirst(), number: 0)
  }

  /// Of a record `61`.
  init(delivery key: CatalogKey) throws(MalformedBytes) {
    guard key.kind == .delivery, let number = key.number(at: key.bytes.count - 8) else {
      throw MalformedBytes(what: "no key of a delivery")
    }
    try self.init(sender: key.bytes.dropFirst().dropLast(8), number: number)
  }

  private init(sender bytes: ArraySlice<UInt8>, number: UInt64) throws(MalformedBytes) {
    let name = bytes.dropLast(Self.incarnationByteCount)
    guard name.last == 0, let sender = InboxName.sender(bytes: name.dropLast()) else {
      throw MalformedBytes(what: "a delivery of a sender that cannot be")
    }
    self.init(sender: sender, incarnation: Array(bytes.suffix(Self.incarnationByteCount)), number: number)
  }
}

/// Every number below it is settled: the value of a record `60`.
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

/// That a message above the floor has arrived: the value of a record `61`.
struct NumberedDelivery: Equatable {
  private static let delivered: UInt8 = 1
  var time: Int64
  /// Of the message: 16 bytes.
  var id: [UInt8]

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(Self.delivered)
    writer.appendZeros(7)
    writer.append(time)
    writer.append(id)
    return writer.bytes
  }

  init(time: Int64, id: [UInt8]) {
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
    id = try reader.bytes(ArrivingMessage.idByteCount)
    try reader.end()
  }
}

/// Of a delivery by request: the key of a record `62`.
struct RequestKey: Hashable {
  var sender: FileName
  /// 1 to 255 bytes of UTF-8.
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

extension CatalogReading {
  func wasDelivered(_ key: ArrivalKey) throws -> Bool {
    if try key.number < deliveryFloor(key) { return true }
    return try value(.delivery(key)) != nil
  }

  /// 0 when there is none.
  func deliveryFloor(_ key: ArrivalKey) throws -> UInt64 {
    guard let bytes = try value(.deliveryFloor(key)) else { return 0 }
    return try Self.decode(bytes) { bytes throws(MalformedBytes) in try DeliveryFloor(bytes) }.number
  }
}

extension Container {
  /// Whether a message has arrived before, or is below the floor.
  package func wasDelivered(sender: String, incarnation: [UInt8], number: UInt64) throws -> Bool {
    let key = try arrivalKey(sender, incarnation, number)
    return try withStoredCatalog { try $0.wasDelivered(key) }
  }

  /// Forgets the messages below `floor`, which the sender will not offer again, and what is staged of them. Never lowers the floor.
  /// Written with the next grouped commit; nothing is written when nothing changes.
  package func raiseDeliveryFloor(sender: String, incarnation: [UInt8], to floor: UInt64) throws {
    let key = try arrivalKey(sender, incarnation, floor)
    guard try withStoredCatalog({ try $0.deliveryFloor(key) }) < floor else { return }
    try transaction(durability: soon) { transaction in
      guard try transaction.deliveryFloor(key) < floor else { return }
      let prefix = CatalogKey.deliveries(key)
      var cursor = try transaction.cursor(from: prefix)
      var settled: [CatalogKey] = []
      while let (entry, _) = try cursor.nextLive(), entry.hasPrefix(prefix), entry < .delivery(key) {
        settled.append(entry)
      }
      for entry in settled { transaction.delete(entry) }
      var isKnown = try !settled.isEmpty || transaction.value(.deliveryFloor(key)) != nil
      for (staging, record) in try transaction.staged(of: key.sender) {
        guard let record, record.key.incarnation == incarnation, record.key.number < floor else { continue }
        try transaction.dropStaging(staging)
        isKnown = true
      }
      // Of a container that nothing came of there is nothing to remember.
      guard isKnown else { return }
      transaction.put(.deliveryFloor(key), DeliveryFloor(number: floor, time: transaction.now).encoded)
    }
  }

  /// Throws `invalidName` or `invalidArgument`.
  func arrivalKey(_ sender: String, _ incarnation: [UInt8], _ number: UInt64) throws -> ArrivalKey {
    guard incarnation.count == ArrivingMessage.idByteCount else {
      throw ContainerError(
        .invalidArgument, detail: "an incarnation has \(ArrivingMessage.idByteCount) bytes")
    }
    return ArrivalKey(sender: try InboxName.sender(sender), incarnation: incarnation, number: number)
  }

  /// How what need not be waited for becomes durable.
  var soon: Durability { options.durability == .none ? .none : .grouped }
}
