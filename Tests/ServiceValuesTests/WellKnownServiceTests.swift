import Foundation
import Testing

@testable import ServiceValues

struct WellKnownServiceTests {
  private let folder = packageRoot.appending(path: "Fixtures/ServiceDefinitions")

  @Test(arguments: WellKnownService.allCases)
  func theTextIsTheFixtureByteForByte(service: WellKnownService) throws {
    let file = try Data(contentsOf: folder.appending(path: service.rawValue + ".json"))
    #expect(Data(service.definitionText.utf8) == file)
    #expect(try ServiceDefinition(json: Array(file)) == service.definition)
  }

  @Test func eachFixtureHasACase() throws {
    let files = try FileManager.default.contentsOfDirectory(atPath: folder.path)
    #expect(files.sorted() == WellKnownService.allCases.map { $0.rawValue + ".json" }.sorted())
  }

  /// Ids, versions and methods as existing apps have them.
  @Test func idsAreThoseThatAppsUse() throws {
    let facts = WellKnownService.allCases.map {
      "\($0) \($0.serviceID) \($0.version) " + $0.definition.methods.keys.sorted().joined(separator: ",")
    }
    #expect(
      facts == [
        "transferFile com.good.gdservice.transfer-file 1.0.0.0 transferFile",
        "saveFiles com.good.gdservice.save-files 1.0.0.0 saveFiles",
        "editFile com.good.gdservice.edit-file 1.0.0.0 editFile",
        "saveEditedFile com.good.gdservice.save-edited-file 1.0.0.0 releaseEdit,saveEdit",
        "sendEmail com.good.gfeservice.send-email 1.0.0.0 sendEmail",
        "openURL com.good.gdservice.open-url.http 1.0.0.0 open",
        "createCalendarItem com.good.gdservice.create-calendar-item 1.0.0.0 createCalendarItem",
        "openCatalog com.blackberry.gdservice.open-catalog 1.0.0.0 open",
        "openShareURL com.good.gsservice.open-share-url 1.0.0.0 open",
        "requestLinks com.good.gdservice.request-links 1.0.0.0 requestLinks",
        "frontRequest com.good.gd.icc 1.0.0.0 FRONT_REQ",
        "greetings com.good.gd.example.services.greetings 1.0.0 greetMe|0,greetMe|1,greetMe|2,sendFiles",
      ])
  }

  @Test func aServiceIsFoundByIdAndVersion() throws {
    for service in WellKnownService.allCases {
      #expect(WellKnownService(serviceID: service.serviceID, version: service.version) == service)
    }
    let icc = try ServiceIdentifier("com.good.gd.icc")
    #expect(WellKnownService(serviceID: icc, version: try ServiceVersion("1.0.0")) == nil)
  }

  @Test func transferFileTakesExactlyOneFileAndNoParams() throws {
    let definition = WellKnownService.transferFile.definition
    try definition.validate(request: "transferFile", params: nil, attachmentCount: 1)
    try definition.validate(request: "transferFile", params: .null, attachmentCount: 1)
    try definition.validate(response: "transferFile", params: nil)
    try definition.validate(error: .init(code: 5, text: "no"), of: "transferFile")
    for count in [0, 2] {
      let error = try servicesError(.invalidParams) {
        try definition.validate(request: "transferFile", params: nil, attachmentCount: count)
      }
      #expect(place(error) == "method transferFile, attachments: expected exactly 1, found \(count)")
    }
    _ = try servicesError(.invalidParams) {
      try definition.validate(request: "transferFile", params: ["a": 1], attachmentCount: 1)
    }
  }

  @Test func editFileEchoesBytesAndHasThreeErrors() throws {
    let definition = WellKnownService.editFile.definition
    try definition.validate(
      request: "editFile", params: ["identificationData": .bytes([1])], attachmentCount: 1)
    try definition.validate(request: "editFile", params: nil, attachmentCount: 1)
    let error = try servicesError(.invalidParams) {
      try definition.validate(request: "editFile", params: ["identificationData": "x"], attachmentCount: 1)
    }
    #expect(
      place(error) == "method editFile, params.identificationData: expected UInt8Array, found string")
    #expect(try definition.errorCodes("editFile") == [1, 2, 3])
    #expect(try definition.definesReply("editFile"))
  }

  @Test func sendEmailNamesTheAddressThatIsWrong() throws {
    let definition = WellKnownService.sendEmail.definition
    try definition.validate(
      request: "sendEmail", params: ["to": ["a@b"], "subject": "s"], attachmentCount: 9)
    let error = try servicesError(.invalidParams) {
      try definition.validate(request: "sendEmail", params: ["to": ["a", "b", 3]])
    }
    #expect(place(error) == "method sendEmail, params.to[2]: expected string, found integer")
  }

  @Test func aFrontRequestHasNoReply() throws {
    #expect("\(FrontRequest.serviceID) \(FrontRequest.version)" == "com.good.gd.icc 1.0.0.0")
    #expect(FrontRequest.method == "FRONT_REQ")
    let definition = WellKnownService.frontRequest.definition
    try definition.validate(request: FrontRequest.method, params: nil)
    #expect(try !definition.definesReply(FrontRequest.method))
    _ = try servicesError(.invalidParams) {
      try definition.validate(request: FrontRequest.method, params: nil, attachmentCount: 1)
    }
  }

  /// What it takes and answers is not known, so that nothing of what an app sends is refused.
  @Test func requestLinksIsOpen() throws {
    let definition = WellKnownService.requestLinks.definition
    for value: ServiceValue? in [nil, .null, "text", 1, ["a": [1]], .bytes([1])] {
      try definition.validate(request: "requestLinks", params: value, attachmentCount: 3)
      try definition.validate(response: "requestLinks", params: value, attachmentCount: 3)
    }
    try definition.validate(error: .init(code: 5, text: "no"), of: "requestLinks")
    #expect(try definition.definesReply("requestLinks"))
    _ = try servicesError(.methodNotFound) { try definition.validate(request: "open", params: nil) }
  }

  @Test func anOpenURLNeedsAURL() throws {
    for service in [WellKnownService.openURL, .openCatalog, .openShareURL] {
      try service.definition.validate(request: "open", params: ["url": "https://example.com"])
      let error = try servicesError(.invalidParams) {
        try service.definition.validate(request: "open", params: [:])
      }
      #expect(place(error) == "method open, params.url: missing, and required")
      _ = try servicesError(.invalidParams) { try service.definition.validate(request: "open", params: nil) }
    }
  }
}
