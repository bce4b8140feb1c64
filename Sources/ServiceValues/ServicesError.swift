/// Why a request, a reply or a registration did not come about: an error of the runtime, not of the other app (``ServiceReplyError``).
///
/// Match with `catch ServicesError.notAllowed`. The description says what failed and what to do; it may hold the path of a
/// parameter and never holds a value.
public struct ServicesError: Error, Sendable, Hashable {
  public let code: Code
  /// Where: in params (`params.to[3]`), a definition (`definition.methods.open.params.type`), or the path of an attachment.
  public let path: String?
  /// What was seen and what was expected, or the name of the limit.
  public let detail: String?

  public init(_ code: Code, path: String? = nil, detail: String? = nil) {
    self.code = code
    self.path = path
    self.detail = detail
  }

  /// A number and a name that never change: they cross between processes. Those of a later version are codes, too, without texts of their own.
  public struct Code: RawRepresentable, Hashable, Sendable {
    public let rawValue: Int32

    public init(rawValue: Int32) { self.rawValue = rawValue }

    /// By its name in SERVICE-PROTOCOL.md; nil for a name that this version does not know.
    public init?(name: String) {
      guard let known = Known.allCases.first(where: { "\($0)" == name }) else { return nil }
      self.init(known)
    }

    init(_ known: Known) { rawValue = known.rawValue }

    /// All that this version knows, by number.
    public static var known: [Code] { Known.allCases.map { Code($0) } }

    /// The table "Errors" of SERVICE-PROTOCOL.md, as far as it may reach an app.
    enum Known: Int32, CaseIterable {
      case general = 1
      case processSuspended, applicationNotFound, serviceNotFound, versionNotFound, methodNotFound, notAllowed
      case invalidParams, certificateNotFound, methodDisabled, versionDisabled, serviceDisabled
      case enterpriseUserNotMatch, cancelled, attachmentNotFound, limitExceeded, brokerUnavailable
      case connectionLost, timedOut, notInFront, frontRefused, noSpace, sourceDamaged, invalidRegistration
      case numberTaken, peerKeyChanged, approvalPending
    }
  }
}

extension ServicesError {
  public static let general = Code(.general)
  public static let processSuspended = Code(.processSuspended)
  public static let applicationNotFound = Code(.applicationNotFound)
  public static let serviceNotFound = Code(.serviceNotFound)
  public static let versionNotFound = Code(.versionNotFound)
  public static let methodNotFound = Code(.methodNotFound)
  public static let notAllowed = Code(.notAllowed)
  public static let invalidParams = Code(.invalidParams)
  public static let certificateNotFound = Code(.certificateNotFound)
  public static let methodDisabled = Code(.methodDisabled)
  public static let versionDisabled = Code(.versionDisabled)
  public static let serviceDisabled = Code(.serviceDisabled)
  public static let enterpriseUserNotMatch = Code(.enterpriseUserNotMatch)
  public static let cancelled = Code(.cancelled)
  public static let attachmentNotFound = Code(.attachmentNotFound)
  public static let limitExceeded = Code(.limitExceeded)
  public static let brokerUnavailable = Code(.brokerUnavailable)
  public static let connectionLost = Code(.connectionLost)
  public static let timedOut = Code(.timedOut)
  public static let notInFront = Code(.notInFront)
  public static let frontRefused = Code(.frontRefused)
  public static let noSpace = Code(.noSpace)
  public static let sourceDamaged = Code(.sourceDamaged)
  public static let invalidRegistration = Code(.invalidRegistration)
  public static let numberTaken = Code(.numberTaken)
  public static let peerKeyChanged = Code(.peerKeyChanged)
  public static let approvalPending = Code(.approvalPending)
}

extension ServicesError.Code {
  public static let general = ServicesError.general
  public static let processSuspended = ServicesError.processSuspended
  public static let applicationNotFound = ServicesError.applicationNotFound
  public static let serviceNotFound = ServicesError.serviceNotFound
  public static let versionNotFound = ServicesError.versionNotFound
  public static let methodNotFound = ServicesError.methodNotFound
  public static let notAllowed = ServicesError.notAllowed
  public static let invalidParams = ServicesError.invalidParams
  public static let certificateNotFound = ServicesError.certificateNotFound
  public static let methodDisabled = ServicesError.methodDisabled
  public static let versionDisabled = ServicesError.versionDisabled
  public static let serviceDisabled = ServicesError.serviceDisabled
  public static let enterpriseUserNotMatch = ServicesError.enterpriseUserNotMatch
  public static let cancelled = ServicesError.cancelled
  public static let attachmentNotFound = ServicesError.attachmentNotFound
  public static let limitExceeded = ServicesError.limitExceeded
  public static let brokerUnavailable = ServicesError.brokerUnavailable
  public static let connectionLost = ServicesError.connectionLost
  public static let timedOut = ServicesError.timedOut
  public static let notInFront = ServicesError.notInFront
  public static let frontRefused = ServicesError.frontRefused
  public static let noSpace = ServicesError.noSpace
  public static let sourceDamaged = ServicesError.sourceDamaged
  public static let invalidRegistration = ServicesError.invalidRegistration
  public static let numberTaken = ServicesError.numberTaken
  public static let peerKeyChanged = ServicesError.peerKeyChanged
  public static let approvalPending = ServicesError.approvalPending
}

extension ServicesError: CustomStringConvertible {
  public var description: String {
    let what = [code.what, path, detail].compactMap(\.self).joined(separator: ": ")
    return what + "; " + code.remedy
  }
}

extension ServicesError.Code: CustomStringConvertible {
  public static func ~= (code: ServicesError.Code, error: any Error) -> Bool {
    (error as? ServicesError)?.code == code
  }

  /// As SERVICE-PROTOCOL.md has it; `error 57` for a number that this version does not know.
  public var name: String { Known(rawValue: rawValue).map { "\($0)" } ?? "error \(rawValue)" }
  public var description: String { name }

  /// What failed.
  public var what: String {
    guard let known = Known(rawValue: rawValue) else {
      return "it failed with error \(rawValue), which this version does not know"
    }
    return switch known {
    case .general: "the request could not be handled"
    case .processSuspended: "the other app is suspended"
    case .applicationNotFound: "there is no app with that id, or it does not start"
    case .serviceNotFound: "the app does not offer this service"
    case .versionNotFound: "the app does not offer this version of the service"
    case .methodNotFound: "the service has no such method"
    case .notAllowed: "the other app may not be called, or was not unlocked in time"
    case .invalidParams: "a value does not follow the rules for parameters, or the service's definition"
    case .certificateNotFound: "the other side did not prove the key that was enrolled for it"
    case .methodDisabled: "the method is switched off at the moment"
    case .versionDisabled: "this version of the service is switched off at the moment"
    case .serviceDisabled: "the service is switched off at the moment"
    case .enterpriseUserNotMatch: "the other app was activated for another user"
    case .cancelled: "the request was cancelled"
    case .attachmentNotFound: "an attachment is missing, or is no file"
    case .limitExceeded: "a limit was exceeded"
    case .brokerUnavailable: "no broker answers"
    case .connectionLost: "the connection was lost before the outcome was known"
    case .timedOut: "the other side did not answer in time"
    case .notInFront: "only the app in front can bring another one to front"
    case .frontRefused: "the app could not be brought to front"
    case .noSpace: "the receiver has no space left"
    case .sourceDamaged: "an attachment cannot be read where it comes from"
    case .invalidRegistration: "a registration or a service's definition is not right"
    case .numberTaken:
      "the receiver knows another message under its number, also after the sender drew a new one"
    case .peerKeyChanged: "one of the two apps has another key than the one that the other one trusts"
    case .approvalPending: "the broker has not taken this app yet"
    }
  }

  /// What to do.
  public var remedy: String {
    guard let known = Known(rawValue: rawValue) else { return "update OpenDynamics on this side" }
    return switch known {
    case .general: "look at what both apps have logged"
    case .processSuspended: "bring it to front, or send the request again later"
    case .applicationNotFound: "ask the broker who offers the service, and check the id"
    case .serviceNotFound, .versionNotFound: "ask the broker who offers it"
    case .methodNotFound: "see the service's definition for its methods"
    case .notAllowed: "unlock the other app, or have an administrator look at the policy"
    case .invalidParams: "change the value at that path"
    case .certificateNotFound:
      "check that both apps are enrolled with this broker, and compare the fingerprints of their keys"
    case .methodDisabled, .versionDisabled, .serviceDisabled:
      "try again later, or have an administrator look at the policy"
    case .enterpriseUserNotMatch: "activate both apps for one user"
    case .cancelled: "send it again when it is still wanted"
    case .attachmentNotFound: "name files that are in the sender's container; nothing was sent"
    case .limitExceeded: "send less at once, or have that limit raised"
    case .brokerUnavailable: "start the broker, or name its socket in OPENDYNAMICS_BROKER"
    case .connectionLost: "the request may have been carried out: check before it is sent again"
    case .timedOut: "check that the other app runs and is not stuck, then try again"
    case .notInFront: "ask for it while this app is in front, or send a front request to the app that is"
    case .frontRefused: "have the user switch to the app"
    case .noSpace: "free some space at the receiver, then send it again"
    case .sourceDamaged: "verify the sender's container, and restore the file from a backup"
    case .invalidRegistration: "change what stands at that path, and register again"
    case .numberTaken: "send it again; if that does not help, have the receiver's app looked at"
    case .approvalPending: "have its key approved: dynamics apps list, dynamics apps approve"
    case .peerKeyChanged:
      "if the app has a new container, compare fingerprints and trust its new key (dynamics peers trust); else somebody has taken its place"
    }
  }
}
