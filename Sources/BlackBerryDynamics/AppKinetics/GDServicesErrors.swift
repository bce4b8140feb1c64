// The names are the vendor's.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

import AppKinetics
import AppRuntime

/// The domain of errors of the runtime. Errors of a provider's app have the service's id as their
/// domain. The vendor does not publish the text: this one is ours.
public let GDServicesErrorDomain = "GDServicesErrorDomain"

/// The service of front requests, whose version is 1.0.0.0.
public let GDFrontRequestService = "com.good.gd.icc"
/// The only method of the service of front requests.
public let GDFrontRequestMethod = "FRONT_REQ"

extension ServicesError.Code {
  /// The constant `GDServicesError…` for this code. `GDServicesErrorGeneral` for all that have
  /// none.
  var vendorCode: Int {
    switch self {
    case ServicesError.processSuspended, ServicesError.timedOut: GDServicesErrorProcessSuspended
    case ServicesError.applicationNotFound: GDServicesErrorApplicationNotFound
    case ServicesError.serviceNotFound: GDServicesErrorServiceNotFound
    case ServicesError.versionNotFound: GDServicesErrorServiceVersionNotFound
    case ServicesError.methodNotFound: GDServicesErrorMethodNotFound
    case ServicesError.notAllowed, ServicesError.notInFront, ServicesError.frontRefused,
      ServicesError.approvalPending:
      GDServicesErrorNotAllowed
    case ServicesError.invalidParams, ServicesError.attachmentNotFound, ServicesError.limitExceeded:
      GDServicesErrorInvalidParams
    case ServicesError.certificateNotFound, ServicesError.peerKeyChanged, ServicesError.notEnrolled:
      GDServicesErrorCertificateNotFound
    case ServicesError.methodDisabled: GDServicesMethodDisabled
    case ServicesError.versionDisabled: GDServicesVersionDisabled
    case ServicesError.serviceDisabled: GDServicesServiceDisabled
    case ServicesError.enterpriseUserNotMatch: GDServicesErrorEnterpriseUserNotMatch
    default: GDServicesErrorGeneral
    }
  }
}

/// Errors as an app gets them.
enum VendorError {
  /// An error of `GDServicesErrorDomain`; the cause is its underlying error.
  static func of(_ error: any Error) -> NSError {
    let code = (error as? ServicesError)?.code.vendorCode ?? GDServicesErrorGeneral
    return NSError(
      domain: GDServicesErrorDomain, code: code,
      userInfo: [NSLocalizedDescriptionKey: "\(error)", NSUnderlyingErrorKey: error])
  }
}

extension ServiceReplyError {
  /// The reply that an app gives as an error: code, text and `userInfo`, without keys of
  /// Foundation. Throws `invalidParams` for a value that cannot be sent.
  init(replying error: any Error) throws(ServicesError) {
    if let error = error as? ServiceReplyError {
      self = error
      return
    }
    let error = error as NSError
    var details: [String: ServiceValue] = [:]
    for (key, value) in error.userInfo where !key.hasPrefix("NS") {
      details[key] = try ServiceValue(foundation: value, root: "error.details." + key)
    }
    self.init(code: Int64(error.code), text: error.localizedDescription, details: details)
  }
}
