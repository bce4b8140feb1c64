import AppKinetics
import AppKineticsTesting
import Foundation
import SecureFiles
import Testing

/// Two apps, a broker, real sockets.
struct RequestTests {
  @Test func repliesToARequest() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { request in
        #expect(request.sender.text == "com.example.consumer")
        #expect(
          request.method == "echo" && request.version == echo.version && request.service == echo.serviceID)
        return .reply(request.params)
      }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try await consumer.services.start()
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", params: "hello"), to: provider.id)
      #expect(sent.expectsReply == true)
      try await sent.delivered()
      let reply = try await sent.reply()
      #expect(reply == ServiceReply(sender: provider.id, params: "hello"))
      #expect(sent.status == .replied)
      var events: [RequestEvent] = []
      for await event in sent.events { events.append(event) }
      #expect(events == [.didFinishSending, .didReceive(reply!)])
    }
  }

  /// By a thread that is not one of Swift's tasks.
  @Test func waitsForThreads() async throws {
    try await withTestApps { world in
      let provider = try await world.echoPair().provider
      let services = try await world.app("com.example.thread").services
      let waited = Box<Result<ServiceValue?, any Error>>()
      Thread.detachNewThread {
        waited.put(
          Result {
            try services.startAndWait()
            guard try services.providersAndWait(of: echo.serviceID).map(\.application) == [provider.id] else {
              throw ServicesError(.general)
            }
            let sent = try services.sendAndWait(ServiceRequest(echo, "echo", params: 6), to: provider.id)
            #expect(sent.application == provider.id)
            #expect(throws: ServicesError.self) { try services.bringToFrontAndWait(provider.id) }
            #expect(throws: ServicesError.self) { try services.launchAndWait(provider.id) }
            #expect(throws: ServicesError.self) {
              try services.callAndWait(ServiceRequest(echo, "none").withoutDefinition, to: provider.id)
            }
            let reply = try services.callAndWait(ServiceRequest(echo, "echo", params: 5), to: provider.id)
            services.stopAndWait()
            return reply?.params
          })
      }
      #expect(try #require(await waited.next()).get() == 5)
    }
  }

  @Test func thePreferencesHaveTheNumbersOfTheGreetings() {
    #expect(ForegroundPreference.allCases == [.me, .peer, .none])
    #expect(ForegroundPreference.allCases.map(\.rawValue) == [0, 1, 2])
  }

  /// Swift runs tasks on as many threads as there are processors. All of them may wait.
  @Test func waitsOnEachThreadOfTheTasks() async throws {
    try await withTestApps { world in
      let (provider, consumer) = try await world.echoPair()
      @Sendable func call(_ i: Int) throws -> ServiceValue? {
        let request = ServiceRequest(echo, "echo", params: .integer(Int64(i)))
        return try consumer.callAndWait(request, to: provider.id)?.params
      }
      let count = 4 * ProcessInfo.processInfo.activeProcessorCount
      try await withThrowingTaskGroup(of: Void.self) { group in
        for i in 0..<count {
          group.addTask {
            let value = try call(i)
            #expect(value == .integer(Int64(i)))
          }
        }
        try await group.waitForAll()
      }
    }
  }

  @Test func cancelsAllRequestsToAnApp() async throws {
    try await withTestApps { world in
      let (provider, consumer) = try await world.echoPair { _ in
        try await Task.sleep(for: .seconds(3600))
        return .noReply
      }
      let handled = try await consumer.send(ServiceRequest(echo, "echo"), to: provider.id)
      try await handled.delivered()
      #expect(try await !consumer.cancelRequests(to: provider.id))
      try await provider.services.setState(.locked)
      let waiting = try await consumer.send(ServiceRequest(echo, "echo"), to: provider.id)
      #expect(try await consumer.cancelRequests(to: provider.id))
      await #expect(throws: ServicesError(.cancelled)) { try await waiting.reply() }
      var events: [RequestEvent] = []
      for await event in waiting.events { events.append(event) }
      #expect(events == [.didFail(ServicesError(.cancelled))])
    }
  }

  @Test func cancelsAllRequestsOfAnEarlierProcess() async throws {
    try await withTestApps { world in
      let provider = try await world.start("com.example.provider") {
        try $0.offer(echo) { .reply($0.params) }
      }
      try await provider.services.setState(.locked)
      let consumer = try await world.start("com.example.consumer")
      try consumer.put("one", at: "/one")
      for _ in 0..<2 {
        _ = try await consumer.services.send(
          ServiceRequest(echo, "echo", attachments: ["/one"]), to: provider.id)
      }
      let again = try await world.restart(consumer)
      #expect(try await !again.services.cancelRequests(to: again.id))
      #expect(try await again.services.outbox().count == 2)
      #expect(try await again.services.cancelRequests(to: provider.id))
      #expect(try await again.services.outbox().isEmpty)
      #expect(try await !again.services.cancelRequests(to: provider.id))
    }
  }

  @Test func anErrorThatBreaksALimitBecomesOneThatSaysSo() async throws {
    try await withTestApps { world in
      let (provider, consumer) = try await world.echoPair { _ in
        throw ServiceReplyError(
          code: 5, text: String(repeating: "x", count: ServiceReplyError.textByteCountMax + 1))
      }
      let error = await #expect(throws: ServiceReplyError.self) {
        try await consumer.call(ServiceRequest(echo, "echo"), to: provider.id)
      }
      #expect(error?.runtimeError == .invalidParams && error?.text == "error.text")
    }
  }

  @Test func cancelsARequestByItsID() async throws {
    try await withTestApps { world in
      let (provider, consumer) = try await world.echoPair { request in
        guard request.params == 1 else { return .reply() }
        try await Task.sleep(for: .seconds(3600))
        return .noReply
      }
      let answered = try await consumer.send(ServiceRequest(echo, "echo"), to: provider.id)
      _ = try await answered.reply()
      #expect(try await !consumer.cancelRequest(answered.id, to: provider.id))
      // It was too late, but the handler is told.
      let handled = try await consumer.send(ServiceRequest(echo, "echo", params: 1), to: provider.id)
      try await handled.delivered()
      #expect(try await !consumer.cancelRequest(handled.id, to: provider.id))
      let error = await #expect(throws: ServiceReplyError.self) { try await handled.reply() }
      #expect(error?.runtimeError == .cancelled)
      try await provider.services.setState(.locked)
      let waiting = try await consumer.send(ServiceRequest(echo, "echo"), to: provider.id)
      #expect(try await !consumer.cancelRequest(waiting.id, to: ApplicationID("com.example.other")))
      #expect(try await consumer.cancelRequest(waiting.id, to: provider.id))
      await #expect(throws: ServicesError(.cancelled)) { try await waiting.reply() }
      #expect(try await !consumer.cancelRequest(.random(), to: provider.id))
    }
  }

  /// More than may wait to be written, in either direction: while there is no channel yet, and while the other side is slow.
  @Test func sendsMoreAtOnceThanMayWait() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try await consumer.services.start()
      let count = 30
      let replies = try await withThrowingTaskGroup(of: ServiceValue?.self) { group in
        for n in 0..<count {
          group.addTask {
            let params = ServiceValue.bytes(Array(repeating: UInt8(n), count: 1_000_000))
            return try await consumer.services.call(
              ServiceRequest(echo, "echo", params: params), to: provider.id)?.params
          }
        }
        var numbers: Set<UInt8> = []
        for try await case .bytes(let bytes)? in group where bytes.count == 1_000_000 {
          if let first = bytes.first { numbers.insert(first) }
        }
        return numbers
      }
      #expect(replies == Set((0..<count).map(UInt8.init)))
    }
  }

  @Test func keepsKindsApart() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try await consumer.services.start()
      let values: [ServiceValue?] = [
        nil, .null, .boolean(true), .integer(1), .number(1), .integer(.min), .integer(.max), .number(-0.0),
        .number(.leastNonzeroMagnitude), .string(""), .string("ü\u{0}"), .bytes([]), .bytes([0, 255]),
        .array([]),
        .array([.integer(1), .integer(2)]), .array([.null]), .object([:]),
        .object(["a": .object(["b": .array([.number(1)])]), "": .bytes([1])]),
      ]
      for value in values {
        let reply = try await consumer.services.call(
          ServiceRequest(echo, "echo", params: value), to: provider.id)
        #expect(reply?.params == value)
      }
    }
  }

  @Test func tellsTheErrorOfTheApp() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { _ in
        throw ServiceReplyError(
          domain: try ServiceIdentifier("com.example.other"), code: -7, text: "no", details: ["why": 3])
      }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try await consumer.services.start()
      await #expect(
        throws: ServiceReplyError(domain: echo.serviceID, code: -7, text: "no", details: ["why": 3])
      ) {
        try await consumer.services.call(ServiceRequest(echo, "echo"), to: provider.id)
      }
    }
  }

  @Test func hidesWhatElseAHandlerThrows() async throws {
    struct Secret: Error { let text = "secret" }
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { request in
        if request.params == nil { throw Secret() }
        throw ServicesError(.methodNotFound)
      }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try await consumer.services.start()
      await #expect(
        throws: ServiceReplyError(domain: echo.serviceID, code: -1_000_001, text: "the provider failed")
      ) {
        try await consumer.services.call(ServiceRequest(echo, "echo"), to: provider.id)
      }
      await #expect(
        throws: ServiceReplyError(domain: echo.serviceID, code: -1_000_006, text: "methodNotFound")
      ) {
        try await consumer.services.call(ServiceRequest(echo, "echo", params: 1), to: provider.id)
      }
    }
  }

  @Test func knowsThatNoReplyComes() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { _ in .noReply }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try await consumer.services.start()
      let sent = try await consumer.services.send(ServiceRequest(echo, "tell", params: 1), to: provider.id)
      #expect(sent.expectsReply == false)
      #expect(try await sent.reply() == nil)
      #expect(sent.status == .endedWithoutReply)
    }
  }

  @Test func knowsThatNoReplyComesOfAnObject() async throws {
    final class Silent: ServiceProvider {
      func didReceive(_ request: IncomingRequest) {}
    }
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer([echo], provider: Silent())
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      // More than one channel has room for.
      var last: SentRequest?
      for _ in 0..<1200 { last = try await consumer.send(ServiceRequest(echo, "tell"), to: provider.id) }
      #expect(try await last?.reply() == nil)
      #expect(last?.status == .endedWithoutReply)
    }
  }

  @Test func offersAllOrNothing() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider").services
      final class Silent: ServiceProvider {
        func didReceive(_ request: IncomingRequest) {}
      }
      try provider.offer(greetings) { _ in .noReply }
      #expect(throws: ServicesError.self) { try provider.offer([echo, greetings], provider: Silent()) }
      #expect(throws: ServicesError.self) { try provider.offer([echo, echo], provider: Silent()) }
      try provider.offer([echo], provider: Silent())
    }
  }

  @Test func limitsTheNameOfAMethod() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      func request(_ byteCount: Int) -> ServiceRequest {
        ServiceRequest(
          service: echo.serviceID, version: echo.version, method: String(repeating: "m", count: byteCount))
      }
      let sent = try await consumer.send(request(255), to: provider.id)
      await #expect(throws: ServicesError(.methodNotFound)) { try await sent.reply() }
      do {
        _ = try await consumer.send(request(256), to: provider.id)
        Issue.record("an error expected")
      } catch ServicesError.methodNotFound {
      }
    }
  }

  @Test func refusesWhatIsNotOffered() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      func expect(_ code: ServicesError.Code, service: String, version: String, method: String) async throws {
        let request = ServiceRequest(
          service: try ServiceIdentifier(service), version: try ServiceVersion(version), method: method)
        let sent = try await consumer.send(request, to: provider.id)
        do {
          _ = try await sent.reply()
          Issue.record("\(code) expected")
        } catch let error as ServicesError {
          #expect(error.code == code)
          #expect(sent.status == .refused)
        }
      }
      try await expect(.serviceNotFound, service: "com.example.other", version: "1.0.0.0", method: "echo")
      try await expect(.versionNotFound, service: "com.example.echo", version: "1.0.0", method: "echo")
      try await expect(.methodNotFound, service: "com.example.echo", version: "1.0.0.0", method: "ECHO")
      provider.services.setDisabled(true, echo.serviceID, version: echo.version, method: "echo")
      try await expect(.methodDisabled, service: "com.example.echo", version: "1.0.0.0", method: "echo")
      provider.services.setDisabled(true, echo.serviceID, version: echo.version)
      try await expect(.versionDisabled, service: "com.example.echo", version: "1.0.0.0", method: "echo")
      provider.services.setDisabled(true, echo.serviceID)
      try await expect(.serviceDisabled, service: "com.example.echo", version: "1.0.0.0", method: "echo")
      provider.services.setDisabled(false, echo.serviceID)
      provider.services.setDisabled(false, echo.serviceID, version: echo.version)
      provider.services.setDisabled(false, echo.serviceID, version: echo.version, method: "echo")
      #expect(try await consumer.call(ServiceRequest(echo, "echo", params: 1), to: provider.id)?.params == 1)
    }
  }

  @Test func throwsWhatIsKnownBeforeSending() async throws {
    try await withTestApps { world in
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      let nobody = try ApplicationID("com.example.nobody")
      await #expect(throws: ServicesError(.applicationNotFound)) {
        try await consumer.send(ServiceRequest(echo, "echo"), to: nobody)
      }
      let mixed = ServiceRequest(
        service: echo.serviceID, version: echo.version, method: "echo",
        params: .array([.integer(1), .number(1)]))
      do {
        _ = try await consumer.send(mixed, to: nobody)
        Issue.record("an error expected")
      } catch ServicesError.invalidParams {
      }
      do {
        _ = try await consumer.send(ServiceRequest(echo, "add", params: .array([.string("x")])), to: nobody)
        Issue.record("an error expected")
      } catch let error as ServicesError {
        #expect(error.code == .invalidParams && error.path == "method add, params[0]")
      }
      do {
        _ = try await consumer.send(ServiceRequest(echo, "echo", attachments: ["/none"]), to: nobody)
        Issue.record("an error expected")
      } catch let error as ServicesError {
        #expect(error == ServicesError(.attachmentNotFound, path: "/none"))
      }
    }
  }

  @Test func needsABroker() async throws {
    try await withTestApps { world in
      let consumer = try await world.app("com.example.consumer").services
      await #expect(throws: ServicesError.self) {
        try await consumer.send(ServiceRequest(echo, "echo"), to: ApplicationID("com.example.provider"))
      }
      await world.stopBroker()
      do {
        try await consumer.start()
        Issue.record("an error expected")
      } catch let error as ServicesError {
        #expect(error == ServicesError(.brokerUnavailable, detail: "nobody answers at \(world.socketPath)"))
      }
      try await world.startBroker()
      try await consumer.start()
    }
  }

  @Test func validatesAtTheProvider() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo, validates: true) { request in
        request.params == .array([.integer(0)]) ? .reply("wrong") : .reply(.integer(3))
      }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      func add(_ params: ServiceValue?) async throws -> ServiceReply? {
        try await consumer.call(
          ServiceRequest(service: echo.serviceID, version: echo.version, method: "add", params: params),
          to: provider.id)
      }
      do {
        _ = try await add(.array([.number(1)]))
        Issue.record("an error expected")
      } catch let error as ServicesError {
        #expect(error.code == .invalidParams && error.detail == "method add, params[0]")
      }
      #expect(try await add(.array([.integer(1)]))?.params == 3)
      // A reply against the definition is not sent: the consumer hears of an error.
      await #expect(throws: ServiceReplyError.self) { try await add(.array([.integer(0)])) }
    }
  }

  @Test func keepsTheOrderOfRequests() async throws {
    try await withTestApps { world in
      let seen = Box<Int64>()
      let (provider, consumer) = try await world.echoPair { request in
        seen.put(request.params?.integerValue ?? -1)
        // Those that come later do not wait for this one.
        if request.params == .integer(0) { try await Task.sleep(for: .milliseconds(50)) }
        return .reply(request.params)
      }
      try await expectEchoes(3000, to: provider.id, consumer)
      #expect(seen.values == (0..<3000).map { Int64($0) })
    }
  }

  @Test func repliesOnceAndLater() async throws {
    final class Slow: ServiceProvider {
      let requests = Box<IncomingRequest>()
      let finished = Box<RequestID>()
      func didReceive(_ request: IncomingRequest) { requests.put(request) }
      func didFinishSending(
        _ params: ServiceValue?, attachments: [String], for request: IncomingRequest
      ) { finished.put(request.id) }
    }
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let slow = Slow()
      try provider.services.offer([echo, greetings], provider: slow)
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      let sent = try await consumer.send(ServiceRequest(echo, "echo"), to: provider.id)
      let request = try #require(await slow.requests.next())
      #expect(request.id == sent.id)
      try await sent.delivered()
      #expect(sent.status == .delivered)
      try await request.reply("late")
      await #expect(throws: ServicesError.self) { try await request.reply("again") }
      #expect(throws: ServicesError.self) { try request.endWithoutReply() }
      #expect(try await sent.reply()?.params == "late")
      #expect(await slow.finished.next() == sent.id)
    }
  }

  @Test func cancelsWhatWaits() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let seen = Box<Int64>()
      let gate = DispatchSemaphore(value: 0)
      try provider.services.offer(echo) { request in
        seen.put(request.params?.integerValue ?? -1)
        // Holds the callback queue, as a provider should not.
        if request.params == .integer(0) { waitBlocking(gate) }
        return .reply(request.params)
      }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      let first = try await consumer.send(ServiceRequest(echo, "echo", params: 0), to: provider.id)
      #expect(await seen.next() == 0)
      let second = try await consumer.send(ServiceRequest(echo, "echo", params: 1), to: provider.id)
      let third = try await consumer.send(ServiceRequest(echo, "echo", params: 2), to: provider.id)
      // Whether it was accepted before or not: the handler has not seen it, or it was too late.
      let wasCancelled = await second.cancel()
      gate.signal()
      #expect(try await first.reply()?.params == 0)
      #expect(try await third.reply()?.params == 2)
      if wasCancelled {
        #expect(second.status == .cancelled)
        await #expect(throws: ServicesError(.cancelled)) { try await second.reply() }
        #expect(seen.values == [0, 2])
      } else {
        #expect(try await second.reply()?.params == 1)
      }
      #expect(await third.cancel() == false)
    }
  }

  @Test func tellsTheHandlerOfACancellation() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let began = Box<Bool>()
      let cancelled = Box<Bool>()
      try provider.services.offer(echo) { request in
        request.onCancel { cancelled.put(true) }
        began.put(true)
        try await Task.sleep(for: .seconds(3600))
        return .noReply
      }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      let sent = try await consumer.send(ServiceRequest(echo, "echo"), to: provider.id)
      #expect(await began.next() == true)
      try await sent.delivered()
      #expect(await sent.cancel() == false)
      #expect(await cancelled.next() == true)
      await #expect(throws: ServiceReplyError(domain: echo.serviceID, code: -1_000_014, text: "cancelled")) {
        try await sent.reply()
      }
    }
  }
}
