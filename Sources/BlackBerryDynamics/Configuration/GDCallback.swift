/// A call of one of the app's delegates, or a notification, for tests.
///
/// This type is no part of the vendor's interface.
public struct GDCallback: Sendable, Hashable, CustomStringConvertible {
  /// The vendor's name of the method, such as `gdServiceDidReceive`, or of the notification.
  public let name: String
  /// Type and code of an event; else the other app, empty without one.
  public let subject: String
  /// The id of the request; empty without one.
  public let requestID: String

  init(_ name: String, _ subject: String = "", _ requestID: String = "") {
    (self.name, self.subject, self.requestID) = (name, subject, requestID)
  }

  /// Name and subject.
  public var description: String { subject.isEmpty ? name : "\(name) \(subject)" }
}
