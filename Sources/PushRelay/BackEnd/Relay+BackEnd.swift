package import Foundation
internal import PushWire

/// The answer to a back end.
package struct BackEndResponse: Sendable {
  package var status: Int
  package var headers: [(name: String, value: String)] = []
  package var text = ""
  /// What follows on the connection cannot be told from the body that was not read.
  package var closesConnection = false

  fileprivate init(_ code: GNPCode, closesConnection: Bool = false) {
    status = 200
    headers = [("Content-Type", "text/plain"), ("X-Good-GNP-Code", code.header)]
    self.closesConnection = closesConnection
  }

  package init(
    status: Int, _ text: String, headers: [(name: String, value: String)] = [],
    closesConnection: Bool = false
  ) {
    self.status = status
    self.headers = [("Content-Type", "text/plain; charset=utf-8")] + headers
    self.text = text.isEmpty ? "" : text + "\n"
    self.closesConnection = closesConnection
  }

  /// What metrics count it as: the documented code, or the status.
  var result: String {
    headers.first { $0.name == "X-Good-GNP-Code" }.map { String($0.value.prefix(3)) } ?? "\(status)"
  }
}

/// Why a body could not be read.
package enum BodyFailure: Error, Sendable {
  /// It has not the length that was announced, or the connection broke.
  case incomplete
  /// The bodies of all requests together are too long at the moment.
  case overloaded
}

extension Relay {
  /// Answers a request of a back end. `body` reads the body, whose length it is given.
  package func respond(
    to request: BackEndRequest, from address: String, body: (Int) async throws(BodyFailure) -> Data
  ) async -> BackEndResponse {
    let isGNP = request.target.hasPrefix("/GNP")
    let begin = ContinuousClock.now
    let response = await unmeasuredResponse(to: request, from: address, isGNP: isGNP, body: body)
    let seconds = (ContinuousClock.now - begin) / .seconds(1)
    metrics.answered(isGNP ? "gnp" : "push", response.result, seconds: seconds)
    return response
  }

  private func unmeasuredResponse(
    to request: BackEndRequest, from address: String, isGNP: Bool,
    body: (Int) async throws(BodyFailure) -> Data
  ) async -> BackEndResponse {
    guard !isDraining else {
      return BackEndResponse(
        status: 503, "the relay is stopping", headers: [("Retry-After", "5")], closesConnection: true)
    }
    do {
      if isGNP { return try await gnpResponse(to: request, from: address, body: body) }
      return try await pushResponse(to: request, from: address, body: body)
    } catch let failure as BodyFailure {
      switch failure {
      case .incomplete:
        return BackEndResponse(status: 400, "the body is not complete", closesConnection: true)
      case .overloaded:
        return BackEndResponse(
          status: 503, "too many bodies at once", headers: [("Retry-After", "1")], closesConnection: true)
      }
    } catch {
      metrics.storeFailures.increment()
      logger.error("the store failed: \(error)")
      return BackEndResponse(
        status: 503, "the relay's database failed", headers: [("Retry-After", "10")], closesConnection: true)
    }
  }

  // MARK: The documented interface

  private func gnpResponse(
    to request: BackEndRequest, from address: String, body: (Int) async throws(BodyFailure) -> Data
  ) async throws -> BackEndResponse {
    let gnp: GNPRequest
    do {
      gnp = try GNPRequest(request)
    } catch {
      // A body of `notify` that is too long or has no length is not read.
      return BackEndResponse(error, closesConnection: error == .unsupported && request.method != "GET")
    }
    do {
      // The address limit comes first, so that no sender makes the relay read its database freely.
      guard isAllowed(from: address) else { throw GNPCode.disconnected }
      guard let channel = try await store.channel(tokenHash: TokenVault.hash(gnp.token.text)),
        channel.state == .open
      else { throw GNPCode.invalidToken }
      switch gnp.operation {
      case .checkToken:
        let callbacks = try gnp.callbacks()
        try limit(gnp)
        try await checkToken(callbacks, channel)
      case .notify:
        try gnp.checkType()
        // A body is read for a channel that may have it, and for no other.
        try limit(gnp)
        try await notify(gnp, channel, body: try await body(gnp.byteCount))
      }
      return BackEndResponse(.ok)
    } catch let code as GNPCode {
      return BackEndResponse(code)
    }
  }

  private func isAllowed(from address: String) -> Bool {
    addressLimiter.allows(IPAddress.group(address), now: clock.now())
  }

  /// Applies the rate of a token. Called only for tokens that exist: others get no bucket.
  private func limit(_ request: GNPRequest) throws(GNPCode) {
    guard tokenLimiter.allows(TokenVault.hash(request.token.secret), now: clock.now()) else {
      throw .disconnected
    }
  }

  private func checkToken(_ callbacks: GNPRequest.Callbacks, _ channel: StoredChannel) async throws {
    if callbacks != channel.callbacks {
      guard try await store.setCallbacks(callbacks, of: channel.number) else { throw GNPCode.invalidToken }
      var changed = channel
      changed.callbacks = callbacks
      pinger.opened(changed, now: clock.now())
    }
    guard await wire.isConnected(channel.number) else { throw GNPCode.disconnected }
  }

  private func notify(_ request: GNPRequest, _ channel: StoredChannel, body: Data) async throws {
    var message = try request.text(of: body)
    message.accepted = UInt64(clock.now())
    guard await wire.isConnected(channel.number) else { throw GNPCode.disconnected }
    switch try await append(
      .message(message), to: .channel(channel.number), timeToLive: configuration.notifyTimeToLive,
      waitingMax: configuration.waitingEvents)
    {
    case .stored: metrics.messagesAccepted.increment()
    case .full: throw GNPCode.disconnected
    case .ended, .unknown: throw GNPCode.invalidToken
    }
  }

  // MARK: After RFC 8030

  private static let unknownToken = PushRequest.Refusal(status: 404, text: "no such token")
  private static let tooMany = PushRequest.Refusal(status: 429, text: "too many messages")
  /// Longest body that is read before its channel is looked up.
  private static let unknownBodyMax = 16 << 10
  private static let endedChannel = PushRequest.Refusal(status: 410, text: "the channel has ended")

  private func pushResponse(
    to request: BackEndRequest, from address: String, body: (Int) async throws(BodyFailure) -> Data
  ) async throws -> BackEndResponse {
    do {
      let push = try PushRequest(request)
      guard isAllowed(from: address) else { throw Self.tooMany }
      let secretHash = TokenVault.hash(push.secret)
      let isTransient = push.timeToLiveSeconds == 0
      // Most messages find their channel in the transaction that stores them. A long body is read for a
      // channel that is known.
      var target = AppendRequest.Target.secret(hash: secretHash)
      if isTransient || push.hasTopic || push.byteCount > Self.unknownBodyMax {
        guard let channel = try await store.channel(secretHash: secretHash) else { throw Self.unknownToken }
        guard channel.state == .open else { throw Self.endedChannel }
        target = .channel(channel.number)
      }
      guard tokenLimiter.wouldAllow(secretHash, now: clock.now()) else { throw Self.tooMany }
      var message = try push.message(body: try await body(push.byteCount))
      message.accepted = UInt64(clock.now())
      let headers = [
        ("Location", "/push/message/\(ChannelID.random())"), ("TTL", "\(push.timeToLiveSeconds)"),
      ]
      // One that cannot be sent at once has expired when there is room.
      if isTransient, case .channel(let number) = target, !(await wire.isConnected(number)) {
        tokenLimiter.charge(secretHash, now: clock.now())
        return BackEndResponse(status: 201, "", headers: headers)
      }
      let outcome = try await append(
        .message(message), to: target, timeToLive: Int64(push.timeToLiveSeconds) * 1000,
        waitingMax: configuration.waitingEvents)
      // A secret that does not exist gets no bucket.
      if outcome != .unknown { tokenLimiter.charge(secretHash, now: clock.now()) }
      switch outcome {
      case .stored: metrics.messagesAccepted.increment()
      case .full where isTransient: break
      case .full: throw PushRequest.Refusal(status: 429, text: "the queue of the channel is full")
      case .ended: throw Self.endedChannel
      case .unknown: throw Self.unknownToken
      }
      return BackEndResponse(status: 201, "", headers: headers)
    } catch let refusal as PushRequest.Refusal {
      return BackEndResponse(
        status: refusal.status, refusal.text,
        headers: refusal.status == 429 ? [("Retry-After", "1")] : [],
        closesConnection: refusal.status == 413 || refusal.status == 411)
    }
  }
}
