import Foundation
import ServiceValues
import TestSupport
import Testing

/// The error of `body`, which must be ours with this code.
func servicesError(
  _ code: ServicesError.Code, sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Void
) throws -> ServicesError {
  let error = try #require(
    #expect(throws: ServicesError.self, sourceLocation: sourceLocation, performing: body),
    sourceLocation: sourceLocation)
  #expect(error.code == code, sourceLocation: sourceLocation)
  return error
}

/// `path: detail`.
func place(_ error: ServicesError) -> String { "\(error.path ?? "-"): \(error.detail ?? "-")" }

/// The package's folder.
let packageRoot = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
  .deletingLastPathComponent()

extension ServiceValue {
  /// `depth` arrays or objects inside one another: objects, and an empty one innermost.
  static func nested(_ depth: Int) -> ServiceValue {
    (1..<max(depth, 1)).reduce(depth == 0 ? .null : .object([:])) { value, _ in .object(["a": value]) }
  }

  /// A value that follows the rules.
  static func random(_ random: inout SplitMix64, depth: Int = 4) -> ServiceValue {
    switch random.below(depth > 0 ? 8 : 6) {
    case 6:
      let kind = random.below(6)
      return .array((0..<random.below(5)).map { _ in simple(kind, &random) })
    case 7:
      var members: [String: ServiceValue] = [:]
      for _ in 0..<random.below(6) { members[text(&random)] = .random(&random, depth: depth - 1) }
      return .object(members)
    case let kind: return simple(kind, &random)
    }
  }

  private static func simple(_ kind: Int, _ random: inout SplitMix64) -> ServiceValue {
    switch kind {
    case 0: return .string(text(&random))
    case 1:
      let bits = Double(bitPattern: random.next())
      return .number(random.oneIn(3) ? Double(random.below(2000) - 1000) : bits.isFinite ? bits : 0.5)
    case 2: return .integer(random.oneIn(2) ? Int64(random.below(20) - 10) : Int64(bitPattern: random.next()))
    case 3: return .boolean(random.oneIn(2))
    case 4: return .null
    default: return .bytes((0..<random.below(20)).map { _ in UInt8(truncatingIfNeeded: random.next()) })
    }
  }

  /// Texts that are hard on quoting, and the marks of the JSON form.
  private static func text(_ random: inout SplitMix64) -> String {
    let pieces = [
      "a", "to", "$bytes", "$object", "\"", "\\", "\n", "\u{0}", "\u{1F}", "é", "e\u{301}", "漢",
      "\u{1F469}\u{200D}\u{1F52C}", "/", " ",
      "\u{2028}", "\u{FFFF}", "\u{10FFFF}", "\u{7F}", "",
    ]
    return (0..<(1 + random.below(3))).map { _ in pieces[random.below(pieces.count)] }.joined()
  }

  /// The same to the last bit: `==` takes -0.0 for 0.0.
  func isIdentical(to other: ServiceValue) -> Bool {
    switch (self, other) {
    case (.number(let a), .number(let b)): a.bitPattern == b.bitPattern
    case (.array(let a), .array(let b)):
      a.count == b.count && zip(a, b).allSatisfy { $0.isIdentical(to: $1) }
    case (.object(let a), .object(let b)):
      self == other && a.allSatisfy { key, value in b[key].map { value.isIdentical(to: $0) } == true }
    default: self == other
    }
  }
}
