import AppKineticsTesting
import ContainerStore
import Foundation
import Logging
import OpenDynamicsTesting
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives
import TestSupport
import Testing

@testable import AppKinetics

/// Replies that no call awaits are stored until the app takes them.
@Suite(.timeLimit(.minutes(10)))
struct UnclaimedReplyTests {
  /// Requests of an earlier process of the consumer, which the provider keeps.
  private func asked(
    _ world: TestApps, _ count: Int = 1
  ) async throws -> (provider: TestApp, consumer: TestApp, requests: [RequestID]) {
    let provider = try await world.start("com.example.provider") { try $0.offer(echo) { _ in .later } }
    try provider.put("answer", at: "/answer")
    let consumer = try await world.start("com.example.consumer")
    var requests: [RequestID] = []
    for i in 0..<count {
      let request = ServiceRequest(echo, "echo", params: .integer(Int64(i)))
      requests.append(try await consumer.services.send(request, to: provider.id).id)
    }
    while try provider.container.store.messageQueue().answerable.count < count { await Task.yield() }
    return (provider, try await world.restart(consumer), requests)
  }

  /// The same with a reply to each, which nobody awaits.
  private func replied(
    _ world: TestApps, _ count: Int
  ) async throws -> (provider: TestApp, consumer: TestApp, requests: [RequestID]) {
    let (provider, consumer, requests) = try await asked(world, count)
    for request in requests {
      try await provider.services.reply("late", to: request)
      try await waitUntilTheOutboxIsEmpty(provider)
    }
    return (provider, consumer, requests)
  }

  private func waitUntilTheOutboxIsEmpty(_ app: TestApp) async throws {
    while try await !app.services.outbox().isEmpty { await Task.yield() }
  }

  private func waitUntilTaken(_ app: TestApp) async throws {
    while try !UnclaimedReply.all(in: app.container).isEmpty { await Task.yield() }
  }

  @Test func isStoredWithItsFilesUntilAHandlerHasIt() async throws {
    try await withTestApps { world in
      var (provider, consumer, requests) = try await asked(world)
      try await provider.services.reply("late", attachments: ["/answer"], to: requests[0])
      try await waitUntilTheOutboxIsEmpty(provider)
      try provider.container.files.removeItem(atPath: "/answer")
      for _ in 0..<2 {
        let stored = try await consumer.services.unclaimedReplies()
        #expect(stored.map(\.request) == requests && stored.map(\.sender) == [provider.id])
        let reply = try #require(try stored.first?.result.get())
        #expect(reply.params == "late")
        #expect(try consumer.container.files.data(atPath: reply.attachments[0]) == Data("answer".utf8))
        #expect(abs(stored[0].date.timeIntervalSinceNow) < 3600)
        // It is no matter of one process.
        consumer = try await world.restart(consumer)
      }
      let replies = Box<UnclaimedReply>()
      consumer.services.onUnclaimedReply { replies.put($0) }
      let reply = try #require(await replies.next())
      #expect(try reply.request == requests[0] && reply.result.get().params == "late" && !reply.isRedelivered)
      try await waitUntilTaken(consumer)
      #expect(consumer.container.files.fileExists(atPath: reply.attachments[0]))
    }
  }

  @Test func areGivenOneAfterTheOther() async throws {
    try await withTestApps { world in
      var (_, consumer, requests) = try await replied(world, 20)
      let replies = Box<UnclaimedReply>()
      let running = Box<Int>()
      consumer = try await world.restart(consumer) { services in
        services.onUnclaimedReply { reply in
          running.put(1)
          replies.put(reply)
          await Task.yield()
          running.put(-1)
        }
      }
      var given: [RequestID] = []
      while given.count < requests.count { given.append(try #require(await replies.next()).request) }
      #expect(given == requests)
      try await waitUntilTaken(consumer)
      // Never two at once.
      var now = 0
      for change in running.values {
        now += change
        #expect(now <= 1)
      }
    }
  }

  /// The process ends while its handler has the first of two that were stored.
  @Test func comesAgainWhenTheHandlerDidNotReturn() async throws {
    try await withTestApps { world in
      var (_, consumer, requests) = try await replied(world, 2)
      let first = Box<UnclaimedReply>()
      consumer.services.onUnclaimedReply { reply in
        first.put(reply)
        try? await Task.sleep(for: .seconds(3600))
      }
      #expect(try #require(await first.next()).request == requests[0])
      let replies = Box<UnclaimedReply>()
      consumer = try await world.restart(consumer) { $0.onUnclaimedReply { replies.put($0) } }
      let given = [try #require(await replies.next()), try #require(await replies.next())]
      #expect(given.first { $0.request == requests[0] }?.isRedelivered == true)
      #expect(given.first { $0.request == requests[1] }?.isRedelivered == false)
      #expect(first.values.count == 1)
    }
  }

  @Test func isRemovedWhenTheAppSaysSo() async throws {
    try await withTestApps { world in
      var (provider, consumer, requests) = try await asked(world, 2)
      for request in requests { try await provider.services.reply("late", to: request) }
      try await waitUntilTheOutboxIsEmpty(provider)
      while try await consumer.services.unclaimedReplies().count < 2 { await Task.yield() }
      let first = try await consumer.services.unclaimedReplies()[0]
      try await consumer.services.remove(first)
      #expect(try await consumer.services.unclaimedReplies().count == 1)
      try await consumer.services.remove(first)
      consumer = try await world.restart(consumer)
      let left = try await consumer.services.unclaimedReplies()
      #expect(left.count == 1 && left[0].request != first.request)
      // Also while its handler waits for the app to run: no handler gets it, and the next one comes.
      let replies = Box<UnclaimedReply>()
      try await consumer.services.setState(.locked)
      consumer.services.onUnclaimedReply { replies.put($0) }
      try await consumer.services.remove(left[0])
      try await consumer.services.setState(.running)
      #expect(try await consumer.services.unclaimedReplies().isEmpty)
    }
  }

  @Test func endsAfterTheStagingTime() async throws {
    try await withTestApps { world in
      var (provider, consumer, requests) = try await asked(world)
      try await provider.services.reply("late", attachments: ["/answer"], to: requests[0])
      try await waitUntilTheOutboxIsEmpty(provider)
      let stored = try await consumer.services.unclaimedReplies()
      #expect(stored.count == 1)
      try await world.end(consumer)
      consumer = try await world.start("com.example.consumer", options: { $0.stagingTime = .zero })
      #expect(try await consumer.services.unclaimedReplies().isEmpty)
      #expect(consumer.container.files.fileExists(atPath: stored[0].attachments[0]))
    }
  }

  /// Without files, and an error with some.
  @Test func anErrorIsStoredToo() async throws {
    try await withTestApps { world in
      let (provider, consumer, requests) = try await asked(world)
      let error = ServiceReplyError(code: 7, text: "too late", attachments: ["/answer"])
      try await provider.services.reply(error: error, to: requests[0])
      try await waitUntilTheOutboxIsEmpty(provider)
      let stored = try #require(try await consumer.services.unclaimedReplies().first)
      #expect(stored.attachments.count == 1)
      #expect(throws: ServiceReplyError.self) { try stored.result.get() }
    }
  }

  /// A reply of an earlier process, in a container on a disk that fails when it is told to.
  private func stored(
    _ world: TestApps, _ messages: [WireOffer], clock: ManualClock = ManualClock()
  ) throws -> (io: RecordingIO, services: AppServices) {
    let io = RecordingIO()
    let key = try Credential.rawKey(TestApps.containerKey())
    let store = try Container.create(io: io, credential: key)
    for message in messages {
      try store.keepUnclaimed(
        store.enqueueForReply(
          Identifier.random(), from: "com.example.provider", message.serializedBytes(), isHandled: false))
    }
    try store.close()
    // So that what is asked for is read from the disk.
    var containerOptions = ContainerOptions()
    containerOptions.catalogCacheByteCount = 0
    var options = AppServices.Options()
    options.broker = world.socketPath
    options.clock = clock
    options.logger = Logger(label: "quiet") { _ in SwiftLogNoOpLogHandler() }
    let services = try AppServices(
      Application(id: ApplicationID("com.example.consumer"), name: "consumer"),
      container: SecureContainer(Container.open(io: io, credential: key, options: containerOptions)),
      options: options)
    return (io, services)
  }

  private func reply(_ params: ServiceValue) -> WireOffer {
    .with {
      $0.reply = .with {
        $0.id = Identifier.random().data
        $0.params = WireValue(params)
      }
    }
  }

  @Test func isReadAgainWhenTheDiskHasRefused() async throws {
    try await withTestApps { world in
      let clock = ManualClock()
      let (io, services) = try stored(world, [reply("late")], clock: clock)
      try await services.start()
      io.setCallFault { name, _, _ in name == "read" ? EIO : nil }
      let replies = Box<UnclaimedReply>()
      services.onUnclaimedReply { replies.put($0) }
      while services.runtime.performAndWait({ $0.messages.nextDeadline == nil }) {
        try Task.checkCancellation()
        await Task.yield()
      }
      io.setCallFault(nil)
      clock.advance(by: .milliseconds(1_000))
      #expect(try await replies.next()?.result.get().params == "late")
      await services.stop()
    }
  }

  /// Who lists them has all of them in memory.
  @Test func takeSoManyBytesOfOneSender() async throws {
    try await withTestApps { world in
      let large = reply(.bytes([UInt8](repeating: 1, count: 1_900_000)))
      let (_, services) = try stored(world, Array(repeating: large, count: 5))
      try await services.start()
      let provider = try ApplicationID("com.example.provider")
      func mayStore() -> Bool { services.runtime.performAndWait { $0.messages.mayStoreReply(of: provider) } }
      #expect(!mayStore())
      try await services.remove(try #require(try await services.unclaimedReplies().first))
      #expect(mayStore())
      await services.stop()
    }
  }
}
