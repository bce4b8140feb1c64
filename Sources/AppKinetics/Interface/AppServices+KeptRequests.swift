import ContainerStore
import ServiceValues
public import SodiumPrimitives

/// Replies at any later time. A request with files whose handler has returned is kept in the container until it is answered, and so is one without
/// that the app keeps (``IncomingRequest/keep()``, ``ServiceResponse/later``), unless its method has no reply.
extension AppServices {
  /// The requests that are kept, also those of earlier processes, oldest first. One that is damaged is logged and left out. Throws the container's errors, and `general` when these services
  /// do not run.
  public func keptRequests() async throws -> [IncomingRequest] {
    try await runtime.keptRequests()
  }

  /// Replies to a request that is kept, or that came to this process and was not answered, as ``IncomingRequest/reply(_:attachments:foreground:)`` does. Without `sender` it may be any app's. Throws what that throws,
  /// `general` for a request that is not there or was replied to, and for an id that requests of several apps have.
  public func reply(
    _ params: ServiceValue? = nil, attachments: [String] = [], foreground: ForegroundPreference = .none,
    to request: RequestID, from sender: ApplicationID? = nil
  ) async throws {
    let kept = try await runtime.keptRequest(request, from: sender)
    try await kept.reply(params, attachments: attachments, foreground: foreground)
  }

  /// Replies to a kept request with an error, in the same way.
  public func reply(
    error: ServiceReplyError, foreground: ForegroundPreference = .none, to request: RequestID,
    from sender: ApplicationID? = nil
  ) async throws {
    try await runtime.keptRequest(request, from: sender).reply(error: error, foreground: foreground)
  }

  /// Lets the consumer of a kept request know that no reply comes. Throws as the others do.
  public func endWithoutReply(_ request: RequestID, from sender: ApplicationID? = nil) async throws {
    try await runtime.keptRequest(request, from: sender).endWithoutReply()
  }
}

extension Runtime {
  fileprivate func keptRequests() async throws -> [IncomingRequest] {
    try await requests { $0.allAnswerable }
  }

  fileprivate func keptRequest(_ id: RequestID, from sender: ApplicationID?) async throws -> IncomingRequest {
    let found = try await requests { $0.answerable(id, from: sender) }
    guard found.count < 2 else {
      throw ServicesError(.general, detail: "requests of several apps have this id: name the sender")
    }
    guard let request = found.first else { throw PeerRequests.cannotReply }
    return request
  }

  private func requests(
    _ find: @escaping @Sendable (DeliveredMessages) -> [DeliveredMessages.Answerable]
  ) async throws -> [IncomingRequest] {
    let found = await result { core in
      Result { () throws(ServicesError) in
        if let notRunning = core.notRunning { throw notRunning }
        return (find(core.messages), core.services)
      }
    }
    let (places, services) = try found.get()
    do {
      return try await blocking { [self] in
        try places.compactMap { place in
          switch place {
          case .object(let request): return request
          case .queue(let arrival, let sender):
            return try skippingDamage("message \(arrival) in the queue", leavingOut) {
              // It may have been answered since.
              guard let queued = try container.store.queuedMessage(arrival) else { return nil }
              return try IncomingRequest(queued, from: sender, offer: { services.offer(of: $0) }, self)
            } ?? nil
          }
        }
      }
    } catch {
      throw Self.servicesError(error)
    }
  }
}
