import Foundation
import Locks
import NIOCore
import NIOPosix
import Synchronization

/// Forwards connections to a relay. It can swallow what passes without ending a connection, like a network
/// that the device has left.
final class Tunnel: Sendable {
  private final class Connections: Sendable {
    let state = Guarded((swallowsNew: false, all: [Connection]()))

    func add() -> Connection {
      state.withLock { state in
        let connection = Connection(swallows: state.swallowsNew)
        state.all.append(connection)
        return connection
      }
    }
  }

  private final class Connection: Sendable {
    let swallows: Atomic<Bool>

    init(swallows: Bool) { self.swallows = Atomic(swallows) }
  }

  private final class Forward: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer

    private let other: any Channel
    private let connection: Connection

    init(to other: any Channel, _ connection: Connection) {
      self.other = other
      self.connection = connection
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      guard !connection.swallows.load(ordering: .relaxed) else { return }
      other.writeAndFlush(unwrapInboundIn(data), promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
      guard !connection.swallows.load(ordering: .relaxed) else { return }
      other.close(promise: nil)
    }
  }

  private let listener: any Channel
  private let connections: Connections

  init(to relay: URL) async throws {
    let port = relay.port ?? 0
    let connections = Connections()
    listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      .childChannelInitializer { near in
        let connection = connections.add()
        return ClientBootstrap(group: near.eventLoop).connect(host: "127.0.0.1", port: port).flatMap { far in
          near.pipeline.addHandler(Forward(to: far, connection)).flatMap {
            far.pipeline.addHandler(Forward(to: near, connection))
          }
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    self.connections = connections
  }

  var url: URL { URL(string: "ws://127.0.0.1:\(listener.localAddress?.port ?? 0)")! }

  /// How many connections there have been.
  var count: Int { connections.state.withLock { $0.all.count } }

  /// Nothing passes any more on the connections that are there.
  func swallowAll() {
    for connection in connections.state.withLock({ $0.all }) {
      connection.swallows.store(true, ordering: .relaxed)
    }
  }

  /// Whether nothing passes on connections that are still to come.
  func swallowNew(_ swallows: Bool) {
    connections.state.withLock { $0.swallowsNew = swallows }
  }

  func close() async throws {
    try await listener.close()
  }
}
