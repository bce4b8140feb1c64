/// A change of an app's authorization. The state was set before the event was sent.
public struct AuthorizationEvent: Sendable, Hashable {
  /// The raw values are those of the BlackBerry Dynamics runtime; 5 is not used.
  public enum Kind: Int, Sendable, Hashable, CaseIterable {
    /// The app may be used. Sent after each unlock, too.
    case authorized = 0
    /// The app may not be shown any more, or an attempt has failed.
    case notAuthorized = 1
    /// The configuration changed.
    case settingsUpdate = 2
    /// The providers of services changed.
    case servicesUpdate = 3
    /// The app policy changed.
    case policyUpdate = 4
    /// The entitlements changed.
    case entitlementsUpdate = 6
    /// The keys were opened in the background, without a person.
    case backgroundAuthorized = 7
    /// Opening the keys in the background failed, or was withdrawn.
    case backgroundNotAuthorized = 8
  }

  /// What happened.
  public let kind: Kind
  /// The reason, `none` unless the kind is `notAuthorized` or `backgroundNotAuthorized`.
  public let code: AuthorizationCode
  /// The withdrawal that is shown; nil when nothing is withdrawn, and for a failed attempt.
  public let withdrawal: Withdrawal?

  /// Describes an event.
  public init(_ kind: Kind, code: AuthorizationCode = .none, withdrawal: Withdrawal? = nil) {
    (self.kind, self.code, self.withdrawal) = (kind, code, withdrawal)
  }

  /// A sentence for a person.
  public var message: String { withdrawal?.message ?? code.message }
}

/// Why an app is not authorized. The raw values are those of the BlackBerry Dynamics runtime.
public enum AuthorizationCode: Int, Sendable, Hashable, CaseIterable {
  case none = 0
  /// The container could not be opened.
  case securityError = -100
  /// The app could not be activated at the broker.
  case activationFailed = -101
  /// The app could not be activated for this user.
  case provisioningFailed = -102
  /// Push is not available.
  case pushConnectionTimeout = -103
  /// The user is not entitled to the app.
  case notEntitled = -104
  /// The user is not entitled to this version of the app.
  case versionNotEntitled = -105
  /// Nobody used the app for a while.
  case idleLockout = -300
  /// The owner or the app itself blocked the app.
  case blocked = -301
  /// The container was destroyed.
  case wiped = -302
  /// The unlock code is required.
  case remoteLockout = -303
  /// A new password is required.
  case passwordChangeRequired = -304
  /// Activation by the program failed for another reason.
  case activationUnknown = -600
  /// There is no network, or no broker.
  case noNetwork = -601
  /// The credentials were refused.
  case credentialsFailed = -602
  /// The broker's answer was an error.
  case serverCommunicationFailed = -603
  /// The program is not the one that was installed.
  case integrityFailed = -606

  /// A sentence for a person.
  public var message: String {
    switch self {
    case .none: "The app is authorized."
    case .securityError: "The app's data could not be opened."
    case .activationFailed, .provisioningFailed, .activationUnknown: "The app could not be activated."
    case .pushConnectionTimeout: "Push messages are not available."
    case .notEntitled: "You are not entitled to this app."
    case .versionNotEntitled: "You are not entitled to this version of the app."
    case .idleLockout: "The app is locked. Type your password."
    case .blocked: "The app is blocked."
    case .wiped: "The app's data was removed. Start the app again to activate it anew."
    case .remoteLockout: "The app is locked. Ask for the unlock code."
    case .passwordChangeRequired: "Choose a new password."
    case .noNetwork: "The broker cannot be reached."
    case .credentialsFailed: "The password or the key is wrong."
    case .serverCommunicationFailed: "The broker refused the app."
    case .integrityFailed: "The program was changed."
    }
  }
}
