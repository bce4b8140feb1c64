import Foundation
import ServiceValues
import TestSupport
import Testing

struct JSONTests {
  @Test(
    arguments: [
      ("null", .null), ("true", true), ("false", false), ("0", 0), ("-0", 0), ("12", 12), ("-1", -1),
      ("9223372036854775807", .integer(.max)), ("-9223372036854775808", .integer(.min)), ("1.0", 1.0),
      ("1e0", 1.0),
      ("1E+2", 100.0), ("-2.5e-1", -0.25), ("\"\"", ""),
      (#""a\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude00\u0000""#, "a\"\\/\u{8}\u{C}\n\r\tA\u{E9}\u{1F600}\u{0}"),
      ("\"é漢\u{7F}\"", "é漢\u{7F}"), (" [ 1 , 2 ] ", [1, 2]), ("[]", []), ("{}", [:]),
      ("\t{\r\n\"a\" : [ ] }\n", ["a": []]),
      (#"{"$bytes":"AQID"}"#, .bytes([1, 2, 3])), (#"{"$bytes":""}"#, .bytes([])),
      (#"{"$bytes":"AA==","a":1}"#, ["$bytes": "AA==", "a": 1]),
      (#"{"$object":{"$bytes":"AA=="}}"#, ["$bytes": "AA=="]),
      (#"{"$object":{"$object":1}}"#, ["$object": 1]),
      (#"{"$object":{"a":{"$bytes":"AA=="}}}"#, ["a": .bytes([0])]),
      (#"[{"$bytes":"AA=="}]"#, [.bytes([0])]),
    ] as [(String, ServiceValue)])
  func reads(text: String, value: ServiceValue) throws {
    #expect(try ServiceValue(jsonText: text).isIdentical(to: value))
  }

  @Test(arguments: [
    ("", "params: expected a value, in line 1, column 1"),
    ("  ", "params: expected a value, in line 1, column 3"),
    ("nul", "params: expected a value, in line 1, column 4"),
    ("tru3", "params: expected a value, in line 1, column 4"),
    ("1 2", "params: something follows the value, in line 1, column 3"),
    ("{}x", "params: something follows the value, in line 1, column 3"),
    ("01", "params: something follows the value, in line 1, column 2"),
    ("-", "params: expected a digit, in line 1, column 2"),
    ("1.", "params: expected a digit, in line 1, column 3"),
    ("1e", "params: expected a digit, in line 1, column 3"),
    ("+1", "params: expected a value, in line 1, column 1"),
    (".5", "params: expected a value, in line 1, column 1"),
    ("NaN", "params: expected a value, in line 1, column 1"),
    ("9223372036854775808", "params: an integer has 64 bits; this one needs more, in line 1, column 20"),
    ("-9223372036854775809", "params: an integer has 64 bits; this one needs more, in line 1, column 21"),
    ("1e999", "params: a number has 64 bits; this one is too large, in line 1, column 6"),
    ("[1,]", "params[1]: expected a value, in line 1, column 4"),
    ("[1 2]", "params: expected a comma or a closing bracket, in line 1, column 4"),
    ("[", "params[0]: expected a value, in line 1, column 2"),
    ("[1", "params: expected a comma or a closing bracket, in line 1, column 3"),
    ("{\"a\":1,}", "params: expected the name of a member, in line 1, column 8"),
    ("{a:1}", "params: expected the name of a member, in line 1, column 2"),
    ("{\"a\" 1}", "params.a: expected a colon, in line 1, column 6"),
    ("{\"a\":\n 1 \"b\"}", "params: expected a comma or a closing brace, in line 2, column 4"),
    ("{\"a\":1,\"a\":1}", "params.a: a second member of that name, in line 1, column 11"),
    (
      "{\"\u{E9}\":1,\"e\u{301}\":1}",
      "params[\"e\u{301}\"]: a second member of that name, in line 1, column 14"
    ),
    ("\"a", "params: a string has no end, in line 1, column 3"),
    ("\"\n\"", "params: a control character in a string, in line 1, column 2"),
    ("\"a\u{0}\"", "params: a control character in a string, in line 1, column 3"),
    (#""\x""#, "params: an escape that JSON does not have, in line 1, column 3"),
    (#""\u12g4""#, "params: expected four hexadecimal digits, in line 1, column 6"),
    (#""\ud800""#, "params: half of a surrogate pair, in line 1, column 8"),
    (#""\udc00""#, "params: half of a surrogate pair, in line 1, column 8"),
    (#""\ud800\u0041""#, "params: half of a surrogate pair, in line 1, column 14"),
    (#""\ud800\n""#, "params: half of a surrogate pair, in line 1, column 9"),
    (#"{"a":{"$bytes":"%"}}"#, "params.a[\"$bytes\"]: expected Base64 in a string"),
    (#"{"$bytes":1}"#, "params[\"$bytes\"]: expected Base64 in a string"),
    (#"[{"$object":1}]"#, "params[0][\"$object\"]: expected an object"),
    ("[1,1.0]", "params[1]: an array holds one kind only: the first is integer, found number"),
    ("\u{FEFF}1", "params: expected a value, in line 1, column 1"),
    ("'a'", "params: expected a value, in line 1, column 1"),
    ("1//", "params: something follows the value, in line 1, column 2"),
  ])
  func refuses(text: String, expected: String) throws {
    let error = try servicesError(.invalidParams) { _ = try ServiceValue(jsonText: text) }
    #expect(place(error) == expected)
  }

  @Test(
    arguments: [
      (.null, "null"), (1, "1"), (1.0, "1.0"), (-0.0, "-0.0"), (1e16, "1e+16"),
      (.number(.leastNonzeroMagnitude), "5e-324"),
      (true, "true"),
      (["b": 1, "a": [1.5]], #"{"a":[1.5],"b":1}"#), (.bytes([255]), #"{"$bytes":"/w=="}"#),
      ("é/\u{7F}", "\"é/\u{7F}\""),
      ("\"\\\n\r\t\u{8}\u{C}\u{1F}\u{0}", #""\"\\\n\r\t\b\f\u001f\u0000""#),
      (["$bytes": "x"], #"{"$object":{"$bytes":"x"}}"#),
      (["$object": [:]], #"{"$object":{"$object":{}}}"#),
      (["\u{FFFF}": 1, "\u{10000}": 2], "{\"\u{FFFF}\":1,\"\u{10000}\":2}"),
    ] as [(ServiceValue, String)])
  func writes(value: ServiceValue, text: String) throws {
    #expect(try value.jsonText() == text)
  }

  @Test func writesNothingThatBreaksARule() throws {
    let error = try servicesError(.invalidParams) {
      _ = try ServiceValue.object(["a": .number(.nan)]).jsonText()
    }
    #expect(error.path == "params.a")
  }

  @Test func readsWhatItWrote() throws {
    var random = SplitMix64(seed: SplitMix64.testSeed)
    for round in 0..<1000 {
      let value = ServiceValue.random(&random)
      let text = try value.jsonText()
      let read = try ServiceValue(jsonText: text)
      #expect(read.isIdentical(to: value), "seed \(SplitMix64.testSeed), round \(round)")
      #expect(try read.jsonText() == text)
    }
  }

  /// Another reader than our own.
  @Test func foundationReadsWhatItWrote() throws {
    var random = SplitMix64(seed: SplitMix64.testSeed &+ 1)
    for round in 0..<300 {
      let value = ServiceValue.random(&random)
      let object = try JSONSerialization.jsonObject(
        with: Data(try value.jsonText().utf8), options: .fragmentsAllowed)
      if case .string(let text) = value {
        #expect((object as? String) == text, "seed \(SplitMix64.testSeed), round \(round)")
      }
    }
  }

  /// A wrong byte is an error or another value, and never a crash.
  @Test func survivesWrongBytes() throws {
    var random = SplitMix64(seed: SplitMix64.testSeed &+ 2)
    var refused = 0
    for _ in 0..<3000 {
      var bytes = Array(try ServiceValue.random(&random).jsonText().utf8)
      for _ in 0...random.below(3) {
        bytes[random.below(bytes.count)] = UInt8(truncatingIfNeeded: random.next())
      }
      do {
        let value = try ServiceValue(jsonText: String(decoding: bytes, as: UTF8.self))
        #expect(try ServiceValue(jsonText: value.jsonText()).isIdentical(to: value))
      } catch {
        #expect(error.code == .invalidParams)
        refused += 1
      }
    }
    #expect(refused > 0)
  }

  @Test func refusesDeepTextsBeforeTheStackEnds() throws {
    let open = String(repeating: "[", count: 1_000_000)
    let error = try servicesError(.invalidParams) { _ = try ServiceValue(jsonText: open) }
    #expect(error.detail?.hasPrefix("more than 128 objects and arrays inside one another") == true)
  }
}
