import ContainerStore
import Dispatch
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// The values of messages of a channel, read by the thread that received them: to make the dictionaries of a large one takes long, and
/// the core does not wait for it.
struct ReadValues: Sendable {
  typealias Value = Result<ServiceValue?, ServicesError>

  private var params: [Identifier: Value] = [:]
  private var results: [Identifier: Value] = [:]

  init(_ messages: [WireChannelMessage] = []) {
    for message in messages {
      switch message.kind {
      case .request(let request):
        if request.hasParams, let id = Identifier(exactly: request.id) { params[id] = request.readParams() }
      case .reply(let reply):
        if reply.hasValue, let id = Identifier(exactly: reply.id) { results[id] = reply.readValue() }
      default: break
      }
    }
  }

  func params(of request: WireRequest, _ id: Identifier) -> Value { params[id] ?? request.readParams() }

  func value(of reply: WireReply, _ id: Identifier) -> Value { results[id] ?? reply.readValue() }
}

extension WireRequest {
  func readParams() -> ReadValues.Value {
    Result { () throws(ServicesError) in hasParams ? try ServiceValue(params) : nil }
  }
}

extension WireReply {
  fileprivate var hasValue: Bool {
    switch result {
    case .params: true
    case .error(let error): error.hasDetails
    case .failure, nil: false
    }
  }

  /// Of a reply of this app, for a callback; nil when there are none.
  var sentParams: ServiceValue? {
    if case .params = result { try? readValue().get() } else { nil }
  }

  /// The params, or the details of an error.
  func readValue() -> ReadValues.Value {
    Result { () throws(ServicesError) in
      switch result {
      case .params(let value): try ServiceValue(value)
      case .error(let error): error.hasDetails ? try ServiceValue(error.details) : nil
      case .failure, nil: nil
      }
    }
  }
}

extension WireOffer {
  /// What it takes in memory without its list of files, about.
  var keptByteCount: Int {
    switch message {
    case .request(let request): request.keptByteCount
    case .reply(let reply): reply.keptByteCount
    case nil: 0
    }
  }
}

/// A message of the container's queue and the value that came with it. Made where time may pass.
struct ReadMessage: Sendable {
  let queued: QueuedMessage
  /// Nil for one that cannot be read.
  let offer: WireOffer?
  let value: ReadValues.Value

  init(_ queued: QueuedMessage) {
    self.queued = queued
    offer = try? WireOffer(serializedBytes: queued.message)
    value =
      switch offer?.message {
      case .request(let request): request.readParams()
      case .reply(let reply): reply.readValue()
      case nil: .success(nil)
      }
  }
}
