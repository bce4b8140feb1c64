public import Foundation

/// An app whose requests a provider takes: known by its id, by the fingerprint of its key, or by both.
///
/// An id is as good as the broker that has introduced the app first; a fingerprint, which its users compare, is the app's own.
public struct Caller: Sendable, Hashable {
  /// The app; nil: any app with that key.
  public let application: ApplicationID?
  /// The fingerprint of its key, 16 bytes; nil: any key.
  public let fingerprint: Data?

  package static let countMax = 64

  /// An app with any key.
  public init(_ application: ApplicationID) {
    self.init(application: application, fingerprint: nil)
  }

  package init(application: ApplicationID?, fingerprint: Data?) {
    self.application = application
    self.fingerprint = fingerprint
  }

  /// Whether an app with this id and this fingerprint is meant.
  package func isMet(by appID: String, _ fingerprint: Data?) -> Bool {
    (application.map { $0.text.utf8.elementsEqual(appID.utf8) } ?? true)
      && (self.fingerprint.map { $0 == fingerprint } ?? true)
  }
}
