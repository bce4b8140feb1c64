import Foundation
import ServiceValues
import Testing

struct ErrorTests {
  /// The table of the page, which other implementations follow.
  @Test func numbersAndNamesAreThoseOfTheProtocolPage() throws {
    let page = try String(
      contentsOf: packageRoot.appending(path: "Documentation/CHANNEL-PROTOCOL.md"), encoding: .utf8)
    let table = try #require(page.components(separatedBy: "\n## Errors\n").last)
    let rows = table.matches(of: /\n\| (\d+) \| (\w+) \|/).map { "\($0.1) \($0.2)" }
    let ofApps = rows.filter { (1...99).contains(Int($0.prefix { $0 != " " }) ?? 0) }
    #expect(ofApps == ServicesError.Code.known.map { "\($0.rawValue) \($0.name)" })
    #expect(ofApps.count == 29)
  }

  /// Written out: they may not follow when the page or the order of cases changes.
  @Test func numbersNeverChange() {
    let codes: [ServicesError.Code] = [
      .general, .processSuspended, .applicationNotFound, .serviceNotFound, .versionNotFound, .methodNotFound,
      .notAllowed, .invalidParams, .certificateNotFound, .methodDisabled, .versionDisabled, .serviceDisabled,
      .enterpriseUserNotMatch, .cancelled, .attachmentNotFound, .limitExceeded, .brokerUnavailable,
      .connectionLost, .timedOut, .notInFront, .frontRefused, .noSpace, .sourceDamaged, .invalidRegistration,
      .numberTaken, .peerKeyChanged, .approvalPending, .placeTaken, .notEnrolled,
    ]
    #expect(codes.map(\.rawValue) == Array(1...29))
  }

  @Test func eachCodeHasTwoTextsInTheHouseStyle() {
    for code in ServicesError.Code.known {
      for text in [code.what, code.remedy] {
        #expect(!text.isEmpty && !text.hasSuffix(".") && text.first?.isLowercase == true, "\(code)")
      }
      #expect(code.what != code.remedy)
    }
    #expect(Set(ServicesError.Code.known.map(\.what)).count == 29)
  }

  @Test func codesAreFoundByTheirNames() {
    for code in ServicesError.Code.known { #expect(ServicesError.Code(name: code.name) == code) }
    #expect(ServicesError.Code(name: "nothing") == nil)
    #expect(ServicesError.Code(name: "") == nil)
  }

  @Test func aNumberOfALaterVersionIsACode() {
    let code = ServicesError.Code(rawValue: 57)
    #expect(code.name == "error 57")
    #expect(code.what.contains("57"))
    #expect(!code.remedy.isEmpty)
    #expect(code != .general)
    #expect(code == ServicesError.Code(rawValue: 57))
  }

  @Test func aCodeCanBeCaught() {
    do {
      throw ServicesError(.notAllowed)
    } catch ServicesError.general {
      Issue.record("not this one")
    } catch ServicesError.notAllowed {
    } catch {
      Issue.record("\(error)")
    }
    #expect(!(ServicesError.notAllowed ~= CancellationError()))
  }

  @Test func theDescriptionSaysWhatWhereAndWhatToDo() {
    #expect(
      ServicesError(.attachmentNotFound).description
        == "an attachment is missing, or is no file; name files that are in the sender's container; nothing was sent"
    )
    #expect(
      ServicesError(.invalidParams, path: "params.to[3]", detail: "expected string, found integer")
        .description
        == "a value does not follow the rules for parameters, or the service's definition: params.to[3]: "
        + "expected string, found integer; change the value at that path")
  }

  // MARK: Errors of the app

  @Test func anErrorOfTheAppKeepsItsDataOutOfDescriptions() throws {
    let id = try ServiceIdentifier("com.example.x")
    let error = ServiceReplyError(domain: id, code: -7, text: "secret text", details: ["secret": "x"])
    var dumped = ""
    dump(error, to: &dumped)
    for text in ["\(error)", String(reflecting: error), dumped] {
      #expect(!text.contains("secret"))
      #expect(text.contains("com.example.x") && text.contains("-7"))
    }
  }

  @Test func textOf4096BytesIsTakenAndOneMoreRefused() throws {
    try ServiceReplyError(code: 1, text: String(repeating: "é", count: 2048)).validate()
    let error = try servicesError(.invalidParams) {
      try ServiceReplyError(code: 1, text: String(repeating: "é", count: 2048) + "a").validate()
    }
    #expect(place(error) == "error.text: more than 4096 bytes")
  }

  @Test func detailsFollowTheRulesForParams() throws {
    try ServiceReplyError(code: 1, details: ["a": [1]]).validate()
    let error = try servicesError(.invalidParams) {
      try ServiceReplyError(code: 1, details: ["a": [1, "b"]]).validate()
    }
    #expect(error.path == "error.details.a[1]")
    _ = try servicesError(.invalidParams) {
      try ServiceReplyError(code: 1, details: ["a": 1]).validate(limits: .init(elementCountMax: 0))
    }
  }

  // MARK: NSError

  @Test func anErrorOfTheRuntimeIsAnNSErrorWithItsNumber() throws {
    let error = ServicesError(.invalidParams, path: "params.to", detail: "expected string")
    let bridged = error as NSError
    #expect(bridged.domain == ServicesError.errorDomain && bridged.code == 8)
    #expect(ServicesError.errorDomain == "OpenDynamicsServicesErrorDomain")
    for text in [
      bridged.localizedDescription, error.localizedDescription, (error as any Error).localizedDescription,
    ] {
      #expect(text == error.description)
    }
    #expect(bridged.localizedFailureReason == error.code.what)
    #expect(bridged.localizedRecoverySuggestion == error.code.remedy)
    #expect(bridged.userInfo[ServicesError.errorKey] as? ServicesError == error)
    // What crossed as a number only.
    let code = ServicesError.Code(rawValue: Int32(bridged.code))
    #expect(code == .invalidParams)
    #expect((ServicesError(.init(rawValue: 57)) as NSError).code == 57)
  }

  @Test func anErrorOfTheAppIsAnNSErrorOfItsService() throws {
    let error = ServiceReplyError(
      domain: try ServiceIdentifier("com.example.x"), code: -7, text: "no paper",
      details: ["trays": [1, 2], "name": "left", "isOpen": true])
    for bridged in [error as NSError, (error as any Error) as NSError, error.nsError] {
      #expect(bridged.domain == "com.example.x" && bridged.code == -7)
      #expect(bridged.localizedDescription == "no paper")
    }
    let userInfo = error.nsError.userInfo
    #expect(userInfo.count == 5)
    #expect((userInfo["trays"] as? [Any])?.compactMap { $0 as? Int } == [1, 2])
    #expect(userInfo["name"] as? String == "left" && userInfo["isOpen"] as? Bool == true)
    #expect(userInfo[ServiceReplyError.errorKey] as? ServiceReplyError == error)
    #expect(
      try ServiceValue(foundation: userInfo.filter { error.details[$0.key] != nil }) == .object(error.details)
    )
  }

  @Test func anErrorOfTheAppWithoutAServiceOrATextIsAnNSError() {
    let error = ServiceReplyError(code: .max, details: [NSLocalizedDescriptionKey: "of the details"])
    #expect(error.nsError.domain == ServiceReplyError.errorDomain && error.nsError.code == Int.max)
    #expect(error.nsError.localizedDescription == "error \(Int64.max) of the other app")
    #expect((error as NSError).domain == ServiceReplyError.errorDomain)
  }
}
