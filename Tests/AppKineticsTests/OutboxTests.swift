import AppKineticsTesting
import Foundation
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives
import Testing

@testable import AppKinetics

/// Messages with files that outlive the process that sent them, or that received them.
@Suite(.timeLimit(.minutes(10)))
struct OutboxTests {
  /// What was told is on the disk when the services have stopped: nothing of it comes again.
  @Test func leavesNothingOfWhatWasAnsweredBeforeItStops() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params, attachments: $0.attachments) }
      try await provider.services.start()
      for round in 0..<5 {
        let consumer = try await world.app("com.example.consumer\(round)")
        try consumer.container.files.write(Data("contents".utf8), toPath: "/file")
        try await consumer.services.start()
        let sent = try await withThrowingTaskGroup(of: SentRequest.self) { group in
          for _ in 0..<40 {
            group.addTask {
              try await consumer.services.send(
                ServiceRequest(echo, "echo", attachments: ["/file"]), to: provider.id)
            }
          }
          return try await group.reduce(into: []) { $0.append($1) }
        }
        for sent in sent { #expect(try await sent.reply()?.attachments.count == 1) }
        await consumer.services.stop()
        #expect(try consumer.container.store.outboxEntries().isEmpty)
        #expect(try consumer.container.store.messageQueue().unhandled.isEmpty)
      }
    }
  }

  private func provider(
    _ world: TestApps, _ answer: @escaping ServiceHandler = { .reply($0.params) }
  ) async throws -> TestApp {
    let provider = try await world.app("com.example.provider")
    try provider.services.offer(echo, handler: answer)
    try await provider.services.start()
    return provider
  }

  private func consumer(_ world: TestApps) async throws -> TestApp {
    let consumer = try await world.app("com.example.consumer")
    try consumer.container.files.write(Data("one".utf8), toPath: "/one")
    try await consumer.services.start()
    return consumer
  }

  @Test func sendsTheVersionThatWasThere() async throws {
    try await withTestApps { world in
      let stopped = try await provider(world)
      try await stopped.services.setState(.locked)
      let consumer = try await consumer(world)
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: ["/one"]), to: stopped.id)
      let handle = try #require(consumer.container.files.fileHandle(forUpdatingAtPath: "/one"))
      try handle.write(contentsOf: Data("two".utf8))
      try handle.close()
      #expect(try consumer.container.files.data(atPath: "/one") == Data("two".utf8))
      try consumer.container.files.removeItem(atPath: "/one")
      try await stopped.services.setState(.running)
      try await sent.delivered()
      let inbox = try #require(stopped.inboxFiles().first)
      #expect(try stopped.container.files.data(atPath: inbox) == Data("one".utf8))
    }
  }

  @Test func goesOnAtTheNextStart() async throws {
    try await withTestApps { world in
      let received = Box<IncomingRequest>()
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { request in
        received.put(request)
        return .reply(request.params)
      }
      try await provider.services.start()
      var consumer = try await consumer(world)
      await world.stopBroker()
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", params: 7, attachments: ["/one"]), to: provider.id)
      #expect(try await consumer.services.outbox().map(\.request) == [sent.id])
      let replies = Box<UnclaimedReply>()
      await consumer.services.stop()
      try await world.startBroker()
      consumer = try await world.restart(consumer) { $0.onUnclaimedReply { replies.put($0) } }
      let request = try #require(await received.next())
      #expect(request.id == sent.id && request.attachments.count == 1 && !request.isRedelivered)
      let reply = try #require(await replies.next())
      #expect(reply.request == sent.id && !reply.isRedelivered && reply.sender == provider.id)
      #expect(try reply.result.get().params == 7)
      #expect(received.values.count == 1)
    }
  }

  @Test func callsTheHandlerAgainUntilItReturned() async throws {
    try await withTestApps { world in
      let calls = Box<IncomingRequest>()
      let provider = try await provider(world) { request in
        calls.put(request)
        // As long as the process lives.
        try await Task.sleep(for: .seconds(3600))
        return .noReply
      }
      let consumer = try await consumer(world)
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", params: 3, attachments: ["/one"]), to: provider.id)
      let first = try #require(await calls.next())
      #expect(!first.isRedelivered)
      try await sent.delivered()
      let again = try await world.restart(provider) { services in
        try services.offer(echo) { request in
          calls.put(request)
          return .reply(request.params, attachments: request.attachments)
        }
      }
      let second = try #require(await calls.next())
      #expect(second.id == first.id && second.isRedelivered && second.attachments == first.attachments)
      let reply = try #require(try await sent.reply())
      #expect(reply.params == 3)
      #expect(try consumer.container.files.data(atPath: reply.attachments[0]) == Data("one".utf8))
      // Its handler has returned.
      _ = try await world.restart(again) { services in
        try services.offer(echo) { request in
          calls.put(request)
          return .noReply
        }
      }
      #expect(calls.values.count == 2)
    }
  }

  @Test func listsAndTakesBackWhatWaits() async throws {
    try await withTestApps { world in
      let provider = try await provider(world)
      await provider.services.stop()
      try await provider.container.close()
      let consumer = try await consumer(world)
      await world.stopBroker()
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: ["/one"]), to: provider.id)
      let message = try #require(try await consumer.services.outbox().first)
      #expect(message.receiver == provider.id && message.fileCount == 1 && message.byteCount == 3)
      #expect(message.state == .waiting && !message.isReply)
      #expect(try OutboxMessage.all(in: consumer.container) == [message])
      #expect(try await !consumer.services.cancelRequest(sent.id, to: consumer.id))
      #expect(try await !consumer.services.cancelReply(to: sent.id, of: provider.id))
      #expect(try await consumer.services.cancelRequest(sent.id, to: provider.id))
      await #expect(throws: ServicesError(.cancelled)) { try await sent.delivered() }
      #expect(try await consumer.services.outbox().isEmpty)
      #expect(try await !consumer.services.cancelRequest(sent.id, to: provider.id))
    }
  }

  private func sendTwo(by app: TestApp, to receiver: ApplicationID) async throws -> [RequestID] {
    var sent: [RequestID] = []
    for _ in 0..<2 {
      let request = ServiceRequest(echo, "echo", attachments: ["/one"])
      sent.append(try await app.services.send(request, to: receiver).id)
    }
    return sent
  }

  @Test func takesBackAtOnceWhatWasNeverOffered() async throws {
    try await withTestApps { world in
      let provider = try await provider(world)
      await provider.services.stop()
      try await provider.container.close()
      var consumer = try await consumer(world)
      await world.stopBroker()
      let sent = try await sendTwo(by: consumer, to: provider.id)
      await consumer.services.stop()
      try await consumer.container.close()
      // By a later process, without a broker, and with one but without the receiver.
      consumer = try await world.app(consumer.id.text)
      #expect(try await consumer.services.cancelRequest(sent[0], to: provider.id))
      #expect(try await consumer.services.outbox().map(\.request) == [sent[1]])
      try await world.startBroker()
      try await consumer.services.start()
      #expect(try await consumer.services.cancelRequest(sent[1], to: provider.id))
      #expect(try await consumer.services.outbox().isEmpty)
    }
  }

  /// A request with a file that has no reply yet, and whose consumer has stopped.
  private func unansweredRequest(
    _ world: TestApps
  ) async throws -> (provider: TestApp, consumer: TestApp, request: IncomingRequest) {
    let requests = Box<IncomingRequest>()
    let provider = try await world.start("com.example.provider") {
      try $0.offer([echo], provider: LifeTests.Handler(requests))
    }
    let consumer = try await consumer(world)
    _ = try await consumer.services.send(
      ServiceRequest(echo, "echo", attachments: ["/one"]), to: provider.id)
    let request = try #require(await requests.next())
    await consumer.services.stop()
    while provider.services.runtime.performAndWait({ $0.peers[consumer.id]?.isConnected == true }) {
      await Task.yield()
    }
    return (provider, consumer, request)
  }

  @Test func takesAReplyBack() async throws {
    try await withTestApps { world in
      let (provider, consumer, request) = try await unansweredRequest(world)
      try await request.reply(1)
      #expect(try await provider.services.outbox().map(\.isReply) == [true])
      #expect(try await !provider.services.cancelRequest(request.id, to: consumer.id))
      #expect(try await provider.services.cancelReply(to: request.id, of: consumer.id))
      #expect(try await provider.services.outbox().isEmpty)
      #expect(try await !provider.services.cancelReply(to: request.id, of: consumer.id))
    }
  }

  /// The start has read the outbox before the message is taken back.
  @Test func doesNotSendWhatIsTakenBackWhileItStarts() async throws {
    try await withTestApps { world in
      let receiver = try ApplicationID("com.example.provider")
      var consumer = try await consumer(world)
      await world.stopBroker()
      let sent = try await sendTwo(by: consumer, to: receiver)
      consumer = try await world.reopen(consumer)
      let store = consumer.container.store
      let left = Core.Left(
        outbox: try store.outboxEntries().map { Core.Left.Outgoing(entry: $0, request: $0.id) },
        queue: try store.messageQueue(), unhandled: [])
      #expect(try await consumer.services.cancelRequest(sent[0], to: receiver))
      let outgoing = await consumer.services.runtime.result { core -> [RequestID] in
        core.start(left) { _ in }
        return core.peers[receiver].map { Array($0.outbox.outgoing.keys) } ?? []
      }
      #expect(outgoing == [sent[1]])
    }
  }

  /// Takes the first message of the outbox back as soon as it is there: the runtime does not know of it yet.
  /// `files` holds the app's queue for files. Returns what tells whether it was taken back.
  private func takeBackWhatIsBeingStored(
    by app: TestApp, for receiver: ApplicationID, holding files: HeldQueue
  ) async throws -> Box<Bool> {
    let runtime = app.services.runtime
    let isTakenBack = Box<Bool>()
    var isStored = false
    while !isStored {
      try Task.checkCancellation()
      await Task.yield()
      isStored = try runtime.performAndWait { core -> Result<Bool, any Error> in
        // The disk takes what it was given so far, and what comes of that waits for the end of this work.
        files.runOnce()
        return Result {
          guard let entry = try runtime.container.store.outboxEntries().first else { return false }
          core.takeBack(entry, for: receiver) { isTakenBack.put($0 == .cancelled) }
          return true
        }
      }.get()
    }
    return isTakenBack
  }

  @Test func takesAReplyBackThatIsBeingStored() async throws {
    try await withTestApps { world in
      let (provider, consumer, request) = try await unansweredRequest(world)
      let files = HeldQueue(provider.services.runtime.fileQueue)
      let replying = Task { try await request.reply(1) }
      let isTakenBack = try await takeBackWhatIsBeingStored(by: provider, for: consumer.id, holding: files)
      files.resume()
      #expect(await isTakenBack.next() == true)
      try await replying.value
      #expect(try await provider.services.outbox().isEmpty)
    }
  }

  @Test func takesARequestBackThatIsBeingStored() async throws {
    try await withTestApps { world in
      let receiver = try ApplicationID("com.example.provider")
      let consumer = try await consumer(world)
      await world.stopBroker()
      let files = HeldQueue(consumer.services.runtime.fileQueue)
      let sending = Task {
        try await consumer.services.send(ServiceRequest(echo, "echo", attachments: ["/one"]), to: receiver)
      }
      let isTakenBack = try await takeBackWhatIsBeingStored(by: consumer, for: receiver, holding: files)
      files.resume()
      #expect(await isTakenBack.next() == true)
      await #expect(throws: ServicesError(.cancelled)) { try await sending.value.delivered() }
      #expect(try await consumer.services.outbox().isEmpty)
    }
  }

  @Test func hearsWhatBecameOfAnEarlierProcessesMessages() async throws {
    try await withTestApps { world in
      let provider = try await provider(world)
      var consumer = try await consumer(world)
      await world.stopBroker()
      let taken = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: ["/one"]), to: provider.id)
      let refused = try await consumer.services.send(
        ServiceRequest(echo, "none", params: 5, attachments: ["/one"]).withoutDefinition, to: provider.id)
      await consumer.services.stop()
      try await world.startBroker()
      let ends = Box<(OutboxMessage, ServicesError?)>()
      consumer = try await world.restart(consumer) { $0.onOutboxEnd { ends.put(($0, $1)) } }
      let both = [try #require(await ends.next()), try #require(await ends.next())]
      let errors = Dictionary(uniqueKeysWithValues: both.map { ($0.0.request, $0.1?.code) })
      #expect(errors == [taken.id: nil, refused.id: .methodNotFound])
      #expect(both.allSatisfy { $0.0.fileCount == 1 && $0.0.byteCount == 3 && $0.0.attachments == ["/one"] })
      #expect(both.map(\.0.params).contains(5) && both.map(\.0.params).contains(nil))
    }
  }

  @Test func losesWhatTheProviderForgot() async throws {
    try await withTestApps { world in
      let calls = Box<IncomingRequest>()
      final class Silent: ServiceProvider {
        let calls: Box<IncomingRequest>
        init(_ calls: Box<IncomingRequest>) { self.calls = calls }
        func didReceive(_ request: IncomingRequest) { calls.put(request) }
      }
      let provider = try await world.app("com.example.provider")
      try provider.services.offer([echo], provider: Silent(calls))
      try await provider.services.start()
      let consumer = try await consumer(world)
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: ["/one"]), to: provider.id)
      _ = await calls.next()
      try await sent.delivered()
      #expect(try provider.inbox(of: consumer).count == 1)
      // Its container was put back to a copy from before, or somebody removed it by hand.
      while try provider.container.store.messageQueue().answerable.isEmpty { await Task.yield() }
      await provider.services.stop()
      let kept = try provider.container.store.messageQueue().answerable
      #expect(kept.map(\.id) == [sent.id])
      try provider.container.store.endQueued(#require(kept.first).arrival)
      _ = try await world.restart(provider) { try $0.offer([echo], provider: Silent(calls)) }
      do {
        _ = try await sent.reply()
        Issue.record("an error expected")
      } catch ServicesError.connectionLost {
      }
      #expect(sent.status == .lost)
    }
  }

  @Test func refusesWhatItDoesNotTake() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider") {
        $0.attachmentCountMax = 2
        $0.attachmentByteCountMax = 5
      }
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let consumer = try await consumer(world)
      for name in ["/two", "/three"] { try consumer.container.files.write(Data("x".utf8), toPath: name) }
      try consumer.container.files.write(Data("123456".utf8), toPath: "/six")
      try consumer.container.files.write(Data("12345".utf8), toPath: "/five")
      func code(_ attachments: [String], _ method: String = "echo") async -> ServicesError.Code? {
        do {
          _ = try await consumer.services.call(
            ServiceRequest(
              service: echo.serviceID, version: echo.version, method: method, attachments: attachments),
            to: provider.id)
          return nil
        } catch {
          return (error as? ServicesError)?.code
        }
      }
      #expect(await code(["/one", "/two"]) == nil)
      #expect(await code(["/one", "/two", "/three"]) == .limitExceeded)
      #expect(await code(["/five"]) == nil)
      #expect(await code(["/six"]) == .limitExceeded)
      #expect(await code(["/one"], "none") == .methodNotFound)
      #expect(try provider.staged().isEmpty)
      #expect(try await consumer.services.outbox().isEmpty)
    }
  }

  @Test func mayBeRefusedWhileItArrives() async throws {
    final class Refusing: ServiceProvider {
      let app: TestApp
      let refused = Box<Bool>()
      init(_ app: TestApp) { self.app = app }
      func willReceive(attachmentCount: Int, for request: RequestID, from sender: ApplicationID) {
        Task { refused.put(await app.services.cancelReception(of: request)) }
      }
      func didReceive(_ request: IncomingRequest) { Task { try? await request.reply() } }
    }
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let refusing = Refusing(provider)
      try provider.services.offer([echo], provider: refusing)
      try await provider.services.start()
      let consumer = try await consumer(world)
      // More than the receiver has taken when it is asked, unless other tests keep it waiting.
      try consumer.container.files.write(Data(), toPath: "/large")
      let handle = try #require(consumer.container.files.fileHandle(forUpdatingAtPath: "/large"))
      let piece = Data(repeating: 7, count: 16 << 20)
      for _ in 0..<32 { try handle.write(contentsOf: piece) }
      try handle.close()
      let request = ServiceRequest(echo, "echo", attachments: ["/large"])
      var sent = try await consumer.services.send(request, to: provider.id)
      for _ in 0..<10 {
        if await refusing.refused.next() == true { break }
        _ = try await sent.reply()
        try provider.container.files.removeItem(atPath: "/Inbox")
        sent = try await consumer.services.send(request, to: provider.id)
      }
      do {
        _ = try await sent.reply()
        Issue.record("an error expected")
      } catch ServicesError.cancelled {
      }
      #expect(try provider.staged().isEmpty)
      #expect(!provider.container.files.fileExists(atPath: "/Inbox"))
    }
  }

  @Test func tellsOfASourceThatIsDamaged() async throws {
    try await withTestApps { world in
      let provider = try await provider(world)
      var consumer = try await consumer(world)
      try consumer.container.files.write(Data(repeating: 1, count: 8 << 20), toPath: "/large")
      await consumer.services.stop()
      try await consumer.container.close()
      // Somewhere in the middle of what is stored.
      let slabs = world.directory.appendingPathComponent("com.example.consumer/slab")
      let slab = try #require(try FileManager.default.contentsOfDirectory(atPath: slabs.path).sorted().first)
      let handle = try FileHandle(forUpdating: slabs.appendingPathComponent(slab))
      try handle.seek(toOffset: 4 << 20)
      try handle.write(contentsOf: Data(repeating: 0x55, count: 64))
      try handle.close()
      consumer = try await world.app("com.example.consumer")
      try await consumer.services.start()
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: ["/large"]), to: provider.id)
      do {
        _ = try await sent.reply()
        Issue.record("an error expected")
      } catch let error as ServicesError {
        #expect(error.code == .sourceDamaged && error.path == "/large")
      }
      // The sender does not wait for the receiver with this.
      while try !provider.staged().isEmpty { try await Task.sleep(for: .milliseconds(5)) }
      #expect(try await consumer.services.outbox().isEmpty)
    }
  }
}
