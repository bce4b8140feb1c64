package import Foundation
import Locks
import NIOCore
import NIOPosix
package import ServiceWire
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A lane between two apps.
package typealias ControlLane = MessageLane<WireChannelMessage>
/// A lane between an app, or a tool, and the broker.
package typealias BrokerLane = MessageLane<WireBrokerMessage>

/// A sealed socket that carries frames: they go both ways once each side has proved its key. It does not know what messages mean, but for
/// `Goodbye`.
///
/// All of its work but encoding is done on one event loop, or in turns by its own thread and those that send (`LanePlace`). It lives until it is closed, whether
/// somebody holds it or not.
package final class MessageLane<Message: LaneMessage>: Sendable {
  let limits: LaneLimits
  let events: LaneEvents<Message>
  let outbox: Guarded<LaneOutbox>
  let peer = Guarded<Data?>(nil)
  let eventLoop: any EventLoop
  let connection: NIOLoopBoundBox<LaneConnection<Message>?>
  /// Nil once the lane is closed.
  private let closers = Guarded<[@Sendable () -> Void]?>([])

  private init(_ eventLoop: any EventLoop, _ limits: LaneLimits, _ events: LaneEvents<Message>) {
    self.eventLoop = eventLoop
    self.limits = limits
    self.events = events
    outbox = Guarded(LaneOutbox(limits))
    connection = .makeEmptyBox(valueType: LaneConnection<Message>.self, eventLoop: eventLoop)
  }

  /// Begins the handshake on a connected stream socket, which belongs to the lane from now on, also when this throws.
  ///
  /// Throws `malformed` for a peer's key that is none, and `SocketError`. Everything else is told by `closed`.
  @discardableResult
  package static func open(
    descriptor: Int32, sealing: LaneSealing, limits: LaneLimits = LaneLimits(), events: LaneEvents<Message>,
    on place: LanePlace = .sharedEventLoop
  ) throws -> MessageLane {
    do { try sealing.check() } catch {
      close(descriptor: descriptor)
      throw error
    }
    let build: @Sendable (any Channel, MessageLane) throws -> Void = { channel, lane in
      let connection = LaneConnection(lane)
      try connection.build(channel.pipeline.syncOperations, sealing.handshake())
      lane.connection.value = connection
    }
    switch place {
    case .eventLoop(let eventLoop):
      let lane = MessageLane(eventLoop, limits, events)
      lane.begin(descriptor, build)
      return lane
    case .thread(let executor, let pollTime):
      let loop: TurnLoop
      do { loop = try TurnLoop() } catch {
        close(descriptor: descriptor)
        throw error
      }
      let lane = MessageLane(loop, limits, events)
      lane.begin(descriptor, loop, executor, pollTime, build)
      return lane
    }
  }

  private func begin(
    _ descriptor: Int32, _ build: @escaping @Sendable (any Channel, MessageLane) throws -> Void
  ) {
    // The event loop would stop the process for a descriptor that it cannot wait for.
    guard Self.isStreamSocket(descriptor) else {
      Self.close(descriptor: descriptor)
      return didNotBegin("the descriptor is no stream socket")
    }
    ClientBootstrap(group: eventLoop).channelInitializer { channel in
      channel.eventLoop.makeCompletedFuture { try build(channel, self) }
    }.withConnectedSocket(descriptor).whenFailure { self.didNotBegin("\($0)") }
  }

  private func begin(
    _ descriptor: Int32, _ loop: TurnLoop, _ executor: LaneExecutor, _ pollTime: Duration,
    _ build: @escaping @Sendable (any Channel, MessageLane) throws -> Void
  ) {
    let channel: SocketChannel
    do {
      let connection = try UnixConnection(adopting: Descriptor(adopting: descriptor))
      // Where a call's own flag for that is not heeded.
      try connection.setMode(.nonblocking)
      channel = SocketChannel(connection, on: loop)
    } catch {
      return didNotBegin("\(error)")
    }
    // At once: nobody else can have the turn.
    loop.execute {
      do {
        try build(channel, self)
        channel.begin()
      } catch {
        channel.close0(error: error, mode: .all, promise: nil)
        channel.closeFuture.whenComplete { _ in self.didNotBegin("\(error)") }
      }
    }
    LaneThread.start(channel, executor, pollTime: pollTime)
  }

  private static func isStreamSocket(_ descriptor: Int32) -> Bool {
    #if canImport(Glibc)
      let stream = Int32(SOCK_STREAM.rawValue)
    #else
      let stream = SOCK_STREAM
    #endif
    var type: Int32 = 0
    var length = socklen_t(MemoryLayout<Int32>.size)
    return getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == stream
  }

  private static func close(descriptor: Int32) {
    #if canImport(Glibc)
      _ = Glibc.close(descriptor)
    #elseif canImport(Musl)
      _ = Musl.close(descriptor)
    #elseif canImport(Darwin)
      _ = Darwin.close(descriptor)
    #endif
  }

  // MARK: The peer

  /// The peer's static key. Set before `opened`; the acceptor has proof of it with the first message.
  package var peerPublicKey: Data? { peer.withLock { $0 } }

  // MARK: Sending

  /// Queues the messages, as one batch, after all that this thread sent before. What is sent before the lane opens is kept until then; what
  /// is sent after its end is lost, like what was under way at the end.
  ///
  /// When more would wait to be written than the limits allow, the lane ends with `tooSlow`.
  ///
  /// Throws `frameTooLong` for a message that is longer than the peer takes, `malformed` for one that cannot be encoded: then none of
  /// them is sent.
  package func send(_ messages: [Message]) throws(ProtocolFault) {
    let byteCountMax = outbox.withLock { $0.frameByteCountMax }
    var frames: [UInt8] = []
    for message in messages { try message.appendFrame(to: &frames, byteCountMax: byteCountMax) }
    var batch = ByteBuffer(bytes: frames)
    see(to: outbox.withLock { $0.append(&batch) })
  }

  /// As ``send(_:)``, for messages that nobody waits for: they go with what is sent next, or after `unhurriedTime`. So two messages that follow one
  /// another are one write, and wake the other side once.
  package func sendUnhurried(_ messages: [Message]) throws(ProtocolFault) {
    let byteCountMax = outbox.withLock { $0.frameByteCountMax }
    var frames: [UInt8] = []
    for message in messages { try message.appendFrame(to: &frames, byteCountMax: byteCountMax) }
    var batch = ByteBuffer(bytes: frames)
    see(to: outbox.withLock { $0.appendUnhurried(&batch) })
  }

  private func see(to task: LaneOutbox.Task) {
    switch task {
    case .none: break
    case .drain: onEventLoop { $0.drain() }
    case .drainSoon: onEventLoop { $0.drainSoon() }
    case .endAsTooSlow: onEventLoop { $0.end(LaneEnd(.here, .tooSlow, "too much waits to be written")) }
    }
  }

  /// Asks to be told `isFull` with false as soon as no more than half of the limit waits to be written, also when there was never more: for
  /// an owner that counts what it sends.
  package func awaitRoom() { onEventLoop { $0.awaitRoom() } }

  /// How many bytes wait to be written.
  package var queuedByteCount: Int { outbox.withLock { $0.queuedByteCount } }

  /// The longest frame that the peer takes: what it says itself. Until then it is the limit for what is received.
  package func limitSentFrames(to byteCount: Int) {
    outbox.withLock { $0.frameByteCountMax = byteCount }
  }

  // MARK: The end

  /// Says goodbye behind what waits to be written, and closes the connection when the peer has closed it, or after `lingerTime`: what it did
  /// not read by then is lost. Before the handshake is done it closes at once. Nothing is received any more, and `closed` follows.
  /// `detail` is a limit's name or a path, as the page says for the fault.
  package func close(_ fault: ProtocolFault, detail: String = "") {
    onEventLoop { $0.end(LaneEnd(.here, fault, detail), goodbyeDetail: detail) }
  }

  /// Does `work` at once on the event loop, and soon elsewhere, in the order of the calls. Not at all once the lane has ended.
  private func onEventLoop(_ work: @escaping @Sendable (LaneConnection<Message>) -> Void) {
    if eventLoop.inEventLoop {
      if let connection = connection.value { work(connection) }
    } else {
      eventLoop.execute { if let connection = self.connection.value { work(connection) } }
    }
  }

  /// On the event loop.
  func didClose(_ end: LaneEnd) {
    outbox.withLock { $0.close() }
    connection.value = nil
    events.closed(self, end)
    let waiting = closers.withLock { closers in
      defer { closers = nil }
      return closers ?? []
    }
    for closer in waiting { closer() }
  }

  /// Calls `body` after `closed` was told; at once when that was before.
  package func whenClosed(_ body: @escaping @Sendable () -> Void) {
    let isClosed = closers.withLock { closers in
      closers?.append(body)
      return closers == nil
    }
    if isClosed { body() }
  }

  private func didNotBegin(_ detail: String) {
    eventLoop.execute {
      // A connection that began has told its end itself.
      guard self.outbox.withLock({ !$0.isClosed }) else { return }
      self.didClose(LaneEnd(.here, .connectionLost, detail))
    }
  }
}
