import NIOCore

/// What waits to be written to a lane, for all threads. Several batches that come before the event loop gets to them are written at
/// once.
struct LaneOutbox {
  private var frames = ByteBuffer()
  private var isDrainScheduled = false
  private(set) var isClosed = false
  /// Of frames that were sent and did not go to the system yet.
  private(set) var queuedByteCount = 0
  /// The longest frame that the peer takes.
  var frameByteCountMax: Int

  init(frameByteCountMax: Int) { self.frameByteCountMax = frameByteCountMax }

  /// Whether the caller has to see to it that the event loop takes the frames.
  mutating func append(_ batch: inout ByteBuffer) -> Bool {
    guard !isClosed, batch.readableBytes > 0 else { return false }
    queuedByteCount += batch.readableBytes
    if frames.readableBytes == 0 { frames = batch } else { frames.writeBuffer(&batch) }
    defer { isDrainScheduled = true }
    return !isDrainScheduled
  }

  /// All frames, for the event loop to write.
  mutating func take() -> ByteBuffer? {
    isDrainScheduled = false
    guard frames.readableBytes > 0 else { return nil }
    defer { frames = ByteBuffer() }
    return frames
  }

  mutating func wrote(_ byteCount: Int) { queuedByteCount -= byteCount }

  /// From now on nothing is taken.
  mutating func close() {
    isClosed = true
    frames = ByteBuffer()
    queuedByteCount = 0
  }
}
