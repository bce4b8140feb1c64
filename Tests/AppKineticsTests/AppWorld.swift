import Foundation
import Locks
import Logging
import SecureFiles
import ServiceBroker
import Testing

@testable import AppKinetics

/// A broker with a socket and a state directory of its own, and apps with containers.
final class AppWorld: Sendable {
  let directory: URL
  let configuration: ServiceBroker.Configuration
  private let broker: Guarded<ServiceBroker?>
  private let apps = Guarded<[App]>([])

  struct App: Sendable {
    let services: AppServices
    let container: SecureContainer
    var id: ApplicationID { services.application.id }

    /// Nothing goes on in this app's services before the gate is opened.
    func hold() -> DispatchSemaphore {
      let gate = DispatchSemaphore(value: 0)
      let held = DispatchSemaphore(value: 0)
      Thread.detachNewThread {
        services.runtime.perform { _ in
          held.signal()
          gate.wait()
        }
      }
      waitBlocking(held)
      return gate
    }
  }

  init(compositor: Compositor = .none, unlockTime: Duration = .seconds(30)) async throws {
    directory = URL(fileURLWithPath: "/tmp/odk-\(UUID().uuidString.prefix(8))")
    try FileManager.default.createDirectory(
      at: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    var configuration = ServiceBroker.Configuration()
    configuration.socketPath = directory.path + "/run/broker"
    configuration.stateDirectory = directory.path + "/state"
    configuration.plainApps = .open(64)
    configuration.compositor = compositor
    configuration.unlockTime = unlockTime
    self.configuration = configuration
    broker = Guarded(nil)
    try await startBroker()
  }

  func startBroker(plainApps: NewApps? = nil) async throws {
    var configuration = configuration
    if let plainApps { configuration.plainApps = plainApps }
    let started = try await ServiceBroker.start(configuration, logger: Self.logger)
    broker.withLock { $0 = started }
  }

  func stopBroker() async {
    let running = broker.withLock { $0.take() }
    await running?.stop()
  }

  static var logger: Logger {
    Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
  }

  /// An app that is not started yet. The container of an id is the same each time.
  func app(
    _ id: String, user: String = "somebody", icon: Data? = nil, servers: [AppServer] = [],
    change: (inout AppServices.Options) -> Void = { _ in }
  ) throws -> App {
    let url = directory.appendingPathComponent(id)
    let key = try SecretBytes(utf8: String(repeating: "k", count: 32))
    let container =
      FileManager.default.fileExists(atPath: url.path)
      ? try SecureContainer.open(at: url, rawKey: key) : try SecureContainer.create(at: url, rawKey: key)
    var options = AppServices.Options()
    options.broker = configuration.socketPath
    options.logger = Self.logger
    change(&options)
    let services = try AppServices(
      Application(id: ApplicationID(id), name: id, icon: icon, servers: servers, activationUser: user),
      container: container, options: options)
    let app = App(services: services, container: container)
    apps.withLock { $0.append(app) }
    return app
  }

  /// The same app in another process, as far as others can tell.
  func restarted(_ app: App, prepare: (AppServices) throws -> Void = { _ in }) async throws -> App {
    await app.services.stop()
    let next = try reopened(app)
    try prepare(next.services)
    try await next.services.start()
    return next
  }

  /// The same without being started.
  func reopened(_ app: App) throws -> App {
    try app.container.close()
    return try self.app(app.id.text)
  }

  /// An app that offers `echo`, and one that has nothing to offer, both started.
  func echoPair(
    _ handler: @escaping ServiceHandler = { .reply($0.params) }
  ) async throws -> (provider: App, consumer: AppServices) {
    let provider = try app("com.example.provider")
    try provider.services.offer(echo, handler: handler)
    try await provider.services.start()
    let consumer = try app("com.example.consumer").services
    try await consumer.start()
    return (provider, consumer)
  }

  /// Ends everything and removes it.
  func close() async {
    for app in apps.withLock({ $0 }) {
      await app.services.stop()
      try? app.container.close()
    }
    await stopBroker()
    try? FileManager.default.removeItem(at: directory)
  }
}

/// Runs `body` in a world of its own.
func withWorld<R: Sendable>(
  compositor: Compositor = .none, unlockTime: Duration = .seconds(30), _ body: (AppWorld) async throws -> R
) async throws -> R {
  let world = try await AppWorld(compositor: compositor, unlockTime: unlockTime)
  do {
    let result = try await body(world)
    await world.close()
    return result
  } catch {
    await world.close()
    throw error
  }
}

let greetings = WellKnownService.greetings.definition

/// A service of these tests, whose methods say nothing about their params.
let echo: ServiceDefinition = {
  do {
    return try ServiceDefinition(
      jsonText: """
        {"service-id": "com.example.echo", "version": "1.0.0.0", "methods": {
          "echo": {"params": {"type": "any"}, "result-value": {"type": "any"},
                   "attachments": {"minItems": 0}, "result-attachments": {"minItems": 0}},
          "tell": {"params": {"type": "any"}, "attachments": {"minItems": 0}},
          "add": {"params": {"type": "array", "items": {"type": "integer"}, "required": true},
                  "result-value": {"type": "integer", "required": true}, "errors": [{"code": 7}]}}}
        """)
  } catch {
    preconditionFailure("\(error)")
  }
}()

/// Sends the numbers from 0 on at once, and expects each of them back.
func expectEchoes(_ count: Int, to provider: ApplicationID, _ consumer: AppServices) async throws {
  var sent: [SentRequest] = []
  for i in 0..<count {
    sent.append(
      try await consumer.send(ServiceRequest(echo, "echo", params: .integer(Int64(i))), to: provider))
  }
  for (i, request) in sent.enumerated() {
    #expect(try await request.reply()?.params == .integer(Int64(i)))
  }
}

/// Values that one side puts in and the other awaits.
final class Box<Value: Sendable>: Sendable {
  private let stream: AsyncStream<Value>
  private let continuation: AsyncStream<Value>.Continuation
  private let all = Guarded<[Value]>([])

  init() { (stream, continuation) = AsyncStream.makeStream() }

  func put(_ value: Value) {
    all.withLock { $0.append(value) }
    continuation.yield(value)
  }

  func next() async -> Value? {
    for await value in stream { return value }
    return nil
  }

  var values: [Value] { all.withLock { $0 } }
}
