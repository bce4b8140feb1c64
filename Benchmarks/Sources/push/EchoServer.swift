import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import NIOWebSocket

/// The baseline: a WebSocket server on the same library that answers what it gets and keeps nothing.
enum EchoServer {
  private final class Echo: ChannelInboundHandler {
    typealias InboundIn = WebSocketFrame
    typealias OutboundOut = WebSocketFrame

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      let frame = unwrapInboundIn(data)
      switch frame.opcode {
      case .binary, .text:
        let answer = WebSocketFrame(fin: true, opcode: frame.opcode, data: frame.unmaskedData)
        context.writeAndFlush(wrapOutboundOut(answer), promise: nil)
      case .connectionClose: context.close(promise: nil)
      default: break
      }
    }
  }

  /// Serves until the process ends.
  static func run(tls: TLSConfiguration?) async throws {
    let context = try tls.map { try NIOSSLContext(configuration: $0) }
    let upgrader = NIOWebSocketServerUpgrader(
      shouldUpgrade: { channel, _ in
        channel.eventLoop.makeSucceededFuture(["Sec-WebSocket-Protocol": "dynamics-push.v1"])
      },
      upgradePipelineHandler: { channel, _ in
        channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Echo()) }
      })
    let channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      .serverChannelOption(.backlog, value: 4096)
      .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          if let context {
            try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: context))
          }
          try channel.pipeline.syncOperations.configureHTTPServerPipeline(
            withServerUpgrade: (upgraders: [upgrader], completionHandler: { _ in }))
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    print("listening: devices \(channel.localAddress?.port ?? 0)")
    fflush(nil)
    try await channel.closeFuture.get()
  }
}
