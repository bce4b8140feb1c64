/// The reason why a request, a reply or a registration failed: an error of the runtime, not of the other app (``ServiceReplyError``).
///
/// Match with `catch ServicesError.notAllowed`. The description says what failed and what to do; it may hold the path of a
/// parameter and never holds a value.
public struct ServicesError: Error, Sendable, Hashable {
  /// What failed, as a number that means the same in every version.
  public let code: Code
  /// The location of what is wrong: in params (`params.to[3]`), a definition (`definition.methods.open.params.type`), or the path of an attachment.
  public let path: String?
  /// What was seen and what was expected, or the name of the limit.
  public let detail: String?

  /// Makes an error. Neither `path` nor `detail` may hold a value, a key or plaintext, because both are
  /// printed.
  public init(_ code: Code, path: String? = nil, detail: String? = nil) {
    self.code = code
    self.path = path
    self.detail = detail
  }

  /// A number and a name that never change: they cross between processes. Those of a later version are codes, too, without texts of their own.
  public struct Code: RawRepresentable, Hashable, Sendable {
    /// The number in CHANNEL-PROTOCOL.md.
    public let rawValue: Int32

    /// The code of that number, also when this version does not know it.
    public init(rawValue: Int32) { self.rawValue = rawValue }

    /// The code of that name in CHANNEL-PROTOCOL.md; nil for a name that this version does not know.
    public init?(name: String) {
      guard let known = Known.allCases.first(where: { "\($0)" == name }) else { return nil }
      self.init(known)
    }

    init(_ known: Known) { rawValue = known.rawValue }

    /// All codes that this version knows, by number.
    public static var known: [Code] { Known.allCases.map { Code($0) } }

    /// The table "Errors" of CHANNEL-PROTOCOL.md, as far as it may reach an app.
    enum Known: Int32, CaseIterable {
      case general = 1
      case processSuspended, applicationNotFound, serviceNotFound, versionNotFound, methodNotFound, notAllowed
      case invalidParams, certificateNotFound, methodDisabled, versionDisabled, serviceDisabled
      case enterpriseUserNotMatch, cancelled, attachmentNotFound, limitExceeded, brokerUnavailable
      case connectionLost, timedOut, notInFront, frontRefused, noSpace, sourceDamaged, invalidRegistration
      case numberTaken, peerKeyChanged, approvalPending, placeTaken, notEnrolled
    }
  }
}

extension ServicesError {
  /// The request could not be handled, and no other code fits.
  public static let general = Code(.general)
  /// The other app is suspended.
  public static let processSuspended = Code(.processSuspended)
  /// No app with that id is registered, or it does not start.
  public static let applicationNotFound = Code(.applicationNotFound)
  /// The app does not offer the service.
  public static let serviceNotFound = Code(.serviceNotFound)
  /// The app offers the service, and not in this version.
  public static let versionNotFound = Code(.versionNotFound)
  /// The service has no method of that name.
  public static let methodNotFound = Code(.methodNotFound)
  /// Policy refuses the request, or the other app was not unlocked in time.
  public static let notAllowed = Code(.notAllowed)
  /// A value breaks a rule for parameters, a limit or the definition; ``path`` names it.
  public static let invalidParams = Code(.invalidParams)
  /// The other side did not prove the key that it is known by, or an own key cannot be read.
  public static let certificateNotFound = Code(.certificateNotFound)
  /// The method exists and is switched off at the moment.
  public static let methodDisabled = Code(.methodDisabled)
  /// This version of the service is switched off at the moment.
  public static let versionDisabled = Code(.versionDisabled)
  /// The service is switched off at the moment.
  public static let serviceDisabled = Code(.serviceDisabled)
  /// The other app was activated for another user.
  public static let enterpriseUserNotMatch = Code(.enterpriseUserNotMatch)
  /// One of the two sides cancelled the request.
  public static let cancelled = Code(.cancelled)
  /// An attachment is missing or is no file; ``path`` names it, and nothing was sent.
  public static let attachmentNotFound = Code(.attachmentNotFound)
  /// A limit was exceeded; ``detail`` names it.
  public static let limitExceeded = Code(.limitExceeded)
  /// No broker answers at the socket.
  public static let brokerUnavailable = Code(.brokerUnavailable)
  /// The connection was lost, and whether the request was handled is not known.
  public static let connectionLost = Code(.connectionLost)
  /// The other side did not answer in time.
  public static let timedOut = Code(.timedOut)
  /// Only the app in front can pass the front on, and this one is not.
  public static let notInFront = Code(.notInFront)
  /// The compositor did not bring the app to front.
  public static let frontRefused = Code(.frontRefused)
  /// The receiver's disk is full, or its reserve is reached.
  public static let noSpace = Code(.noSpace)
  /// The sender cannot read an attachment; ``path`` names it.
  public static let sourceDamaged = Code(.sourceDamaged)
  /// A registration or a definition breaks a rule; ``path`` names what is wrong.
  public static let invalidRegistration = Code(.invalidRegistration)
  /// The receiver knows other messages under the sender's numbers, whose container was put back or copied.
  public static let numberTaken = Code(.numberTaken)
  /// One of the two apps has another key than the one that the other one trusts.
  public static let peerKeyChanged = Code(.peerKeyChanged)
  /// An administrator has to approve the app at the broker first.
  public static let approvalPending = Code(.approvalPending)
  /// Another process is at the broker for the app.
  public static let placeTaken = Code(.placeTaken)
  /// The broker does not know the app, or not with this key.
  public static let notEnrolled = Code(.notEnrolled)
}

extension ServicesError.Code {
  /// The same as ``ServicesError/general``, which is the name in `catch`.
  public static let general = ServicesError.general
  /// The same as ``ServicesError/processSuspended``, which is the name in `catch`.
  public static let processSuspended = ServicesError.processSuspended
  /// The same as ``ServicesError/applicationNotFound``, which is the name in `catch`.
  public static let applicationNotFound = ServicesError.applicationNotFound
  /// The same as ``ServicesError/serviceNotFound``, which is the name in `catch`.
  public static let serviceNotFound = ServicesError.serviceNotFound
  /// The same as ``ServicesError/versionNotFound``, which is the name in `catch`.
  public static let versionNotFound = ServicesError.versionNotFound
  /// The same as ``ServicesError/methodNotFound``, which is the name in `catch`.
  public static let methodNotFound = ServicesError.methodNotFound
  /// The same as ``ServicesError/notAllowed``, which is the name in `catch`.
  public static let notAllowed = ServicesError.notAllowed
  /// The same as ``ServicesError/invalidParams``, which is the name in `catch`.
  public static let invalidParams = ServicesError.invalidParams
  /// The same as ``ServicesError/certificateNotFound``, which is the name in `catch`.
  public static let certificateNotFound = ServicesError.certificateNotFound
  /// The same as ``ServicesError/methodDisabled``, which is the name in `catch`.
  public static let methodDisabled = ServicesError.methodDisabled
  /// The same as ``ServicesError/versionDisabled``, which is the name in `catch`.
  public static let versionDisabled = ServicesError.versionDisabled
  /// The same as ``ServicesError/serviceDisabled``, which is the name in `catch`.
  public static let serviceDisabled = ServicesError.serviceDisabled
  /// The same as ``ServicesError/enterpriseUserNotMatch``, which is the name in `catch`.
  public static let enterpriseUserNotMatch = ServicesError.enterpriseUserNotMatch
  /// The same as ``ServicesError/cancelled``, which is the name in `catch`.
  public static let cancelled = ServicesError.cancelled
  /// The same as ``ServicesError/attachmentNotFound``, which is the name in `catch`.
  public static let attachmentNotFound = ServicesError.attachmentNotFound
  /// The same as ``ServicesError/limitExceeded``, which is the name in `catch`.
  public static let limitExceeded = ServicesError.limitExceeded
  /// The same as ``ServicesError/brokerUnavailable``, which is the name in `catch`.
  public static let brokerUnavailable = ServicesError.brokerUnavailable
  /// The same as ``ServicesError/connectionLost``, which is the name in `catch`.
  public static let connectionLost = ServicesError.connectionLost
  /// The same as ``ServicesError/timedOut``, which is the name in `catch`.
  public static let timedOut = ServicesError.timedOut
  /// The same as ``ServicesError/notInFront``, which is the name in `catch`.
  public static let notInFront = ServicesError.notInFront
  /// The same as ``ServicesError/frontRefused``, which is the name in `catch`.
  public static let frontRefused = ServicesError.frontRefused
  /// The same as ``ServicesError/noSpace``, which is the name in `catch`.
  public static let noSpace = ServicesError.noSpace
  /// The same as ``ServicesError/sourceDamaged``, which is the name in `catch`.
  public static let sourceDamaged = ServicesError.sourceDamaged
  /// The same as ``ServicesError/invalidRegistration``, which is the name in `catch`.
  public static let invalidRegistration = ServicesError.invalidRegistration
  /// The same as ``ServicesError/numberTaken``, which is the name in `catch`.
  public static let numberTaken = ServicesError.numberTaken
  /// The same as ``ServicesError/peerKeyChanged``, which is the name in `catch`.
  public static let peerKeyChanged = ServicesError.peerKeyChanged
  /// The same as ``ServicesError/approvalPending``, which is the name in `catch`.
  public static let approvalPending = ServicesError.approvalPending
  /// The same as ``ServicesError/placeTaken``, which is the name in `catch`.
  public static let placeTaken = ServicesError.placeTaken
  /// The same as ``ServicesError/notEnrolled``, which is the name in `catch`.
  public static let notEnrolled = ServicesError.notEnrolled
}

extension ServicesError: CustomStringConvertible {
  /// What failed, where, and what to do; it holds no value.
  public var description: String {
    let what = [code.what, path, detail].compactMap(\.self).joined(separator: ": ")
    return what + "; " + code.remedy
  }
}

extension ServicesError.Code: CustomStringConvertible {
  /// Lets a code stand in `catch`: `catch ServicesError.notAllowed`.
  public static func ~= (code: ServicesError.Code, error: any Error) -> Bool {
    (error as? ServicesError)?.code == code
  }

  /// The name in CHANNEL-PROTOCOL.md; `error 57` for a number that this version does not know.
  public var name: String { Known(rawValue: rawValue).map { "\($0)" } ?? "error \(rawValue)" }

  /// The same as ``name``.
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
    case .notAllowed: "this is not allowed, or the other app was not unlocked in time"
    case .invalidParams: "a value does not follow the rules for parameters, or the service's definition"
    case .certificateNotFound:
      "the other side did not prove the key that was enrolled for it, or an own key cannot be read"
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
    case .placeTaken: "another process is at the broker for this app"
    case .notEnrolled: "the broker does not know this app, or not with this key"
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
    case .notAllowed:
      "unlock the other app, bring it to front within a request, or have an administrator look at the policy"
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
    case .placeTaken: "start this one again when that process has ended"
    case .notEnrolled: "run the app once with its container open (dynamics app run): that enrols it"
    case .peerKeyChanged:
      "if the app has a new container, compare fingerprints and trust its new key (dynamics peers trust); else somebody has taken its place"
    }
  }
}
