package import Foundation
import Locks
package import ServiceWire
import UnixSockets

/// A lane between two apps.
package typealias ControlLane = MessageLane<WireChannelMessage>
/// A lane between an app, or a tool, and the broker.
package typealias BrokerLane = MessageLane<WireBrokerMessage>

/// A sealed socket that carries frames: they go both ways once each side has proved its key. It does not know what messages mean, but for
/// `Goodbye`.
///
/// A thread of its own reads it and tells its events (`LaneReader`); whoever sends writes himself what the socket takes (`LaneOutput`). It
/// lives until it is closed, whether somebody holds it or not.
package final class MessageLane<Message: LaneMessage>: Sendable {
  let limits: LaneLimits
  let events: LaneEvents<Message>
  let output: Guarded<LaneOutput>
  let wakeup: Wakeup
  private let peer = Guarded<Data?>(nil)
  /// Nil once the lane is closed.
  private let closers = Guarded<[@Sendable () -> Void]?>([])

  private init(
    _ socket: LaneOutput.Socket, _ limits: LaneLimits, _ events: LaneEvents<Message>
  ) throws(SocketError) {
    self.limits = limits
    self.events = events
    output = Guarded(LaneOutput(socket, limits))
    wakeup = try Wakeup()
  }

  /// Begins the handshake on a connected Unix stream socket, which belongs to the lane from now on, also when this throws.
  ///
  /// Throws `malformed` for a peer's key that is none, and `SocketError`. Everything else is told by `closed`.
  @discardableResult
  package static func open(
    descriptor: Int32, sealing: LaneSealing, limits: LaneLimits = LaneLimits(), events: LaneEvents<Message>
  ) throws -> MessageLane {
    let socket = LaneOutput.Socket(try UnixConnection(adopting: Descriptor(adopting: descriptor)))
    try sealing.check()
    // Where a call's own flag for that is not heeded.
    try socket.connection.setMode(.nonblocking)
    let lane = try MessageLane(socket, limits, events)
    try DetachedThread.start("lane") { lane.didClose(lane.read(sealing)) }
    return lane
  }

  private func read(_ sealing: LaneSealing) -> LaneEnd {
    guard let socket = output.withLock({ $0.socket }) else { return LaneEnd(.here, .connectionLost) }
    do throws(ProtocolFault) {
      var reader = LaneReader(self, socket, try sealing.handshake())
      return reader.run()
    } catch {
      return LaneEnd(.here, error)
    }
  }

  // MARK: The peer

  /// The peer's static key. Set before `opened`; the acceptor has proof of it with the first message.
  package var peerPublicKey: Data? { peer.withLock { $0 } }

  // MARK: Sending

  /// Sends the messages, as one batch, after all that this thread sent before: what the socket does not take at once waits. What is sent before the lane opens is
  /// kept until then; what is sent after its end is lost, like what was under way at the end. Within an event it is written when the event
  /// was told. Never blocks.
  ///
  /// When more would wait to be written than the limits allow, the lane ends with `tooSlow`.
  ///
  /// Throws `frameTooLong` for a message that is longer than the peer takes, `malformed` for one that cannot be encoded: then none of
  /// them is sent.
  package func send(_ messages: [Message]) throws(ProtocolFault) {
    let frames = try frames(messages)
    wakeIf(output.withLock { $0.send(frames) })
  }

  /// As ``send(_:)``, for messages that nobody waits for: within an event of the lane they go with what is sent next, or after
  /// `unhurriedTime`. So two messages that follow one another are one write, and wake the other side once.
  package func sendUnhurried(_ messages: [Message]) throws(ProtocolFault) {
    let frames = try frames(messages)
    wakeIf(output.withLock { $0.sendUnhurried(frames) })
  }

  /// Within an event: writes what was sent in it, and from now on at once, for an owner whose thread goes on with work of others.
  package func flush() { output.withLock { $0.endTellingEarly() } }

  private func frames(_ messages: [Message]) throws(ProtocolFault) -> [UInt8] {
    let byteCountMax = output.withLock { $0.frameByteCountMax }
    var frames: [UInt8] = []
    for message in messages { try message.appendFrame(to: &frames, byteCountMax: byteCountMax) }
    return frames
  }

  private func wakeIf(_ isReaderWanted: LaneOutput.IsReaderWanted) {
    if isReaderWanted { wakeup.wake() }
  }

  /// Asks to be told `isFull` with false as soon as no more than half of the limit waits to be written, also when there was never more: for
  /// an owner that counts what it sends.
  package func awaitRoom() { wakeIf(output.withLock { $0.awaitRoom() }) }

  /// How many bytes wait to be written.
  package var queuedByteCount: Int { output.withLock { $0.queuedByteCount } }

  /// The longest frame that the peer takes: what it says itself. Until then it is the limit for what is received.
  package func limitSentFrames(to byteCount: Int) { output.withLock { $0.frameByteCountMax = byteCount } }

  // MARK: The reader's

  func write(message: [UInt8]) { wakeIf(output.withLock { $0.write(message: message) }) }

  func open(_ sending: consuming RecordCipher, peerKey: Data) {
    peer.withLock { $0 = peerKey }
    var sending = Optional(sending)
    wakeIf(output.withLock { $0.open(sending.take()!) })
  }

  // MARK: The end

  /// Says goodbye behind what waits to be written, and closes the connection when the peer has closed it, or after `lingerTime`: what it did
  /// not read by then is lost. Before the handshake is done it closes at once. Nothing is received any more, and `closed` follows.
  /// `detail` is a limit's name or a path, as the page says for the fault.
  package func close(_ fault: ProtocolFault, detail: String = "") {
    end(LaneEnd(.here, fault, detail), saysGoodbye: true, goodbyeDetail: detail)
  }

  /// Closes the connection without a goodbye, as the end of the process would.
  package func cut() { end(LaneEnd(.here, .noError, "")) }

  /// Only the first end counts. Its own detail is for this side's log: nothing but what the owner gave crosses to the peer.
  func end(_ end: LaneEnd, saysGoodbye: Bool = false, goodbyeDetail: String = "") {
    let byteCountMax = output.withLock { $0.frameByteCountMax }
    let goodbye = Message.saying(
      .with {
        $0.error = end.fault.rawValue
        $0.detail = goodbyeDetail
      })
    var frame: [UInt8]?
    if saysGoodbye, let data = try? goodbye.frame(byteCountMax: byteCountMax) { frame = Array(data) }
    wakeIf(output.withLock { $0.end(end, goodbye: frame) })
  }

  /// Closes the socket, which the reader has let go of.
  private func didClose(_ end: LaneEnd) {
    output.withLock { $0.close() }
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
}
