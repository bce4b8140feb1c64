import ServiceValues
import ServiceWire

/// A request that waits for its turn, and what is done when that has come, where the app is called.
struct ReadyRequest: Sendable {
  let request: IncomingRequest
  let offer: Offer
  /// Files that the app was not told of yet.
  var untold: [ArrivedFile] = []
  /// It waits so long for the front, which its sender passes on.
  var frontUntil: UInt64?

  func handle() {
    if request.arrival != nil { FailPoint.handling.pass() }
    request.runtime.options.observer?.willHandle(request)
    switch offer.handler {
    case .object(let provider):
      give(to: provider)
      request.runtime.handlers.end()
    case .function(let function):
      request.run(
        Task.begin {
          await answer(with: function)
          request.runtime.handlers.end()
        })
    }
  }

  private func give(to provider: any ServiceProvider) {
    let (id, sender) = (request.id, request.sender)
    if !untold.isEmpty {
      provider.willReceive(attachmentCount: untold.count, for: id, from: sender)
      for file in untold {
        provider.willReceive(attachment: file.path, byteCount: file.byteCount, for: id, from: sender)
      }
    }
    provider.didReceive(request)
    // It may have said so itself.
    if request.isFrontRequest || !request.definesReply { try? request.endWithoutReply() }
    request.handlerReturned()
  }

  private func answer(with function: ServiceHandler) async {
    do {
      let response = try await function(request)
      switch response.kind {
      case .reply(let params, let attachments, let foreground) where !request.isFrontRequest:
        try await request.send(.success((params, attachments)), foreground, waits: false)
      case .later where !request.isFrontRequest && request.definesReply:
        // It is kept as one whose handler has returned.
        _ = request.setHandlerReturned()
        try await request.keepForReply()
      // When it has replied itself there is nothing to say.
      case .reply, .later, .none: request.endSoonWithoutReply()
      }
    } catch {
      await request.answer(with: error)
    }
    // Whatever became of its answer: the handler has returned.
    request.handlerReturned()
  }
}

/// A file in the inbox.
struct ArrivedFile: Sendable, Hashable {
  let path: String
  let byteCount: UInt64
}

extension Task where Success == Void, Failure == Never {
  /// Its first part is done at once where the system can do that, so that handlers begin in order.
  static func begin(_ work: @escaping @Sendable () async -> Void) -> Task<Void, Never> {
    if #available(macOS 26, iOS 26, *) { return Task.immediate { await work() } }
    return Task { await work() }
  }
}
