package import SodiumPrimitives

// The outbox, the inbox and arrivals, for AppKinetics.

extension Container {
  // MARK: Outbox

  /// Queues a message in the outbox with one durable commit, together with the current version of
  /// every file that its attachments stand for, including bytes written through open files. Nothing
  /// is copied: the message alone keeps the runs of files that are changed or removed later.
  /// `endingQueued` is a queued request that this message answers; the same commit ends it. With
  /// `mayBeOffered` the message may be offered as soon as this returns, otherwise only after
  /// ``markOffered(_:)``.
  ///
  /// Throws `noSuchFile`; `cannotStore` for a symbolic link in a folder or a path of more than
  /// 32,000 bytes; `fileDamaged`; `invalidArgument` for an id that is in the outbox, a receiver
  /// without a name, a message of more than 2 MiB, and an answer to what is not in the queue; `diskFull`, `readOnly`.
  package func enqueue(
    _ message: OutgoingMessage, mayBeOffered: Bool = false, endingQueued arrival: UInt64? = nil
  ) throws -> OutboxEntry {
    try messages.checkOutgoing(message)
    let unstored = try store.namingPath(store.place) { try writeBack.run() }
    return try messages.enqueue(
      message, mayBeOffered: mayBeOffered, endingQueued: arrival, unstored: unstored)
  }

  /// Records that the receiver may know of a message from now on. The record is durable when this
  /// returns, so that after a crash no offered message counts as never offered. Throws `noSuchFile`
  /// if the message is not in the outbox.
  package func markOffered(_ number: UInt64) throws {
    try messages.markOffered(number)
  }

  /// The messages in the outbox, in order of their numbers. A damaged message is passed to
  /// `skipping` and left out; without `skipping`, throws `catalogDamaged`.
  package func outboxEntries(skipping: ((ContainerError) -> Void)? = nil) throws -> [OutboxEntry] {
    try messages.outboxEntries(skipping: skipping)
  }

  /// The low-water mark of a receiver: the least number of a message for it; nil if there is none.
  /// A message whose receiver is unknown because of damage counts, too. Throws `readOnly` after a write that failed.
  package func outboxFloor(receiver: String) throws -> UInt64? {
    try messages.outboxFloor(receiver: receiver)
  }

  /// The encoded message. Throws `noSuchFile` if it is not in the outbox.
  package func outboxMessage(_ number: UInt64) throws -> [UInt8] {
    try messages.outboxMessage(number)
  }

  /// At most `limit` files of a message, from an index on, in order. Throws `noSuchFile` if the
  /// message is not in the outbox.
  package func outboxFiles(_ number: UInt64, from index: UInt64, limit: Int) throws -> [OutboxFile] {
    try messages.outboxFiles(number, from: index, limit: limit)
  }

  /// A reader of a message's contents as they are stored, from a position on: a grain's boundary or the end of a file.
  /// Throws `noSuchFile` if the message is not in the outbox, and `invalidArgument` for another position.
  package func outboxReader(_ number: UInt64, from position: UInt64) throws -> OutboxReader {
    try messages.outboxReader(number, from: position)
  }

  /// Removes a message that has arrived or is no longer to be sent, with its pins, and frees the
  /// runs that only these pins kept. Does nothing if the message is gone. The removal is as durable
  /// as the container's other changes, and is not waited for. `receipt`: what the receiver said when it
  /// had the message.
  package func settleOutbox(_ number: UInt64, has receipt: DeliveryReceipt? = nil) throws {
    try messages.settleOutbox(number, has: receipt)
  }

  /// The record of a receiver of messages in the outbox. With `taken`, the receiver cannot use the
  /// numbers of this container under that incarnation, because it has seen others, up to that
  /// generation: as after a restore. Unless that was done already, another incarnation is drawn, of a
  /// greater generation, durably. Numbers continue. Throws `invalidArgument` if no generation is left.
  package func outboxReceiver(
    _ receiver: String, notUnder taken: Incarnation? = nil, generationAbove generation: UInt64 = 0
  ) throws -> OutboxReceiver {
    try messages.outboxReceiver(receiver, notUnder: taken, generationAbove: generation)
  }

  /// Writes down that a receiver has no more messages than the receipt says, because its container was
  /// put back. Does nothing under another incarnation.
  package func setPutBack(_ receiver: String, has receipt: DeliveryReceipt) throws {
    try messages.setDelivered(receiver, under: receipt.incarnation) { min($0, receipt.count) }
  }

  // MARK: Arrivals

  /// Begins to receive a message, or continues with the staged bytes of an earlier opening or of a
  /// suspended arrival.
  ///
  /// Throws `invalidArgument` while another arrival of the message is in progress, and if the bytes
  /// staged of it belong to other counts; with `replacing`, those are removed instead. Throws
  /// ``ArrivalLimit`` beyond a limit, and `invalidName` for a sender that is no name. What has arrived survives the
  /// death of the process after each `stagingInterval` bytes.
  package func beginArrival(
    _ message: ArrivingMessage, replacing: Bool = false, stagingInterval: UInt64 = 16 << 20
  ) throws -> Arrival {
    try messages.beginArrival(message, replacing: replacing, stagingInterval: stagingInterval)
  }

  /// Removes what is staged of a message, durably, as ``Arrival/discard()`` does; nothing when an arrival of it is in progress. Throws
  /// `invalidName` for a sender that is no name.
  package func discardArrival(_ message: ArrivingMessage) throws {
    try messages.discardArrival(message)
  }

  /// Removes the staged files of messages without an arrival in progress: all of them, or those
  /// that have not changed since `olderThan` (nanoseconds since 1970-01-01 UTC).
  package func discardArrivals(olderThan: Int64?) throws {
    try messages.discardArrivals(olderThan: olderThan)
  }

  /// The messages that have begun to arrive.
  package func stagedMessages() throws -> [StagedMessage] { try messages.stagedMessages(of: nil) }

  /// Bytes of the segments of all files that these apps have sent, in their parts of the inbox, and of messages that have begun to arrive, and 512 for
  /// each file and folder. Throws `invalidName` for a sender that is no name.
  package func storedByteCount(of senders: [String]) throws -> UInt64 {
    try messages.storedByteCount(of: senders)
  }

  /// Lets go of messages that nothing is received into, of the named apps or of all and but for `id`, until so many bytes are free that were not;
  /// of none when that is not enough. They begin anew when they are offered again.
  package func discardIdleArrivals(
    toFree byteCount: UInt64, of senders: [String]? = nil, keeping id: Identifier? = nil
  ) throws {
    try messages.discardIdleArrivals(toFree: byteCount, of: senders, keeping: id)
  }

  /// Bytes available in the file system, without the reserve for a full disk. Throws `ioFailed`.
  package func availableByteCount() throws -> UInt64 {
    try messages.availableByteCount()
  }

  /// Throws `readOnly` after a write that failed: what can be read back since then may not be what the disk has at the next opening, so
  /// that nobody is told of it.
  package func requireNoFailure() throws { try messages.store.requireNoFailure() }

  /// Whether the message `id` has arrived before, or may arrive under this number.
  package func ledger(
    sender: String, incarnation: Incarnation, number: UInt64, id: Identifier
  ) throws -> LedgerAnswer {
    try messages.ledger(sender: sender, incarnation: incarnation, number: number, id: id)
  }

  /// Raises a sender's low-water mark to `floor`, and forgets the messages below it, which the
  /// sender will not offer again: what is staged of them, and their ids but for those of the last 256
  /// numbers. A newer incarnation begins a mark of its own; the mark of one is never lowered. The
  /// change is written with the next grouped commit; without a change nothing is written.
  package func raiseDeliveryFloor(sender: String, incarnation: Incarnation, to floor: UInt64) throws {
    try messages.raiseDeliveryFloor(sender: sender, incarnation: incarnation, to: floor)
  }

  // MARK: Queue and inbox

  /// The messages that wait for their handlers, those that may still be answered, and the replies that nobody has claimed. A damaged message
  /// is passed to `skipping` and left out, and stays in the queue; without `skipping`, throws
  /// `catalogDamaged` or `tableDamaged`.
  package func messageQueue(skipping: ((ContainerError) -> Void)? = nil) throws -> MessageQueue {
    try messages.messageQueue(skipping: skipping)
  }

  /// A message of the queue, whatever it waits for; nil if it was ended. Throws `catalogDamaged`.
  package func queuedMessage(_ arrival: UInt64) throws -> QueuedMessage? {
    try messages.queuedMessage(arrival)
  }

  /// Puts a message without files, which did not come as a delivery, into the queue, and returns its
  /// number. With `isHandled` its handler has returned. Throws `invalidName` for a sender that is no name, and
  /// `invalidArgument` for a message of more than 2 MiB.
  package func enqueueForReply(
    _ id: Identifier, from sender: String, _ message: [UInt8], isHandled: Bool
  ) throws -> UInt64 {
    try messages.enqueueForReply(id, from: sender, message, isHandled: isHandled)
  }

  /// Notes that a message's handler has returned, and that the app may still reply. Does nothing if the message is not in the queue.
  package func keepForReply(_ arrival: UInt64) throws {
    try messages.keepQueued(arrival, for: .reply)
  }

  /// Notes that a message is a reply that nobody awaits, and whether a handler may have had it. Does nothing if the message is not in
  /// the queue.
  package func keepUnclaimed(_ arrival: UInt64, wasGiven: Bool = false) throws {
    try messages.keepQueued(arrival, for: wasGiven ? .claimAgain : .claim)
  }

  /// The oldest reply behind the number `last` that nobody has claimed, which waits for a handler from now on, and whether one may have had it before; nil when there is none. Passes
  /// damaged ones to `skipping`, and leaves them as they are.
  package func claimMessage(
    after last: UInt64, skipping: (ContainerError) -> Void
  ) throws -> (queued: QueuedMessage, wasGiven: Bool)? {
    try messages.claimMessage(after: last, skipping: skipping)
  }

  /// Removes replies from the queue that nobody has claimed and that arrived before `time`, in
  /// nanoseconds since 1970. Their files stay in the inbox.
  package func endUnclaimed(olderThan time: Int64) throws {
    try messages.endUnclaimed(olderThan: time)
  }

  /// Removes a message from the queue. Does nothing if it is not there.
  package func endQueued(_ arrival: UInt64) throws {
    try messages.endQueued(arrival)
  }

  /// The messages in the inbox, oldest first, one for each message directory. Other directories in
  /// the inbox are ignored.
  package func arrivedMessages() throws -> [ArrivedMessage] {
    try reader.withWrittenBackSnapshot { try $0.arrivedMessages() }
  }

  /// Removes message directories with everything in them in one commit. Ignores directories that
  /// are gone. Messages of the queue with the numbers `arrivals` go with them. Throws `invalidArgument` for a path that is not that of a
  /// message directory; then nothing is removed.
  package func removeArrivedMessages(_ directories: [String], endingQueued arrivals: [UInt64] = []) throws {
    try messages.removeArrivedMessages(directories, endingQueued: arrivals)
  }
}
