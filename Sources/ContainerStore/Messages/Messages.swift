/// The messages of a store: the outbox, arrivals, the ledger that prevents a message from arriving
/// twice, and the queue of messages that wait for their handler (CONTAINER-MESSAGES.md).
struct Messages: Sendable {
  let store: Store
  /// Arrivals of this opening.
  let arrivals: ArrivalsUnderWay
  let outboxIndex: OutboxIndex

  init(_ store: Store) {
    self.store = store
    arrivals = ArrivalsUnderWay()
    outboxIndex = OutboxIndex()
  }
}
