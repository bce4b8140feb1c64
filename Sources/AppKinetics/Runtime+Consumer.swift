import ContainerStore
import Foundation
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// Requests that this app sends.
extension Runtime {
  // MARK: Sending

  func send(_ request: ServiceRequest, to application: ApplicationID) async throws -> SentRequest {
    guard application != self.application.id else {
      throw ServicesError(.notAllowed, detail: "an app sends no requests to itself")
    }
    try check(request)
    let sent = SentRequest(Identifier.random(), request, to: application, self)
    if sent.isDelivery { try await store(sent) } else { core.perform { self.submit(sent, &$0) } }
    try await sent.accepted()
    return sent
  }

  /// What may be known before anything is sent.
  private func check(_ request: ServiceRequest) throws {
    guard !request.method.isEmpty, request.method.utf8.count <= Self.methodByteCountMax else {
      throw ServicesError(
        .methodNotFound, detail: "a method's name has 1 to \(Self.methodByteCountMax) bytes")
    }
    try request.params?.validate()
    try request.definition?.validate(
      request: request.method, params: request.params, attachmentCount: request.attachments.count)
    for path in request.attachments { try checkAttachment(path) }
  }

  static let methodByteCountMax = ExchangeLimits.nameByteCountMax

  /// Relative paths begin at the root, as they do when the files are sent.
  func checkAttachment(_ path: String) throws(ServicesError) {
    let store = container.store
    guard let attributes = try? store.attributes(at: path),
      attributes.kind == .file || attributes.kind == .directory,
      // Without links, `.` and `..`.
      let place = try? store.resolvedPath(path)
    else { throw ServicesError(.attachmentNotFound, path: path) }
    guard !Identity.holdsPrivateKey(place) else {
      throw ServicesError(
        .attachmentNotFound, path: path,
        detail: "\(Identity.directory) holds the app's private key and is not sent, nor is a folder around it"
      )
    }
  }

  func wireRequest(_ sent: SentRequest) -> WireRequest {
    let request = sent.request
    return .with {
      $0.id = sent.id.data
      $0.serviceID = request.service.text
      $0.version = request.version.text
      $0.method = request.method
      if let params = request.params { $0.params = WireValue(params) }
      $0.foreground = request.foreground.wire
    }
  }

  private func submit(_ sent: SentRequest, _ core: inout Core) {
    let application = sent.application
    let wire = wireRequest(sent)
    guard core.life == .running else {
      let error =
        core.broker.lastFailure ?? ServicesError(.brokerUnavailable, detail: "these services are not started")
      return sent.end(.refused, .failure(error), .didFail(error))
    }
    _ = peer(application, &core)
    core.peers[application]?.sent[sent.id] = sent
    do throws(ProtocolFault) {
      guard let outputs = try submit(wire, application, &core) else { return }
      act(outputs, application, &core)
      // It may wait for room; nothing keeps it from being sent.
      if isOnItsWay(to: application, core) { sent.accept() }
    } catch {
      core.peers[application]?.sent[sent.id] = nil
      let error = ServicesError(.limitExceeded, detail: "requests queued for want of credit or channel")
      sent.end(.refused, .failure(error), .didFail(error))
    }
  }

  private func submit(
    _ wire: WireRequest, _ application: ApplicationID, _ core: inout Core
  ) throws(ProtocolFault) -> [ExchangeOutput]? {
    try core.peers[application]?.exchange.submit(wire)
  }

  /// There is a channel, or the other app is being started or unlocked: the request was taken.
  func isOnItsWay(to application: ApplicationID, _ core: Core) -> Bool {
    guard let peer = core.peers[application] else { return false }
    return peer.isDialWaiting || peer.exchange.openChannelCount > 0
  }

  // MARK: Cancelling

  func cancel(_ sent: SentRequest) {
    core.perform { core in
      guard core.peers[sent.application]?.sent[sent.id] != nil else { return }
      if core.peers[sent.application]?.outgoing[sent.id] != nil {
        return self.step(sent.application, &core) { $0.cancel(sent.id) }
      }
      if sent.isDelivery || sent.awaitsDelivery { return sent.didNotCancel() }
      guard let outputs = core.peers[sent.application]?.exchange.cancel(sent.id) else { return }
      self.act(outputs, sent.application, &core)
    }
  }

  func requests(to application: ApplicationID) async -> [SentRequest] {
    await withCheckedContinuation { continuation in
      core.perform { core in
        continuation.resume(returning: core.peers[application].map { Array($0.sent.values) } ?? [])
      }
    }
  }

  // MARK: What becomes of them

  func consumer(
    _ id: Identifier, _ event: ConsumerEvent, _ application: ApplicationID, _ core: inout Core
  ) {
    guard let sent = core.peers[application]?.sent[id] else { return }
    switch event {
    case .accepted:
      sent.didDeliver()
      prefer(sent.request.foreground, application, &core)
      return
    case .notCancelled: return sent.didNotCancel()
    // A delivery brings it.
    case .replyIsDelivered:
      sent.awaitDelivery()
      return sent.didNotCancel()
    case .replied(let reply): return finish(sent, reply, [], application, &core)
    case .noReply: sent.end(.endedWithoutReply, .success(nil), .didEndWithoutReply)
    case .refused(let failure):
      let error = ServicesError(failure)
      // Of a request that was accepted it is the reply that could not be sent.
      sent.end(sent.status == .delivered ? .replied : .refused, .failure(error), .didFail(error))
    case .cancelled:
      let error = ServicesError(.cancelled)
      sent.end(.cancelled, .failure(error), .didFail(error))
    case .lost(let arrived):
      let error = ServicesError(
        .connectionLost,
        detail: arrived
          ? "whether the request was handled is not known" : "the request did not reach the other app")
      sent.end(.lost, .failure(error), .didFail(error))
    }
    core.peers[application]?.sent[id] = nil
  }

  func finish(
    _ sent: SentRequest, _ reply: WireReply, _ files: [ArrivedFile], _ application: ApplicationID,
    _ core: inout Core
  ) {
    core.peers[application]?.sent[sent.id] = nil
    do {
      switch reply.result {
      case .error(let wire):
        let error = try ServiceReplyError(wire, service: sent.request.service)
        try error.validate()
        sent.end(.replied, .failure(error), .didReceiveError(error))
        removeFiles(files.map(\.path))
      case .params(let value): try finish(sent, ServiceValue(value), files)
      case .failure(let failure): throw ServicesError(failure)
      case nil: try finish(sent, nil, files)
      }
    } catch {
      removeFiles(files.map(\.path))
      let error = error as? ServicesError ?? ServicesError(.invalidParams)
      sent.end(.replied, .failure(error), .didFail(error))
    }
  }

  private func finish(
    _ sent: SentRequest, _ params: ServiceValue?, _ files: [ArrivedFile]
  ) throws {
    try sent.request.definition?.validate(
      response: sent.request.method, params: params, attachmentCount: files.count)
    let reply = ServiceReply(sender: sent.application, params: params, attachments: files.map(\.path))
    sent.end(.replied, .success(reply), .didReceive(reply))
  }

  /// Whoever is in front passes it on when it prefers the other one there.
  func prefer(_ foreground: ForegroundPreference, _ application: ApplicationID, _ core: inout Core) {
    guard foreground == .peer, core.isInFront else { return }
    // That the broker refuses changes nothing for the message.
    ask(.bringToFront(.with { $0.appID = application.text }), &core) { _, _ in }
  }
}

extension ServiceReplyError {
  /// Throws `invalidParams` for details that are no object.
  init(_ wire: WireReplyError, service: ServiceIdentifier) throws {
    var details: [String: ServiceValue] = [:]
    if wire.hasDetails {
      guard case .object(let members) = try ServiceValue(wire.details) else {
        throw ServicesError(.invalidParams, path: "details", detail: "no object")
      }
      details = members
    }
    self.init(domain: service, code: wire.code, text: wire.text, details: details)
  }

  var wire: WireReplyError {
    .with {
      $0.code = code
      $0.text = text
      if !details.isEmpty { $0.details = WireValue(.object(details)) }
    }
  }
}
