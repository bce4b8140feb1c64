import ServiceValues
import Testing

struct ConformanceTests {
  private let all: ServiceDefinition

  init() throws { all = try ServiceDefinition(jsonText: DefinitionTests.everything) }

  private func definition(_ method: ServiceDefinition.Method) throws -> ServiceDefinition {
    ServiceDefinition(
      serviceID: try ServiceIdentifier("com.example.x"), version: try ServiceVersion("1"),
      methods: ["m": method])
  }

  @Test(
    arguments: [
      (["s": "a"], ""),
      (["s": "b", "n": 1, "i": 5, "b": true, "z": .null, "list": ["x"], "o": ["deep": 1]], ""),
      (["s": "a", "n": 1.0], ""), (["s": "a", "n": 2.5], ""), (["s": "a", "list": []], ""),
      (["s": "a", "other": [1]], ""),
      (["s": "a", "any": 1], ""), (["s": "a", "any": ["x": "y"]], ""), (["s": "a", "odd": true], ""),
      (["s": "a", "d": .bytes([1])], ""),
      (["s": "a", "o": ["deep": 1, "more": 2]], ""),
      (nil, ": missing, and required"), (.null, ": expected object, found null"),
      ("a", ": expected object, found string"),
      ([:], ".s: missing, and required"), (["s": "c"], ".s: not one of the 2 allowed values"),
      (["s": 1], ".s: expected string, found integer"),
      (["s": .null], ".s: expected string, found null"),
      (["s": "a", "n": "1"], ".n: expected number, found string"),
      (["s": "a", "n": 2], ".n: not one of the 2 allowed values"),
      (["s": "a", "n": true], ".n: expected number, found boolean"),
      (["s": "a", "i": 1.0], ".i: expected integer, found number"),
      (["s": "a", "i": true], ".i: expected integer, found boolean"),
      (["s": "a", "b": 1], ".b: expected boolean, found integer"),
      (["s": "a", "z": 0], ".z: expected null, found integer"),
      (["s": "a", "d": "AQ=="], ".d: expected UInt8Array, found string"),
      (["s": "a", "d": .bytes([2])], ".d: not one of the 1 allowed values"),
      (["s": "a", "list": "x"], ".list: expected array, found string"),
      (["s": "a", "list": ["a", "b", 3]], ".list[2]: expected string, found integer"),
      (["s": "a", "o": [:]], ".o.deep: missing, and required"),
      (["s": "a", "o": ["deep": "1"]], ".o.deep: expected integer, found string"),
      (["b": 1, "i": 1.5, "n": "x"], ".b: expected boolean, found integer"),
    ] as [(ServiceValue?, String)])
  func requestsFollowTheirDefinition(params: ServiceValue?, expected: String) throws {
    if expected.isEmpty { return try all.validate(request: "m", params: params, attachmentCount: 2) }
    let error = try servicesError(.invalidParams) {
      try all.validate(request: "m", params: params, attachmentCount: 2)
    }
    #expect(place(error) == "method m, params" + expected)
  }

  @Test func aMethodWithoutParamsTakesNone() throws {
    for none in [nil, .null, [:]] as [ServiceValue?] { try all.validate(request: "none", params: none) }
    for some in ["", 0, false, [], ["a": 1]] as [ServiceValue] {
      let error = try servicesError(.invalidParams) { try all.validate(request: "none", params: some) }
      #expect(place(error) == "method none, params: expected none, found \(some.kind.rawValue)")
    }
  }

  @Test func paramsThatAreNotRequiredMayBeLeftOut() throws {
    let optional = try definition(
      .init(params: .init(type: .kind(.object), properties: ["a": .init(.string, isRequired: true)])))
    try optional.validate(request: "m", params: nil)
    let error = try servicesError(.invalidParams) { try optional.validate(request: "m", params: [:]) }
    #expect(place(error) == "method m, params.a: missing, and required")
  }

  @Test func requiredNullMayBeNil() throws {
    let null = try definition(.init(params: .init(.null, isRequired: true)))
    try null.validate(request: "m", params: nil)
    try null.validate(request: "m", params: .null)
    _ = try servicesError(.invalidParams) { try null.validate(request: "m", params: [:]) }
  }

  /// A definition, and the fewest and most attachments that it takes.
  @Test(
    arguments: [
      (nil, 0, 0), (.init(), 0, nil), (.init(minItems: 1, maxItems: 1), 1, 1), (.init(minItems: 2), 2, nil),
      (.init(maxItems: 3), 0, 3),
      (.init(maxItems: 0), 0, 0), (.init(items: .each(.init())), 0, nil),
      (.init(items: .inOrder([.init(), .init()])), 2, 2),
      (.init(items: .inOrder([.init()]), additionalItems: .each(.init())), 1, nil),
      (.init(items: .inOrder([.init()]), additionalItems: .inOrder([.init(), .init()])), 1, 3),
      (.init(items: .inOrder([.init()]), additionalItems: .each(.init()), minItems: 2, maxItems: 4), 2, 4),
      (.init(items: .inOrder([.init(), .init()]), additionalItems: .each(.init()), minItems: 1), 2, nil),
    ] as [(AttachmentsDefinition?, Int, Int?)])
  func attachmentsAreCounted(attachments: AttachmentsDefinition?, least: Int, most: Int?) throws {
    let definition = try definition(
      .init(attachments: attachments, resultValue: .init(.null), resultAttachments: attachments))
    for count in 0...6 {
      let fits = count >= least && count <= most ?? .max
      let results = [
        Result { try definition.validate(request: "m", params: nil, attachmentCount: count) },
        Result { try definition.validate(response: "m", params: nil, attachmentCount: count) },
      ]
      for result in results { #expect(((try? result.get()) != nil) == fits, "\(count)") }
    }
  }

  @Test(arguments: [
    (AttachmentsDefinition?.none, 1, "expected none, found 1"),
    (.init(maxItems: 0), 2, "expected none, found 2"),
    (.init(minItems: 1, maxItems: 1), 0, "expected exactly 1, found 0"),
    (.init(minItems: 1, maxItems: 1), 2, "expected exactly 1, found 2"),
    (.init(minItems: 2, maxItems: 4), 1, "expected at least 2, found 1"),
    (.init(minItems: 2, maxItems: 4), 5, "expected at most 4, found 5"),
  ])
  func aWrongCountSaysWhatIsExpected(attachments: AttachmentsDefinition?, count: Int, expected: String) throws
  {
    let definition = try definition(
      .init(attachments: attachments, resultValue: .init(.null), resultAttachments: attachments))
    let request = try servicesError(.invalidParams) {
      try definition.validate(request: "m", params: nil, attachmentCount: count)
    }
    #expect(place(request) == "method m, attachments: \(expected)")
    let response = try servicesError(.invalidParams) {
      try definition.validate(response: "m", params: nil, attachmentCount: count)
    }
    #expect(place(response) == "method m, result attachments: \(expected)")
  }

  @Test func responsesFollowTheirDefinition() throws {
    try all.validate(response: "m", params: [1.5, 2.0])
    try all.validate(response: "m", params: [1, 2], attachmentCount: 3)
    try all.validate(response: "m", params: nil)
    let error = try servicesError(.invalidParams) { try all.validate(response: "m", params: ["a"]) }
    #expect(place(error) == "method m, result[0]: expected number, found string")
    let required = try definition(.init(resultValue: .init(.string, isRequired: true)))
    let missing = try servicesError(.invalidParams) { try required.validate(response: "m", params: nil) }
    #expect(place(missing) == "method m, result: missing, and required")
  }

  @Test func errorsFollowTheirDefinition() throws {
    try all.validate(error: .init(code: 7, details: ["why": "x", "more": 1]), of: "m")
    try all.validate(error: .init(code: 7, details: ["why": "x"], attachments: ["/a"]), of: "m")
    try all.validate(error: .init(code: -1, text: "any"), of: "m")
    let cases: [(ServiceReplyError, String)] = [
      (.init(code: 8), "error.code: expected one of 7, -1, found 8"),
      (.init(code: 7), "error.details.why: missing, and required"),
      (.init(code: 7, details: ["why": 1]), "error.details.why: expected string, found integer"),
      (
        .init(code: 7, details: ["why": "x"], attachments: ["/a", "/b"]),
        "error attachments: expected at most 1, found 2"
      ),
      (.init(code: -1, details: ["a": 1]), "error.details: expected none, found object"),
      (.init(code: -1, attachments: ["/a"]), "error attachments: expected none, found 1"),
    ]
    for (reply, expected) in cases {
      let error = try servicesError(.invalidParams) {
        try all.validate(error: reply, of: "m")
      }
      #expect(place(error) == "method m, \(expected)")
    }
  }

  @Test func noReplyIsDefinedWhereNoneIs() throws {
    #expect(try all.definesReply("none") == false)
    #expect(try all.definesReply("m"))
    #expect(try all.errorCodes("none") == [])
    let response = try servicesError(.invalidParams) { try all.validate(response: "none", params: nil) }
    #expect(place(response) == "method none, result: no reply is defined")
    let error = try servicesError(.invalidParams) { try all.validate(error: .init(code: 1), of: "none") }
    #expect(place(error) == "method none, error: no reply is defined")
    let errorsOnly = try definition(.init(errors: [.init(code: 1)]))
    #expect(try errorsOnly.definesReply("m"))
    _ = try servicesError(.invalidParams) { try errorsOnly.validate(response: "m", params: nil) }
    try errorsOnly.validate(error: .init(code: 1), of: "m")
  }

  @Test func anyErrorIsRightWhereADefinitionListsNone() throws {
    let silent = try definition(.init(resultValue: .init(.null)))
    try silent.validate(error: .init(code: 99, details: ["a": 1], attachments: ["/a", "/b"]), of: "m")
  }

  @Test func anUnknownMethodIsNotFound() throws {
    for ask in [
      { try $0.validate(request: "x y", params: nil) }, { try $0.validate(response: "x y", params: nil) },
      { try $0.validate(error: .init(code: 1), of: "x y") }, { _ = try $0.definesReply("x y") },
      { _ = try $0.errorCodes("x y") },
    ] as [(ServiceDefinition) throws -> Void] {
      let error = try servicesError(.methodNotFound) { try ask(all) }
      #expect(error.path == #"com.example.all["x y"]"#)
    }
  }

  @Test func aMethodsNameIsQuotedWhereItIsNotPlain() throws {
    let greetings = WellKnownService.greetings.definition
    let error = try servicesError(.invalidParams) { try greetings.validate(request: "greetMe|0", params: 1) }
    #expect(place(error) == #"method ["greetMe|0"], params: expected none, found integer"#)
  }
}
