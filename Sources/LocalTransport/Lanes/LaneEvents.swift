package import ServiceWire

/// What the owner of a lane is told, one after another, on the thread that reads it: as long as an event takes, nothing is read, and what
/// waits to be written is written by who sends more. The first may come before `open` has returned.
package struct LaneEvents<Message: LaneMessage>: Sendable {
  /// The handshake is complete; what the peer sends comes from now on. The acceptor has no proof of the peer's key before something is received.
  package var opened: @Sendable (MessageLane<Message>) -> Void
  /// For an owner that takes messages of one lane at a time.
  package var turn: LaneTurn
  /// Messages of one read, in order, without `Goodbye`: 256 at most. Never empty.
  package var received: @Sendable (MessageLane<Message>, [Message]) -> Void
  /// More than the limit waits to be written (true), or no more than half of it after that (false).
  package var isFull: @Sendable (MessageLane<Message>, Bool) -> Void
  /// The last event, exactly once. The descriptor is closed.
  package var closed: @Sendable (MessageLane<Message>, LaneEnd) -> Void

  package init(
    opened: @escaping @Sendable (MessageLane<Message>) -> Void,
    turn: LaneTurn = LaneTurn(),
    received: @escaping @Sendable (MessageLane<Message>, [Message]) -> Void,
    isFull: @escaping @Sendable (MessageLane<Message>, Bool) -> Void = { _, _ in },
    closed: @escaping @Sendable (MessageLane<Message>, LaneEnd) -> Void
  ) {
    self.opened = opened
    self.turn = turn
    self.received = received
    self.isFull = isFull
    self.closed = closed
  }
}

/// What a lane asks its owner before it reads messages of what came, so that nothing is in memory until then but its bytes.
package struct LaneTurn: Sendable {
  /// Waits until the owner takes messages. `received` follows, or `pass`.
  package var begin: @Sendable () -> Void
  /// There was no message after all.
  package var pass: @Sendable () -> Void

  package init(begin: @escaping @Sendable () -> Void = {}, pass: @escaping @Sendable () -> Void = {}) {
    self.begin = begin
    self.pass = pass
  }
}

/// Why a lane ended.
package struct LaneEnd: Hashable, Sendable {
  package enum Side: Sendable {
    /// This side closed the lane, because its owner wanted that or the peer did what it must not.
    case here
    /// The peer said goodbye.
    case peer
    /// Nobody said why.
    case neither
  }

  package let side: Side
  package let fault: ProtocolFault
  /// For a log. With `here` and `neither` it has nothing that the peer sent; with `peer` it is the detail of its `Goodbye`.
  package let detail: String

  package init(_ side: Side, _ fault: ProtocolFault, _ detail: String = "") {
    self.side = side
    self.fault = fault
    self.detail = detail
  }
}
