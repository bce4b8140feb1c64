import AppKinetics
import Locks

/// Requests that came and were not replied to. A provider need not reply, and a request without a reply takes its sender's credit:
/// beyond a limit for each sender, the oldest end without one.
final class OpenRequests: Sendable {
  private struct Open {
    let request: IncomingRequest
    let byteCount: Int
  }

  /// The open requests of one sender, the oldest first.
  private struct Requests {
    var all: [Open] = []
    var byteCount = 0

    mutating func take(at index: Int) -> IncomingRequest {
      let open = all.remove(at: index)
      byteCount -= open.byteCount
      return open.request
    }
  }

  /// Half of what the runtime takes of a peer (`ExchangeLimits`).
  static let countMax = 512
  static let byteCountMax = 32 << 20

  private let senders = Guarded<[ApplicationID: Requests]>([:])

  /// Returns the requests that have ended for this one.
  func add(_ request: IncomingRequest) -> [IncomingRequest] {
    let open = Open(request: request, byteCount: request.params?.roughByteCount ?? 0)
    let (old, again): ([IncomingRequest], IncomingRequest?) = senders.withLock { senders in
      var (old, again): ([IncomingRequest], IncomingRequest?) = ([], nil)
      var requests = senders[request.sender, default: Requests()]
      // The same one comes again when its handler did not return.
      if let index = requests.all.firstIndex(where: { $0.request.id == request.id }) {
        again = requests.take(at: index)
      }
      requests.all.append(open)
      requests.byteCount += open.byteCount
      while requests.all.count > 1,
        requests.all.count > Self.countMax || requests.byteCount > Self.byteCountMax
      {
        old.append(requests.take(at: 0))
      }
      senders[request.sender] = requests
      return (old, again)
    }
    // Released without the lock.
    _ = again
    for request in old { try? request.endWithoutReply() }
    return old
  }

  func removeAll() {
    let all = senders.withLock { senders in
      defer { senders = [:] }
      return senders
    }
    _ = all
  }

  func take(_ id: RequestID) -> IncomingRequest? {
    senders.withLock { senders in
      for (sender, requests) in senders {
        guard let index = requests.all.firstIndex(where: { $0.request.id == id }) else { continue }
        let request = senders[sender]?.take(at: index)
        if requests.all.count == 1 { senders[sender] = nil }
        return request
      }
      return nil
    }
  }
}

extension ServiceValue {
  /// The size of the value in a message in bytes, within a factor of two.
  fileprivate var roughByteCount: Int {
    switch self {
    case .string(let text): text.utf8.count
    case .bytes(let bytes): bytes.count
    case .array(let values): values.reduce(8) { $0 + $1.roughByteCount }
    case .object(let members): members.reduce(8) { $0 + $1.key.utf8.count + $1.value.roughByteCount }
    default: 8
    }
  }
}
