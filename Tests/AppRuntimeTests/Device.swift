import AppKineticsTesting
import ContainerStore
import Foundation
import Locks
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

/// One managed app whose management file a test writes as text, with a clock of its own.
struct Device: Sendable {
  struct Told: Sendable, Equatable, CustomStringConvertible {
    let kind: AuthorizationEvent.Kind
    let code: AuthorizationCode
    var description: String { "\(kind) \(code.rawValue)" }
  }

  /// The hash of `4711`.
  static let codeHash =
    "$argon2id$v=19$m=8,t=1,p=1$QRYwn4X3C/QdslKgXZxRgQ$SAxaFKUZuEwwVnWXrISMYtUXBt1FtegHGMUFm7BW6Dg"

  let app: ManagedTestApp
  let clock = ManualClock()
  private let world: TestApps
  private let seenCount = Guarded(0)

  init(_ world: TestApps) throws {
    self.world = world
    app = try world.managedApp(
      "com.example.app", prepare: { _, services in try services.offer(echo) { .reply($0.params) } },
      options: { [clock] options in
        options.clock = clock
        options.container.durability = .none
      })
  }

  var id: ApplicationID { app.id }
  var url: URL { app.url }
  var managementPath: String { world.directory.path + "/com.example.app.management.json" }
  var runtime: AppRuntime { app.runtime }
  var misuses: [String] { world.callbacks.calls(of: id).filter { $0.hasPrefix("misuse") } }
  var preparationCount: Int { world.callbacks.calls(of: id).count { $0 == "prepare" } }

  /// The events since those that were asked for before.
  func events() async -> [Told] {
    await app.settle()
    let entries = world.callbacks.entries
    let new = seenCount.withLock { count in
      defer { count = entries.count }
      return entries[count...]
    }
    return new.compactMap(\.event).map { Told(kind: $0.kind, code: $0.code) }
  }

  @discardableResult
  func start(
    isManaged: Bool = true, at url: URL? = nil, rawKey: (@Sendable () throws -> SecretBytes)? = nil,
    prepare: AppRuntime.Preparation? = nil
  ) async throws -> AppRuntime {
    try await app.start(prepare: prepare, at: url) { options in
      options.rawKey = rawKey
      if !isManaged { options.management = nil }
    }
  }

  func stop() async { await app.end() }

  /// Stops the process, if there is one, and starts the next.
  @discardableResult
  func restart(isManaged: Bool = true) async throws -> AppRuntime {
    await stop()
    return try await start(isManaged: isManaged)
  }

  /// A process whose app is activated and authorized.
  func activated(_ members: String? = nil, prepare: AppRuntime.Preparation? = nil) async throws -> AppRuntime
  {
    if let members { try await write(members) }
    let runtime = try await start(prepare: prepare)
    try await runtime.activate(passphrase: password())
    _ = await events()
    return runtime
  }

  /// Writes the management file whole, and lets the runtime read it.
  func write(_ members: String) async throws {
    let text = #"{"version": 1, \#(members.replacing("CODE", with: Self.codeHash))}"#
    try await app.manage(text: Data(text.utf8))
  }
}

var cheapOptions: Container.Options {
  var options = Container.Options()
  options.passwordHash = .cheapest
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
