import AppKinetics
import BlackBerryDynamicsTesting
import Locks
import Testing

@testable import BlackBerryDynamics

/// A client and a service whose delegate replies with `answer`.
private final class Endpoints: NSObject, GDServiceDelegate, GDServiceClientDelegate, Sendable {
  typealias Answer =
    @Sendable (_ from: String, _ method: String, _ params: Any, _ files: [String], _ id: String) -> Void

  let told = Told()
  let client = GDServiceClient()
  let service = GDService()
  private let answer: Answer

  init(_ answer: @escaping Answer = { _, _, _, _, _ in }) {
    self.answer = answer
    super.init()
  }

  func begin() { (client.delegate, service.delegate) = (self, self) }

  func gdServiceDidReceive(
    from application: String, forService service: String, withVersion version: String,
    forMethod method: String, withParams params: Any, withAttachments attachments: [String],
    forRequestID requestID: String
  ) {
    told.add("request \(service) \(version) \(method)")
    answer(application, method, params, attachments, requestID)
  }

  func gdServiceWillStartReceiving(
    from application: String, numberOfAttachments: UInt, forRequestID requestID: String
  ) { told.add("service expects \(numberOfAttachments)") }

  func gdServiceWillStartReceiving(
    from application: String, attachmentPath path: String, fileSize: NSNumber,
    forRequestID requestID: String
  ) { told.add("service expects a file of \(fileSize)") }

  func gdServiceDidFinishSending(
    to application: String, withAttachments attachments: [String], withParams params: Any,
    correspondingToRequestID requestID: String
  ) { told.add("service has sent") }

  func gdServiceClientDidReceive(
    from application: String, withParams params: Any, withAttachments attachments: [String],
    correspondingToRequestID requestID: String
  ) {
    if let error = params as? NSError {
      told.add("error \(error.domain) \(error.code) \(error.userInfo["detail"] ?? "-")")
    } else {
      let exists = attachments.allSatisfy { GDFileManager.default().fileExists(atPath: $0) }
      told.add("reply \(params as? String ?? "nothing") \(attachments.count) \(exists)")
    }
  }

  func gdServiceClientDidStartSending(
    to application: String, withFilename filename: String, correspondingToRequestID requestID: String
  ) { told.add("start \((filename as NSString).lastPathComponent)") }

  func gdServiceClientDidFinishSending(
    to application: String, withAttachments attachments: [String], withParams params: Any,
    correspondingToRequestID requestID: String
  ) { told.add("finish \(attachments.count)") }

  func gdServiceClientWillStartReceiving(
    from application: String, numberOfAttachments: UInt, forRequestID requestID: String
  ) { told.add("expect \(numberOfAttachments)") }

  func gdServiceClientWillStartReceiving(
    from application: String, attachmentPath path: String, fileSize: NSNumber,
    forRequestID requestID: String
  ) { told.add("expect a file of \(fileSize)") }
}

private func reply(
  _ params: Any?, _ files: [String] = [], to application: String? = nil, _ id: String
) throws {
  try GDService.reply(
    to: application, withParams: params, bringClientToFront: .GDENoForegroundPreference,
    withAttachments: files, requestID: id)
}

@discardableResult
private func send(
  _ method: String, _ params: Any? = nil, _ files: [String]? = nil,
  to application: String = "com.example.peer",
  service: String = "com.example.echo", version: String = "1.0.0"
) throws -> String? {
  var id: NSString?
  try GDServiceClient.send(
    to: application, withService: service, withVersion: version, withMethod: method, withParams: params,
    withAttachments: files, bringServiceToFront: .GDENoForegroundPreference, requestID: &id)
  return id.map { "\($0)" }
}

private func code(_ body: () throws -> Void) -> Int? {
  do { try body() } catch let error as NSError where error.domain == GDServicesErrorDomain {
    return error.code
  } catch {
    return nil
  }
  return 0
}

extension AppTests {
  struct ServiceTests {
    private func withPeer(
      offering services: [GDConfiguration.Service] = [], _ body: (TestApp) async throws -> Void
    ) async throws {
      let change: @Sendable (inout GDConfiguration) -> Void = { $0.services = services }
      try await withGDApp(change) { apps, _ in
        let peer = try await apps.start("com.example.peer")
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        try await body(peer)
      }
    }

    private var gd: ApplicationID { get throws { try ApplicationID("com.example.gd") } }

    private func request(_ method: String, _ params: ServiceValue? = nil) throws -> ServiceRequest {
      ServiceRequest(
        service: try ServiceIdentifier("com.example.service"), version: try ServiceVersion("1.0.0"),
        method: method, params: params)
    }

    @Test func theClientHearsOfARequestInOrder() async throws {
      try await withPeer { peer in
        peer.services.offerRest { .reply("hello", attachments: $0.attachments) }
        let files = GDFileManager.default()
        #expect(files.createFile(atPath: "/Documents/a", contents: Data("abc".utf8)))
        let endpoints = Endpoints()
        let path = NSSearchPathForDirectoriesInDomains(.documentDirectory, .userDomainMask, true)[0] + "/a"
        let id = try #require(try send("m", nil, [path]))
        #expect(id.count == 32)
        // What comes while there is no delegate waits for one.
        try await Task.sleep(for: .milliseconds(100))
        endpoints.begin()
        try await endpoints.told.wait(for: "reply hello 1 true")
        #expect(
          endpoints.told.all == [
            "start a", "finish 1", "expect 1", "expect a file of 3", "reply hello 1 true",
          ])
      }
    }

    @Test func theServiceHearsOfEveryRequestAndRepliesLate() async throws {
      try await withPeer { peer in
        let endpoints = Endpoints { application, method, params, files, id in
          let text = params as? String ?? "nothing"
          // From another thread, after the callback has returned.
          DispatchQueue.global().async {
            try! reply("\(method) \(text)", files, to: application, id)
            // Neither a second reply nor one to nothing is an error for the app.
            try! reply("again", to: application, id)
            try! reply("nobody", [], "")
          }
        }
        endpoints.begin()
        #expect(try await peer.services.call(try request("a", "x"), to: gd)?.params == "a x")
        #expect(try await peer.services.call(try request("b"), to: gd)?.params == "b nothing")
        try peer.put("abc", at: "/file")
        var withFile = try request("c")
        withFile.attachments = ["/file"]
        #expect(try await peer.services.call(withFile, to: gd)?.attachments.count == 1)
        try await endpoints.told.wait(for: "service has sent")
        #expect(
          endpoints.told.all.filter { $0 != "service has sent" } == [
            "request com.example.service 1.0.0 a", "request com.example.service 1.0.0 b",
            "service expects 1", "service expects a file of 3", "request com.example.service 1.0.0 c",
          ])
      }
    }

    @Test func requestsWaitForADelegate() async throws {
      try await withPeer { peer in
        let sent = try await peer.services.send(try request("a"), to: gd)
        try await sent.delivered()
        let endpoints = Endpoints { application, _, _, _, id in try! reply(nil, to: application, id) }
        endpoints.begin()
        #expect(try await sent.reply()?.params == nil)
      }
    }

    /// Code replies with `try!`, and its owner may lock the app before.
    @Test func aReplyOfAnAppThatIsLockedIsNoError() async throws {
      try await withGDApp { apps, app in
        let peer = try await apps.start("com.example.peer")
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        let ids = Guarded<[String]>([])
        let endpoints = Endpoints { _, _, _, _, id in ids.withLock { $0.append(id) } }
        endpoints.begin()
        _ = try await peer.services.send(try request("a"), to: gd)
        try await endpoints.told.wait(for: "request com.example.service 1.0.0 a")
        try await app.manage(["blocked": ["text": "Blocked."]])
        for id in ids.withLock({ $0 }) { try reply("late", [], id) }
        #expect(throws: NSError.self) { try send("m") }
        #expect(app.misuses.all.isEmpty)
      }
    }

    /// A delegate that ends in the moment in which it is looked for, and owns the object that it is
    /// the delegate of.
    @Test func delegatesMayEndAtAnyTime() async throws {
      try await withPeer { peer in
        for _ in 0..<100 {
          var endpoints: Endpoints? = Endpoints()
          endpoints?.begin()
          async let sent = peer.services.send(try request("a"), to: gd)
          endpoints = nil
          try await sent.delivered()
        }
        let last = Endpoints()
        last.begin()
        _ = try await peer.services.send(try request("last"), to: gd)
        try await last.told.wait(for: "request com.example.service 1.0.0 last")
      }
    }

    @Test func errorsHaveTheServiceOrTheRuntimeAsTheirDomain() async throws {
      try await withPeer { peer in
        peer.services.offerRest { request in
          if request.method == "none" { throw ServicesError(.methodNotFound) }
          throw ServiceReplyError(code: 7, text: "text", details: ["detail": "d"])
        }
        let endpoints = Endpoints { application, _, _, _, id in
          try! reply(
            NSError(
              domain: GDServicesErrorDomain, code: GDServicesErrorMethodNotFound,
              userInfo: ["detail": "e", NSLocalizedDescriptionKey: "text"]), to: application, id)
        }
        endpoints.begin()
        try send("error")
        try await endpoints.told.wait(for: "error com.example.echo 7 d")
        // Also with a number of the runtime's.
        try send("none")
        try await endpoints.told.wait(for: "error com.example.echo \(GDServicesErrorMethodNotFound) -")
        do {
          _ = try await peer.services.call(try request("a"), to: gd)
          Issue.record("an error is the reply")
        } catch let error as ServiceReplyError {
          let code = Int64(GDServicesErrorMethodNotFound)
          #expect(error.code == code && error.text == "text" && error.details == ["detail": "e"])
          #expect(error.domain?.text == "com.example.service")
        }
      }
    }

    @Test func aProviderThatDoesNotReplyIsSilence() async throws {
      try await withPeer { peer in
        peer.services.offerRest { $0.method == "last" ? .reply("last") : .noReply }
        let endpoints = Endpoints()
        endpoints.begin()
        try send("m")
        try await endpoints.told.wait(for: "finish 0")
        try send("last")
        try await endpoints.told.wait(for: "reply last 0 true")
        #expect(endpoints.told.all.filter { $0 != "finish 0" } == ["reply last 0 true"])
      }
    }

    /// A provider need not reply, and its peer's credit is not endless.
    @Test func requestsWithoutARepliesEndWhenThereAreMany() async throws {
      try await withPeer { peer in
        let endpoints = Endpoints { application, method, _, _, id in
          if method == "last" { try! reply("last", to: application, id) }
        }
        endpoints.begin()
        let first = try await peer.services.send(try request("first"), to: gd)
        for _ in 0..<1500 { _ = try await peer.services.send(try request("many"), to: gd) }
        #expect(try await peer.services.call(try request("last"), to: gd)?.params == "last")
        #expect(try await first.reply() == nil)
      }
    }

    /// A file that waits goes on after a lock, and its reply is told then.
    @Test func aReplyThatComesAfterALockIsTold() async throws {
      try await withGDApp { apps, app in
        let peer = try await apps.start("com.example.peer")
        let requests = Guarded<[IncomingRequest]>([])
        peer.services.offerRest { request in
          try await request.keep()
          requests.withLock { $0.append(request) }
          return .later
        }
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        let endpoints = Endpoints()
        endpoints.begin()
        #expect(GDFileManager.default().createFile(atPath: "/Documents/a", contents: Data("abc".utf8)))
        try send("m", nil, ["/Documents/a"])
        try await endpoints.told.wait(for: "finish 1")
        try await app.manage(["blocked": ["text": "Blocked."]])
        try await handler.told.wait(for: "event 1 -301")
        for request in requests.withLock({ $0 }) { try await request.reply("late") }
        try await app.manage(["blocked": nil])
        try await handler.told.wait(for: "event 0 0", count: 2)
        try await endpoints.told.wait(for: "reply late 0 true")
        #expect(!endpoints.told.all.contains { $0.hasPrefix("error") })
      }
    }

    @Test func sendThrowsWhatCannotBeTaken() async throws {
      try await withPeer { _ in
        #expect(code { try send("m", to: "com.example.gd") } == GDServicesErrorNotAllowed)
        #expect(code { try send("m", to: "com.example.nobody") } == GDServicesErrorApplicationNotFound)
        #expect(code { try send("m", to: "no app") } == GDServicesErrorApplicationNotFound)
        #expect(code { try send("m", Date()) } == GDServicesErrorInvalidParams)
        #expect(code { try send("m", nil, ["/nothing"]) } == GDServicesErrorInvalidParams)
        #expect(code { try send("m", version: "x") } == GDServicesErrorInvalidParams)
      }
    }

    @Test func aRequestThatFailsLaterIsAReplyWithTheError() async throws {
      try await withPeer { _ in
        let endpoints = Endpoints()
        endpoints.begin()
        try send("m")
        try await endpoints.told.wait(
          for: "error \(GDServicesErrorDomain) \(GDServicesErrorServiceNotFound) -")
      }
    }

    @Test func discoveryFindsTheAppItselfAndVersionsAsTheyAre() async throws {
      try await withPeer(offering: [
        .init("com.example.service", version: "1.0.0"), .init("com.example.service", version: "1.0.0.0"),
      ]) { peer in
        try peer.services.offer(WellKnownService.transferFile.definition) { _ in .reply() }
        let gd = GDiOS.sharedInstance()
        // The broker hears of what an app offers some moments later.
        while gd.getServiceProviders().count < 2 { try await Task.sleep(for: .milliseconds(10)) }
        let own = gd.getServiceProviders(
          for: "com.example.service", andVersion: nil, andServiceType: .application)
        #expect(own.map(\.address) == ["com.example.gd"])
        #expect(Set(own[0].services.map(\.version)) == ["1.0.0", "1.0.0.0"])
        let one = gd.getServiceProviders(
          for: "com.example.service", andVersion: "1.0.0", andServiceType: .application)
        #expect(one.flatMap(\.services).map(\.version) == ["1.0.0"])
        #expect(gd.getServiceProviders(for: "x", andVersion: nil, andServiceType: .server).isEmpty)
        #expect(Set(gd.getServiceProviders().map(\.identifier)) == ["com.example.gd", "com.example.peer"])
      }
    }

    /// More calls than Swift's pool has threads, each of which blocks one.
    @Test func callsThatBlockInTasksEnd() async throws {
      try await withPeer(offering: [.init("com.example.service")]) { peer in
        peer.services.offerRest { _ in .reply() }
        let count = ProcessInfo.processInfo.activeProcessorCount * 4
        let found = try await withThrowingTaskGroup(of: Int.self) { group in
          for i in 0..<count {
            group.addTask {
              try send("m\(i)")
              return GDiOS.sharedInstance().getServiceProviders().count
            }
          }
          return try await group.reduce(0, +)
        }
        #expect(found == count)
      }
    }

    @Test func bringingToFrontSaysWhetherItCame() async throws {
      try await withGDApp { apps, _ in
        _ = try await apps.start("com.example.peer")
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        let told = handler.told
        try GDServiceClient.bring(toFront: "com.example.peer") { told.add("front \($0)") }
        try await told.wait(for: "front false")
        try await apps.bringToFront(try gd)
        try GDService.bring(toFront: "com.example.peer") { told.add("front \($0)") }
        try await told.wait(for: "front true")
      }
    }

    @Test func aCancelledRequestIsNotTold() async throws {
      try await withPeer { peer in
        let endpoints = Endpoints()
        endpoints.begin()
        try await peer.services.setState(.locked)
        let id = try send("m")
        #expect(GDServiceClient.cancelRequest(id, toApplication: "com.example.peer"))
        #expect(!GDServiceClient.cancelRequest("unknown", toApplication: "com.example.peer"))
        #expect(endpoints.told.all.isEmpty)
      }
    }
  }
}
