import ContainerStore
import Foundation
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// Messages of the container's queue: those that have arrived with their files stay there until a handler has returned, and
/// requests until they are answered.
final class DeliveredMessages {
  /// A request that nobody took yet: what else there is of it is on the disk only.
  private struct Unhandled {
    let arrival: UInt64
    let id: Identifier
    let sender: ApplicationID
    let isRedelivered: Bool
  }

  private unowned let core: Core
  /// Requests whose services are not offered.
  private var unhandled: [Unhandled] = []
  private var unclaimedHandler: UnclaimedReplyHandler?
  /// How far the handler is with the replies that were stored because no call awaited them.
  private var claiming = Claiming.nothing

  /// The unclaimed replies of each sender in the container: their numbers in the queue, and the bytes of the messages. Any app with a channel may reply,
  /// whatever was asked, and who lists them has all of them in memory.
  private var unclaimed: [ApplicationID: [UInt64: Int]] = [:]
  private static let unclaimedCountMax = 1_024
  private static let unclaimedByteCountMax = 8 << 20
  /// When the next one is read again after the container has failed.
  private var pause = StoragePause()
  /// The number of the last one that was given to the handler.
  private var lastClaimed: UInt64 = 0
  /// One was left since the next one is being read, perhaps before it.
  private var wasLeft = false
  /// The numbers of replies that the app has removed while the handler's turn had not come.
  private var removed: Set<UInt64> = []

  private enum Claiming {
    case nothing
    /// The next one is being read.
    case reading
    /// The handler has this one, or gets it when the app runs. No other is in memory.
    case handling(UInt64)
  }
  /// Requests in the queue that were handled and not answered.
  private var answerable: [ApplicationID: [Identifier: Kept]] = [:]

  private struct Kept {
    /// Its number in the queue.
    let arrival: UInt64
    /// While the app has it: all else of such a request is on the disk only.
    weak var object: IncomingRequest?
  }

  init(_ core: Core) { self.core = core }

  private var runtime: Runtime { core.runtime }

  // MARK: What is held of them

  /// Messages are in memory until their handlers have returned. Each stands here under its number in the queue.
  private var held: [UInt64: (sender: ApplicationID, byteCount: Int)] = [:]
  /// The same of each sender: charged to it like its offers, so that who sends faster than it is handled waits.
  private(set) var heldByteCounts: [ApplicationID: Int] = [:]
  /// A message takes about so much beside its contents.
  private static let messageByteCount = 4096

  private func hold(_ queued: QueuedMessage, _ offer: WireOffer, of sender: ApplicationID) {
    guard held[queued.arrival] == nil else { return }
    let files = OfferCharges.listedByteCount(queued.files.lazy.map(\.path.utf8.count))
    let byteCount = Self.messageByteCount + offer.keptByteCount + files
    held[queued.arrival] = (sender, byteCount)
    charge(byteCount, to: sender)
  }

  /// Its handler has returned, its reply is stored, or nobody takes it yet: it need not be in memory any more.
  func letGo(_ arrival: UInt64) {
    guard let (sender, byteCount) = held.removeValue(forKey: arrival) else { return }
    charge(-byteCount, to: sender)
  }

  private func charge(_ byteCount: Int, to sender: ApplicationID) {
    let all = heldByteCounts[sender, default: 0] + byteCount
    heldByteCounts[sender] = all == 0 ? nil : all
    core.heldOfferByteCount += byteCount
    core.peers[sender]?.updateCharge()
  }

  /// A message of the queue has been handled, and nothing is left of it.
  func end(_ arrival: UInt64) {
    letGo(arrival)
    removed.remove(arrival)
    runtime.endQueued(arrival)
    claimNext(after: arrival)
    core.messagesChanged()
  }

  // MARK: To whom they go

  /// Gives a message of the queue to whom it is for.
  func handle(_ read: ReadMessage, isRedelivered: Bool) {
    let queued = read.queued
    guard let application = try? ApplicationID(queued.sender), let offer = read.offer,
      let id = offer.requestID
    else {
      runtime.logger.error(
        "a message in the queue cannot be read", metadata: ["arrival": "\(queued.arrival)"])
      return end(queued.arrival)
    }
    hold(queued, offer, of: application)
    let files = queued.files.map { ArrivedFile(path: $0.path, byteCount: $0.size) }
    switch offer.message {
    case .request(let wire):
      guard let found = core.services.offer(of: wire) else {
        return setAside(queued, of: application, isRedelivered: isRedelivered)
      }
      let request = IncomingRequest(
        wire, id, from: application, found.key, found, params: try? read.value.get(),
        attachments: files.map(\.path),
        arrival: queued.arrival, isRedelivered: isRedelivered, mayBeRepeated: offer.mayBeRepeated, runtime)
      // It was about the front at the time of the earlier process.
      if isRedelivered, request.isFrontRequest { return end(queued.arrival) }
      core.peer(application).requests.admit(request, found, untold: isRedelivered ? files : [])
    case .reply(let reply):
      if let peer = core.peers[application], peer.sent[id] != nil {
        peer.outbox.afterDelivery(of: id) { peer in
          // It may have ended meanwhile: then nobody waits for its reply.
          guard let sent = peer.sent[id] else {
            return peer.core.messages.handle(read, isRedelivered: isRedelivered)
          }
          peer.finish(sent, reply, read.value, files)
          peer.core.messages.end(queued.arrival)
        }
      } else if unclaimedHandler != nil {
        let unclaimed = UnclaimedReply(read, reply, from: application, isRedelivered: isRedelivered)
        core.callbacks(for: application).async { [runtime] in
          // Callbacks before this one may have taken long.
          let handler = runtime.performAndWait {
            $0.messages.beginUnclaimed(queued, of: application, isRedelivered: isRedelivered)
          }
          guard let handler else { return }
          if runtime.handlers.isClosed { return runtime.handlers.end() }
          _ = Task.begin {
            await handler(unclaimed)
            // Of services that stop the handler was ended, and has not returned: its reply comes again at the next start.
            runtime.perform { if $0.life == .running { $0.messages.end(queued.arrival) } }
            runtime.handlers.end()
          }
        }
      } else {
        leave(queued, of: application, wasGiven: isRedelivered)
      }
    case nil: end(queued.arrival)
    }
  }

  /// Nil while the app does not run: then the reply waits.
  private func beginUnclaimed(
    _ queued: QueuedMessage, of sender: ApplicationID, isRedelivered: Bool
  ) -> UnclaimedReplyHandler? {
    if removed.remove(queued.arrival) != nil {
      end(queued.arrival)
      return nil
    }
    // Else it comes at the next start.
    guard core.life == .running else { return nil }
    guard let unclaimedHandler, core.state == .running, !core.isStopping else {
      leave(queued, of: sender, wasGiven: isRedelivered)
      return nil
    }
    runtime.handlers.begin()
    return unclaimedHandler
  }

  /// Stores a reply until there is a handler, and the app runs.
  private func leave(_ queued: QueuedMessage, of sender: ApplicationID, wasGiven: Bool) {
    letGo(queued.arrival)
    unclaimed[sender, default: [:]][queued.arrival] = queued.message.count
    runtime.keepUnclaimed(queued.arrival, wasGiven: wasGiven)
    lastClaimed = min(lastClaimed, queued.arrival - 1)
    wasLeft = true
    claimNext(after: queued.arrival)
  }

  private func setAside(_ queued: QueuedMessage, of sender: ApplicationID, isRedelivered: Bool) {
    letGo(queued.arrival)
    unhandled.append(
      Unhandled(arrival: queued.arrival, id: queued.id, sender: sender, isRedelivered: isRedelivered))
  }

  /// The app runs again.
  func appRuns() {
    handleUnhandled()
    claimStored()
  }

  /// Handles what was set aside, in the order in which it arrived: a service was added, or the app runs again.
  func handleUnhandled() {
    guard !unhandled.isEmpty else { return }
    let arrivals = unhandled.map(\.arrival).sorted()
    runtime.fileQueue.async { [runtime] in
      for arrival in arrivals {
        let result = Result { try runtime.container.store.queuedMessage(arrival).map(ReadMessage.init) }
        runtime.perform { $0.messages.handle(unhandled: arrival, result) }
      }
    }
  }

  private func handle(unhandled arrival: UInt64, _ result: Result<ReadMessage?, any Error>) {
    guard core.life == .running, let index = unhandled.firstIndex(where: { $0.arrival == arrival }) else {
      return
    }
    do {
      // Read first: what cannot be read stays where it is.
      let read = try result.get()
      let message = unhandled.remove(at: index)
      if let read {
        handle(read, isRedelivered: message.isRedelivered)
      } else {
        claimNext(after: arrival)
      }
    } catch {
      runtime.logger.error(
        "a message in the queue cannot be read", metadata: ["arrival": "\(arrival)", "error": "\(error)"])
    }
  }

  // MARK: Replies that nobody awaited

  func handleUnclaimed(with handler: @escaping UnclaimedReplyHandler) {
    unclaimedHandler = handler
    claimStored()
  }

  /// Gives the handler the replies that were stored, one after the other, so that one of them at most is in memory.
  private func claimStored() {
    guard core.life == .running, core.state == .running, !core.isStopping, unclaimedHandler != nil,
      case .nothing = claiming, pause.end == nil
    else { return }
    claiming = .reading
    wasLeft = false
    // Behind what is being stored.
    runtime.fileQueue.async(flags: .barrier) { [runtime, last = lastClaimed] in
      let found = Result {
        try runtime.container.store.claimMessage(after: last, skipping: runtime.leavingOut)
      }
      // Others wait for what has to be behind the claim, and not for the value.
      runtime.fileQueue.async {
        let read = found.map { $0.map { (read: ReadMessage($0.queued), wasGiven: $0.wasGiven) } }
        runtime.perform { $0.messages.claim(read) }
      }
    }
  }

  /// A message is handled or gone: was it the one that the handler had of those that were stored, the next one follows.
  private func claimNext(after arrival: UInt64) {
    guard case .handling(arrival) = claiming else { return }
    claiming = .nothing
    claimStored()
  }

  func mayStoreReply(of sender: ApplicationID) -> Bool {
    guard let own = unclaimed[sender] else { return true }
    return own.count < Self.unclaimedCountMax && own.values.reduce(0, +) < Self.unclaimedByteCountMax
  }

  private func uncount(_ arrival: UInt64, of sender: ApplicationID) {
    unclaimed[sender]?[arrival] = nil
    if unclaimed[sender]?.isEmpty == true { unclaimed[sender] = nil }
  }

  /// The app has taken a reply, or does not want it. Nobody else hears of it.
  func remove(_ reply: UnclaimedReply) {
    if held[reply.arrival] != nil {
      removed.insert(reply.arrival)
    } else {
      uncount(reply.arrival, of: reply.sender)
    }
  }

  private func claim(_ found: Result<(read: ReadMessage, wasGiven: Bool)?, any Error>) {
    claiming = .nothing
    guard core.life == .running else { return }
    do {
      let next = try found.get()
      pause.reset()
      guard let (read, wasGiven) = next else { return }
      claiming = .handling(read.queued.arrival)
      if !wasLeft { lastClaimed = read.queued.arrival }
      if let sender = try? ApplicationID(read.queued.sender) { uncount(read.queued.arrival, of: sender) }
      handle(read, isRedelivered: wasGiven)
    } catch {
      runtime.logger.error("a reply in the container cannot be read", metadata: ["error": "\(error)"])
      pause.begin(at: runtime.now, isFailing: true)
      pause.end.map(core.wake)
    }
  }

  func tick(_ now: UInt64) { if pause.isOver(now) { claimStored() } }

  var nextDeadline: UInt64? { pause.end }

  /// A request that waits for somebody to offer its service.
  func isWaiting(_ request: Identifier, from application: ApplicationID) -> Bool {
    unhandled.contains { $0.id == request && $0.sender == application }
  }

  // MARK: Requests that were handled and not answered

  /// What earlier processes have left.
  func resume(_ queue: MessageQueue, _ waiting: [ReadMessage]) {
    defer { claimStored() }
    for reply in queue.unclaimed {
      guard let sender = try? ApplicationID(reply.sender) else { continue }
      unclaimed[sender, default: [:]][reply.arrival] = reply.byteCount
    }
    for read in waiting { handle(read, isRedelivered: true) }
    for message in queue.answerable {
      guard let application = try? ApplicationID(message.sender) else { continue }
      // One that came twice is kept once, as it came last.
      let earlier = answerable[application, default: [:]].updateValue(
        Kept(arrival: message.arrival), forKey: message.id)
      if let earlier { end(earlier.arrival) }
    }
  }

  func keep(_ request: IncomingRequest, _ arrival: UInt64) {
    let earlier = answerable[request.sender, default: [:]].updateValue(
      Kept(arrival: arrival, object: request), forKey: request.id)
    if let earlier, earlier.arrival != arrival { end(earlier.arrival) }
  }

  /// False for an earlier one with the same id.
  func isAnswerable(_ request: IncomingRequest) -> Bool {
    guard let kept = answerable[request.sender]?[request.id] else { return false }
    return kept.arrival == request.arrival
  }

  func isAnswerable(_ request: Identifier, from application: ApplicationID) -> Bool {
    answerable[application]?[request] != nil
  }

  func hasAnswerable(from application: ApplicationID) -> Bool { answerable[application] != nil }

  /// Returns its number in the queue.
  func takeAnswerable(_ request: IncomingRequest) -> UInt64? {
    defer { if answerable[request.sender]?.isEmpty == true { answerable[request.sender] = nil } }
    return answerable[request.sender]?.removeValue(forKey: request.id)?.arrival
  }

  /// An administrator has forgotten the app: none of its requests is kept. Their files stay in the inbox.
  func endRequests(from application: ApplicationID) {
    for message in unhandled where message.sender == application { end(message.arrival) }
    unhandled.removeAll { $0.sender == application }
    for kept in answerable.removeValue(forKey: application)?.values.map(\.self) ?? [] {
      end(kept.arrival)
      kept.object?.endReply(nil)
    }
  }

  /// These services stop: nobody hears of replies any more.
  func stop() {
    for kept in answerable.values.flatMap(\.values) { kept.object?.endReply(nil) }
  }

  /// While the app has it.
  func keptObject(_ id: Identifier, from application: ApplicationID) -> IncomingRequest? {
    answerable[application]?[id]?.object
  }

  /// Where a request is that may be replied to.
  enum Answerable: Sendable {
    case object(IncomingRequest)
    case queue(arrival: UInt64, sender: ApplicationID)
  }

  /// All that are kept, oldest first.
  var allAnswerable: [Answerable] {
    let kept = answerable.flatMap { sender, requests in
      requests.map { (sender: sender, id: $0.key, arrival: $0.value.arrival) }
    }
    return kept.sorted { $0.arrival < $1.arrival }.compactMap { place(of: $0.id, from: $0.sender) }
  }

  /// The requests of this id; nil stands for any sender.
  func answerable(_ id: Identifier, from sender: ApplicationID?) -> [Answerable] {
    let senders = sender.map { [$0] } ?? Array(Set(answerable.keys).union(core.peers.keys))
    return senders.compactMap { place(of: id, from: $0) }
  }

  private func place(of id: Identifier, from sender: ApplicationID) -> Answerable? {
    if let incoming = core.peers[sender]?.requests.incoming[id] {
      return incoming.mayReply || incoming.request.isBeingKept ? .object(incoming.request) : nil
    }
    return answerable[sender]?[id].map { kept in
      kept.object.map { .object($0) } ?? .queue(arrival: kept.arrival, sender: sender)
    }
  }
}

extension IncomingRequest {
  /// A request of the queue that an earlier process has handled. Throws `catalogDamaged` for one that cannot be read.
  convenience init(
    _ queued: QueuedMessage, from sender: ApplicationID, offer: (WireRequest) -> Offer?, _ runtime: Runtime
  ) throws {
    let read = ReadMessage(queued)
    guard case .request(let wire)? = read.offer?.message, let key = ServiceKey(wire) else {
      throw ContainerError(.catalogDamaged, detail: "message \(queued.arrival) in the queue is no request")
    }
    self.init(
      wire, queued.id, from: sender, key, offer(wire), params: try? read.value.get(),
      attachments: queued.files.map(\.path), arrival: queued.arrival,
      mayBeRepeated: read.offer?.mayBeRepeated ?? false, runtime)
    _ = setHandlerReturned()
  }
}
