import AppKinetics
import AppKineticsTesting
import Foundation
import SecureFiles
import ServiceValues
import Testing

/// What becomes of front requests and of preferences, as two apps of one process see it.
@Suite(.timeLimit(.minutes(5)))
struct FrontRequestTests {
  /// Keeps its requests.
  private final class Keeper: ServiceProvider {
    let requests = Box<IncomingRequest>()
    func didReceive(_ request: IncomingRequest) { requests.put(request) }
  }

  // MARK: Preferences

  @Test(arguments: [false, true], [false, true])
  func aReplyPassesTheFrontOnWhenItHasArrived(requestHasFile: Bool, replyHasFile: Bool) async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let keeper = Keeper()
      try provider.services.offer([echo], provider: keeper)
      try provider.put("reply", at: "/file")
      var changes = provider.services.frontChanges.makeAsyncIterator()
      try await provider.services.start()
      let consumer = try await world.start("com.example.consumer")
      try consumer.put("request", at: "/file")
      try await world.bringToFront(provider.id)
      #expect(await changes.next() == true)

      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: requestHasFile ? ["/file"] : []), to: provider.id)
      let request = try #require(await keeper.requests.next())
      try await sent.delivered()
      let gate = consumer.hold()
      try await request.reply(1, attachments: replyHasFile ? ["/file"] : [], foreground: .peer)
      // Behind everything that the provider has asked the broker for by now.
      _ = try await provider.services.providers()
      try await world.choose(provider.id.text)
      #expect(world.fronts == [provider.id, provider.id])
      gate.signal()
      #expect(await changes.next() == false)
      #expect(world.fronts.last == consumer.id)
      #expect(try await sent.reply()?.params == 1)
    }
  }

  /// A handler that shows something is in front when it begins.
  @Test(arguments: [[], ["/file"]])
  func handlersBeginInFrontWhenTheirRequestsPassItOn(files: [String]) async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let states = Box<Bool>()
      try provider.services.offer(echo) { [weak services = provider.services] request in
        states.put(services?.isInFront == true)
        return .reply(request.params)
      }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try consumer.put("request", at: "/file")
      var changes = consumer.services.frontChanges.makeAsyncIterator()
      try await consumer.services.start()
      for _ in 0..<25 {
        try await world.bringToFront(consumer.id)
        #expect(await changes.next() == true)
        _ = try await consumer.services.call(
          ServiceRequest(echo, "echo", attachments: files, foreground: .peer), to: provider.id)
        #expect(await states.next() == true)
        #expect(await changes.next() == false)
      }
    }
  }

  /// A front that does not come is waited for, but not for long; one that nobody has is not.
  @Test func aHandlerWaitsFiveSecondsForTheFront() async throws {
    let clock = ManualClock()
    var options = TestApps.Options()
    options.clock = clock
    try await withTestApps(options) { world in
      let provider = try await world.start("com.example.provider") {
        try $0.offer(echo) { .reply($0.params) }
      }
      let consumer = try await world.start("com.example.consumer")
      let request = ServiceRequest(echo, "echo", params: 1, foreground: .peer)
      // The consumer is not in front, and passes nothing on.
      #expect(try await consumer.services.call(request, to: provider.id)?.params == 1)
      try await world.bringToFront(consumer.id)
      #expect(consumer.services.isInFront)
      world.refusesFront = true
      let sent = try await consumer.services.send(request, to: provider.id)
      try await sent.delivered()
      // The next one keeps its place behind it.
      let next = try await consumer.services.send(ServiceRequest(echo, "echo", params: 2), to: provider.id)
      try await next.delivered()
      _ = try await provider.services.providers()
      clock.advance(by: .milliseconds(4_900))
      _ = try await provider.services.providers()
      #expect(sent.status != .replied && next.status != .replied)
      clock.advance(by: .milliseconds(200))
      #expect(try await sent.reply()?.params == 1)
      #expect(try await next.reply()?.params == 2)
      #expect(!provider.services.isInFront)
    }
  }

  /// Else an app would have a request answered by whoever is brought to front later.
  @Test func aFrontRequestDoesNotWaitForTheFront() async throws {
    let clock = ManualClock()
    var options = TestApps.Options()
    options.clock = clock
    try await withTestApps(options) { world in
      let provider = try await world.app("com.example.provider")
      let answers = Box<ServicesError.Code?>()
      try provider.services.offer(echo) { .reply($0.params) }
      try provider.services.offer(WellKnownService.frontRequest.definition) {
        [weak services = provider.services] request in
        do {
          try await services?.bringToFront(request.sender)
          answers.put(nil)
        } catch {
          answers.put((error as? ServicesError)?.code)
        }
        return .noReply
      }
      try await provider.services.start()
      let consumer = try await world.start("com.example.consumer")
      try await world.bringToFront(consumer.id)
      world.refusesFront = true
      let first = try await consumer.services.send(
        ServiceRequest(echo, "echo", params: 1, foreground: .peer), to: provider.id)
      try await first.delivered()
      _ = try await consumer.services.requestFront(from: provider.id)
      #expect(await answers.next() == .notInFront)
      #expect(try await first.reply()?.params == 1)
    }
  }

  /// The handler replies at once: the reply may overtake what settles the delivery of the request.
  @Test func aRequestWithFilesPassesTheFrontOnWhateverItsReplyDoes() async throws {
    try await withTestApps { world in
      let provider = try await world.start("com.example.provider") {
        try $0.offer(echo) { .reply($0.params) }
      }
      let consumer = try await world.app("com.example.consumer")
      try consumer.put("request", at: "/file")
      var changes = consumer.services.frontChanges.makeAsyncIterator()
      try await consumer.services.start()
      for i in 0..<10 {
        try await world.bringToFront(consumer.id)
        #expect(await changes.next() == true)
        let reply = try await consumer.services.call(
          ServiceRequest(
            echo, "echo", params: .integer(Int64(i)), attachments: ["/file"], foreground: .peer),
          to: provider.id)
        #expect(reply?.params == .integer(Int64(i)))
        #expect(await changes.next() == false)
      }
    }
  }

  // MARK: Handlers of front requests

  enum Answer: CaseIterable {
    case reply, error, object
  }

  /// Offers the front request, and calls back with each that comes.
  private func offerFrontRequest(
    _ services: AppServices, _ answer: Answer, _ came: @escaping @Sendable (IncomingRequest) -> Void
  ) throws {
    let definition = WellKnownService.frontRequest.definition
    switch answer {
    case .reply:
      try services.offer(definition) { request in
        came(request)
        return .reply("not sent")
      }
    case .error:
      try services.offer(definition) { request in
        came(request)
        throw ServiceReplyError(code: 5, text: "not sent")
      }
    case .object: try services.offer([definition], provider: Replying(came))
    }
  }

  /// Replies, although a front request has no reply.
  private final class Replying: ServiceProvider {
    private let came: @Sendable (IncomingRequest) -> Void
    init(_ came: @escaping @Sendable (IncomingRequest) -> Void) { self.came = came }
    func didReceive(_ request: IncomingRequest) {
      Task {
        await #expect(throws: ServicesError.self) { try await request.reply("not sent") }
        came(request)
      }
    }
  }

  /// A front request that breaks its definition, if it has a file.
  private func frontRequest(hasFile: Bool) -> ServiceRequest {
    ServiceRequest(
      service: FrontRequest.serviceID, version: FrontRequest.version, method: FrontRequest.method,
      attachments: hasFile ? ["/file"] : [])
  }

  /// The app that sends front requests.
  private func sender(_ world: TestApps) async throws -> TestApp {
    let sender = try await world.start("com.example.sender")
    try sender.put("file", at: "/file")
    return sender
  }

  /// Sends one to a process whose earlier one may not have ended yet for the sender.
  private func frontRequest(of sender: TestApp, toNext next: TestApp) async throws -> RequestID {
    while true {
      let sent = try await sender.services.send(frontRequest(hasFile: false), to: next.id)
      do {
        #expect(try await sent.reply() == nil)
        return sent.id
      } catch ServicesError.connectionLost {
      }
    }
  }

  @Test(arguments: Answer.allCases, [false, true])
  func nothingOfAHandlerIsSentAndItIsCalledOnce(answer: Answer, hasFile: Bool) async throws {
    try await withTestApps { world in
      let came = Box<RequestID>()
      let receiver = try await world.start("com.example.receiver") {
        try offerFrontRequest($0, answer) { came.put($0.id) }
      }
      let sender = try await sender(world)
      let sent = try await sender.services.send(frontRequest(hasFile: hasFile), to: receiver.id)
      #expect(try await sent.reply() == nil)
      #expect(await came.next() == sent.id)

      let next = try await world.reopen(receiver)
      try offerFrontRequest(next.services, answer) { came.put($0.id) }
      try await next.services.start()
      let second = try await frontRequest(of: sender, toNext: next)
      #expect(await came.next() == second)
      await next.services.stop()
      #expect(came.values == [sent.id, second])
      #expect(try next.container.store.messageQueue().unhandled.isEmpty)
    }
  }

  /// The services stop while its handler waits.
  @Test func oneThatWasLeftByAnEarlierProcessIsNotHandled() async throws {
    try await withTestApps { world in
      let came = Box<RequestID>()
      let gate = AsyncStream<Void>.makeStream()
      let receiver = try await world.app("com.example.receiver")
      try receiver.services.offer(WellKnownService.frontRequest.definition) { request in
        came.put(request.id)
        for await _ in gate.stream {}
        return .noReply
      }
      try await receiver.services.start()
      let sender = try await sender(world)
      let sent = try await sender.services.send(frontRequest(hasFile: true), to: receiver.id)
      #expect(await came.next() == sent.id)
      await receiver.services.stop()
      #expect(try receiver.container.store.messageQueue().unhandled.count == 1)

      let next = try await world.reopen(receiver)
      try offerFrontRequest(next.services, .reply) { came.put($0.id) }
      try await next.services.start()
      let second = try await frontRequest(of: sender, toNext: next)
      #expect(await came.next() == second)
      await next.services.stop()
      #expect(came.values == [sent.id, second])
      #expect(try next.container.store.messageQueue().unhandled.isEmpty)
    }
  }
}
