import ContainerStore
import Foundation
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// Messages that have arrived with their files: they stay in the queue of the container until a handler has returned.
final class DeliveredMessages {
  /// A message that nobody took yet.
  private struct Unhandled {
    let queued: QueuedMessage
    let isRedelivered: Bool
  }

  private unowned let core: Core
  /// Requests whose services are not offered, and replies that nobody waits for.
  private var unhandled: [Unhandled] = []
  private var unclaimedHandler: UnclaimedReplyHandler?

  init(_ core: Core) { self.core = core }

  private var runtime: Runtime { core.runtime }

  /// Replies are taken although no request of this process waits for them.
  var takesUnclaimed: Bool { unclaimedHandler != nil }

  /// Gives a message of the queue to whom it is for.
  func handle(_ queued: QueuedMessage, isRedelivered: Bool) {
    guard let application = try? ApplicationID(queued.sender),
      let offer = try? WireOffer(serializedBytes: queued.message), let id = offer.requestID
    else {
      runtime.logger.error(
        "a message in the queue cannot be read", metadata: ["arrival": "\(queued.arrival)"])
      return runtime.endQueued(queued.arrival)
    }
    let files = queued.files.map { ArrivedFile(path: $0.path, byteCount: $0.size) }
    let message = Unhandled(queued: queued, isRedelivered: isRedelivered)
    switch offer.message {
    case .request(let wire):
      guard let found = core.services.offer(of: wire) else { return unhandled.append(message) }
      let request = IncomingRequest(
        wire, id, from: application, found, params: wire.hasParams ? try? ServiceValue(wire.params) : nil,
        attachments: files.map(\.path), arrival: queued.arrival, isRedelivered: isRedelivered,
        mayBeRepeated: offer.mayBeRepeated, runtime)
      core.peer(application).requests.admit(request, found, untold: isRedelivered ? files : [])
    case .reply(let reply):
      if let peer = core.peers[application], let sent = peer.sent[id] {
        // A reply comes of nothing else.
        sent.didDeliver()
        peer.finish(sent, reply, files)
        runtime.endQueued(queued.arrival)
      } else if let unclaimedHandler {
        let unclaimed = UnclaimedReply(
          request: id, sender: application,
          result: Result { try reply.content(files, from: application, service: nil) },
          attachments: files.map(\.path), isRedelivered: isRedelivered, mayBeRepeated: offer.mayBeRepeated)
        core.callbacks(for: application).async { [runtime] in
          _ = Task.begin {
            await unclaimedHandler(unclaimed)
            runtime.handlerReturned(queued.arrival)
          }
        }
      } else {
        unhandled.append(message)
      }
    case nil: runtime.endQueued(queued.arrival)
    }
  }

  /// Something was offered: what waited for that goes on.
  func handleUnhandled() {
    let waited = unhandled
    unhandled = []
    for message in waited { handle(message.queued, isRedelivered: message.isRedelivered) }
  }

  func handleUnclaimed(with handler: @escaping UnclaimedReplyHandler) {
    unclaimedHandler = handler
    handleUnhandled()
  }

  /// A request that waits for somebody to offer its service.
  func isWaiting(_ request: Identifier, from application: ApplicationID) -> Bool {
    unhandled.contains { $0.queued.id == request && $0.queued.sender == application.text }
  }
}
