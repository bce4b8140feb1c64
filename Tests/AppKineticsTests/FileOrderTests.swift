import AppKineticsTesting
import ContainerStore
import Dispatch
import Foundation
import SecureFiles
import ServiceValues
import ServiceWire
import Testing

@testable import AppKinetics

/// Requests with files among those without.
struct FileOrderTests {
  @Test func aFrameOfAContainerHasRoomOnTheLane() {
    #expect(SegmentFrame.byteCountMax == BulkFrame.blockByteCountMax)
    #expect(SegmentFrame.contentsByteCountMax == BulkFrame.contentsByteCountMax)
  }

  /// A provider that notes what it sees, and a consumer with a channel to it and a file `/one`.
  private func pair(
    _ world: TestApps
  ) async throws -> (provider: TestApp, consumer: TestApp, seen: Box<Int64>) {
    let seen = Box<Int64>()
    let provider = try await world.app("com.example.provider")
    try provider.services.offer(echo) { request in
      seen.put(request.params?.integerValue ?? -1)
      return .reply(request.params)
    }
    try await provider.services.start()
    let consumer = try await world.app("com.example.consumer")
    try consumer.container.files.write(Data("one".utf8), toPath: "/one")
    try await consumer.services.start()
    _ = try await consumer.services.call(ServiceRequest(echo, "echo", params: 0), to: provider.id)
    return (provider, consumer, seen)
  }

  /// A message that is written down and not enqueued yet.
  private func stored(
    _ number: Int64, _ consumer: TestApp, to provider: TestApp
  ) async throws -> (sent: SentRequest, message: StoredMessage) {
    let runtime = consumer.services.runtime
    let request = ServiceRequest(echo, "echo", params: .integer(number), attachments: ["/one"])
    let sent = SentRequest(Identifier.random(), request, to: provider.id, runtime)
    let wire = WireOffer.with { $0.request = sent.wire(isInFront: false) }
    return (sent, try await runtime.write(wire, id: sent.id, to: provider.id, request.attachments))
  }

  /// Keeps the threads for files from all other work until the semaphore is signalled.
  private func holdFiles(of app: TestApp) -> DispatchSemaphore {
    let (mayEnd, isHeld) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    app.services.runtime.fileQueue.async(flags: .barrier) {
      isHeld.signal()
      mayEnd.wait()
    }
    waitBlocking(isHeld)
    return mayEnd
  }

  @Test func keepsTheOrderOfRequestsWithoutFilesAmongThoseWithSome() async throws {
    try await withTestApps { world in
      let (provider, consumer, seen) = try await pair(world)
      let gate = provider.hold()
      var sent: [SentRequest] = []
      for i in 1...20 {
        sent.append(
          try await consumer.services.send(
            ServiceRequest(
              echo, "echo", params: .integer(Int64(i)), attachments: i % 5 == 1 ? ["/one"] : []),
            to: provider.id))
      }
      gate.signal()
      for (i, request) in sent.enumerated() {
        #expect(try await request.reply()?.params == .integer(Int64(i + 1)))
      }
      let withoutFiles = seen.values.filter { $0 % 5 != 1 }
      #expect(withoutFiles == withoutFiles.sorted())
      #expect(seen.values.sorted() == (0...20).map { Int64($0) })
    }
  }

  @Test func cancelsWhatWasNotDelivered() async throws {
    try await withTestApps { world in
      let (provider, consumer, seen) = try await pair(world)
      let gate = provider.hold()
      func send(_ i: Int64, _ attachments: [String] = []) async throws -> SentRequest {
        try await consumer.services.send(
          ServiceRequest(echo, "echo", params: .integer(i), attachments: attachments), to: provider.id)
      }
      let first = try await send(1, ["/one"])
      let second = try await send(2, ["/one"])
      let third = try await send(3, ["/one"])
      // Both begin before the gate opens.
      second.progress.cancel()
      third.progress.cancel()
      let last = try await send(4)
      gate.signal()
      #expect(await second.cancel())
      #expect(try await first.reply()?.params == 1)
      await #expect(throws: ServicesError(.cancelled)) { try await third.reply() }
      #expect(try await last.reply()?.params == 4)
      #expect(Set(seen.values) == [0, 1, 4])
      #expect(try provider.inbox(of: consumer).count == 1)
      #expect(try provider.staged().isEmpty)
      #expect(consumer.services.runtime.performAndWait { $0.peers[provider.id]?.sent.isEmpty } == true)
      #expect(try await consumer.services.outbox().isEmpty)
    }
  }

  /// Calls that wait for their turn when a cancel succeeds are not made any more.
  @Test func aCancelledMessageIsNotToldAnyMore() async throws {
    final class Noting: ServiceProvider {
      let calls = Box<String>()
      func willReceive(attachmentCount: Int, for request: RequestID, from sender: ApplicationID) {
        calls.put("count")
      }
      func willReceive(
        attachment path: String, byteCount: UInt64, for request: RequestID, from sender: ApplicationID
      ) { calls.put("file") }
      func didReceive(_ request: IncomingRequest) {
        calls.put("request")
        // The method `tell` has no reply.
        if request.method == "echo" { Task { try? await request.reply() } }
      }
    }
    try await withTestApps { world in
      let queue = DispatchQueue(label: "callbacks")
      let provider = try await world.app("com.example.provider") { $0.callbackQueue = queue }
      let noting = Noting()
      try provider.services.offer([echo], provider: noting)
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try consumer.container.files.write(Data("one".utf8), toPath: "/one")
      // These are more than an offer lists.
      let many = (1...DeliveryLimits.offeredFileCountMax + 1).map { "/\($0)" }
      for path in many { try consumer.container.files.write(Data("one".utf8), toPath: path) }
      try await consumer.services.start()
      let first = try await consumer.services.send(ServiceRequest(echo, "tell"), to: provider.id)
      #expect(try await first.reply() == nil)
      var arrivals = provider.services.arrivals.makeAsyncIterator()
      queue.suspend()
      try await provider.services.setState(.locked)
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: many), to: provider.id)
      let transfer = try #require(await arrivals.next())
      // The provider takes the message, and gets no list of its files.
      let mayGo = holdFiles(of: consumer)
      try await provider.services.setState(.running)
      while transfer.waitsFor != nil { await Task.yield() }
      // What tells of it waits for the queue from here on.
      consumer.services.runtime.cancel(sent)
      consumer.services.runtime.performAndWait { _ in }
      mayGo.signal()
      #expect(await sent.cancel())
      queue.resume()
      queue.sync {}
      #expect(noting.calls.values == ["request"])
      _ = try await consumer.services.call(
        ServiceRequest(echo, "echo", attachments: ["/one"]), to: provider.id)
      #expect(noting.calls.values == ["request", "count", "file", "request"])
    }
  }

  /// It is made where the message is written down: no thread that may wait for the disk comes between.
  @Test(.timeLimit(.minutes(2))) func anOfferGoesFromTheThreadThatSends() async throws {
    try await withTestApps { world in
      let (provider, consumer, seen) = try await pair(world)
      let runtime = consumer.services.runtime
      // The first one needs that thread, to learn which numbers are settled.
      let first = try await stored(1, consumer, to: provider)
      let second = try await stored(2, consumer, to: provider)
      runtime.perform { $0.enqueue(first.sent, first.message) }
      #expect(try await first.sent.reply()?.params == 1)
      #expect(second.message.offer?.files.map { String(decoding: $0.path, as: UTF8.self) } == ["/one"])
      for number in [0, 1] as [Int64] { #expect(await seen.next() == number) }
      let mayEnd = holdFiles(of: consumer)
      runtime.perform { $0.enqueue(second.sent, second.message) }
      #expect(await seen.next() == 2)
      mayEnd.signal()
      #expect(try await second.sent.reply()?.params == 2)
    }
  }

  @Test(.timeLimit(.minutes(2))) func anOfferDoesNotGoBeforeThatOfAnEarlierMessage() async throws {
    try await withTestApps { world in
      let (provider, consumer, seen) = try await pair(world)
      let runtime = consumer.services.runtime
      _ = try await consumer.services.call(
        ServiceRequest(echo, "echo", params: 1, attachments: ["/one"]), to: provider.id)
      let first = try await stored(2, consumer, to: provider)
      let second = try await stored(3, consumer, to: provider)
      let mayEnd = holdFiles(of: consumer)
      runtime.perform {
        $0.enqueue(first.sent, StoredMessage(entry: first.message.entry, offer: nil))
        $0.enqueue(second.sent, second.message)
      }
      _ = try await consumer.services.call(ServiceRequest(echo, "echo", params: 4), to: provider.id)
      #expect(seen.values == [0, 1, 4])
      mayEnd.signal()
      for sent in [first.sent, second.sent] { _ = try await sent.reply() }
      #expect(Set(seen.values) == [0, 1, 2, 3, 4])
    }
  }

  /// A reply may be there before its request is out of the outbox, which waits for the disk.
  @Test func aFastReplyIsToldBehindItsRequest() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.container.files.write(Data("answer".utf8), toPath: "/answer")
      try provider.services.offer(echo) { _ in .reply(attachments: ["/answer"]) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      // Many times what the provider lets come before it has handled some of it.
      try consumer.container.files.write(Data(repeating: 7, count: 64 << 20), toPath: "/large")
      try await consumer.services.start()
      var replies = consumer.services.arrivals.makeAsyncIterator()
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: ["/large"]), to: provider.id)
      var events = sent.events.makeAsyncIterator()
      // The consumer needs its queue for files no more before the provider has everything.
      #expect(await events.next() == .didStartSending(attachment: "/large"))
      let gate = provider.hold()
      let mayEnd = holdFiles(of: consumer)
      gate.signal()
      #expect(await replies.next()?.request == sent.id)
      mayEnd.signal()
      #expect(await events.next() == .didFinishSending)
      #expect(await events.next() == .willReceiveAttachments(count: 1))
      let path = try #require(try await sent.reply()?.attachments.first)
      #expect(await events.next() == .willReceive(attachment: path, byteCount: 6))
      #expect(
        await events.next() == .didReceive(ServiceReply(sender: provider.id, attachments: [path])))
      #expect(await events.next() == nil)
    }
  }

  @Test func sendsWhatComesAfterARequestThatIsRefused() async throws {
    try await withTestApps { world in
      let (provider, consumer, seen) = try await pair(world)
      let gate = provider.hold()
      let refused = try await consumer.services.send(
        ServiceRequest(greetings, "greetMe", attachments: ["/one"]).withoutDefinition, to: provider.id)
      let next = try await consumer.services.send(ServiceRequest(echo, "echo", params: 1), to: provider.id)
      gate.signal()
      await #expect(throws: ServicesError(.serviceNotFound)) { try await refused.reply() }
      #expect(try await next.reply()?.params == 1)
      #expect(seen.values == [0, 1])
    }
  }

  @Test func keepsInTheOutboxWhatWasNotDeliveredWhenItStops() async throws {
    try await withTestApps { world in
      let (provider, consumer, seen) = try await pair(world)
      let gate = provider.hold()
      let first = try await consumer.services.send(
        ServiceRequest(echo, "echo", params: 1, attachments: ["/one"]), to: provider.id)
      let second = try await consumer.services.send(ServiceRequest(echo, "echo", params: 2), to: provider.id)
      async let stopped: Void = consumer.services.stop()
      for request in [first, second] {
        do {
          _ = try await request.reply()
          Issue.record("an error expected")
        } catch ServicesError.connectionLost {
        }
      }
      await stopped
      gate.signal()
      #expect(try await consumer.services.outbox().map(\.request) == [first.id])
      #expect(!seen.values.contains(1))
    }
  }
}

extension ServiceRequest {
  /// So that nothing is known of it before it is sent.
  var withoutDefinition: ServiceRequest {
    ServiceRequest(
      service: service, version: version, method: method, params: params, attachments: attachments)
  }
}

extension TestApp {
  /// The messages' directories in this app's inbox, when everything that was to be removed is.
  func inbox(of sender: TestApp) throws -> [String] {
    services.runtime.performAndWait { _ in }
    services.runtime.fileQueue.sync(flags: .barrier) {}
    let inbox = "/Inbox/\(sender.id.text)"
    return container.files.fileExists(atPath: inbox)
      ? try container.files.contentsOfDirectory(atPath: inbox) : []
  }
}

extension TestApp {
  /// What has arrived of messages that are not complete.
  func staged() throws -> [String] {
    services.runtime.performAndWait { _ in }
    services.runtime.fileQueue.sync(flags: .barrier) {}
    let place = "/.opendynamics/staging"
    // It may go meanwhile.
    do { return try container.files.contentsOfDirectory(atPath: place) } catch SecureFilesError.noSuchFile {
      return []
    }
  }
}

func waitBlocking(_ semaphore: DispatchSemaphore) { semaphore.wait() }
