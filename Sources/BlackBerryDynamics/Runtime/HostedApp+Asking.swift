import AppKinetics
import AppRuntime
import Locks
import SodiumPrimitives

/// Questions to the person, in the place of the vendor's screens.
extension HostedApp {
  enum Asking {
    /// Nobody is asked, nor will be before the next `authorize`.
    case idle
    /// A person answers when something is asked.
    case attended
    /// A task asks now.
    case underWay
    /// The app was stopped: nobody is asked any more.
    case ended
  }

  /// A call of `authorize` while somebody is asked.
  enum Wanted {
    case no
    /// It is served by the answer to a question that a lock has asked, if there is one.
    case meanwhile
    /// It came after the outcome.
    case again
  }

  /// Begins to authorize the app, unless that is under way. The outcome is an event.
  func authorize() {
    let (begins, follows) = state.withLock { state in
      switch state.asking {
      case .ended: return (false, false)
      case .underWay:
        // The handler of an outcome may be faster than the task that has caused it; and of a lock, than the answer to its question.
        if state.isOutcomeTold { state.wanted = .again } else if state.isByLock { state.wanted = .meanwhile }
        return (false, false)
      case .idle, .attended:
        state.beginAsking(byLock: false)
        defer { state.isFollowing = true }
        return (true, !state.isFollowing)
      }
    }
    if !begins { return }
    Task.detached { [self] in
      let runtime: AppRuntime
      do { runtime = try await self.runtime() } catch {
        state.withLock { state in
          if state.asking == .underWay { state.asking = .idle }
          if follows { state.isFollowing = false }
        }
        return tellLater(.notAuthorized, .securityError, "\(error)")
      }
      if follows { follow(runtime) }
      tellAgain(runtime)
      await ask(runtime)
    }
  }

  /// Asks whatever there is to ask, and whenever the app is locked from now on.
  func attend(_ runtime: AppRuntime) {
    let (begins, follows) = state.withLock { state in
      guard state.asking == .idle else { return (false, false) }
      state.beginAsking(byLock: true)
      defer { state.isFollowing = true }
      return (true, !state.isFollowing)
    }
    if follows { follow(runtime) }
    if begins { Task.detached { await self.ask(runtime) } }
  }

  /// Asks for the old and a new password until they are accepted or nobody answers. Does nothing
  /// while another question is asked.
  @discardableResult
  func changePassword() -> Bool {
    let begun = state.withLock { state -> (runtime: AppRuntime, before: Asking)? in
      guard let runtime = state.runtime, [.idle, .attended].contains(state.asking),
        runtime.authorization.presentation == .app
      else { return nil }
      let before = state.asking
      state.beginAsking(byLock: false)
      // A call of `authorize` meanwhile is served afterwards.
      state.isOutcomeTold = true
      return (runtime, before)
    }
    guard let begun else { return false }
    Task.detached { [self] in
      await askForChange(begun.runtime)
      let isWantedAgain = state.withLock { state in
        if state.asking == .underWay { state.asking = begun.before }
        return state.wanted == .again
      }
      if isWantedAgain { return authorize() }
      // The app may have been locked meanwhile.
      if question(begun.runtime.authorization, after: nil) != nil, beginAgain() { await ask(begun.runtime) }
    }
    return true
  }

  private func askForChange(_ runtime: AppRuntime) async {
    var failure: AppRuntimeError?
    while !hasEnded, runtime.authorization.presentation == .app {
      if let pause = failure?.pause { try? await configuration.clock.sleep(for: pause) }
      let question = GDQuestion(kind: .passwordChange, message: "", failure: failure?.what)
      do {
        switch await configuration.answer(question) {
        case .none: return
        case .change(let old, let new): return try await runtime.changePassword(old, to: new)
        case .secret:
          failure = AppRuntimeError(.passwordRefused, detail: "the old and a new password are required")
        }
      } catch let error as AppRuntimeError
        where [.wrongPassword, .passwordRefused, .tooManyAttempts].contains(error.code)
      {
        failure = error
      } catch {
        return configuration.logger.error("the password was not changed", metadata: ["error": "\(error)"])
      }
    }
  }

  /// Asks whenever the app is locked from now on, until the runtime stops. The tasks that ask end
  /// with the answer that they wait for.
  private func follow(_ runtime: AppRuntime) {
    Task.detached { [self] in
      for await _ in runtime.authorizationChanges {
        configuration.callbackQueue.async { self.tellState() }
        // A person takes any time, and the state changes meanwhile.
        if question(runtime.authorization, after: nil) != nil, beginAgain() {
          Task.detached { await self.ask(runtime) }
        }
      }
    }
  }

  /// Opens the container without a person. Returns false, without an event, while such a try is under way.
  func authorizeAlone(_ runtime: AppRuntime) -> Bool {
    let begins = state.withLock { state in
      defer { state.isTryingAlone = true }
      return !state.isTryingAlone
    }
    guard begins else { return false }
    Task.detached { [self] in
      let hasTried = await runtime.authorizeAutonomously()
      let isInForeground = state.withLock { state in
        state.isTryingAlone = false
        return state.isInForeground
      }
      // Its owner, or a person, was faster.
      if !hasTried {
        tellLater(.backgroundNotAuthorized, .securityError, AuthorizationCode.securityError.message)
      }
      // It came to the front meanwhile.
      if isInForeground, question(runtime.authorization, after: nil) != nil { attend(runtime) }
    }
    return true
  }

  /// An app that needs no answer, or that no answer helps, hears how it is when this is told.
  private func tellAgain(_ runtime: AppRuntime) {
    configuration.callbackQueue.async { [self] in
      let authorization = runtime.authorization
      if question(authorization, after: nil) != nil { return }
      if let shown = authorization.shown {
        tell(.notAuthorized, shown.code, shown.message, isWithdrawal: true)
      } else if authorization.isAuthorized {
        tell(.authorized, .none, AuthorizationCode.none.message)
      }
    }
  }

  /// Asks until nothing is asked any more, nobody answers, or the app cannot be opened.
  private func ask(_ runtime: AppRuntime) async {
    var isAttended: Bool
    repeat {
      isAttended = await askOnce(runtime)
      while endAsking(isAttended) {
        tellAgain(runtime)
        isAttended = await askOnce(runtime)
      }
      // A lock in this moment found a task that was asking.
    } while isAttended && question(runtime.authorization, after: nil) != nil && beginAgain()
  }

  /// Returns false when nobody answers, or no answer helps.
  private func askOnce(_ runtime: AppRuntime) async -> Bool {
    var failure: AppRuntimeError?
    while true {
      if let pause = failure?.pause { try? await configuration.clock.sleep(for: pause) }
      let authorization = runtime.authorization
      guard !hasEnded, let question = question(authorization, after: failure) else { return true }
      do {
        guard try await attempt(question, runtime) else { return false }
        failure = nil
      } catch let error as AppRuntimeError where asksAgain(after: error, question, runtime) {
        failure = error
      } catch {
        configuration.logger.error("the app is not authorized", metadata: ["error": "\(error)"])
        let isTold = (error as? AppRuntimeError)?.code.isTold(whileOpen: authorization.isAuthorized) ?? false
        if !hasEnded, !isTold { tellLater(.notAuthorized, .securityError, "\(error)") }
        return false
      }
    }
  }

  private func asksAgain(after error: AppRuntimeError, _ question: GDQuestion, _ runtime: AppRuntime) -> Bool
  {
    switch error.code {
    case .wrongPassword, .wrongUnlockCode, .passwordRefused, .tooManyAttempts: true
    // The state has changed meanwhile. If it has not, no answer helps.
    case .notAuthorized, .notAsked, .notActivated, .alreadyActivated:
      self.question(runtime.authorization, after: nil)?.kind != question.kind
    case .managementRefused, .stateUnusable, .alreadyRunning, .activationFailed, .openingFailed,
      .preparationFailed, .busy:
      false
    }
  }

  /// Returns true when the app wants to be authorized again, and asking goes on.
  private func endAsking(_ isAttended: Bool) -> Bool {
    state.withLock { state in
      guard state.asking == .underWay else { return false }
      guard state.wanted == .again || state.wanted == .meanwhile && !isAttended else {
        state.asking = isAttended ? .attended : .idle
        return false
      }
      state.beginAsking(byLock: false)
      return true
    }
  }

  private var hasEnded: Bool { state.withLock { $0.asking == .ended } }

  private func beginAgain() -> Bool {
    state.withLock { state in
      guard state.asking == .attended else { return false }
      state.beginAsking(byLock: true)
      return true
    }
  }

  /// Asks one question. Returns false when nobody answers.
  private func attempt(_ question: GDQuestion, _ runtime: AppRuntime) async throws -> Bool {
    switch await configuration.answer(question) {
    case .none:
      if question.kind == .firstPassword {
        tellLater(.notAuthorized, .provisioningFailed, AuthorizationCode.provisioningFailed.message)
      } else if let shown = runtime.authorization.shown, !runtime.authorization.isAuthorized {
        tellLater(.notAuthorized, shown.code, shown.message, isWithdrawal: true)
      } else if !runtime.authorization.isAuthorized {
        tellLater(.notAuthorized, .securityError, AuthorizationCode.securityError.message)
      }
      return false
    case .change(let old, let new): try await runtime.changePassword(old, to: new)
    case .secret(let secret):
      switch question.kind {
      case .firstPassword: try await runtime.activate(passphrase: secret)
      case .password: try await runtime.authorize(passphrase: secret)
      case .unlockCode: try await runtime.unlock(code: secret)
      case .passwordChange:
        throw AppRuntimeError(.passwordRefused, detail: "the old and a new password are required")
      }
    }
    return true
  }

  /// The next question; nil when there is none.
  private func question(
    _ authorization: Authorization, after failure: AppRuntimeError?
  ) -> GDQuestion? {
    let kind: GDQuestion.Kind
    switch authorization.asks {
    case .nothing: return nil
    case .unlockCode: kind = .unlockCode
    case .newPassword: kind = .passwordChange
    case .password:
      switch authorization.activation {
      case .notActivated: kind = .firstPassword
      case .inProgress: return nil
      case .activated: kind = .password
      }
    }
    return GDQuestion(kind: kind, message: authorization.message, failure: failure?.what)
  }
}

extension AppRuntimeError.Code {
  /// The runtime has sent an event about it, or will: of the attempt that keeps it busy. About the check of a password of a container that is
  /// open it sends none.
  fileprivate func isTold(whileOpen isOpen: Bool) -> Bool {
    switch self {
    case .activationFailed, .preparationFailed, .busy: true
    case .openingFailed: !isOpen
    default: false
    }
  }
}
