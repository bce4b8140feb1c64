import AppKineticsTesting
import Foundation
import ServiceValues
import ServiceWire
import Testing
import UnixSockets

@testable import AppKinetics

/// What apps of a sandbox can make an app keep.
struct SandboxTests {
  /// Requests that nobody answers, of more bytes than a sandbox has.
  @Test func requestsOfASandboxAreBoundedTogether() async throws {
    try await withTestApps { world in
      let gate = AsyncStream<Void>.makeStream()
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { _ in
        for await _ in gate.stream {}
        return .noReply
      }
      try await provider.services.start()
      let request = ServiceRequest(echo, "tell", params: .bytes([UInt8](repeating: 1, count: 1_000_000)))
      var consumers: [AppServices] = []
      for i in 0..<3 {
        let consumer = try await world.app("com.example.consumer\(i)").services
        try await consumer.start()
        // So that the provider knows it.
        try await consumer.send(ServiceRequest(echo, "tell", params: .null), to: provider.id).delivered()
        consumers.append(consumer)
      }
      let boxed = consumers[0...1].map(\.application.id)
      provider.services.runtime.performAndWait { core in
        for id in boxed { core.peers[id]?.setSandbox(7) }
      }
      /// How many of so many are taken.
      func taken(_ count: Int, from consumers: [AppServices]) async throws -> Int {
        var sent: [SentRequest] = []
        for i in 0..<count {
          sent.append(try await consumers[i % consumers.count].send(request, to: provider.id))
        }
        var taken = 0
        for request in sent {
          do {
            try await request.delivered()
            taken += 1
          } catch let error as ServicesError {
            #expect(error.code == .limitExceeded)
          }
        }
        return taken
      }
      #expect(try await taken(16, from: Array(consumers[0...1])) == 8)
      #expect(try await taken(1, from: [consumers[1]]) == 0)
      // Nobody else hears of it.
      #expect(try await taken(12, from: [consumers[2]]) == 12)
      #expect(
        provider.services.runtime.performAndWait { $0.charges.room(in: 7, own: .init()) }.channelCount == 10)
      // Who leaves gives back what was kept for it.
      await consumers[0].stop()
      gate.continuation.finish()
      await consumers[1].stop()
    }
  }

  /// A list of files with long paths costs memory before anything of it is stored.
  @Test func listsOfASandboxAreBoundedTogether() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { .reply(.integer(Int64($0.attachments.count))) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try await consumer.services.start()
      try await expectEchoes(1, to: provider.id, consumer.services)
      // 7,680 bytes in front of each name.
      let folder = String(repeating: "/" + String(repeating: "x", count: 255), count: 30)
      try consumer.container.files.createDirectory(atPath: folder, withIntermediateDirectories: true)
      let limit = 1 << 20
      let fileCount = limit / (folder.utf8.count + 128) + 1
      for i in 0..<fileCount { try consumer.container.files.write(Data(), toPath: "\(folder)/\(i)") }
      func send(_ path: String) async throws -> ServiceValue? {
        try await consumer.services.call(
          ServiceRequest(echo, "echo", attachments: [path]), to: provider.id
        )?.params
      }
      func held() -> Int { provider.services.runtime.performAndWait { $0.heldOfferByteCount } }
      #expect(try await send(folder) == .integer(Int64(fileCount)))
      // Until the message is out of the queue.
      while held() != 0 { await Task.yield() }
      provider.services.runtime.performAndWait { core in
        core.charges = SandboxCharges(
          limit: SandboxCharges.Charge(
            requestByteCount: limit, replyByteCount: limit, channelCount: 16, offerByteCount: limit))
        core.peers[consumer.id]?.setSandbox(7)
      }
      await #expect {
        _ = try await send(folder)
      } throws: {
        ($0 as? ServicesError)?.detail == "bytes of offers and lists of files"
      }
      #expect(try await send(folder + "/0") == .integer(1))
      while held() != 0 { await Task.yield() }
      #expect(provider.services.runtime.performAndWait { $0.charges[7].offerByteCount } == 0)
    }
  }

  /// Each list alone has room, and all together have not: then they come one after the other.
  @Test func listsThatHaveNoRoomTogetherArrive() async throws {
    try await withTestApps { world in
      let provider = try await world.start("com.example.provider") {
        try $0.offer(echo) { .reply(.integer(Int64($0.attachments.count))) }
      }
      let consumer = try await world.start("com.example.consumer")
      let folder = String(repeating: "/" + String(repeating: "x", count: 255), count: 30)
      for i in 0..<80 { try consumer.put("", at: "\(folder)/\(i)") }
      // What others hold leaves 2 MiB, and one app half of it.
      let others = Core.heldOfferByteCountMax - (2 << 20)
      provider.services.runtime.performAndWait { $0.heldOfferByteCount += others }
      var sent: [SentRequest] = []
      for _ in 0..<3 {
        sent.append(
          try await consumer.services.send(
            ServiceRequest(echo, "echo", attachments: [folder]), to: provider.id))
      }
      for sent in sent { #expect(try await sent.reply()?.params == 80) }
    }
  }

  /// What has arrived is in memory until its handler has returned, and who sends faster than that waits.
  @Test func messagesThatWaitForTheirHandlersAreBounded() async throws {
    try await withTestApps { world in
      let gate = AsyncStream<Void>.makeStream()
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) {
        for await _ in gate.stream {}
        return .reply(.integer(Int64($0.attachments.count)))
      }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try await consumer.services.start()
      try consumer.container.files.write(Data([1]), toPath: "/one")
      let request = ServiceRequest(
        echo, "echo", params: .bytes([UInt8](repeating: 1, count: 100_000)), attachments: ["/one"])
      // What others hold leaves 2 MiB, and one app half of it.
      let (limit, others) = (1 << 20, Core.heldOfferByteCountMax - (2 << 20))
      provider.services.runtime.performAndWait { $0.heldOfferByteCount += others }
      var sent: [SentRequest] = []
      for _ in 0..<12 { sent.append(try await consumer.services.send(request, to: provider.id)) }
      func held() -> Int { provider.services.runtime.performAndWait { $0.heldOfferByteCount } }
      func arrived() throws -> Int { try provider.container.store.messageQueue().unhandled.count }
      while try arrived() < 9 { await Task.yield() }
      try await Task.sleep(for: .milliseconds(300))
      let count = try arrived()
      #expect((9...10).contains(count))
      #expect(held() - others <= limit)
      gate.continuation.finish()
      for sent in sent { #expect(try await sent.reply()?.params == 1) }
      while held() != others { await Task.yield() }
      #expect(provider.services.runtime.performAndWait { $0.messages.heldByteCounts.isEmpty })
    }
  }

  /// Both ends of a pair, for an app to take over the near one.
  private func sockets() throws -> (near: Int32, far: Int32) {
    let pair = try SocketPair()
    return (dup(pair.first.descriptorNumber), dup(pair.second.descriptorNumber))
  }

  private func introduction(
    _ number: Int, _ role: WireRole, _ id: ApplicationID, origin: UInt64 = 0
  ) -> WireIntroduction {
    .with {
      $0.ticket = Data(repeating: UInt8(number), count: 32)
      $0.role = role
      $0.appID = id.text
      $0.activationUser = NSUserName()
      $0.publicKey = Data(repeating: 9, count: 32)
      $0.origin = origin
    }
  }

  /// One more app of a sandbox, or one more channel, does not get more of this app's attention.
  @Test func appsOfASandboxHaveOneTurnAndTwelveChannels() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider").services
      try await provider.start()
      let ids = try (0..<20).map { try ApplicationID("com.example.boxed\($0)") }
      let (controls, bulks) = (try ids.map { _ in try sockets() }, try ids.map { _ in try sockets() })
      defer { for pair in controls + bulks { close(pair.far) } }
      let otherID = try ApplicationID("com.example.other")
      let (channelCount, turnCount, others) = provider.runtime.performAndWait { core in
        for (i, id) in ids.enumerated() {
          core.peer(id).open(introduction(i, .acceptor, id, origin: 7), controls[i].near, bulks[i].near)
        }
        let other = core.peer(otherID)
        other.setSandbox(8)
        let boxed = ids.compactMap { core.peers[$0] }
        return (
          boxed.reduce(0) { $0 + $1.channels.count },
          Set(boxed.map { ObjectIdentifier($0.readerTurn) }).count,
          boxed.contains { $0.readerTurn === other.readerTurn }
        )
      }
      #expect(channelCount == 12 && turnCount == 1 && !others)
      // Those that were not taken are closed.
      for pair in controls[12...] + bulks[12...] {
        var descriptor = pollfd(fd: pair.far, events: Int16(POLLIN), revents: 0)
        #expect(poll(&descriptor, 1, 0) == 1 && descriptor.revents & Int16(POLLHUP) != 0)
      }
    }
  }

  /// What a broker says of who has asked counts for nothing.
  @Test func introductionsThatNobodyAskedForAreThoseOfTheOtherApp() async throws {
    try await withTestApps { world in
      let app = try await world.app("com.example.app").services
      try await app.start()
      let peerID = try ApplicationID("com.example.peer")
      let pairs = try (0..<12).map { _ in try sockets() }
      defer { for pair in pairs { close(pair.far) } }
      let (channelCount, isDialled) = app.runtime.performAndWait { core in
        let peer = core.peer(peerID)
        for i in 0..<6 {
          peer.open(introduction(i, .dialler, peerID), pairs[2 * i].near, pairs[2 * i + 1].near)
        }
        return (peer.channels.count, peer.channels.values.contains(where: \.isDialled))
      }
      #expect(channelCount == 4 && !isDialled)
    }
  }

  /// What is left is halved, whoever asks.
  @Test func offersOfOneAppTakeHalfOfWhatOthersLeave() async throws {
    try await withTestApps { world in
      let app = try await world.app("com.example.app").services
      try await app.start()
      let peerID = try ApplicationID("com.example.peer")
      let (alone, beside, boxed) = app.runtime.performAndWait { core in
        let peer = core.peer(peerID)
        let alone = peer.offerByteCountLeft
        core.heldOfferByteCount = 100 << 20
        let beside = peer.offerByteCountLeft
        peer.setSandbox(7)
        let boxed = peer.offerByteCountLeft
        core.heldOfferByteCount = 0
        return (alone, beside, boxed)
      }
      #expect(alone == 128 << 20 && beside == 78 << 20 && boxed == 24 << 20)
    }
  }

  /// A request is known by its app and its id: what another app says of the same id is about another request.
  @Test func oneIDOfTwoAppsIsTwoRequests() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let seen = Box<ApplicationID>()
      try provider.services.offer(echo) { request in
        if request.params == "held" { seen.put(request.sender) }
        return .reply(request.params)
      }
      try await provider.services.start()
      var consumers: [AppServices] = []
      for name in ["one", "two"] {
        let consumer = try await world.app("com.example.\(name)").services
        try await consumer.start()
        try await expectEchoes(1, to: provider.id, consumer)
        consumers.append(consumer)
      }
      try await provider.services.setState(.locked)
      let id = RequestID.random()
      let request = WireRequest.with {
        $0.id = id.data
        $0.serviceID = echo.serviceID.text
        $0.version = echo.version.text
        $0.method = "tell"
        $0.params.string = "held"
      }
      func waiting(_ consumer: AppServices) -> Int {
        provider.services.runtime.performAndWait {
          $0.peers[consumer.application.id]?.exchange.incomingCount ?? 0
        }
      }
      for consumer in consumers {
        consumer.runtime.performAndWait { core in
          guard let peer = core.peers[provider.id] else { return }
          peer.act((try? peer.exchange.submit(request)) ?? [])
        }
        while waiting(consumer) == 0 { await Task.yield() }
      }
      consumers[0].runtime.performAndWait { core in
        guard let peer = core.peers[provider.id] else { return }
        peer.act(peer.exchange.cancel(id))
      }
      while waiting(consumers[0]) > 0 { await Task.yield() }
      #expect(waiting(consumers[1]) == 1)
      try await provider.services.setState(.running)
      #expect(await seen.next() == consumers[1].application.id)
    }
  }
}
