import ContainerStore
import Foundation
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// Requests that this app sends.
extension PeerSession {
  // MARK: Sending

  func submit(_ request: SentRequest) {
    sent[request.id] = request
    do throws(ProtocolFault) {
      wasQueued(request.id)
      act(try exchange.submit(request.wire(isInFront: core.broker.isInFront)))
      if dialWait == .unlock { prefer(request, isWaiting: true) }
      // It may wait for room; nothing keeps it from being sent.
      if isOnItsWay { request.accept() }
    } catch {
      sent[request.id] = nil
      request.fail(
        .refused, ServicesError(.limitExceeded, detail: "requests queued for want of credit or channel"))
    }
  }

  /// The request is in the outbox.
  func enqueue(_ request: SentRequest, _ stored: StoredMessage) {
    sent[request.id] = request
    deliveries.endHold()
    outbox.enqueue(
      stored.entry, request: request.id, isReply: false, meter: request.meter, offer: stored.offer,
      timeLimit: request.request.timeLimit?.milliseconds)
    // The other app is locked or suspended, as the broker said.
    let waits = dialWait == .unlock || !isConnected && deliveries.waitReason != nil
    if waits { prefer(request, isWaiting: true) }
    if isOnItsWay || waits { request.accept() }
  }

  func cancel(_ request: SentRequest) {
    guard sent[request.id] != nil else { return }
    if outbox.outgoing[request.id] != nil { return outbox.cancel(request.id) }
    if request.isReplyDelivered { return request.didNotCancel() }
    act(exchange.cancel(request.id))
  }

  // MARK: What becomes of them

  func hear(_ event: ConsumerEvent, of id: Identifier) {
    guard let request = sent[id] else { return }
    switch event {
    case .waitsForUnlock: return prefer(request, isWaiting: true)
    case .accepted: return didDeliver(request)
    case .notCancelled: return request.didNotCancel()
    // The delivery of the reply tells it.
    case .replyIsDelivered:
      request.replyIsDelivered()
      return request.didNotCancel()
    case .replied(let reply): return finish(request, reply, values.value(of: reply, id), [])
    case .noReply: request.end(.endedWithoutReply, .success(nil), .didEndWithoutReply)
    case .refused(let failure):
      // Of a request that was accepted it is the reply that could not be sent.
      request.fail(request.status == .delivered ? .replied : .refused, ServicesError(failure))
    case .cancelled: request.fail(.cancelled, ServicesError(.cancelled))
    case .lost(let arrived):
      request.fail(
        .lost,
        ServicesError(
          .connectionLost,
          detail: arrived
            ? "whether the request was handled is not known" : "the request did not reach the other app"))
    }
    sent[id] = nil
  }

  /// The other app has a copy of the request.
  func didDeliver(_ request: SentRequest) {
    if request.didDeliver() { prefer(request) }
  }

  func finish(
    _ request: SentRequest, _ reply: WireReply, _ value: ReadValues.Value, _ files: [ArrivedFile]
  ) {
    sent[request.id] = nil
    request.keep(files)
    do {
      let reply = try reply.content(value, files, from: application, service: request.request.service)
      try request.request.definition?.validate(
        response: request.request.method, params: reply.params, attachmentCount: files.count)
      request.end(.replied, .success(reply), .didReceive(reply))
    } catch let error as ServiceReplyError {
      request.end(.replied, .failure(error), .didReceiveError(error))
    } catch {
      request.fail(.replied, error as? ServicesError ?? ServicesError(.invalidParams))
    }
  }

  /// Acts on the preference of a request that the other app has, or that begins to wait until that app is unlocked or resumed.
  func prefer(_ request: SentRequest, isWaiting: Bool = false) {
    if request.usesPreference(isWaiting: isWaiting, isInFront: core.broker.isInFront) {
      prefer(request.request.foreground)
    }
  }

  /// Acts on the preference of a message that the other app has: the app in front passes the front on if
  /// it prefers the other one there.
  func prefer(_ foreground: ForegroundPreference) {
    guard foreground == .peer, core.broker.isInFront else { return }
    core.broker.passFront(to: application)
  }
}

extension SentRequest {
  /// `isInFront`: this app is.
  func wire(isInFront: Bool) -> WireRequest {
    .with {
      $0.id = id.data
      $0.serviceID = request.service.text
      $0.version = request.version.text
      $0.method = request.method
      if let params = request.params { $0.params = WireValue(params) }
      $0.foreground = request.foreground.wire
      $0.passesFront = request.foreground == .peer && isInFront
    }
  }
}

extension WireReply {
  /// Returns the reply, whose value was read, as the app sees it. Throws `ServiceReplyError` or `ServicesError` if the reply is an error, and
  /// `invalidParams` for values that break the rules.
  /// `service` is nil when it is not known any more which one replied.
  func content(
    _ value: ReadValues.Value, _ files: [ArrivedFile], from application: ApplicationID,
    service: ServiceIdentifier?
  ) throws -> ServiceReply {
    switch result {
    case .error(let wire):
      var error = try ServiceReplyError(wire, details: value.get(), service: service)
      try error.validate()
      error.attachments = files.map(\.path)
      throw error
    case .failure(let failure): throw ServicesError(failure)
    case .params, nil:
      return ServiceReply(sender: application, params: try value.get(), attachments: files.map(\.path))
    }
  }
}

extension ServiceReplyError {
  /// Throws `invalidParams` for details that are no object.
  fileprivate init(_ wire: WireReplyError, details: ServiceValue?, service: ServiceIdentifier?) throws {
    guard case .object(let members) = details ?? [:] else {
      throw ServicesError(.invalidParams, path: "details", detail: "no object")
    }
    self.init(domain: service, code: wire.code, text: wire.text, details: members)
  }

  var wire: WireReplyError {
    .with {
      $0.code = code
      $0.text = text
      if !details.isEmpty { $0.details = WireValue(.object(details)) }
    }
  }
}
