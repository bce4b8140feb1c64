import AppKinetics

/// The version of an entitlement: one to four numbers, the most significant one first.
///
/// Versions with different counts of numbers are different: 1.2 is not 1.2.0, and is less.
public final class GDVersion: NSObject, Sendable {
  /// The numbers with dots between them.
  public let stringValue: String
  private let parts: [UInt]

  /// Reads numbers with dots between them. Nil unless there are one to four, each of 1 to 9 decimal
  /// digits without a leading zero.
  public init?(string versionString: String) {
    guard let version = try? ServiceVersion(versionString) else { return nil }
    stringValue = version.text
    parts = version.text.split(separator: ".").compactMap { UInt($0) }
  }

  /// Takes integers of Swift, or `NSNumber`s with whole values. Nil unless there are one to four,
  /// each from 0 to 999,999,999.
  public convenience init?(array: [Any]) {
    guard array.count <= ServiceVersion.segmentCountMax else { return nil }
    var texts: [String] = []
    for element in array {
      guard let number = Self.number(element) else { return nil }
      texts.append("\(number)")
    }
    self.init(string: texts.joined(separator: "."))
  }

  /// The largest part of a version has nine digits, which `Double` holds exactly.
  private static func number(_ element: Any) -> UInt? {
    // Objects first: the cast to an integer of a number with a fraction fails or rounds.
    if type(of: element) is AnyClass {
      return (element as? NSNumber).flatMap { UInt(exactly: $0.doubleValue) }
    }
    return (element as? any BinaryInteger).flatMap { UInt(exactly: $0) }
  }

  /// The count of numbers, from 1 to 4.
  public func numberOfVersionParts() -> UInt { UInt(parts.count) }

  /// The number at a position, which counts from 0; 0 past the last one.
  public func versionPart(at position: UInt) -> UInt {
    position < parts.count ? parts[Int(position)] : 0
  }

  // MARK: Comparing

  /// Compares number by number. Of two versions of which one begins with the other, the shorter one
  /// is less.
  public func compare(_ anotherVersion: GDVersion) -> ComparisonResult {
    if parts == anotherVersion.parts { return .orderedSame }
    return parts.lexicographicallyPrecedes(anotherVersion.parts) ? .orderedAscending : .orderedDescending
  }

  /// Whether both have the same numbers. False for nil.
  public func isEqual(to anotherVersion: GDVersion?) -> Bool {
    anotherVersion.map { compare($0) == .orderedSame } ?? false
  }

  /// Whether this version is later. False for nil.
  public func isGreaterThan(_ anotherVersion: GDVersion?) -> Bool {
    anotherVersion.map { compare($0) == .orderedDescending } ?? false
  }

  /// Whether this version is earlier. False for nil.
  public func isLessThan(_ anotherVersion: GDVersion?) -> Bool {
    anotherVersion.map { compare($0) == .orderedAscending } ?? false
  }

  /// Whether the object is a version with the same numbers.
  public override func isEqual(_ object: Any?) -> Bool { isEqual(to: object as? GDVersion) }

  /// Equal versions have equal values.
  public override var hash: Int { parts.hashValue }

  /// The same as ``stringValue``.
  public override var description: String { stringValue }
}
