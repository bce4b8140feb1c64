/// The sizes of format 1.
public enum SegmentLayout {
  /// Plaintext bytes of a full segment.
  public static let plaintextByteCountMax = 16384
  /// Header, secretstream tag byte and Poly1305 tag.
  public static let overheadByteCount = 41
  public static let storedByteCountMax = plaintextByteCountMax + overheadByteCount
  /// Segments in a unit of work: 1 MiB of plaintext. Chosen by us, not part of the format.
  public static let segmentsPerUnit = 64

  /// How many segments hold `byteCount` bytes.
  public static func segmentCount(_ byteCount: UInt64) -> UInt64 {
    (byteCount + UInt64(plaintextByteCountMax) - 1) / UInt64(plaintextByteCountMax)
  }

  /// Stored bytes of `byteCount` bytes of plaintext, sealed without holes.
  public static func storedByteCount(_ byteCount: Int) -> Int {
    byteCount + Int(segmentCount(UInt64(byteCount))) * overheadByteCount
  }
}
