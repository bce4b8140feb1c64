import EncryptedFile

extension CatalogKey {
  /// The sender of a numbered message: application id, a zero byte, and the 16 bytes of its container's incarnation.
  private static func sender(_ kind: Kind, _ key: ArrivalKey) -> [UInt8] {
    [kind.rawValue] + key.sender.bytes + [0] + key.incarnation
  }

  static func deliveryFloor(_ key: ArrivalKey) -> CatalogKey {
    CatalogKey(bytes: sender(.deliveryFloor, key))
  }
  static func deliveries(ofSender key: ArrivalKey) -> CatalogKey {
    CatalogKey(bytes: [Kind.delivery.rawValue] + key.sender.bytes + [0])
  }
  static func deliveries(_ key: ArrivalKey) -> CatalogKey { CatalogKey(bytes: sender(.delivery, key)) }
  static func delivery(_ key: ArrivalKey) -> CatalogKey {
    CatalogKey(bytes: deliveries(key).bytes + orderedBytes(key.number))
  }
}

extension ArrivalKey {
  fileprivate func with(number: UInt64) -> ArrivalKey {
    ArrivalKey(sender: sender, incarnation: incarnation, number: number)
  }

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

/// What the ledger has under a message's number.
package enum LedgerState: Sendable, Equatable {
  /// Nothing: the message may arrive.
  case unknown
  /// This message.
  case delivered
  /// Another message, or a number below the floor, whose messages are not remembered: the sender gave the number twice, as a container
  /// does that was restored from a copy.
  case numberTaken
}

extension CatalogReading {
  func ledgerState(_ key: ArrivalKey, id: [UInt8]) throws -> LedgerState {
    if let bytes = try value(.delivery(key)) {
      return try Self.decode(bytes) { bytes throws(MalformedBytes) in try NumberedDelivery(bytes) }.id == id
        ? .delivered : .numberTaken
    }
    if try wasDeliveredEarlier(key, id: id) { return .delivered }
    return try key.number < deliveryFloor(key) ? .numberTaken : .unknown
  }

  /// Whether the message arrived under an earlier incarnation of its sender, which drew another before it read that. Reads what is above
  /// the floors of the other incarnations: nothing, unless the sender's container was restored.
  private func wasDeliveredEarlier(_ key: ArrivalKey, id: [UInt8]) throws -> Bool {
    let prefix = CatalogKey.deliveries(ofSender: key)
    let (own, last) = (CatalogKey.deliveries(key), CatalogKey.delivery(key.with(number: .max)))
    var cursor = try cursor(from: prefix)
    var left = Self.earlierDeliveryCountMax
    while left > 0, let (entry, value) = try cursor.nextLive(), entry.hasPrefix(prefix) {
      if entry.hasPrefix(own) {
        guard entry < last else { continue }
        cursor = try self.cursor(from: last)
        continue
      }
      left -= 1
      if value.suffix(ArrivingMessage.idByteCount) == id[...] { return true }
    }
    return false
  }

  /// Of an honest sender there are no more than it had under way when it drew an incarnation.
  private static var earlierDeliveryCountMax: Int { 1024 }

  /// 0 when there is none.
  func deliveryFloor(_ key: ArrivalKey) throws -> UInt64 {
    guard let bytes = try value(.deliveryFloor(key)) else { return 0 }
    return try Self.decode(bytes) { bytes throws(MalformedBytes) in try DeliveryFloor(bytes) }.number
  }
}

extension Container {
  /// Whether the message `id` has arrived before, or may arrive under this number.
  package func ledgerState(
    sender: String, incarnation: [UInt8], number: UInt64, id: [UInt8]
  ) throws -> LedgerState {
    let key = try arrivalKey(sender, incarnation, number)
    return try withStoredCatalog { try $0.ledgerState(key, id: id) }
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
