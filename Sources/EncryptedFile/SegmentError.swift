public import SodiumPrimitives

/// A reason why a segment cannot be read or was not sealed, with its grain.
public enum SegmentError: Error, Equatable, Sendable {
  /// The stored bytes are not those that were sealed for this place.
  case notAuthentic(grain: UInt64)
  /// The stored bytes end inside the segment of this grain.
  case missingBytes(grain: UInt64)
  /// The catalog describes an impossible run: empty, too long, overlapping, or past the file's
  /// size.
  case damagedExtent(grain: UInt64)
  /// A segment that had just been sealed did not open to its plaintext: memory or cipher is faulty.
  case sealedWrongly(grain: UInt64)
  /// A fault of the environment, which says nothing about the segment: no guarded memory, a failing
  /// libcrypto.
  case crypto(CryptoError)
}

extension SegmentError: CustomStringConvertible {
  public var description: String {
    // A damaged catalog may name a grain whose first byte no number can hold.
    func place(_ grain: UInt64) -> String {
      let (byte, overflows) = grain.multipliedReportingOverflow(
        by: UInt64(SegmentLayout.plaintextByteCountMax))
      return overflows ? "grain \(grain)" : "byte \(byte)"
    }
    return switch self {
    case .notAuthentic(let grain):
      "the stored data at \(place(grain)) is not authentic: it was changed, moved or put back; what lies before can be read"
    case .missingBytes(let grain):
      "the stored data at \(place(grain)) is missing; what lies before can be read"
    case .damagedExtent(let grain): "the list of stored runs is impossible at \(place(grain))"
    case .sealedWrongly(let grain):
      "data sealed for \(place(grain)) did not open again: the memory or processor of this machine is faulty"
    case .crypto(let error): error.description
    }
  }
}
