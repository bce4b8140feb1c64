internal import Locks
internal import Logging
internal import NIOCore
internal import NIOHTTP1
internal import NIOPosix
internal import NIOSSL
internal import NIOWebSocket
internal import PushWire
internal import Synchronization

/// Takes connections of devices. Source: PUSH-PROTOCOL.md, *Connection*.
final class DeviceServer: Sendable {
  static let path = "/device"
  static let subprotocol = "dynamics-push.v1"

  private typealias Connections = NIOLoopBoundBox<[Hub.ConnectionID: DeviceConnection]>

  private let relay: Relay
  private let tls: NIOSSLContext?
  private let group: any EventLoopGroup
  /// Those of each loop.
  private let connections: [ObjectIdentifier: Connections]
  private let newcomers: NewConnections
  /// All connections, those included that are being closed.
  private let openCount = Atomic<Int>(0)
  private let isReachable = Atomic<Bool>(true)
  private let listener = Guarded<(any Channel)?>(nil)

  init(_ relay: Relay, tls: NIOSSLContext?, group: any EventLoopGroup) {
    self.relay = relay
    self.tls = tls
    self.group = group
    newcomers = NewConnections(countMax: relay.configuration.newConnections)
    connections = Dictionary(
      uniqueKeysWithValues: group.makeIterator().map { loop in
        (ObjectIdentifier(loop), Connections.makeBoxSendingValue([:], eventLoop: loop))
      })
  }

  /// Listens, and returns the port.
  func start(_ address: ListenAddress) async throws -> Int {
    let channel = try await ServerBootstrap(group: group)
      .serverChannelOption(.backlog, value: 4096)
      .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
      // One at a time, so that the gate is asked for each.
      .serverChannelOption(.maxMessagesPerRead, value: 1)
      .serverChannelInitializer { [newcomers] channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(AcceptGate(newcomers))
        }
      }
      .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
      .childChannelOption(
        .writeBufferWaterMark, value: ChannelOptions.Types.WriteBufferWaterMark(low: 64 << 10, high: 1 << 20)
      )
      .childChannelInitializer { channel in self.accept(channel) }
      .bind(host: address.host, port: address.port).get()
    listener.withLock { $0 = channel }
    return channel.localAddress?.port ?? address.port
  }

  /// Takes no more connections. Those that are there stay.
  func stop() async {
    try? await listener.withLock { $0 }?.close()
  }

  /// Ends connections that are silent for too long. To be called about once a second.
  func tick() {
    let now = relay.clock.now()
    for loop in group.makeIterator() {
      guard let connections = connections[ObjectIdentifier(loop)] else { continue }
      loop.execute {
        for connection in connections.value.values { connection.check(now: now) }
      }
    }
  }

  /// Breaks all connections, and each new one, until they may come again.
  func setReachable(_ isReachable: Bool) {
    self.isReachable.store(isReachable, ordering: .relaxed)
    guard !isReachable else { return }
    for loop in group.makeIterator() {
      guard let connections = connections[ObjectIdentifier(loop)] else { continue }
      loop.execute {
        for connection in connections.value.values { connection.breakOff() }
      }
    }
  }

  private func accept(_ channel: any Channel) -> EventLoopFuture<Void> {
    let configuration = relay.configuration
    let address = IPAddress.group(channel.remoteAddress?.ipAddress ?? "local")
    let id = relay.makeConnectionID()
    guard isReachable.load(ordering: .relaxed),
      openCount.load(ordering: .relaxed) < configuration.devices + configuration.newConnections,
      let connections = connections[ObjectIdentifier(channel.eventLoop)]
    else {
      newcomers.withdraw()
      return channel.close()
    }
    guard newcomers.add(id, channel, from: address) else { return channel.close() }
    openCount.add(1, ordering: .relaxed)
    // One callback, since each costs memory for as long as the connection lives.
    channel.closeFuture.whenComplete { _ in
      self.openCount.subtract(1, ordering: .relaxed)
      self.newcomers.remove(id, from: address)
      connections.value[id] = nil
    }
    return channel.eventLoop.makeCompletedFuture { [newcomers] in
      let connection = DeviceConnection(channel, id, relay) { newcomers.remove(id, from: address) }
      connections.value[id] = connection
      let pipeline = channel.pipeline.syncOperations
      try pipeline.addHandler(FirstBytes { newcomers.hasSent(id, from: address) })
      if let tls { try pipeline.addHandler(NIOSSLServerHandler(context: tls)) }
      let refusal = UpgradeRefusal(relay.logger, address: address)
      let boundRefusal = NIOLoopBound(refusal, eventLoop: channel.eventLoop)
      try pipeline.configureHTTPServerPipeline(
        withServerUpgrade: (
          upgraders: [upgrader(NIOLoopBound(connection, eventLoop: channel.eventLoop))],
          completionHandler: { _ in
            channel.pipeline.syncOperations.removeHandler(boundRefusal.value, promise: nil)
          }
        ))
      try pipeline.addHandler(refusal)
    }
  }

  private func upgrader(_ connection: NIOLoopBound<DeviceConnection>) -> NIOWebSocketServerUpgrader {
    NIOWebSocketServerUpgrader(
      maxFrameSize: FrameLimits.deviceMessage, automaticErrorHandling: false,
      shouldUpgrade: { channel, head in
        let isOurs = head.uri == Self.path && UpgradeRefusal.hasSubprotocol(head)
        return channel.eventLoop.makeSucceededFuture(
          isOurs ? HTTPHeaders([("Sec-WebSocket-Protocol", Self.subprotocol)]) : nil)
      },
      upgradePipelineHandler: { channel, _ in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(connection.value)
        }
      })
  }
}

/// Answers requests that open no WebSocket of ours.
private final class UpgradeRefusal: ChannelInboundHandler, RemovableChannelHandler {
  typealias InboundIn = HTTPServerRequestPart
  typealias OutboundOut = HTTPServerResponsePart

  private let logger: Logger
  private let address: String

  init(_ logger: Logger, address: String) {
    self.logger = logger
    self.address = address
  }

  static func hasSubprotocol(_ head: HTTPRequestHead) -> Bool {
    head.headers[canonicalForm: "Sec-WebSocket-Protocol"].contains { $0 == DeviceServer.subprotocol }
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard case .head(let head) = unwrapInboundIn(data) else { return }
    let isUpgrade = head.headers[canonicalForm: "Upgrade"].contains { $0.lowercased() == "websocket" }
    let (status, text): (HTTPResponseStatus, String)
    if head.uri != DeviceServer.path {
      (status, text) = (.notFound, "devices connect to \(DeviceServer.path)\n")
    } else if !isUpgrade {
      (status, text) = (.upgradeRequired, "this is a WebSocket\n")
    } else {
      (status, text) = (.badRequest, "the subprotocol is \(DeviceServer.subprotocol)\n")
    }
    var headers = HTTPHeaders([
      ("Content-Type", "text/plain"), ("Content-Length", "\(text.utf8.count)"), ("Connection", "close"),
    ])
    if status == .upgradeRequired { headers.add(name: "Upgrade", value: "websocket") }
    context.write(
      wrapOutboundOut(.head(HTTPResponseHead(version: .http1_1, status: status, headers: headers))),
      promise: nil)
    context.write(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(string: text)))), promise: nil)
    let channel = context.channel
    context.writeAndFlush(wrapOutboundOut(.end(nil))).whenComplete { _ in channel.close(promise: nil) }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    // The request of an upgrade that was refused follows.
    if error is NIOWebSocketUpgradeError { return }
    logger.debug(
      "a device cannot connect", metadata: ["address": "\(address)", "reason": "\(error)"])
    context.close(promise: nil)
  }
}
