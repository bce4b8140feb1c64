import ContainerStore
import Foundation
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// Messages that have arrived with their files: they stay in the queue of the container until a handler has returned.
extension Runtime {
  /// Gives a message of the queue to whom it is for. It stays there until a handler has returned.
  func handle(_ queued: QueuedMessage, isRedelivered: Bool, _ core: inout Core) {
    guard let application = try? ApplicationID(queued.sender),
      let offer = try? WireOffer(serializedBytes: queued.message), let id = offer.requestID
    else {
      logger.error("a message in the queue cannot be read", metadata: ["arrival": "\(queued.arrival)"])
      return endQueued(queued.arrival)
    }
    let files = queued.files.map { ArrivedFile(path: $0.path, byteCount: $0.size) }
    let message = UnhandledMessage(queued: queued, isRedelivered: isRedelivered)
    switch offer.message {
    case .request(let wire):
      guard let found = self.offer(of: wire, core) else { return core.unhandled.append(message) }
      let params = wire.hasParams ? try? ServiceValue(wire.params) : nil
      let request = IncomingRequest(
        wire, id, from: application, found.definition.serviceID, found.definition.version, params: params,
        attachments: files.map(\.path), definition: found.validates ? found.definition : nil,
        arrival: queued.arrival, isRedelivered: isRedelivered, self)
      _ = peer(application, &core)
      core.peers[application]?.incoming[id] = Peer.Incoming(request: request, offer: found)
      let ready = ReadyRequest(request: request, offer: found, untold: isRedelivered ? files : [])
      guard case .object = found.handler, !isRedelivered, !files.isEmpty else {
        return handleSoon(ready, &core)
      }
      // Behind what was told of its files.
      callbacks(for: application, core).async {
        self.core.perform { core in
          guard core.life == .running, core.peers[application]?.incoming[id] != nil else { return }
          self.handleSoon(ready, &core)
        }
      }
    case .reply(let reply):
      if let sent = core.peers[application]?.sent[id] {
        // A reply comes of nothing else.
        sent.didDeliver()
        finish(sent, reply, files, application, &core)
        endQueued(queued.arrival)
      } else if let handler = core.unclaimedHandler {
        handleUnclaimed(reply, id, message, application, files, handler, core)
      } else {
        core.unhandled.append(message)
      }
    case nil: endQueued(queued.arrival)
    }
  }

  private func handleUnclaimed(
    _ reply: WireReply, _ id: Identifier, _ message: UnhandledMessage, _ application: ApplicationID,
    _ files: [ArrivedFile], _ handler: @escaping UnclaimedReplyHandler, _ core: Core
  ) {
    let result: Result<ServiceReply, ServiceReplyError>
    switch reply.result {
    case .error(let error): result = .failure(ServiceReplyError(code: error.code, text: error.text))
    default:
      let params =
        if case .params(let value) = reply.result { try? ServiceValue(value) } else { ServiceValue?.none }
      result = .success(ServiceReply(sender: application, params: params, attachments: files.map(\.path)))
    }
    let unclaimed = UnclaimedReply(
      request: id, sender: application, result: result, isRedelivered: message.isRedelivered)
    callbacks(for: application, core).async {
      _ = self.begin {
        await handler(unclaimed)
        self.handlerReturned(message.queued.arrival)
      }
    }
  }

  /// A service was offered, or a handler given: what waited for that goes on.
  func handleUnhandled(_ core: inout Core) {
    let unhandled = core.unhandled
    core.unhandled = []
    for message in unhandled { handle(message.queued, isRedelivered: message.isRedelivered, &core) }
  }

  /// A handler has returned. One that was ended because the services stop has not: its request comes again at the next start.
  func handlerReturned(_ arrival: UInt64) {
    core.perform { if $0.life == .running { self.endQueued(arrival) } }
  }

  /// Whoever it was for has had it.
  func endQueued(_ arrival: UInt64) {
    FailPoint.handled.pass()
    fileQueue.async { [container, logger] in
      do {
        try container.store.endQueued(arrival)
      } catch {
        logger.error("the queue of messages cannot be changed", metadata: ["error": "\(error)"])
      }
    }
  }

  /// Whether a reply to a delivered request may still come.
  func answerInquiry(_ request: Identifier, _ application: ApplicationID, _ core: inout Core) {
    guard let peer = core.peers[application] else { return }
    let isAwaited =
      peer.incoming[request] != nil
      || peer.outgoing.values.contains { $0.isReply && $0.request == request || $0.request == nil }
      || core.unhandled.contains {
        $0.queued.id == request && $0.queued.sender == application.text
      }
    step(application, &core) { $0.standing(request, isAwaited: isAwaited) }
  }

  // MARK: What is left of messages

  /// The message's directory in the inbox.
  func removeFiles(_ paths: [String]) {
    guard let directory = paths.first.map(Self.messageDirectory) else { return }
    fileQueue.async { try? self.container.files.removeItem(atPath: directory) }
  }

  /// `/Inbox/<sender>/<time>` of a path below it.
  private static func messageDirectory(_ path: String) -> String {
    path.split(separator: "/").prefix(3).map { "/" + $0 }.joined()
  }
}

/// A message of the queue that nobody took yet.
struct UnhandledMessage: Sendable {
  let queued: QueuedMessage
  let isRedelivered: Bool
}
