import Foundation
import ServiceValues
import TestSupport
import Testing

struct LimitsTests {
  @Test(
    arguments: [
      (["a": [1, 2, 3], "b": ["c": ["d": []]]], ""),
      ([.null, .null], ""), ([[1]], "params[0]: an array holds simple values only, found array"),
      ([], ""), (["to": ["x", ["a": 1]]], "params.to[1]: an array holds simple values only, found object"),
      ([["a": 1]], "params[0]: an array holds simple values only, found object"),
      (
        ["to": ["a", "b", "c", 4]],
        "params.to[3]: an array holds one kind only: the first is string, found integer"
      ),
      ([1, 1.0], "params[1]: an array holds one kind only: the first is integer, found number"),
      ([1.0, 1], "params[1]: an array holds one kind only: the first is number, found integer"),
      ([1, true], "params[1]: an array holds one kind only: the first is integer, found boolean"),
      ([1, .null], "params[1]: an array holds one kind only: the first is integer, found null"),
      ([.null, "a"], "params[1]: an array holds one kind only: the first is null, found string"),
      ([.bytes([1]), .bytes([])], ""),
      (["x": .number(.nan)], "params.x: a number must be finite"),
      (.number(.infinity), "params: a number must be finite"),
      ([.number(1), .number(-.infinity)], "params[1]: a number must be finite"),
      (.number(.greatestFiniteMagnitude), ""), (.number(-0.0), ""), ("", ""), (.null, ""), ([:], ""),
      (["": ["a b": .number(.nan)]], #"params[""]["a b"]: a number must be finite"#),
      (["a": ["\"\\\n": .number(.nan)]], #"params.a["\"\\\u{a}"]: a number must be finite"#),
      (
        ["b": .number(.nan), "a": [[]], "c": .number(.nan)],
        "params.a[0]: an array holds simple values only, found array"
      ),
    ] as [(ServiceValue, String)])
  func checksTheRulesAndNamesThePath(value: ServiceValue, expected: String) throws {
    if expected.isEmpty { return try value.validate() }
    let error = try servicesError(.invalidParams) { try value.validate() }
    #expect(place(error) == expected)
  }

  /// With a new order of the dictionary's members in each process, and with each size.
  @Test func reportsTheSameOneOfSeveralThings() throws {
    for count in 2...20 {
      let members = (0..<count).map { ("k\($0 + 10)", ServiceValue.number(.nan)) }
      let value = ServiceValue.object(Dictionary(uniqueKeysWithValues: members))
      let error = try servicesError(.invalidParams) { try value.validate() }
      #expect(error.path == "params.k10")
    }
  }

  @Test func beginsThePathAsItIsTold() throws {
    let error = try servicesError(.invalidParams) {
      try ServiceValue.object(["a": .number(.nan)]).validate(root: "error.details")
    }
    #expect(error.path == "error.details.a")
    #expect(error.description.contains("error.details.a: a number must be finite; "))
  }

  @Test func defaultsAreThoseOfTheProtocolPage() throws {
    let page = try String(
      contentsOf: packageRoot.appending(path: "Documentation/CHANNEL-PROTOCOL.md"), encoding: .utf8)
    #expect(page.contains("| params bytes; depth; elements | 1 MiB; 32; 100,000 |"))
    let limits = ServiceValue.Limits.default
    #expect(limits.byteCountMax == 1_048_576)
    #expect(limits.depthMax == 32)
    #expect(limits.elementCountMax == 100_000)
  }

  // MARK: One below and one above

  @Test func depthOf32IsTakenAnd33Refused() throws {
    try ServiceValue.nested(32).validate()
    let error = try servicesError(.invalidParams) { try ServiceValue.nested(33).validate() }
    #expect(error.detail == "more than 32 objects and arrays inside one another")
    #expect(error.path == "params" + String(repeating: ".a", count: 32))
  }

  @Test(arguments: [0, 1, 2, 31])
  func depthIsWhatTheLimitSays(depth: Int) throws {
    let limits = ServiceValue.Limits(depthMax: depth)
    try ServiceValue.nested(depth).validate(limits: limits)
    _ = try servicesError(.invalidParams) { try ServiceValue.nested(depth + 1).validate(limits: limits) }
  }

  @Test func anArrayCountsForTheDepth() throws {
    try ServiceValue.array([1]).validate(limits: .init(depthMax: 1))
    _ = try servicesError(.invalidParams) { try ServiceValue.array([1]).validate(limits: .init(depthMax: 0)) }
  }

  @Test func elements100000AreTakenAndOneMoreRefused() throws {
    try ServiceValue.array(Array(repeating: true, count: 100_000)).validate()
    let error = try servicesError(.invalidParams) {
      try ServiceValue.array(Array(repeating: true, count: 100_001)).validate()
    }
    #expect(place(error) == "params: more than 100000 elements")
  }

  @Test func elementsOfAllObjectsAndArraysCountTogether() throws {
    let value: ServiceValue = ["a": [1, 2], "b": ["c": "d"], "e": .null]
    try value.validate(limits: .init(elementCountMax: 6))
    let error = try servicesError(.invalidParams) { try value.validate(limits: .init(elementCountMax: 5)) }
    #expect(place(error) == "params: more than 5 elements")
  }

  @Test func aMebibyteIsTakenAndOneByteMoreRefused() throws {
    for make in [
      { (count: Int) in ServiceValue.bytes([UInt8](repeating: 7, count: count - 8)) },
      { .string(String(repeating: "a", count: $0 - 8)) },
      {
        .object([
          "k": .array([
            .string(String(repeating: "é", count: ($0 - 41) / 2)),
            .string(String(repeating: "x", count: ($0 - 41) % 2)),
          ])
        ])
      },
    ] as [@Sendable (Int) -> ServiceValue] {
      #expect(make(1 << 20).byteCount == 1 << 20)
      try make(1 << 20).validate()
      let error = try servicesError(.invalidParams) { try make(1 << 20 + 1).validate() }
      #expect(place(error) == "params: more than 1048576 bytes")
    }
  }

  /// By hand: the numbers are a promise to the other side.
  @Test(
    arguments: [
      (.null, 4), (true, 4), (1, 14), (1.5, 14), ("", 8), ("é", 10), (.bytes([1, 2, 3]), 11), ([], 8),
      ([:], 8),
      ([1, 2], 36), (["ab": "c"], 27), (["a": .null, "b": [true]], 42),
    ] as [(ServiceValue, Int)])
  func sizesAreThoseOfThePage(value: ServiceValue, byteCount: Int) throws {
    #expect(value.byteCount == byteCount)
    try value.validate(limits: .init(byteCountMax: byteCount))
    _ = try servicesError(.invalidParams) { try value.validate(limits: .init(byteCountMax: byteCount - 1)) }
  }

  /// What validation adds up is what `byteCount` says.
  @Test func randomValuesPassAtTheirSizeAndNotBelow() throws {
    var random = SplitMix64(seed: SplitMix64.testSeed)
    for round in 0..<300 {
      let value = ServiceValue.random(&random)
      let size = value.byteCount
      #expect(throws: Never.self, "seed \(SplitMix64.testSeed), round \(round)") {
        try value.validate(limits: .init(byteCountMax: size))
      }
      #expect(throws: ServicesError.self, "seed \(SplitMix64.testSeed), round \(round)") {
        try value.validate(limits: .init(byteCountMax: size - 1))
      }
    }
  }

  @Test func aKeyOf255BytesIsTakenAndOneByteMoreRefused() throws {
    try ServiceValue.object([String(repeating: "k", count: 253) + "é": .null]).validate()
    let error = try servicesError(.invalidParams) {
      try ServiceValue.object([String(repeating: "k", count: 254) + "é": .null]).validate()
    }
    #expect(error.detail == "a key of more than 255 bytes")
  }

  // MARK: Paths

  @Test func aPathIsNeverLong() throws {
    let key = String(repeating: "k", count: 255)
    var value = ServiceValue.number(.nan)
    for _ in 0..<20 { value = .object([key: value]) }
    value = .object(["first": value])
    let path = try #require(try servicesError(.invalidParams) { try value.validate() }.path)
    #expect(path.utf8.count <= 512)
    #expect(path.hasPrefix("params…[\"kkk"))
    #expect(path.hasSuffix("kkk…\"]"))
  }

  @Test func aPathShowsNoControlCharacters() throws {
    for bad in ["\n", "\u{1B}[2J", "\u{202E}", "\u{2028}", "\u{0}", "\u{E000}"] {
      let value = ServiceValue.object([bad: .number(.nan)])
      let path = try #require(try servicesError(.invalidParams) { try value.validate() }.path)
      #expect(path.hasPrefix(#"params["\u{"#), "\(path.debugDescription)")
    }
  }
}
