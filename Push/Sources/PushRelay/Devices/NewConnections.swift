internal import NIOCore
internal import Synchronization

/// Connections of devices that have not said hello. Each address has a part of the places, and a connection
/// that is silent gives its place to a new one, so that silent ones lock nobody out.
final class NewConnections: Sendable {
  private struct Newcomer: Sendable {
    let id: Hub.ConnectionID
    let channel: any Channel
    let time: NIODeadline
    var hasSent = false

    /// Whether it may be closed for the benefit of another one. A device sends its first bytes at once.
    func mayGo(_ now: NIODeadline) -> Bool {
      now - time >= (hasSent ? .seconds(2) : .milliseconds(100))
    }
  }

  private struct State: Sendable {
    /// By address, the oldest first.
    var newcomers: [String: [Newcomer]] = [:]
    var count = 0

    mutating func remove(_ id: Hub.ConnectionID, _ address: String) -> (any Channel)? {
      guard let index = newcomers[address]?.firstIndex(where: { $0.id == id }) else { return nil }
      count -= 1
      let channel = newcomers[address]!.remove(at: index).channel
      if newcomers[address]!.isEmpty { newcomers[address] = nil }
      return channel
    }

    /// Those that have sent nothing go first.
    func candidate(_ address: String, _ now: NIODeadline) -> Hub.ConnectionID? {
      let mayGo = (newcomers[address] ?? []).filter { $0.mayGo(now) }
      return (mayGo.first { !$0.hasSent } ?? mayGo.first)?.id
    }
  }

  private let countMax: Int
  private let ofAddressMax: Int
  private let state = Mutex(State())

  init(countMax: Int) {
    self.countMax = countMax
    ofAddressMax = max(1, countMax / 4)
  }

  /// Takes a connection, and closes another one for it if there is no place. Returns whether there is one.
  func add(_ id: Hub.ConnectionID, _ channel: any Channel, from address: String) -> Bool {
    let now = NIODeadline.now()
    let (isTaken, victim) = state.withLock { state -> (Bool, (any Channel)?) in
      var victim: (any Channel)?
      if state.newcomers[address, default: []].count >= ofAddressMax {
        guard let id = state.candidate(address, now) else { return (false, nil) }
        victim = state.remove(id, address)
      } else if state.count >= countMax {
        // The address that has the most gives one away.
        var found: (id: Hub.ConnectionID, address: String)?
        for address in state.newcomers.sorted(by: { $0.value.count > $1.value.count }).map(\.key) {
          guard let id = state.candidate(address, now) else { continue }
          found = (id, address)
          break
        }
        guard let found else { return (false, nil) }
        victim = state.remove(found.id, found.address)
      }
      state.newcomers[address, default: []].append(Newcomer(id: id, channel: channel, time: now))
      state.count += 1
      return (true, victim)
    }
    victim?.close(promise: nil)
    return isTaken
  }

  /// The connection has sent its first bytes.
  func hasSent(_ id: Hub.ConnectionID, from address: String) {
    state.withLock { state in
      guard let index = state.newcomers[address]?.firstIndex(where: { $0.id == id }) else { return }
      state.newcomers[address]![index].hasSent = true
    }
  }

  /// The connection has said hello, or has ended.
  func remove(_ id: Hub.ConnectionID, from address: String) {
    _ = state.withLock { $0.remove(id, address) }
  }
}

/// Notes the first bytes of a connection, and leaves it.
final class FirstBytes: ChannelInboundHandler, RemovableChannelHandler {
  typealias InboundIn = ByteBuffer

  private let onFirst: () -> Void

  init(onFirst: @escaping () -> Void) {
    self.onFirst = onFirst
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    onFirst()
    context.fireChannelRead(data)
    context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
  }
}
