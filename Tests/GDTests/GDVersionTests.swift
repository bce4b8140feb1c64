import Testing

@testable import BlackBerryDynamics

struct GDVersionTests {
  @Test(arguments: [
    ("1", [1]), ("1.3", [1, 3]), ("1.2.0.3", [1, 2, 0, 3]), ("0", [0]), ("0.0.0.0", [0, 0, 0, 0]),
    ("999999999.1", [999_999_999, 1]),
  ])
  func readsNumbersWithDots(text: String, parts: [UInt]) throws {
    let version = try #require(GDVersion(string: text))
    #expect(version.numberOfVersionParts() == UInt(parts.count) && version.stringValue == text)
    #expect((0..<version.numberOfVersionParts()).map { version.versionPart(at: $0) } == parts)
    #expect(version.description == text)
  }

  @Test(arguments: [
    "", ".", "1.", ".1", "1..2", "1.2.3.4.5", "01", "1.02", "00", "-1", "1.-2", "+1", "1.2a", "1 .2", " 1",
    "1.2\n", "1,2", "1000000000", "99999999999999999999999", "١.٢", "1e3", "0x1",
  ])
  func refusesOddTexts(text: String) { #expect(GDVersion(string: text) == nil) }

  @Test func takesIntegersAndNumbers() {
    #expect(GDVersion(array: [1, 3])?.stringValue == "1.3")
    let mixed: [Any] = [NSNumber(value: 1), NSNumber(value: 2.0), UInt8(3), 0]
    #expect(GDVersion(array: mixed)?.stringValue == "1.2.3.0")
    #expect(GDVersion(array: [999_999_999])?.stringValue == "999999999")
    let odd: [[Any]] = [
      [], [1, 2, 3, 4, 5], [-1], [NSNumber(value: -1)], [NSNumber(value: 1.5)], [1_000_000_000],
      [NSNumber(value: UInt64.max)], [Int.max], [NSNumber(value: Double.nan)], ["1"], [NSNull()], [1.5],
      [Date()],
    ]
    for array in odd { #expect(GDVersion(array: array) == nil, "\(array)") }
  }

  @Test func aPartPastTheLastIsZero() throws {
    let version = try #require(GDVersion(string: "1.2"))
    #expect(version.versionPart(at: 2) == 0 && version.versionPart(at: .max) == 0)
  }

  /// In ascending order. A version that begins with another one is later.
  @Test func comparesNumberByNumber() throws {
    let texts = ["0", "0.9", "1", "1.0", "1.0.0", "1.2", "1.2.0.3", "1.3", "1.10", "2", "10", "999999999"]
    let versions = try texts.map { try #require(GDVersion(string: $0)) }
    for (i, first) in versions.enumerated() {
      for (j, second) in versions.enumerated() {
        #expect(first.isEqual(to: second) == (i == j) && first.isEqual(second) == (i == j))
        #expect(first.isLessThan(second) == (i < j) && first.isGreaterThan(second) == (i > j))
        let order: ComparisonResult = i == j ? .orderedSame : i < j ? .orderedAscending : .orderedDescending
        #expect(first.compare(second) == order)
        if i == j { #expect(first.hash == second.hash) }
      }
    }
  }

  @Test func nothingIsNeitherEqualNorLessNorGreater() throws {
    let version = try #require(GDVersion(array: [1]))
    #expect(!version.isEqual(to: nil) && !version.isLessThan(nil) && !version.isGreaterThan(nil))
    #expect(!version.isEqual("1") && !version.isEqual(nil as Any?))
    #expect(try version == #require(GDVersion(string: "1")))
  }
}
