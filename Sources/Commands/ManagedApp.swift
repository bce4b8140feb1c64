import AppKinetics
import AppRuntime
import ContainerStore
import Foundation
import LauncherPage
import Locks
import SecureFiles
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// An app whose runtime decides when its container is open. It asks a person for what it needs: on the terminal, or line by line on
/// standard input.
struct ManagedApp: Sendable {
  let application: Application
  let url: URL
  let options: AppRuntime.Options
  let hasLauncher: Bool
  let report: EventReport
  let prepare: AppRuntime.Preparation

  private enum Step: Sendable {
    /// The runtime's state is another one.
    case changed
    case answered(Answer)
    /// Nobody answers any more.
    case silent
  }

  /// Runs until the task is cancelled. The first secret is the answer to the first question, or the key that needs no person.
  func run(_ given: Guarded<Answer?>) async throws {
    var first = given.withLock { $0.take() }
    let (steps, step) = AsyncStream.makeStream(of: Step.self)
    var options = options
    let isKey = first?.kind == .rawKey
    if isKey, let key = first { options.rawKey = { try key.copy() } }
    // Whoever opened the container without a person has to ask one who comes.
    let running = Guarded<AppRuntime?>(nil)
    defer { running.withLock { $0 = nil } }
    let runtime = try await AppRuntime(
      application, containerAt: url, options: options,
      prepare: { [prepare, report] container, services in
        try await prepare(container, services)
        let frontChanges = services.frontChanges
        Task {
          for await isInFront in frontChanges {
            report.write(AppEvent(isInFront ? "in front" : "not in front"))
            if isKey { running.withLock { $0 }?.setForeground(isInFront) }
          }
        }
      },
      events: { [report] event, _ in report.write(Self.event(event)) })
    running.withLock { $0 = runtime }
    var page: LauncherPage?
    do {
      if hasLauncher {
        page = try await LauncherPage(of: runtime)
        report.write(AppEvent("launcher", path: page?.link.path))
      }
      // What is withdrawn at the start is no event.
      if let shown = runtime.authorization.shown {
        report.write(AppEvent("not authorized", reason: "\(shown.code)", detail: Self.notice(shown)))
      }
      // A password is not kept.
      try await begin(runtime, first.take(), isKey: isKey)
      // Ends with the runtime.
      Task {
        var asked = Authorization.Question.nothing
        for await state in runtime.authorizationChanges {
          if state.asks != asked, state.asks != .nothing { report.write(Self.question(state.asks)) }
          asked = state.asks
          step.yield(.changed)
        }
      }
      try await follow(runtime, steps, step)
    } catch {
      await page?.stop()
      await runtime.stop()
      throw error
    }
    await page?.stop()
    await runtime.stop()
  }

  private func begin(_ runtime: AppRuntime, _ password: Answer?, isKey: Bool) async throws {
    guard isKey else {
      guard let password, runtime.authorization.asks == .password else { return }
      return try await runtime.authorize(passphrase: password.copy())
    }
    runtime.setForeground(false)
    guard await runtime.authorizeAutonomously() else {
      throw AppRuntimeError(.notAuthorized, withdrawal: runtime.authorization.shown)
    }
  }

  private func follow(
    _ runtime: AppRuntime, _ steps: AsyncStream<Step>, _ step: AsyncStream<Step>.Continuation
  ) async throws {
    let answers = AnswerReader { step.yield($0.map { .answered($0) } ?? .silent) }
    var isAsking = false
    for await next in steps {
      switch next {
      case .changed: break
      case .silent where AnswerReader.isTerminal: isAsking = false
      case .silent: continue
      case .answered(let answer):
        isAsking = false
        await take(answer, runtime)
      }
      if let shown = runtime.authorization.shown, shown == .wiped {
        throw AppRuntimeError(.notAuthorized, withdrawal: shown)
      }
      let asks = runtime.authorization.asks
      guard !isAsking, asks != .nothing else { continue }
      isAsking = true
      answers.ask(asks)
    }
  }

  private func take(_ answer: Answer, _ runtime: AppRuntime) async {
    do {
      switch runtime.authorization.asks {
      case .nothing: return
      case .unlockCode: try await runtime.unlock(code: answer.copy())
      case .password: try await runtime.authorize(passphrase: answer.copy())
      case .newPassword:
        // It may have been typed for another question.
        guard let new = answer.next else { break }
        try await runtime.changePassword(answer.copy(), to: new.copy())
      }
    } catch {
      let code = (error as? AppRuntimeError)?.code
      report.write(
        AppEvent(
          "refused", reason: code.map { "\($0)" } ?? "\(error)", detail: (error as? AppRuntimeError)?.detail))
    }
  }

  private static func event(_ event: AuthorizationEvent) -> AppEvent {
    switch event.kind {
    case .authorized, .backgroundAuthorized: AppEvent("authorized")
    case .notAuthorized, .backgroundNotAuthorized:
      AppEvent("not authorized", reason: "\(event.code)", detail: event.withdrawal.flatMap(notice))
    case .settingsUpdate: AppEvent("new settings")
    case .servicesUpdate: AppEvent("new services")
    case .policyUpdate: AppEvent("new policy")
    case .entitlementsUpdate: AppEvent("new entitlements")
    }
  }

  /// What whoever blocked the app says.
  private static func notice(_ withdrawal: Withdrawal) -> String? {
    withdrawal.message == withdrawal.code.message ? nil : withdrawal.message
  }

  private static func question(_ question: Authorization.Question) -> AppEvent {
    switch question {
    case .nothing: AppEvent("asks for nothing")
    case .unlockCode: AppEvent("asks for the unlock code")
    case .password: AppEvent("asks for the password")
    case .newPassword: AppEvent("asks for the password and a new one")
    }
  }
}

/// A secret that a person has typed, and perhaps another one behind it.
final class Answer: Sendable {
  let kind: Credential.Kind
  private let bytes: SecretBytes
  let next: Answer?

  init(_ secret: consuming Secret, next: Answer? = nil) throws {
    kind = secret.kind
    bytes = try secret.bytes.copy()
    self.next = next
  }

  func copy() throws -> SecretBytes { try bytes.copy() }
}

/// Reads answers on a thread of its own, one for each question.
private final class AnswerReader: Sendable {
  private let next = DispatchSemaphore(value: 0)
  private let asked = Guarded<Authorization.Question?>(nil)

  init(_ answered: @escaping @Sendable (Answer?) -> Void) {
    Thread.detachNewThread { [next, asked] in
      while true {
        next.wait()
        guard let question = asked.withLock({ $0.take() }) else { continue }
        answered(try? Self.read(question))
      }
    }
  }

  func ask(_ question: Authorization.Question) {
    asked.withLock { $0 = question }
    next.signal()
  }

  /// Nobody who types an empty line is gone.
  static var isTerminal: Bool { isatty(STDIN_FILENO) == 1 }

  private static func read(_ question: Authorization.Question) throws -> Answer {
    switch question {
    case .unlockCode: try Answer(line("Unlock code"))
    case .newPassword:
      try Answer(line("Password"), next: Answer(line("New password")))
    case .password, .nothing: try Answer(line("Password"))
    }
  }

  /// From the terminal when standard input is one, else the next line of standard input.
  private static func line(_ prompt: String) throws -> Secret {
    if isTerminal, let secret = try SecretInput.terminal(prompt, twice: false) { return secret }
    return try SecretInput.passphraseFile("/dev/stdin")
  }
}
