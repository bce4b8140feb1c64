import Foundation
import Locks
import Logging
import ServiceWire
import Synchronization
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Takes connections at the broker's socket, on a thread of its own: those of this user get the first byte with their descriptor lane,
/// others are closed without a word.
final class BrokerAcceptor: Sendable {
  private let listener: UnixListener
  private let logger: Logger
  private let isStopping = Atomic(false)

  /// What one connection is, as it was accepted. Whoever is given it owns both descriptors.
  struct Accepted: Sendable {
    let socket: Int32
    /// The broker's end.
    let descriptorLane: Int32
    let process: Int32
    let origin: BrokerOrigin
  }

  /// How long nothing is accepted after this process ran out of descriptors: the connection goes on waiting meanwhile.
  static let pause: Duration = .milliseconds(100)

  #if os(Linux)
    /// How many connections wait to be accepted. Whoever dials then waits in the kernel: so somebody who connects without
    /// end is in front of others with about as many connections as it has threads, and these.
    static let backlog: Int32 = 16
  #else
    /// How many connections wait to be accepted. Whoever dials then is refused.
    static let backlog = UnixListener.backlogDefault
  #endif

  /// Listens. Throws `SocketError`.
  init(path: String, listening: Int32?, _ logger: Logger) throws {
    self.logger = logger
    if let listening {
      listener = try UnixListener(adopting: listening, directory: .closedToOthers, backlog: Self.backlog)
    } else {
      try StateFiles.makeDirectory(SocketDirectory.directory(of: path))
      listener = try UnixListener(path: path, directory: .closedToOthers, backlog: Self.backlog)
    }
  }

  var path: String { listener.path }

  /// `accepted` is called on the thread, which waits for it: so no more connections are taken than are seen to. `stopped` comes last,
  /// when this object is held by nobody else and the socket can go. Throws `SocketError` when the system gives no thread.
  func begin(
    accepted: @escaping @Sendable (Accepted) -> Void, stopped: @escaping @Sendable () -> Void
  ) throws {
    let held = Guarded<BrokerAcceptor?>(self)
    try DetachedThread.start("accepting") {
      held.withLock { $0.take() }?.acceptAll(accepted)
      stopped()
    }
  }

  func stop() {
    isStopping.store(true, ordering: .releasing)
    listener.shutdown()
  }

  private func acceptAll(_ accepted: (Accepted) -> Void) {
    var hasTold = false
    while !isStopping.load(ordering: .acquiring) {
      do throws(SocketError) {
        // Made before, so that a connection is taken only when it can be greeted.
        let pair = try SocketPair()
        // As many as it takes to read where it comes from.
        let spare = try SocketPair()
        let connection = try listener.accept(deadline: nil)
        Self.close(spare)
        hasTold = false
        if let connection = try? greet(connection, pair) { accepted(connection) }
      } catch .closed {
        if !isStopping.load(ordering: .acquiring) {
          logger.critical("somebody has shut the socket down; no more connections are accepted")
        }
        return
      } catch {
        // Too many files are open. What waits is accepted when there is room again.
        if !hasTold { logger.error("cannot accept connections", metadata: ["error": "\(error)"]) }
        hasTold = true
        Thread.sleep(forTimeInterval: Self.pause / .seconds(1))
      }
    }
  }

  private static func close(_: consuming SocketPair) {}

  /// Nil for another user's process, and for one that is gone.
  private func greet(
    _ connection: consuming UnixConnection, _ pair: consuming SocketPair
  ) throws(SocketError) -> Accepted? {
    #if os(Linux)
      // To look where a connection comes from takes longer than all else.
      if connection.isClosedByPeer { return nil }
    #endif
    let peer = try connection.peerCredentials()
    guard peer.user == geteuid() else {
      logger.warning("a process of another user connected", metadata: ["pid": "\(peer.process)"])
      return nil
    }
    // Before the first byte: after it the process may keep others from looking at it.
    guard let origin = ConnectionOrigin.read(connection, process: peer.process) else {
      logger.warning("a process that cannot be looked at connected", metadata: ["pid": "\(peer.process)"])
      return nil
    }
    let own = pair.first
    let other = pair.second
    var lane = DescriptorList()
    lane.append(other.takeDescriptor())
    var zero: UInt8 = 0
    let byteCount = try withUnsafeBytes(of: &zero) { bytes throws(SocketError) in
      try connection.sendIfReady(bytes, descriptors: lane)
    }
    guard byteCount == 1 else { return nil }
    return Accepted(
      socket: connection.takeDescriptor().take(), descriptorLane: own.takeDescriptor().take(),
      process: peer.process, origin: origin)
  }
}
