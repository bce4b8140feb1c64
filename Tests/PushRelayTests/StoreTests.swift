import Foundation
import PushWire
import Testing

@testable import PushRelay

/// What every store has to do, whatever it is made of. `Store` opens one in a folder; the folder outlives it.
protocol StoreConformance {
  associatedtype Store: PushStore
  func store(in folder: URL) throws -> Store
}

struct SQLiteStoreConformance: StoreConformance {
  func store(in folder: URL) throws -> SQLiteStore {
    try SQLiteStore(path: folder.appending(path: "push.sqlite").path)
  }
}

/// The suite, for SQLite. Another store gets one more conformance and one more line in `stores`.
struct StoreTests {
  static let stores: [any StoreConformance & Sendable] = [SQLiteStoreConformance()]

  /// So early that numbers count up from 1.
  static let now: Int64 = 0

  /// A number of a channel whose numbers have no gaps.
  static func number(_ sequence: UInt64) -> EventNumber { EventNumber(after: sequence - 1, now: 0) }

  /// A device with a store of its own.
  struct Fixture {
    let store: any PushStore
    let folder: TemporaryFolder
    let device = DeviceKey(hash: Data((0..<32).map { _ in .random(in: 0...255) }))

    init(_ conformance: any StoreConformance) throws {
      folder = try TemporaryFolder()
      store = try conformance.store(in: folder.url)
    }

    static func token() -> StoredToken {
      let random = { (count: Int) in Data((0..<count).map { _ in .random(in: 0...255) }) }
      return StoredToken(
        prefix: PushToken(relay: .local).prefix, tokenHash: random(32), secretHash: random(32),
        sealed: random(60))
    }

    func open(
      _ id: ChannelID = .random(), isKnown: Bool = false, taken: UInt64 = 0, token: StoredToken = token(),
      device: DeviceKey? = nil, channelsMax: Int = 256, now: Int64 = StoreTests.now
    ) async throws -> OpenOutcome {
      try await store.open(
        OpenRequest(
          device: device ?? self.device, channel: id, isKnown: isKnown, taken: taken, token: token,
          channelsMax: channelsMax, now: now))
    }

    func opened(_ id: ChannelID = .random(), token: StoredToken = token()) async throws -> StoredChannel {
      guard case .opened(let channel, _) = try await open(id, token: token) else {
        throw StoreFailure(description: "not opened")
      }
      return channel
    }

    /// An outcome without the channel, which is that of the call.
    enum Appended: Equatable {
      case stored(EventNumber)
      case full, ended, unknown
    }

    func append(
      _ text: String, to channel: StoredChannel, secretHash: Data? = nil, topic: String? = nil,
      sentThrough: UInt64 = 0, expires: Int64 = StoreTests.now + 1000, countMax: Int = 1000,
      bytesMax: Int = 1 << 24, now: Int64 = StoreTests.now
    ) async throws -> Appended {
      let message = PushMessage(body: Data(text.utf8), topic: topic, accepted: UInt64(StoreTests.now))
      let outcome = try await store.append(
        AppendRequest(
          target: secretHash.map { .secret(hash: $0) } ?? .channel(channel.number), event: .message(message),
          sentThrough: sentThrough, expires: expires, waitingCountMax: countMax,
          waitingByteCountMax: bytesMax, now: now))
      switch outcome {
      case .stored(let found, let number):
        #expect(found == channel.number)
        return .stored(number)
      case .full: return .full
      case .ended: return .ended
      case .unknown: return .unknown
      }
    }

    /// Texts of messages, `ping 605`, `closed` and `error 506`, with their numbers.
    func events(
      _ channel: StoredChannel, after: UInt64 = 0, count: Int = 100, byteCount: Int = 1 << 24,
      now: Int64 = StoreTests.now
    ) async throws -> [String] {
      try await store.events(of: channel.number, after: after, count: count, byteCount: byteCount, now: now)
        .map {
          switch $0.event {
          case .message(let message): "\($0.sequence) \(String(decoding: message.body, as: UTF8.self))"
          case .pingFailed(let code): "\($0.sequence) ping \(code)"
          case .closed: "\($0.sequence) closed"
          case .error(let code): "\($0.sequence) error \(code)"
          }
        }
    }
  }

  @Test(arguments: stores.indices) func aChannelIsMadeOnce(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let (id, token) = (ChannelID.random(), Fixture.token())
    let first = try await fixture.open(id, token: token)
    guard case .opened(let channel, let sealed) = first else {
      Issue.record("\(first)")
      return
    }
    #expect(channel.id == id && channel.prefix == token.prefix && channel.state == .open)
    #expect(channel.last == 0 && channel.taken == 0 && sealed == token.sealed)
    // The answer was lost, and the relay drew another token meanwhile.
    #expect(try await fixture.open(id) == first)
    #expect(try await fixture.open(id, isKnown: true) == first)
    #expect(try await fixture.store.channel(tokenHash: token.tokenHash) == channel)
    #expect(try await fixture.store.channel(secretHash: token.secretHash) == channel)
    #expect(try await fixture.store.channel(tokenHash: token.secretHash) == nil)
    #expect(try await fixture.store.totals().openChannels == 1)
  }

  @Test(arguments: stores.indices) func channelsThatARelayDoesNotKnow(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    #expect(try await fixture.open(isKnown: true) == .failed(.stateLost))
    let channel = try await fixture.opened()
    let other = DeviceKey(hash: Data(repeating: 1, count: 32))
    #expect(try await fixture.open(channel.id, device: other) == .failed(.stateLost))
    #expect(try await fixture.open(channel.id, isKnown: true, device: other) == .failed(.stateLost))
    #expect(try await fixture.store.totals().openChannels == 1)
  }

  /// The device has taken more than the relay remembers: the database was put back.
  @Test(arguments: stores.indices) func aStoreThatWasPutBackEndsTheChannel(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let token = Fixture.token()
    let channel = try await fixture.opened(token: token)
    #expect(try await fixture.append("one", to: channel) == .stored(Self.number(1)))
    var callbacks = GNPRequest.Callbacks()
    callbacks.disconnect = CallbackURL("https://server.example/gone")
    #expect(try await fixture.store.setCallbacks(callbacks, of: channel.number))
    #expect(try await fixture.open(channel.id, isKnown: true, taken: 2) == .failed(.stateLost))
    #expect(try await fixture.store.channel(tokenHash: token.tokenHash)?.state == .gone)
    #expect(try await fixture.append("two", to: channel) == .ended)
    #expect(try await fixture.events(channel) == [])
    #expect(
      try await fixture.store.dueCalls(now: Self.now, count: 10, excludingHosts: [], origins: [])
        .map(\.sealedToken) == [token.sealed])
  }

  /// And back ends went on before the device came back: what they sent has new numbers, and is shown.
  @Test(arguments: stores.indices) func aStoreThatWasPutBackNeverGivesANumberTwice(_ index: Int) async throws
  {
    let times: [Int64] = [1_795_478_400_000, 1_795_478_401_000]
    let fixture = try Fixture(Self.stores[index])
    let channel = try await fixture.opened()
    var last: UInt64 = 0
    for (time, isLater) in [(times[0], false), (times[0], false), (times[1], true)] {
      let outcome = try await fixture.append("m", to: channel, expires: .max, now: time)
      #expect(outcome == .stored(EventNumber(after: last, now: time)))
      last = isLater ? UInt64(times[1]) * 1000 : max(last + 1, UInt64(times[0]) * 1000)
    }
    // The copy had the first of them; the device has taken all three. The next one comes a second later.
    let restored = EventNumber(after: UInt64(times[0]) * 1000, now: times[1] + 1000)
    #expect(restored.sequence > last)
    // A clock that was put back costs nothing.
    #expect(EventNumber(after: last, now: 5).sequence == last + 1)
    #expect(EventNumber(after: last, now: -5).sequence == last + 1)
  }

  @Test(arguments: stores.indices) func aDeviceHasSoManyChannels(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let first = try await fixture.opened()
    _ = try await fixture.opened()
    #expect(try await fixture.open(channelsMax: 2) == .failed(.tooManyChannels))
    let other = DeviceKey(hash: Data(repeating: 1, count: 32))
    guard case .opened = try await fixture.open(device: other, channelsMax: 2) else {
      Issue.record()
      return
    }
    // One that is gone makes room.
    let end = try await fixture.store.end(first.number, with: .closed, now: Self.now)
    #expect(try await fixture.open(channelsMax: 2) == .failed(.tooManyChannels))
    try await fixture.store.take([(first.number, try #require(end).sequence)], now: Self.now)
    guard case .opened = try await fixture.open(channelsMax: 2) else {
      Issue.record()
      return
    }
  }

  @Test(arguments: stores.indices) func eventsComeInOrderUntilTheyAreTaken(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let (channel, other) = (try await fixture.opened(), try await fixture.opened())
    for (index, text) in ["a", "", "ccc"].enumerated() {
      #expect(try await fixture.append(text, to: channel) == .stored(Self.number(UInt64(index + 1))))
    }
    #expect(try await fixture.append("other", to: other) == .stored(Self.number(1)))
    #expect(try await fixture.events(channel) == ["1 a", "2 ", "3 ccc"])
    #expect(try await fixture.events(channel, after: 1) == ["2 ", "3 ccc"])
    #expect(try await fixture.events(channel, count: 2) == ["1 a", "2 "])
    #expect(try await fixture.events(channel, byteCount: 1) == ["1 a", "2 "])
    #expect(try await fixture.events(channel, after: 2, byteCount: 1) == ["3 ccc"])
    try await fixture.store.take([(channel.number, 2)], now: Self.now)
    #expect(try await fixture.events(channel) == ["3 ccc"])
    // An earlier number changes nothing; a later one than there is takes what there is.
    try await fixture.store.take([(channel.number, 1)], now: Self.now)
    #expect(try await fixture.events(channel) == ["3 ccc"])
    try await fixture.store.take([(channel.number, .max)], now: Self.now)
    #expect(try await fixture.events(channel) == [])
    #expect(try await fixture.append("d", to: channel) == .stored(Self.number(4)))
    #expect(try await fixture.events(other) == ["1 other"])
    // What the device says when it opens the channel again is taken as well.
    guard case .opened(let again, _) = try await fixture.open(channel.id, isKnown: true, taken: 4) else {
      Issue.record()
      return
    }
    #expect(again.last == 4 && again.taken == 4)
    #expect(try await fixture.events(channel) == [])
  }

  @Test(arguments: stores.indices) func messagesComeBackWhole(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let channel = try await fixture.opened()
    let messages: [PushMessage] = [
      PushMessage(
        body: Data((0..<FrameLimits.body).map { UInt8(truncatingIfNeeded: $0 ^ $0 >> 8) }),
        encoding: .aes128gcm,
        urgency: .high, topic: "t", accepted: 1),
      PushMessage(body: Data(), encoding: .text, urgency: .veryLow, accepted: UInt64(Int64.max)),
      PushMessage(body: Data("\0NUL".utf8), encoding: .text, urgency: .low, accepted: 0),
    ]
    for message in messages {
      _ = try await fixture.store.append(
        AppendRequest(
          target: .channel(channel.number), event: .message(message), sentThrough: 0, expires: .max,
          waitingCountMax: 10,
          waitingByteCountMax: 1 << 30, now: StoreTests.now))
    }
    let events = try await fixture.store.events(
      of: channel.number, after: 0, count: 10, byteCount: .max, now: Self.now)
    #expect(events.map(\.event) == messages.map { .message($0) })
  }

  @Test(arguments: stores.indices) func queuesAreBounded(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let channel = try await fixture.opened()
    #expect(try await fixture.append("12345", to: channel, bytesMax: 4) == .full)
    #expect(try await fixture.append("1234", to: channel, bytesMax: 4) == .stored(Self.number(1)))
    #expect(try await fixture.append("", to: channel, bytesMax: 4) == .stored(Self.number(2)))
    #expect(try await fixture.append("5", to: channel, bytesMax: 4) == .full)
    #expect(try await fixture.append("", to: channel, countMax: 2) == .full)
    try await fixture.store.take([(channel.number, 1)], now: Self.now)
    #expect(
      try await fixture.append("1234", to: channel, countMax: 2, bytesMax: 4) == .stored(Self.number(3)))
    // The replaced message's bytes are free again.
    try await fixture.store.take([(channel.number, 3)], now: Self.now)
    #expect(
      try await fixture.append("1234", to: channel, topic: "t", countMax: 1, bytesMax: 4)
        == .stored(Self.number(4)))
    #expect(
      try await fixture.append("abcd", to: channel, topic: "t", countMax: 1, bytesMax: 4)
        == .stored(Self.number(5)))
    // A refused message replaces nothing.
    #expect(try await fixture.append("abcde", to: channel, topic: "t", countMax: 1, bytesMax: 4) == .full)
    #expect(try await fixture.events(channel) == ["5 abcd"])
  }

  @Test(arguments: stores.indices) func topicsReplaceWhatWasNotSent(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let (channel, other) = (try await fixture.opened(), try await fixture.opened())
    _ = try await fixture.append("a1", to: channel, topic: "a")
    _ = try await fixture.append("b1", to: channel, topic: "b")
    _ = try await fixture.append("none", to: channel)
    _ = try await fixture.append("a1", to: other, topic: "a")
    #expect(try await fixture.append("a2", to: channel, topic: "a") == .stored(Self.number(4)))
    #expect(try await fixture.events(channel) == ["2 b1", "3 none", "4 a2"])
    #expect(
      try await fixture.append("a3", to: channel, topic: "a", sentThrough: 4) == .stored(Self.number(5)))
    #expect(try await fixture.events(channel) == ["2 b1", "3 none", "4 a2", "5 a3"])
    #expect(try await fixture.events(other) == ["1 a1"])
  }

  @Test(arguments: stores.indices) func oneFailedPingWaits(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let channel = try await fixture.opened()
    for (code, sent) in [(601, 0), (603, 0), (605, 2)] as [(UInt32, UInt64)] {
      _ = try await fixture.store.append(
        AppendRequest(
          target: .channel(channel.number), event: .pingFailed(code), sentThrough: sent, expires: .max,
          waitingCountMax: 10,
          waitingByteCountMax: 10, now: StoreTests.now))
    }
    #expect(try await fixture.events(channel) == ["2 ping 603", "3 ping 605"])
  }

  @Test(arguments: stores.indices) func anEndComesLast(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let token = Fixture.token()
    let channel = try await fixture.opened(token: token)
    _ = try await fixture.append("before", to: channel)
    var callbacks = GNPRequest.Callbacks()
    callbacks.ping = CallbackURL("https://server.example/ping")
    callbacks.disconnect = CallbackURL("https://server.example/gone")
    callbacks.minimumPingMinutes = 5
    #expect(try await fixture.store.setCallbacks(callbacks, of: channel.number))
    #expect(try await fixture.store.channel(tokenHash: token.tokenHash)?.callbacks == callbacks)
    #expect(try await fixture.store.end(channel.number, with: .closed, now: Self.now) == Self.number(2))
    #expect(try await fixture.store.end(channel.number, with: .error(.revoked), now: Self.now) == nil)
    #expect(try await fixture.append("after", to: channel) == .ended)
    #expect(try await fixture.events(channel) == ["1 before", "2 closed"])
    // A device that has missed the end learns it.
    guard case .opened(let ended, token.sealed) = try await fixture.open(channel.id, isKnown: true, taken: 1)
    else {
      Issue.record()
      return
    }
    #expect(ended.state == .ended && ended.last == 2)
    #expect(ended.callbacks == GNPRequest.Callbacks())
    // A back end that is slower than the app's disconnect is told that the token is dead.
    #expect(try await fixture.store.setCallbacks(callbacks, of: channel.number) == false)
    #expect(try await fixture.store.channel(tokenHash: token.tokenHash)?.callbacks == GNPRequest.Callbacks())
    #expect(try await fixture.events(channel) == ["2 closed"])
    try await fixture.store.take([(channel.number, 2)], now: Self.now)
    #expect(try await fixture.store.channel(tokenHash: token.tokenHash)?.state == .gone)
    #expect(try await fixture.open(channel.id, isKnown: true, taken: 2) == .failed(.stateLost))
    #expect(
      try await fixture.store.totals()
        == StoreTotals(openChannels: 0, channels: 1, waitingEvents: 0, waitingBytes: 0, waitingCalls: 1))
  }

  @Test(arguments: stores.indices) func aMessageFindsItsChannelByTheSecret(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let token = Fixture.token()
    let channel = try await fixture.opened(token: token)
    _ = try await fixture.opened()
    #expect(
      try await fixture.append("a", to: channel, secretHash: token.secretHash) == .stored(Self.number(1)))
    #expect(try await fixture.events(channel) == ["1 a"])
    #expect(try await fixture.append("b", to: channel, secretHash: token.tokenHash) == .unknown)
    #expect(try await fixture.append("b", to: channel, secretHash: Data()) == .unknown)
    _ = try await fixture.store.end(channel.number, with: .closed, now: Self.now)
    #expect(try await fixture.append("b", to: channel, secretHash: token.secretHash) == .ended)
  }

  @Test(arguments: stores.indices) func callsWaitUntilTheyAreDone(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let due = { (time: Int64, hosts: Set<String>, origins: Set<String>) in
      try await fixture.store.dueCalls(
        now: Self.now + time, count: 10, excludingHosts: hosts, origins: origins)
    }
    #expect(try await due(0, [], []) == [])
    for url in ["https://a/", "https://b/", "http://a:8080/other"] {
      let channel = try await fixture.opened()
      var callbacks = GNPRequest.Callbacks()
      callbacks.disconnect = CallbackURL(url)
      #expect(try await fixture.store.setCallbacks(callbacks, of: channel.number))
      _ = try await fixture.store.end(channel.number, with: .error(.revoked), now: Self.now)
    }
    // Without a URL there is nobody to call.
    _ = try await fixture.store.end(try await fixture.opened().number, with: .closed, now: Self.now)
    #expect(try await due(-1, [], []) == [])
    // One for each host.
    let calls = try await due(0, [], [])
    #expect(calls.map(\.url) == ["https://a/", "https://b/"])
    #expect(calls.map(\.host) == ["a", "b"] && calls.allSatisfy { $0.attempts == 0 })
    #expect(calls.map(\.origin) == ["https://a:443", "https://b:443"])
    #expect(try await due(0, ["a"], []) == [calls[1]])
    #expect(try await due(0, ["a", "b"], []) == [])
    #expect(try await due(0, ["b"], ["https://a:443"]).map(\.url) == ["http://a:8080/other"])
    #expect(
      try await fixture.store.dueCalls(now: Self.now, count: 1, excludingHosts: [], origins: []) == [calls[0]]
    )
    // A call that fails leaves its host to the others.
    try await fixture.store.postpone(calls[0], until: Self.now + 500)
    #expect(try await due(499, ["b"], []).map(\.url) == ["http://a:8080/other"])
    #expect(try await due(500, ["b"], []).map(\.url) == ["http://a:8080/other"])
    try await fixture.store.finish(calls[1])
    #expect(try await due(499, ["a"], []) == [])
    #expect(try await due(500, [], ["http://a:8080"]).map(\.attempts) == [1])
    // Of too many calls the oldest go.
    try await fixture.store.sweep(now: Self.now, abandonedBefore: .min, endedBefore: .min, callsOfHost: 1)
    #expect(try await due(500, [], []).map(\.url) == ["http://a:8080/other"])
    #expect(try await fixture.store.totals().waitingCalls == 1)
  }

  @Test(arguments: stores.indices) func whatIsOverGoes(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let token = Fixture.token()
    let channel = try await fixture.opened(token: token)
    _ = try await fixture.append("short", to: channel, expires: Self.now + 10)
    _ = try await fixture.append("long", to: channel, expires: Self.now + 20)
    // Expired events are not shown, also before they are swept.
    #expect(try await fixture.events(channel, now: Self.now + 10) == ["2 long"])
    let sweep = { (now: Int64, abandoned: Int64, ended: Int64, connected: [ChannelNumber]) in
      try await fixture.store.touch(connected, now: now)
      try await fixture.store.sweep(
        now: now, abandonedBefore: abandoned, endedBefore: ended, callsOfHost: 10)
    }
    try await sweep(Self.now + 10, 0, 0, [])
    #expect(try await fixture.store.totals().waitingEvents == 1)
    #expect(try await fixture.append("x", to: channel, countMax: 2) == .stored(Self.number(3)))
    // A channel that is connected is not abandoned, however long ago it was opened.
    try await sweep(Self.now + 100, Self.now + 1, 0, [channel.number])
    #expect(try await fixture.store.channel(tokenHash: token.tokenHash)?.state == .open)
    // And not at once when its connection breaks.
    try await sweep(Self.now + 100, Self.now + 100, 0, [])
    #expect(try await fixture.store.channel(tokenHash: token.tokenHash)?.state == .open)
    try await sweep(Self.now + 100, Self.now + 101, 0, [])
    #expect(try await fixture.events(channel) == ["100000 error 506"])
    try await sweep(Self.now + 200, Self.now + 101, 0, [])
    #expect(try await fixture.store.channel(tokenHash: token.tokenHash)?.state == .gone)
    try await sweep(Self.now + 200, 0, Self.now + 200, [])
    #expect(try await fixture.store.channel(tokenHash: token.tokenHash)?.state == .gone)
    try await sweep(Self.now + 200, 0, Self.now + 201, [])
    #expect(try await fixture.store.channel(tokenHash: token.tokenHash) == nil)
  }

  /// Neither what has expired nor what could not wait takes room in a queue.
  @Test(arguments: stores.indices) func whatHasExpiredTakesNoRoom(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let (channel, other) = (try await fixture.opened(), try await fixture.opened())
    for _ in 0..<5 {
      _ = try await fixture.append("short", to: channel, expires: Self.now + 10, countMax: 5)
      _ = try await fixture.append("short", to: other, expires: Self.now + 10, countMax: 5)
    }
    #expect(try await fixture.append("x", to: channel, countMax: 5) == .full)
    #expect(try await fixture.append("x", to: channel, countMax: 5, now: Self.now + 9) == .full)
    #expect(
      try await fixture.append("x", to: channel, expires: .max, countMax: 5, now: Self.now + 10)
        == .stored(EventNumber(after: 5, now: 10)))
    #expect(try await fixture.store.totals().waitingEvents == 6)
    #expect(
      try await fixture.append("12345", to: other, expires: .max, bytesMax: 26, now: Self.now + 10)
        == .stored(EventNumber(after: 5, now: 10)))
    #expect(try await fixture.store.totals().waitingBytes == 6)
    try await fixture.store.expire(now: Self.now + 10)
    #expect(try await fixture.store.totals().waitingEvents == 2)
    // One without a time to live gets a number, also when the queue is full.
    let last = EventNumber(after: 5, now: 10).sequence
    for number in 0..<10 {
      #expect(
        try await fixture.append("now", to: channel, expires: Self.now, countMax: 1)
          == .stored(EventNumber(after: last + UInt64(number), now: 0)))
    }
    #expect(try await fixture.events(channel) == ["\(last) x"])
    #expect(try await fixture.store.totals().waitingEvents == 2)
    try await fixture.store.take([(channel.number, last + 10)], now: Self.now)
    #expect(try await fixture.store.totals().waitingEvents == 1)
  }

  @Test(arguments: stores.indices) func aStoreThatWorksPassesItsCheck(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    try await fixture.store.check()
    _ = try await fixture.opened()
    try await fixture.store.check()
  }

  @Test(arguments: stores.indices) func everythingIsThereAfterARestart(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let token = Fixture.token()
    let channel = try await fixture.opened(token: token)
    _ = try await fixture.append("one", to: channel)
    // The first store is still open when its files are copied, as after a kill: nothing waits to be written.
    let copy = try TemporaryFolder()
    for name in try FileManager.default.contentsOfDirectory(atPath: fixture.folder.url.path) {
      try FileManager.default.copyItem(
        at: fixture.folder.url.appending(path: name), to: copy.url.appending(path: name))
    }
    let again = try Self.stores[index].store(in: copy.url)
    #expect(try await again.channel(tokenHash: token.tokenHash)?.last == 1)
    let events = try await again.events(of: channel.number, after: 0, count: 1, byteCount: 1, now: Self.now)
    #expect(events.map(\.sequence) == [1])
  }

  @Test(arguments: stores.indices) func manyAtOnceGetNumbersWithoutGaps(_ index: Int) async throws {
    let fixture = try Fixture(Self.stores[index])
    let channels = [try await fixture.opened(), try await fixture.opened()]
    let outcomes = try await withThrowingTaskGroup(of: Fixture.Appended.self) { group in
      for number in 0..<400 {
        group.addTask { try await fixture.append("\(number)", to: channels[number % 2]) }
      }
      return try await group.reduce(into: []) { $0.append($1) }
    }
    #expect(outcomes.count == 400)
    for number in 1...200 {
      #expect(outcomes.count { $0 == .stored(Self.number(UInt64(number))) } == 2)
    }
    for channel in channels {
      #expect(try await fixture.events(channel, count: 1000).count == 200)
    }
  }
}

struct SQLiteStoreTests {
  private let folder: TemporaryFolder
  private let path: String

  init() throws {
    folder = try TemporaryFolder()
    path = folder.url.appending(path: "push.sqlite").path
  }

  private func filled() async throws -> SQLiteStore {
    let store = try SQLiteStore(path: path)
    for _ in 0..<300 {
      _ = try await store.open(
        OpenRequest(
          device: HubTests.device, channel: .random(), isKnown: false, taken: 0,
          token: StoreTests.Fixture.token(), channelsMax: 1000, now: 0))
    }
    return store
  }

  @Test func aDatabaseHasOneUser() async throws {
    let store = try await filled()
    let failure = #expect(throws: StoreFailure.self) { try SQLiteStore(path: path) }
    #expect(failure?.description.contains("\(path) is used by another process") == true)
    try store.close()
    try SQLiteStore(path: path).close()
  }

  @Test func theFileIsForItsOwner() async throws {
    try await filled().close()
    let mode = { try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int }
    #expect(try mode() == 0o600)
    // Also that of an earlier version.
    try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: path)
    try SQLiteStore(path: path).close()
    #expect(try mode() == 0o600)
  }

  /// One file is the whole database after a clean stop.
  @Test func aClosedDatabaseIsOneFile() async throws {
    try await filled().close()
    let copy = try TemporaryFolder()
    let copied = copy.url.appending(path: "push.sqlite")
    try FileManager.default.copyItem(at: URL(filePath: path), to: copied)
    let again = try SQLiteStore(path: copied.path)
    #expect(try await again.totals().channels == 300)
    try again.close()
  }

  @Test func aDamagedDatabaseIsRefusedByName() async throws {
    try await filled().close()
    var bytes = try Data(contentsOf: URL(filePath: path))
    for offset in stride(from: 8192, to: bytes.count, by: 4096) {
      bytes.replaceSubrange(offset..<(offset + 100), with: Data(repeating: 0xff, count: 100))
    }
    try bytes.write(to: URL(filePath: path))
    var failure = #expect(throws: StoreFailure.self) { try SQLiteStore(path: path) }
    #expect(failure?.description.contains("\(path) is damaged") == true)
    try Data("no database, but long enough to be taken for one by its length alone".utf8)
      .write(to: URL(filePath: path))
    failure = #expect(throws: StoreFailure.self) { try SQLiteStore(path: path) }
    #expect(failure?.description.contains("\(path) is damaged") == true)
  }
}

/// A directory that goes with its last user.
final class TemporaryFolder: Sendable {
  let url: URL

  init() throws {
    url = FileManager.default.temporaryDirectory.appending(path: "push-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
  }

  deinit {
    try? FileManager.default.removeItem(at: url)
  }
}
