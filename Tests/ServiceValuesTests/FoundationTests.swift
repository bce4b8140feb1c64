import Foundation
import ServiceValues
import TestSupport
import Testing

struct FoundationTests {
  private func value(_ any: Any) throws -> ServiceValue { try ServiceValue(foundation: any) }

  @Test func readsSwiftsOwnTypes() throws {
    #expect(try value("a") == "a")
    #expect(try value(true) == true)
    #expect(try value(1) == 1)
    #expect(try value(Int8(-1)) == -1)
    #expect(try value(UInt64(1)) == 1)
    #expect(try value(UInt8(255)) == 255)
    #expect(try value(Int64.min) == .integer(.min))
    #expect(try value(1.0) == 1.0)
    #expect(try value(Float(0.5)) == 0.5)
    #expect(try value(Data([1, 2])) == .bytes([1, 2]))
    #expect(try value([1, 2]) == [1, 2])
    #expect(try value([UInt8(1)]) == [1])
    #expect(try value([String]()) == [])
    #expect(try value(["a": 1]) == ["a": 1])
    #expect(try value([AnyHashable("a"): 1]) == ["a": 1])
    #expect(
      try value(["a": ["b": [true]], "c": NSNull()] as [String: Any]) == ["a": ["b": [true]], "c": .null])
  }

  @Test func readsFoundationsObjects() throws {
    #expect(try value(NSString("a")) == "a")
    #expect(try value(NSNull()) == .null)
    #expect(try value(NSData(data: Data([1]))) == .bytes([1]))
    #expect(try value(NSArray(array: ["a", "b"])) == ["a", "b"])
    #expect(try value(NSDictionary(dictionary: ["a": 1])) == ["a": 1])
  }

  @Test func anNSNumberIsWhatItWasMadeFrom() throws {
    #expect(try value(NSNumber(value: true)) == true)
    #expect(try value(NSNumber(value: false)) == false)
    #expect(try value(NSNumber(value: 1)) == 1)
    #expect(try value(NSNumber(value: 0)) == 0)
    #expect(try value(NSNumber(value: Int8(1))) == 1)
    #expect(try value(NSNumber(value: UInt8(0))) == 0)
    #expect(try value(NSNumber(value: 1.0)) == 1.0)
    #expect(try value(NSNumber(value: Float(1))) == 1.0)
    #expect(try value(NSNumber(value: UInt64(5))) == 5)
    let json = try JSONSerialization.jsonObject(with: Data(#"{"a":true,"b":1,"c":1.0}"#.utf8))
    #expect(try value(json) == ["a": true, "b": 1, "c": 1.0])
  }

  @Test func readsWhatIsInOptionals() throws {
    #expect(try value(Optional(1) as Any) == 1)
    #expect(try value(Optional<Int>.none as Any) == .null)
    #expect(try value(Optional(Optional("a")) as Any) == "a")
    #expect(try value(["a": Optional(1), "b": nil]) == ["a": 1, "b": .null])
  }

  @Test func refusesOtherTypesWithPathAndType() throws {
    let cases: [(Any, String)] = [
      (Date(), "params: Date is no kind of parameter"),
      (["a": ["b": [URL(filePath: "/a")]]], "params.a.b[0]: URL is no kind of parameter"),
      (["s": Set([1])] as [String: Any], "params.s: Set<Int> is no kind of parameter"),
      ([1: "a"], "params: Dictionary<Int, String> is no kind of parameter"),
      (["a": UInt64.max], "params.a: an integer has 64 bits and a sign; this one needs more"),
      ([NSNumber(value: UInt64.max)], "params[0]: an integer has 64 bits and a sign; this one needs more"),
      ([1, 1.5] as [Any], "params[1]: an array holds one kind only: the first is integer, found number"),
      ([1, true] as [Any], "params[1]: an array holds one kind only: the first is integer, found boolean"),
      ([[1]], "params[0]: an array holds simple values only, found array"),
      (["n": Double.nan], "params.n: a number must be finite"),
      (Character("a"), "params: Character is no kind of parameter"),
      ((1, 2), "params: (Int, Int) is no kind of parameter"),
    ]
    for (any, expected) in cases {
      let error = try servicesError(.invalidParams) { _ = try value(any) }
      #expect(place(error) == expected)
    }
  }

  @Test func stopsAtTheLimitOfDepth() throws {
    var any: Any = [String: Any]()
    for _ in 1..<32 { any = ["a": any] }
    #expect(try value(any) == .nested(32))
    let error = try servicesError(.invalidParams) { _ = try value(["a": any]) }
    #expect(error.detail == "more than 32 objects and arrays inside one another")
  }

  @Test func stopsAtTheLimitOfElements() throws {
    let limits = ServiceValue.Limits(elementCountMax: 3)
    _ = try ServiceValue(foundation: [1, 2, 3], limits: limits)
    let error = try servicesError(.invalidParams) {
      _ = try ServiceValue(foundation: [1, 2, 3, 4], limits: limits)
    }
    #expect(place(error) == "params: more than 3 elements")
  }

  @Test func readsWhatItGave() throws {
    var random = SplitMix64(seed: SplitMix64.testSeed)
    for round in 0..<500 {
      let original = ServiceValue.random(&random)
      let read = try value(original.foundationValue)
      #expect(read.isIdentical(to: original), "seed \(SplitMix64.testSeed), round \(round)")
    }
  }

  @Test func givesWhatCanBeCast() throws {
    let object = try #require(
      (["i": 1, "n": 1.5, "b": true, "t": "a", "d": .bytes([1]), "a": ["x"], "z": .null] as ServiceValue)
        .foundationValue as? [String: Any])
    #expect(object["i"] as? Int == 1)
    #expect(object["n"] as? Double == 1.5)
    #expect(object["b"] as? Bool == true)
    #expect(object["t"] as? String == "a")
    #expect(object["d"] as? Data == Data([1]))
    #expect(object["a"] as? [String] == ["x"])
    #expect(object["z"] is NSNull)
  }

  @Test func dataIsBytes() {
    #expect(ServiceValue(Data([1, 2])) == .bytes([1, 2]))
    #expect(ServiceValue(Data([0, 1, 2]).dropFirst()) == .bytes([1, 2]))
    #expect(ServiceValue.bytes([3]).dataValue == Data([3]))
    #expect((["a"] as ServiceValue).dataValue == nil)
  }
}
