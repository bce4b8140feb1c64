// Who uses this module writes Application, ServiceValue and SecretBytes: one import is enough.
@_exported public import AppKinetics
public import Dispatch
public import Foundation
import Locks
public import Logging
public import SecureFiles
public import SodiumPrimitives

/// Decides whether an app may use its container and its services, and takes that away again (Documentation/RUNTIME.md).
///
/// ```swift
/// import AppRuntime
///
/// let notes = Application(id: try ApplicationID("com.example.notes"), name: "Notes")
/// let runtime = try await AppRuntime(notes, containerAt: url) { container, services in
///   try services.offer(WellKnownService.greetings.definition) { .reply("Hello, \($0.sender)") }
/// } events: { event, state in
///   print(event.message, state.asks)
/// }
/// try await runtime.authorize(passphrase: SecretBytes(utf8: "correct horse"))
/// try runtime.container.files.write(data, toPath: "/note")
/// ```
///
/// Any thread may use it. While the app is not authorized no key of the container is in memory.
public final class AppRuntime: Sendable {
  /// Where the parts are, and what the runtime is given.
  public struct Options: Sendable {
    /// The management file of the owner; nil: none is read, and one that was accepted before still holds.
    public var management: ManagementSource?
    /// Options of the services that each authorization makes. Their clock is the runtime's.
    public var services = AppServices.Options()
    /// Options of the container.
    public var container = Container.Options()
    /// The key that opens the container without a person, for instance a credential of the system's service manager; nil: none.
    public var rawKey: (@Sendable () throws -> SecretBytes)?
    /// Whether a launcher starts with the first authorization (``AppRuntime/launcher``).
    public var startsLauncher = true
    /// What holds for the launcher before anybody sees it: whether the coach mark is shown, where the button is, sections, and what else
    /// an app says of its own.
    public var launcher: [LauncherModel.Input] = []
    /// Sends the app's logs where its owner wants them; nil: the launcher offers no such setting by itself.
    public var uploadLogs: (@Sendable () async throws -> Void)?
    /// The clock of idle times, dates and waits.
    public var clock: any AppClock = SystemClock()
    /// The serial queue of the event handler; nil: one of the runtime's own.
    public var eventQueue: DispatchQueue?
    /// Called when the app asks for its container or its services before it was ever authorized in this process, which is a
    /// programming error. Ends the process unless a test replaces it.
    public var misuse: @Sendable (Misuse) -> Void = { fatalError("\($0)") }
    /// The logger for what the app's code cannot catch. Its label is `opendynamics.runtime`.
    public var logger = Logger(label: "opendynamics.runtime")

    /// Makes the default options.
    public init() {}
  }

  /// A call before the first authorization.
  public struct Misuse: Sendable, CustomStringConvertible {
    /// The call.
    public let call: String
    /// The state at that time.
    public let state: Authorization

    /// A sentence for the developer.
    public var description: String {
      "\(call) was used before the app was authorized; call authorize first, and wait for it or for whenAuthorized"
    }
  }

  /// The container and the services of an app while it is authorized.
  public struct Opened: Sendable {
    /// The app's container.
    public let container: SecureContainer
    /// The app's services.
    public let services: AppServices
  }

  /// Sets an app up after each opening of its container: registers services, opens databases. Services start when it has
  /// returned. What it throws closes everything again.
  public typealias Preparation = @Sendable (SecureContainer, AppServices) async throws -> Void
  /// Gets each event with the state that was set before it.
  public typealias EventHandler = @Sendable (AuthorizationEvent, Authorization) -> Void

  enum Try {
    case byPerson, withoutPerson
  }

  struct State {
    var authorization: Authorization
    var kept: RuntimeState
    var accepted: ManagementFile?
    var opened: Opened?
    /// The container of an opening that is under way: it is sealed as one that is open.
    var pending: SecureContainer?
    /// The highest serial that the state had when the process began, or that this process wrote into the container. A container that
    /// knows a higher one has another state than this one.
    var provenSerial: Int64
    /// Grows whenever the keys go: what began before is not wanted any more.
    var epoch: UInt64 = 0
    var lastActivity: Duration
    /// The time of the last wrong password in this process; the begin of the process before that.
    var lastAttempt: Duration
    var isInForeground = true
    /// The app was shown to its person at any time.
    var wasShown = false
    /// Who is trying to open the container, or answers a question.
    var trying: Try?
    var hasStopped = false
    /// As if the process had ended: nothing is saved or told any more.
    var isAbandoned = false
    var waiting: [UInt64: CheckedContinuation<Opened, any Error>] = [:]
    var lastWaiting: UInt64 = 0
    var watchers: [UInt64: AsyncStream<Authorization>.Continuation] = [:]
    /// Updates that the app is told of once it is authorized.
    var heldUpdates: [AuthorizationEvent.Kind] = []
  }

  /// The app.
  public let application: Application
  /// The container's directory.
  public let url: URL
  let options: Options
  let prepare: Preparation
  private let events: EventHandler
  let state: Guarded<State>
  let file: StateFile
  /// Saves and tells, in the order of the changes.
  let effects = DispatchQueue(label: "opendynamics.runtime")
  private let eventQueue: DispatchQueue
  let place: BrokerPlace
  private let startedLauncher: Launcher?
  private let timer = Guarded<(any AppTimer)?>(nil)
  private let watch = Guarded<ManagementWatch?>(nil)
  /// What is on the disk.
  let saved: Guarded<RuntimeState?>

  /// Reads the state beside the container, finishes a wipe that was interrupted, and reads the management file. No key is needed.
  ///
  /// Throws `alreadyRunning` when another process of the app runs, and `stateUnusable`.
  public init(
    _ application: Application, containerAt url: URL, options: Options = Options(),
    prepare: @escaping Preparation,
    events: @escaping EventHandler = { _, _ in }
  ) async throws {
    // One container has one state, by whatever links it is reached.
    let url = url.resolvingSymlinksInPath()
    let (file, state) = try await BlockingCall.run {
      do {
        return try Self.begin(application, url, options)
      } catch {
        throw error as? AppRuntimeError ?? AppRuntimeError(.stateUnusable, path: url.path, cause: error)
      }
    }
    self.application = application
    self.url = url
    var options = options
    options.services.clock = options.clock
    self.options = options
    self.prepare = prepare
    self.events = events
    self.file = file
    self.state = Guarded(state)
    saved = Guarded(state.kept)
    eventQueue = options.eventQueue ?? DispatchQueue(label: "opendynamics.runtime.events")
    place = BrokerPlace(url, options.services)
    let (effects, logger, latest) = (effects, options.logger, Guarded<LauncherModel.Memory?>(nil))
    startedLauncher =
      options.startsLauncher
      ? Launcher((try? file.read(.launcher)) ?? .init(), options, on: eventQueue) { memory in
        // Of many changes the last is written.
        let isFirst = latest.withLock { latest in
          defer { latest = memory }
          return latest == nil
        }
        guard isFirst else { return }
        effects.async {
          guard let memory = latest.withLock({ $0.take() }) else { return }
          do { try file.write(memory, to: .launcher) } catch {
            logger.error("the launcher's state cannot be saved", metadata: ["error": "\(error)"])
          }
        }
      } : nil
    timer.withLock { $0 = options.clock.makeTimer { [weak self] in self?.timerFired() } }
    if let management = options.management {
      let changed: @Sendable () -> Void = { [weak self] in try? self?.readManagement() }
      watch.withLock { $0 = ManagementWatch(management, options.clock, changed) }
      // It may have changed since it was read, before anybody observed it.
      await refreshManagement()
    }
    if self.state.withLock({ $0.authorization.activation == .activated && $0.authorization.shown != .wiped })
    {
      place.standIn()
    }
  }

  deinit { timer.withLock { $0?.cancel() } }

  private static func begin(
    _ application: Application, _ url: URL, _ options: Options
  ) throws -> (StateFile, State) {
    let file = try StateFile(options.container.disk(url.path + ".runtime"))
    var kept = try file.read() ?? RuntimeState()
    let before = kept
    var accepted = try kept.managed.map { try ManagementFile($0) }
    let provenSerial = accepted?.serial ?? 0
    do {
      if let text = try options.management?.read(), text != accepted?.text {
        let latest = try ManagementFile(text)
        if try kept.accept(latest, after: accepted) { accepted = latest }
      }
    } catch {
      options.logger.error("the management file was refused", metadata: ["error": "\(error)"])
    }
    // A wipe that was decided, or has begun.
    var id = try Self.container(at: url.path)
    if let wipe = accepted?.wipe, wipe == id { kept.wiping = wipe }
    if let wiping = kept.wiping {
      if kept != before { try file.write(kept) }
      try Self.destroy(wiping, at: url.path)
      kept.noteWiped()
      id = try Self.container(at: url.path)
    }
    if kept.container != id { kept.forgetContainer(now: id) }
    if kept != before { try file.write(kept) }
    let now = options.clock.now
    let authorization = Authorization(
      activation: id == nil ? .notActivated : .activated, localBlocks: kept.blocks,
      isRemotelyLocked: kept.remoteLock != nil, managementBlock: accepted?.block,
      entitlement: accepted?.entitlement(of: application) ?? .entitled)
    return (
      file,
      State(
        authorization: authorization, kept: kept, accepted: accepted, provenSerial: provenSerial,
        lastActivity: now, lastAttempt: now)
    )
  }

  /// The id of the container there; nil without one, and for one whose destruction has begun, which a creation finishes. What cannot be
  /// read is no reason to forget what is kept of it.
  private static func container(at path: String) throws -> Identifier? {
    do {
      let id = try Container.id(at: path)
      return PosixBlockIO(path).isBeingDestroyed ? nil : id
    } catch let error as ContainerError where error.code == .notAContainer {
      return nil
    }
  }

  // MARK: What the app asks

  /// The state, as it is now.
  public var authorization: Authorization {
    tick()
    return state.withLock { $0.authorization }
  }

  /// The state, and then each one after it that is different, also without an event, and after that. A slow reader gets the latest. Ends with ``stop()``.
  public var authorizationChanges: AsyncStream<Authorization> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
      let number: UInt64? = state.withLock { state in
        continuation.yield(state.authorization)
        guard !state.hasStopped else { return nil }
        state.lastWaiting += 1
        state.watchers[state.lastWaiting] = continuation
        return state.lastWaiting
      }
      guard let number else { return continuation.finish() }
      continuation.onTermination = { [weak self] _ in self?.state.withLock { $0.watchers[number] = nil } }
    }
  }

  /// The app's container. Throws `notAuthorized` with the withdrawal while its keys are closed.
  public var container: SecureContainer { get throws { try opened("container").container } }

  /// The app's services. Throws as ``container`` does.
  public var services: AppServices { get throws { try opened("services").services } }

  /// Without a call, asking too early is no mistake of the app's.
  package func opened(_ call: String? = nil) throws(AppRuntimeError) -> Opened {
    let (opened, authorization) = state.withLock { ($0.opened, $0.authorization) }
    if let opened { return opened }
    // What its owner has taken, an app may ask for in good faith.
    if let call, !authorization.wasAuthorized, !authorization.takesKeys {
      options.misuse(Misuse(call: call, state: authorization))
    }
    throw AppRuntimeError(.notAuthorized, withdrawal: authorization.keysTakenBy)
  }

  /// Container and services, as soon as the app is authorized. A seal in between is waited for; a wipe, and ``stop()``, throw
  /// `notAuthorized`. Cancelling the task throws `CancellationError`.
  public func whenAuthorized() async throws -> Opened {
    let number = state.withLock { state in
      state.lastWaiting += 1
      return state.lastWaiting
    }
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let answer: Result<Opened, any Error>? = state.withLock { state in
          if let opened = state.opened { return .success(opened) }
          if Task.isCancelled { return .failure(CancellationError()) }
          if state.hasStopped || state.authorization.shown == .wiped {
            return .failure(AppRuntimeError(.notAuthorized, withdrawal: state.authorization.shown))
          }
          state.waiting[number] = continuation
          return nil
        }
        if let answer { continuation.resume(with: answer) }
      }
    } onCancel: {
      state.withLock { $0.waiting.removeValue(forKey: number) }?.resume(throwing: CancellationError())
    }
  }

  /// The app's launcher, from the first time on that the process shows the app to its person: set its delegate when `authorized` is told. Nil before, and when
  /// ``Options/startsLauncher`` is false.
  public var launcher: Launcher? { state.withLock { $0.wasShown } ? startedLauncher : nil }

  /// What the owner configured.
  public var configuration: AppConfiguration {
    state.withLock { $0.accepted?.configuration } ?? AppConfiguration()
  }

  /// The owner's JSON for the app; nil when there is none.
  public var appPolicy: ServiceValue? { state.withLock { $0.accepted?.appPolicy } }

  /// The owner's versions by entitlement id; nil when the owner does not decide about them.
  public var entitlements: [String: Set<ServiceVersion>]? { state.withLock { $0.accepted?.entitlements } }

  /// What a password must be.
  public var passwordRules: PasswordRules { state.withLock { $0.rules } }

  /// The name of this installation, drawn at the activation; nil before.
  public var instanceIdentifier: UUID? { state.withLock { $0.kept.instance } }

  // MARK: What happens to the app

  /// A person used the app. Idle time begins anew, unless it had passed.
  public func noteActivity() {
    tick()
    state.withLock { $0.lastActivity = options.clock.now }
    setTimer()
  }

  /// The app is shown, or not any more. An app that opened its container without a person asks for the password before it is shown.
  public func setForeground(_ isInForeground: Bool) {
    state.withLock { $0.isInForeground = isInForeground }
    if isInForeground { apply(.broughtToFront) }
  }

  /// Blocks the app, and keeps the block over restarts. A block with the same id is replaced, and is the newest then.
  public func block(_ block: LocalBlock) { apply(.blocked(block)) }

  /// Ends the block with this id. Does nothing without one.
  public func unblock(id: String) {
    apply(.unblocked(id: Notice.shortened(id, to: LocalBlock.idByteCountMax)))
  }

  /// Locks the app as its owner would: the keys go, and only the unlock code brings them back. Returns false, and does nothing, when
  /// no unlock code is known; and false when the lock could not be saved, and ends with the process.
  public func remoteLock() async -> Bool {
    let isKnown = state.withLock { $0.accepted?.unlockCode != nil }
    guard isKnown else { return false }
    change { state in
      state.kept.remoteLock = state.kept.remoteLock ?? .app
      return [.remotelyLocked]
    }
    await settle()
    return saved.withLock { $0?.remoteLock != nil }
  }

  /// Ends services, closes the container, and lets another process run the app. The object is not used after that.
  public func stop() async {
    let (opened, pending) = state.withLock { state in
      state.hasStopped = true
      defer { state.pending = nil }
      return (state.opened, state.pending)
    }
    _ = try? pending?.close(.now, because: "the app has stopped")
    // An opening that is under way ends soon: its container is closed, unless it is being made.
    let limit = ContinuousClock.now + .seconds(10)
    while state.withLock({ $0.trying != nil }), .now < limit { try? await Task.sleep(for: .milliseconds(5)) }
    timer.withLock { $0.take()?.cancel() }
    watch.withLock { $0.take()?.stop() }
    await opened?.services.stop()
    apply(.closed)
    await place.stop()
    startedLauncher?.stop()
    do {
      try await opened?.container.close()
    } catch {
      options.logger.error("changes could not be stored", metadata: ["error": "\(error)"])
    }
    await settle()
    let (waiting, watchers) = state.withLock { state in
      defer { (state.waiting, state.watchers) = ([:], [:]) }
      return (state.waiting, state.watchers)
    }
    for continuation in waiting.values { continuation.resume(throwing: AppRuntimeError(.notAuthorized)) }
    for watcher in watchers.values { watcher.finish() }
    file.letGo()
  }

  /// Ends as the end of the process would: nothing is saved, told or said any more, and what was under way is left as it is. For tests.
  package func abandon() async {
    let (opened, pending) = state.withLock { state in
      (state.isAbandoned, state.hasStopped) = (true, true)
      defer { state.pending = nil }
      return (state.opened, state.pending)
    }
    await opened?.services.holdNow()
    for container in [opened?.container, pending] {
      _ = try? container?.close(.now, because: "the process was killed")
    }
    await stop()
  }

  /// Returns when the broker was told what stands in for the app, or does.
  package func settleAtBroker() async { await place.settle() }

  var isAbandoned: Bool { state.withLock { $0.isAbandoned } }

  /// Returns when all changes so far are saved, and their events were handed over.
  package func settle() async {
    await withCheckedContinuation { continuation in effects.async { continuation.resume() } }
  }

  private func timerFired() {
    tick()
    // There may have been activity since it was set.
    setTimer()
  }

  /// Compares the time with the last activity: a timer only asks.
  func tick() {
    let isOver = state.withLock { state in
      guard let limit = state.idleTime else { return false }
      return state.authorization.allows(.idleTimePassed) && options.clock.now - state.lastActivity >= limit
    }
    if isOver { apply(.idleTimePassed) }
  }

  private func setTimer() { state.withLock { setTimer($0) } }

  /// Called with the state locked, so that who sees a change finds its timer set.
  private func setTimer(_ state: State) {
    guard state.authorization.allows(.idleTimePassed), let time = state.idleTime else { return }
    timer.withLock { $0?.set(to: state.lastActivity + time) }
  }

  // MARK: Changes

  /// Changes the state by one input.
  @discardableResult
  func apply(_ input: Authorization.Input) -> Authorization { change { _ in [input] } }

  /// Changes the state: first by `body`, then by the inputs that it returns. Keys that are not wanted any more are gone when this
  /// returns; then the state is saved, if it is another one, and then the events are told.
  @discardableResult
  func change<E: Error>(_ body: (inout State) throws(E) -> [Authorization.Input]) throws(E) -> Authorization {
    let (after, waiting) = try state.withLock { state throws(E) in
      let before = state.authorization
      var told: [AuthorizationEvent] = []
      let inputs = try body(&state)
      for input in inputs {
        if let event = state.authorization.apply(input) { told.append(state.ofTheBackground(event)) }
      }
      let after = state.authorization
      if after.presentation == .app { state.wasShown = true }
      let sealed = state.seal(since: before, isStored: inputs == [.closed])
      // It shows apps while the app itself may be shown.
      startedLauncher?.setAuthorized(after.presentation == .app ? state.opened?.services : nil)
      state.kept.blocks = after.localBlocks
      if after.isAuthorized {
        told += state.heldUpdates.map { AuthorizationEvent($0) }
        state.heldUpdates = []
      }
      let watchers = after == before ? [] : Array(state.watchers.values)
      finish(then: told, watchers, after)
      // In the order of the changes, too.
      if after.shown == .wiped, before.shown != .wiped {
        place.leave(sealed?.services)
      } else if let sealed {
        place.standIn(after: sealed.services)
      } else {
        place.show(after, state.opened)
      }
      setTimer(state)
      return (after, state.takeWaiting())
    }
    for (continuation, answer) in waiting { continuation.resume(with: answer) }
    return after
  }

  /// Saves and tells in the order of the changes: called with the state locked.
  private func finish(
    then told: [AuthorizationEvent],
    _ watchers: [AsyncStream<Authorization>.Continuation], _ after: Authorization
  ) {
    effects.async { [self] in
      FailPoint.decided.pass()
      do {
        try write()
      } catch {
        options.logger.error("the state cannot be saved", metadata: ["error": "\(error)"])
      }
      FailPoint.saved.pass()
      finishWipe()
      eventQueue.async { [self, events] in
        guard !isAbandoned else { return }
        for event in told { events(event, after) }
        FailPoint.told.pass()
        for watcher in watchers { watcher.yield(after) }
      }
    }
  }

  /// The latest state, whichever change asked for it, unless it is on the disk: an older one never comes after a newer one, and what
  /// could not be saved is saved with the next change.
  func write() throws {
    let (kept, isAbandoned) = state.withLock { ($0.kept, $0.isAbandoned) }
    try saved.withLock { saved in
      guard saved != kept, !isAbandoned else { return }
      // A write that fails may have replaced the file.
      saved = nil
      try file.write(kept)
      saved = kept
    }
  }

  /// Changes what is kept, and returns when it is on the disk. Blocks. Throws `stateUnusable`.
  func keep(_ change: (inout State) -> Void) throws {
    state.withLock { change(&$0) }
    try effects.sync { try write() }
  }
}

extension AppRuntime.State {
  var rules: PasswordRules { accepted?.passwordRules ?? PasswordRules() }
  var idleTime: Duration? { rules.idleSeconds.map { .seconds($0) } }

  /// What is withdrawn while a program opens the container is told as what is withdrawn afterwards.
  fileprivate func ofTheBackground(_ event: AuthorizationEvent) -> AuthorizationEvent {
    guard trying == .withoutPerson, event.kind == .notAuthorized, event.withdrawal?.takesKeys == true else {
      return event
    }
    return AuthorizationEvent(.backgroundNotAuthorized, code: event.code, withdrawal: event.withdrawal)
  }

  /// Wipes keys that are not wanted any more, before anything else happens, those of an opening that is under way, too. Returns what
  /// was open.
  fileprivate mutating func seal(since before: Authorization, isStored: Bool) -> AppRuntime.Opened? {
    if authorization.takesKeys, !before.takesKeys { epoch += 1 }
    let reason = authorization.shown?.code.message
    if authorization.takesKeys { _ = try? pending.take()?.close(.now, because: reason) }
    guard !authorization.isAuthorized, let opened else { return nil }
    self.opened = nil
    if isStored { return nil }
    _ = try? opened.container.close(.now, because: reason)
    return opened
  }

  /// Those who wait to be authorized, when their wait is over.
  fileprivate mutating func takeWaiting()
    -> [(CheckedContinuation<AppRuntime.Opened, any Error>, Result<AppRuntime.Opened, any Error>)]
  {
    let answer: Result<AppRuntime.Opened, any Error>
    if let opened {
      answer = .success(opened)
    } else if authorization.shown == .wiped {
      answer = .failure(AppRuntimeError(.notAuthorized, withdrawal: .wiped))
    } else {
      return []
    }
    defer { waiting = [:] }
    return waiting.values.map { ($0, answer) }
  }
}
