import Foundation
import NIOCore
import ServiceWire

/// The end of a lane's pipeline: what happens to it on its event loop, or in its turns.
///
///     socket – LaneSocket – SealedSocket – LaneConnection – events
final class LaneConnection<Message: LaneMessage>: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private enum State {
    case handshaking
    /// The handshake is complete, and no frame came yet.
    case awaitingFirstFrame
    case open
    /// Nothing is read any more; told when the socket is closed.
    case ended(LaneEnd)
  }

  let lane: MessageLane<Message>
  private var state = State.handshaking
  var context: ChannelHandlerContext?
  private let socket: LaneSocket

  private var decoder: FrameDecoder
  private var received: [Message] = []
  /// An event is being told: what its receiver sends or ends waits for its return, so events are never within one another.
  var isTelling = false
  private var endAfterTelling: (end: LaneEnd, goodbyeDetail: String)?
  private var frameBegin: NIODeadline?
  private var frameTimer: Scheduled<Void>?
  private var beginningTimer: Scheduled<Void>?

  /// Sealed and handed to the socket, which did not take it yet. More follows when it is taken.
  var unwrittenByteCount = 0
  var isWriting = false
  var isFull = false
  var isAskedForRoom = false
  /// When the peer was last seen to read, and how much waited in the socket's buffer then.
  var progress = (time: NIODeadline.uptimeNanoseconds(0), bufferedByteCount: 0)
  var progressTimer: Scheduled<Void>?
  var soonTimer: Scheduled<Void>?
  /// How often in `idleTime` it is looked whether the peer reads.
  static var looksInIdleTime: Int { 4 }

  init(_ lane: MessageLane<Message>) {
    self.lane = lane
    socket = LaneSocket(lingerTime: lane.limits.lingerTime)
    decoder = FrameDecoder(byteCountMax: lane.limits.frameByteCountMax)
  }

  func build(
    _ pipeline: ChannelPipeline.SynchronousOperations, _ handshake: consuming NoiseHandshake
  ) throws {
    try pipeline.addHandlers(socket, SealedSocket(handshake), self)
  }

  func handlerAdded(context: ChannelHandlerContext) {
    self.context = context
    beginningTimer = schedule(lane.limits.beginningTime) {
      $0.end(LaneEnd(.here, .timedOut, "no handshake and no first frame in time"))
    }
  }

  func handlerRemoved(context: ChannelHandlerContext) {
    // Only a channel that did not begin has not been inactive before.
    finish(LaneEnd(.neither, .connectionLost, "the connection did not begin"))
  }

  // MARK: Events of the pipeline

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if let opened = event as? SealedSocket.DidOpen, case .handshaking = state {
      lane.peer.withLock { $0 = opened.peerKey }
      state = .awaitingFirstFrame
      tell { $0.events.opened($0) }
    }
    context.fireUserInboundEventTriggered(event)
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard !hasEnded else { return }
    let bytes = unwrapInboundIn(data)
    bytes.withUnsafeReadableBytes { decoder.append($0) }
    do throws(ProtocolFault) {
      try takeFrames()
    } catch {
      deliver()
      end(LaneEnd(.here, error))
    }
  }

  func channelReadComplete(context: ChannelHandlerContext) {
    deliver()
    context.fireChannelReadComplete()
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    deliver()
    if let failure = error as? SealedSocket.Failure {
      end(LaneEnd(.here, failure.fault, failure.detail), silently: true)
    } else {
      end(LaneEnd(.neither, .connectionLost, "\(error)"), silently: true)
    }
  }

  func channelInactive(context: ChannelHandlerContext) {
    deliver()
    finish(LaneEnd(.neither, .connectionLost, "the peer closed the connection"))
    context.fireChannelInactive()
  }

  // MARK: Receiving

  var hasEnded: Bool { if case .ended = state { true } else { false } }

  private func takeFrames() throws(ProtocolFault) {
    var tookFrame = false
    while !hasEnded, let frame = try decoder.next() {
      tookFrame = true
      if case .awaitingFirstFrame = state {
        state = .open
        beginningTimer?.cancel()
      }
      guard let message = try Message.read(frame) else { continue }
      if let goodbye = message.saidGoodbye {
        deliver()
        end(Self.end(goodbye))
        return
      }
      received.append(message)
    }
    if !decoder.isWithinFrame {
      frameBegin = nil
    } else {
      if tookFrame || frameBegin == nil { frameBegin = .now() }
      watchFrame()
    }
  }

  private static func end(_ goodbye: WireGoodbye) -> LaneEnd {
    guard let fault = ProtocolFault(rawValue: goodbye.error) else {
      return LaneEnd(.peer, .malformed, "a goodbye with the unknown number \(goodbye.error)")
    }
    return LaneEnd(.peer, fault, String(goodbye.detail.unicodeScalars.prefix(detailCountMax)))
  }

  /// Unicode scalars of a detail that is kept for a log.
  private static var detailCountMax: Int { 256 }

  /// One timer serves many frames: it looks at the frame that is under way when it fires.
  private func watchFrame() {
    guard frameTimer == nil, let frameBegin else { return }
    let end = frameBegin + TimeAmount(lane.limits.frameTime)
    frameTimer = schedule(at: end) { connection in
      connection.frameTimer = nil
      guard let begin = connection.frameBegin else { return }
      if begin + TimeAmount(connection.lane.limits.frameTime) <= .now() {
        connection.end(LaneEnd(.here, .timedOut, "a frame is not complete in time"))
      } else {
        connection.watchFrame()
      }
    }
  }

  private func deliver() {
    guard !received.isEmpty, !isTelling, !hasEnded else { return }
    let messages = received
    received = []
    tell { $0.events.received($0, messages) }
  }

  func tell(_ event: (MessageLane<Message>) -> Void) {
    isTelling = true
    event(lane)
    isTelling = false
    if let (end, goodbyeDetail) = endAfterTelling {
      self.end(end, goodbyeDetail: goodbyeDetail)
    } else {
      drain()
    }
  }

  // MARK: The end

  /// Says goodbye where that is due and possible, and closes the socket: at once, when nothing was said. Only the first end counts. Its
  /// own detail is for this side's log: nothing but what the owner gave crosses to the peer.
  func end(_ end: LaneEnd, goodbyeDetail: String = "", silently: Bool = false) {
    guard !hasEnded else { return }
    guard !isTelling else {
      if endAfterTelling == nil { endAfterTelling = (end, goodbyeDetail) }
      return
    }
    // Who does not read is not waited for.
    if end.fault != .tooSlow || unwrittenByteCount == 0 {
      lane.outbox.withLock { $0.hurry() }
      write(upTo: .max)
    }
    guard !hasEnded, let context else { return }
    let isSealed = if case .handshaking = state { false } else { true }
    let goodbyeIsDue = end.side == .here && isSealed && !silently
    let saysGoodbye = goodbyeIsDue && (end.fault != .tooSlow || unwrittenByteCount == 0)
    if saysGoodbye { sayGoodbye(end.fault, goodbyeDetail, context) }
    state = .ended(end)
    cancelTimers()
    if saysGoodbye { socket.linger() } else { socket.closeAtOnce() }
  }

  private func sayGoodbye(_ fault: ProtocolFault, _ detail: String, _ context: ChannelHandlerContext) {
    let goodbye = Message.saying(
      .with {
        $0.error = fault.rawValue
        $0.detail = detail
      })
    let byteCountMax = lane.outbox.withLock { $0.frameByteCountMax }
    guard let frame = try? goodbye.frame(byteCountMax: byteCountMax) else { return }
    context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: frame)), promise: nil)
  }

  /// The socket is closed. `fallback` is why, when nobody said it before.
  private func finish(_ fallback: LaneEnd) {
    guard context != nil else { return }
    context = nil
    cancelTimers()
    received = []
    let end: LaneEnd
    if case .ended(let reason) = state { end = reason } else { end = fallback }
    state = .ended(end)
    lane.didClose(end)
  }

  // MARK: Timers

  func schedule(
    _ time: Duration, _ work: @escaping (LaneConnection) -> Void
  ) -> Scheduled<Void>? {
    schedule(at: .now() + TimeAmount(time), work)
  }

  private func schedule(
    at deadline: NIODeadline, _ work: @escaping (LaneConnection) -> Void
  ) -> Scheduled<Void>? {
    context?.eventLoop.assumeIsolated().scheduleTask(deadline: deadline) { work(self) }
  }

  private func cancelTimers() {
    for timer in [frameTimer, beginningTimer, progressTimer, soonTimer] { timer?.cancel() }
    (frameTimer, beginningTimer, progressTimer, soonTimer) = (nil, nil, nil, nil)
  }
}
