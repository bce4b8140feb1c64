import Dispatch
import Foundation
import LocalTransport
import Locks
public import Logging
public import ServiceLifecycle
package import ServiceWire

/// The broker of one user: it keeps who is installed and offers what, introduces apps to each other and is out of the way from then on
/// (BROKER-PROTOCOL.md).
///
/// Run it in a service group, or embed it with ``start(_:logger:)``.
public final class ServiceBroker: Service {
  /// Where a broker listens, where it keeps what it knows, and whom it asks about the front.
  public struct Configuration: Sendable {
    /// The path of the socket for apps. Its directory is made if it is missing, and must keep other users out.
    public var socketPath: String
    /// A descriptor of a socket that listens already at that path, as a service manager hands it over. The broker takes it over; the socket
    /// stays when it ends.
    public var listeningSocket: Int32?
    /// The directory of the broker's keys and records. It is made with mode 0700 if it is missing.
    public var stateDirectory: String
    /// The program or function that is asked before another app comes to front.
    public var compositor: Compositor
    /// What is done with new app ids of processes without confinement. By default eight of an origin are taken.
    public var plainApps = NewApps.open(8)
    /// What is done with new app ids of sandboxes. By default an administrator has to approve them.
    public var sandboxedApps = NewApps.ask
    /// For tests that do not want to wait.
    package var limits = BrokerLimits()

    /// Makes a configuration. The socket: nil for `OPENDYNAMICS_BROKER`, else `opendynamics/broker` in `XDG_RUNTIME_DIR`, else
    /// `/tmp/opendynamics-<uid>/broker`. The state: nil for `OPENDYNAMICS_BROKER_STATE`, else `opendynamics/broker` in
    /// `XDG_STATE_HOME`, else in `~/.local/state`.
    public init(
      socketPath: String? = nil, stateDirectory: String? = nil, compositor: Compositor = .none
    ) {
      self.socketPath = socketPath ?? BrokerPlaces.socketPath()
      self.stateDirectory = stateDirectory ?? BrokerPlaces.stateDirectory()
      self.compositor = compositor
    }
  }

  /// The configuration that the broker was made with.
  public let configuration: Configuration
  private let logger: Logger
  private let running = Guarded<BrokerRun?>(nil)

  /// Makes a broker that does nothing before ``run()``.
  public init(_ configuration: Configuration, logger: Logger) {
    self.configuration = configuration
    self.logger = logger
  }

  /// The path of the socket at which apps reach the broker.
  public var socketPath: String { configuration.socketPath }

  /// Listens until the task is cancelled or the service group shuts down, then says goodbye to all.
  ///
  /// Throws ``ServiceBrokerError``, and errors of sockets: somebody answers at the socket already, or a directory is not safe.
  public func run() async throws {
    try await listen()
    try? await gracefulShutdown()
    await stop()
  }

  /// Starts a broker, which listens when this returns. ``stop()`` ends it. Throws as ``run()``.
  public static func start(
    _ configuration: Configuration, logger: Logger = Logger(label: "opendynamics.broker")
  ) async throws -> ServiceBroker {
    let broker = ServiceBroker(configuration, logger: logger)
    try await broker.listen()
    return broker
  }

  private func listen() async throws {
    let (configuration, logger) = (configuration, logger)
    let run = try await withCheckedThrowingContinuation { continuation in
      DispatchQueue.global().async {
        continuation.resume(with: Result { try BrokerRun(configuration, logger) })
      }
    }
    running.withLock {
      precondition($0 == nil, "a broker is started once")
      $0 = run
    }
    logger.info("listening", metadata: ["socket": "\(configuration.socketPath)"])
  }

  /// Closes the socket, says goodbye (`shuttingDown`) to all and waits until they are gone, a second at most. Does nothing the second time.
  public func stop() async {
    let run = running.withLock { run in
      defer { run = nil }
      return run
    }
    await run?.stop()
  }
}
