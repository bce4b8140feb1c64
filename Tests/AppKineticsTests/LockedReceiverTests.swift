import AppKineticsTesting
import Foundation
import LocalTransport
import Locks
import ServiceValues
import ServiceWire
import Testing

@testable import AppKinetics

/// Messages with files for an app that is locked or suspended, and their time limits.
@Suite(.timeLimit(.minutes(10)))
struct LockedReceiverTests {
  /// An app that takes files and one that has some, each with a clock, and the wall clock of the second one.
  private struct Pair {
    let provider: TestApp
    let consumer: TestApp
    let providerClock = ManualClock()
    let consumerClock = ManualClock()
    let date = Guarded(Date())

    init(
      _ world: TestApps, change: @escaping (inout AppServices.Options) -> Void = { _ in }
    ) async throws {
      let (providerClock, consumerClock, date) = (providerClock, consumerClock, date)
      provider = try await world.start("com.example.provider") {
        try $0.offer(echo) { .reply($0.params) }
      } options: {
        $0.clock = providerClock
        change(&$0)
      }
      consumer = try await world.start(
        "com.example.consumer",
        options: {
          $0.clock = DateClock(of: consumerClock) { date.withLock { $0 } }
          change(&$0)
        })
      try consumer.put("one", at: "/one")
    }

    func send(timeLimit: Duration? = nil) async throws -> SentRequest {
      try await consumer.services.send(
        ServiceRequest(echo, "echo", params: 7, attachments: ["/one"], timeLimit: timeLimit), to: provider.id)
    }

    /// Returns the message when its sender sees that the receiver is locked, or suspended.
    func lockedMessage(_ state: OutboxMessage.State = .locked) async throws -> OutboxMessage {
      while true {
        if let message = try await consumer.services.outbox().first, message.state == state {
          return message
        }
        await Task.yield()
      }
    }

    /// Advances the sender's clock whenever it has no channel and does not dial: it dials again after a
    /// pause.
    func reply(to sent: SentRequest) async throws -> ServiceReply? {
      while sent.status == .waiting || sent.status == .sent || sent.status == .delivered {
        let isAtRest = consumer.services.runtime.performAndWait { core in
          core.peers[provider.id].map { $0.channels.isEmpty && !$0.isDialling } ?? false
        }
        if isAtRest { consumerClock.advance(by: .milliseconds(1_000)) }
        try await Task.sleep(for: .milliseconds(1))
      }
      return try await sent.reply()
    }

    /// Sets the sender's wall clock, and lets it look at its deadlines.
    func set(_ now: Date) {
      date.withLock { $0 = now }
      consumerClock.advance(by: .milliseconds(2_000))
    }

    var channelCount: Int {
      consumer.services.runtime.performAndWait { $0.peers[provider.id]?.channels.count ?? 0 }
    }
  }

  private func expectOverdue(_ sent: SentRequest, _ code: ServicesError.Code) async {
    await #expect {
      _ = try await sent.reply()
    } throws: {
      guard let error = $0 as? ServicesError else { return false }
      return error.code == code && error.detail?.hasPrefix("time limit of the message") == true
    }
  }

  /// Without looking at any other time.
  @Test func whoShowsMessagesHearsOfChanges() async throws {
    try await withTestApps { world in
      let receiver = try await world.start("com.example.provider") {
        try $0.offer(echo) { .reply($0.params) }
      }
      let sender = try await world.start("com.example.consumer")
      try sender.put("one", at: "/one")
      let (provider, consumer) = (receiver.services, sender.services)
      // Over the channel of this the receiver hears what waits for it.
      _ = try await consumer.call(ServiceRequest(echo, "echo", params: 7), to: receiver.id)
      try await provider.setState(.locked)
      var sending = consumer.messageChanges.makeAsyncIterator()
      var arriving = provider.messageChanges.makeAsyncIterator()
      let sent = try await consumer.send(
        ServiceRequest(echo, "echo", params: 7, attachments: ["/one"]), to: receiver.id)
      while try await consumer.outbox().first?.state != .locked { await sending.next() }
      while await provider.arriving().first?.waitsFor != .unlock { await arriving.next() }
      try await provider.setState(.running)
      while try await !consumer.outbox().isEmpty { await sending.next() }
      while await !provider.arriving().isEmpty { await arriving.next() }
      #expect(try await sent.reply()?.params == 7)
      await provider.stop()
      while await arriving.next() != nil {}
    }
  }

  @Test func waitsOverAChannelUntilTheReceiverIsUnlocked() async throws {
    try await withTestApps { world in
      let pair = try await Pair(world)
      try await expectEchoes(1, to: pair.provider.id, pair.consumer.services)
      var arrivals = pair.provider.services.arrivals.makeAsyncIterator()
      try await pair.provider.services.setState(.locked)
      let sent = try await pair.send()
      let transfer = try #require(await arrivals.next())
      #expect(transfer.request == sent.id && transfer.waitsFor == .unlock && transfer.fileCount == 1)
      #expect(try await pair.lockedMessage().request == sent.id)
      let small = try await pair.consumer.services.send(
        ServiceRequest(echo, "echo", params: 1), to: pair.provider.id)
      while pair.provider.services.runtime.performAndWait({ core in
        core.peers.values.allSatisfy { $0.requests.nextDeadline == nil }
      }) {
        await Task.yield()
      }
      pair.providerClock.advance(by: .milliseconds(29_000))
      #expect(small.status != .refused)
      pair.providerClock.advance(by: .milliseconds(16_000))
      await #expect(throws: ServicesError(.notAllowed)) { try await small.reply() }
      #expect(try await pair.lockedMessage().request == sent.id)
      #expect(sent.status == .waiting && transfer.waitsFor == .unlock)
      #expect(try pair.provider.staged().isEmpty)
      try await pair.provider.services.setState(.running)
      #expect(try await sent.reply()?.params == 7)
      try await transfer.ended()
      #expect(transfer.waitsFor == nil)
      #expect(try await pair.consumer.services.outbox().isEmpty)
    }
  }

  /// The offers of these messages list their files.
  @Test(arguments: ["delivered", "taken back", "not wanted", "interrupted", "not wanted while interrupted"])
  func aListThatWaitsIsHeldUntilItsMessageEnds(how: String) async throws {
    try await withTestApps { world in
      let pair = try await Pair(world)
      for i in 0..<10 { try pair.consumer.put("\(i)", at: "/many/\(i)") }
      try await expectEchoes(1, to: pair.provider.id, pair.consumer.services)
      var arrivals = pair.provider.services.arrivals.makeAsyncIterator()
      try await pair.provider.services.setState(.locked)
      var sent: [SentRequest] = []
      var transfers: [IncomingTransfer] = []
      for _ in 0..<3 {
        sent.append(
          try await pair.consumer.services.send(
            ServiceRequest(echo, "echo", params: 7, attachments: ["/many"]), to: pair.provider.id))
        transfers.append(try #require(await arrivals.next()))
      }
      func held() -> (app: Int, peer: Int?) {
        pair.provider.services.runtime.performAndWait {
          ($0.heldOfferByteCount, $0.peers[pair.consumer.id]?.inbox.charges.heldByteCount)
        }
      }
      let atMost = held()
      #expect(atMost.app > 30 * 128 && atMost.peer == atMost.app)
      switch how {
      case "taken back": for sent in sent { #expect(await sent.cancel()) }
      case "not wanted": for transfer in transfers { #expect(await transfer.cancel()) }
      case "interrupted", "not wanted while interrupted":
        pair.consumer.services.runtime.performAndWait { core in
          for channel in core.peers[pair.provider.id]!.channels.values { channel.lane.close(.noError) }
        }
        while held().app != 0 { await Task.yield() }
        guard how == "interrupted" else {
          for transfer in transfers { #expect(await transfer.cancel()) }
          // Their sender finds the app again.
          try await pair.provider.services.setState(.running)
          for sent in sent {
            await #expect {
              _ = try await pair.reply(to: sent)
            } throws: { ($0 as? ServicesError)?.code == .cancelled }
          }
          break
        }
        fallthrough
      default:
        try await pair.provider.services.setState(.running)
        for sent in sent { #expect(try await pair.reply(to: sent)?.params == 7) }
      }
      while held().app != 0 { await Task.yield() }
      #expect(held().peer ?? 0 == 0)
      #expect(try pair.provider.staged().isEmpty)
      let isDelivered = how == "delivered" || how == "interrupted"
      #expect(try pair.provider.inboxFiles().count == (isDelivered ? 30 : 0))
      // There is room for the next ones.
      try await pair.provider.services.setState(.running)
      let last = try await pair.send()
      #expect(try await pair.reply(to: last)?.params == 7)
    }
  }

  /// Not when it was offered, and not when all of it was there.
  @Test func theTimeInThePathIsWhenTheReceptionBegan() async throws {
    try await withTestApps { world in
      let pair = try await Pair(world)
      try pair.consumer.put(Data(repeating: 1, count: 32 << 20), at: "/one")
      try await expectEchoes(1, to: pair.provider.id, pair.consumer.services)
      var arrivals = pair.provider.services.arrivals.makeAsyncIterator()
      try await pair.provider.services.setState(.locked)
      let sent = try await pair.send()
      let transfer = try #require(await arrivals.next())
      try await Task.sleep(for: .milliseconds(20))
      let unlocked = Date()
      try await pair.provider.services.setState(.running)
      for await _ in transfer.attachments { break }
      let begun = Date()
      #expect(try await sent.reply()?.params == 7)
      let directory = try #require(try pair.provider.container.inboxMessages().first?.directory)
      let formatter = DateFormatter()
      formatter.locale = Locale(identifier: "en_US_POSIX")
      formatter.timeZone = TimeZone(secondsFromGMT: 0)
      formatter.dateFormat = "yyyyMMdd'T'HHmmss.SSS'Z'"
      let time = try #require(
        directory.split(separator: "/").last.flatMap { formatter.date(from: String($0)) })
      #expect(time > unlocked - 0.001 && time <= begun)
    }
  }

  /// A request without files is refused at once.
  @Test func waitsOverAChannelUntilTheReceiverIsNotSuspended() async throws {
    try await withTestApps { world in
      let pair = try await Pair(world)
      try await expectEchoes(1, to: pair.provider.id, pair.consumer.services)
      var arrivals = pair.provider.services.arrivals.makeAsyncIterator()
      try await pair.provider.services.setState(.suspended)
      let sent = try await pair.send()
      let transfer = try #require(await arrivals.next())
      #expect(transfer.request == sent.id && transfer.waitsFor == .resumption)
      #expect(try await pair.lockedMessage(.suspended).request == sent.id)
      await #expect(throws: ServicesError(.processSuspended)) {
        try await pair.consumer.services.call(ServiceRequest(echo, "echo"), to: pair.provider.id)
      }
      // Both sides see it when the reason is another one.
      try await pair.provider.services.setState(.locked)
      #expect(transfer.waitsFor == .unlock)
      #expect(try await pair.lockedMessage().request == sent.id)
      try await pair.provider.services.setState(.suspended)
      #expect(try await pair.lockedMessage(.suspended).request == sent.id)
      #expect(sent.status == .waiting && transfer.waitsFor == .resumption)
      #expect(try pair.provider.staged().isEmpty)
      try await pair.provider.services.setState(.running)
      #expect(try await sent.reply()?.params == 7)
      try await transfer.ended()
      #expect(transfer.waitsFor == nil)
    }
  }

  @Test(arguments: [true, false])
  func endsWithItsTimeLimitAtASuspendedReceiver(hasChannel: Bool) async throws {
    try await withTestApps { world in
      let pair = try await Pair(world)
      if hasChannel { try await expectEchoes(1, to: pair.provider.id, pair.consumer.services) }
      try await pair.provider.services.setState(.suspended)
      let sent = try await pair.send(timeLimit: .seconds(60))
      let message = try await pair.lockedMessage(.suspended)
      #expect(sent.status == .waiting)
      pair.set(message.date + 60)
      await expectOverdue(sent, .processSuspended)
      #expect(try await pair.consumer.services.outbox().isEmpty)
    }
  }

  /// Nothing can come while it waits.
  @Test func aChannelIsNotIdleWhileItsReceiverIsLocked() async throws {
    try await withTestApps { world in
      let pair = try await Pair(world) { $0.deliveryIdleTime = .seconds(5) }
      try await expectEchoes(1, to: pair.provider.id, pair.consumer.services)
      try await pair.provider.services.setState(.locked)
      let sent = try await pair.send()
      _ = try await pair.lockedMessage()
      pair.providerClock.advance(by: .milliseconds(25_000))
      pair.consumerClock.advance(by: .milliseconds(25_000))
      #expect(pair.channelCount == 1)
      try await pair.provider.services.setState(.running)
      #expect(try await sent.reply()?.params == 7)
      #expect(pair.channelCount == 1)
    }
  }

  @Test func waitsAtTheBrokerUntilTheReceiverIsUnlocked() async throws {
    var options = TestApps.Options()
    options.unlockTime = .zero
    try await withTestApps(options) { world in
      let provider = try await world.start("com.example.provider") {
        try $0.offer(echo) { .reply($0.params) }
      }
      try await provider.services.setState(.locked)
      let consumer = try await world.start("com.example.consumer")
      try consumer.put("one", at: "/one")
      let ends = Box<ServicesError?>()
      consumer.services.onOutboxEnd { ends.put($1) }
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", params: 7, attachments: ["/one"]), to: provider.id)
      // Each is refused with the broker's word.
      for _ in 0..<2 {
        await #expect(throws: ServicesError(.notAllowed)) {
          try await consumer.services.call(ServiceRequest(echo, "echo"), to: provider.id)
        }
      }
      #expect(try await consumer.services.outbox().map(\.state) == [.locked])
      #expect(sent.status == .waiting && ends.values.isEmpty)
      try await provider.services.setState(.running)
      #expect(try await sent.reply()?.params == 7)
      #expect(await ends.next() == .some(nil))
    }
  }

  @Test(arguments: [ApplicationState.locked, .suspended])
  func theReceiverSeesWhoWaits(state: ApplicationState) async throws {
    try await withTestApps { world in
      let pair = try await Pair(world)
      var peers = pair.provider.services.waitingPeers.makeAsyncIterator()
      #expect(await peers.next() == [])
      try await pair.provider.services.setState(state)
      let sent = try await pair.send()
      // There is no channel: the broker tells it.
      #expect(await peers.next() == [pair.consumer.id] && pair.channelCount == 0)
      var late = pair.provider.services.waitingPeers.makeAsyncIterator()
      #expect(await late.next() == [pair.consumer.id])
      try await pair.provider.services.setState(.running)
      #expect(await peers.next() == [])
      #expect(try await pair.reply(to: sent)?.params == 7)
      // Over the channel that is there now it sees it by itself.
      try await pair.provider.services.setState(state)
      let second = try await pair.send()
      #expect(await peers.next() == [pair.consumer.id])
      try await pair.provider.services.setState(.running)
      #expect(await peers.next() == [])
      #expect(try await second.reply()?.params == 7)
      try await pair.provider.services.setState(.locked)
      let small = try await pair.consumer.services.send(
        ServiceRequest(echo, "echo", params: 1), to: pair.provider.id)
      #expect(await peers.next() == [pair.consumer.id])
      try await pair.provider.services.setState(.running)
      #expect(try await small.reply()?.params == 1)
      await pair.provider.services.stop()
      #expect(await peers.next() == [])
      #expect(await peers.next() == nil)
    }
  }

  /// What came before the app was locked, and waits for its turn, is not handled before it is unlocked.
  @Test func theReceiverSeesWhoseRequestsWaitForTheirTurn() async throws {
    final class Slow: ServiceProvider {
      let entered = Box<Int>()
      let leave = DispatchSemaphore(value: 0)

      func didReceive(_ request: IncomingRequest) {
        entered.put(1)
        waitBlocking(leave)
        Task { try await request.reply(request.params) }
      }
    }
    try await withTestApps { world in
      let slow = Slow()
      let provider = try await world.start("com.example.provider") { try $0.offer([echo], provider: slow) }
      let consumer = try await world.start("com.example.consumer")
      var peers = provider.services.waitingPeers.makeAsyncIterator()
      #expect(await peers.next() == [])
      let first = try await consumer.services.send(ServiceRequest(echo, "echo", params: 1), to: provider.id)
      _ = await slow.entered.next()
      let second = try await consumer.services.send(ServiceRequest(echo, "echo", params: 2), to: provider.id)
      while second.status != .delivered { await Task.yield() }
      try await provider.services.setState(.locked)
      #expect(await peers.next() == [consumer.id])
      for _ in 0..<2 { slow.leave.signal() }
      #expect(try await first.reply()?.params == 1)
      #expect(second.status == .delivered && slow.entered.values.count == 1)
      try await provider.services.setState(.running)
      #expect(await peers.next() == [])
      #expect(try await second.reply()?.params == 2)
    }
  }

  /// Over a channel as without one, and nobody is named any more whom a rule keeps away.
  @Test func whoIsRefusedBySuspensionOrARuleIsToldAndTakenBack() async throws {
    try await withTestApps { world in
      let pair = try await Pair(world)
      try await expectEchoes(1, to: pair.provider.id, pair.consumer.services)
      var peers = pair.provider.services.waitingPeers.makeAsyncIterator()
      #expect(await peers.next() == [])
      try await pair.provider.services.setState(.suspended)
      await #expect(throws: ServicesError(.processSuspended)) {
        try await pair.consumer.services.call(ServiceRequest(echo, "echo"), to: pair.provider.id)
      }
      #expect(await peers.next() == [pair.consumer.id])
      let administrator = try await world.administrator()
      defer { administrator.close() }
      let rule = WireRule.with {
        $0.consumer = "com.example.consumer"
        $0.effect = .deny
      }
      _ = try await administrator.ask(.administer(.with { $0.addRule = rule }))
      #expect(await peers.next() == [])
    }
  }

  @Test func endsWithItsTimeLimitOverAChannel() async throws {
    try await withTestApps { world in
      let pair = try await Pair(world)
      let ends = Box<ServicesError?>()
      pair.consumer.services.onOutboxEnd { ends.put($1) }
      try await expectEchoes(1, to: pair.provider.id, pair.consumer.services)
      var arrivals = pair.provider.services.arrivals.makeAsyncIterator()
      try await pair.provider.services.setState(.locked)
      let sent = try await pair.send(timeLimit: .seconds(60))
      let transfer = try #require(await arrivals.next())
      let message = try await pair.lockedMessage()
      pair.set(message.date + 59.9)
      #expect(try await pair.lockedMessage().request == sent.id)
      #expect(sent.status == .waiting)
      pair.set(message.date + 60)
      await expectOverdue(sent, .notAllowed)
      #expect(sent.status == .refused)
      #expect(await ends.next()??.code == .notAllowed)
      await #expect {
        try await transfer.ended()
      } throws: {
        ($0 as? ServicesError)?.code == .cancelled
      }
      try await pair.provider.services.setState(.running)
      try await expectEchoes(1, to: pair.provider.id, pair.consumer.services)
      #expect(try pair.provider.inboxFiles().isEmpty)
      #expect(try await pair.consumer.services.outbox().isEmpty)
    }
  }

  @Test func endsWithItsTimeLimitWithoutAChannel() async throws {
    try await withTestApps { world in
      let pair = try await Pair(world)
      try await pair.provider.services.setState(.locked)
      let sent = try await pair.send(timeLimit: .seconds(60))
      let message = try await pair.lockedMessage()
      pair.set(message.date + 59.9)
      #expect(try await pair.consumer.services.outbox().map(\.state) == [.locked])
      pair.set(message.date + 60)
      await expectOverdue(sent, .notAllowed)
      #expect(try await pair.consumer.services.outbox().isEmpty)
    }
  }

  @Test func whatIsDeliveredHasNoTimeLimit() async throws {
    try await withTestApps { world in
      let pair = try await Pair(world)
      try await pair.provider.services.setState(.locked)
      let sent = try await pair.send(timeLimit: .seconds(60))
      let message = try await pair.lockedMessage()
      try await pair.provider.services.setState(.running)
      #expect(try await sent.reply()?.params == 7)
      pair.set(message.date + 100)
      #expect(sent.status == .replied)
    }
  }

  /// Also while its process does not run.
  @Test func aTimeLimitOutlivesItsProcess() async throws {
    try await withTestApps { world in
      var consumer = try await world.start("com.example.consumer")
      try consumer.put("one", at: "/one")
      await world.stopBroker()
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: ["/one"], timeLimit: .seconds(60)),
        to: ApplicationID("com.example.provider"))
      let message = try #require(try await consumer.services.outbox().first)
      try await world.startBroker()
      let ends = Box<(RequestID, ServicesError?)>()
      for (seconds, count) in [(59.9, 1), (60, 0)] {
        try await world.end(consumer)
        consumer = try await world.start(consumer.id.text) {
          $0.onOutboxEnd { ends.put(($0.request, $1)) }
        } options: {
          $0.clock = DateClock { message.date + seconds }
        }
        if count == 0 {
          let (request, error) = try #require(await ends.next())
          #expect(request == sent.id && error?.code == .cancelled)
          #expect(error?.detail == "time limit of the message")
        }
        #expect(try await consumer.services.outbox().count == count)
      }
      #expect(ends.values.count == 1)
    }
  }
}
