public import Foundation

/// For code that knows errors of Foundation only: `localizedDescription` says what the description says, and `error as NSError`
/// has the domain ``errorDomain`` and the number of the code.
extension ServicesError: LocalizedError, CustomNSError {
  /// The domain of an `NSError` that was one of these. It is not the vendor's `GDServicesErrorDomain`, and neither are the numbers.
  public static let errorDomain = "OpenDynamicsServicesErrorDomain"
  /// The key in `userInfo` of such an `NSError`: the `ServicesError` itself, as Foundation of Linux does not convert it back.
  public static let errorKey = "ServicesError"

  /// The number of the code.
  public var errorCode: Int { Int(code.rawValue) }
  /// The texts, with Foundation's keys, and the error with ``errorKey``.
  public var errorUserInfo: [String: Any] {
    [
      NSLocalizedDescriptionKey: description, NSLocalizedFailureReasonErrorKey: code.what,
      NSLocalizedRecoverySuggestionErrorKey: code.remedy, Self.errorKey: self,
    ]
  }

  /// What failed, where, and what to do: the description.
  public var errorDescription: String? { description }
  /// What failed, without the location.
  public var failureReason: String? { code.what }
  /// What to do.
  public var recoverySuggestion: String? { code.remedy }
}

/// `localizedDescription` is the text of the provider's app, and `error as NSError` has the service's id as its domain and the code
/// of the provider's app. The details are in ``nsError``.
extension ServiceReplyError: LocalizedError {
  /// The domain of an `NSError` that was one of these and has no service (``domain``).
  public static let errorDomain = "OpenDynamicsServiceReplyErrorDomain"
  /// The key in `userInfo` of ``nsError``: the `ServiceReplyError` itself.
  public static let errorKey = "ServiceReplyError"

  /// The text, or the code when there is none.
  public var errorDescription: String? { text.isEmpty ? "error \(code) of the other app" : text }

  // `CustomNSError` has one domain for a type, and this type has that of its service. What Foundation reads of other errors are these
  // two requirements of `Error`.

  public var _domain: String { domain?.text ?? Self.errorDomain }
  public var _code: Int { Int(clamping: code) }

  /// The error as apps know it that were written for `NSError`: its domain is the service's id, and its `userInfo` has the details by their
  /// names, the text as the localized description, and this error with ``errorKey``. Printed, it shows them all.
  public var nsError: NSError {
    // Names that begin with NS are Foundation's, which expects values of certain types there.
    var userInfo: [String: Any] = details.filter { !$0.key.hasPrefix("NS") }.mapValues(\.foundationValue)
    userInfo[NSLocalizedDescriptionKey] = errorDescription
    userInfo[Self.errorKey] = self
    return NSError(domain: _domain, code: _code, userInfo: userInfo)
  }
}
