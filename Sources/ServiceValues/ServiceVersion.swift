/// The version of a service or an entitlement: one to four numbers with dots between them, as `1.0.0.0`.
///
/// It is a name, not a quantity: `1.0.0` and `1.0.0.0` are two versions, and none is later than another.
public struct ServiceVersion: Hashable, Sendable, CustomStringConvertible {
  /// The version as it was given.
  public let text: String

  /// The most segments that a version has.
  public static let segmentCountMax = 4
  /// The most digits that a segment has.
  public static let segmentDigitCountMax = 9

  /// Checks a text. Throws `invalidParams` with the rule that it breaks: one to four segments of 1 to 9 digits, without leading zeros.
  public init(_ text: String) throws(ServicesError) {
    if let fault = Self.fault(in: text) {
      throw ServicesError(.invalidParams, path: "version", detail: fault)
    }
    self.text = text
  }

  static func fault(in text: String) -> String? {
    if text.isEmpty { return "it is empty" }
    let digits = UInt8(ascii: "0")...UInt8(ascii: "9")
    if !text.utf8.allSatisfy({ $0 == UInt8(ascii: ".") || digits.contains($0) }) {
      return "it has something other than digits and dots"
    }
    let segments = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
    if segments.count > segmentCountMax {
      return "it has \(segments.count) segments, and \(segmentCountMax) are allowed"
    }
    for segment in segments {
      if segment.isEmpty { return "a segment between dots is empty" }
      if segment.count > 1 && segment.first == UInt8(ascii: "0") { return "a segment has a leading zero" }
      if segment.count > segmentDigitCountMax {
        return "a segment has \(segment.count) digits, and \(segmentDigitCountMax) are allowed"
      }
    }
    return nil
  }

  /// The same as ``text``.
  public var description: String { text }
}
