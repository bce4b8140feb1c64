import AppKineticsTesting
import Foundation
import Locks
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives
import Testing

@testable import AppKinetics

/// Replies at any later time: to requests that the provider's container keeps.
@Suite(.timeLimit(.minutes(10)))
struct KeptRequestTests {
  /// Takes requests, and leaves the replies to somebody else.
  private final class Taker: ServiceProvider {
    let received = Box<IncomingRequest>()
    let cancelled = Box<RequestID>()
    let finished = Box<RequestID>()
    func didReceive(_ request: IncomingRequest) { received.put(request) }
    func didCancel(_ request: IncomingRequest) { cancelled.put(request.id) }
    func didFinishSending(
      _ params: ServiceValue?, attachments: [String], for request: IncomingRequest
    ) { finished.put(request.id) }
  }

  private static let request = ServiceRequest(echo, "echo", params: 7)
  private static let requestWithFile = ServiceRequest(echo, "echo", params: 7, attachments: ["/one"])

  private func apps(
    _ world: TestApps, _ taker: Taker
  ) async throws -> (provider: TestApp, consumer: TestApp) {
    let provider = try await world.start("com.example.provider") { try $0.offer([echo], provider: taker) }
    try provider.put("answer", at: "/answer")
    let consumer = try await world.start("com.example.consumer")
    try consumer.put("one", at: "/one")
    return (provider, consumer)
  }

  /// Returns when the app's container keeps so many requests, which is soon after their handlers have returned.
  private func waitUntilKept(_ count: Int = 1, by app: TestApp) async throws {
    while try app.container.store.messageQueue().answerable.count < count { await Task.yield() }
  }

  private func expectNothingIsLeft(_ app: TestApp) throws {
    #expect(try app.container.store.messageQueue().unhandled.isEmpty)
    #expect(try app.container.store.messageQueue().answerable.isEmpty)
  }

  private func expectCannotReply(_ body: () async throws -> Void) async {
    do {
      try await body()
      Issue.record("a second reply was taken")
    } catch {
      #expect((error as? ServicesError)?.code == .general)
    }
  }

  @Test func aRequestWithFilesIsAnsweredAfterRestarts() async throws {
    try await withTestApps { world in
      let taker = Taker()
      var (provider, consumer) = try await apps(world, taker)
      let sent = try await consumer.services.send(Self.requestWithFile, to: provider.id)
      let received = try #require(await taker.received.next())
      try await waitUntilKept(by: provider)
      for _ in 0..<2 {
        provider = try await world.restart(provider) { try $0.offer([echo], provider: taker) }
        let kept = try await provider.services.keptRequests()
        let request = try #require(kept.first)
        #expect(kept.count == 1 && request.id == sent.id && request.sender == consumer.id)
        #expect(request.service == echo.serviceID && request.method == "echo" && request.params == 7)
        #expect(request.attachments == received.attachments && !request.isRedelivered)
        #expect(try provider.container.files.data(atPath: request.attachments[0]) == Data("one".utf8))
      }
      #expect(sent.status == .delivered)
      try await provider.services.reply("later", attachments: ["/answer"], to: sent.id, from: consumer.id)
      let reply = try #require(try await sent.reply())
      #expect(reply.params == "later" && reply.attachments.count == 1)
      await expectCannotReply { try await provider.services.reply("twice", to: sent.id) }
      #expect(try await provider.services.keptRequests().isEmpty)
      provider = try await world.restart(provider) { try $0.offer([echo], provider: taker) }
      await expectCannotReply { try await provider.services.reply("twice", to: sent.id) }
      #expect(taker.received.values.count == 1)
      try expectNothingIsLeft(provider)
    }
  }

  @Test func aRequestWithoutFilesIsKeptWhenTheHandlerSaysSo() async throws {
    try await withTestApps { world in
      var (provider, consumer) = try await world.echoPair { _ in .later }
      let sent = try await consumer.send(Self.request, to: provider.id)
      try await sent.delivered()
      while try await provider.services.keptRequests().isEmpty { await Task.yield() }
      provider = try await world.restart(provider) { try $0.offer(echo) { _ in .noReply } }
      #expect(try await provider.services.keptRequests().map(\.id) == [sent.id])
      #expect(await !sent.cancel())
      try await provider.services.reply("later", to: sent.id)
      #expect(try await sent.reply()?.params == "later")
      try expectNothingIsLeft(provider)
    }
  }

  @Test func anObjectKeepsWhatItIsGiven() async throws {
    try await withTestApps { world in
      let taker = Taker()
      var (provider, consumer) = try await apps(world, taker)
      let sent = try await consumer.services.send(Self.request, to: provider.id)
      let request = try #require(await taker.received.next())
      try await request.keep()
      try await request.keep()
      try await waitUntilKept(by: provider)
      #expect(try provider.container.store.messageQueue().answerable.map(\.id) == [sent.id])
      // In this process, by its object.
      try await request.reply("now")
      #expect(try await sent.reply()?.params == "now")
      #expect(await taker.finished.next() == sent.id)
      await expectCannotReply { try await request.reply("twice") }
      try expectNothingIsLeft(provider)

      // By its id, without being kept.
      let next = try await consumer.services.send(Self.request, to: provider.id)
      _ = try #require(await taker.received.next())
      try await provider.services.reply(error: ServiceReplyError(code: 3, text: "no"), to: next.id)
      await #expect(throws: ServiceReplyError.self) { try await next.reply() }
      await expectCannotReply { try await provider.services.reply("twice", to: next.id) }

      // Not after it was answered.
      let last = try await consumer.services.send(Self.request, to: provider.id)
      let answered = try #require(await taker.received.next())
      try await answered.reply("first")
      #expect(try await last.reply()?.params == "first")
      await expectCannotReply { try await answered.keep() }
      try expectNothingIsLeft(provider)
      provider = try await world.restart(provider) { try $0.offer([echo], provider: taker) }
      #expect(try await provider.services.keptRequests().isEmpty)
    }
  }

  @Test(arguments: [true, false])
  func theConsumerHearsThatNoReplyComes(hasFiles: Bool) async throws {
    try await withTestApps { world in
      let taker = Taker()
      var (provider, consumer) = try await apps(world, taker)
      let sent = try await consumer.services.send(
        hasFiles ? Self.requestWithFile : Self.request, to: provider.id)
      try await #require(await taker.received.next()).keep()
      try await waitUntilKept(by: provider)
      provider = try await world.restart(provider) { try $0.offer([echo], provider: taker) }
      try await provider.services.endWithoutReply(sent.id, from: consumer.id)
      #expect(try await sent.reply() == nil)
      #expect(sent.status == .endedWithoutReply)
      await expectCannotReply { try await provider.services.endWithoutReply(sent.id) }
      await provider.services.stop()
      try expectNothingIsLeft(provider)
    }
  }

  @Test(arguments: [true, false])
  func theReplyComesToALaterProcessOfTheConsumer(hasFiles: Bool) async throws {
    try await withTestApps { world in
      let taker = Taker()
      var (provider, consumer) = try await apps(world, taker)
      let sent = try await consumer.services.send(
        hasFiles ? Self.requestWithFile : Self.request, to: provider.id)
      try await #require(await taker.received.next()).keep()
      try await waitUntilKept(by: provider)
      provider = try await world.restart(provider) { try $0.offer([echo], provider: taker) }
      let replies = Box<UnclaimedReply>()
      consumer = try await world.restart(consumer) { $0.onUnclaimedReply { replies.put($0) } }
      try await provider.services.reply("later", to: sent.id)
      let reply = try #require(await replies.next())
      #expect(try reply.request == sent.id && reply.result.get().params == "later")
    }
  }

  /// The reply arrives over a channel that is open already.
  @Test(arguments: [ApplicationState.locked, .suspended])
  func aReplyThatNoCallAwaitsIsHandledWhenTheAppRuns(state: ApplicationState) async throws {
    try await withTestApps { world in
      let taker = Taker()
      let (provider, first) = try await apps(world, taker)
      let sent = try await first.services.send(Self.requestWithFile, to: provider.id)
      try await #require(await taker.received.next()).keep()
      try await waitUntilKept(by: provider)
      let isRunning = Guarded(false)
      let replies = Box<(id: RequestID, isRunning: Bool)>()
      let consumer = try await world.restart(first) {
        $0.onUnclaimedReply { reply in replies.put((reply.request, isRunning.withLock { $0 })) }
      }
      let other = try await consumer.services.send(Self.request, to: provider.id)
      try await #require(await taker.received.next()).reply("now")
      #expect(try await other.reply()?.params == "now")
      try await consumer.services.setState(state)
      try await provider.services.reply("later", to: sent.id)
      while try await !provider.services.outbox().isEmpty { await Task.yield() }
      while try consumer.container.store.messageQueue().unclaimed.count != 1 { await Task.yield() }
      // Behind whatever calls the app.
      let runtime = consumer.services.runtime
      runtime.performAndWait { _ in }
      runtime.workQueue.sync {}
      await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
        runtime.perform { $0.callbacks(for: provider.id).async { continuation.resume() } }
      }
      #expect(replies.values.isEmpty)
      isRunning.withLock { $0 = true }
      try await consumer.services.setState(.running)
      let reply = try #require(await replies.next())
      #expect(reply.id == sent.id && reply.isRunning)
      while try !queueIsEmpty(consumer) { await Task.yield() }
      #expect(replies.values.count == 1)
    }
  }

  private func queueIsEmpty(_ app: TestApp) throws -> Bool {
    let queue = try app.container.store.messageQueue()
    return queue.unhandled.isEmpty && queue.unclaimed.isEmpty
  }

  /// Another task answers while the request is on its way to the disk: by its object, by its id, with files, with an error, or not at all.
  @Test(arguments: 0..<5) func aReplyThatComesWhileTheRequestIsBeingKept(way: Int) async throws {
    try await withTestApps { world in
      let answered = Box<Result<Void, any Error>>()
      let services = Guarded<AppServices?>(nil)
      let provider = try await world.start("com.example.provider") { own in
        services.withLock { $0 = own }
        try own.offer(echo) { request in
          Task {
            // Some are before, most within, and some after the keeping.
            try await Task.sleep(for: .microseconds(.random(in: 0..<3000)))
            do {
              switch way {
              case 0: try await request.reply("now")
              case 1: try await services.withLock { $0 }?.reply("now", to: request.id)
              case 2: try await request.reply("now", attachments: ["/answer"])
              case 3: try await request.reply(error: ServiceReplyError(code: 7))
              default: try request.endWithoutReply()
              }
              answered.put(.success(()))
            } catch {
              answered.put(.failure(error))
            }
          }
          return .later
        }
      }
      try provider.put("answer", at: "/answer")
      let consumer = try await world.start("com.example.consumer")
      for _ in 0..<25 {
        let sent = try await consumer.services.send(Self.request, to: provider.id)
        let reply: Result<ServiceReply?, any Error>
        do { reply = .success(try await sent.reply()) } catch { reply = .failure(error) }
        try await answered.next()?.get()
        switch way {
        case 0, 1, 2: #expect(try reply.get()?.params == "now")
        case 3: #expect(throws: ServiceReplyError.self) { try reply.get() }
        default: #expect(try reply.get() == nil)
        }
      }
      while try await !provider.services.keptRequests().isEmpty { await Task.yield() }
      await provider.services.stop()
      services.withLock { $0 = nil }
      try expectNothingIsLeft(provider)
    }
  }

  @Test func nothingIsKeptOfAMethodWithoutAReply() async throws {
    try await withTestApps { world in
      let taker = Taker()
      let (provider, consumer) = try await apps(world, taker)
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "tell", attachments: ["/one"]), to: provider.id)
      #expect(try await sent.reply() == nil)
      #expect(try await provider.services.keptRequests().isEmpty)
      await provider.services.stop()
      try expectNothingIsLeft(provider)
    }
  }

  @Test func aReplyThatBreaksTheDefinitionChangesNothing() async throws {
    try await withTestApps { world in
      let taker = Taker()
      let start: @Sendable (AppServices) throws -> Void = {
        try $0.offer([echo], validates: true, provider: taker)
      }
      var provider = try await world.start("com.example.provider", prepare: start)
      let consumer = try await world.start("com.example.consumer")
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "add", params: [1, 2]), to: provider.id)
      try await #require(await taker.received.next()).keep()
      try await waitUntilKept(by: provider)
      // Offered later than the container's queue is read.
      provider = try await world.restart(provider)
      try start(provider.services)
      await #expect(throws: ServicesError.self) {
        try await provider.services.reply("three", to: sent.id)
      }
      #expect(try await provider.services.keptRequests().count == 1)
      try await provider.services.reply(3, to: sent.id)
      #expect(try await sent.reply()?.params == 3)
    }
  }

  /// Ids are drawn by the consumers, and one of them may know that of another.
  @Test func anIdThatSeveralAppsUseNeedsItsSender() async throws {
    try await withTestApps { world in
      let taker = Taker()
      var (provider, consumer) = try await apps(world, taker)
      let sent = try await consumer.services.send(Self.requestWithFile, to: provider.id)
      let request = try #require(await taker.received.next())
      try await waitUntilKept(by: provider)
      await provider.services.stop()
      let store = provider.container.store
      let first = try #require(try store.messageQueue().answerable.first)
      let message = try #require(try store.queuedMessage(first.arrival))
      for sender in ["com.example.other", "com.example.other"] {
        _ = try store.enqueueForReply(sent.id, from: sender, message.message, isHandled: true)
      }
      provider = try await world.restart(provider) { try $0.offer([echo], provider: taker) }
      // Of a request that came twice the last one is kept.
      #expect(
        try await provider.services.keptRequests().map(\.sender.text).sorted() == [
          "com.example.consumer", "com.example.other",
        ])
      await expectCannotReply { try await provider.services.reply("whose?", to: sent.id) }
      try await provider.services.reply("yours", to: sent.id, from: consumer.id)
      #expect(try await sent.reply()?.params == "yours")
      #expect(try await provider.services.keptRequests().map(\.sender.text) == ["com.example.other"])
      #expect(request.sender == consumer.id)
      await expectCannotReply {
        try await provider.services.reply("unknown", to: Identifier.random())
      }
    }
  }

  /// The service is not offered any more; its requests can be answered all the same.
  @Test func whatIsNotOfferedAnyMoreIsAnswered() async throws {
    try await withTestApps { world in
      let taker = Taker()
      var (provider, consumer) = try await apps(world, taker)
      let sent = try await consumer.services.send(Self.requestWithFile, to: provider.id)
      _ = try #require(await taker.received.next())
      try await waitUntilKept(by: provider)
      provider = try await world.restart(provider)
      await #expect(throws: ServicesError(.attachmentNotFound, path: "/none")) {
        try await provider.services.reply(attachments: ["/none"], to: sent.id)
      }
      try await #require(try await provider.services.keptRequests().first).reply("late")
      #expect(try await sent.reply()?.params == "late")
      await provider.services.stop()
      await #expect(throws: ServicesError.self) { try await provider.services.keptRequests() }
      try expectNothingIsLeft(provider)
    }
  }

  /// Of two requests with one id, which a sender may send, the later one counts.
  @Test func aRequestThatComesAgainTakesThePlaceOfTheFirst() async throws {
    try await withTestApps { world in
      let taker = Taker()
      let (provider, consumer) = try await apps(world, taker)
      let store = provider.container.store
      let id = Identifier.random()
      let message: [UInt8] = try WireOffer.with {
        $0.request = .with {
          $0.id = id.data
          $0.serviceID = echo.serviceID.text
          $0.version = echo.version.text
          $0.method = "echo"
        }
      }.serializedBytes()
      var requests: [IncomingRequest] = []
      for round in 0..<4 {
        let arrival = try store.enqueueForReply(id, from: consumer.id.text, message, isHandled: false)
        let queued = try #require(try store.queuedMessage(arrival))
        await provider.services.runtime.result {
          $0.messages.handle(ReadMessage(queued), isRedelivered: false)
        }
        requests.append(try #require(await taker.received.next()))
        // The first two come while the handler of the one before has not returned, as far as is known.
        if round > 0 { try await waitUntilKept(by: provider) }
      }
      await provider.services.runtime.result { _ in }
      provider.services.runtime.fileQueue.sync(flags: .barrier) {}
      #expect(try store.messageQueue().unhandled.isEmpty && store.messageQueue().answerable.count == 1)
      for request in requests.dropLast() { await expectCannotReply { try await request.reply("early") } }
      try await requests[3].reply("last")
      await provider.services.stop()
      try expectNothingIsLeft(provider)
    }
  }

  private func isStoring(_ app: TestApp) -> Bool {
    app.services.runtime.storing.wait(timeout: .now()) == .timedOut
  }

  @Test func whatIsBeingKeptIsKeptBeforeTheAppHasStopped() async throws {
    try await withTestApps { world in
      let taker = Taker()
      let (provider, consumer) = try await apps(world, taker)
      _ = try await consumer.services.send(Self.request, to: provider.id)
      let request = try #require(await taker.received.next())
      let runtime = provider.services.runtime
      #expect(!isStoring(provider))
      // The disk takes nothing for now.
      let files = HeldQueue(runtime.fileQueue)
      let keeping = Task { try await request.keep() }
      while !isStoring(provider) {
        try Task.checkCancellation()
        await Task.yield()
      }
      let stopping = Task { await provider.services.stop() }
      while runtime.performAndWait({ $0.life != .stopped }) {
        try Task.checkCancellation()
        await Task.yield()
      }
      files.resume()
      await stopping.value
      let queue = try provider.container.store.messageQueue()
      #expect(queue.unhandled.map(\.id) + queue.answerable.map(\.id) == [request.id])
      try await keeping.value
    }
  }

  /// An administrator forgets the consumer while a reply is on its way to the disk, which then does not take it.
  @Test func nothingIsLeftOfARequestWhoseSenderWasForgotten() async throws {
    try await withTestApps { world in
      let taker = Taker()
      let (provider, consumer) = try await apps(world, taker)
      _ = try await consumer.services.send(Self.requestWithFile, to: provider.id)
      let request = try #require(await taker.received.next())
      try await waitUntilKept(by: provider)
      let (isTaken, leftCount) = await provider.services.runtime.result { core in
        let requests = core.peer(consumer.id).requests
        let hasBegun = requests.beginStoring(request)
        core.wasForgotten(consumer.id)
        requests.storingFailed(request)
        return (hasBegun, requests.incoming.count + core.messages.answerable(request.id, from: nil).count)
      }
      #expect(isTaken && leftCount == 0)
      await expectCannotReply { try await request.reply("late") }
      await provider.services.stop()
      try expectNothingIsLeft(provider)
    }
  }

  /// Its handler returns after its sender was forgotten.
  @Test func nothingIsKeptForAnAppThatWasForgottenMeanwhile() async throws {
    try await withTestApps { world in
      let (begun, goOn) = (Box<Void>(), Box<Void>())
      let provider = try await world.start("com.example.provider") { services in
        try services.offer(echo) { _ in
          begun.put(())
          _ = await goOn.next()
          return .later
        }
      }
      let consumer = try await world.start("com.example.consumer")
      try consumer.put("one", at: "/one")
      _ = try await consumer.services.send(Self.requestWithFile, to: provider.id)
      _ = await begun.next()
      await provider.services.runtime.result { $0.wasForgotten(consumer.id) }
      goOn.put(())
      while provider.services.runtime.performAndWait({ core in
        core.peers[consumer.id]?.requests.incoming.isEmpty == false
      }) {
        await Task.yield()
      }
      #expect(try await provider.services.keptRequests().isEmpty)
      await provider.services.stop()
      try expectNothingIsLeft(provider)
    }
  }

  /// The same while its reply is on the way to the disk, which then does not take it.
  @Test func nothingIsKeptOfARequestWhoseReplyWasNotStored() async throws {
    try await withTestApps { world in
      let (begun, goOn) = (Box<IncomingRequest>(), Box<Void>())
      let provider = try await world.start("com.example.provider") { services in
        try services.offer(echo) { request in
          begun.put(request)
          _ = await goOn.next()
          return .later
        }
      }
      let consumer = try await world.start("com.example.consumer")
      try consumer.put("one", at: "/one")
      _ = try await consumer.services.send(Self.requestWithFile, to: provider.id)
      let request = try #require(await begun.next())
      let runtime = provider.services.runtime
      await runtime.result { core in
        _ = core.peer(consumer.id).requests.beginStoring(request)
        core.wasForgotten(consumer.id)
      }
      goOn.put(())
      try await waitUntilKept(by: provider)
      await runtime.result { $0.peer(consumer.id).requests.storingFailed(request) }
      #expect(try await provider.services.keptRequests().isEmpty)
      await provider.services.stop()
      try expectNothingIsLeft(provider)
    }
  }

  @Test func aMethodWithoutAReplyIsNotKept() async throws {
    try await withTestApps { world in
      let (provider, consumer) = try await world.echoPair { _ in .later }
      let sent = try await consumer.send(ServiceRequest(echo, "tell"), to: provider.id)
      #expect(try await sent.reply() == nil)
      #expect(try await provider.services.keptRequests().isEmpty)
      let taker = Taker()
      let object = try await world.start("com.example.object") { try $0.offer([echo], provider: taker) }
      _ = try await consumer.send(ServiceRequest(echo, "tell"), to: object.id)
      let request = try #require(await taker.received.next())
      await expectCannotReply { try await request.keep() }
    }
  }

  /// Neither side wakes up for a request that waits for days.
  @Test func whatIsKeptNeedsNoTime() async throws {
    try await withTestApps { world in
      let taker = Taker()
      let (provider, consumer) = try await apps(world, taker)
      for request in [Self.request, Self.requestWithFile] {
        let sent = try await consumer.services.send(request, to: provider.id)
        try await #require(await taker.received.next()).keep()
        try await sent.delivered()
      }
      for (app, other) in [(provider, consumer.id), (consumer, provider.id)] {
        // What was just said is still being acknowledged.
        var next: UInt64?
        while next != .max {
          next = await app.services.runtime.result { $0.peers[other]?.nextDeadline(soon: 1) }
          await Task.yield()
        }
      }
    }
  }
}
