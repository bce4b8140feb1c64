import AppKineticsTesting
import ContainerStore
import Foundation
import Locks
import Logging
import SecureFiles
import ServiceValues
import SodiumPrimitives
import Testing

@testable import AppRuntime

/// Its params are integers.
let echo: ServiceDefinition = {
  do {
    return try ServiceDefinition(
      jsonText: """
        {"service-id": "com.example.echo", "version": "1.0.0.0", "methods": {
          "echo": {"params": {"type": "integer"}, "result-value": {"type": "integer"}, "attachments": {}}}}
        """)
  } catch {
    preconditionFailure("\(error)")
  }
}()

func password(_ text: String = "correct horse") throws -> SecretBytes { try SecretBytes(utf8: text) }

/// One app of a test with its runtime, its management file, and what the runtime has told it.
final class Device: Sendable {
  struct Told: Sendable, Equatable, CustomStringConvertible {
    let kind: AuthorizationEvent.Kind
    let code: AuthorizationCode
    var description: String { "\(kind) \(code.rawValue)" }
  }

  /// The hash of `4711`.
  static let codeHash =
    "$argon2id$v=19$m=8,t=1,p=1$QRYwn4X3C/QdslKgXZxRgQ$SAxaFKUZuEwwVnWXrISMYtUXBt1FtegHGMUFm7BW6Dg"

  let world: TestApps
  let clock = ManualClock()
  let application: Application
  private let placed: Guarded<URL>
  let management: ManagementSource
  private let told = Guarded<[Told]>([])
  private let misuses = Guarded<[String]>([])
  private let preparations = Guarded(0)
  private let running = Guarded<AppRuntime?>(nil)

  init(_ world: TestApps, _ id: String = "com.example.app") throws {
    self.world = world
    application = Application(id: try ApplicationID(id), name: id)
    placed = Guarded(world.directory.appendingPathComponent(id))
    management = ManagementSource(path: world.directory.path + "/managed.json")
  }

  /// The container's directory, or a link to it.
  var url: URL {
    get { placed.withLock { $0 } }
    set { placed.withLock { $0 = newValue } }
  }

  var runtime: AppRuntime { running.withLock { $0! } }
  var calls: [String] { misuses.withLock { $0 } }
  var preparationCount: Int { preparations.withLock { $0 } }

  /// Takes what the runtime has told so far.
  func events() async -> [Told] {
    await runtime.settle()
    await withCheckedContinuation { continuation in Self.eventQueue.async { continuation.resume() } }
    return told.withLock { told in
      defer { told = [] }
      return told
    }
  }

  private static let eventQueue = DispatchQueue(label: "test.events")

  /// A process of the app begins.
  @discardableResult
  func start(
    isManaged: Bool = true, rawKey: (@Sendable () throws -> SecretBytes)? = nil,
    prepare: @escaping AppRuntime.Preparation = { _, _ in }
  ) async throws -> AppRuntime {
    var options = AppRuntime.Options()
    options.services.broker = world.socketPath
    options.services.logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    options.logger = options.services.logger
    options.container = cheapOptions
    options.clock = clock
    options.rawKey = rawKey
    options.eventQueue = Self.eventQueue
    options.misuse = { [misuses] misuse in misuses.withLock { $0.append(misuse.call) } }
    if isManaged { options.management = management }
    let runtime = try await AppRuntime(
      application, containerAt: url, options: options,
      prepare: { [preparations] container, services in
        preparations.withLock { $0 += 1 }
        try services.offer(echo) { .reply($0.params) }
        try await prepare(container, services)
      },
      events: { [told] event, _ in told.withLock { $0.append(Told(kind: event.kind, code: event.code)) } })
    running.withLock { $0 = runtime }
    return runtime
  }

  /// The process ends in good order.
  func stop() async {
    await running.withLock { $0.take() }?.stop()
  }

  /// Stops the process, if there is one, and starts the next.
  @discardableResult
  func restart(isManaged: Bool = true) async throws -> AppRuntime {
    await stop()
    return try await start(isManaged: isManaged)
  }

  /// A process whose app is activated and authorized.
  func activated(
    _ members: String? = nil, prepare: @escaping AppRuntime.Preparation = { _, _ in }
  ) async throws -> AppRuntime {
    if let members { try write(members) }
    let runtime = try await start(prepare: prepare)
    try await runtime.activate(passphrase: password())
    _ = await events()
    return runtime
  }

  /// Writes the management file whole, and lets the runtime read it.
  func write(_ members: String) throws {
    let text = #"{"version": 1, \#(members.replacing("CODE", with: Self.codeHash))}"#
    try Data(text.utf8).write(to: URL(fileURLWithPath: management.path), options: .atomic)
    try running.withLock { $0 }?.readManagement()
  }
}

var cheapOptions: Container.Options {
  var options = Container.Options()
  options.passwordHash = PasswordHash.Parameters(passes: 1, memoryKiB: 8)
  options.durability = .none
  return options
}

/// The code of what it throws; nil when it throws nothing.
func code(_ body: () async throws -> Void) async throws -> AppRuntimeError.Code? {
  do {
    try await body()
    return nil
  } catch let error as AppRuntimeError {
    return error.code
  }
}
