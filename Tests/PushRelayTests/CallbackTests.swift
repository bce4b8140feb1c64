import Foundation
import Locks
import Logging
import NIOPosix
import PushWire
import Testing

@testable import PushRelay

struct CallbackClientTests {
  static let loopback = IPAddress("127.0.0.1")!

  /// A server of back ends, for as long as `body` runs, and the heads of the requests that it got.
  static func withServer(
    _ body: (_ port: Int, _ requests: @Sendable () -> [BackEndRequest]) async throws -> Void
  ) async throws {
    let found = Guarded<[BackEndRequest]>([])
    let (ports, continuation) = AsyncStream.makeStream(of: Int.self)
    let serving = HTTPServing(configuration: RelayConfiguration(), logger: Logger(label: "test"))
    let server = try serving.makeServer(
      ListenAddress(host: "127.0.0.1", port: 0), tls: nil, group: MultiThreadedEventLoopGroup.singleton,
      responder: { request, _, _ in
        found.withLock { $0.append(request) }
        return BackEndResponse(status: 200, "")
      }, onRunning: { continuation.yield($0) })
    let task = Task { try await server.run() }
    let port = try #require(await ports.first { _ in true })
    try await body(port) { found.withLock { $0 } }
    task.cancel()
    _ = try? await task.value
  }

  static func client(
    milliseconds: Int64 = 10_000, resolve: @escaping @Sendable (String) -> [IPAddress]
  ) throws -> CallbackClient {
    var configuration = RelayConfiguration()
    configuration.callbackNetworks = [Network("127.0.0.1")!]
    configuration.callbackTime = milliseconds
    let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    return try CallbackClient(configuration: configuration, logger: logger, resolve: resolve)
  }

  static func call(_ client: CallbackClient, _ url: String) async throws -> CallbackResponse {
    let url = try #require(CallbackURL(url))
    return try await client.call(CallbackRequest(url: url, method: "GET", headers: [], body: nil))
  }

  /// These names exist for the relay's look-up alone. A client that resolves them again finds nothing, or in
  /// the wild another address than the one that was checked.
  @Test(arguments: [
    "rebind.invalid", "REBIND.invalid", "Rebind.Invalid.", "xn--BCHER-kva.invalid", "a_b.invalid", "127.1",
  ])
  func aHostIsResolvedOnce(host: String) async throws {
    try await Self.withServer { port, requests in
      let names = Guarded<[String]>([])
      let client = try Self.client { name in
        names.withLock { $0.append(name) }
        return [Self.loopback]
      }
      #expect(try await Self.call(client, "http://\(host):\(port)/a?b=%20c").status == 200)
      let name = host.lowercased().hasSuffix(".") ? String(host.lowercased().dropLast()) : host.lowercased()
      #expect(names.withLock { $0 } == [name])
      #expect(requests().map(\.target) == ["/a?b=%20c"])
      client.close()
    }
  }

  /// The names of one domain that hang hold up no other name.
  @Test func namesThatHangDelayNobodyElse() async throws {
    try await Self.withServer { port, _ in
      let gate = DispatchSemaphore(value: 0)
      let client = try Self.client(milliseconds: 5000) { name in
        guard name.hasSuffix("slow.invalid") else { return [Self.loopback] }
        gate.wait()
        gate.signal()
        return []
      }
      try await withThrowingTaskGroup(of: CallbackFailure?.self) { group in
        for number in 0..<40 {
          for _ in 0..<2 {
            group.addTask {
              do {
                _ = try await Self.call(client, "http://h\(number).slow.invalid/")
                return nil
              } catch let failure as CallbackFailure {
                return failure
              }
            }
          }
        }
        for number in 0..<3 {
          #expect(try await Self.call(client, "http://good\(number).invalid:\(port)/").status == 200)
        }
        gate.signal()
        for try await failure in group { #expect(failure == .unresolvedHost) }
      }
      client.close()
    }
  }

  @Test func aNameThatIsNotResolvedInTimeIsUnknown() async throws {
    let gate = DispatchSemaphore(value: 0)
    let client = try Self.client(milliseconds: 50) { _ in
      gate.wait()
      return [Self.loopback]
    }
    await #expect(throws: CallbackFailure.unresolvedHost) { try await Self.call(client, "http://a.invalid/") }
    gate.signal()
    client.close()
  }
}

/// A clock that stands until the test moves it.
final class StandingClock: RelayClock {
  private let time = Guarded<Int64>(0)

  func now() -> Int64 { time.withLock { $0 } }
  func advance(by milliseconds: Int64) { time.withLock { $0 += milliseconds } }
  func sleep(milliseconds: Int64) async throws { try await Task.sleep(for: .seconds(3600)) }
}

/// Back ends that answer by path.
final class ScriptedBackEnds: CallbackCalling {
  private let found = Guarded<[String]>([])
  private let answer: @Sendable (CallbackRequest) throws(CallbackFailure) -> CallbackResponse

  init(_ answer: @escaping @Sendable (CallbackRequest) throws(CallbackFailure) -> CallbackResponse) {
    self.answer = answer
  }

  var calls: [String] { found.withLock { $0 } }

  func call(_ request: CallbackRequest) async throws(CallbackFailure) -> CallbackResponse {
    found.withLock { $0.append(request.url.text) }
    return try answer(request)
  }
}

struct DisconnectOutboxTests {
  /// An outbox with a call to each URL.
  static func outbox(
    _ urls: [String], _ backEnds: ScriptedBackEnds, _ clock: StandingClock
  ) async throws -> (DisconnectOutbox, StoreTests.Fixture) {
    let fixture = try StoreTests.Fixture(SQLiteStoreConformance())
    let vault = TokenVault(key: Data(count: 32))
    for url in urls {
      let channel = try await fixture.opened(token: vault.stored(PushToken(relay: .local)))
      var callbacks = GNPRequest.Callbacks()
      callbacks.disconnect = CallbackURL(url)
      _ = try await fixture.store.setCallbacks(callbacks, of: channel.number)
      _ = try await fixture.store.end(channel.number, with: .closed, now: 0)
    }
    let outbox = DisconnectOutbox(
      configuration: RelayConfiguration(), store: fixture.store, vault: vault, caller: backEnds, clock: clock,
      metrics: RelayMetrics(factory: PrometheusMetrics()),
      logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    return (outbox, fixture)
  }

  static func until(_ condition: () async throws -> Bool) async throws {
    for _ in 0..<1000 {
      if try await condition() { return }
      try await Task.sleep(for: .milliseconds(10))
    }
    throw StoreFailure(description: "it did not happen")
  }

  /// A URL that fails for good is repeated, and costs the others of its host nothing.
  @Test func aURLThatFailsHoldsUpNoOther() async throws {
    let backEnds = ScriptedBackEnds { (request) throws(CallbackFailure) in
      if request.url.target == "/hangs" { throw .timeout }
      return CallbackResponse(status: request.url.target == "/good" ? 204 : 404)
    }
    let clock = StandingClock()
    let urls = ["http://a.example/bad", "http://a.example/hangs", "http://a.example/good"]
    let (outbox, fixture) = try await Self.outbox(urls, backEnds, clock)
    await outbox.run()
    try await Self.until { try await fixture.store.totals().waitingCalls == 2 }
    try await Self.until { backEnds.calls.count == 3 }
    #expect(backEnds.calls == urls)
    // Those that have failed come again.
    try await Self.until {
      clock.advance(by: 10_000)
      await outbox.run()
      return Set(backEnds.calls[3...]) == Set(urls[..<2])
    }
  }

  /// A server that cannot be reached is left alone with all of its URLs; another port is another server.
  @Test func aServerThatIsAwayIsLeftAlone() async throws {
    let backEnds = ScriptedBackEnds { (request) throws(CallbackFailure) in
      if request.url.port == 1 { throw .noConnection }
      return CallbackResponse(status: 204)
    }
    let clock = StandingClock()
    let urls = (0..<5).map { "http://a.example:1/\($0)" } + ["http://a.example:2/", "https://a.example:1/"]
    let (outbox, fixture) = try await Self.outbox(Array(urls[..<6]), backEnds, clock)
    await outbox.run()
    try await Self.until { try await fixture.store.totals().waitingCalls == 5 }
    await outbox.run()
    #expect(backEnds.calls == [urls[0], urls[5]])
    clock.advance(by: 2000)
    await outbox.run()
    try await Self.until { backEnds.calls.count == 3 }
    // Not the same URL again.
    #expect(backEnds.calls.last == urls[1])
  }
}

struct PingerTests {
  static func channel(_ number: Int64, _ url: String = "http://a.example/ping") -> StoredChannel {
    var channel = HubTests.channel(number)
    channel.prefix = "prefix \(number)"
    channel.callbacks.ping = CallbackURL(url)
    return channel
  }

  static func pinger(_ backEnds: ScriptedBackEnds) -> Pinger {
    Pinger(configuration: RelayConfiguration(), caller: backEnds)
  }

  static let backEnds = ScriptedBackEnds { request throws(CallbackFailure) in
    CallbackResponse(status: 200, codes: ["100"], body: Data((request.body ?? "").utf8))
  }

  /// Channels that were opened one after the other are pinged together, and none before its interval is over.
  @Test(arguments: 0..<20) func channelsOfAURLArePingedTogether(_: Int) async throws {
    let pinger = Self.pinger(Self.backEnds)
    for number in 0..<10 as Range<Int64> { pinger.opened(Self.channel(number), now: number * 1000) }
    let interval = RelayConfiguration().pingInterval
    #expect(pinger.due(now: interval - 1, isConnected: { _ in true }).isEmpty)
    // Up to 10 % later, at a time that is that of the URL. All that are due by then go in one batch.
    var sizes: [Int] = []
    for now in stride(from: interval, through: interval + interval / 5, by: 250) {
      for batch in pinger.due(now: now, isConnected: { _ in true }) {
        let dueByNow = (0..<10 as Range<Int64>).count { $0 * 1000 + interval <= now }
        sizes.append(batch.tokens.count)
        #expect(sizes.reduce(0, +) == dueByNow)
        #expect(await pinger.send(batch).isEmpty)
      }
    }
    #expect(sizes.reduce(0, +) == 10)
    // The next time they are due together, and the first is not before the interval is over again.
    let again = pinger.due(now: 3 * interval, isConnected: { _ in true })
    #expect(again.map(\.tokens.count) == [10])
  }

  @Test func whoIsNotConnectedIsPingedOnceItIsBack() async throws {
    let pinger = Self.pinger(Self.backEnds)
    pinger.opened(Self.channel(1), now: 0)
    let interval = RelayConfiguration().pingInterval
    #expect(pinger.due(now: 2 * interval, isConnected: { _ in false }).isEmpty)
    pinger.opened(Self.channel(1), now: 2 * interval)
    #expect(pinger.due(now: 2 * interval, isConnected: { _ in true }).count == 1)
    pinger.sweep(now: 3 * RelayConfiguration.day, isConnected: { _ in true })
    #expect(pinger.count == 1)
    pinger.sweep(now: 3 * RelayConfiguration.day, isConnected: { _ in false })
    #expect(pinger.count == 0)
  }

  @Test func anEndedChannelIsForgotten() async throws {
    let pinger = Self.pinger(Self.backEnds)
    pinger.opened(Self.channel(1), now: 0)
    pinger.opened(Self.channel(2), now: 0)
    pinger.ended(ChannelNumber(value: 1))
    let batches = pinger.due(now: .max / 2, isConnected: { _ in true })
    #expect(batches.map { $0.tokens.map(\.prefix) } == [["prefix 2"]])
    pinger.ended(ChannelNumber(value: 2))
    #expect(pinger.count == 0)
  }
}
