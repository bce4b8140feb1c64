import Foundation
import Locks
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import NIOWebSocket
import PushClient
import PushWire
import Synchronization

/// Many devices with one channel each, in one process, as small as they can be: they acknowledge what
/// arrives and note when.
final class Devices: Sendable {
  struct Device: Sendable {
    var secret: Data
    var channel: ChannelID
    var token: String?
    var taken: UInt64 = 0
    var isOpen = false
    /// Messages since the last look.
    var messages: [(text: String, time: UInt64)] = []
  }

  private let devices: Guarded<[Device]>
  private let openCount = Atomic<Int>(0)
  private let messageCount = Atomic<Int>(0)
  private let address: SocketAddress
  private let tls: NIOSSLContext?
  private let group: any EventLoopGroup
  /// Neither Hello nor Open is sent: for a server that knows none.
  private let isBare: Bool

  init(count: Int, port: Int, tls: NIOSSLContext?, isBare: Bool, group: any EventLoopGroup) throws {
    var generator = SystemRandomNumberGenerator()
    devices = Guarded(
      (0..<count).map { _ in
        Device(
          secret: Data((0..<32).map { _ in UInt8.random(in: .min ... .max, using: &generator) }),
          channel: .random())
      })
    address = try SocketAddress(ipAddress: "127.0.0.1", port: port)
    self.tls = tls
    self.isBare = isBare
    self.group = group
  }

  var tokens: [String] { devices.withLock { $0.compactMap(\.token) } }
  var open: Int { openCount.load(ordering: .relaxed) }
  var messages: Int { messageCount.load(ordering: .relaxed) }

  /// What has arrived at each device since the last call.
  func takeMessages() -> [[(text: String, time: UInt64)]] {
    devices.withLock { devices in
      let messages = devices.map(\.messages)
      for index in devices.indices { devices[index].messages = [] }
      return messages
    }
  }

  /// Connects some of the devices, so many at once.
  func connect(_ range: Range<Int>, atOnce: Int) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      var next = range.lowerBound
      for _ in 0..<min(atOnce, range.count) {
        group.addTask { [next] in try await self.connect(next) }
        next += 1
      }
      while try await group.next() != nil {
        guard next < range.upperBound else { continue }
        group.addTask { [next] in try await self.connect(next) }
        next += 1
      }
    }
  }

  /// Connects all devices, each by itself, after the random times of the protocol.
  func connectAgain() async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      for index in devices.withLock({ $0.indices }) {
        group.addTask { try await self.connectAgain(index) }
      }
      try await group.waitForAll()
    }
  }

  private func connectAgain(_ index: Int) async throws {
    var generator = SystemRandomNumberGenerator()
    var delay = ReconnectDelay()
    var seconds = delay.afterLoss(using: &generator)
    while true {
      try await Task.sleep(for: .seconds(seconds))
      do {
        return try await connectOnce(index)
      } catch let refusal as Refusal {
        seconds = delay.after(
          refusal.reason, retryAfterSeconds: refusal.retryAfterSeconds, using: &generator)
      } catch {
        seconds = delay.afterLoss(using: &generator)
      }
    }
  }

  /// The relay has ended the connection.
  private struct Refusal: Error {
    let reason: GoodbyeReason
    let retryAfterSeconds: UInt32
  }

  private func connect(_ index: Int) async throws {
    for attempt in 0... {
      do {
        return try await connectOnce(index)
      } catch  where attempt < 200 {
        try await Task.sleep(for: .milliseconds(Int.random(in: 20...200)))
      }
    }
  }

  private func connectOnce(_ index: Int) async throws {
    let upgrade = try await ClientBootstrap(group: group)
      // The relay bounds what comes from one address.
      .bind(to: SocketAddress(ipAddress: "127.0.0.\(1 + index % 250)", port: 0))
      .connect(to: address) { channel in
        channel.eventLoop.makeCompletedFuture { try self.configure(channel, index) }
      }
    try await upgrade.get()
  }

  private func configure(_ channel: any Channel, _ index: Int) throws -> EventLoopFuture<Void> {
    if let tls {
      try channel.pipeline.syncOperations.addHandler(
        NIOSSLClientHandler(context: tls, serverHostname: "localhost"))
    }
    let opened = channel.eventLoop.makePromise(of: Void.self)
    channel.closeFuture.whenComplete { _ in
      self.devices.withLock { devices in
        if devices[index].isOpen { self.openCount.subtract(1, ordering: .relaxed) }
        devices[index].isOpen = false
      }
      opened.fail(ChannelError.eof)
    }
    let handler = NIOLoopBound(Handler(self, index, opened), eventLoop: channel.eventLoop)
    let upgrader = NIOTypedWebSocketClientUpgrader<Void>(maxFrameSize: FrameLimits.relayMessage) {
      channel, _ in
      channel.eventLoop.makeCompletedFuture {
        try channel.pipeline.syncOperations.addHandler(handler.value)
      }
    }
    let head = HTTPRequestHead(
      version: .http1_1, method: .GET, uri: "/device",
      headers: ["Host": "localhost", "Sec-WebSocket-Protocol": "dynamics-push.v1"])
    let upgraded = try channel.pipeline.syncOperations.configureUpgradableHTTPClientPipeline(
      configuration: NIOUpgradableHTTPClientPipelineConfiguration(
        upgradeConfiguration: NIOTypedHTTPClientUpgradeConfiguration(
          upgradeRequestHead: head, upgraders: [upgrader],
          notUpgradingCompletionHandler: { $0.eventLoop.makeFailedFuture(ChannelError.eof) })))
    // The handlers of HTTP are gone only now.
    return upgraded.flatMap {
      handler.value.start(channel)
      return opened.futureResult
    }
  }

  private final class Handler: ChannelInboundHandler {
    typealias InboundIn = WebSocketFrame

    private let devices: Devices
    private let index: Int
    private let opened: EventLoopPromise<Void>

    init(_ devices: Devices, _ index: Int, _ opened: EventLoopPromise<Void>) {
      self.devices = devices
      self.index = index
      self.opened = opened
    }

    func start(_ channel: any Channel) {
      if devices.isBare { return finishOpening() }
      let device = devices.devices.withLock { $0[index] }
      send(.hello(DeviceFrame.Hello(deviceSecret: device.secret, heartbeatSeconds: 3600)), channel)
      send(.open(device.channel, isKnown: device.token != nil, taken: device.taken), channel)
    }

    private func send(_ frame: DeviceFrame, _ channel: any Channel) {
      let data = ByteBuffer(bytes: frame.bytes)
      channel.writeAndFlush(
        WebSocketFrame(fin: true, opcode: .binary, maskKey: .random(), data: data), promise: nil)
    }

    private func finishOpening() {
      devices.openCount.add(1, ordering: .relaxed)
      devices.devices.withLock { $0[index].isOpen = true }
      opened.succeed()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      let frame = unwrapInboundIn(data)
      guard frame.opcode == .binary,
        let message = try? RelayFrame(bytes: Data(frame.unmaskedData.readableBytesView))
      else { return }
      switch message {
      case .welcome: break
      case .opened(_, let token, _):
        devices.devices.withLock { $0[index].token = token }
        finishOpening()
      case .event(let channel, let sequence, let event):
        let now = DispatchTime.now().uptimeNanoseconds
        devices.devices.withLock { devices in
          devices[index].taken = sequence
          if case .message(let message) = event {
            devices[index].messages.append((String(decoding: message.body, as: UTF8.self), now))
          }
        }
        devices.messageCount.add(1, ordering: .relaxed)
        send(.taken(channel, through: sequence), context.channel)
      case .goodbye(let reason, let retryAfterSeconds):
        opened.fail(Refusal(reason: reason, retryAfterSeconds: retryAfterSeconds))
        context.close(promise: nil)
      case .failed: context.close(promise: nil)
      }
    }
  }
}
