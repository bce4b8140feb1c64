import EncryptedFile
import SodiumPrimitives

extension CatalogKey {
  /// A record `60`.
  static func sender(_ sender: FileName) -> CatalogKey {
    CatalogKey(bytes: [Kind.sender.rawValue] + sender.bytes)
  }
  static func deliveries(of sender: FileName) -> CatalogKey {
    CatalogKey(bytes: [Kind.delivery.rawValue] + sender.bytes + [0])
  }
  static func deliveries(of sender: FileName, number: UInt64) -> CatalogKey {
    CatalogKey(bytes: deliveries(of: sender).bytes + bigEndian(number))
  }
  /// A record `61`.
  static func delivery(_ key: DeliveryKey) -> CatalogKey {
    CatalogKey(bytes: deliveries(of: key.sender, number: key.number).bytes + key.id.bytes)
  }

  /// Reads the key of a record `60`.
  func sender() throws(MalformedBytes) -> FileName {
    guard kind == .sender, let sender = InboxName.sender(bytes: bytes.dropFirst()) else {
      throw MalformedBytes(what: "a sender that cannot be")
    }
    return sender
  }
}

/// The ledger's answer to an offer.
package struct LedgerAnswer: Sendable, Equatable {
  package enum State: Sendable, Equatable {
    /// Nothing is known: the message may arrive.
    case unknown
    /// The message has arrived.
    case delivered
    /// The number cannot be used: the sender's container was put back, or is a copy.
    case numberTaken
  }

  package var state: State
  /// The newest generation that was seen of the sender; 0 if none was.
  package var generation: UInt64
  /// Number of messages that have arrived under the incarnation that was asked about; nil if another one
  /// has taken its place.
  package var arrivedCount: UInt64?
  /// Whether a message with the number may have arrived and have been forgotten since.
  package var mayBeForgotten = false
}

extension CatalogReading {
  /// `wasTaken` is true for a message that was taken when it was offered. A newer incarnation that has come since is then no
  /// reason to refuse it.
  func ledger(
    sender: FileName, incarnation: Incarnation, number: UInt64, id: Identifier, wasTaken: Bool = false
  ) throws -> LedgerAnswer {
    let known = try senderRecord(sender)
    var answer = LedgerAnswer(
      state: .unknown, generation: known?.incarnation.generation ?? 0, arrivedCount: 0)
    if let known, !known.isOlder(than: incarnation) {
      answer.arrivedCount = known.incarnation == incarnation ? known.arrivedCount : nil
    }
    answer.mayBeForgotten = known.map { number < $0.forgotten } ?? false
    if try value(.delivery(DeliveryKey(sender: sender, number: number, id: id))) != nil {
      answer.state = .delivered
    } else if !SenderRecord.isOlder(answer.generation, than: incarnation) {
      let isTaken: Bool
      if let known, known.incarnation == incarnation {
        isTaken = number < known.floor
      } else {
        isTaken = !wasTaken
      }
      if try isTaken || isInUse(number, of: sender, incarnation) { answer.state = .numberTaken }
    }
    return answer
  }

  /// Whether a message has arrived under this number.
  private func isInUse(_ number: UInt64, of sender: FileName, _ incarnation: Incarnation) throws -> Bool {
    for (_, value) in try records(.deliveries(of: sender, number: number)) {
      let delivery = try Self.decode(value) { bytes throws(MalformedBytes) in try NumberedDelivery(bytes) }
      if delivery.incarnation == incarnation { return true }
    }
    return false
  }

  /// Nil if nothing has arrived from the sender.
  func senderRecord(_ sender: FileName) throws -> SenderRecord? {
    try value(.sender(sender)).map { bytes in
      try Self.decode(bytes) { bytes throws(MalformedBytes) in try SenderRecord(bytes) }
    }
  }
}

extension Messages {
  func ledger(
    sender: String, incarnation: Incarnation, number: UInt64, id: Identifier
  ) throws -> LedgerAnswer {
    let sender = try InboxName.sender(sender)
    return try store.withSnapshot {
      try $0.ledger(sender: sender, incarnation: incarnation, number: number, id: id)
    }
  }

  func raiseDeliveryFloor(sender: String, incarnation: Incarnation, to floor: UInt64) throws {
    let sender = try InboxName.sender(sender)
    guard OutboxState.numbers.contains(floor),
      try store.withSnapshot({ try $0.rises(incarnation, to: floor, of: sender) })
    else { return }
    try store.transaction(durability: store.soon) { transaction in
      guard try transaction.rises(incarnation, to: floor, of: sender) else { return }
      for (staging, record) in try transaction.staged(of: sender) {
        guard let record, record.number < floor else { continue }
        // One of another incarnation, perhaps: its end decides.
        if !arrivals.contains(record.key) { try transaction.dropStaging(staging) }
      }
      guard var record = try transaction.senderRecord(sender) else { return }
      record.adopt(incarnation)
      record.floor = floor
      record.forgotten = max(record.forgotten, record.firstRemembered)
      record.time = transaction.now
      let (first, end) = (
        CatalogKey.deliveries(of: sender),
        CatalogKey.deliveries(of: sender, number: record.firstRemembered)
      )
      var cursor = try transaction.cursor(from: first)
      var forgotten: [CatalogKey] = []
      while let (entry, _) = try cursor.nextLive(), entry < end { forgotten.append(entry) }
      for entry in forgotten { transaction.delete(entry) }
      record.deliveryCount -= min(UInt64(forgotten.count), record.deliveryCount)
      transaction.put(.sender(sender), record.encoded)
    }
  }
}

extension CatalogReading {
  /// Whether a floor says something new. Of a sender from which nothing has arrived nothing is
  /// recorded, but something may be staged.
  fileprivate func rises(_ incarnation: Incarnation, to floor: UInt64, of sender: FileName) throws -> Bool {
    guard let known = try senderRecord(sender) else {
      return try staged(of: sender).contains { $0.record.map { $0.number < floor } ?? false }
    }
    return known.isOlder(than: incarnation) || known.incarnation == incarnation && known.floor < floor
  }
}

extension Transaction {
  /// Writes down that a message has arrived. Returns the number of messages that have arrived under its incarnation, which is 0 if
  /// a newer incarnation has replaced it.
  func addDelivery(_ message: ArrivingMessage, from sender: FileName) throws -> UInt64 {
    var record = try senderRecord(sender) ?? SenderRecord(incarnation: message.incarnation)
    record.adopt(message.incarnation)
    let isNewest = record.incarnation == message.incarnation
    if isNewest { record.arrivedCount += 1 }
    record.deliveryCount += 1
    record.time = now
    put(.sender(sender), record.encoded)
    put(
      .delivery(DeliveryKey(sender: sender, number: message.number, id: message.id)),
      NumberedDelivery(incarnation: message.incarnation, time: now).encoded)
    return isNewest ? record.arrivedCount : 0
  }
}
