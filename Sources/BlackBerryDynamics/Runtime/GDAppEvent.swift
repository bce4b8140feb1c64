/// An event of the runtime, which `GDiOSDelegate` is told.
public final class GDAppEvent: NSObject, Sendable {
  /// What happened.
  public let type: GDAppEventType
  /// The reason; `errorNone` unless the app is not authorized.
  public let code: GDAppResultCode
  /// A sentence for a person.
  public let message: String

  /// Makes an event, for tests of an app's handler.
  public init(type: GDAppEventType, code: GDAppResultCode = .errorNone, message: String = "") {
    (self.type, self.code, self.message) = (type, code, message)
  }

  /// Type and code as numbers, and the message.
  public override var description: String {
    "GDAppEvent type \(type.rawValue) code \(code.rawValue): \(message)"
  }
}

/// Receives the events of the runtime, on `GDConfiguration.callbackQueue`.
public protocol GDiOSDelegate: AnyObject {
  /// Something happened. `GDiOS.state` was set before.
  func handle(_ anEvent: GDAppEvent)
}

extension GDiOSDelegate {
  public func handle(_ anEvent: GDAppEvent) {}
}
