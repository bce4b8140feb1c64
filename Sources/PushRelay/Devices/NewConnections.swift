internal import Locks
internal import NIOCore

/// Connections of devices that have not said hello. Each address has a part of the places, and a connection
/// that is silent gives its place to a new one, so that silent ones lock nobody out.
final class NewConnections: Sendable {
  private struct Newcomer: Sendable {
    let id: Hub.ConnectionID
    let channel: any Channel
    let time: NIODeadline
    var hasSent = false

    /// Whether it may be closed for the benefit of another one. A device sends its first bytes at once, and they take
    /// the time of the network.
    func mayGo(_ now: NIODeadline) -> Bool {
      now - time >= (hasSent ? .seconds(2) : .milliseconds(300))
    }
  }

  private struct State: Sendable {
    /// By address, the oldest first.
    var newcomers: [String: [Newcomer]] = [:]
    var count = 0
    /// Connections that were accepted and not added yet.
    var acceptedCount = 0

    mutating func remove(_ id: Hub.ConnectionID, _ address: String) -> (any Channel)? {
      guard let index = newcomers[address]?.firstIndex(where: { $0.id == id }) else { return nil }
      count -= 1
      let channel = newcomers[address]!.remove(at: index).channel
      if newcomers[address]!.isEmpty { newcomers[address] = nil }
      return channel
    }

    /// One that may go, of the address that has the most of those that have one.
    func candidate(_ now: NIODeadline) -> (id: Hub.ConnectionID, address: String)? {
      for address in newcomers.sorted(by: { $0.value.count > $1.value.count }).map(\.key) {
        if let id = candidate(address, now) { return (id, address) }
      }
      return nil
    }

    /// Those that have sent nothing go first.
    func candidate(_ address: String, _ now: NIODeadline) -> Hub.ConnectionID? {
      let mayGo = (newcomers[address] ?? []).filter { $0.mayGo(now) }
      return (mayGo.first { !$0.hasSent } ?? mayGo.first)?.id
    }
  }

  private let countMax: Int
  private let ofAddressMax: Int
  private let state = Guarded(State())

  init(countMax: Int) {
    self.countMax = countMax
    ofAddressMax = max(1, countMax / 4)
  }

  /// A connection was accepted. ``add(_:_:from:)`` or ``withdraw()`` follows.
  func accepted() { state.withLock { $0.acceptedCount += 1 } }

  /// A connection that was accepted does not stay.
  func withdraw() { state.withLock { $0.acceptedCount -= 1 } }

  /// Takes a connection, and closes another one for it if there is no place. Returns whether there is one.
  func add(_ id: Hub.ConnectionID, _ channel: any Channel, from address: String) -> Bool {
    let now = NIODeadline.now()
    let (isTaken, victim) = state.withLock { state -> (Bool, (any Channel)?) in
      state.acceptedCount -= 1
      var victim: (any Channel)?
      if state.newcomers[address, default: []].count >= ofAddressMax {
        guard let id = state.candidate(address, now) else { return (false, nil) }
        victim = state.remove(id, address)
      } else if state.count >= countMax {
        guard let found = state.candidate(now) else { return (false, nil) }
        victim = state.remove(found.id, found.address)
      }
      state.newcomers[address, default: []].append(Newcomer(id: id, channel: channel, time: now))
      state.count += 1
      return (true, victim)
    }
    victim?.close(promise: nil)
    return isTaken
  }

  /// Whether ``add(_:_:from:)`` takes a connection of an address that has few.
  var hasPlace: Bool {
    state.withLock { $0.count + $0.acceptedCount < countMax || $0.candidate(.now()) != nil }
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

/// Accepts no connection while there is no place for a new one. Those that come meanwhile wait in the system's queue, and
/// cost the relay nothing: after a restart all devices come at once.
final class AcceptGate: ChannelDuplexHandler {
  typealias InboundIn = any Channel
  typealias OutboundIn = Any

  private let newcomers: NewConnections
  private var isWaiting = false

  init(_ newcomers: NewConnections) {
    self.newcomers = newcomers
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    // The connection is added on a loop of its own, and the next one may come before.
    newcomers.accepted()
    context.fireChannelRead(data)
  }

  func read(context: ChannelHandlerContext) {
    guard !isWaiting else { return }
    guard !newcomers.hasPlace else { return context.read() }
    isWaiting = true
    let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
    context.eventLoop.scheduleTask(in: .milliseconds(5)) {
      let (gate, context) = bound.value
      gate.isWaiting = false
      gate.read(context: context)
    }
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
