import EncryptedFile
import SodiumPrimitives

extension CatalogKey {
  /// The key prefix for a sender of numbered messages: application id, a zero byte, and the 16-byte
  /// incarnation of the sender's container.
  private static func sender(_ kind: Kind, _ key: ArrivalKey) -> [UInt8] {
    [kind.rawValue] + key.sender.bytes + [0] + key.incarnation.bytes
  }

  static func deliveryFloor(_ key: ArrivalKey) -> CatalogKey {
    CatalogKey(bytes: sender(.deliveryFloor, key))
  }
  static func deliveries(ofSender key: ArrivalKey) -> CatalogKey {
    CatalogKey(bytes: [Kind.delivery.rawValue] + key.sender.bytes + [0])
  }
  static func deliveries(_ key: ArrivalKey) -> CatalogKey { CatalogKey(bytes: sender(.delivery, key)) }
  static func delivery(_ key: ArrivalKey) -> CatalogKey {
    CatalogKey(bytes: deliveries(key).bytes + bigEndian(key.number))
  }
}

extension ArrivalKey {
  fileprivate func with(number: UInt64) -> ArrivalKey {
    ArrivalKey(sender: sender, incarnation: incarnation, number: number)
  }

  /// Reads the key of a record `60`; the number is 0.
  init(deliveryFloor key: CatalogKey) throws(MalformedBytes) {
    guard key.kind == .deliveryFloor else { throw MalformedBytes(what: "no key of a delivery floor") }
    try self.init(sender: key.bytes.dropFirst(), number: 0)
  }

  /// Reads the key of a record `61`.
  init(delivery key: CatalogKey) throws(MalformedBytes) {
    guard key.kind == .delivery, let number = key.number(at: key.bytes.count - 8) else {
      throw MalformedBytes(what: "no key of a delivery")
    }
    try self.init(sender: key.bytes.dropFirst().dropLast(8), number: number)
  }

  private init(sender bytes: ArraySlice<UInt8>, number: UInt64) throws(MalformedBytes) {
    let name = bytes.dropLast(Identifier.byteCount)
    guard name.last == 0, let sender = InboxName.sender(bytes: name.dropLast()),
      let incarnation = Identifier(exactly: bytes.suffix(Identifier.byteCount))
    else {
      throw MalformedBytes(what: "a delivery of a sender that cannot be")
    }
    self.init(sender: sender, incarnation: incarnation, number: number)
  }
}

/// The ledger's state for a message and its number.
package enum LedgerState: Sendable, Equatable {
  /// Nothing is known: the message may arrive.
  case unknown
  /// This message has arrived.
  case delivered
  /// The number belongs to another message, or is below the low-water mark, where message ids are
  /// not remembered. The sender has used the number twice, as a container restored from a copy
  /// does.
  case numberTaken
}

extension CatalogReading {
  func ledgerState(_ key: ArrivalKey, id: Identifier) throws -> LedgerState {
    if let bytes = try value(.delivery(key)) {
      return try Self.decode(bytes) { bytes throws(MalformedBytes) in try NumberedDelivery(bytes) }.id == id
        ? .delivered : .numberTaken
    }
    if try wasDeliveredEarlier(key, id: id) { return .delivered }
    return try key.number < deliveryFloor(key) ? .numberTaken : .unknown
  }

  /// Whether the message arrived under an earlier incarnation of its sender, which drew a new one
  /// before it learned of the delivery. Reads the deliveries above the low-water marks of the other
  /// incarnations: none, unless the sender's container was restored.
  private func wasDeliveredEarlier(_ key: ArrivalKey, id: Identifier) throws -> Bool {
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
      if value.suffix(Identifier.byteCount) == id.bytes[...] { return true }
    }
    return false
  }

  /// An honest sender has at most as many as were in progress when it drew an incarnation.
  private static var earlierDeliveryCountMax: Int { 1024 }

  /// The sender's low-water mark; 0 if there is none.
  func deliveryFloor(_ key: ArrivalKey) throws -> UInt64 {
    guard let bytes = try value(.deliveryFloor(key)) else { return 0 }
    return try Self.decode(bytes) { bytes throws(MalformedBytes) in try DeliveryFloor(bytes) }.number
  }
}

extension Messages {
  func ledgerState(
    sender: String, incarnation: Identifier, number: UInt64, id: Identifier
  ) throws -> LedgerState {
    let key = try arrivalKey(sender, incarnation, number)
    return try store.withSnapshot { try $0.ledgerState(key, id: id) }
  }

  func raiseDeliveryFloor(sender: String, incarnation: Identifier, to floor: UInt64) throws {
    let key = try arrivalKey(sender, incarnation, floor)
    guard try store.withSnapshot({ try $0.deliveryFloor(key) }) < floor else { return }
    try store.transaction(durability: store.soon) { transaction in
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
      // Nothing is recorded for a container from which nothing has arrived.
      guard isKnown else { return }
      transaction.put(.deliveryFloor(key), DeliveryFloor(number: floor, time: transaction.now).encoded)
    }
  }

  /// The ledger key of a message. Throws `invalidName`.
  func arrivalKey(_ sender: String, _ incarnation: Identifier, _ number: UInt64) throws -> ArrivalKey {
    ArrivalKey(sender: try InboxName.sender(sender), incarnation: incarnation, number: number)
  }
}
