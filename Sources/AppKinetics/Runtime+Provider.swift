import Dispatch
import Foundation
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// Requests that come to this app.
extension Runtime {
  // MARK: Offering

  func offer(_ offers: [Offer]) throws(ServicesError) {
    let refused: ServicesError? = core.performAndWait { core in
      // All of them, or none.
      var all = core.offers
      for offer in offers {
        let key = ServiceKey(service: offer.definition.serviceID, version: offer.definition.version)
        guard all.updateValue(offer, forKey: key) == nil else {
          return ServicesError(
            .invalidRegistration, detail: "\(key.service) \(key.version) is offered already")
        }
      }
      core.offers = all
      core.isUnregistered = false
      self.handleUnhandled(&core)
      self.registerAgain(&core)
      return nil
    }
    if let refused { throw refused }
  }

  func withdraw(_ service: ServiceIdentifier, _ version: ServiceVersion?) {
    core.perform { core in
      core.offers = core.offers.filter {
        $0.key.service != service || version != nil && $0.key.version != version
      }
      self.registerAgain(&core)
    }
  }

  /// Of a connection that is on its way: `register` looks again when it is there. One at a time: what is offered meanwhile goes with the next.
  func registerAgain(_ core: inout Core) {
    guard core.broker.phase == .up, !core.isUnregistered else { return }
    guard !core.broker.isRegistering else {
      core.broker.isRegistrationDue = true
      return
    }
    let wanted = registration(core)
    core.broker.isRegistering = true
    ask(.register(wanted), &core) { core, result in
      core.broker.isRegistering = false
      let isDue = core.broker.isRegistrationDue
      core.broker.isRegistrationDue = false
      switch result {
      case .success: core.broker.registered = wanted
      case .failure(let error) where error.code == .limitExceeded:
        return self.workQueue.asyncAfter(deadline: .now() + Self.registrationPause) { [weak self] in
          guard let self else { return }
          self.core.perform { self.registerAgain(&$0) }
        }
      case .failure(let error):
        self.logger.error("the broker did not take what is offered", metadata: ["error": "\(error)"])
      }
      if isDue { self.registerAgain(&core) }
    }
  }

  /// When the broker took too many from here.
  private static let registrationPause: TimeInterval = 2

  func setDisabled(_ isDisabled: Bool, _ part: DisabledPart) {
    core.perform { core in
      if isDisabled { core.disabled.insert(part) } else { core.disabled.remove(part) }
    }
  }

  /// Where the app is called for another one.
  func callbacks(for application: ApplicationID, _ core: Core) -> DispatchQueue {
    core.peers[application]?.callbacks ?? options.callbackQueue ?? .global()
  }

  // MARK: What comes

  func provider(
    _ id: Identifier, _ event: ProviderEvent, _ application: ApplicationID, _ core: inout Core
  ) {
    switch event {
    case .arrived(let request): arrived(request, id, application, &core)
    case .withdrawn:
      if core.locked.contains(where: { $0.id == id }) { core.locked.removeAll { $0.id == id } }
      core.peers[application]?.ready.removeAll { $0.request.id == id }
      core.peers[application]?.incoming[id] = nil
    case .cancelRequested:
      guard let incoming = core.peers[application]?.incoming[id] else { return }
      cancelRequested(incoming, core)
    case .replyAccepted: replyEnded(id, nil, application, &core)
    case .replyRefused(let failure): replyEnded(id, ServicesError(failure), application, &core)
    case .replyExpired:
      replyEnded(
        id, ServicesError(.connectionLost, detail: "the consumer did not ask for the reply"), application,
        &core)
    }
  }

  func cancelRequested(_ incoming: Peer.Incoming, _ core: Core) {
    // What the app wants to be called then is not called within this work.
    workQueue.async { incoming.request.cancel() }
    guard case .object(let provider) = incoming.offer.handler else { return }
    callbacks(for: incoming.request.sender, core).async { provider.didCancel(incoming.request) }
  }

  private func replyEnded(
    _ id: Identifier, _ error: ServicesError?, _ application: ApplicationID, _ core: inout Core
  ) {
    guard let incoming = core.peers[application]?.incoming.removeValue(forKey: id) else { return }
    guard case .object(let provider) = incoming.offer.handler, incoming.hasReplied else { return }
    callbacks(for: application, core).async {
      if let error {
        provider.didFailSending(incoming.request, error)
      } else {
        provider.didFinishSending(incoming.request)
      }
    }
  }

  func refuse(
    _ id: Identifier, _ code: ServicesError.Code, detail: String = "", _ application: ApplicationID,
    _ core: inout Core
  ) {
    let failure = WireFailure.with {
      $0.error = UInt32(code.rawValue)
      $0.detail = detail
    }
    guard let outputs = core.peers[application]?.exchange.refuse(id, failure) else { return }
    act(outputs, application, &core)
  }

  private func arrived(
    _ request: WireRequest, _ id: Identifier, _ application: ApplicationID, _ core: inout Core
  ) {
    do throws(ServicesError) {
      let offer = try offered(request, from: application, core)
      switch core.state {
      case .running: try admit(request, id, application, offer, &core)
      case .suspended: throw ServicesError(.processSuspended)
      case .locked:
        let until = Self.now + options.unlockTime
        core.locked.append(LockedRequest(peer: application, request: request, id: id, until: until))
        core.wake(at: until)
      }
    } catch {
      refuse(id, error.code, detail: error.path ?? error.detail ?? "", application, &core)
    }
  }

  /// The checks before the app is asked, in the order of the protocol's page.
  func offered(
    _ request: WireRequest, from application: ApplicationID, _ core: Core
  ) throws(ServicesError) -> Offer {
    guard !core.policy.denies(application.text, appID) else { throw ServicesError(.notAllowed) }
    // Before anything is compared: an id and a version are short, and of ASCII.
    guard let service = try? ServiceIdentifier(request.serviceID),
      core.offers.keys.contains(where: { $0.service == service })
    else { throw ServicesError(.serviceNotFound) }
    guard let version = try? ServiceVersion(request.version),
      let found = core.offers[ServiceKey(service: service, version: version)]
    else { throw ServicesError(.versionNotFound) }
    guard found.definition.methods[request.method] != nil else { throw ServicesError(.methodNotFound) }
    for rule in core.policy.rules {
      if let number = rule.disables(
        consumer: application.text, service: request.serviceID, version: request.version,
        method: request.method)
      {
        throw ServicesError(.init(rawValue: Int32(number)))
      }
    }
    if core.disabled.contains(DisabledPart(service: service, version: nil, method: nil)) {
      throw ServicesError(.serviceDisabled)
    }
    if core.disabled.contains(DisabledPart(service: service, version: version, method: nil)) {
      throw ServicesError(.versionDisabled)
    }
    if core.disabled.contains(DisabledPart(service: service, version: version, method: request.method)) {
      throw ServicesError(.methodDisabled)
    }
    return found
  }

  private func admit(
    _ request: WireRequest, _ id: Identifier, _ application: ApplicationID, _ offer: Offer, _ core: inout Core
  ) throws(ServicesError) {
    let params: ServiceValue? = request.hasParams ? try ServiceValue(request.params) : nil
    if offer.validates {
      try offer.definition.validate(
        request: request.method, params: params, attachmentCount: Int(clamping: request.attachments))
    }
    let incoming = IncomingRequest(
      request, id, from: application, offer.definition.serviceID, offer.definition.version, params: params,
      attachments: [], definition: offer.validates ? offer.definition : nil, self)
    core.peers[application]?.incoming[id] = Peer.Incoming(request: incoming, offer: offer)
    guard let outputs = core.peers[application]?.exchange.admit(id) else { return }
    act(outputs, application, &core)
    handleSoon(ReadyRequest(request: incoming, offer: offer), &core)
  }

  func handleSoon(_ ready: ReadyRequest, _ core: inout Core) {
    let peer = peer(ready.request.sender, &core)
    peer.ready.append(ready)
    handleSoon(peer, core)
  }

  private func handleSoon(_ peer: Peer, _ core: Core) {
    guard !peer.isHandling, let next = peer.ready.first, core.state != .locked else { return }
    peer.isHandling = true
    let sender = next.request.sender
    peer.callbacks.async { self.handleReady(of: sender) }
  }

  /// The app runs again: what waited for that goes on.
  func unlock(_ core: inout Core) {
    let locked = core.locked
    core.locked = []
    // Those that were accepted before it was locked.
    for peer in core.peers.values { handleSoon(peer, core) }
    for request in locked { arrived(request.request, request.id, request.peer, &core) }
    continueOffers(&core)
  }

  // MARK: Handling, within callbacks

  /// Requests that are handled in one go: for those it is too late to be withdrawn.
  private static let batchCountMax = 32

  private func handleReady(of sender: ApplicationID) {
    let batch: [ReadyRequest] = core.performAndWait { core in
      guard core.state != .locked, let peer = core.peers[sender] else { return [] }
      var batch: [ReadyRequest] = []
      var taken = 0
      while batch.count < Self.batchCountMax, taken < peer.ready.count {
        let next = peer.ready[taken]
        taken += 1
        // One that was withdrawn does not begin; a delivered one is not withdrawn.
        if next.request.arrival != nil || peer.exchange.begin(next.request.id) { batch.append(next) }
      }
      peer.ready.removeFirst(taken)
      return batch
    }
    for ready in batch { handle(ready) }
    core.perform { core in
      guard let peer = core.peers[sender] else { return }
      peer.isHandling = false
      self.handleSoon(peer, core)
    }
  }

  private func handle(_ ready: ReadyRequest) {
    let (request, offer) = (ready.request, ready.offer)
    if request.arrival != nil { FailPoint.handling.pass() }
    let (id, sender) = (request.id, request.sender)
    switch offer.handler {
    case .object(let provider):
      if !ready.untold.isEmpty {
        provider.willReceive(attachmentCount: ready.untold.count, for: id, from: sender)
        for file in ready.untold {
          provider.willReceive(attachment: file.path, byteCount: file.byteCount, for: id, from: sender)
        }
      }
      provider.didReceive(request)
      if let arrival = request.arrival { handlerReturned(arrival) }
      let definesReply = (try? offer.definition.definesReply(request.method)) ?? true
      // It may have said so itself.
      if request.isFrontRequest || !definesReply { try? endWithoutReply(request) }
    case .function(let function):
      request.run(begin { await self.answer(request, function) })
    }
  }

  /// Its first part is done at once, so that handlers begin in order.
  func begin(_ work: @escaping @Sendable () async -> Void) -> Task<Void, Never> {
    if #available(macOS 26, iOS 26, *) { return Task.immediate { await work() } }
    return Task { await work() }
  }

  private func answer(_ request: IncomingRequest, _ function: ServiceHandler) async {
    do {
      let response = try await function(request)
      if request.isFrontRequest { return try endWithoutReply(request) }
      switch response.kind {
      case .reply(let params, let attachments, let foreground):
        try await reply(to: request, .success((params, attachments)), foreground, waits: false)
      case .none: try endWithoutReply(request)
      }
    } catch {
      await answer(request, with: error)
    }
    // Whatever became of its answer: the handler has returned.
    if let arrival = request.arrival { handlerReturned(arrival) }
  }

  /// A handler threw, or what it returned cannot be sent. It may have replied itself before: then there is nothing to say.
  private func answer(_ request: IncomingRequest, with error: any Error) async {
    let reply: ServiceReplyError
    switch error {
    case let error as ServiceReplyError: reply = error
    case let error as ServicesError:
      reply = ServiceReplyError(
        code: Int64(error.code.rawValue), text: error.path ?? error.detail ?? error.code.name)
    case is CancellationError:
      reply = ServiceReplyError(code: Int64(ServicesError.cancelled.rawValue), text: "cancelled")
    default:
      // What it says may be about the provider's own data.
      logger.error(
        "a handler failed", metadata: ["service": "\(request.service)", "error": "\(type(of: error))"])
      reply = ServiceReplyError(code: Int64(ServicesError.general.rawValue), text: "the provider failed")
    }
    do {
      try reply.validate()
      try await put(request, .with { $0.error = reply.wire }, [], .none)
    } catch {
      try? endWithoutReply(request)
    }
  }

  // MARK: Replying

  func reply(
    to request: IncomingRequest, _ result: Result<(ServiceValue?, [String]), ServiceReplyError>,
    _ foreground: ForegroundPreference, waits: Bool = true
  ) async throws {
    guard !request.isFrontRequest else {
      throw ServicesError(.general, detail: "a front request has no reply")
    }
    switch result {
    case .success((let params, let attachments)):
      try params?.validate()
      try request.definition?.validate(
        response: request.method, params: params, attachmentCount: attachments.count)
      for path in attachments { try checkAttachment(path) }
      try await put(
        request, .with { if let params { $0.params = WireValue(params) } }, attachments, foreground,
        waits: waits)
    case .failure(let error):
      try error.validate()
      try request.definition?.validate(error: error, of: request.method)
      try await put(request, .with { $0.error = error.wire }, [], foreground)
    }
  }

  /// By the channel; with files, or to a request that had some, through the outbox.
  private func put(
    _ request: IncomingRequest, _ reply: WireReply, _ attachments: [String],
    _ foreground: ForegroundPreference, waits: Bool = true
  ) async throws {
    guard attachments.isEmpty, request.arrival == nil else {
      try await storeReply(reply, attachments, to: request, foreground)
      if foreground == .peer { core.perform { self.prefer(foreground, request.sender, &$0) } }
      return
    }
    var reply = reply
    reply.id = request.id.data
    reply.foreground = foreground.wire
    let whole = reply
    try answer(request, waits: waits) { exchange throws(ProtocolFault) in
      try exchange.reply(whole, now: Self.now)
    }
    if foreground == .peer { core.perform { self.prefer(foreground, request.sender, &$0) } }
  }

  func endWithoutReply(_ request: IncomingRequest) throws(ServicesError) {
    let id = request.id
    guard request.arrival == nil else { return try endDelivered(request) }
    try answer(request, isReply: false) { exchange throws(ProtocolFault) in
      try exchange.endWithoutReply(id, now: Self.now)
    }
  }

  private func endDelivered(_ request: IncomingRequest) throws(ServicesError) {
    let hasEnded: Bool = core.performAndWait { core in
      guard let incoming = core.peers[request.sender]?.incoming[request.id], !incoming.hasReplied,
        !incoming.isReplyStored
      else { return false }
      core.peers[request.sender]?.incoming[request.id] = nil
      self.step(request.sender, &core) { $0.endRequest(request.id) }
      return true
    }
    guard hasEnded else { throw Self.cannotReply }
  }

  private func answer(
    _ request: IncomingRequest, isReply: Bool = true, waits: Bool = true,
    _ step: @escaping @Sendable (inout Exchange) throws(ProtocolFault) -> [ExchangeOutput]
  ) throws(ServicesError) {
    let work: @Sendable (inout Core) -> ServicesError? = { core in
      guard let incoming = core.peers[request.sender]?.incoming[request.id], !incoming.isReplyStored else {
        return Self.cannotReply
      }
      do throws(ProtocolFault) {
        guard let outputs = try core.peers[request.sender]?.step(step) else { return nil }
        core.peers[request.sender]?.incoming[request.id]?.hasReplied = isReply
        var refused: ServicesError?
        for case .provider(request.id, .replyRefused(let failure)) in outputs {
          refused = ServicesError(failure)
          core.peers[request.sender]?.incoming[request.id]?.hasReplied = false
        }
        self.act(outputs, request.sender, &core)
        return refused
      } catch {
        return ServicesError(.general, detail: "the request was replied to")
      }
    }
    if waits {
      if let refused = core.performAndWait(work) { throw refused }
    } else {
      core.perform { core in
        guard let refused = work(&core) else { return }
        self.logger.notice("a reply was not sent", metadata: ["error": "\(refused)"])
      }
    }
  }
}

extension Peer {
  fileprivate func step(
    _ step: (inout Exchange) throws(ProtocolFault) -> [ExchangeOutput]
  ) throws(ProtocolFault) -> [ExchangeOutput] {
    try step(&exchange)
  }
}

extension IncomingRequest {
  var isFrontRequest: Bool {
    service == WellKnownService.frontRequest.serviceID && version == WellKnownService.frontRequest.version
  }
}
