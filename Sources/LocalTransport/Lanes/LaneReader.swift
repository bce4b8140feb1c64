import Foundation
import ServiceWire
import UnixSockets

/// What reads a lane: it waits for what comes and for room, tells events, keeps the time, and closes the socket. On a thread of its own,
/// which is the only one that touches it.
struct LaneReader<Message: LaneMessage>: ~Copyable {
  private let lane: MessageLane<Message>
  private let socket: LaneOutput.Socket
  private var input: SealedInput
  private var decoder: FrameDecoder
  private let buffer: UnsafeMutableRawBufferPointer
  /// In the buffer: less than a record.
  private var byteCount = 0
  private var received: [Message] = []
  /// Messages are being read.
  private var hasTurn = false

  /// Until the first frame has come.
  private var beginningEnd: ContinuousClock.Instant?
  /// While a frame is not whole.
  private var frameEnd: ContinuousClock.Instant?
  /// What the peer said before its end is read to that many times after a write has failed: a socket's buffer holds no more.
  private var readsLeftWhenBroken = 16

  init(_ lane: MessageLane<Message>, _ socket: LaneOutput.Socket, _ handshake: consuming NoiseHandshake) {
    self.lane = lane
    self.socket = socket
    input = SealedInput(handshake)
    decoder = FrameDecoder(byteCountMax: lane.limits.frameByteCountMax)
    buffer = .allocate(byteCount: SealedInput.byteCountMax, alignment: 1)
    beginningEnd = .now + lane.limits.beginningTime
  }

  deinit { buffer.deallocate() }

  /// Until the lane's end, which it returns.
  mutating func run() -> LaneEnd {
    attempt { reader throws(SealedInput.Failure) in try reader.goOn() }
    var hasRoom = false
    while true {
      let look = lane.output.withLock { $0.look(hasRoom: hasRoom) }
      hasRoom = false
      switch look.phase {
      case .ending(let end, let time):
        guard linger(until: time, look.isRoomWanted) else { return end }
      case .open:
        if let isFull = look.isFull {
          tell { $0.events.isFull($0, isFull) }
          continue
        }
        if let broken = look.broken {
          readRest(broken)
        } else {
          hasRoom = awaitInput(look)
        }
      }
    }
  }

  // MARK: Waiting

  /// Returns whether there is room for what waits to be written.
  private mutating func awaitInput(_ look: LaneOutput.Look) -> Bool {
    let deadline = [beginningEnd, frameEnd, look.deadline].lazy.compactMap { $0 }.min()
    do throws(SocketError) {
      let ready = try socket.connection.awaitReadiness(
        forRoom: look.isRoomWanted, or: lane.wakeup, until: deadline)
      if ready.contains(.woken) { lane.wakeup.clear() }
      if ready.contains(.reading) { _ = try read() }
      try endIfTooLate()
      return look.isRoomWanted && ready.contains(.writing)
    } catch {
      lane.end(LaneEnd(.neither, .connectionLost, "\(error)"))
      return false
    }
  }

  private mutating func endIfTooLate() throws(SocketError) {
    // This side may have been held up itself: only who has not sent the rest by now was too slow. As much is read as a frame may have.
    var readsLeft = lane.limits.frameByteCountMax / buffer.count + 2
    while readsLeft > 0, isTooLate(.now), try read() { readsLeft -= 1 }
    let now = ContinuousClock.now
    if let beginningEnd, beginningEnd <= now {
      lane.end(LaneEnd(.here, .timedOut, "no handshake and no first frame in time"), saysGoodbye: true)
    } else if let frameEnd, frameEnd <= now {
      lane.end(LaneEnd(.here, .timedOut, "a frame is not complete in time"), saysGoodbye: true)
    }
  }

  private func isTooLate(_ now: ContinuousClock.Instant) -> Bool {
    [beginningEnd, frameEnd].contains { $0.map { $0 <= now } ?? false }
  }

  /// A Unix socket that is closed with bytes unread resets the connection, and its peer may then lose what it did not read yet. So whoever
  /// said goodbye reads on until the peer has closed, or for a time.
  /// False when that is over.
  private mutating func linger(until time: ContinuousClock.Instant, _ isRoomWanted: Bool) -> Bool {
    guard ContinuousClock.now < time else { return false }
    do throws(SocketError) {
      let ready = try socket.connection.awaitReadiness(forRoom: isRoomWanted, or: lane.wakeup, until: time)
      if ready.contains(.woken) { lane.wakeup.clear() }
      if isRoomWanted, ready.contains(.writing) { _ = lane.output.withLock { $0.look(hasRoom: true) } }
      guard ready.contains(.reading) else { return true }
      return try socket.connection.readAvailable(into: buffer) != 0
    } catch {
      return false
    }
  }

  // MARK: Receiving

  /// False when nothing was there.
  private mutating func read() throws(SocketError) -> Bool {
    let space = UnsafeMutableRawBufferPointer(rebasing: buffer[byteCount...])
    guard let count = try socket.connection.readAvailable(into: space) else { return false }
    guard count > 0 else {
      lane.end(LaneEnd(.neither, .connectionLost, "the peer closed the connection"))
      return false
    }
    byteCount += count
    attempt { reader throws(SealedInput.Failure) in try reader.takeBytes() }
    return true
  }

  private mutating func readRest(_ end: LaneEnd) {
    readsLeftWhenBroken -= 1
    if readsLeftWhenBroken > 0, (try? read()) == true { return }
    lane.end(end)
  }

  /// Ends the lane without a word when the sealed socket fails.
  private mutating func attempt(_ body: (inout Self) throws(SealedInput.Failure) -> Void) {
    do throws(SealedInput.Failure) {
      try body(&self)
    } catch {
      lane.end(LaneEnd(.here, error.fault, error.detail))
    }
  }

  /// The handshake's next step.
  private mutating func goOn() throws(SealedInput.Failure) {
    var step = try input.goOn()
    if !step.message.isEmpty { lane.write(message: step.message) }
    guard let sending = step.sending.take() else { return }
    lane.open(sending, peerKey: step.peerKey)
    guard lane.output.withLock({ $0.isOpen }) else { return }
    tell { $0.events.opened($0) }
  }

  private mutating func takeBytes() throws(SealedInput.Failure) {
    var begin = 0
    defer {
      byteCount -= begin
      if begin > 0, byteCount > 0 {
        buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: buffer[begin..<begin + byteCount]))
      }
      // Also what came before a record that does not open.
      deliverFrames()
    }
    while true {
      let bytes = UnsafeRawBufferPointer(rebasing: buffer[begin..<byteCount])
      switch try input.take(bytes, into: &decoder) {
      case .nothing: return
      case .handshake(let count):
        begin += count
        try goOn()
      case .record(let count): begin += count
      }
    }
  }

  private mutating func deliverFrames() {
    do throws(ProtocolFault) {
      try takeFrames()
      deliver()
      // From now on: while messages are told nothing is read.
      if frameEnd == nil, decoder.isWithinFrame { frameEnd = .now + lane.limits.frameTime }
    } catch {
      deliver()
      lane.end(LaneEnd(.here, error), saysGoodbye: true)
    }
  }

  private mutating func takeFrames() throws(ProtocolFault) {
    while let frame = try decoder.next() {
      (beginningEnd, frameEnd) = (nil, nil)
      if !hasTurn {
        hasTurn = true
        lane.events.turn.begin()
      }
      guard let message = try Message.read(frame, elementCountMax: lane.limits.elementCountMax) else {
        continue
      }
      if let goodbye = message.saidGoodbye {
        deliver()
        return lane.end(LaneEnd(goodbye))
      }
      received.append(message)
      if received.count == Self.messageCountMax { deliver() }
    }
  }

  /// Messages of one event: of small ones a read may have thousands, which others would wait for.
  private static var messageCountMax: Int { 256 }

  private mutating func deliver() {
    guard hasTurn else { return }
    hasTurn = false
    let messages = received
    received = []
    // What comes after the lane's end is nobody's.
    guard !messages.isEmpty, lane.output.withLock({ $0.isOpen }) else { return lane.events.turn.pass() }
    tell { $0.events.received($0, messages) }
  }

  private func tell(_ event: (MessageLane<Message>) -> Void) {
    lane.output.withLock { $0.beginTelling() }
    event(lane)
    lane.output.withLock { $0.endTelling() }
  }
}

extension LaneEnd {
  /// Unicode scalars of a detail that is kept for a log.
  private static let detailCountMax = 256

  init(_ goodbye: WireGoodbye) {
    guard let fault = ProtocolFault(rawValue: goodbye.error) else {
      self.init(.peer, .malformed, "a goodbye with the unknown number \(goodbye.error)")
      return
    }
    self.init(.peer, fault, String(goodbye.detail.unicodeScalars.prefix(Self.detailCountMax)))
  }
}
