import Foundation

/// The reason why the runtime refused something. The description says what failed and what to do; it never holds a
/// password, and no name from inside a container.
public struct AppRuntimeError: Error, Sendable, CustomStringConvertible {
  /// A kind of failure. Each has two texts.
  public enum Code: String, Sendable, CaseIterable {
    case managementRefused, stateUnusable, alreadyRunning
    case notAuthorized, notActivated, alreadyActivated, activationFailed, openingFailed, preparationFailed
    case wrongPassword, wrongUnlockCode, passwordRefused, tooManyAttempts, busy, notAsked
  }

  /// The kind of failure.
  public let code: Code
  /// The member of a management file, or the path of a file.
  public let path: String?
  /// Names the value that was found and the one that was expected.
  public let detail: String?
  /// The error beneath.
  public let cause: (any Error)?
  /// Why the app is not authorized; nil when nothing is withdrawn, and with another code.
  public let withdrawal: Withdrawal?
  /// With `tooManyAttempts`: the time until the next attempt is possible.
  public let pause: Duration?

  /// Makes an error. None of its parts may hold a password.
  public init(
    _ code: Code, path: String? = nil, detail: String? = nil, cause: (any Error)? = nil,
    withdrawal: Withdrawal? = nil, pause: Duration? = nil
  ) {
    (self.code, self.path, self.detail, self.cause) = (code, path, detail, cause)
    (self.withdrawal, self.pause) = (withdrawal, pause)
  }

  /// Explains the failure: by the detail, the error beneath, or the withdrawal.
  public var reason: String? { detail ?? cause.map { "\($0)" } ?? withdrawal?.code.message }

  /// Says what failed, with its circumstances.
  public var what: String { ([code.what] + [path, reason].compactMap(\.self)).joined(separator: ": ") }

  /// Says what to do.
  public var remedy: String {
    switch code {
    case .managementRefused:
      "the accepted file still holds; correct this one, and check it with `dynamics manage`"
    case .stateUnusable: "check the directory beside the container, its owner and its permissions"
    case .alreadyRunning: "use that process, or end it"
    case .notAuthorized where withdrawal == .wiped: "start the app again, which activates it anew"
    case .notAuthorized: "see what the runtime asks for"
    case .notActivated: "call activate first"
    case .alreadyActivated: "call authorize"
    case .activationFailed: "see the error beneath, and try again"
    case .openingFailed: "see the error beneath"
    case .preparationFailed: "see the error that the app's own code has thrown"
    case .wrongPassword, .wrongUnlockCode: "try again"
    case .passwordRefused: "choose another password"
    case .tooManyAttempts: "wait, and try again"
    case .busy: "wait until that is done"
    case .notAsked: "see what the runtime asks for"
    }
  }

  /// Says what failed and what to do.
  public var description: String { what + "; " + remedy }
}

extension AppRuntimeError {
  init(after pause: Duration) {
    let seconds = pause.formatted(.units(allowed: [.minutes, .seconds], fractionalPart: .hide(rounded: .up)))
    self.init(.tooManyAttempts, detail: "the next one is possible in \(seconds)", pause: pause)
  }
}

extension AppRuntimeError.Code {
  /// Says what failed, without its circumstances.
  public var what: String {
    switch self {
    case .managementRefused: "the management file was refused"
    case .stateUnusable: "the state of the runtime cannot be read or written"
    case .alreadyRunning: "another process of this app runs"
    case .notAuthorized: "the app is not authorized"
    case .notActivated: "the app is not activated"
    case .alreadyActivated: "the app is activated already"
    case .activationFailed: "the app cannot be activated"
    case .openingFailed: "the container cannot be opened"
    case .preparationFailed: "the app could not be set up after its container was opened"
    case .wrongPassword: "the password is wrong"
    case .wrongUnlockCode: "the unlock code is wrong"
    case .passwordRefused: "the password rules refuse the new password"
    case .tooManyAttempts: "there were too many wrong passwords or codes"
    case .busy: "a password or a code is being checked"
    case .notAsked: "that is not what the runtime asks for"
    }
  }
}
