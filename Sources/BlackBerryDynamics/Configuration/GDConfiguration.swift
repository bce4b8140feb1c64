public import AppKinetics
public import AppRuntime
public import Dispatch
public import Logging

/// Names the app of this process and its parts, as a bundle and a console do on a device
/// (Documentation/GD.md).
///
/// Each member has a value without any code. A program that wants another one sets ``current``
/// before it uses anything else of this module.
///
/// This type is no part of the vendor's interface.
public struct GDConfiguration: Sendable {
  /// A service that the app offers.
  public struct Service: Sendable, Hashable {
    /// The service's id, in lower-case reverse DNS.
    public var identifier: String
    /// The service's version: one to four numbers with dots between them.
    public var version: String

    /// Names a service. The texts are checked when the app starts: one that is wrong is logged and
    /// left out.
    public init(_ identifier: String, version: String = "1.0.0.0") {
      (self.identifier, self.version) = (identifier, version)
    }
  }

  /// The address of the app, which others give to `send(to:)`; reverse DNS.
  public var applicationID: String
  /// The app's name, for people.
  public var name: String
  /// The id that the app is entitled as; nil: ``applicationID``.
  public var entitlementID: String?
  /// The version of the entitlement; nil: 1.0.0.0.
  public var entitlementVersion: String?
  /// The app's version for `GDiOS.getVersion()`: numbers of major, minor and build with dots.
  public var version: String
  /// The container's directory, which is made at the activation. Until it is set, the directory of ``applicationID`` in the user's data.
  public var container: URL {
    get {
      containerSet ?? data.appendingPathComponent("opendynamics/apps/" + applicationID, isDirectory: true)
    }
    set { containerSet = newValue }
  }
  var containerSet: URL?
  /// The directory of the user's data.
  let data: URL
  /// The path of the management file; nil: none is read, and one that was accepted before holds.
  public var management: String?
  /// What the app offers to others. Requests for other services arrive, too.
  public var services: [Service]
  /// Whether `GDiOS.authorize()` requires a delegate.
  public var checksEventReceiver: Bool
  /// Takes the place of the vendor's screens. The default asks on the terminal.
  public var answer: GDQuestion.Answering = GDQuestion.askOnTerminal
  /// Whether the app has a launcher.
  public var startsLauncher: Bool
  /// Inputs that the launcher starts with: the app's sections, actions and settings.
  public var launcherInputs: [LauncherModel.Input] = []
  /// The size in points of the view in which the launcher's button is placed. If it is wider than
  /// high, the orientation is landscape.
  public var launcherSize = CGSize(width: 390, height: 844)
  /// The address of the relay for push channels, `wss://HOST:PORT`; nil: the app has no push.
  public var relay: URL?
  /// The path of a PEM file with the authorities that may certify the relay; nil: the system's.
  public var relayAuthorities: String?
  /// The key that the relay's operator requires of apps; empty without one.
  public var relayAdmissionKey = ""
  /// How long a push channel connects before it gets error 0; nil: for ever.
  public var pushConnectTime: Duration? = .seconds(60)
  /// Sends the app's logs; nil: the launcher's settings do not offer that.
  public var uploadLogs: (@Sendable () async throws -> Void)?
  /// The key of 32 bytes that opens the container without a person; nil: none.
  public var rawKey: (@Sendable () throws -> SecretBytes)?
  /// The serial queue of events, notifications and delegates.
  public var callbackQueue = DispatchQueue.main
  /// Called when the app uses the runtime before its first authorization.
  public var onMisuse: @Sendable (GDMisuse) -> Void = { $0.endProcess() }
  /// Whether `GDFileManager` reads a native file where the container has nothing of that path, as the
  /// vendor's does. False: absence in the container is absence.
  public var readsNativeFiles = true
  /// Called on ``callbackQueue`` before each call of a delegate and each notification of the runtime.
  public var onCallback: (@Sendable (GDCallback) -> Void)?
  /// Options of the services, with the path of the broker's socket. Their queue is
  /// ``callbackQueue``, and their clock ``clock``.
  public var serviceOptions = AppServices.Options()
  /// Options of the container.
  public var containerOptions = Container.Options()
  /// The clock of idle times and pauses.
  public var clock: any AppClock = SystemClock()
  /// The logger for what the vendor's signatures cannot say.
  public var logger = Logger(label: "opendynamics.gd")

  /// The configuration of this process.
  ///
  /// Setting it ends the program once the runtime has begun.
  public static var current: GDConfiguration {
    get { HostedApp.configuration }
    set { HostedApp.setConfiguration(newValue) }
  }

  /// The app for the services. Throws `invalidParams` for an id or a version that is none.
  func application() throws -> Application {
    Application(
      id: try ApplicationID(applicationID), name: name, entitlementID: entitlementID,
      entitlementVersion: try entitlementVersion.map { try ServiceVersion($0) })
  }

  /// The services that the app offers, without methods: what a method takes is known to the app
  /// alone, and each of them goes to the delegate.
  func definitions() -> [ServiceDefinition] {
    var definitions: [ServiceDefinition] = []
    var known: Set<Service> = []
    // The same one twice would be refused, and the app with it.
    for service in services where known.insert(service).inserted {
      do {
        definitions.append(
          ServiceDefinition(
            serviceID: try ServiceIdentifier(service.identifier),
            version: try ServiceVersion(service.version), methods: [:]))
      } catch {
        logger.error("a service is not offered", metadata: ["error": "\(error)"])
      }
    }
    return definitions
  }
}

extension GDConfiguration {
  /// Tells the runtime whether the app is shown; it is, unless the program says something else. An
  /// app that was authorized without a person asks for the password before it is shown.
  ///
  /// Blocks for a small read when nothing has read the state file before. Throws `stateUnusable`
  /// and `alreadyRunning` of `AppRuntimeError`.
  public static func setForeground(_ isInForeground: Bool) throws {
    let app = HostedApp.current
    let runtime = try app.runtimeAndWait()
    app.state.withLock { $0.isInForeground = isInForeground }
    runtime.setForeground(isInForeground)
    if isInForeground, runtime.authorization.isAuthorized { app.attend(runtime) }
  }

  /// Tells the runtime that a person used the app: idle time begins anew. Does nothing before the
  /// runtime has begun.
  public static func noteActivity() { HostedApp.begun?.state.withLock { $0.runtime }?.noteActivity() }
}

/// For tests of several apps, one after another, in one process.
extension GDConfiguration {
  /// Stops the app, and forgets the configuration. Objects of the vendor's interface that were made
  /// before belong to the app that has ended, but for `GDiOS` and `GDFileManager`.
  package static func endApp() async { await HostedApp.end() }

  /// The runtime of the app; nil before anything has needed it.
  package static var runtime: AppRuntime? { HostedApp.current.state.withLock { $0.runtime } }

  /// Returns when all events of changes that were made so far were told.
  package static func settle() async {
    await runtime?.settle()
    let queue = HostedApp.current.configuration.callbackQueue
    await withCheckedContinuation { continuation in queue.async { continuation.resume() } }
  }
}
