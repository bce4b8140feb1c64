import AppKinetics
import Foundation
import Locks
import SecureFiles
public import SodiumPrimitives

/// Activation, passwords and codes.
extension AppRuntime {
  // MARK: Activation

  /// Sets the app up for its user: makes the container, enrols at the broker, and authorizes. While an administrator has to approve
  /// the app, it waits for that, and the activation is `inProgress`.
  ///
  /// Throws `alreadyActivated`, `passwordRefused`, and `activationFailed` with the error beneath; then nothing is left of the
  /// container. Each failure is an event, too.
  public func activate(passphrase: consuming SecretBytes) async throws {
    try check(passphrase)
    await refreshManagement()
    guard state.withLock({ $0.begin() }) else { throw AppRuntimeError(.busy) }
    defer { endTrying() }
    let (allows, epoch, authorization) = state.withLock {
      ($0.authorization.allows(.activationBegan), $0.epoch, $0.authorization)
    }
    if authorization.takesKeys { throw AppRuntimeError(.notAuthorized, withdrawal: authorization.shown) }
    guard allows else { throw AppRuntimeError(.alreadyActivated) }
    apply(.activationBegan)
    let container: SecureContainer
    do {
      container = try await SecureContainer.create(
        at: url, passphrase: passphrase, options: options.container)
    } catch {
      throw fail(.provisioningFailed, error)
    }
    FailPoint.created.pass()
    do {
      try hold(container, epoch: epoch)
      try await requireKnownSerial(container)
      let services = try await AppServices(application, container: container, options: options.services)
      do {
        do { try await prepare(container, services) } catch {
          throw AppRuntimeError(.preparationFailed, cause: error)
        }
        try await enrol(services)
        FailPoint.enrolled.pass()
        await services.presenceKeyIsKept()
        try requireEpoch(epoch)
      } catch {
        // An id that is pinned for a container that is gone could be nobody's any more.
        if !isAbandoned { try? await services.leave() }
        await services.stop()
        throw error
      }
      try finishOpening(
        Opened(container: container, services: services), epoch: epoch, byPerson: true, isActivation: true)
    } catch {
      letGo(container)
      guard state.withLock({ $0.authorization.activation == .inProgress }) else { throw error }
      await discard(container)
      throw fail(Self.code(of: error), error)
    }
  }

  /// Throws `passwordRefused` for a new password that the rules refuse.
  private func check(_ password: borrowing SecretBytes) throws(AppRuntimeError) {
    if let breach = state.withLock({ $0.rules.breach(of: password) }) {
      throw AppRuntimeError(.passwordRefused, detail: "\(breach)")
    }
  }

  private func endTrying() { state.withLock { $0.trying = nil } }

  /// From now on a withdrawal seals this container, too. Throws `notAuthorized` when one came before.
  private func hold(_ container: SecureContainer, epoch: UInt64) throws(AppRuntimeError) {
    try state.withLock { state throws(AppRuntimeError) in
      try state.require(epoch)
      state.pending = container
      state.kept.container = container.store.id
    }
  }

  /// The opening has ended.
  private func letGo(_ container: SecureContainer) {
    state.withLock { state in
      if state.pending === container { state.pending = nil }
    }
  }

  /// Waits for an administrator's approval, too.
  private func enrol(_ services: AppServices) async throws {
    do {
      try await services.start()
    } catch ServicesError.approvalPending {
      try await services.start()
    }
  }

  private func discard(_ container: SecureContainer) async {
    let (url, id) = (url, container.store.id)
    do {
      try await BlockingCall.run {
        try container.close(.now, because: "the activation failed")
        if self.isAbandoned { return }
        // The next process finishes it.
        try self.keep { $0.kept.wiping = id }
        try Self.destroy(id, at: url.path)
        try self.keep { $0.kept.wiping = nil }
      }
    } catch {
      options.logger.error("the container cannot be removed yet", metadata: ["error": "\(error)"])
    }
  }

  private func fail(_ code: AuthorizationCode, _ error: any Error) -> AppRuntimeError {
    change { state in
      state.kept.container = nil
      return [.activationEnded(isComplete: false), .failed(code, inBackground: false)]
    }
    return AppRuntimeError(.activationFailed, cause: error)
  }

  private static func code(of error: any Error) -> AuthorizationCode {
    switch error {
    case let error as AppRuntimeError where error.code == .preparationFailed: .activationUnknown
    case ServicesError.brokerUnavailable: .noNetwork
    case ServicesError.certificateNotFound, ServicesError.notEnrolled, ServicesError.enterpriseUserNotMatch:
      .credentialsFailed
    case is ServicesError: .serverCommunicationFailed
    default: .activationUnknown
    }
  }

  // MARK: The password

  /// Answers the question for the password: opens the container, or ends the idle lock of one that is open.
  ///
  /// Throws `notActivated`, `notAuthorized` when something else is withdrawn, `notAsked`, `wrongPassword`, `tooManyAttempts`, `busy`,
  /// `openingFailed` with the container's error, `preparationFailed` with the app's, and `stateUnusable` when the attempt cannot be
  /// counted. Takes the time of a password hash, some 0.2 s.
  public func authorize(passphrase: consuming SecretBytes) async throws {
    await refreshManagement()
    let isOpen = try beginTrying(.password)
    defer { endTrying() }
    if isOpen {
      try await unlock(passphrase)
    } else {
      try await open(.passphrase(passphrase), byPerson: true)
    }
  }

  /// Whether ``authorizeAutonomously()`` may begin: nil, or the reason why not.
  public var autonomousObstacle: AutonomousObstacle? {
    state.withLock { state in
      if options.rawKey == nil { return .noKey }
      if state.authorization.activation != .activated { return .notActivated }
      if state.isInForeground { return .inForeground }
      if state.authorization.isAuthorized { return .authorized }
      if let withdrawal = state.authorization.keysTakenBy { return .withdrawn(withdrawal) }
      return state.trying == nil ? nil : .busy
    }
  }

  /// Opens the container in the background with the key of ``Options/rawKey``, without a person. Returns false, without an event,
  /// when ``autonomousObstacle`` says why not; otherwise the event is `backgroundAuthorized` or `backgroundNotAuthorized`.
  public func authorizeAutonomously() async -> Bool {
    await refreshManagement()
    guard autonomousObstacle == nil, let rawKey = options.rawKey, state.withLock({ $0.begin(.withoutPerson) })
    else {
      return false
    }
    defer { endTrying() }
    do {
      try await open(.rawKey(rawKey), byPerson: false)
    } catch {
      options.logger.notice("no authorization without a person", metadata: ["error": "\(error)"])
      if (error as? AppRuntimeError)?.code != .notAuthorized {
        apply(.failed(.securityError, inBackground: true))
      }
    }
    return true
  }

  /// Reserves the one place of a try. Returns whether the container is open already.
  private func beginTrying(_ question: Authorization.Question) throws -> Bool {
    let (isOpen, asks, shown, pause) = try state.withLock { state throws(AppRuntimeError) in
      // An app may be locked before it is activated.
      guard question != .password || state.authorization.activation == .activated else {
        throw AppRuntimeError(.notActivated)
      }
      let pause = state.pause(at: options.clock.now)
      let authorization = state.authorization
      if authorization.asks == question, pause == nil, !state.begin() { throw AppRuntimeError(.busy) }
      return (authorization.isAuthorized, authorization.asks, authorization.shown, pause)
    }
    guard asks == question else {
      guard let shown, !isOpen else { throw AppRuntimeError(.notAsked) }
      apply(.failed(shown.code, inBackground: false))
      throw AppRuntimeError(.notAuthorized, withdrawal: shown)
    }
    if let pause { throw AppRuntimeError(after: pause) }
    return isOpen
  }

  /// Before a hash: a kill while it is computed counts as a wrong one.
  private func countAttempt() throws {
    do {
      try keep { state in
        state.kept.attempts += 1
        state.kept.lastAttempt = state.kept.advance(to: options.clock.date)
      }
      FailPoint.counted.pass()
    } catch {
      takeAttemptBack()
      throw error
    }
  }

  /// It did not depend on the password.
  private func takeAttemptBack() {
    change { state in
      state.kept.attempts = max(0, state.kept.attempts - 1)
      return []
    }
  }

  /// A person typed a wrong password: beyond the limit an app with an unlock code is locked.
  private func noteWrongPassword() {
    let isOver = state.withLock { state in
      state.lastAttempt = options.clock.now
      guard let limit = state.rules.attempts, state.accepted?.unlockCode != nil else { return false }
      return state.kept.attempts >= limit
    }
    guard isOver else { return }
    change { state in
      state.kept.remoteLock = state.kept.remoteLock ?? .attempts
      return [.remotelyLocked]
    }
  }

  private func unlock(_ passphrase: consuming SecretBytes) async throws {
    let (opened, key, epoch) = state.withLock { ($0.opened, $0.kept.passwordKey, $0.epoch) }
    guard let opened else { throw AppRuntimeError(.notAuthorized) }
    // The slot may be gone: a tool has changed the keys.
    let known = (try? opened.container.store.keys().contains { $0.id == key }) ?? false
    let isRight: Bool
    let requiresNewPassword = requiresNewPassword(passphrase)
    do {
      try await BlockingCall.run { try self.countAttempt() }
      isRight = try await opened.container.holds(passphrase: passphrase, key: known ? key : nil)
    } catch let error as AppRuntimeError {
      throw error
    } catch {
      takeAttemptBack()
      throw AppRuntimeError(.openingFailed, cause: error)
    }
    guard isRight else {
      noteWrongPassword()
      throw AppRuntimeError(.wrongPassword)
    }
    let state = change { state in
      guard state.epoch == epoch else { return [] }
      state.noteAuthentication(at: options.clock)
      return [.authenticated(requiresNewPassword: requiresNewPassword)]
    }
    if !state.isAuthorized { throw AppRuntimeError(.notAuthorized, withdrawal: state.shown) }
  }

  /// The password rules may have changed since it was chosen, and it may be too old.
  private func requiresNewPassword(_ passphrase: borrowing SecretBytes) -> Bool {
    state.withLock { state in
      if state.rules.breach(of: passphrase) != nil { return true }
      guard let days = state.rules.maximumDays, let set = state.kept.passwordSet else { return false }
      return state.kept.advance(to: options.clock.date).timeIntervalSince(set) > Double(days) * 86_400
    }
  }

  private enum Key: ~Copyable {
    case passphrase(SecretBytes)
    /// Read where it may block.
    case rawKey(@Sendable () throws -> SecretBytes)
  }

  /// Outside of the order of the state: what it finds counts only when the keys were not taken meanwhile.
  private func open(_ key: consuming Key, byPerson: Bool) async throws {
    let epoch = state.withLock { $0.epoch }
    let hasCounted = Guarded(false)
    let container: SecureContainer
    var requiresNewPassword = false
    do {
      switch consume key {
      case .rawKey(let key):
        container = try await BlockingCall.run { [url, options] in
          try SecureContainer.open(at: url, rawKey: key(), options: options.container)
        }
      case .passphrase(let passphrase):
        requiresNewPassword = self.requiresNewPassword(passphrase)
        container = try await SecureContainer.open(
          at: url, passphrase: passphrase, options: options.container,
          beforeHash: { _ in
            // One attempt, on however many slots.
            guard !hasCounted.withLock({ $0 }) else { return }
            try self.countAttempt()
            hasCounted.withLock { $0 = true }
          }, afterHash: { try self.requireEpoch(epoch) })
      }
    } catch {
      let isWrong = (error as? ContainerError)?.code == .wrongKey
      if isWrong, byPerson {
        noteWrongPassword()
        throw AppRuntimeError(.wrongPassword)
      }
      if hasCounted.withLock({ $0 }) { takeAttemptBack() }
      if let error = error as? AppRuntimeError { throw error }
      if byPerson { apply(.failed(.securityError, inBackground: false)) }
      throw AppRuntimeError(.openingFailed, cause: error)
    }
    FailPoint.unsealed.pass()
    var made: AppServices?
    do {
      try hold(container, epoch: epoch)
      try await requireKnownSerial(container)
      let services = try await AppServices(application, container: container, options: options.services)
      made = services
      do { try await prepare(container, services) } catch {
        throw AppRuntimeError(.preparationFailed, cause: error)
      }
      FailPoint.prepared.pass()
      try requireEpoch(epoch)
      if requiresNewPassword || !authorization.withdrawals.isEmpty { try await services.setState(.locked) }
      await place.settle()
      do {
        try await services.start()
      } catch {
        // The app works without a broker, and the services go on trying.
        options.logger.notice("no broker", metadata: ["error": "\(error)"])
      }
      await services.presenceKeyIsKept()
      try finishOpening(
        Opened(container: container, services: services), epoch: epoch, byPerson: byPerson,
        requiresNewPassword: requiresNewPassword)
    } catch {
      await made?.stop()
      if let error = error as? AppRuntimeError, error.code == .notAuthorized {
        _ = try? container.close(.now, because: error.withdrawal?.code.message)
        letGo(container)
        throw error
      }
      do {
        try await container.close()
      } catch {
        options.logger.error("changes could not be stored", metadata: ["error": "\(error)"])
      }
      letGo(container)
      try requireEpoch(epoch)
      if byPerson { apply(.failed(.securityError, inBackground: false)) }
      throw error as? AppRuntimeError ?? AppRuntimeError(.openingFailed, cause: error)
    }
  }

  /// The app is authorized, unless something was withdrawn since the epoch.
  private func finishOpening(
    _ opened: Opened, epoch: UInt64, byPerson: Bool, isActivation: Bool = false,
    requiresNewPassword: Bool = false
  ) throws {
    let input = Authorization.Input.opened(byPerson: byPerson, requiresNewPassword: requiresNewPassword)
    // In one change, so that nobody sees an app that is activated and asks for the password that was just typed.
    let before: [Authorization.Input] = isActivation ? [.activationEnded(isComplete: true)] : []
    var isTaken = false
    let state = change { [options] state in
      var authorization = state.authorization
      for input in before { _ = authorization.apply(input) }
      guard state.epoch == epoch, !state.hasStopped, authorization.allows(input) else { return [] }
      isTaken = true
      (state.opened, state.pending) = (opened, nil)
      state.lastActivity = options.clock.now
      if byPerson {
        state.noteAuthentication(at: options.clock)
        state.kept.passwordKey = opened.container.store.openingKey
        state.kept.passwordSet = state.kept.passwordSet ?? state.kept.highest
        state.kept.activated = state.kept.activated ?? state.kept.highest
        state.kept.instance = state.kept.instance ?? UUID()
      }
      // A person came while no person was needed.
      return before + (!byPerson && state.isInForeground ? [input, .broughtToFront] : [input])
    }
    guard isTaken else {
      _ = try? opened.container.close(.now, because: state.shown?.code.message)
      if state.shown == .wiped || state.activation != .activated {
        place.leave(opened.services)
      } else {
        place.standIn(after: opened.services)
      }
      throw AppRuntimeError(.notAuthorized, withdrawal: state.shown)
    }
    followProviders(opened.services)
  }

  private func requireEpoch(_ epoch: UInt64) throws(AppRuntimeError) {
    try state.withLock { state throws(AppRuntimeError) in try state.require(epoch) }
  }

  // MARK: Other answers

  /// Answers the question for the unlock code, which ends a remote lock. The password follows. Throws as ``authorize(passphrase:)``
  /// does, and `wrongUnlockCode`.
  public func unlock(code: consuming SecretBytes) async throws {
    await refreshManagement()
    _ = try beginTrying(.unlockCode)
    defer { endTrying() }
    let (known, lock) = state.withLock { ($0.accepted?.unlockCode, $0.kept.remoteLock) }
    guard let hash = known else {
      throw AppRuntimeError(
        .notAuthorized, detail: "no management file with an unlock code is known", withdrawal: .remoteLock)
    }
    let code = Guarded(code)
    let isRight = try await BlockingCall.run {
      try self.countAttempt()
      return try code.withLock { try hash.isHash(of: $0) }
    }
    guard isRight else {
      state.withLock { $0.lastAttempt = options.clock.now }
      throw AppRuntimeError(.wrongUnlockCode)
    }
    let isEnded = Guarded(false)
    change { state in
      // An owner may have ordered another lock, with another code, meanwhile.
      guard state.accepted?.unlockCode == hash, state.kept.remoteLock == lock else { return [] }
      isEnded.withLock { $0 = true }
      state.kept.endRemoteLock()
      // The owner's code says that the state is as it should be.
      state.provenSerial = .max
      return [.unlockCodeAccepted]
    }
    await settle()
    if !isEnded.withLock({ $0 }) { throw AppRuntimeError(.wrongUnlockCode) }
  }

  /// Replaces the password. Answers the question for a new one. Throws `notAuthorized` unless the keys are open, `passwordRefused`
  /// with the rule that the new one breaks, `wrongPassword`, `tooManyAttempts`, `busy`, `openingFailed`.
  public func changePassword(_ old: consuming SecretBytes, to new: consuming SecretBytes) async throws {
    let opened = try opened()
    try check(new)
    try state.withLock { state throws(AppRuntimeError) in
      if let pause = state.pause(at: options.clock.now) { throw AppRuntimeError(after: pause) }
      guard state.begin() else { throw AppRuntimeError(.busy) }
    }
    defer { endTrying() }
    let passwords = Guarded(Passwords(old: old, new: new))
    let history = state.withLock { $0.rules.history }
    do {
      let failure = try await BlockingCall.run {
        try self.countAttempt()
        defer { FailPoint.replaced.pass() }
        return try passwords.withLock { try $0.replace(in: opened.container, history: history) }
      }
      if let failure {
        options.logger.error("the history of passwords cannot be written", metadata: ["error": "\(failure)"])
      }
    } catch let error as ContainerError where error.code == .wrongKey {
      noteWrongPassword()
      throw AppRuntimeError(.wrongPassword)
    } catch {
      takeAttemptBack()
      if let breach = error as? PasswordRules.Breach {
        throw AppRuntimeError(.passwordRefused, detail: "\(breach)")
      }
      if (error as? ContainerError)?.code == .invalidArgument {
        throw AppRuntimeError(.passwordRefused, cause: error)
      }
      throw error as? AppRuntimeError ?? AppRuntimeError(.openingFailed, cause: error)
    }
    change { [options] state in
      state.noteAuthentication(at: options.clock)
      state.kept.passwordSet = state.kept.highest
      state.kept.passwordKey = opened.container.store.openingKey
      return [.passwordChanged]
    }
    await settle()
  }
}

/// Why an app cannot be authorized without a person.
public enum AutonomousObstacle: Sendable, Hashable {
  /// The program has no raw key.
  case noKey
  /// The app was never set up.
  case notActivated
  /// A person looks at the app.
  case inForeground
  /// The keys are open.
  case authorized
  /// The keys were withdrawn.
  case withdrawn(Withdrawal)
  /// Another try is under way.
  case busy
}

extension AppRuntime.State {
  /// Throws `notAuthorized` for an opening that began in an earlier epoch, or is not wanted any more.
  func require(_ epoch: UInt64) throws(AppRuntimeError) {
    guard self.epoch == epoch, !hasStopped, !authorization.takesKeys else {
      throw AppRuntimeError(.notAuthorized, withdrawal: authorization.shown)
    }
  }

  /// Reserves the one try that may be under way. Returns false while another one is.
  mutating func begin(_ who: AppRuntime.Try = .byPerson) -> Bool {
    guard trying == nil, !hasStopped else { return false }
    trying = who
    return true
  }

  mutating func noteAuthentication(at clock: any AppClock) {
    kept.attempts = 0
    kept.lastAuthentication = kept.advance(to: clock.date)
    lastActivity = clock.now
  }

  /// How long the next try has to wait: 1 s after the last one that the rules allow, doubled up to 5 minutes. By the clock that only
  /// goes on, and from the begin of the process, so that neither a new start nor the wall clock shortens it.
  func pause(at now: Duration) -> Duration? {
    // A code is short, and always has a limit.
    let limit = rules.attempts ?? (authorization.isRemotelyLocked ? 5 : .max)
    guard kept.attempts >= limit else { return nil }
    let pause = Duration.seconds(min(1 << min(kept.attempts - limit, 9), 300))
    let rest = lastAttempt + pause - now
    return rest > .zero ? rest : nil
  }
}
