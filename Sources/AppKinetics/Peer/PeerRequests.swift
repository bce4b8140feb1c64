import ContainerStore
import Dispatch
import Foundation
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// Requests of one other app to this one, from their arrival until they are answered.
final class PeerRequests {
  struct Incoming {
    let request: IncomingRequest
    var hasReplied = false
    /// Its reply is on the way to the outbox, or there; or it is about to be kept for a reply.
    var isStored = false
    /// The request was put among the kept ones; this stays true when its sender is forgotten.
    var isKept = false
    /// An administrator has forgotten its sender since it came.
    var isForgotten = false
    /// It came over a channel, and has ended there: a delivery brings the reply, if there is one.
    var isReplyDelivered = false
    /// The other app was told that no reply comes.
    var hasEnded = false
    /// That is to be said when it is in the queue, or cannot be kept.
    var endsWhenKept = false
    /// Its reply, which is on the way, and the paths of the reply's files.
    var reply = WireReply()
    var replyAttachments: [String] = []

    var mayReply: Bool { !hasReplied && !isStored && !hasEnded }
  }

  /// Came while the app was locked.
  private struct Locked {
    let request: WireRequest
    let id: Identifier
    let params: ReadValues.Value
    let until: UInt64
  }

  private unowned let peer: PeerSession
  /// Where the app is called for this one: one call after another, and nobody else's wait for them.
  let callbacks: DispatchQueue
  private(set) var incoming: [Identifier: Incoming] = [:]
  /// Those that wait for a callback, in order.
  private var ready = RemovableQueue<ReadyRequest>()
  /// There is one.
  private var isHandling = false
  /// One of those that wait asks for the front: it is not to wait until somebody else has it, so that none does.
  private var isFrontAsked = false
  private var locked = RemovableQueue<Locked>()

  init(_ peer: PeerSession) {
    self.peer = peer
    callbacks =
      peer.runtime.options.callbackQueue ?? DispatchQueue(label: "opendynamics.services.callbacks")
  }

  private var core: Core { peer.core }
  private var runtime: Runtime { peer.runtime }
  private var messages: DeliveredMessages { core.messages }

  /// A request of the other app has no reply yet; those that are kept are not counted.
  var hasUnanswered: Bool { incoming.values.contains { $0.mayReply } }

  var isIdle: Bool { !isHandling && incoming.isEmpty && !messages.hasAnswerable(from: peer.application) }

  /// There is nothing but requests that are kept for a reply: those need no time.
  var isQuiet: Bool { !isHandling && incoming.isEmpty }

  // MARK: What comes

  func hear(_ event: ProviderEvent, of id: Identifier) {
    switch event {
    case .arrived(let request): arrived(request, id, peer.values.params(of: request, id))
    case .withdrawn:
      locked.remove(id)
      // One with this id that was delivered is not withdrawn over a channel.
      guard incoming[id]?.request.arrival == nil else { return }
      ready.remove(id)
      incoming[id] = nil
      handleNext()
    case .cancelRequested: cancelRequested(id)
    case .replyAccepted: replyEnded(id, nil)
    case .replyRefused(let failure): replyEnded(id, ServicesError(failure))
    case .replyExpired:
      replyEnded(id, ServicesError(.connectionLost, detail: "the consumer did not ask for the reply"))
    }
  }

  func cancelRequested(_ id: Identifier) {
    guard let request = incoming[id]?.request ?? messages.keptObject(id, from: peer.application) else {
      return
    }
    // What the app wants to be called then is not called within this work.
    runtime.workQueue.async { request.cancel() }
    guard let provider = request.offer?.provider else { return }
    callbacks.async { provider.didCancel(request) }
  }

  private func replyEnded(_ id: Identifier, _ error: ServicesError?) {
    // The end of the channel's request is none of one that is kept.
    guard let ended = incoming[id], !ended.isReplyDelivered, ended.request.arrival == nil else { return }
    if ended.hasReplied { return tellEnd(of: id, error) }
    incoming[id] = nil
    ended.request.endReply(nil)
  }

  /// The reply has arrived, or will not: its preference takes effect, and an object hears of it.
  func tellEnd(of id: Identifier, _ error: ServicesError?) {
    guard let ended = incoming.removeValue(forKey: id) else { return }
    if error == nil {
      let foreground = ForegroundPreference(ended.reply.foreground)
      if foreground == .peer, ended.request.frontCount == core.broker.frontCount {
        core.broker.passFrontOn(to: peer.application)
      } else {
        peer.prefer(foreground)
      }
    }
    ended.request.endReply(error.map { .didFail($0) } ?? .didFinishSending)
    guard let provider = ended.request.offer?.provider else { return }
    callbacks.async {
      if let error {
        provider.didFailSending(ended.request, error)
      } else {
        provider.didFinishSending(
          ended.reply.sentParams, attachments: ended.replyAttachments, for: ended.request)
      }
    }
  }

  private func refuse(_ id: Identifier, _ error: ServicesError) {
    peer.act(peer.exchange.refuse(id, WireFailure(error)))
  }

  private func arrived(_ request: WireRequest, _ id: Identifier, _ params: ReadValues.Value) {
    do throws(ServicesError) {
      guard incoming[id] == nil, !messages.isAnswerable(id, from: peer.application) else {
        throw ServicesError(.general, detail: "a request with this id waits for its reply")
      }
      let offer = try core.services.offer(of: request, from: peer)
      switch core.state {
      case .running: try admit(request, id, params, offer)
      case .suspended:
        core.peerWaits(peer.application)
        throw ServicesError(.processSuspended)
      case .locked:
        let until = runtime.now + runtime.options.unlockTime.milliseconds
        locked.append(Locked(request: request, id: id, params: params, until: until), id)
        peer.act(peer.exchange.hold(id))
        core.peerWaits(peer.application)
        core.wake(at: until)
      }
    } catch {
      refuse(id, error)
    }
  }

  private func admit(
    _ request: WireRequest, _ id: Identifier, _ params: ReadValues.Value, _ offer: Offer
  ) throws(ServicesError) {
    let params = try params.get()
    if offer.validates {
      try offer.definition.validate(
        request: request.method, params: params, attachmentCount: Int(clamping: request.attachments))
    }
    let request = IncomingRequest(
      request, id, from: peer.application, offer.key, offer, params: params, attachments: [], runtime)
    noteFront(request)
    incoming[id] = Incoming(request: request)
    peer.act(peer.exchange.admit(id))
    handleSoon(ReadyRequest(request: request, offer: offer))
  }

  /// One that was delivered with files, of which the app was not told yet.
  func admit(_ request: IncomingRequest, _ offer: Offer, untold: [ArrivedFile]) {
    // It came again, marked: this one takes its place.
    for arrival in [messages.takeAnswerable(request), incoming[request.id]?.request.arrival] {
      if let arrival, arrival != request.arrival { messages.end(arrival) }
    }
    noteFront(request)
    incoming[request.id] = Incoming(request: request)
    let ready = ReadyRequest(request: request, offer: offer, untold: untold)
    guard offer.provider != nil, !request.isRedelivered, !request.attachments.isEmpty else {
      return handleSoon(ready)
    }
    // Behind what was told of its files.
    callbacks.async { [runtime, application = peer.application] in
      runtime.perform(with: application) { peer in
        guard let incoming = peer.requests.incoming[ready.request.id] else { return }
        if incoming.isForgotten { peer.requests.drop(ready.request) } else { peer.requests.handleSoon(ready) }
      }
    }
  }

  /// The request may pass the front to this app, which does not have it.
  private func noteFront(_ request: IncomingRequest) {
    guard request.foreground == .peer, !request.isRedelivered, !core.broker.isInFront else { return }
    request.frontCount = core.broker.frontCount
  }

  // MARK: Handling

  private func handleSoon(_ request: ReadyRequest) {
    var request = request
    if request.request.isFrontRequest {
      isFrontAsked = true
    } else if request.request.passesFront, request.request.frontCount != nil {
      let until = runtime.now + BrokerSession.frontTime
      request.frontUntil = until
      core.wake(at: until)
    }
    ready.append(request, request.request.id)
    handleNext()
  }

  private func waitsForFront(_ request: ReadyRequest) -> Bool {
    guard !isFrontAsked, !core.broker.isInFront, let until = request.frontUntil else { return false }
    return runtime.now < until
  }

  func handleNext() {
    guard let first = ready.first, !waitsForFront(first), !core.isStopping else { return }
    guard core.state == .running else { return core.peerWaits(peer.application) }
    guard !isHandling else { return }
    isHandling = true
    callbacks.async { [runtime, application = peer.application] in
      let batch = runtime.performAndWait { $0.peers[application]?.requests.nextBatch() ?? [] }
      for ready in batch {
        // What is in the container comes again at the next start.
        if runtime.handlers.isClosed { runtime.handlers.end() } else { ready.handle() }
      }
      runtime.perform(with: application) { peer in
        peer.requests.isHandling = false
        peer.requests.handleNext()
      }
    }
  }

  /// Requests that are handled in one go: for those it is too late to be withdrawn.
  private static let batchCountMax = 32

  private func nextBatch() -> [ReadyRequest] {
    guard core.state == .running, !core.isStopping else { return [] }
    var batch: [ReadyRequest] = []
    for next in ready.takeFirst(Self.batchCountMax, while: { !waitsForFront($0) }) {
      // One that was withdrawn does not begin; a delivered one is not withdrawn.
      guard next.request.arrival != nil || peer.exchange.begin(next.request.id) else { continue }
      if next.request.isFrontRequest, core.broker.isInFront {
        core.broker.frontWasRequested(by: peer.application)
      }
      batch.append(next)
    }
    if ready.isEmpty { isFrontAsked = false }
    runtime.handlers.begin(batch.count)
    return batch
  }

  // MARK: Locked

  func stateChanged() {
    switch core.state {
    case .running: unlock()
    case .suspended: refuseLocked(.processSuspended)
    case .locked: handleNext()
    }
  }

  private func unlock() {
    let waited = locked.takeAll()
    // Those that were accepted before it was locked.
    handleNext()
    for request in waited { arrived(request.request, request.id, request.params) }
  }

  private func refuseLocked(_ code: ServicesError.Code) {
    for request in locked.takeAll() { refuse(request.id, ServicesError(code)) }
  }

  /// All wait as long: the first one is the next.
  var nextDeadline: UInt64? {
    let front = ready.first.flatMap { waitsForFront($0) ? $0.frontUntil : nil }
    return [locked.first?.until, front].compactMap(\.self).min()
  }

  func tick(_ now: UInt64) {
    handleNext()
    while let next = locked.first, now >= next.until {
      _ = locked.takeFirst(1)
      refuse(next.id, ServicesError(.notAllowed))
    }
  }

  // MARK: Answering

  static let cannotReply = ServicesError(
    .general, detail: "the request is not there any more, or was replied to")

  /// Over the channel. Returns why it cannot be sent.
  func reply(_ reply: WireReply, to request: IncomingRequest) -> ServicesError? {
    if mayAnswer(request) { incoming[request.id]?.reply = reply }
    return answer(request, isReply: true) { exchange throws(ProtocolFault) in
      try exchange.reply(reply, now: runtime.now)
    }
  }

  /// Returns why it cannot be ended.
  func endWithoutReply(_ request: IncomingRequest) -> ServicesError? {
    if request.isBeingKept, isCurrent(request), incoming[request.id]?.endsWhenKept == false {
      incoming[request.id]?.endsWhenKept = true
      return nil
    }
    guard request.arrival != nil else {
      return answer(request, isReply: false) { exchange throws(ProtocolFault) in
        try exchange.endWithoutReply(request.id, now: runtime.now)
      }
    }
    guard mayAnswer(request) else { return Self.cannotReply }
    incoming[request.id] = nil
    request.endReply(nil)
    _ = messages.takeAnswerable(request)
    if let arrival = request.arrival { messages.end(arrival) }
    peer.deliveries.step { $0.endRequest(request.id) }
    return nil
  }

  /// The request, which may have several objects, and not another one with its id.
  private func isCurrent(_ request: IncomingRequest) -> Bool {
    guard let current = incoming[request.id]?.request else { return false }
    return current === request || request.arrival != nil && current.arrival == request.arrival
  }

  private func mayAnswer(_ request: IncomingRequest) -> Bool {
    guard let incoming = incoming[request.id] else { return messages.isAnswerable(request) }
    return incoming.mayReply && isCurrent(request)
  }

  private func answer(
    _ request: IncomingRequest, isReply: Bool,
    _ step: (inout Exchange) throws(ProtocolFault) -> [ExchangeOutput]
  ) -> ServicesError? {
    let id = request.id
    guard isCurrent(request), incoming[id]?.isStored == false else { return Self.cannotReply }
    peer.updateCharge()
    do throws(ProtocolFault) {
      let outputs = try step(&peer.exchange)
      incoming[id]?.hasReplied = isReply
      incoming[id]?.hasEnded = !isReply
      var refused: ServicesError?
      for case .provider(id, .replyRefused(let failure)) in outputs {
        refused = ServicesError(failure)
        incoming[id]?.hasReplied = false
      }
      peer.act(outputs)
      return refused
    } catch {
      return Self.cannotReply
    }
  }

  /// A reply is to be stored in the outbox, or the request in the queue; false when there was a reply.
  func beginStoring(
    _ request: IncomingRequest, _ reply: WireReply = WireReply(), _ attachments: [String] = []
  ) -> Bool {
    guard mayAnswer(request) else { return false }
    // A request that is answerable and not here is a kept one.
    var begun = incoming[request.id] ?? Incoming(request: request, isKept: true)
    (begun.isStored, begun.reply, begun.replyAttachments) = (true, reply, attachments)
    incoming[request.id] = begun
    return true
  }

  func storingFailed(_ request: IncomingRequest) {
    guard isCurrent(request) else { return }
    incoming[request.id]?.isStored = false
    incoming[request.id]?.replyAttachments = []
    if let current = incoming[request.id], current.isForgotten, current.isKept {
      _ = messages.takeAnswerable(request)
      return drop(request)
    }
    endIfWanted(request)
    letGo(request)
  }

  private func endIfWanted(_ request: IncomingRequest) {
    if isCurrent(request), incoming[request.id]?.endsWhenKept == true { _ = endWithoutReply(request) }
  }

  /// Removes a kept request from memory, since the container has it. If its sender was forgotten the container does not have it, and
  /// it must not stay answerable.
  private func letGo(_ request: IncomingRequest) {
    guard isCurrent(request), let current = incoming[request.id], current.isKept, current.mayReply
    else { return }
    incoming[request.id] = nil
    if !messages.isAnswerable(request) { request.endReply(nil) }
  }

  /// The reply is in the outbox, and what it answers out of the queue.
  func didStore(_ stored: StoredMessage, for request: IncomingRequest) {
    if isCurrent(request) { incoming[request.id]?.hasReplied = true }
    let isCancelled = request.replyMeter.isCancelled
    peer.outbox.enqueue(
      stored.entry, request: request.id, isReply: true, meter: request.replyMeter,
      offer: isCancelled ? nil : stored.offer)
    if isCancelled { peer.outbox.cancel(stored.entry.id) }
    guard let arrival = request.arrival else { return replyIsDelivered(request.id) }
    messages.letGo(arrival)
    if messages.isAnswerable(request) { _ = messages.takeAnswerable(request) }
  }

  /// A request without files is in the queue.
  func didKeep(_ request: IncomingRequest) {
    if isCurrent(request) { incoming[request.id]?.isStored = false }
    replyIsDelivered(request.id)
    endIfWanted(request)
    // Its handler may have returned meanwhile.
    letGo(request)
  }

  private func replyIsDelivered(_ id: Identifier) {
    incoming[id]?.isReplyDelivered = true
    peer.act((try? peer.exchange.endWithoutReply(id, isDelivered: true, now: runtime.now)) ?? [])
  }

  /// The handler of a request in the queue has returned.
  func handlerReturned(_ request: IncomingRequest) {
    FailPoint.handled.pass()
    if let arrival = request.arrival { messages.letGo(arrival) }
    // Nothing is left in the queue of one that was answered, or whose place another one has taken.
    guard let arrival = request.arrival, isCurrent(request), incoming[request.id]?.hasReplied == false
    else { return }
    if let current = incoming[request.id], current.isForgotten, !current.isStored { return drop(request) }
    messages.keep(request, arrival)
    incoming[request.id]?.isKept = true
    runtime.keepQueued(arrival)
    letGo(request)
  }

  // MARK: Ending

  /// What waits is not handled any more.
  func wasForgotten() {
    refuseLocked(.notAllowed)
    for next in ready.takeAll() {
      let id = next.request.id
      drop(next.request)
      guard next.request.arrival == nil, peer.exchange.begin(id) else { continue }
      peer.act((try? peer.exchange.endWithoutReply(id, now: runtime.now)) ?? [])
    }
    for id in incoming.keys { incoming[id]?.isForgotten = true }
  }

  /// Its files stay in the inbox.
  private func drop(_ request: IncomingRequest) {
    incoming[request.id] = nil
    request.endReply(nil)
    if let arrival = request.arrival { messages.end(arrival) }
  }

  func stop() {
    // What the app wants to be called then is not called within this work.
    for incoming in incoming.values {
      incoming.request.endReply(nil)
      runtime.workQueue.async { incoming.request.cancel() }
    }
  }
}
