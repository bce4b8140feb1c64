internal import Foundation
internal import NIOCore
internal import NIOHTTP1
internal import NIOPosix
internal import NIOSSL
internal import NIOWebSocket
internal import PushWire

/// The address of a relay.
struct RelayAddress: Sendable {
  let host: String
  let port: Int
  let isSecure: Bool

  init(_ url: URL) throws(PushError) {
    guard let scheme = url.scheme?.lowercased(), scheme == "wss" || scheme == "ws", let host = url.host(),
      !host.isEmpty, url.user() == nil, url.query() == nil, ["", "/", "/device"].contains(url.path())
    else { throw .invalidRelay(url.absoluteString) }
    self.host = host.hasPrefix("[") ? String(host.dropFirst().dropLast()) : host
    isSecure = scheme == "wss"
    port = url.port ?? (isSecure ? 443 : 80)
    guard isSecure || Loopback.isHost(self.host) else { throw .invalidRelay(url.absoluteString) }
  }
}

/// The WebSocket to the relay. It lives on the runtime's loop.
final class RelayConnection: ChannelInboundHandler {
  typealias InboundIn = WebSocketFrame

  enum Event: Sendable {
    case frame(RelayFrame)
    /// The last one.
    case ended
  }

  private let channel: any Channel
  private let onEvent: @Sendable (Event) -> Void
  private var hasEnded = false
  private var lastWrite: NIODeadline
  private var awaitedPong: (task: Scheduled<Void>, until: NIODeadline)?
  private var heartbeat: Scheduled<Void>?
  static let pongTime = TimeAmount.seconds(10)

  init(_ channel: any Channel, onEvent: @escaping @Sendable (Event) -> Void) {
    self.channel = channel
    self.onEvent = onEvent
    lastWrite = channel.eventLoop.now
  }

  /// Connects, and calls `onEvent` on the loop. Throws when there is no connection after `seconds`.
  static func open(
    _ address: RelayAddress, tls: NIOSSLContext?, loop: any EventLoop, seconds: Int64,
    onEvent: @escaping @Sendable (Event) -> Void
  ) async throws -> NIOLoopBound<RelayConnection> {
    let upgrade = try await ClientBootstrap(group: loop)
      .connectTimeout(.seconds(seconds))
      .channelOption(.tcpOption(.tcp_nodelay), value: 1)
      .connect(host: address.host, port: address.port) { channel in
        channel.eventLoop.makeCompletedFuture {
          if let tls {
            let isName = (try? SocketAddress(ipAddress: address.host, port: 0)) == nil
            try channel.pipeline.syncOperations.addHandler(
              NIOSSLClientHandler(context: tls, serverHostname: isName ? address.host : nil))
          }
          return try configure(channel, address, onEvent)
        }
      }
    let timeout = loop.scheduleTask(in: .seconds(seconds)) { upgrade.channel.close(promise: nil) }
    defer { timeout.cancel() }
    return try await upgrade.result.get()
  }

  private struct Upgrade: Sendable {
    let channel: any Channel
    let result: EventLoopFuture<NIOLoopBound<RelayConnection>>
  }

  /// The answer is not that of a relay.
  struct Refused: Error {}

  private static func configure(
    _ channel: any Channel, _ address: RelayAddress, _ onEvent: @escaping @Sendable (Event) -> Void
  ) throws -> Upgrade {
    let upgrader = NIOTypedWebSocketClientUpgrader<NIOLoopBound<RelayConnection>>(
      maxFrameSize: FrameLimits.relayMessage, enableAutomaticErrorHandling: true,
      upgradePipelineHandler: { channel, head in
        channel.eventLoop.makeCompletedFuture {
          guard head.headers["Sec-WebSocket-Protocol"] == ["dynamics-push.v1"] else { throw Refused() }
          let connection = RelayConnection(channel, onEvent: onEvent)
          try channel.pipeline.syncOperations.addHandlers([
            NIOWebSocketFrameAggregator(
              minNonFinalFragmentSize: 0, maxAccumulatedFrameCount: 1024,
              maxAccumulatedFrameSize: FrameLimits.relayMessage), connection,
          ])
          return NIOLoopBound(connection, eventLoop: channel.eventLoop)
        }
      })
    let host = address.host.contains(":") ? "[\(address.host)]" : address.host
    let head = HTTPRequestHead(
      version: .http1_1, method: .GET, uri: "/device",
      headers: ["Host": "\(host):\(address.port)", "Sec-WebSocket-Protocol": "dynamics-push.v1"])
    let result = try channel.pipeline.syncOperations.configureUpgradableHTTPClientPipeline(
      configuration: NIOUpgradableHTTPClientPipelineConfiguration(
        upgradeConfiguration: NIOTypedHTTPClientUpgradeConfiguration(
          upgradeRequestHead: head, upgraders: [upgrader],
          notUpgradingCompletionHandler: { channel in
            channel.close().flatMapThrowing { throw Refused() }
          })))
    return Upgrade(channel: channel, result: result)
  }

  // MARK: To the relay

  func send(_ frame: DeviceFrame) {
    guard !hasEnded else { return }
    write(.binary, ByteBuffer(bytes: frame.bytes))
  }

  private func write(_ opcode: WebSocketOpcode, _ data: ByteBuffer) {
    lastWrite = channel.eventLoop.now
    let frame = WebSocketFrame(fin: true, opcode: opcode, maskKey: .random(), data: data)
    channel.writeAndFlush(frame, promise: nil)
  }

  /// Sends a ping when nothing was sent for that time, and ends the connection when there is no answer.
  func startHeartbeat(seconds: UInt32) {
    beat(every: .seconds(Int64(seconds)))
  }

  private func beat(every time: TimeAmount) {
    guard !hasEnded else { return }
    let loop = channel.eventLoop
    if loop.now - lastWrite >= time { ping(within: Self.pongTime) }
    let bound = NIOLoopBound(self, eventLoop: loop)
    // While an answer is awaited no second ping is sent, and the time of the last one does not change.
    heartbeat = loop.scheduleTask(deadline: max(lastWrite + time, loop.now + .seconds(1))) {
      bound.value.beat(every: time)
    }
  }

  /// Sends a ping, and ends the connection when nothing arrives within that time. Does nothing when an
  /// answer is due earlier.
  func ping(within time: TimeAmount) {
    guard !hasEnded else { return }
    let until = channel.eventLoop.now + time
    if let awaitedPong {
      guard until < awaitedPong.until else { return }
      awaitedPong.task.cancel()
    }
    write(.ping, ByteBuffer())
    let bound = NIOLoopBound(self, eventLoop: channel.eventLoop)
    awaitedPong = (channel.eventLoop.scheduleTask(deadline: until) { bound.value.end() }, until)
  }

  /// Ends the connection orderly; nothing more is heard of it.
  func close() {
    guard !hasEnded else { return }
    hasEnded = true
    var data = ByteBuffer()
    data.write(webSocketErrorCode: .normalClosure)
    write(.connectionClose, data)
    stop()
    channel.eventLoop.scheduleTask(in: .seconds(2)) { [channel] in channel.close(promise: nil) }
  }

  private func stop() {
    heartbeat?.cancel()
    awaitedPong?.task.cancel()
  }

  private func end() {
    channel.close(promise: nil)
    guard !hasEnded else { return }
    hasEnded = true
    stop()
    onEvent(.ended)
  }

  // MARK: From the relay

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    awaitedPong?.task.cancel()
    awaitedPong = nil
    let frame = unwrapInboundIn(data)
    switch frame.opcode {
    case .binary where !hasEnded:
      guard let message = try? RelayFrame(bytes: Data(frame.unmaskedData.readableBytesView)) else {
        return end()
      }
      onEvent(.frame(message))
    case .ping: write(.pong, frame.unmaskedData)
    case .connectionClose:
      if !hasEnded {
        write(.connectionClose, frame.unmaskedData)
      }
      end()
    case .text: end()
    default: break
    }
  }

  func channelInactive(context: ChannelHandlerContext) {
    end()
    context.fireChannelInactive()
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    end()
  }
}
