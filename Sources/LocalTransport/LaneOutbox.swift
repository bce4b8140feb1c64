import NIOCore

/// What waits to be written to a lane, for all threads. Batches that come before the event loop gets to them, or before the socket has
/// taken what was written before, wait here as plain bytes and are written at once: in the socket's queue each would take many
/// times its bytes.
struct LaneOutbox {
  private var frames = ByteBuffer()
  /// Goes with what is sent next.
  private var unhurried = ByteBuffer()
  private var isDrainScheduled = false
  private(set) var isClosed = false
  /// Of frames that were sent and that the system did not take yet.
  private(set) var queuedByteCount = 0
  /// The longest frame that the peer takes.
  var frameByteCountMax: Int

  private let queuedByteCountMax: Int

  /// What the sender of a batch has to see to.
  enum Task {
    case none
    /// The event loop must take the frames soon, when nothing is sent before.
    case drainSoon
    /// The event loop must take the frames.
    case drain
    /// The lane must end: it would be more than may wait, so the batch was dropped.
    case endAsTooSlow
  }

  init(_ limits: LaneLimits) {
    frameByteCountMax = limits.frameByteCountMax
    queuedByteCountMax = limits.queuedByteCountMax * limits.queuedFactorMax
  }

  mutating func append(_ batch: inout ByteBuffer) -> Task {
    guard !isClosed, batch.readableBytes > 0 else { return .none }
    guard queuedByteCount + batch.readableBytes <= queuedByteCountMax else { return .endAsTooSlow }
    queuedByteCount += batch.readableBytes
    hurry()
    if frames.readableBytes == 0 { frames = batch } else { write(batch) }
    defer { isDrainScheduled = true }
    return isDrainScheduled ? .none : .drain
  }

  /// For what nobody waits for.
  mutating func appendUnhurried(_ batch: inout ByteBuffer) -> Task {
    guard !isClosed, batch.readableBytes > 0 else { return .none }
    // What is written next takes it along, and so does the next message.
    guard frames.readableBytes == 0 else { return append(&batch) }
    guard queuedByteCount + batch.readableBytes <= queuedByteCountMax else { return .endAsTooSlow }
    queuedByteCount += batch.readableBytes
    let isFirst = unhurried.readableBytes == 0
    unhurried.writeBuffer(&batch)
    return isFirst ? .drainSoon : .none
  }

  /// What was unhurried goes with the next writing.
  mutating func hurry() {
    guard unhurried.readableBytes > 0 else { return }
    write(unhurried)
    unhurried = ByteBuffer()
  }

  /// The space of what was taken is used again: else it would grow as long as something waits.
  private mutating func write(_ bytes: ByteBuffer) {
    if frames.readerIndex >= frames.readableBytes { frames.discardReadBytes() }
    frames.writeImmutableBuffer(bytes)
  }

  var hasFrames: Bool { frames.readableBytes > 0 }

  /// The first bytes, no more than these, for the event loop to write. Also when it takes none, it has to be told of the next batch.
  mutating func take(upTo byteCountMax: Int) -> ByteBuffer? {
    isDrainScheduled = false
    guard byteCountMax > 0, frames.readableBytes > 0 else { return nil }
    guard frames.readableBytes > byteCountMax else {
      defer { frames = ByteBuffer() }
      return frames
    }
    return frames.readSlice(length: byteCountMax)
  }

  mutating func wrote(_ byteCount: Int) { queuedByteCount -= byteCount }

  /// From now on nothing is taken.
  mutating func close() {
    isClosed = true
    frames = ByteBuffer()
    unhurried = ByteBuffer()
    queuedByteCount = 0
  }
}
