package import ServiceWire

/// What the owner of a control lane is told, one after another, on the lane's event loop: which they hold up, so they do not block.
/// The first may come before `open` has returned.
package struct ControlLaneEvents: Sendable {
  /// The peer's certificate is right; what it sends comes from now on. That it finds one's own right is not known before it sends something.
  package var opened: @Sendable (ControlLane) -> Void
  /// All messages of one read, in order, without `Goodbye`. Never empty.
  package var received: @Sendable (ControlLane, [WireChannelMessage]) -> Void
  /// More than the limit waits to be written (true), or no more than half of it after that (false).
  package var isFull: @Sendable (ControlLane, Bool) -> Void
  /// The last event, exactly once. The descriptor is closed.
  package var closed: @Sendable (ControlLane, ControlLaneEnd) -> Void

  package init(
    opened: @escaping @Sendable (ControlLane) -> Void,
    received: @escaping @Sendable (ControlLane, [WireChannelMessage]) -> Void,
    isFull: @escaping @Sendable (ControlLane, Bool) -> Void = { _, _ in },
    closed: @escaping @Sendable (ControlLane, ControlLaneEnd) -> Void
  ) {
    self.opened = opened
    self.received = received
    self.isFull = isFull
    self.closed = closed
  }
}

/// Why a control lane ended.
package struct ControlLaneEnd: Hashable, Sendable {
  package enum Side: Sendable {
    /// This side closed the lane, because its owner wanted that or the peer did what it must not.
    case here
    /// The peer said goodbye, or refused the handshake.
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
