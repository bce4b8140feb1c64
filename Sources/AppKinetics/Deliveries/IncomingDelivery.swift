import ContainerStore
@preconcurrency import Dispatch
import Foundation
import LocalTransport
import Locks
import ServiceWire
import SodiumPrimitives

/// A message with files on its way into this app's container. Outlives the channels that it comes over.
final class IncomingDelivery: Sendable {
  struct Stream: Sendable, Hashable {
    let channel: ChannelNumber
    let number: UInt32
  }

  private struct Fields {
    var offer: WireOffer
    /// The app was told of the message.
    var isCountTold = false
    /// The delivery as the app sees it, when it was told of the message.
    var transfer: IncomingTransfer?
    var stream: Stream?
    var isCommitting = false
    /// Offered over a channel that is there.
    var isUnderWay = false
    /// It was refused or taken back.
    var isUnwanted = false
    /// The bytes that the app is charged for the offer and its list of files.
    var heldByteCount = 0
    /// The room on the disk that its sandbox was promised for it.
    var promise: SandboxDisk.Promise?
    /// Counts offers and interruptions: what comes of an earlier one counts for nothing.
    var attempt: UInt64 = 0
    /// The position of its last offer among all offers of its sender.
    var lastOffer: UInt64 = 0
  }

  /// Everything that is done to it, but what comes over the bulk lane, in order.
  let queue: DispatchQueue
  private let guarded: Guarded<Fields>
  /// Held while the disk is waited for, so not by who works on the runtime's state.
  private let arrival = Guarded<Arrival?>(nil)
  /// The files of which the app was told, over all attempts.
  private let begun = Guarded(Arrival.Begun())

  init(_ offer: WireOffer) {
    queue = DispatchQueue(label: "opendynamics.services.arrival", attributes: [], target: .global())
    guarded = Guarded(Fields(offer: offer))
  }

  var offer: WireOffer { guarded.withLock { $0.offer } }

  var stream: Stream? {
    get { guarded.withLock { $0.stream } }
    set { guarded.withLock { $0.stream = newValue } }
  }

  var attempt: UInt64 { guarded.withLock { $0.attempt } }

  /// An attempt is of another channel, or of none, and what was begun for the one before counts for nothing. `position` is that of the
  /// offer among all of its sender's.
  func beginAttempt(_ offer: WireOffer? = nil, at position: UInt64? = nil) -> UInt64 {
    guarded.withLock {
      $0.attempt += 1
      $0.lastOffer = position ?? $0.lastOffer
      $0.stream = nil
      $0.isUnderWay = offer != nil
      $0.offer = offer ?? $0.offer.withoutContents
      return $0.attempt
    }
  }

  /// It has ended: no more of the offer is kept than tells which one it was.
  func forgetContents() { guarded.withLock { $0.offer = $0.offer.withoutContents } }

  /// Removes the sender's mark: the ledger knows that the message never came before.
  func clearRepeatMark() { guarded.withLock { $0.offer.mayBeRepeated = false } }

  var lastOffer: UInt64 { guarded.withLock { $0.lastOffer } }

  var isUnderWay: Bool { guarded.withLock { $0.isUnderWay } }

  /// Another reply to the same request is under way, and was offered first.
  func comesBefore(_ other: IncomingDelivery) -> Bool {
    guard self !== other, other.isReply, let request = other.request else { return false }
    return isReply(to: request) && isUnderWay && lastOffer < other.lastOffer
  }

  var isReply: Bool { offer.isReply }

  func isReply(to request: Identifier) -> Bool { isReply && self.request == request }

  /// It was refused or taken back: the app hears nothing more of it, nor what waits to be told.
  var isUnwanted: Bool {
    get { guarded.withLock { $0.isUnwanted } }
    set { guarded.withLock { $0.isUnwanted = newValue } }
  }

  var heldByteCount: Int {
    get { guarded.withLock { $0.heldByteCount } }
    set { guarded.withLock { $0.heldByteCount = newValue } }
  }

  func setPromise(_ promise: SandboxDisk.Promise) { guarded.withLock { $0.promise = promise } }

  func takePromise() -> SandboxDisk.Promise? { guarded.withLock { $0.promise.take() } }

  /// It is too late to refuse it.
  var isCommitting: Bool {
    get { guarded.withLock { $0.isCommitting } }
    set { guarded.withLock { $0.isCommitting = newValue } }
  }

  /// The request that it brings, or that it answers.
  var request: Identifier? { offer.requestID }

  var transfer: IncomingTransfer? {
    get { guarded.withLock { $0.transfer } }
    set { guarded.withLock { $0.transfer = newValue } }
  }

  var isCountTold: Bool { guarded.withLock { $0.isCountTold } }

  /// True for the first who asks.
  func tellCount() -> Bool {
    guarded.withLock { guarded in
      defer { guarded.isCountTold = true }
      return !guarded.isCountTold
    }
  }

  // MARK: What has arrived

  /// The record of a file takes about so much.
  private static let fileByteCount: UInt64 = 512

  /// Begins to receive what was offered. `mayDiscard`: where there is no room, idle messages of others give way. Throws ``NoRoom`` for a message for
  /// which there may be room later, and `noSpace` for one for which there will be none.
  func begin(_ store: Container, from application: ApplicationID, mayDiscard: Bool) throws -> Room {
    let offer = offer
    try begin(store, ArrivingMessage(offer, from: application))
    try FailPoint.begun.passOrFail()
    // Fewer than 2⁶² bytes and 2³² files.
    let needed = (withArrival(\.missingByteCount) ?? 0) + offer.fileCount * Self.fileByteCount
    var free = try store.availableByteCount()
    // How much is free is nobody else's business.
    guard needed <= StoragePause.waitingByteCountMax || needed / 16 <= free else {
      throw ServicesError(.noSpace, detail: "the receiver's container")
    }
    if needed > free, mayDiscard {
      try store.discardIdleArrivals(toFree: needed - free)
      free = try store.availableByteCount()
    }
    let room = Room(needed: needed, free: free)
    guard needed <= free else { throw NoRoom(room: room) }
    return room
  }

  /// Adds the files that the offer itself names. Returns how many are known when others are missing.
  func addOfferedFiles() throws -> UInt64? {
    let offer = offer
    let known = try withArrival { arrival in
      let files = offer.files.dropFirst(Int(clamping: arrival.filesKnown))
      if !files.isEmpty { try arrival.add(files.map(ArrivingFile.init)) }
      return arrival.filesKnown
    }
    return known.flatMap { $0 < offer.fileCount ? $0 : nil }
  }

  /// Lets go of what came before: it is begun anew, or gone on with.
  private func begin(_ store: Container, _ message: ArrivingMessage) throws {
    try arrival.withLock { arrival in
      arrival?.suspend()
      arrival = nil
      do {
        arrival = try store.beginArrival(message)
      } catch ContainerError.invalidArgument {
        // The staged files under this id belong to another message.
        arrival = try store.beginArrival(message, replacing: true)
      }
    }
  }

  /// Nil when it was let go of meanwhile.
  func withArrival<R: Sendable>(_ body: (Arrival) throws -> R) rethrows -> R? {
    try arrival.withLock { arrival in
      guard let arrival else { return nil }
      return try body(arrival)
    }
  }

  /// Files that have begun, of which the app was not told.
  func takeBegunFiles(of arrival: Arrival) -> [ArrivedFile] {
    begun.withLock { begun in
      arrival.takeBegunFiles(&begun).map { ArrivedFile(path: $0.path, byteCount: $0.size) }
    }
  }

  /// The app was not told of them after all.
  func forgetBegunFiles() { begun.withLock { $0 = Arrival.Begun() } }

  /// Keeps what is there for another channel.
  func suspend() { arrival.withLock { $0.take()?.suspend() } }

  /// Nothing is left of it, nor of what was let go of before.
  func discard(_ store: Container, _ message: ArrivingMessage) throws {
    try arrival.withLock { arrival in
      if let arrival = arrival.take() { try arrival.discard() } else { try store.discardArrival(message) }
    }
  }

  /// Nil when it was let go of meanwhile.
  /// The message, and how many have arrived under its incarnation.
  func commit() throws -> (queued: QueuedMessage, count: UInt64)? {
    try arrival.withLock { try $0.take().map { (try $0.commit(), $0.arrivedCount) } }
  }
}

/// Takes what comes over the bulk lane.
final class ArrivalSink: BulkSink {
  private let delivery: IncomingDelivery
  private let stream: IncomingDelivery.Stream
  private let frameCount = Guarded<UInt64>(0)
  /// Called after each frame.
  private let advanced: @Sendable (Advance) -> Void

  struct Advance: Sendable {
    /// The position up to which the contents are kept.
    var received: UInt64
    /// The number of frames of the stream.
    var frameCount: UInt64
    /// The files that have begun with the frame.
    var begun: [ArrivedFile]
  }

  init(
    _ delivery: IncomingDelivery, _ stream: IncomingDelivery.Stream,
    advanced: @escaping @Sendable (Advance) -> Void
  ) {
    self.delivery = delivery
    self.stream = stream
    self.advanced = advanced
  }

  func receive(_ block: UnsafeRawBufferPointer, _ contents: BulkContents, isLast: Bool) throws {
    let advance = try delivery.withArrival { arrival -> Advance? in
      // Frames of an earlier stream do not count any more.
      guard delivery.stream == stream else { return nil }
      let frame = try SegmentFrame(block, contentsByteCount: contents.byteCount)
      guard isLast == (frame.end == arrival.message.byteCount) else {
        throw ContainerError(.invalidArgument, detail: "a frame at byte \(frame.end) is tagged wrongly")
      }
      try arrival.append(frame, contents)
      if isLast { try arrival.finish() }
      return Advance(
        received: arrival.received, frameCount: 0, begun: delivery.takeBegunFiles(of: arrival))
    }
    try FailPoint.receiving.passOrFail()
    guard case var advance?? = advance else { return }
    advance.frameCount = frameCount.withLock { count in
      count += 1
      return count
    }
    advanced(advance)
  }
}

/// Its segments are read from where they came.
extension BulkContents: FrameContents {}

extension WireOffer {
  /// The offer with no more than tells which one it is.
  fileprivate var withoutContents: WireOffer {
    var offer = self
    offer.files = []
    switch message {
    case .request(let request):
      // These tell whose provider hears of its files.
      offer.request = .with {
        $0.id = request.id
        $0.serviceID = request.serviceID
        $0.version = request.version
        $0.method = request.method
      }
    case .reply(let reply): offer.reply = .with { $0.id = reply.id }
    case nil: break
    }
    return offer
  }

  var requestID: Identifier? {
    switch message {
    case .request(let request): Identifier(exactly: request.id)
    case .reply(let reply): Identifier(exactly: reply.id)
    case nil: nil
    }
  }
}
