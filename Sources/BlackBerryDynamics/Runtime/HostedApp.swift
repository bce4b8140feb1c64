import AppKinetics
import AppRuntime
import Locks
import PushClient
import SecureFiles

/// The app of this process: its runtime, which is made when it is needed first, and the objects of
/// the vendor's interface that are told what happens.
final class HostedApp: Sendable {
  private struct Process {
    var configuration: GDConfiguration?
    var app: HostedApp?
  }

  struct State {
    var making: Task<AppRuntime, any Error>?
    var runtime: AppRuntime?
    /// The files of a container, while that one is open.
    var files: (of: SecureContainer, manager: SecureFileManager)?
    /// ``GDiOS/authorizeAutonomously()`` has begun, and its outcome is not known.
    var isTryingAlone = false
    weak var delegate: (any GDiOSDelegate)?
    /// A task follows the changes of the runtime.
    var isFollowing = false
    var asking = Asking.idle
    /// What `GDConfiguration.setForeground` has said.
    var isInForeground = true
    /// Since asking has begun, the delegate was told an outcome.
    var isOutcomeTold = false
    /// The app has called `authorize` since.
    var wanted = Wanted.no
    /// A lock began to ask, and not the app.
    var isByLock = false
    /// The code of the last failed attempt.
    var lastFailure = GDAppResultCode.errorNone
    /// The state that notifications have told.
    var told = GDState.Values()

    mutating func beginAsking(byLock: Bool) {
      (asking, isOutcomeTold, wanted, isByLock) = (.underWay, false, .no, byLock)
    }
  }

  private static let process = Guarded(Process())

  let configuration: GDConfiguration
  let paths: NativePaths
  let consumer: CallbackEnd<any GDServiceClientDelegate>
  let provider: CallbackEnd<any GDServiceDelegate>
  let replies = OpenRequests()
  /// Runs what follows requests: their callbacks come in the order in which things happened.
  let following = QueueExecutor()
  let state = Guarded(State())
  let launcherState: Guarded<HostedLauncher>
  let pushRuntime = Guarded<PushRuntime?>(nil)

  private init(_ configuration: GDConfiguration) {
    self.configuration = configuration
    paths = NativePaths()
    consumer = CallbackEnd(configuration)
    provider = CallbackEnd(configuration)
    launcherState = Guarded(HostedLauncher(configuration.launcherInputs))
  }

  // MARK: Process

  static var configuration: GDConfiguration {
    process.withLock { process in
      let configuration = process.configuration ?? GDConfiguration()
      process.configuration = configuration
      return configuration
    }
  }

  static func setConfiguration(_ configuration: GDConfiguration) {
    process.withLock { process in
      precondition(process.app == nil, "the configuration is set before the app uses anything else")
      process.configuration = configuration
    }
  }

  /// Made when it is first asked for.
  static var current: HostedApp {
    process.withLock { process in
      if let app = process.app { return app }
      let app = HostedApp(process.configuration ?? GDConfiguration())
      process.app = app
      return app
    }
  }

  /// The app, if anything has asked for it.
  static var begun: HostedApp? { process.withLock { $0.app } }

  /// Stops the app, so that a test can begin another one in the same process.
  static func end() async {
    let app = process.withLock { process in
      defer { process = Process() }
      return process.app
    }
    let making = app?.state.withLock { state in
      defer { state = State(asking: .ended) }
      return state.making
    }
    await app?.pushRuntime.withLock { $0.take() }?.stop()
    try? await making?.value.stop()
  }

  // MARK: Runtime

  /// Throws what `AppRuntime` throws when it is made, and `ServicesError` for a wrong
  /// configuration.
  func runtime() async throws -> AppRuntime { try await making().value }

  /// Does the same, and blocks.
  func runtimeAndWait() throws -> AppRuntime {
    if let runtime = state.withLock({ $0.runtime }) { return runtime }
    let making = try making()
    return try BlockingCall.wait { try await making.value }
  }

  private func making() throws -> Task<AppRuntime, any Error> {
    try state.withLock { state in
      if state.asking == .ended { throw AppRuntimeError(.notAuthorized, detail: "the app has ended") }
      if let making = state.making { return making }
      // `runtimeAndWait()` waits for it, also on a thread of the pool.
      let making = Task(executorPreference: QueueExecutor()) { try await self.make() }
      state.making = making
      return making
    }
  }

  private func make() async throws -> AppRuntime {
    do {
      let parent = configuration.container.deletingLastPathComponent()
      try await BlockingCall.run {
        try FileManager.default.createDirectory(
          at: parent, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
      }
      let runtime = try await AppRuntime(
        configuration.application(), containerAt: configuration.container, options: options,
        prepare: { [self] in try prepare($0, $1) },
        events: { [self] event, _ in received(event) })
      state.withLock { if $0.asking != .ended { $0.runtime = runtime } }
      return runtime
    } catch {
      // The next call tries again: another process of the app may have ended.
      state.withLock { $0.making = nil }
      configuration.logger.error("the runtime does not begin", metadata: ["error": "\(error)"])
      throw error
    }
  }

  private var options: AppRuntime.Options {
    var options = AppRuntime.Options()
    options.management = configuration.management.map { ManagementSource(path: $0) }
    options.services = configuration.serviceOptions
    options.services.callbackQueue = configuration.callbackQueue
    options.container = configuration.containerOptions
    options.rawKey = configuration.rawKey
    options.startsLauncher = configuration.startsLauncher
    options.launcher = launcherState.withLock { $0.inputsToBeginWith() }
    options.uploadLogs = configuration.uploadLogs
    options.clock = configuration.clock
    options.eventQueue = configuration.callbackQueue
    options.logger = configuration.logger
    options.misuse = { [configuration] misuse in
      configuration.onMisuse(GDMisuse(call: misuse.call, reason: GDMisuse.tooEarly))
    }
    return options
  }

  /// Called after each opening, before the services start.
  private func prepare(_ container: SecureContainer, _ services: AppServices) throws {
    for path in NativePaths.directories {
      try container.files.createDirectory(atPath: path, withIntermediateDirectories: true)
    }
    // They belong to services that have ended. Those that are kept are found by their ids.
    replies.removeAll()
    services.onUnclaimedReply { [self] in received($0) }
    let delegate = ProviderCallbacks(self)
    services.offerRest(provider: delegate)
    let definitions = configuration.definitions()
    if !definitions.isEmpty { try services.offer(definitions, provider: delegate) }
  }

  // MARK: While it is authorized

  /// The container and the services. Before the first authorization the misuse is reported, and
  /// `notAuthorized` thrown; it is thrown alone while the keys are gone.
  func opened(_ call: String) throws -> AppRuntime.Opened {
    guard let runtime = state.withLock({ $0.runtime }) else {
      configuration.onMisuse(GDMisuse(call: call, reason: GDMisuse.tooEarly))
      throw AppRuntimeError(.notAuthorized)
    }
    return try runtime.opened(call)
  }

  /// The runtime of an app that was authorized in this process; nil otherwise, which is reported.
  func authorizedRuntime(_ call: String) -> AppRuntime? {
    let runtime = state.withLock { $0.runtime }
    if let runtime, runtime.authorization.wasAuthorized { return runtime }
    // What its owner has taken, an app may ask for in good faith.
    if let runtime, runtime.authorization.takesKeys { return nil }
    configuration.onMisuse(GDMisuse(call: call, reason: GDMisuse.tooEarly))
    return nil
  }

  /// The files of the container that is open now, with one working directory for all callers.
  /// Throws as ``opened(_:)`` does.
  func files(_ call: String) throws -> SecureFileManager {
    let container = try opened(call).container
    return state.withLock { state in
      if let files = state.files, files.of === container { return files.manager }
      let files = SecureFileManager(container, urlStyle: .file)
      state.files = (container, files)
      return files
    }
  }
}
