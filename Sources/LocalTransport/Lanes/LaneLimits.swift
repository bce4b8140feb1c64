import ServiceValues

/// What a lane takes of a peer (CHANNEL-PROTOCOL.md, "Limits").
package struct LaneLimits: Sendable {
  /// From the beginning to the end of the peer's first frame: the handshake and what it says of itself.
  package var beginningTime: Duration = .seconds(10)
  /// From a frame's first byte to its last.
  package var frameTime: Duration = .seconds(10)
  /// Of a frame that is received, without its length.
  package var frameByteCountMax = (1 << 20) + (64 << 10)
  /// Elements of all lists in a frame that is received: counted before it is read, as they take more in memory than in the frame.
  package var elementCountMax = ServiceValue.Limits.default.elementCountMax + 512
  /// Of frames that wait to be written: above it, the owner is asked to wait.
  package var queuedByteCountMax = 4 << 20
  /// How many times `queuedByteCountMax` may wait to be written: a message that would make it more ends the lane with `tooSlow`.
  package var queuedFactorMax = 4
  /// How long a peer may read nothing of what waits to be written.
  package var idleTime: Duration = .seconds(30)

  /// How long a side that said goodbye goes on reading, and waits for the peer to close.
  package var lingerTime: Duration = .seconds(1)

  /// How long messages that nobody waits for may wait for others to go with.
  package var unhurriedTime: Duration = .milliseconds(1)

  package init() {}
}
