import EncryptedFile
import SodiumPrimitives

/// The segment that a handle opened last, so that consecutive small reads open each segment once.
struct OpenedSegment: Sendable {
  var index: UInt64 = 0
  /// The write number under which `bytes` were sealed. It identifies the bytes: no others were ever
  /// sealed under it.
  var writeNumber: WriteNumber?
  var bytes: [UInt8] = []

  /// Opens a segment with `open`, which fills the memory that it is passed, and keeps it.
  mutating func fill(
    with segment: SegmentRun, _ open: (inout OutputRawSpan) throws -> Void
  ) throws {
    if bytes.isEmpty { bytes = [UInt8](repeating: 0, count: DirtyGrain.byteCount) }
    try bytes.withUnsafeMutableBytes {
      var output = OutputRawSpan(buffer: $0, initializedCount: 0)
      try open(&output)
    }
    index = segment.start
    writeNumber = segment.writeNumber
  }

  mutating func wipeBytes() {
    bytes.withUnsafeMutableBytes { wipe($0) }
    writeNumber = nil
  }
}
