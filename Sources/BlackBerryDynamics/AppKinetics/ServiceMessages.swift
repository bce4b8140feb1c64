import AppKinetics
import Locks

/// Values of the vendor's calls as those of `AppKinetics`, and back.
enum ServiceMessages {
  /// Nil for no params. Throws `invalidParams` for what cannot be sent.
  static func value(_ params: Any?) throws(ServicesError) -> ServiceValue? {
    guard let params else { return nil }
    // Code passes on what its callback was given for no params.
    if (params as? any OptionalParams)?.isNothing == true { return nil }
    return try ServiceValue(foundation: params)
  }

  /// The vendor's signature has no optional. Its callbacks have an `Any` that holds nil.
  static func params(_ value: ServiceValue?) -> Any {
    value?.foundationValue ?? Optional<AnyObject>.none as Any
  }

  static func request(
    _ service: String, _ version: String, _ method: String, params: Any?, attachments: [String],
    _ foreground: GDTForegroundOption
  ) throws(ServicesError) -> ServiceRequest {
    ServiceRequest(
      service: try ServiceIdentifier(service), version: try ServiceVersion(version), method: method,
      params: try value(params), attachments: attachments,
      foreground: ForegroundPreference(foreground))
  }

  /// Throws `applicationNotFound` for a text that can be no app's.
  static func application(_ text: String) throws(ServicesError) -> ApplicationID {
    do { return try ApplicationID(text) } catch {
      throw ServicesError(.applicationNotFound, path: error.path, detail: error.detail)
    }
  }
}

extension ForegroundPreference {
  init(_ option: GDTForegroundOption) {
    switch option {
    case .GDEPreferMeInForeground: self = .me
    case .GDEPreferPeerInForeground: self = .peer
    default: self = .none
    }
  }
}

private protocol OptionalParams {
  var isNothing: Bool { get }
}

extension Optional: OptionalParams {
  fileprivate var isNothing: Bool { if case .none = self { true } else { false } }
}
