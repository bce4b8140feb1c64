import Foundation
import ServiceValues
import Testing

struct CodingTests {
  struct Mail: Codable, Equatable {
    var to: [String]
    var subject: String?
    var priority: Int
    var weight: Double
    var urgent: Bool
    var token: Data
    var page: URL?
    var more: [String: [Int8]]
    var nested: Nested?

    struct Nested: Codable, Equatable {
      var kind: Kind
      var small: UInt16
      var half: Float
    }
    enum Kind: String, Codable { case plain, odd }
  }

  private let mail = Mail(
    to: ["a", "b"], subject: nil, priority: -1, weight: 2, urgent: true, token: Data([1, 2]),
    page: URL(string: "https://example.com/a?b"), more: ["x": [1, -2], "": []],
    nested: .init(kind: .odd, small: 65535, half: 0.5))

  @Test func encodesATypeOfTheApp() throws {
    let value = try ServiceValue(encoding: mail)
    #expect(
      value == [
        "to": ["a", "b"], "priority": -1, "weight": 2.0, "urgent": true, "token": .bytes([1, 2]),
        "page": "https://example.com/a?b", "more": ["x": [1, -2], "": []],
        "nested": ["kind": "odd", "small": 65535, "half": 0.5],
      ])
    #expect(try value.decode(as: Mail.self) == mail)
  }

  @Test func encodesScalarsAndArrays() throws {
    #expect(try ServiceValue(encoding: "a") == "a")
    #expect(try ServiceValue(encoding: true) == true)
    #expect(try ServiceValue(encoding: Optional<Int>.none) == .null)
    #expect(try ServiceValue(encoding: [1, 2]) == [1, 2])
    #expect(try ServiceValue(encoding: [UInt8(1)]) == [1])
    #expect(try ServiceValue(encoding: Data([1])) == .bytes([1]))
    #expect(try ServiceValue(encoding: [Data([1])]) == [.bytes([1])])
    #expect(try ServiceValue(encoding: ["a": 1.0]) == ["a": 1.0])
    struct Empty: Codable {}
    #expect(try ServiceValue(encoding: Empty()) == [:])
    #expect(try ServiceValue(encoding: [String]()) == [])
  }

  @Test func refusesWhatHasNoKindWithItsPath() throws {
    struct Item: Encodable {
      var list: [UInt64]?
      var when: Date?
      var price: Decimal?
      var matrix: [[Int]]?
      var gaps: [Int?]?
      var ratio: Double?
    }
    let cases: [(Item, String)] = [
      (Item(list: [1, .max]), "params.list[1]: an integer has 64 bits and a sign"),
      (Item(when: Date()), "params.when: Date is no kind of parameter"),
      (Item(price: 1), "params.price: Decimal is no kind of parameter"),
      (Item(matrix: [[]]), "params.matrix[0]: an array holds simple values only, found array"),
      (
        Item(gaps: [1, nil]), "params.gaps[1]: an array holds one kind only: the first is integer, found null"
      ),
      (Item(ratio: .nan), "params.ratio: a number must be finite"),
    ]
    for (item, expected) in cases {
      let error = try servicesError(.invalidParams) { _ = try ServiceValue(encoding: item) }
      #expect(place(error) == expected)
    }
  }

  @Test func decodingNamesThePathOfWhatIsWrong() throws {
    struct Inner: Decodable {
      var x: Int8
      var list: [String]?
      var data: Data?
      var page: URL?
      var ratio: Float?
    }
    struct Item: Decodable { var a: Inner }
    let cases: [(ServiceValue, String)] = [
      ([:], "params.a: missing, and required"), (["a": 1], "params.a: expected object, found integer"),
      (["a": [:]], "params.a.x: missing, and required"),
      (["a": ["x": "1"]], "params.a.x: expected integer, found string"),
      (["a": ["x": 1.0]], "params.a.x: expected integer, found number"),
      (["a": ["x": true]], "params.a.x: expected integer, found boolean"),
      (["a": ["x": 128]], "params.a.x: the integer does not fit into Int8"),
      (["a": ["x": .null]], "params.a.x: expected integer, found null"),
      (["a": ["x": 1, "list": [1]]], "params.a.list[0]: expected string, found integer"),
      (["a": ["x": 1, "list": "a"]], "params.a.list: expected array, found string"),
      (["a": ["x": 1, "data": "AA=="]], "params.a.data: expected UInt8Array, found string"),
      (["a": ["x": 1, "page": 1]], "params.a.page: expected string, found integer"),
      (["a": ["x": 1, "ratio": 1e300]], "params.a.ratio: the number does not fit into Float"),
      ([1], "params: expected object, found array"),
    ]
    for (value, expected) in cases {
      let error = try servicesError(.invalidParams) { _ = try value.decode(as: Item.self) }
      #expect(place(error) == expected)
    }
  }

  @Test func decodesScalarsAndNumbersThatAreIntegers() throws {
    #expect(try (1 as ServiceValue).decode(as: Double.self) == 1)
    #expect(try ServiceValue.null.decode(as: Int?.self) == nil)
    #expect(try (5 as ServiceValue).decode(as: Int?.self) == 5)
    #expect(try ("a" as ServiceValue).decode(as: String.self) == "a")
    #expect(try (["a", "b"] as ServiceValue).decode(as: Set<String>.self) == ["a", "b"])
    #expect(try ([1, 2] as ServiceValue).decode(as: [Double].self) == [1, 2])
    #expect(try ([.null, .null] as ServiceValue).decode(as: [Int?].self) == [nil, nil])
    let error = try servicesError(.invalidParams) {
      _ = try ServiceValue.integer(1 << 53 + 1).decode(as: Double.self)
    }
    #expect(place(error) == "params: expected number, found integer")
  }

  /// Containers by hand: nested ones, `super`, and more elements than there are.
  @Test func handWrittenContainersWork() throws {
    struct Odd: Codable, Equatable {
      var a = 1
      var b = "x"
      enum Keys: String, CodingKey { case list, inner, base }
      init() {}
      func encode(to encoder: any Encoder) throws {
        var keyed = encoder.container(keyedBy: Keys.self)
        var list = keyed.nestedUnkeyedContainer(forKey: .list)
        try list.encode(a)
        try list.encode(a + 1)
        var inner = keyed.nestedContainer(keyedBy: Keys.self, forKey: .inner)
        try inner.encode(b, forKey: .base)
        try b.encode(to: keyed.superEncoder())
        try a.encode(to: keyed.superEncoder(forKey: .base))
      }
      init(from decoder: any Decoder) throws {
        let keyed = try decoder.container(keyedBy: Keys.self)
        #expect(keyed.allKeys == [.base, .inner, .list])
        var list = try keyed.nestedUnkeyedContainer(forKey: .list)
        #expect(list.count == 2)
        a = try list.decode(Int.self)
        #expect(throws: DecodingError.self) { try list.decode(String.self) }
        #expect(try list.decode(Int.self) == a + 1)
        #expect(list.isAtEnd)
        #expect(throws: DecodingError.self) { try list.decode(Int.self) }
        b = try keyed.nestedContainer(keyedBy: Keys.self, forKey: .inner).decode(String.self, forKey: .base)
        #expect(try String(from: keyed.superDecoder()) == b)
        #expect(try Int(from: keyed.superDecoder(forKey: .base)) == a)
      }
    }
    let value = try ServiceValue(encoding: Odd())
    #expect(value == ["list": [1, 2], "inner": ["base": "x"], "super": "x", "base": 1])
    #expect(try value.decode(as: Odd.self) == Odd())
  }

  @Test func whatTheTypeItselfThrowsComesThrough() throws {
    struct Refusal: Error {}
    struct Refusing: Codable {
      init() {}
      init(from decoder: any Decoder) throws { throw Refusal() }
      func encode(to encoder: any Encoder) throws { throw Refusal() }
    }
    #expect(throws: Refusal.self) { try ServiceValue(encoding: Refusing()) }
    #expect(throws: Refusal.self) { try ServiceValue.null.decode(as: Refusing.self) }
  }
}
