import AppKineticsTesting
import ContainerStore
import Foundation
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives
import TestSupport
import Testing

@testable import AppKinetics

/// What another app must not make this one spend, beside what ``SandboxTests`` have.
@Suite(.timeLimit(.minutes(10)))
struct NeighbourTests {
  // MARK: Replies

  private func reply(to request: Identifier, _ number: UInt64) -> WireOffer {
    .with {
      $0.id = Identifier.random().data
      $0.incarnation.draw = Identifier(high: 1, low: 1).data
      $0.incarnation.generation = 1
      $0.number = number
      $0.reply.id = request.data
    }
  }

  /// One delivery brings the reply to a request, and the one that was offered first goes on.
  @Test func aSecondReplyToARequestIsRefused() async throws {
    try await withTestApps { world in
      let app = try await world.start("com.example.app").services
      let peerID = try ApplicationID("com.example.peer")
      let request = Identifier.random()
      let offers = [reply(to: request, 1), reply(to: request, 2), reply(to: .random(), 3)]
      let results = app.runtime.performAndWait { core in
        let checks = OfferChecks(peer: core.peer(peerID))
        let deliveries = offers.enumerated().map { i, offer in
          let delivery = IncomingDelivery(offer)
          _ = delivery.beginAttempt(offer, at: UInt64(i) + 1)
          return delivery
        }
        return deliveries.map { (try? checks.requireStill($0, among: deliveries)) == nil }
      }
      #expect(results == [false, true, false])
    }
  }

  /// The other app decides how many replies are sent to it: while so many wait, none of its requests is taken.
  @Test func repliesThatNobodyTakesAreBounded() async throws {
    try await withTestApps { world in
      let provider = try await world.start("com.example.provider") {
        try $0.offer(echo) { _ in .reply(nil, attachments: ["/reply"]) }
      }
      try provider.put("reply", at: "/reply")
      let consumer = try await world.start("com.example.consumer")
      try await consumer.services.send(ServiceRequest(echo, "tell"), to: provider.id).delivered()
      let limit = 256 << 10
      provider.services.runtime.performAndWait { core in
        core.charges = SandboxCharges(
          limit: SandboxCharges.Charge(
            requestByteCount: limit, replyByteCount: limit, channelCount: 16, offerByteCount: limit))
      }
      // So that it takes no reply.
      try await consumer.container.close()
      var (refused, accepted) = (0, 0)
      for _ in 0..<40 {
        // The broker says nothing of a sandbox.
        provider.services.runtime.performAndWait { $0.peers[consumer.id]?.setSandbox(7) }
        let sent = try await consumer.services.send(ServiceRequest(echo, "echo"), to: provider.id)
        do {
          try await sent.delivered()
          // Its reply is on its way before the next one.
          accepted += 1
          while try await provider.services.outbox().count < accepted {
            try await Task.sleep(for: .milliseconds(1))
          }
        } catch let error as ServicesError {
          #expect(error.code == .limitExceeded)
          refused += 1
        }
      }
      // One whose reply is in the outbox is charged a moment later.
      #expect((14...20).contains(accepted), "\(accepted) taken, \(refused) refused")
    }
  }

  // MARK: Rules

  /// A rule that was made while a message arrived holds for it.
  @Test func aDenialIsAskedForBeforeTheCommit() async throws {
    try await withTestApps { world in
      let provider = try await world.start("com.example.provider") {
        try $0.offer(echo) { .reply($0.params) }
      }
      let peerID = try ApplicationID("com.example.peer")
      let offer = WireOffer.with {
        $0.id = Identifier.random().data
        $0.request.id = $0.id
        $0.request.serviceID = echo.serviceID.text
        $0.request.version = echo.version.text
        $0.request.method = "tell"
      }
      let codes = provider.services.runtime.performAndWait { core in
        let checks = OfferChecks(peer: core.peer(peerID))
        let delivery = IncomingDelivery(offer)
        func code() -> ServicesError.Code? {
          do throws(ServicesError) {
            try checks.requireStill(delivery, among: [delivery])
            return nil
          } catch { return error.code }
        }
        let before = code()
        core.take(
          .with {
            $0.access = [
              .with {
                $0.effect = .deny
                $0.consumer = peerID.text
              }
            ]
          })
        return [before, code()]
      }
      #expect(codes == [nil, .notAllowed])
    }
  }

  // MARK: Folders and the disk

  /// 250 files in 125 folders each: a list of 70 KiB, and 31,000 folders.
  @Test func foldersAreCharged() async throws {
    try await withTestApps { world in
      let provider = try await world.start("com.example.provider") {
        try $0.offer(echo) { .reply(.integer(Int64($0.attachments.count))) }
      }
      let consumer = try await world.start("com.example.consumer")
      try await expectEchoes(1, to: provider.id, consumer.services)
      provider.services.runtime.performAndWait { $0.peers[consumer.id]?.setSandbox(7) }
      let files = consumer.container.files
      for i in 0..<250 {
        let folder = "/many/\(i)" + String(repeating: "/a", count: 123)
        try files.createDirectory(atPath: folder, withIntermediateDirectories: true)
        try files.write(Data(), toPath: folder + "/f")
      }
      await #expect {
        _ = try await consumer.services.call(
          ServiceRequest(echo, "echo", attachments: ["/many"]), to: provider.id)
      } throws: {
        ($0 as? ServicesError)?.detail == OfferCharges.limit
      }
      #expect(
        try await consumer.services.call(
          ServiceRequest(echo, "echo", attachments: ["/many/7"]), to: provider.id)?.params == 1)
    }
  }

  /// What is promised counts beside what is there, however often that is counted.
  @Test func aSandboxGetsHalfOfTheDisk() throws {
    var disk = SandboxDisk()
    disk.join("com.example.a", 7)
    func promise(_ byteCount: UInt64, free: UInt64) -> SandboxDisk.Promise? {
      disk.promise(byteCount, 7, free: free)
    }
    func begins(at now: UInt64) -> Bool { disk.beginCounting(7, now: now) }
    #expect(!disk.isCounted(7) && promise(1, free: 1000) == nil)
    #expect(begins(at: 0) && !begins(at: 0))
    disk.endCounting(0, 7, now: 0)
    #expect(!begins(at: 9_999))
    let first = try #require(promise(300, free: 1000))
    let second = try #require(promise(200, free: 1000))
    #expect(promise(1, free: 1000) == nil)
    // All of the first and nothing of the second has come.
    disk.countSoon(7)
    #expect(begins(at: 100))
    disk.endCounting(300, 7, now: 100)
    #expect(promise(1, free: 700) == nil)
    disk.end(first)
    disk.end(second)
    #expect(promise(1, free: 700) == nil)
    #expect(begins(at: 10_100))
    disk.endCounting(nil, 7, now: 10_100)
    #expect(promise(1, free: 700) == nil)
    disk.countSoon(7)
    #expect(begins(at: 10_101))
    disk.endCounting(300, 7, now: 10_101)
    #expect(promise(200, free: 700) != nil && promise(.max, free: .max) == nil)
  }

  // MARK: A container that cannot be asked

  /// Whether the message has arrived is not known, and its sender does not ask again and again.
  @Test func aMessageIsTakenBackWhileTheContainerIsClosed() async throws {
    try await withTestApps { world in
      let received = Box<IncomingRequest>()
      func offer(_ services: AppServices) throws {
        try services.offer(echo) { request in
          received.put(request)
          return .reply(request.params)
        }
      }
      var provider = try await world.start("com.example.provider", prepare: offer)
      let consumer = try await world.start("com.example.consumer")
      try consumer.put("one", at: "/one")
      try await expectEchoes(1, to: provider.id, consumer.services)
      try await provider.container.close()
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: ["/one"]), to: provider.id)
      while try await consumer.services.outbox().map(\.state) != [.noStorage] {
        try await Task.sleep(for: .milliseconds(5))
      }
      func channels() -> Set<ChannelNumber> {
        consumer.services.runtime.performAndWait { Set($0.peers.values.flatMap(\.channels.keys)) }
      }
      let before = channels()
      let cancelling = Task { await sent.cancel() }
      try await Task.sleep(for: .milliseconds(2500))
      #expect(channels() == before && !sent.hasEnded)
      provider = try await world.restart(provider, prepare: offer)
      await #expect(throws: ServicesError.self) { try await sent.reply() }
      #expect(await cancelling.value)
      #expect(sent.status == .cancelled)
      #expect(try provider.inboxFiles().isEmpty)
      #expect(received.values.count == 1)
    }
  }
}
