/// What the outbox knows of a receiver: the value of a record `76`.
package struct OutboxReceiver: Equatable, Sendable {
  /// The incarnation under which this container sends to the receiver.
  package var incarnation: Incarnation
  /// The first number that was drawn under the incarnation: the receiver may have had messages with
  /// lower numbers under an earlier one.
  package var firstNumber: UInt64
  /// How many messages the receiver said that it has under the incarnation.
  package var delivered: UInt64 = 0

  init(incarnation: Incarnation, firstNumber: UInt64) {
    (self.incarnation, self.firstNumber) = (incarnation, firstNumber)
  }

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(incarnation)
    writer.append(firstNumber)
    writer.append(delivered)
    return writer.bytes
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    incarnation = try reader.incarnation()
    firstNumber = try reader.read()
    delivered = try reader.read()
    try reader.end()
    guard OutboxState.numbers.contains(firstNumber), delivered < OutboxState.numbers.upperBound else {
      throw MalformedBytes(what: "a number of a receiver that cannot be")
    }
  }
}

extension CatalogKey {
  /// A record `76`. `receiver` has 1 to 255 bytes.
  static func outboxReceiver(_ receiver: String) -> CatalogKey {
    CatalogKey(bytes: [Kind.outboxReceiver.rawValue] + Array(receiver.utf8))
  }
}

extension CatalogReading {
  /// Nil if nothing was ever put into the outbox for the receiver.
  func outboxReceiver(_ receiver: String) throws -> OutboxReceiver? {
    try value(.outboxReceiver(receiver)).map { bytes in
      try Self.decode(bytes) { bytes throws(MalformedBytes) in try OutboxReceiver(bytes) }
    }
  }
}

extension Messages {
  /// Throws `invalidArgument` if there is no generation above `generation`.
  func outboxReceiver(
    _ receiver: String, notUnder taken: Incarnation?, generationAbove generation: UInt64
  ) throws -> OutboxReceiver {
    func isUsable(_ known: OutboxReceiver) -> Bool {
      known.incarnation != taken && known.incarnation.generation >= generation
    }
    // With `taken`, another thread may have drawn it, and not have it on the disk yet.
    if taken == nil, let known = try store.withSnapshot({ try $0.outboxReceiver(receiver) }), isUsable(known)
    {
      return known
    }
    let drawn = try store.transaction(durability: store.acknowledged) { transaction in
      let known = try transaction.outboxReceiver(receiver)
      if let known, isUsable(known) { return known }
      // A greater number than any that is in use: what was queued up to now is older.
      let firstNumber = try transaction.outboxState()?.nextNumber ?? 1
      let last = max(known?.incarnation.generation ?? 0, generation)
      guard last < .max, let incarnation = Incarnation.random(generation: last + 1) else {
        throw ContainerError(.invalidArgument, detail: "no generation is left for this receiver")
      }
      let drawn = OutboxReceiver(incarnation: incarnation, firstNumber: firstNumber)
      transaction.put(.outboxReceiver(receiver), drawn.encoded)
      return drawn
    }
    try store.flush(durably: store.options.durability != .none)
    return drawn
  }

  /// Does nothing under another incarnation.
  func setDelivered(
    _ receiver: String, under incarnation: Incarnation, _ change: @Sendable (UInt64) -> UInt64
  ) throws {
    try store.transaction(durability: store.soon) { transaction in
      try transaction.setDelivered(receiver, under: incarnation, change)
    }
  }
}

extension Transaction {
  /// Does nothing under another incarnation.
  func setDelivered(
    _ receiver: String, under incarnation: Incarnation, _ change: (UInt64) -> UInt64
  ) throws {
    guard var known = try outboxReceiver(receiver), known.incarnation == incarnation else { return }
    // What was never sent, nobody has, whatever a receiver says.
    let last = try (outboxState()?.nextNumber ?? 1) - 1
    let delivered = min(change(known.delivered), last)
    guard delivered != known.delivered else { return }
    known.delivered = delivered
    put(.outboxReceiver(receiver), known.encoded)
  }
}
