import AppRuntime
import Locks
import SecureFiles

/// The runtime of this process, as an app knows it.
///
/// Any thread may use it. Calls that need an authorized app report a misuse before the first
/// authorization of the process (`GDConfiguration.onMisuse`).
public final class GDiOS: NSObject, Sendable {
  private static let shared = GDiOS()

  private override init() {}

  /// The one object of this class.
  public class func sharedInstance() -> GDiOS { shared }

  private var app: HostedApp { .current }

  // MARK: Authorization

  /// Receives the events. Not kept alive.
  public var delegate: (any GDiOSDelegate)? {
    get { app.state.withLock { $0.delegate } }
    set { app.state.withLock { $0.delegate = newValue } }
  }

  /// Sets the delegate, and does what ``authorize()`` does.
  public func authorize(_ delegate: any GDiOSDelegate) {
    self.delegate = delegate
    app.authorize()
  }

  /// Activates the app, or opens its container, and returns at once. The outcome is an event.
  ///
  /// Does nothing while an attempt is under way. An app that is authorized already, or that no
  /// password opens, gets the event again. Without a delegate this is a misuse, unless
  /// `GDConfiguration.checksEventReceiver` is false.
  public func authorize() {
    if delegate == nil, app.configuration.checksEventReceiver {
      app.configuration.onMisuse(GDMisuse(call: "GDiOS.authorize", reason: GDMisuse.noDelegate))
    }
    app.authorize()
  }

  /// Whether ``authorizeAutonomously()`` may begin: the app was set up, has
  /// `GDConfiguration.rawKey`, is in the background (`GDConfiguration.setForeground`), and nothing
  /// has taken its keys. False when the state file cannot be read.
  public var canAuthorizeAutonomously: Bool {
    (try? app.runtimeAndWait().autonomousObstacle == nil) ?? false
  }

  /// Sets the delegate, and does what ``authorizeAutonomously()`` does.
  @discardableResult
  public func authorizeAutonomously(_ delegate: any GDiOSDelegate) -> Bool {
    self.delegate = delegate
    return authorizeAutonomously()
  }

  /// Opens the container with `GDConfiguration.rawKey`, without a person, and returns at once.
  /// Returns false, without an event, when that may not begin; otherwise the outcome is the event
  /// `backgroundAuthorized` or `backgroundNotAuthorized`.
  @discardableResult
  public func authorizeAutonomously() -> Bool {
    guard let runtime = try? app.runtimeAndWait(), runtime.autonomousObstacle == nil else { return false }
    return app.authorizeAlone(runtime)
  }

  /// The state of the app, which is the same object each time.
  public var state: GDState { .live }

  /// Whether the app was set up. Reads the state file, and blocks for that, when nothing else has.
  /// False when the file cannot be read.
  public var activationComplete: Bool {
    (try? app.runtimeAndWait().authorization.activation == .activated) ?? false
  }

  // MARK: Withdrawals by the app itself

  /// Blocks the app until ``executeUnblock(_:)`` is called with the same id, also over restarts.
  /// Files and services go on working. An id of more than 255 bytes of UTF-8, and texts of more
  /// than 1 KiB, are shortened.
  public func executeBlock(_ blockID: String, withTitle title: String, withMessage message: String) {
    logged {
      $0.block(LocalBlock(id: blockID, notice: Notice(title: title, text: message)))
    }
  }

  /// Ends a block of ``executeBlock(_:withTitle:withMessage:)``. Does nothing without one.
  public func executeUnblock(_ blockID: String) { logged { $0.unblock(id: blockID) } }

  /// Locks the app as its owner would, and blocks until that is stored. False when no unlock code
  /// is known, without which nobody could unlock the app.
  public func executeRemoteLock() -> Bool {
    guard let runtime = try? app.runtimeAndWait() else { return false }
    return (try? BlockingCall.wait { await runtime.remoteLock() }) ?? false
  }

  /// Blocks for a small read when nothing has read the state file before.
  private func logged(_ body: (AppRuntime) -> Void) {
    do { body(try app.runtimeAndWait()) } catch {
      app.configuration.logger.error("the runtime does not begin", metadata: ["error": "\(error)"])
    }
  }

  // MARK: What the owner decided

  /// The owner's configuration, by the constants `GDAppConfigKey…`; empty before the first
  /// authorization.
  ///
  /// Flags are `NSNumber` with 0 or 1, and 0 unless the owner has set them. Texts that the owner
  /// has not set are missing.
  public func getApplicationConfig() -> [String: Any] {
    guard let runtime = app.authorizedRuntime("GDiOS.getApplicationConfig") else { return [:] }
    return runtime.configuration.values(
      instance: runtime.instanceIdentifier, isProtectedByPassword: app.configuration.rawKey == nil)
  }

  /// The owner's policy for the app; empty unless there is one and it is an object of JSON.
  public func getApplicationPolicy() -> [String: Any] {
    guard let runtime = app.authorizedRuntime("GDiOS.getApplicationPolicy") else { return [:] }
    return runtime.appPolicy?.foundationValue as? [String: Any] ?? [:]
  }

  /// The owner's policy as JSON; `{}` when there is none.
  public func getApplicationPolicyString() -> String {
    guard let runtime = app.authorizedRuntime("GDiOS.getApplicationPolicyString") else { return "{}" }
    // Not `jsonText()`, which is for params: they have no arrays of objects.
    return runtime.appPolicy.map { JSONWriter.text(of: $0) } ?? "{}"
  }

  // MARK: Discovery

  /// All apps that offer something, this one included. Blocks until the broker has answered; empty
  /// when it cannot be reached.
  public func getServiceProviders() -> [GDServiceProvider] {
    providers("GDiOS.getServiceProviders", of: nil, version: nil, type: nil)
  }

  /// The apps that offer a service, this one included. Without a version: in any version. Blocks
  /// until the broker has answered; empty when it cannot be reached, and for an id that is none.
  public func getServiceProviders(
    for serviceID: String, andVersion version: String?, andServiceType type: GDServiceType
  ) -> [GDServiceProvider] {
    providers("GDiOS.getServiceProviders(for:)", of: serviceID, version: version, type: type)
  }

  private func providers(
    _ call: String, of service: String?, version: String?, type: GDServiceType?
  ) -> [GDServiceProvider] {
    do {
      return try app.opened(call).services.providersAndWait(
        of: service.map { try ServiceIdentifier($0) }, version: version.map { try ServiceVersion($0) },
        type: type.map { $0 == .server ? .server : .application }, includesOwn: true,
        includesContents: true
      ).map { GDServiceProvider($0) }
    } catch {
      app.configuration.logger.error("discovery failed", metadata: ["error": "\(error)"])
      return []
    }
  }

  // MARK: Others

  /// The app's version: major, minor and build with dots.
  public func getVersion() -> String { app.configuration.version }
}
