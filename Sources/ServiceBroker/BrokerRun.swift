import Dispatch
import Foundation
import LocalTransport
import Locks
import Logging
import ServiceWire
import UnixSockets

/// What a broker consists of while it runs: its state directory, a thread that accepts, and a queue for everything else.
final class BrokerRun: Sendable {
  private let store: BrokerStore
  private let acceptor: Guarded<BrokerAcceptor?>
  private let driver: BrokerDriver
  private let acceptorStopped = DispatchGroup()

  /// Descriptors of one connection and of what is under way for it: below that many for all of them, a broker says so.
  private static let descriptorCountPerConnection: UInt64 = 5

  /// Listens when this returns. Blocks. Throws what keeps a broker from starting.
  init(_ configuration: ServiceBroker.Configuration, _ logger: Logger) throws {
    let limit = try DescriptorLimit.raiseSoftToHard()
    store = try BrokerStore(configuration.stateDirectory, logger)
    let acceptor = try BrokerAcceptor(
      path: configuration.socketPath, listening: configuration.listeningSocket, logger)
    try BrokerKeyFile.write(store.key.publicKey, besideSocket: acceptor.path)
    let driver = try BrokerDriver(store, configuration, logger)
    self.driver = driver
    self.acceptor = Guarded(acceptor)
    if limit.soft < UInt64(BrokerLimits().connectionCountMax) * Self.descriptorCountPerConnection {
      logger.warning("few files may be open", metadata: ["limit": "\(limit.soft)"])
    }
    let stopped = acceptorStopped
    stopped.enter()
    do {
      try acceptor.begin(accepted: { driver.accepted($0) }, stopped: { stopped.leave() })
    } catch {
      stopped.leave()
      throw error
    }
  }

  /// Everybody is told, everything is kept, and the socket is gone when this returns.
  func stop() async {
    await withCheckedContinuation { continuation in
      // The listener removes its socket: not on the thread of a task.
      DispatchQueue.global().async { [acceptor, acceptorStopped] in
        acceptor.withLock {
          $0?.stop()
          $0 = nil
        }
        acceptorStopped.notify(queue: .global()) { continuation.resume() }
      }
    }
    await withCheckedContinuation { continuation in
      driver.stop { continuation.resume() }
    }
  }
}
