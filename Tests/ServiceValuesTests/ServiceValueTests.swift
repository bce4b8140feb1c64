import ServiceValues
import Testing

struct ServiceValueTests {
  @Test func keepsKindsApart() {
    let values: [ServiceValue] = [
      .integer(1), .number(1), .boolean(true), .string("1"), .bytes([1]), .array([1]), .object(["1": 1]),
      .null,
      .string("true"), .integer(0), .number(0), .boolean(false), .array([]), .object([:]), .string(""),
      .bytes([]), .array([1.0]), .array([true]), .object(["1": 1.0]),
    ]
    for (i, a) in values.enumerated() {
      for (j, b) in values.enumerated() { #expect((a == b) == (i == j), "\(i) and \(j)") }
    }
    #expect(Set(values).count == values.count)
  }

  @Test func comparesTextsAndKeysByTheirBytes() {
    let composed = "\u{E9}"
    let decomposed = "e\u{301}"
    #expect(composed == decomposed)
    #expect(ServiceValue.string(composed) != .string(decomposed))
    #expect(ServiceValue.object([composed: 1]) != .object([decomposed: 1]))
    #expect(ServiceValue.object([composed: 1]) == .object([composed: 1]))
    #expect(ServiceValue.string(composed).hashValue == ServiceValue.string(composed).hashValue)
  }

  @Test func hasLiteralsForEachKindThatSwiftHasOneFor() {
    let value: ServiceValue = ["s": "text", "i": 1, "n": 1.0, "b": true, "a": [1, 2], "o": [:], "e": []]
    #expect(
      value
        == .object([
          "s": .string("text"), "i": .integer(1), "n": .number(1), "b": .boolean(true),
          "a": .array([.integer(1), .integer(2)]), "o": .object([:]), "e": .array([]),
        ]))
  }

  @Test func accessorsAreNilForOtherKinds() {
    let values: [ServiceValue] = ["t", 1.5, 1, true, .null, .bytes([1]), ["x"], ["k": "v"]]
    #expect(values.map { $0.stringValue != nil } == [true, false, false, false, false, false, false, false])
    #expect(values.map { $0.numberValue != nil } == [false, true, true, false, false, false, false, false])
    #expect(values.map { $0.integerValue != nil } == [false, false, true, false, false, false, false, false])
    #expect(values.map { $0.booleanValue != nil } == [false, false, false, true, false, false, false, false])
    #expect(values.map(\.isNull) == [false, false, false, false, true, false, false, false])
    #expect(values.map { $0.bytesValue != nil } == [false, false, false, false, false, true, false, false])
    #expect(values.map { $0.arrayValue != nil } == [false, false, false, false, false, false, true, false])
    #expect(values.map { $0.objectValue != nil } == [false, false, false, false, false, false, false, true])
    #expect(ServiceValue.integer(7).numberValue == 7)
    #expect(ServiceValue.integer(1 << 53).numberValue == 9_007_199_254_740_992)
    #expect(ServiceValue.integer(1 << 53 + 1).numberValue == nil)
  }

  @Test func subscriptsReachMembersAndElements() {
    var value: ServiceValue = ["to": ["a", "b"], "n": 1]
    #expect(value["to"]?[1] == "b")
    #expect(value["to"]?[2] == nil)
    #expect(value["to"]?[-1] == nil)
    #expect(value["cc"] == nil)
    #expect(value[0] == nil)
    #expect(value["to"]?["a"] == nil)
    value["cc"] = ["c"]
    value["n"] = nil
    #expect(value == ["to": ["a", "b"], "cc": ["c"]])
  }

  @Test func settingAMemberOfWhatIsNoObjectEndsTheProcess() async {
    await #expect(processExitsWith: .failure) {
      var value: ServiceValue = [1]
      value["a"] = 1
    }
  }

  @Test func printsKindsAndSizesAndNoContents() {
    let values: [(ServiceValue, String)] = [
      ("secret", "string of 6 bytes"), ("s", "string of 1 byte"),
      (.bytes([115, 101]), "UInt8Array of 2 bytes"),
      (["secret", "x"], "array of 2 string"), ([], "empty array"),
      (["secret": "secret"], "object of 1 member"),
      (4711, "integer"), (4711.5, "number"), (true, "boolean"), (.null, "null"),
    ]
    for (value, text) in values {
      #expect(value.description == text)
      #expect("\(value)" == text)
      #expect(String(reflecting: value) == text)
      var dumped = ""
      dump([Optional(value)], to: &dumped)
      #expect(!dumped.contains("secret") && !dumped.contains("4711"))
    }
  }
}
