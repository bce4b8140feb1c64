import ServiceValues
import ServiceWire
import SodiumPrimitives

/// How a request is answered, by its handler or in place of it. Any thread.
extension IncomingRequest {
  var isFrontRequest: Bool {
    service == FrontRequest.serviceID && version == FrontRequest.version
  }

  /// It is not given to a handler again: in the queue of the container it waits for its reply, if there was none.
  func handlerReturned() {
    guard setHandlerReturned() != nil else { return }
    runtime.perform { core in
      // Of services that stop the handler was ended, and has not returned: its request comes again at the next start.
      if core.life == .running { core.peer(self.sender).requests.handlerReturned(self) }
    }
  }

  func keepForReply() async throws {
    guard !isFrontRequest else { throw Self.isFront }
    guard definesReply else {
      throw ServicesError(
        .general, detail: "the method has no reply, so there is nothing to keep the request for")
    }
    guard arrival == nil else { return }
    let sender = sender
    let isTaken = await runtime.result { [storing = runtime.storing] core in
      guard core.life == .running, core.peers[sender]?.requests.beginStoring(self) == true
      else { return false }
      self.beginKeeping()
      storing.enter()
      return true
    }
    guard isTaken else { throw PeerRequests.cannotReply }
    defer { runtime.storing.leave() }
    let message = WireOffer.with { $0.request = wire }
    do {
      let isHandled = hasHandlerReturned
      let arrival = try await runtime.keepForReply(
        message, id: id, from: sender, isHandled: isHandled)
      let hasReturned = setArrival(arrival)
      await runtime.result { core in
        defer { self.endKeeping() }
        guard core.life == .running else { return }
        core.peer(sender).requests.didKeep(self)
        if hasReturned { core.peer(sender).requests.handlerReturned(self) }
      }
    } catch {
      runtime.perform { core in
        core.peers[sender]?.requests.storingFailed(self)
        self.endKeeping()
      }
      throw error
    }
  }

  /// False when the definition says that there is none.
  var definesReply: Bool { (try? offer?.definition.definesReply(method)) ?? true }

  /// The request as it came.
  private var wire: WireRequest {
    .with {
      $0.id = id.data
      $0.serviceID = service.text
      $0.version = version.text
      $0.method = method
      if let params { $0.params = WireValue(params) }
      $0.foreground = foreground.wire
    }
  }

  private static let isFront = ServicesError(.general, detail: "a front request has no reply")

  /// What the provider wants its replies to follow.
  private var definition: ServiceDefinition? {
    get async {
      var offer = offer
      if offer == nil {
        let key = ServiceKey(service: service, version: version)
        offer = await runtime.result { [method] in $0.services[key, method] }
      }
      return offer.flatMap { $0.validates ? $0.definition : nil }
    }
  }

  /// Sends params with paths of attachments, or an error. With `waits` it throws also what keeps a reply from being sent over the channel.
  func send(
    _ result: Result<(ServiceValue?, [String]), ServiceReplyError>, _ foreground: ForegroundPreference,
    waits: Bool = true
  ) async throws {
    guard !isFrontRequest else { throw Self.isFront }
    switch result {
    case .success((let params, let attachments)):
      try params?.validate()
      try await definition?.validate(response: method, params: params, attachmentCount: attachments.count)
      try await runtime.checkAttachments(attachments)
      try await put(
        .with { if let params { $0.params = WireValue(params) } }, attachments, foreground, waits: waits)
    case .failure(let error):
      try error.validate()
      try await definition?.validate(error: error, of: method)
      try await runtime.checkAttachments(error.attachments)
      try await put(.with { $0.error = error.wire }, error.attachments, foreground)
    }
  }

  /// A handler threw, or what it returned cannot be sent. It may have replied itself before: then there is nothing to say.
  func answer(with error: any Error) async {
    guard !isFrontRequest else { return endSoonWithoutReply() }
    var reply: ServiceReplyError
    switch error {
    case let error as ServiceReplyError:
      reply = error
      let definition = await definition
      do throws(ServicesError) {
        try definition?.validate(error: error, of: method)
      } catch {
        return await answer(with: error)
      }
    case let error as ServicesError:
      // The handler chose it, or what the handler returned cannot be sent, which its app would not hear otherwise.
      runtime.logger.warning(
        "a request is answered with an error",
        metadata: ["service": "\(service)", "method": "\(method)", "error": "\(error)"])
      let text = error.path ?? error.detail ?? error.code.name
      reply = ServiceReplyError(
        error.code, text: text.utf8.count <= ServiceReplyError.textByteCountMax ? text : error.code.name)
    case is CancellationError:
      reply = ServiceReplyError(.cancelled, text: "cancelled")
    default:
      // What it says may be about the provider's own data.
      runtime.logger.error(
        "a handler failed", metadata: ["service": "\(service)", "error": "\(type(of: error))"])
      reply = ServiceReplyError(.general, text: "the provider failed")
    }
    do {
      try reply.validate()
    } catch {
      return await answer(with: error)
    }
    do {
      try await runtime.checkAttachments(reply.attachments)
    } catch {
      // The app's error matters more to the consumer than the missing files.
      runtime.logger.error("files of an error are not there", metadata: ["error": "\(error)"])
      reply.attachments = []
    }
    await put(reply)
  }

  /// Replies with an error that was checked. If it cannot be stored, it goes without its files; if that fails too, a request with files stays among those
  /// that are kept, and any other one ends without a reply.
  private func put(_ reply: ServiceReplyError) async {
    let wire = WireReply.with { $0.error = reply.wire }
    do {
      try await put(wire, reply.attachments, .none)
    } catch {
      // The handler has replied itself, or nobody waits for it any more.
      if (error as? ServicesError) == PeerRequests.cannotReply { return endSoonWithoutReply() }
      runtime.logger.error("an error as a reply cannot be sent", metadata: ["error": "\(error)"])
      if !reply.attachments.isEmpty, (try? await put(wire, [], .none)) != nil { return }
      if arrival == nil || !definesReply { endSoonWithoutReply() }
    }
  }

  /// For tasks, which do not wait. Does nothing when it was replied to.
  func endSoonWithoutReply() {
    runtime.perform { core in _ = core.requests(holding: self)?.endWithoutReply(self) }
  }

  /// By the channel; with files, or to a request that is in the queue, through the outbox. One that is on the way into the queue is answered there.
  private func put(
    _ reply: WireReply, _ attachments: [String], _ foreground: ForegroundPreference, waits: Bool = true
  ) async throws {
    if let observer = runtime.options.observer {
      if await observer.mayReply(to: self), await runtime.result(of: { $0.life != .running }) {
        throw PeerRequests.cannotReply
      }
      observer.willReply(to: self)
    }
    while true {
      await whenKept()
      let place = arrival
      do {
        return try await putOnce(reply, attachments, foreground, waits: waits)
      } catch let error as ServicesError where error == PeerRequests.cannotReply {
        // Its keeping may have begun meanwhile, and ended, too.
        guard isBeingKept || arrival != place else { throw error }
      }
    }
  }

  private func putOnce(
    _ reply: WireReply, _ attachments: [String], _ foreground: ForegroundPreference, waits: Bool
  ) async throws {
    var reply = reply
    reply.id = self.id.data
    reply.foreground = foreground.wire
    if attachments.isEmpty, arrival == nil {
      try await put(reply, waits: waits)
    } else {
      reply.attachments = UInt64(attachments.count)
      try await store(reply, attachments)
    }
  }

  private func put(_ reply: WireReply, waits: Bool) async throws(ServicesError) {
    let (sender, logger) = (sender, runtime.logger)
    guard waits else {
      return runtime.perform { core in
        let refused =
          core.peers[sender].map { $0.requests.reply(reply, to: self) } ?? PeerRequests.cannotReply
        // Its keeping may have begun since.
        if refused != nil, self.isBeingKept {
          Task { try await self.put(reply, [], ForegroundPreference(reply.foreground)) }
          return
        }
        if let refused { logger.debug("a reply was not sent", metadata: ["error": "\(refused)"]) }
      }
    }
    let refused = await runtime.result { core in
      core.peers[sender].map { $0.requests.reply(reply, to: self) } ?? PeerRequests.cannotReply
    }
    if let refused { throw refused }
  }

  /// Puts a reply into the outbox, and what it answers out of the queue. Throws `general` for a request that cannot be replied to.
  private func store(_ reply: WireReply, _ attachments: [String]) async throws {
    try await runtime.store(
      .with { $0.reply = reply }, id: Identifier.random(), to: sender, attachments, endingQueued: arrival
    ) { core in
      let isTaken = core.requests(holding: self)?.beginStoring(self, reply, attachments) == true
      return isTaken ? nil : PeerRequests.cannotReply
    } then: { [sender] core, stored in
      guard let stored else {
        core.peers[sender]?.requests.storingFailed(self)
        return
      }
      if core.life == .running { core.peer(sender).requests.didStore(stored, for: self) }
    }
  }
}
