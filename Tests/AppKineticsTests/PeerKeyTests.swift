import AppKineticsTesting
import Foundation
import Locks
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives
import TestSupport
import Testing

@testable import AppKinetics

/// Keys of other apps that a container keeps, and a broker that names others.
struct PeerKeyTests {
  private let providerID = "com.example.provider"
  private let consumerID = "com.example.consumer"

  private func provider(_ world: TestApps, _ received: Box<String>? = nil) async throws -> TestApp {
    let provider = try await world.app(providerID)
    try provider.services.offer(echo) { request in
      received?.put(request.params?.stringValue ?? "")
      return .reply(request.params)
    }
    try await provider.services.start()
    return provider
  }

  private func consumer(_ world: TestApps) async throws -> TestApp {
    let consumer = try await world.app(consumerID)
    try consumer.container.files.write(Data("one".utf8), toPath: "/one")
    try await consumer.services.start()
    return consumer
  }

  /// The container is gone, and the broker lets another one enrol with the id: as after `apps forget`,
  /// or by a broker that lies.
  private func loseContainer(_ app: TestApp, _ world: TestApps) async throws {
    await app.services.stop()
    try await app.container.close()
    await world.stopBroker()
    try FileManager.default.removeItem(at: world.directory.appendingPathComponent(app.id.text))
    try FileManager.default.removeItem(
      atPath: world.stateDirectory + "/apps/" + app.id.text)
    try await world.startBroker()
  }

  private func stop(_ app: TestApp) async throws {
    await app.services.stop()
    try await app.container.close()
  }

  private func expectPeerKeyChanged(
    _ sender: TestApp, _ receiver: ApplicationID, attachments: [String] = []
  ) async throws {
    await #expect {
      let request = ServiceRequest(echo, "echo", params: "no", attachments: attachments)
      _ = try await sender.services.call(request, to: receiver)
    } throws: { ($0 as? ServicesError)?.code == .peerKeyChanged }
  }

  @Test func pinsEachOthersKeysAtTheFirstMeeting() async throws {
    try await withTestApps { world in
      let (provider, consumer) = (try await provider(world), try await consumer(world))
      #expect(await consumer.services.peerKeys().isEmpty)
      _ = try await consumer.services.call(ServiceRequest(echo, "echo"), to: provider.id)
      for (app, other) in [(provider, consumer), (consumer, provider)] {
        let keys = await app.services.peerKeys()
        #expect(keys.map(\.application) == [other.id])
        #expect(keys.map(\.fingerprint) == [other.services.keyFingerprint])
        #expect(keys.allSatisfy { $0.newFingerprint == nil && $0.date.timeIntervalSinceNow > -60 })
        await app.services.stop()
        // What is in the container.
        #expect(try PeerKey.all(in: app.container).map(\.fingerprint) == keys.map(\.fingerprint))
        #expect(try PeerKey.ownFingerprint(in: app.container) == app.services.keyFingerprint)
      }
    }
  }

  @Test func aKeyHasTheDateOfTheServicesClock() async throws {
    try await withTestApps { world in
      let provider = try await provider(world)
      let date = Date(timeIntervalSince1970: 2_000_000_000)
      let consumer = try await world.start(consumerID, options: { $0.clock = DateClock { date } })
      _ = try await consumer.services.call(ServiceRequest(echo, "echo"), to: provider.id)
      #expect(await consumer.services.peerKeys().map(\.date) == [date])
    }
  }

  @Test func aTrustedKeyHasTheDateOfTheServicesClock() async throws {
    try await withTestApps { world in
      let old = try await provider(world)
      let date = Guarded(Date(timeIntervalSince1970: 2_000_000_000))
      let consumer = try await world.start(
        consumerID, options: { $0.clock = DateClock { date.withLock { $0 } } })
      _ = try await consumer.services.call(ServiceRequest(echo, "echo"), to: old.id)
      try await loseContainer(old, world)
      let new = try await provider(world)
      try await expectPeerKeyChanged(consumer, new.id)
      date.withLock { $0 += 60 }
      try await consumer.services.trust(new.id, fingerprint: new.services.keyFingerprint)
      let keys = await consumer.services.peerKeys()
      #expect(keys.map(\.fingerprint) == [new.services.keyFingerprint])
      #expect(keys.map(\.date) == [Date(timeIntervalSince1970: 2_000_000_060)])
    }
  }

  /// Neither side exchanges anything before the user has trusted the new key, whoever dials.
  @Test func exchangesNothingWithAnotherKey() async throws {
    try await withTestApps { world in
      let received = Box<String>()
      var (provider, consumer) = (try await provider(world), try await consumer(world))
      _ = try await consumer.services.call(ServiceRequest(echo, "echo"), to: provider.id)
      let old = provider.services.keyFingerprint
      try await loseContainer(provider, world)
      provider = try await self.provider(world, received)
      try provider.container.files.write(Data("two".utf8), toPath: "/two")
      let new = provider.services.keyFingerprint
      #expect(new != old)

      let changes = Box<PeerKey>()
      let stream = consumer.services.peerKeyChanges
      let watching = Task { for await key in stream { changes.put(key) } }
      defer { watching.cancel() }
      try await expectPeerKeyChanged(consumer, provider.id)
      let change = try #require(await changes.next())
      #expect(change.application == provider.id && change.fingerprint == old && change.newFingerprint == new)
      try await expectPeerKeyChanged(consumer, provider.id, attachments: ["/one"])
      #expect(try await consumer.services.outbox().isEmpty)
      // The new one hears why not.
      try consumer.services.offer(echo) { .reply($0.params) }
      try await expectPeerKeyChanged(provider, consumer.id)
      try await expectPeerKeyChanged(provider, consumer.id, attachments: ["/two"])
      let files = try provider.inboxFiles() + consumer.inboxFiles()
      #expect(received.values.isEmpty && files.isEmpty)
      #expect(await provider.services.peerKeys().isEmpty)
      // Told once.
      #expect(changes.values.count == 1)

      // It is remembered.
      try await stop(consumer)
      consumer = try await world.app(consumerID)
      let kept = await consumer.services.peerKeys()
      #expect(kept.map(\.fingerprint) == [old] && kept.map(\.newFingerprint) == [new])
      try await consumer.services.start()
      try await expectPeerKeyChanged(consumer, provider.id)

      await #expect {
        try await consumer.services.trust(provider.id, fingerprint: consumer.services.keyFingerprint)
      } throws: { ($0 as? ServicesError)?.code == .peerKeyChanged }
      await #expect {
        try await consumer.services.trust(ApplicationID("com.example.nobody"), fingerprint: new)
      } throws: { ($0 as? ServicesError)?.code == .applicationNotFound }
      try await expectPeerKeyChanged(consumer, provider.id)
      try await consumer.services.trust(
        provider.id, fingerprint: new.uppercased().replacingOccurrences(of: " ", with: ""))
      _ = try await consumer.services.call(
        ServiceRequest(echo, "echo", params: "yes", attachments: ["/one"]), to: provider.id)
      #expect(received.values == ["yes"])
      #expect(await consumer.services.peerKeys().map(\.newFingerprint) == [nil])
    }
  }

  /// A message that waits for the old key is not given to the new one, over restarts, until that is
  /// trusted; then it arrives once.
  @Test func holdsMailForAnotherKey() async throws {
    try await withTestApps { world in
      let received = Box<String>()
      var (provider, consumer) = (try await provider(world), try await consumer(world))
      _ = try await consumer.services.call(ServiceRequest(echo, "echo"), to: provider.id)
      await world.stopBroker()
      _ = try await consumer.services.send(
        ServiceRequest(echo, "tell", params: "held", attachments: ["/one"]), to: provider.id)
      try await stop(consumer)
      try await world.startBroker()
      try await loseContainer(provider, world)
      provider = try await self.provider(world, received)

      consumer = try await world.app(consumerID)
      let changes = Box<PeerKey>()
      let stream = consumer.services.peerKeyChanges
      let watching = Task { for await key in stream { changes.put(key) } }
      defer { watching.cancel() }
      try await consumer.services.start()
      let change = try #require(await changes.next())
      #expect(try await consumer.services.outbox().map(\.state) == [.held])
      #expect(received.values.isEmpty)
      #expect(try provider.inboxFiles().isEmpty)
      try await stop(consumer)

      // By a tool, while the app does not run.
      let key = try TestApps.containerKey()
      let container = try await SecureContainer.open(
        at: world.directory.appendingPathComponent(consumerID), rawKey: key)
      #expect(try OutboxMessage.all(in: container).map(\.state) == [.held])
      try PeerKey.trust(provider.id, fingerprint: try #require(change.newFingerprint), in: container)
      #expect(try OutboxMessage.all(in: container).map(\.state) == [.waiting])
      try await container.close()

      consumer = try await world.app(consumerID)
      let ended = Box<ServicesError?>()
      consumer.services.onOutboxEnd { ended.put($1) }
      try await consumer.services.start()
      #expect(await ended.next() == .some(nil))
      #expect(await received.next() == "held")
      #expect(received.values.count == 1)
      #expect(try provider.inboxFiles().count == 1)
    }
  }

  /// The user may trust the old key once more, and the app with it comes back.
  @Test func goesOnWithTheOldKeyWhenItIsProved() async throws {
    try await withTestApps { world in
      let provider = try await provider(world)
      let consumer = try await consumer(world)
      _ = try await consumer.services.call(ServiceRequest(echo, "echo"), to: provider.id)
      let old = provider.services.keyFingerprint
      let place = world.directory.appendingPathComponent(providerID)
      let backup = world.directory.appendingPathComponent("backup")
      try await stop(provider)
      try FileManager.default.copyItem(at: place, to: backup)
      let other = try await self.provider(world)
      try await loseContainer(other, world)
      let impostor = try await self.provider(world)
      try await expectPeerKeyChanged(consumer, impostor.id)
      try await loseContainer(impostor, world)
      try FileManager.default.copyItem(at: backup, to: place)
      let back = try await self.provider(world)
      #expect(back.services.keyFingerprint == old)
      _ = try await consumer.services.call(ServiceRequest(echo, "echo"), to: back.id)
      #expect(await consumer.services.peerKeys().map(\.newFingerprint) == [nil])
    }
  }

  /// What cannot be read is not taken for a first meeting.
  @Test func trustsNoKeyWhoseRecordIsDamaged() async throws {
    try await withTestApps { world in
      let provider = try await provider(world)
      var consumer = try await consumer(world)
      _ = try await consumer.services.call(ServiceRequest(echo, "echo"), to: provider.id)
      await consumer.services.stop()
      let path = PeerPins.directory + "/" + providerID
      let bytes = try consumer.container.files.data(atPath: path)
      try consumer.container.files.write(bytes.dropLast(), toPath: path)
      try await consumer.container.close()
      consumer = try await self.consumer(world)
      #expect(await consumer.services.peerKeys().map(\.fingerprint) == [nil])
      try await expectPeerKeyChanged(consumer, provider.id)
      let named = try #require(await consumer.services.peerKeys().first?.newFingerprint)
      #expect(named == provider.services.keyFingerprint)
      try await consumer.services.trust(provider.id, fingerprint: named)
      _ = try await consumer.services.call(ServiceRequest(echo, "echo"), to: provider.id)
    }
  }

  @Test func forgetsAKey() async throws {
    try await withTestApps { world in
      let provider = try await provider(world)
      let consumer = try await consumer(world)
      _ = try await consumer.services.call(ServiceRequest(echo, "echo"), to: provider.id)
      #expect(try await consumer.services.forgetKey(of: provider.id))
      #expect(try await !consumer.services.forgetKey(of: provider.id))
      #expect(await consumer.services.peerKeys().isEmpty)
      try await loseContainer(provider, world)
      let next = try await self.provider(world)
      _ = try await consumer.services.call(ServiceRequest(echo, "echo"), to: next.id)
      #expect(
        await consumer.services.peerKeys().map(\.fingerprint) == [next.services.keyFingerprint])
    }
  }
}

/// What a container knows of keys, as a value.
struct PeerPinTests {
  private func key(_ byte: UInt8) -> Data { Data(repeating: byte, count: 32) }
  private func app(_ number: Int) throws -> ApplicationID { try ApplicationID("com.example.a\(number)") }

  /// Two channels began at once with two keys: the first that is proved is the app's.
  @Test func takesTheFirstOfTwoKeys() throws {
    var pins = PeerPins()
    let app = try app(1)
    #expect(pins.standing(of: key(1), for: app, isCalled: true) == .unknown)
    #expect(pins.standing(of: key(2), for: app, isCalled: true) == .unknown)
    let isNews = pins.take(key(1), of: app, isCalled: true, Date())
    #expect(isNews)
    #expect(pins.standing(of: key(1), for: app, isCalled: false) == .trusted)
    #expect(pins.standing(of: key(2), for: app, isCalled: true) == .changed)
    let isNewsAgain = pins.take(key(1), of: app, isCalled: true, Date())
    #expect(!isNewsAgain)
  }

  @Test func aKeyHasTheDateAtWhichItWasTrusted() throws {
    var pins = PeerPins()
    let app = try app(1)
    let (taken, decided) = (Date(timeIntervalSince1970: 1_000), Date(timeIntervalSince1970: 2_000))
    _ = pins.take(key(1), of: app, isCalled: true, taken)
    _ = pins.note(newKey: key(2), of: app)
    try pins.trust(app, KeyFingerprint.text(of: key(1)), decided)
    #expect(pins.key(of: app)?.date == taken)
    _ = pins.note(newKey: key(2), of: app)
    try pins.trust(app, KeyFingerprint.text(of: key(2)), decided)
    #expect(pins.key(of: app)?.date == decided)
  }

  @Test func keepsRoomForAppsThatAreCalled() throws {
    var pins = PeerPins()
    for i in 0..<PeerPins.strangerCountMax {
      #expect(pins.standing(of: key(1), for: try app(i), isCalled: false) == .unknown)
      _ = pins.take(key(1), of: try app(i), isCalled: false, Date())
    }
    let other = try app(PeerPins.countMax)
    #expect(pins.standing(of: key(1), for: other, isCalled: false) == .noRoom)
    #expect(pins.standing(of: key(1), for: other, isCalled: true) == .unknown)
    // One that is called is no stranger any more.
    _ = pins.take(key(1), of: try app(0), isCalled: true, Date())
    #expect(pins.standing(of: key(1), for: other, isCalled: false) == .unknown)
    for i in PeerPins.strangerCountMax..<PeerPins.countMax {
      _ = pins.take(key(1), of: try app(i), isCalled: true, Date())
    }
    #expect(pins.standing(of: key(1), for: other, isCalled: true) == .noRoom)
    _ = pins.remove(try app(5))
    #expect(pins.standing(of: key(1), for: other, isCalled: true) == .unknown)
  }

  @Test func readsWhatItWrites() throws {
    let date = Date(timeIntervalSince1970: 1_700_000_000.5)
    for newKey in [nil, key(2)] {
      for trusted in [nil, key(1)] {
        for wasCalled in [false, true] {
          let pin = PeerPins.Pin(key: trusted, newKey: newKey, wasCalled: wasCalled, date: date)
          #expect(PeerPins.Pin(pin.encoded) == pin)
        }
      }
    }
    let bytes = PeerPins.Pin(key: key(1), newKey: key(2), wasCalled: true, date: date).encoded
    for count in 0..<bytes.count where count != 41 { #expect(PeerPins.Pin(bytes.prefix(count)) == nil) }
    #expect(PeerPins.Pin(bytes + [0]) == nil)
    #expect(PeerPins.Pin(Data([2]) + bytes.dropFirst()) == nil)
  }

  #if os(Linux)
    /// In locked memory while the services run, and nowhere after that, though they are referenced.
    @Test(.enabled(if: MemorySearch.isPossible)) func theOwnKeyGoesWithTheServices() async throws {
      try await withTestApps { world in
        for isSealed in [false, true] {
          let first = try await world.start("com.example.app")
          let peer = try await world.start("com.example.peer") { try $0.offer(echo) { _ in .noReply } }
          let app = try await world.restart(first)
          _ = try await app.services.call(ServiceRequest(echo, "tell"), to: peer.id)
          let key = app.services.runtime.performAndWait { $0.identity.key }
          let search = try MemorySearch(count: KeyPair.byteCount) { target in
            try key.withPrivateKey { target.copyMemory(from: $0) }
          }
          #expect(search.places().count == 1)
          if isSealed {
            try app.container.close(.now, because: "a test")
          } else {
            await app.services.stop()
          }
          #expect(search.places() == [])
          #expect(throws: CryptoError.keysWiped) { try key.withPrivateKey { _ in } }
          try await world.end(app)
          try await world.end(peer)
        }
      }
    }
  #endif
}
