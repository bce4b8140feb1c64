public import AppKinetics
import Dispatch
import Locks
import Logging

/// The launcher of an app: its state, what a person does with it, and what follows (Documentation/LAUNCHER.md).
///
/// A runtime has it once the app was shown (``AppRuntime/launcher``); something draws its ``model``, and gives it what a person does.
///
/// ```swift
/// import AppRuntime
///
/// func draw(_ runtime: AppRuntime) async {
///   guard let launcher = runtime.launcher else { return }
///   launcher.apply(.register(.init(id: "docs", title: "Documents", location: "docs://")))
///   for await model in launcher.changes {
///     print(model.isOpen ? model.apps.map(\.name) : [])
///   }
/// }
/// ```
///
/// Any thread may use it.
public final class Launcher: Sendable {
  private struct State {
    var model: LauncherModel
    weak var delegate: (any LauncherDelegate)?
    var watchers: [UInt64: AsyncStream<LauncherModel>.Continuation] = [:]
    var lastWatcher: UInt64 = 0
    /// The task that follows the list of apps, by the services that the app has now.
    var following: Task<Void, Never>?
    var services: AppServices?
    var hasStopped = false
    /// Effects that are not carried out yet; the state is shown when none is left.
    var effects: [LauncherModel.Effect] = []
    var isShowing = false

    func show() { for watcher in watchers.values { watcher.yield(model) } }
  }

  private let state: Guarded<State>
  private let clock: any AppClock
  /// The queue of the runtime's events: the delegate is called there, in the order of the changes.
  private let events: DispatchQueue
  private let remember: @Sendable (LauncherModel.Memory) -> Void
  private let uploadLogs: (@Sendable () async throws -> Void)?
  private let logger: Logger

  /// How long the app has to make its logs ready.
  static let logTime = Duration.seconds(30)

  init(
    _ memory: LauncherModel.Memory, _ options: AppRuntime.Options, on events: DispatchQueue,
    remember: @escaping @Sendable (LauncherModel.Memory) -> Void
  ) {
    var model = LauncherModel(memory, uploadsLogs: options.uploadLogs != nil)
    for input in options.launcher { _ = model.apply(input) }
    state = Guarded(State(model: model))
    (clock, uploadLogs, logger) = (options.clock, options.uploadLogs, options.logger)
    self.events = events
    self.remember = remember
  }

  // MARK: What the app sees

  /// The state, as it is now.
  public var model: LauncherModel { state.withLock { $0.model } }

  /// The state, and each one after it; a slow reader gets the latest. Ends with the runtime's `stop()`.
  public var changes: AsyncStream<LauncherModel> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
      let number: UInt64? = state.withLock { state in
        continuation.yield(state.model)
        guard !state.hasStopped else { return nil }
        state.lastWatcher += 1
        state.watchers[state.lastWatcher] = continuation
        return state.lastWatcher
      }
      guard let number else { return continuation.finish() }
      // Later: this is called with the reader's task locked, and whoever shows a state holds the launcher's lock when it wakes that task.
      continuation.onTermination = { [weak self, events] _ in
        events.async { [self] in self?.state.withLock { $0.watchers[number] = nil } }
      }
    }
  }

  /// The object that is told what a person does. The launcher does not keep it alive.
  public var delegate: (any LauncherDelegate)? {
    get { state.withLock { $0.delegate } }
    set { state.withLock { $0.delegate = newValue } }
  }

  /// Whether the panel is open. Setting it moves the panel, unless the button is hidden.
  public var isOpen: Bool {
    get { model.isOpen }
    set { apply(.setOpen(newValue, animated: true)) }
  }

  /// Whether the button is hidden. Setting it does nothing while the panel is open.
  public var isButtonHidden: Bool {
    get { model.isButtonHidden }
    set { apply(.setButtonHidden(newValue)) }
  }

  /// Whether a section is there and shown.
  public func isSectionEnabled(_ id: String) -> Bool { model.shownSections.contains { $0.id == id } }

  /// Does what a person or the app wants. Returns why nothing has changed; nil when something has.
  @discardableResult
  public func apply(_ input: LauncherModel.Input) -> LauncherModel.Ignored? {
    state.withLock { state in
      let outcome = state.model.apply(input)
      guard outcome.ignored == nil else { return outcome.ignored }
      state.effects += outcome.effects
      if outcome.effects.contains(.remember(state.model.memory)) { remember(state.model.memory) }
      if case .authorized(false) = input {
        // Nothing that names others waits for anybody.
        state.effects.removeAll(where: \.isOfOthers)
        state.show()
      }
      guard !state.isShowing else { return nil }
      state.isShowing = true
      events.async { [self] in carryOut() }
      return nil
    }
  }

  /// Does what there is to be done, and shows the latest state when nothing is left: what is told comes first, and a state that nobody
  /// has seen yet is not kept.
  private func carryOut() {
    while true {
      let (effects, services) = state.withLock { state in
        defer { state.effects = [] }
        if state.effects.isEmpty {
          state.isShowing = false
          state.show()
        }
        return (state.effects, state.services)
      }
      if effects.isEmpty { return }
      for effect in effects { carryOut(effect, services) }
    }
  }

  /// The keys by which other apps know this one, and those of the apps that it knows. Nil while the app is not authorized.
  public func certificates() async -> Certificates? {
    guard let services = state.withLock({ $0.services }) else { return nil }
    return Certificates(own: services.keyFingerprint, peers: await services.peerKeys())
  }

  /// What ``Launcher/certificates()`` says.
  public struct Certificates: Sendable, Hashable {
    /// The fingerprint of the app's own key.
    public let own: String
    /// The keys of apps that it has met.
    public let peers: [PeerKey]
  }

  // MARK: For the runtime

  /// The app is shown to its person with these services, or not any more. Nothing of what others are called is left when this returns.
  func setAuthorized(_ services: AppServices?) {
    let following = state.withLock { state in
      guard state.services !== services else { return Task<Void, Never>?.none }
      state.services = services
      return state.following.take()
    }
    following?.cancel()
    apply(.authorized(services != nil))
    guard let services else { return }
    let task = Task { [weak self] in
      await withDiscardingTaskGroup { group in
        group.addTask {
          for await error in services.connectionErrors { self?.connected(error == nil, by: services) }
        }
        guard
          let lists = try? await BlockingCall.run({
            services.watchProviders(includesOwn: true, includesContents: true, includesNonProviders: true)
          })
        else { return }
        do {
          for try await list in lists { self?.found(list, by: services) }
        } catch {
          // The services have stopped, or the broker has refused them for good.
        }
      }
    }
    let isLate = state.withLock { state in
      if state.services === services { state.following = task }
      return state.services !== services
    }
    if isLate { task.cancel() }
  }

  func stop() {
    setAuthorized(nil)
    let watchers = state.withLock { state in
      state.hasStopped = true
      defer { state.watchers = [:] }
      return state.watchers
    }
    events.async { for watcher in watchers.values { watcher.finish() } }
  }

  private func connected(_ isConnected: Bool, by services: AppServices) {
    guard state.withLock({ $0.services === services }) else { return }
    apply(.connected(isConnected))
  }

  private func found(_ providers: [Provider], by services: AppServices) {
    guard state.withLock({ $0.services === services }) else { return }
    apply(.appsFound(providers.map(LauncherModel.App.init), at: clock.now))
    let traffic = providers.compactMap { provider in provider.traffic.map { (provider.application, $0) } }
    apply(.trafficFound(Dictionary(traffic) { $1 }))
  }

  // MARK: Effects

  private func carryOut(_ effect: LauncherModel.Effect, _ services: AppServices?) {
    let delegate = delegate
    switch effect {
    case .willOpen: delegate?.launcherWillOpen(self)
    case .willClose: delegate?.launcherWillClose(self)
    // It was handed over with the change.
    case .remember: break
    case .selectSection(let location): delegate?.launcher(self, didSelectSectionAt: location)
    case .perform(let location): delegate?.launcher(self, didSelectActionAt: location)
    case .quickAction(let service, let apps): delegate?.launcher(self, didSelect: service, of: apps)
    case .changePassword: delegate?.launcherChangesPassword(self)
    case .setting(let id): delegate?.launcher(self, didSelectSetting: id)
    case .findApps: if let services { find(services) }
    case .uploadLogs: sendLogs(delegate)
    case .launch(let application):
      let launch = Self.once { [weak self] in self?.launch(application) }
      if delegate?.launcher(self, shouldLaunch: application, launch: launch) ?? true { launch() }
    }
  }

  /// A function that does something when it is called for the first time, whoever calls it how often.
  private static func once(_ body: @escaping @Sendable () -> Void) -> @Sendable () -> Void {
    let isDone = Guarded(false)
    return {
      let isFirst = isDone.withLock { isDone in
        defer { isDone = true }
        return !isDone
      }
      if isFirst { body() }
    }
  }

  private func find(_ services: AppServices) {
    guard !model.isFresh(at: clock.now) else { return }
    Task {
      do {
        let list = try await services.providers(
          includesOwn: true, includesContents: true, includesNonProviders: true)
        found(list, by: services)
      } catch {
        apply(.appsNotFound(at: clock.now))
      }
    }
  }

  private func launch(_ application: ApplicationID) {
    guard let services = state.withLock({ $0.services }), apply(.launchBegan(application)) == nil else {
      return
    }
    Task {
      do {
        try await services.launch(application)
        apply(.launchEnded(application, nil))
      } catch {
        apply(.launchEnded(application, (error as? ServicesError)?.code ?? .general))
      }
    }
  }

  private func sendLogs(_ delegate: (any LauncherDelegate)?) {
    guard let uploadLogs else { return }
    let timer = Guarded<(any AppTimer)?>(nil)
    let begin = Self.once { [logger] in
      timer.withLock { $0.take() }?.cancel()
      Task {
        do { try await uploadLogs() } catch {
          logger.error("logs were not sent", metadata: ["error": "\(error)"])
        }
      }
    }
    guard let delegate else { return begin() }
    timer.withLock {
      $0 = clock.makeTimer(begin)
      $0?.set(to: clock.now + Self.logTime)
    }
    delegate.launcher(self, beforeUploadingLogs: begin)
  }
}

extension LauncherModel.Effect {
  /// Whether it is about other apps.
  fileprivate var isOfOthers: Bool {
    switch self {
    case .quickAction, .launch, .findApps: true
    default: false
    }
  }
}

extension LauncherModel.App {
  init(_ provider: Provider) {
    self.init(
      application: provider.application, name: provider.name, icon: provider.icon, state: provider.state,
      isInstalled: provider.isInstalled, isInFront: provider.isInFront, isOwn: provider.isOwn,
      services: Set(provider.services.map(\.id)))
  }
}
