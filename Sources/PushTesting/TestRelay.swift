public import Foundation
internal import Locks
internal import Logging
internal import NIOCore
internal import NIOPosix
internal import PushRelay
internal import PushWire

/// A relay for tests, in the test's own process: the real one, with sockets and a database, on a clock that
/// the test moves, and with faults that the test asks for.
///
/// ```swift
/// import PushClient
/// import PushTesting
///
/// let relay = try await TestRelay()
/// let runtime = try PushRuntime(
///   PushRuntime.Options(relay: relay.deviceURL, directory: url, stateKey: data))
/// let channel = runtime.channel("com.example.app")
/// await channel.connect()
/// for await event in channel.events {
///   guard case .opened(let token, _, _) = event else { continue }
///   print(try await relay.notify(token, "hello"))  // as a server does
///   await relay.setCoverage(false)  // the device has no network
///   try await relay.advance(by: .seconds(900))  // pings are due
///   break
/// }
/// await relay.stop()
/// ```
public final class TestRelay: Sendable {
  /// What a ping or another call to the app's server meets.
  public enum ServerFault: Sendable, Equatable {
    case none
    /// The documented codes 600 to 605: the host is unknown, refuses, has no valid certificate, does not
    /// answer, answers nonsense, or knows no token.
    case unresolvedHost, noConnection, invalidCertificate, timeout, invalidResponse, unknownToken
  }

  private let folder: URL
  private let clock: ManualClock
  private let caller = FaultyCaller()
  private let key: Data
  private let ports: Guarded<RelayServer.Ports>
  private let running = Guarded<Running?>(nil)
  private let hasCoverage = Guarded(true)
  private let closes = Barrier()

  private struct Running: Sendable {
    let relay: Relay
    let server: RelayServer
    let store: SQLiteStore
    let client: CallbackClient
    let task: Task<Void, any Error>
  }

  /// Starts a relay with a database of its own.
  public init() async throws {
    folder = FileManager.default.temporaryDirectory.appending(path: "push-relay-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    clock = ManualClock()
    var generator = SystemRandomNumberGenerator()
    key = Data((0..<TokenVault.keyByteCount).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
    ports = Guarded(RelayServer.Ports())
    try await start()
  }

  /// Where devices connect; it stays the same over restarts.
  public var deviceURL: URL { URL(string: "ws://127.0.0.1:\(ports.withLock { $0.plainDevices ?? 0 })")! }

  /// Where servers send; it stays the same over restarts.
  public var serverURL: URL { URL(string: "http://127.0.0.1:\(ports.withLock { $0.plainBackEnds ?? 0 })")! }

  // MARK: Life

  /// Starts the relay after ``kill()`` or ``stop()``, with the database that it had.
  public func start() async throws {
    guard running.withLock({ $0 == nil }) else { return }
    var configuration = RelayConfiguration()
    configuration.callbackNetworks = [Network("127.0.0.0/8")!, Network("::1")!]
    // Connections close at once when the test is over.
    let logger = Logger(label: "test relay") { _ in SwiftLogNoOpLogHandler() }
    let store = try SQLiteStore(path: folder.appending(path: "push.sqlite").path)
    let client = try CallbackClient(configuration: configuration, logger: logger)
    caller.next.withLock { $0 = client }
    let prometheus = PrometheusMetrics()
    let relay = Relay(
      configuration: configuration, store: store, vault: TokenVault(key: key), clock: clock, caller: caller,
      metrics: RelayMetrics(factory: prometheus), logger: logger,
      beforeClose: { [closes] in await closes.pass() })
    var addresses = RelayServer.Addresses()
    let known = ports.withLock { $0 }
    addresses.plainDevices = ListenAddress(host: "127.0.0.1", port: known.plainDevices ?? 0)
    addresses.plainBackEnds = ListenAddress(host: "127.0.0.1", port: known.plainBackEnds ?? 0)
    let (started, continuation) = AsyncThrowingStream.makeStream(of: RelayServer.Ports.self)
    let server = try RelayServer(
      relay: relay, addresses: addresses, tls: nil, prometheus: prometheus, logger: logger
    ) { continuation.yield($0) }
    let task = Task {
      do {
        try await server.run()
      } catch {
        continuation.finish(throwing: error)
        throw error
      }
    }
    for try await found in started {
      ports.withLock { $0 = found }
      break
    }
    running.withLock { $0 = Running(relay: relay, server: server, store: store, client: client, task: task) }
    applyCoverage()
  }

  /// Ends the relay orderly. Devices hear that it goes, and come back when it is there again.
  public func stop() async {
    guard
      let running = running.withLock({ running in
        defer { running = nil }
        return running
      })
    else { return }
    running.task.cancel()
    _ = try? await running.task.value
    running.client.close()
    try? running.store.close()
  }

  /// Ends the relay as a crash does: devices hear nothing.
  public func kill() async {
    running.withLock { $0?.server }?.setReachable(false)
    await stop()
  }

  /// Ends the relay, and forgets everything that it has stored: tokens are unknown afterwards.
  public func loseEverything() async throws {
    await stop()
    for name in ["push.sqlite", "push.sqlite-wal", "push.sqlite-shm"] {
      try? FileManager.default.removeItem(at: folder.appending(path: name))
    }
    try await start()
  }

  deinit {
    try? FileManager.default.removeItem(at: folder)
  }

  // MARK: Time

  /// Lets time pass for the relay: pings fall due, channels are abandoned. The time of the test goes on as
  /// it does.
  public func advance(by duration: Duration) async throws {
    let milliseconds =
      duration.components.seconds * 1000 + duration.components.attoseconds / 1_000_000_000_000_000
    clock.advance(by: milliseconds)
    guard let relay = running.withLock({ $0?.relay }) else { return }
    await relay.sweep()
    await relay.tick()
  }

  // MARK: Faults

  /// Without coverage no device reaches the relay, and connections break without a word.
  public func setCoverage(_ hasCoverage: Bool) async {
    self.hasCoverage.withLock { $0 = hasCoverage }
    applyCoverage()
  }

  private func applyCoverage() {
    let hasCoverage = hasCoverage.withLock { $0 }
    running.withLock { $0?.server }?.setReachable(hasCoverage)
  }

  /// While closes are held, a channel that the app has disconnected stays open at the relay, and messages
  /// still arrive.
  public func holdCloses(_ isHeld: Bool) {
    if isHeld { closes.hold() } else { closes.release() }
  }

  /// What calls to the app's server meet from now on, in place of the real server.
  public func setServerFault(_ fault: ServerFault) {
    caller.fault.withLock { $0 = fault }
  }

  /// Ends the channel of a token, as the relay's operator does: the app gets error 504.
  public func revoke(_ token: String) async throws {
    _ = try await running.withLock { $0?.relay }?.revoke(token)
  }

  // MARK: A server's requests

  /// Sends a message as the documented interface does. Returns the number of `X-Good-GNP-Code`.
  public func notify(_ token: String, _ text: String) async throws -> Int {
    try await gnp("notify", token: token, body: text)
  }

  /// Checks a token and sets the callbacks of its channel. Returns the number of `X-Good-GNP-Code`.
  public func checkToken(_ token: String, pingURL: URL? = nil, disconnectURL: URL? = nil) async throws -> Int
  {
    var query = "checkToken"
    for (name, url) in [("pingURL", pingURL), ("disconnectURL", disconnectURL)] {
      let value = url?.absoluteString.addingPercentEncoding(withAllowedCharacters: .alphanumerics)
      if let value { query += "&\(name)=\(value)" }
    }
    return try await gnp(query, token: token, body: nil)
  }

  private func gnp(_ method: String, token: String, body: String?) async throws -> Int {
    guard let relay = running.withLock({ $0?.relay }) else { return 503 }
    var headers = [("X-Good-GNP-Token", token)]
    if let body {
      headers += [
        ("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", "\(body.utf8.count)"),
      ]
    }
    let request = BackEndRequest(
      method: body == nil ? "GET" : "POST", target: "/GNP1.0?method=\(method)", headers: headers)
    let response = await relay.respond(to: request, from: "127.0.0.1") { _ in Data((body ?? "").utf8) }
    let code = response.headers.first { $0.name == "X-Good-GNP-Code" }?.value ?? ""
    return Int(code.prefix(3)) ?? response.status
  }

  /// Sends a message that waits for the device. Returns the HTTP status.
  public func push(_ token: String, _ text: String, seconds: Int = 3600, topic: String? = nil) async throws
    -> Int
  {
    guard let relay = running.withLock({ $0?.relay }) else { return 503 }
    let secret = token.split(separator: " ").last.map(String.init) ?? ""
    var headers = [("TTL", "\(seconds)"), ("Content-Length", "\(text.utf8.count)")]
    if let topic { headers.append(("Topic", topic)) }
    let request = BackEndRequest(method: "POST", target: "/push/\(secret)", headers: headers)
    return await relay.respond(to: request, from: "127.0.0.1") { _ in Data(text.utf8) }.status
  }
}

/// Lets tasks pass, or holds them.
private final class Barrier: Sendable {
  private let state = Guarded((isHeld: false, waiting: [CheckedContinuation<Void, Never>]()))

  func hold() { state.withLock { $0.isHeld = true } }

  func release() {
    let waiting = state.withLock { state in
      defer { state = (false, []) }
      return state.waiting
    }
    for continuation in waiting { continuation.resume() }
  }

  func pass() async {
    await withCheckedContinuation { continuation in
      let isHeld = state.withLock { state in
        if state.isHeld { state.waiting.append(continuation) }
        return state.isHeld
      }
      if !isHeld { continuation.resume() }
    }
  }
}

/// A clock that begins at the present and moves when it is told to.
final class ManualClock: RelayClock {
  private struct State: Sendable {
    var now: Int64
    var sleepers: [UInt64: (due: Int64, continuation: CheckedContinuation<Void, any Error>)] = [:]
    var nextID: UInt64 = 0
  }

  private let state = Guarded(State(now: SystemClock().now()))

  func now() -> Int64 { state.withLock { $0.now } }

  func sleep(milliseconds: Int64) async throws {
    let id = state.withLock { state in
      state.nextID += 1
      return state.nextID
    }
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let isCancelled = state.withLock { state in
          if Task.isCancelled { return true }
          state.sleepers[id] = (state.now + milliseconds, continuation)
          return false
        }
        if isCancelled { continuation.resume(throwing: CancellationError()) }
      }
    } onCancel: {
      let sleeper = state.withLock { $0.sleepers.removeValue(forKey: id) }
      sleeper?.continuation.resume(throwing: CancellationError())
    }
  }

  func advance(by milliseconds: Int64) {
    let due = state.withLock { state in
      state.now += milliseconds
      let due = state.sleepers.filter { $0.value.due <= state.now }
      for id in due.keys { state.sleepers[id] = nil }
      return due
    }
    for sleeper in due.values { sleeper.continuation.resume() }
  }
}

/// Calls real servers, or meets the fault that the test has asked for.
private final class FaultyCaller: CallbackCalling {
  let fault = Guarded(TestRelay.ServerFault.none)
  let next = Guarded<CallbackClient?>(nil)

  func call(_ request: CallbackRequest) async throws(CallbackFailure) -> CallbackResponse {
    switch fault.withLock({ $0 }) {
    case .none: break
    case .unresolvedHost: throw .unresolvedHost
    case .noConnection: throw .noConnection
    case .invalidCertificate: throw .invalidCertificate
    case .timeout: throw .timeout
    case .invalidResponse: throw .invalidResponse
    case .unknownToken: return CallbackResponse(status: 200, codes: ["100 OK"])
    }
    guard let client = next.withLock({ $0 }) else { throw .noConnection }
    return try await client.call(request)
  }
}
