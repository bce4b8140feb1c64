import Foundation
import ServiceValues
import TestSupport
import Testing

struct DefinitionTests {
  /// Everything that the language has.
  static let everything = #"""
    {"service-id": "com.example.all", "version": "1.2", "title": "T", "description": "D", "vendor-extension": [1, {"a": 2}],
     "creator_information": {"name": "N", "api_url": "U", "copyright": "C", "contact_details": "K", "other": 1},
     "methods": {
       "none": {},
       "m": {
         "description": "M", "unknown": null,
         "params": {"type": "object", "description": "P", "required": true, "properties": {
           "s": {"type": "string", "required": true, "enum": ["a", "b"]},
           "n": {"type": "number", "enum": [1, 2.5]}, "i": {"type": "integer"}, "b": {"type": "boolean"},
           "z": {"type": "null"}, "d": {"type": "UInt8Array", "enum": [{"$bytes": "AQ=="}]},
           "list": {"type": "array", "items": {"type": "string"}},
           "o": {"type": "object", "properties": {"deep": {"type": "integer", "required": true}}},
           "any": {}, "odd": {"type": "color", "required": false}}},
         "attachments": {"items": [{"title": "A", "description": "B", "format": "text/plain"}, {}], "additionalItems": {"title": "X"},
           "minItems": 1, "maxItems": 5.0},
         "result-value": {"type": "array", "items": {"type": "number"}},
         "result-attachments": {"items": {"format": "image/png"}},
         "errors": [{"code": 7, "title": "E", "description": "F", "data": {"type": "object", "properties": {"why": {"type": "string", "required": true}}},
           "attachments": {"maxItems": 1}}, {"code": -1.0}]}}}
    """#

  @Test func readsTheWholeLanguage() throws {
    let definition = try ServiceDefinition(jsonText: Self.everything)
    #expect(definition.serviceID.text == "com.example.all")
    #expect(definition.version.text == "1.2")
    #expect(definition.title == "T" && definition.description == "D")
    #expect(definition.creator == .init(name: "N", apiURL: "U", copyright: "C", contactDetails: "K"))
    #expect(definition.methods["none"] == .init())
    let method = try definition.method("m")
    #expect(method.description == "M")
    let params = try #require(method.params)
    #expect(params.type == .kind(.object) && params.isRequired && params.description == "P")
    #expect(params.properties.count == 10)
    #expect(
      params.properties["s"] == .init(type: .kind(.string), isRequired: true, allowedValues: ["a", "b"]))
    #expect(params.properties["n"]?.allowedValues == [1, 2.5])
    #expect(params.properties["d"]?.allowedValues == [.bytes([1])])
    #expect(params.properties["list"]?.items == .init(.string))
    #expect(params.properties["o"]?.properties["deep"] == .init(.integer, isRequired: true))
    #expect(params.properties["any"] == .init())
    #expect(params.properties["odd"]?.type == .unknown("color"))
    let attachments = try #require(method.attachments)
    #expect(
      attachments.items == .inOrder([.init(title: "A", description: "B", format: "text/plain"), .init()]))
    #expect(attachments.additionalItems == .each(.init(title: "X")))
    #expect(attachments.minItems == 1 && attachments.maxItems == 5)
    #expect(method.resultValue?.items == .init(.number))
    #expect(method.resultAttachments == .init(items: .each(.init(format: "image/png"))))
    #expect(try definition.errorCodes("m") == [7, -1])
    #expect(method.errors[0].data?.properties["why"]?.isRequired == true)
    #expect(method.errors[0].attachments == .init(maxItems: 1))
  }

  @Test func canonicalJSONReadsBackAsTheSame() throws {
    let definition = try ServiceDefinition(jsonText: Self.everything)
    let text = definition.jsonText
    let read = try ServiceDefinition(jsonText: text)
    #expect(read == definition)
    #expect(read.jsonText == text)
    #expect(!text.contains("vendor-extension") && !text.contains("unknown") && !text.contains("\n"))
    #expect(text.contains(#""odd":{"type":"color"}"#))
    #expect(text.contains(#""version":"1.2""#))
  }

  @Test func orderAndSpaceOfTheTextDoNotMatter() throws {
    let a = try ServiceDefinition(
      jsonText: #"{"version":"1","service-id":"a.b","methods":{"x":{},"y":{"params":{"required":false}}}}"#)
    let b = try ServiceDefinition(
      jsonText:
        "{ \"methods\": {\"y\": {\"params\": {}}, \"x\": {\"errors\": []}},\n \"service-id\": \"a.b\", \"version\": \"1\"}"
    )
    #expect(a == b)
    #expect(a.jsonText == b.jsonText)
    #expect(a.jsonText == #"{"methods":{"x":{},"y":{"params":{}}},"service-id":"a.b","version":"1"}"#)
  }

  private func method(_ text: String) -> String {
    #"{"service-id":"a.b","version":"1","methods":{"m":\#(text)}}"#
  }

  @Test(arguments: [
    ("[]", "definition: expected object, found array"), ("1", "definition: expected object, found integer"),
    ("{}", "definition.service-id: missing, and required"),
    (#"{"service-id":"a.b"}"#, "definition.version: missing, and required"),
    (#"{"service-id":"a.b","version":"1"}"#, "definition.methods: missing, and required"),
    (
      #"{"service-id":1,"version":"1","methods":{}}"#, "definition.service-id: expected string, found integer"
    ),
    (
      #"{"service-id":"a.b","version":1.0,"methods":{}}"#, "definition.version: expected string, found number"
    ),
    (
      #"{"service-id":"A.b","version":"1","methods":{}}"#,
      "definition.service-id: it has capital letters: write it in lower case"
    ),
    (
      #"{"service-id":"a.b","version":"01","methods":{}}"#, "definition.version: a segment has a leading zero"
    ),
    (#"{"service-id":"a.b","version":"1","methods":[]}"#, "definition.methods: expected object, found array"),
    (
      #"{"service-id":"a.b","version":"1","methods":{"":{}}}"#,
      #"definition.methods[""]: a method needs a name"#
    ),
    (
      #"{"service-id":"a.b","version":"1","methods":{"greetMe|0":1}}"#,
      #"definition.methods["greetMe|0"]: expected object, found integer"#
    ),
    (
      #"{"service-id":"a.b","version":"1","methods":{},"title":1}"#,
      "definition.title: expected string, found integer"
    ),
    (
      #"{"service-id":"a.b","version":"1","methods":{},"title":null}"#,
      "definition.title: expected string, found null"
    ),
    (
      #"{"service-id":"a.b","version":"1","methods":{},"creator_information":{"name":[]}}"#,
      "definition.creator_information.name: expected string, found array"
    ),
    (
      #"{"service-id":"a.b","version":"1","methods":{},"methods":{}}"#,
      "definition.methods: a second member of that name, in line 1, column 57"
    ),
    ("{", "definition: expected the name of a member, in line 1, column 2"),
  ])
  func refusesAWrongDefinition(text: String, expected: String) throws {
    let error = try servicesError(.invalidRegistration) { _ = try ServiceDefinition(jsonText: text) }
    #expect(place(error) == expected)
  }

  @Test(arguments: [
    ("1", ": expected object, found integer"),
    (#"{"description":1}"#, ".description: expected string, found integer"),
    (#"{"params":[]}"#, ".params: expected object, found array"),
    (#"{"params":{"type":["string"]}}"#, ".params.type: expected string, found array"),
    (#"{"params":{"required":"true"}}"#, ".params.required: expected boolean, found string"),
    (#"{"params":{"required":["a"]}}"#, ".params.required: expected boolean, found array"),
    (
      #"{"params":{"properties":{"a":{"items":{"type":1}}}}}"#,
      ".params.properties.a.items.type: expected string, found integer"
    ),
    (#"{"params":{"properties":[]}}"#, ".params.properties: expected object, found array"),
    (#"{"params":{"enum":"a"}}"#, ".params.enum: expected array, found string"),
    (#"{"params":{"enum":[]}}"#, ".params.enum: no value is allowed"),
    (#"{"params":{"enum":[{"$bytes":1}]}}"#, #".params.enum[0]["$bytes"]: expected Base64 in a string"#),
    (#"{"attachments":{"minItems":-1}}"#, ".attachments.minItems: expected 0 or more"),
    (#"{"attachments":{"minItems":1.5}}"#, ".attachments.minItems: expected integer, found number"),
    (#"{"attachments":{"maxItems":"1"}}"#, ".attachments.maxItems: expected integer, found string"),
    (
      #"{"attachments":{"minItems":2,"maxItems":1}}"#, ".attachments: at least 2 and at most 1 cannot both be"
    ),
    (
      #"{"attachments":{"items":[{},{}],"maxItems":1}}"#,
      ".attachments: at least 2 and at most 1 cannot both be"
    ),
    (
      #"{"attachments":{"items":[{}],"minItems":2}}"#, ".attachments: at least 2 and at most 1 cannot both be"
    ),
    (#"{"attachments":{"items":[{},1]}}"#, ".attachments.items[1]: expected object, found integer"),
    (#"{"attachments":{"items":{"format":1}}}"#, ".attachments.items.format: expected string, found integer"),
    (
      #"{"attachments":{"additionalItems":1}}"#,
      ".attachments.additionalItems: expected object, found integer"
    ),
    (#"{"result-attachments":{}}"#, ".result-value: missing, and required beside result-attachments"),
    (#"{"errors":{}}"#, ".errors: expected array, found object"),
    (#"{"errors":[{}]}"#, ".errors[0].code: missing, and required"),
    (#"{"errors":[{"code":"1"}]}"#, ".errors[0].code: expected integer, found string"),
    (#"{"errors":[{"code":1},{"code":1}]}"#, ".errors[1].code: a second error with code 1"),
    (#"{"errors":[{"code":-1000099}]}"#, ".errors[0].code: -1000099 is kept for errors of the runtime"),
    (#"{"errors":[{"code":-1000001}]}"#, ".errors[0].code: -1000001 is kept for errors of the runtime"),
    (
      #"{"errors":[{"code":1,"data":{"type":"string"}}]}"#,
      ".errors[0].data.type: the data of an error is an object"
    ),
  ])
  func refusesAWrongMethod(text: String, expected: String) throws {
    let error = try servicesError(.invalidRegistration) { _ = try ServiceDefinition(jsonText: method(text)) }
    #expect(place(error) == "definition.methods.m" + expected)
  }

  @Test func bytesThatAreNotUTF8AreNamed() throws {
    let error = try servicesError(.invalidRegistration) {
      _ = try ServiceDefinition(json: Array("{\"é\":\"".utf8) + [0xFF, 0x22, 0x7D])
    }
    #expect(place(error) == "definition: byte 7 is not UTF-8")
  }

  @Test func textOf64KiBIsTakenAndOneByteMoreRefused() throws {
    let text = #"{"service-id":"a.b","version":"1","methods":{}}"#
    let full = text + String(repeating: " ", count: 65_536 - text.utf8.count)
    _ = try ServiceDefinition(jsonText: full)
    let error = try servicesError(.invalidRegistration) { _ = try ServiceDefinition(jsonText: full + " ") }
    #expect(place(error) == "definition: more than 65536 bytes")
  }

  @Test func definesParamsThatAreAsDeepAsParamsMayBe() throws {
    let depth = 32
    let open = String(repeating: #"{"type":"object","properties":{"a":"#, count: depth - 1)
    let deep = open + #"{"type":"object"}"# + String(repeating: "}}", count: depth - 1)
    let definition = try ServiceDefinition(jsonText: method(#"{"errors":[{"code":1,"data":\#(deep)}]}"#))
    #expect(try ServiceDefinition(jsonText: definition.jsonText) == definition)
  }

  /// Somebody else's text is an error or a definition, and never a crash.
  @Test func survivesWrongBytes() throws {
    var random = SplitMix64(seed: SplitMix64.testSeed)
    var refused = 0
    let original = Array(Self.everything.utf8)
    for round in 0..<2000 {
      var bytes = original
      for _ in 0...random.below(2) {
        bytes[random.below(bytes.count)] = UInt8(truncatingIfNeeded: random.next() & 0x7F)
      }
      do {
        let definition = try ServiceDefinition(json: bytes)
        let read = try ServiceDefinition(jsonText: definition.jsonText)
        #expect(read == definition, "seed \(SplitMix64.testSeed), round \(round)")
      } catch {
        #expect(error.code == .invalidRegistration)
        refused += 1
      }
    }
    #expect(refused > 1000)
  }
}
