@_exported public import AppKinetics
public import AppRuntime
import ContainerStore
public import Foundation
package import LocalTransport
import Locks
public import Logging
import SecureFiles
package import ServiceBroker
import ServiceWire
import SodiumPrimitives
import TestSupport

/// The apps of one test, and a broker of their own, in the test's process.
///
/// The broker, the sockets, the containers and the encryption are those of apps that are installed.
/// Nothing is shared with other tests or with the user's broker, so that tests may run at the same
/// time.
///
/// ```swift
/// import AppKineticsTesting
///
/// let apps = try await TestApps()
/// let notes = try await apps.start("com.example.notes") { services in
///   try services.offer(WellKnownService.greetings.definition) { .reply("Hello, \($0.sender)") }
/// }
/// let reader = try await apps.start("com.example.reader")
/// let request = ServiceRequest(WellKnownService.greetings.definition, "greetMe|2")
/// print(try await reader.services.call(request, to: notes.id)?.params?.stringValue ?? "no greeting")
/// await apps.stop()
/// ```
///
/// ``withTestApps(_:isolation:_:)`` calls ``stop()`` also when the test throws.
public final class TestApps: Sendable {
  /// How the broker and the apps behave.
  public struct Options: Sendable {
    /// How long requests without files wait for an app that is locked: at the broker, and at each
    /// app whose own options say nothing else.
    public var unlockTime: Duration = .seconds(30)
    /// The logger of the broker and of each app whose own options say nothing else. By default it
    /// discards everything.
    public var logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    /// The clock of each app whose own options say nothing else: with a ``ManualClock``, time
    /// limits, retries and dates are the test's.
    public var clock: any AppClock = SystemClock()

    /// Makes the default options.
    public init() {}
  }

  /// A folder that ``stop()`` removes, in memory where the system has a file system there. The
  /// container of an app is the folder in it that has the app's id as its name.
  public let directory: URL
  private let options: Options
  private let configuration: ServiceBroker.Configuration
  private let broker = Guarded<ServiceBroker?>(nil)
  private let apps = Guarded<[TestApp]>([])
  private let managedApps = Guarded<[ManagedTestApp]>([])
  private let faults = Guarded<[ApplicationID: TestFaults]>([:])
  /// What was called in the apps, in order.
  public let callbacks = CallbackRecord()
  private let front: Guarded<Front>
  /// What asks for the front waits while it is shut.
  package let compositorGate = TestGate()

  private struct Front {
    var asked: [ApplicationID?] = []
    var isRefused = false

    /// The compositor's answer.
    mutating func isTaken(_ appID: String?) -> Bool {
      asked.append(appID.flatMap { try? ApplicationID($0) })
      return !isRefused
    }
  }

  /// Starts a broker. Throws errors of the file system and of sockets.
  public init(_ options: Options = Options()) async throws {
    self.options = options
    directory = URL(fileURLWithPath: try await BlockingCall.run { try TemporaryDirectory.make() })
    let front = Guarded(Front())
    self.front = front
    let gate = compositorGate
    var configuration = ServiceBroker.Configuration(
      socketPath: directory.path + "/run/broker", stateDirectory: directory.path + "/state",
      compositor: .function { appID in
        let isTaken = front.withLock { $0.isTaken(appID) }
        await gate.pass()
        return isTaken
      })
    configuration.plainApps = .open(1024)
    configuration.limits.unlockTime = UInt64(options.unlockTime / .milliseconds(1))
    // Tests restart apps faster than any user.
    configuration.limits.registrationBurstMax = 10_000
    self.configuration = configuration
    do {
      try await startBroker()
    } catch {
      await removeDirectory()
      throw error
    }
  }

  /// Stops all apps and the broker, closes the containers, and removes everything. Does nothing the
  /// second time.
  public func stop() async {
    for app in apps.withLock({ $0 }) { try? await end(app) }
    for app in managedApps.withLock({ $0 }) { await app.end() }
    await stopBroker()
    await removeDirectory()
  }

  private func removeDirectory() async {
    let path = directory.path
    try? await BlockingCall.run { removeTree(path) }
  }

  // MARK: Apps

  /// Makes an app that is not started yet, with the id as its name.
  ///
  /// The container of an id is the same each time: the app before has to be ended (``end(_:)``),
  /// else this throws `locked`. Throws `invalidParams` for an id that is none, and the container's
  /// errors.
  public func app(
    _ id: String, options change: (inout AppServices.Options) throws -> Void = { _ in }
  ) async throws -> TestApp {
    try await app(Application(id: ApplicationID(id), name: id), options: change)
  }

  /// Makes an app that is not started yet. Throws as ``app(_:options:)-(String,_)``.
  public func app(
    _ application: Application, options change: (inout AppServices.Options) throws -> Void = { _ in }
  ) async throws -> TestApp {
    var options = servicesOptions
    try change(&options)
    return try await app(application, options)
  }

  /// The options of every app's services, before a test changes them.
  private var servicesOptions: AppServices.Options {
    var options = AppServices.Options()
    options.broker = socketPath
    options.logger = self.options.logger
    options.unlockTime = self.options.unlockTime
    options.clock = self.options.clock
    return options
  }

  /// The raw key of all containers.
  package static func containerKey() throws -> SecretBytes {
    try SecretBytes(utf8: String(repeating: "k", count: 32))
  }

  private func app(_ application: Application, _ options: AppServices.Options) async throws -> TestApp {
    let place = directory.appendingPathComponent(application.id.text)
    let faults = faults(of: application.id)
    let observer = RecordingObserver(application.id, callbacks, faults)
    var observed = options
    observed.observer = observer
    let services = try await BlockingCall.run { [observed] in
      let key = try Self.containerKey()
      let container =
        FileManager.default.fileExists(atPath: place.path)
        ? try SecureContainer.open(at: place, rawKey: key, options: faults.containerOptions)
        : try SecureContainer.create(at: place, rawKey: key, options: faults.containerOptions)
      do {
        return try AppServices(application, container: container, options: observed)
      } catch {
        try? container.close()
        throw error
      }
    }
    let app = TestApp(services: services, faults: faults, options: options, observer: observer)
    apps.withLock { $0.append(app) }
    return app
  }

  /// Starts an app: `prepare` offers its services before others find it. An app that does not start
  /// is ended. Throws what ``app(_:options:)-(String,_)``, `prepare` and `AppServices.start()`
  /// throw.
  public func start(
    _ id: String, prepare: (AppServices) throws -> Void = { _ in },
    options change: (inout AppServices.Options) throws -> Void = { _ in }
  ) async throws -> TestApp {
    try await start(await app(id, options: change), prepare)
  }

  private func start(_ app: TestApp, _ prepare: (AppServices) throws -> Void) async throws -> TestApp {
    do {
      try prepare(app.services)
      try await app.services.start()
      return app
    } catch {
      try? await end(app)
      throw error
    }
  }

  /// Ends an app as its process ends: its services are stopped and its container is closed, and
  /// what is in the container stays. Does nothing the second time. Throws the container's errors.
  public func end(_ app: TestApp) async throws {
    guard take(app) else { return }
    await app.services.stop()
    app.observer.end()
    try await app.container.close()
  }

  /// Ends an app as SIGKILL ends its process: channels break, and nothing more is stored, answered
  /// or said. Does nothing the second time.
  public func kill(_ app: TestApp) async {
    guard take(app) else { return }
    app.observer.silence()
    await app.services.holdNow()
    _ = try? app.container.close(.now, because: "the process was killed")
    await app.services.stop()
    app.observer.end()
  }

  /// False when it was ended before.
  private func take(_ app: TestApp) -> Bool {
    apps.withLock { apps in
      let count = apps.count
      apps.removeAll { $0.services === app.services }
      return apps.count < count
    }
  }

  /// Ends an app and makes its next process, which is not started yet: the same application,
  /// container and options.
  public func reopen(_ app: TestApp) async throws -> TestApp {
    try await end(app)
    return try await self.app(app.services.application, app.options)
  }

  /// Ends an app and starts its next process, as ``start(_:prepare:options:)`` does.
  public func restart(
    _ app: TestApp, prepare: (AppServices) throws -> Void = { _ in }
  ) async throws -> TestApp {
    try await start(reopen(app), prepare)
  }

  private func faults(of id: ApplicationID) -> TestFaults {
    faults.withLock { faults in
      let known = faults[id] ?? TestFaults()
      faults[id] = known
      return known
    }
  }

  // MARK: Apps with a runtime

  /// Installs an app whose container and services its runtime gives and takes, with the id as its
  /// name. No process of it runs yet.
  ///
  /// `password` is what its person types. The runtime calls `prepare` and `events` as it does
  /// outside of a test; they are those of every process. Its management file is in ``directory``,
  /// and a misuse is recorded and does not end the process, unless the options say something else.
  /// Throws `invalidParams` for an id that is none.
  public func managedApp(
    _ id: String, password: String = "correct horse",
    prepare: @escaping AppRuntime.Preparation = { _, _ in },
    events: @escaping AppRuntime.EventHandler = { _, _ in },
    options change: (inout AppRuntime.Options) throws -> Void = { _ in }
  ) throws -> ManagedTestApp {
    try managedApp(
      Application(id: ApplicationID(id), name: id), password: password, prepare: prepare, events: events,
      options: change)
  }

  /// Installs an app, as ``managedApp(_:password:prepare:events:options:)-(String,_,_,_,_)``.
  public func managedApp(
    _ application: Application, password: String = "correct horse",
    prepare: @escaping AppRuntime.Preparation = { _, _ in },
    events: @escaping AppRuntime.EventHandler = { _, _ in },
    options change: (inout AppRuntime.Options) throws -> Void = { _ in }
  ) throws -> ManagedTestApp {
    let id = application.id
    let faults = faults(of: id)
    var options = AppRuntime.Options()
    options.services = servicesOptions
    options.logger = self.options.logger
    options.clock = self.options.clock
    options.container = faults.containerOptions
    options.management = ManagementSource(path: directory.path + "/\(id.text).management.json")
    options.misuse = { [callbacks] in callbacks.note("misuse \($0.call)", in: id) }
    try change(&options)
    let app = ManagedTestApp(
      application, at: directory.appendingPathComponent(id.text), password: password, options: options,
      faults: faults, record: callbacks, prepare: prepare, events: events)
    managedApps.withLock { $0.append(app) }
    return app
  }

  /// Installs an app, starts its first process, and activates it: it is authorized when this
  /// returns. Throws what ``managedApp(_:password:prepare:events:options:)-(String,_,_,_,_)``,
  /// ``ManagedTestApp/start()`` and ``ManagedTestApp/typePassword(_:)`` throw.
  public func startManaged(
    _ id: String, password: String = "correct horse",
    prepare: @escaping AppRuntime.Preparation = { _, _ in },
    events: @escaping AppRuntime.EventHandler = { _, _ in },
    options change: (inout AppRuntime.Options) throws -> Void = { _ in }
  ) async throws -> ManagedTestApp {
    let application = try Application(id: ApplicationID(id), name: id)
    return try await startManaged(
      application, password: password, prepare: prepare, events: events, options: change)
  }

  /// Installs, starts and activates an app, as
  /// ``startManaged(_:password:prepare:events:options:)-(String,_,_,_,_)``.
  public func startManaged(
    _ application: Application, password: String = "correct horse",
    prepare: @escaping AppRuntime.Preparation = { _, _ in },
    events: @escaping AppRuntime.EventHandler = { _, _ in },
    options change: (inout AppRuntime.Options) throws -> Void = { _ in }
  ) async throws -> ManagedTestApp {
    let app = try managedApp(
      application, password: password, prepare: prepare, events: events, options: change)
    try await app.start()
    do {
      try await app.typePassword()
    } catch {
      await app.end()
      throw error
    }
    return app
  }

  /// Installs the launcher that shows all apps, as `dynamics launcher --install` does, and starts it: it is authorized when this returns.
  package func startLauncher() async throws -> ManagedTestApp {
    let application = Application(id: .launcher, name: "Launcher")
    let password = "correct horse"
    let app = try managedApp(
      application, password: password,
      options: {
        $0.services.registers = false
        $0.launcher = [.setStaysOpen(true)]
      })
    let place = directory.appendingPathComponent(application.id.text)
    let fingerprint = try await BlockingCall.run {
      let container = try SecureContainer.create(at: place, passphrase: SecretBytes(utf8: password))
      defer { try? container.close() }
      return try AppServices(application, container: container).keyFingerprint
    }
    let administrator = try await administrator()
    defer { administrator.close() }
    let approval = WireApprove.with {
      $0.appID = application.id.text
      $0.keyFingerprint = KeyFingerprint.bytes(fingerprint) ?? Data()
    }
    _ = try await administrator.ask(.administer(.with { $0.approve = approval }))
    try await app.start()
    try await app.typePassword()
    return app
  }

  // MARK: The broker

  /// The path of the broker's socket, for apps in processes of their own (`OPENDYNAMICS_BROKER`).
  public var socketPath: String { configuration.socketPath }

  package var stateDirectory: String { configuration.stateDirectory }

  /// Stops the broker. Apps that have met go on with each other.
  public func stopBroker() async {
    let running = broker.withLock { $0.take() }
    await running?.stop()
  }

  /// Starts the broker after ``stopBroker()``, with what it knew. Apps connect again by themselves,
  /// and at once when `AppServices.start()` is called.
  public func startBroker() async throws { try await startBroker { _ in } }

  package func startBroker(change: (inout ServiceBroker.Configuration) -> Void) async throws {
    var configuration = configuration
    change(&configuration)
    let started = try await ServiceBroker.start(configuration, logger: options.logger)
    broker.withLock { $0 = started }
  }

  /// A client of the broker that may do what `dynamics apps` and `dynamics front` do.
  package func administrator() async throws -> BrokerClient {
    let path = stateDirectory + "/administrator.key"
    let contents = try await BlockingCall.run { try Data(contentsOf: URL(fileURLWithPath: path)) }
    guard let key = try KeyPair(kept: contents) else {
      throw ServicesError(.certificateNotFound, path: path)
    }
    return try await BrokerClient.attend(path: socketPath, name: "test", broker: nil, administrator: key)
  }

  // MARK: The front

  /// Brings an app to the front as a launcher does; nil: nobody is in front. When this returns, the
  /// apps of this object know it: `isInFront` and `frontChanges` of their services have followed.
  ///
  /// Throws `applicationNotFound` for an app that does not run, `frontRefused` while
  /// ``refusesFront`` is true, `brokerUnavailable`.
  public func bringToFront(_ app: ApplicationID?) async throws {
    try await choose(app?.text ?? "")
    let running =
      apps.withLock { $0.map(\.services) } + managedApps.withLock { $0.compactMap(\.openServices) }
    // An answer of the broker comes behind what it has told the app before.
    for services in running where services.isInFront || services.application.id == app {
      _ = try await services.providers()
    }
  }

  /// The user's choice; empty: nobody.
  package func choose(_ appID: String) async throws {
    let administrator = try await administrator()
    defer { administrator.close() }
    _ = try await administrator.ask(.administer(.with { $0.front = appID }))
  }

  /// Names the program that the broker starts for an app.
  package func install(_ appID: String, _ path: String, _ arguments: [String] = []) async throws {
    let administrator = try await administrator()
    defer { administrator.close() }
    let install = WireInstall.with {
      $0.appID = appID
      ($0.program.path, $0.program.arguments) = (path, arguments)
    }
    _ = try await administrator.ask(.administer(.with { $0.install = install }))
  }

  /// Whether no app comes to the front: then `bringToFront` of apps throws `frontRefused`, and
  /// preferences change nothing.
  public var refusesFront: Bool {
    get { front.withLock { $0.isRefused } }
    set { front.withLock { $0.isRefused = newValue } }
  }

  /// The apps that were to come to the front, oldest first, also those that were refused; nil:
  /// nobody was to be in front.
  public var fronts: [ApplicationID?] { front.withLock { $0.asked } }
}

/// Runs `body` with apps and a broker of its own, and stops them whatever it throws. Throws what
/// `TestApps()` and `body` throw.
///
/// ```swift
/// import AppKineticsTesting
///
/// try await withTestApps { apps in
///   let notes = try await apps.start("com.example.notes")
///   try notes.put("A file for you", at: "/Documents/note.txt")
/// }
/// ```
public func withTestApps<R>(
  _ options: TestApps.Options = TestApps.Options(), isolation: isolated (any Actor)? = #isolation,
  _ body: (TestApps) async throws -> R
) async throws -> R {
  let apps = try await TestApps(options)
  let result: R
  do {
    result = try await body(apps)
  } catch {
    await apps.stop()
    throw error
  }
  await apps.stop()
  return result
}
