import AppKineticsTesting
import Foundation
import SecureFiles
import ServiceBroker
import ServiceValues
import ServiceWire
import Testing

@testable import AppKinetics

@Suite(.timeLimit(.minutes(10)))
struct LifeTests {
  @Test func goesOnWithoutTheBroker() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let requests = Box<IncomingRequest>()
      let handler = Handler(requests)
      try provider.services.offer([echo], provider: handler)
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      let sent = try await consumer.send(ServiceRequest(echo, "echo", params: 1), to: provider.id)
      let request = try #require(await requests.next())
      await world.stopBroker()
      // What is under way goes on, and what is new goes over the channel that is there.
      try await request.reply("kept")
      #expect(try await sent.reply()?.params == "kept")
      let second = try await consumer.send(ServiceRequest(echo, "echo", params: 2), to: provider.id)
      try await #require(await requests.next()).reply("new")
      #expect(try await second.reply()?.params == "new")
    }
  }

  /// An app that runs in the task, and is seen by another one.
  private func running(
    _ world: TestApps
  ) async throws -> (provider: TestApp, task: Task<Void, any Error>, consumer: AppServices) {
    let provider = try await world.app("com.example.provider")
    try provider.services.offer(echo) { .reply($0.params) }
    let task = Task { try await provider.services.run() }
    let consumer = try await world.app("com.example.consumer").services
    try await consumer.start()
    for try await providers in consumer.watchProviders(of: echo.serviceID) where !providers.isEmpty { break }
    return (provider, task, consumer)
  }

  @Test(.timeLimit(.minutes(2)))
  func runsUntilItsTaskIsCancelled() async throws {
    try await withTestApps { world in
      let (provider, task, consumer) = try await running(world)
      #expect(try await consumer.call(ServiceRequest(echo, "echo", params: 1), to: provider.id)?.params == 1)
      task.cancel()
      try await task.value
      await #expect(throws: ServicesError.self) { try await provider.services.run() }
    }
  }

  @Test(.timeLimit(.minutes(2)))
  func endsItsRunWhenItIsStopped() async throws {
    try await withTestApps { world in
      let (provider, task, _) = try await running(world)
      // It is registered: that was the answer.
      try await provider.services.start()
      await provider.services.stop()
      try await task.value
    }
  }

  @Test(.timeLimit(.minutes(2)))
  func endsItsRunWithWhatKeepsItFromTheBroker() async throws {
    try await withTestApps { world in
      let (provider, task, _) = try await running(world)
      try await provider.services.start()
      // Somebody with its key takes its place.
      var options = AppServices.Options()
      options.broker = world.socketPath
      let other = try await AppServices(
        provider.services.application, container: provider.container, options: options)
      try await other.start()
      let error = try #require(await #expect(throws: ServicesError.self) { try await task.value })
      #expect(error.code == .placeTaken)
      await other.stop()
    }
  }

  @Test(.timeLimit(.minutes(2)))
  func waitsForTheBrokerWhileItRuns() async throws {
    try await withTestApps { world in
      await world.stopBroker()
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params) }
      let task = Task { try await provider.services.run() }
      while provider.services.connectionError == nil { try await Task.sleep(for: .milliseconds(10)) }
      try await world.startBroker()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      for try await providers in consumer.watchProviders(of: echo.serviceID) where !providers.isEmpty {
        break
      }
      task.cancel()
      try await task.value
    }
  }

  @Test func refusesServicesInSimulation() async throws {
    try await withTestApps { world in
      let provider = try await world.echoPair().provider
      let app = try await world.app("com.example.simulated") { $0.isSimulation = true }
      try app.container.files.write(Data("one".utf8), toPath: "/one")
      try app.services.offer(echo) { _ in .noReply }
      func refuses(_ body: () async throws -> Void) async {
        do {
          try await body()
          Issue.record("services in simulation")
        } catch {
          #expect((error as? ServicesError)?.code == .notAllowed, "\(error)")
        }
      }
      await refuses { try await app.services.start() }
      for attachments in [[], ["/one"]] {
        await refuses {
          _ = try await app.services.send(
            ServiceRequest(echo, "echo", attachments: attachments), to: provider.id)
        }
      }
      await refuses { _ = try await app.services.providers() }
      await refuses { for try await _ in app.services.watchProviders() {} }
      for await _ in app.services.frontChanges { Issue.record("a front in simulation") }
      await refuses { try await app.services.bringToFront(provider.id) }
      await refuses { try await app.services.launch(provider.id) }
      await refuses { _ = try await app.services.keptRequests() }
      await refuses { try await app.services.run() }
      #expect(try await app.services.outbox().isEmpty)
    }
  }

  @Test func knowsItsKeyAgain() async throws {
    try await withTestApps { world in
      let first = try await world.app("com.example.app")
      try await first.services.start()
      await first.services.stop()
      let error = await #expect(throws: ServicesError.self) { try await first.services.start() }
      #expect(error?.code == .general && error?.detail?.contains("do not start again") == true)
      try await first.container.close()
      let again = try await world.app("com.example.app")
      try await again.services.start()
      // Without its key it is another app, which has no right to the id.
      await again.services.stop()
      try again.container.files.removeItem(atPath: "/.opendynamics")
      try await again.container.close()
      let stranger = try await world.app("com.example.app")
      do {
        try await stranger.services.start()
        Issue.record("an error expected")
      } catch ServicesError.certificateNotFound {
      }
    }
  }

  @Test func doesNotTrustAnotherBroker() async throws {
    try await withTestApps { world in
      let app = try await world.app("com.example.app")
      try await app.services.start()
      await app.services.stop()
      try await app.container.close()
      await world.stopBroker()
      try FileManager.default.removeItem(atPath: world.stateDirectory)
      try await world.startBroker()
      let again = try await world.app("com.example.app")
      do {
        try await again.services.start()
        Issue.record("an error expected")
      } catch ServicesError.certificateNotFound {
      }
    }
  }

  /// What is in the outbox waits as long as the broker does not take the app, and so do those who call.
  @Test(arguments: [NewApps.ask, .installed])
  func keepsItsMailUntilItIsApproved(plainApps: NewApps) async throws {
    try await withTestApps { world in
      let app = try await world.app("com.example.app")
      try app.container.files.write(Data("one".utf8), toPath: "/one")
      try await app.services.start()
      await world.stopBroker()
      _ = try await app.services.send(
        ServiceRequest(echo, "tell", attachments: ["/one"]), to: ApplicationID("com.example.other"))
      let record = world.stateDirectory + "/apps/com.example.app"
      let bytes = try Data(contentsOf: URL(filePath: record))
      try FileManager.default.removeItem(atPath: record)
      try await world.startBroker { $0.plainApps = plainApps }
      // It connects again by itself.
      while app.services.connectionError?.code != .approvalPending {
        try await Task.sleep(for: .milliseconds(10))
      }
      await #expect {
        _ = try await app.services.call(
          ServiceRequest(echo, "echo"), to: ApplicationID("com.example.other"))
      } throws: { ($0 as? ServicesError)?.code == .approvalPending }
      #expect(try await app.services.outbox().count == 1)
      // It is known again. A start that finds the old connection ends as that does.
      await world.stopBroker()
      while app.services.connectionError?.code != .brokerUnavailable {
        try await Task.sleep(for: .milliseconds(10))
      }
      try bytes.write(to: URL(filePath: record))
      try await world.startBroker { $0.plainApps = plainApps }
      try await app.services.start()
      #expect(app.services.connectionError == nil)
      #expect(try await app.services.outbox().count == 1)
    }
  }

  /// Others would wait for an app that runs, or call one that is locked.
  @Test func tellsTheStateThatWasSetWhileItWaitedForApproval() async throws {
    try await withTestApps { world in
      await world.stopBroker()
      try await world.startBroker { $0.plainApps = .ask }
      let app = try await world.app("com.example.app")
      try app.services.offer(echo) { .reply($0.params) }
      await #expect {
        try await app.services.start()
      } throws: { ($0 as? ServicesError)?.code == .approvalPending }
      try await app.services.setState(.locked)
      let administrator = try await world.administrator()
      defer { administrator.close() }
      let key = app.services.runtime.performAndWait { Data($0.identity.key.publicKey) }
      _ = try await administrator.ask(
        .administer(
          .with {
            $0.approve.appID = app.id.text
            $0.approve.keyFingerprint = KeyFingerprint.of(key)
          }))
      while try await administrator.apps().apps.first?.provider.state != .locked {
        try await Task.sleep(for: .milliseconds(5))
      }
    }
  }

  @Test func keepsUsersApart() async throws {
    try await withTestApps { world in
      let provider = try await world.app(
        Application(id: ApplicationID("com.example.provider"), name: "one", activationUser: "one"))
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let consumer = try await world.app(
        Application(id: ApplicationID("com.example.consumer"), name: "two", activationUser: "two")
      ).services
      try await consumer.start()
      do {
        _ = try await consumer.call(ServiceRequest(echo, "echo"), to: provider.id)
        Issue.record("an error expected")
      } catch ServicesError.enterpriseUserNotMatch {
      }
    }
  }

  @Test func holdsWhatComesForALockedApp() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider") { $0.unlockTime = .milliseconds(300) }
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      #expect(try await consumer.call(ServiceRequest(echo, "echo", params: 0), to: provider.id)?.params == 0)
      try await provider.services.setState(.locked)
      let sent = try await consumer.send(ServiceRequest(echo, "echo", params: 1), to: provider.id)
      do {
        _ = try await sent.reply()
        Issue.record("an error expected")
      } catch ServicesError.notAllowed {
      }
      try await provider.services.setState(.suspended)
      do {
        _ = try await consumer.call(ServiceRequest(echo, "echo", params: 1), to: provider.id)
        Issue.record("an error expected")
      } catch ServicesError.processSuspended {
      }
      try await provider.services.setState(.running)
      #expect(try await consumer.call(ServiceRequest(echo, "echo", params: 2), to: provider.id)?.params == 2)
    }
  }

  @Test func holdsWhatWasAcceptedBeforeItWasLocked() async throws {
    try await withTestApps { world in
      let queue = DispatchQueue(label: "callbacks")
      let provider = try await world.app("com.example.provider") { $0.callbackQueue = queue }
      let seen = Box<Int64>()
      try provider.services.offer(echo) { request in
        seen.put(request.params?.integerValue ?? -1)
        return .reply(request.params)
      }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      queue.suspend()
      let sent = try await consumer.send(ServiceRequest(echo, "echo", params: 1), to: provider.id)
      try await sent.delivered()
      try await provider.services.setState(.locked)
      queue.resume()
      queue.sync {}
      #expect(seen.values.isEmpty)
      try await provider.services.setState(.running)
      #expect(try await sent.reply()?.params == 1)
    }
  }

  @Test func endsWhatIsUnderWayWhenItStops() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let requests = Box<IncomingRequest>()
      try provider.services.offer([echo], provider: Handler(requests))
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      let sent = try await consumer.send(ServiceRequest(echo, "echo"), to: provider.id)
      _ = await requests.next()
      await consumer.stop()
      do {
        _ = try await sent.reply()
        Issue.record("an error expected")
      } catch ServicesError.connectionLost {
      }
      #expect(sent.status == .lost)
    }
  }

  @Test func stopsWhenHandlersHaveReturned() async throws {
    try await withTestApps { world in
      let begun = Box<Int64>()
      let (mayReturn, returns) = AsyncStream<Void>.makeStream()
      let (provider, consumer) = try await world.echoPair { request in
        begun.put(request.params?.integerValue ?? -1)
        for await _ in mayReturn { break }
        return .reply(request.params)
      }
      let sent = try await consumer.send(ServiceRequest(echo, "echo", params: 1), to: provider.id)
      #expect(await begun.next() == 1)
      async let stopped: Void = provider.services.stop(waitingForHandlers: .seconds(240))
      while provider.services.runtime.performAndWait({ !$0.isStopping }) { await Task.yield() }
      // No handler begins any more.
      let late = try await consumer.send(ServiceRequest(echo, "echo", params: 2), to: provider.id)
      try await late.delivered()
      #expect(sent.status == .delivered)
      returns.yield()
      #expect(try await sent.reply()?.params == 1)
      await stopped
      #expect(begun.values == [1])
      #expect(provider.services.runtime.performAndWait { $0.life == .stopped })
    }
  }

  @Test func stopsInTimeWithoutItsHandlers() async throws {
    try await withTestApps { world in
      let begun = Box<Int64>()
      let ended = Box<Bool>()
      let (provider, consumer) = try await world.echoPair { _ in
        begun.put(1)
        try? await Task.sleep(for: .seconds(3600))
        ended.put(Task.isCancelled)
        return .reply()
      }
      let sent = try await consumer.send(ServiceRequest(echo, "echo"), to: provider.id)
      _ = await begun.next()
      await provider.services.stop(waitingForHandlers: .milliseconds(10))
      #expect(await ended.next() == true)
      #expect(sent.status != .replied)
    }
  }

  @Test func saysThatARequestWasLostWithItsProvider() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let requests = Box<IncomingRequest>()
      try provider.services.offer([echo], provider: Handler(requests))
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      let sent = try await consumer.send(ServiceRequest(echo, "echo"), to: provider.id)
      _ = await requests.next()
      await provider.services.stop()
      try await provider.container.close()
      // Another process of the same app knows nothing of it.
      let again = try await world.app("com.example.provider")
      try again.services.offer(echo) { .reply($0.params) }
      try await again.services.start()
      do {
        _ = try await sent.reply()
        Issue.record("an error expected")
      } catch ServicesError.connectionLost {
      }
    }
  }

  final class Handler: ServiceProvider {
    let requests: Box<IncomingRequest>
    init(_ requests: Box<IncomingRequest>) { self.requests = requests }
    func didReceive(_ request: IncomingRequest) { requests.put(request) }
  }
}

extension LifeTests {
  /// What the app does when it hears of a cancellation may ask the runtime itself.
  @Test func asksTheRuntimeWhileItIsCancelled() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let requests = Box<IncomingRequest>()
      let heard = Box<Bool>()
      try provider.services.offer([echo], provider: Handler(requests))
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      let sent = try await consumer.send(ServiceRequest(echo, "echo"), to: provider.id)
      let request = try #require(await requests.next())
      try await sent.delivered()
      request.onCancel {
        heard.put(provider.services.isInFront)
        try? request.endWithoutReply()
      }
      #expect(await sent.cancel() == false)
      #expect(await heard.next() == false)
      #expect(try await sent.reply() == nil)
    }
  }

  /// Asks again while the app has not heard yet that the broker went.
  private func providers(of service: ServiceIdentifier, as app: AppServices) async throws -> [Provider] {
    while true {
      do {
        try await app.start()
        return try await app.providers(of: service)
      } catch ServicesError.brokerUnavailable {
        await Task.yield()
      }
    }
  }

  @Test func takesItsRegistrationBack() async throws {
    try await withTestApps { world in
      let (provider, consumer) = try await world.echoPair()
      #expect(try await consumer.providers(of: echo.serviceID).count == 1)
      try await provider.services.unregister()
      #expect(try await consumer.providers(of: echo.serviceID) == [])
      // Also when the broker comes back.
      await world.stopBroker()
      try await world.startBroker()
      try await provider.services.setState(.running)
      #expect(try await providers(of: echo.serviceID, as: consumer) == [])
      try await provider.services.start()
      try provider.services.offer(greetings) { _ in .noReply }
      var lists = consumer.watchProviders(of: greetings.serviceID).makeAsyncIterator()
      var list: [Provider] = []
      while list.isEmpty { list = try #require(try await lists.next()) }
    }
  }

  /// A watch that ends at once, and one more than there may be, leave the connection as it is.
  @Test func boundsItsWatches() async throws {
    try await withTestApps { world in
      let app = try await world.app("com.example.app").services
      try await app.start()
      for _ in 0..<200 { _ = app.watchProviders() }
      var lists: [AsyncThrowingStream<[Provider], any Error>.AsyncIterator] = []
      for _ in 0..<64 { lists.append(app.watchProviders().makeAsyncIterator()) }
      for i in lists.indices { #expect(try await lists[i].next() == []) }
      var tooMany = app.watchProviders().makeAsyncIterator()
      do {
        _ = try await tooMany.next()
        Issue.record("an error expected")
      } catch ServicesError.limitExceeded {
      }
      // More questions at once than the broker takes.
      try await withThrowingTaskGroup(of: Int.self) { group in
        for _ in 0..<1000 { group.addTask { try await app.providers().count } }
        for try await count in group { #expect(count == 0) }
      }
      #expect(app.connectionError == nil)
    }
  }
}

extension LifeTests {
  @Test func asksTheRuntimeWhileItIsStopped() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let requests = Box<IncomingRequest>()
      let heard = Box<Bool>()
      try provider.services.offer([echo], provider: Handler(requests))
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      let sent = try await consumer.send(ServiceRequest(echo, "echo"), to: provider.id)
      let request = try #require(await requests.next())
      request.onCancel { heard.put(provider.services.isInFront) }
      await provider.services.stop()
      #expect(await heard.next() == false)
      await consumer.stop()
      #expect(sent.status == .lost)
    }
  }

  /// A channel that ends does not end the dialling of another one.
  @Test func goesOnDiallingWhenAnEarlierChannelEnds() async throws {
    var options = TestApps.Options()
    options.unlockTime = .seconds(600)
    try await withTestApps(options) { world in
      let (provider, consumer) = try await world.echoPair()
      try await expectEchoes(1, to: provider.id, consumer)
      let lane = try #require(
        consumer.runtime.performAndWait { $0.peers[provider.id]?.channels.values.first?.lane })
      // The broker does not answer until the other app is unlocked.
      try await provider.services.setState(.locked)
      consumer.runtime.perform(with: provider.id) { $0.dial() }
      while consumer.runtime.performAndWait({ $0.peers[provider.id]?.dialWait != .unlock }) {
        await Task.yield()
      }
      lane.close(.noError)
      while consumer.runtime.performAndWait({ $0.peers[provider.id]?.channels.isEmpty == false }) {
        await Task.yield()
      }
      #expect(consumer.runtime.performAndWait { $0.peers[provider.id]?.isDialling } == true)
    }
  }

  /// A key that this app does not trust any more, or one that the other app has changed: the next request gets a channel.
  @Test(arguments: [true, false])
  func dialsAgainAfterTheEndOfAChannelWhoseKeyWasChanged(isEndedHere: Bool) async throws {
    try await withTestApps { world in
      let requests = Box<IncomingRequest>()
      let provider = try await world.start("com.example.provider") {
        try $0.offer([echo], provider: Handler(requests))
      }
      let consumerID = try ApplicationID("com.example.consumer")
      let consumer = try await world.start(consumerID.text).services
      _ = try await consumer.send(ServiceRequest(echo, "echo"), to: provider.id)
      let first = try #require(await requests.next())
      let numbers = consumer.runtime.performAndWait { Set($0.peers[provider.id]!.channels.keys) }
      let (ending, other) =
        isEndedHere ? (consumer.runtime, provider.id) : (provider.services.runtime, consumerID)
      ending.performAndWait { core in
        for channel in core.peers[other]!.channels.values { channel.lane.close(.keyChanged) }
      }
      while consumer.runtime.performAndWait({ core in
        !numbers.isDisjoint(with: core.peers[provider.id]!.channels.keys)
      }) {
        try await Task.sleep(for: .milliseconds(5))
      }
      let second = try await consumer.send(ServiceRequest(echo, "echo", params: 2), to: provider.id)
      // The first one may come again.
      while let request = await requests.next() {
        try? await request.reply(request.params)
        if request.id != first.id { break }
      }
      #expect(try await second.reply()?.params == 2)
    }
  }

  @Test func sendsNothingToItself() async throws {
    try await withTestApps { world in
      let app = try await world.app("com.example.app")
      try app.services.offer(echo) { .reply($0.params) }
      try await app.services.start()
      do {
        _ = try await app.services.send(ServiceRequest(echo, "echo"), to: app.id)
        Issue.record("an error expected")
      } catch ServicesError.notAllowed {
      }
    }
  }

  @Test func registersAgainWhenItStartsAgain() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer") { $0.registers = false }.services
      try await consumer.start()
      try await provider.services.unregister()
      #expect(try await consumer.providers(of: echo.serviceID) == [])
      try await provider.services.start()
      #expect(try await consumer.providers(of: echo.serviceID).count == 1)
      // One that does not register is not found, and may ask all the same.
      #expect(try await provider.services.providers() == [])
      #expect(try await consumer.call(ServiceRequest(echo, "echo", params: 1), to: provider.id)?.params == 1)
    }
  }

  /// More changes than the broker takes at once: what is offered in the end is what is found.
  @Test func registersWhatIsOfferedInTheEnd() async throws {
    try await withTestApps { world in
      let (provider, consumer) = try await world.echoPair()
      let definitions = try (0..<80).map {
        try ServiceDefinition(
          jsonText: #"{"service-id": "com.example.s\#($0)", "version": "1.0.0.0", "methods": {}}"#)
      }
      for definition in definitions { try provider.services.offer(definition) { _ in .noReply } }
      func isFound(_ definition: ServiceDefinition) async throws -> Bool {
        try await consumer.providers(of: definition.serviceID).count == 1
      }
      while try await !isFound(definitions[79]) { try await Task.sleep(for: .milliseconds(20)) }
      for definition in definitions { #expect(try await isFound(definition)) }
      // One by one, until there were too many: that one is told later.
      for definition in definitions[..<45] {
        provider.services.withdraw(definition.serviceID)
        _ = try await consumer.providers()
      }
      while try await isFound(definitions[44]) { try await Task.sleep(for: .milliseconds(20)) }
      for (i, definition) in definitions.enumerated() {
        #expect(try await isFound(definition) == (i >= 45), "\(i)")
      }
    }
  }
}
