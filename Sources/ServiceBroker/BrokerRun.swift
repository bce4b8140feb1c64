import Foundation
import LocalTransport
import Locks
import Logging
import NIOCore
import NIOPosix
import ServiceWire
import UnixSockets

/// What a broker consists of while it runs: its state directory, a thread that accepts and an event loop for everything else.
final class BrokerRun: Sendable {
  private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
  private let store: BrokerStore
  private let acceptor: Guarded<BrokerAcceptor?>
  private let driver: NIOLoopBound<BrokerDriver>
  private let acceptorStopped: EventLoopFuture<Void>

  /// Descriptors of one connection and of what is under way for it: below that many for all of them, a broker says so.
  private static let descriptorCountPerConnection: UInt64 = 4

  /// Listens when this returns. Blocks. Throws what keeps a broker from starting.
  init(_ configuration: ServiceBroker.Configuration, _ logger: Logger) throws {
    let loop = group.next()
    do {
      let limit = try DescriptorLimit.raiseSoftToHard()
      store = try BrokerStore(configuration.stateDirectory, logger)
      let acceptor = try BrokerAcceptor(path: configuration.socketPath, logger)
      try BrokerKeyFile.write(store.key.publicKey, besideSocket: configuration.socketPath)
      let store = store
      driver = try loop.submit {
        NIOLoopBound(BrokerDriver(store, configuration, logger, loop), eventLoop: loop)
      }.wait()
      let driver = driver
      let stopped = loop.makePromise(of: Void.self)
      acceptorStopped = stopped.futureResult
      self.acceptor = Guarded(acceptor)
      if limit.soft < UInt64(BrokerLimits().connectionCountMax) * Self.descriptorCountPerConnection {
        logger.warning("few files may be open", metadata: ["limit": "\(limit.soft)"])
      }
      acceptor.begin(
        accepted: { connection in
          _ = try? loop.submit { driver.value.accepted(connection) }.wait()
        }, stopped: { stopped.succeed() })
    } catch {
      group.shutdownGracefully { _ in }
      throw error
    }
  }

  /// Everybody is told, everything is kept, and the socket is gone when this returns.
  func stop() async {
    let driver = driver
    acceptor.withLock {
      $0?.stop()
      $0 = nil
    }
    _ = try? await acceptorStopped.get()
    _ = try? await group.next().flatSubmit { driver.value.stop() }.get()
    try? await group.shutdownGracefully()
  }
}
