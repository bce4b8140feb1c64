import CoreMetrics
import Foundation
import Logging
import PushWire
import TestSupport
import Testing

@testable import PushRelay

/// What every wire between nodes has to do. The nodes are relays that share a store.
struct NodeWireTests {
  static let wires: [@Sendable () -> any NodeWire] = [{ ProcessWire() }]

  /// A relay without sockets, and devices that are connected to it.
  final class Node {
    let relay: Relay

    init(_ store: any PushStore, _ wire: any NodeWire) {
      relay = Relay(
        configuration: RelayConfiguration(), store: store, vault: TokenVault(key: Data(count: 32)),
        wire: wire,
        caller: NoCalls(), metrics: RelayMetrics(factory: PrometheusMetrics()), logger: Logger(label: "test"))
    }

    func notify(_ token: String, _ text: String) async -> String {
      let request = BackEndRequest(
        method: "POST", target: "/GNP1.0?method=notify",
        headers: [("X-Good-GNP-Token", token), ("Content-Length", "\(text.utf8.count)")])
      let response = await relay.respond(to: request, from: "192.0.2.1") { _ in Data(text.utf8) }
      return response.headers.first { $0.name == "X-Good-GNP-Code" }!.value
    }
  }

  struct NoCalls: CallbackCalling {
    func call(_ request: CallbackRequest) async throws(CallbackFailure) -> CallbackResponse {
      throw .noConnection
    }
  }

  /// The device's end of a connection.
  final class Device: DeviceLink {
    let secret = Data((0..<32).map { _ in UInt8.random(in: .min ... .max) })
    private let frames = AsyncStream.makeStream(of: RelayFrame.self)

    func send(_ frame: RelayFrame) { frames.continuation.yield(frame) }
    func end(_ reason: GoodbyeReason, retryAfterSeconds: UInt32) {
      frames.continuation.yield(.goodbye(reason, retryAfterSeconds: retryAfterSeconds))
    }
    func finishedRequest() {}

    func next() async -> RelayFrame? {
      var iterator = frames.stream.makeAsyncIterator()
      return await iterator.next()
    }
  }

  static func connect(_ device: Device, to node: Node) async throws -> Hub.ConnectionID {
    let id = node.relay.makeConnectionID()
    let hello = DeviceFrame.Hello(deviceSecret: device.secret, heartbeatSeconds: 60)
    #expect(node.relay.hello(hello, at: "local", id, device) == 60)
    return id
  }

  static func open(
    _ channel: ChannelID, _ device: Device, _ id: Hub.ConnectionID, _ node: Node, isKnown: Bool = false
  ) async throws -> String {
    try node.relay.receive(
      .open(channel, isKnown: isKnown, taken: 0), from: TokenVault.key(ofDevice: device.secret),
      at: "192.0.2.2", id, device)
    guard case .opened(channel, let token, nil) = await device.next() else {
      throw StoreFailure(description: "not opened")
    }
    return token
  }

  @Test(arguments: wires.indices) func whatOneNodeStoresAnotherSends(_ index: Int) async throws {
    let folder = try TemporaryFolder()
    let store = try SQLiteStore(path: folder.url.appending(path: "push.sqlite").path)
    let wire = Self.wires[index]()
    let (first, second) = (Node(store, wire), Node(store, wire))
    let device = Device()
    let id = try await Self.connect(device, to: second)
    #expect(await device.next() == .welcome(heartbeatSeconds: 60, channelsMax: 256))
    let channel = ChannelID.random()
    let token = try await Self.open(channel, device, id, second)
    #expect(await first.notify(token, "over there") == "100 OK")
    guard case .event(channel, let sequence, .message(let message)) = await device.next() else {
      Issue.record()
      return
    }
    #expect(message.body == Data("over there".utf8))
    let number = try #require(try await store.channel(tokenHash: TokenVault.hash(token))).number
    #expect(await wire.sentThrough(number) == sequence)
    #expect(await wire.isConnected(number))

    // The device connects to the other node.
    let again = try await Self.connect(device, to: first)
    let frames = [await device.next(), await device.next()]
    #expect(frames.contains(.welcome(heartbeatSeconds: 60, channelsMax: 256)))
    #expect(frames.contains(.goodbye(.replaced, retryAfterSeconds: 0)))
    #expect(await second.notify(token, "x") == "403 Terminal is disconnected")
    #expect(try await Self.open(channel, device, again, first, isKnown: true) == token)
    guard case .event(channel, sequence, .message(message)) = await device.next() else {
      Issue.record()
      return
    }
    #expect(await second.notify(token, "back") == "100 OK")
    #expect(await wire.sentThrough(number) > sequence)
    // A node that is gone is not asked.
    first.relay.drain()
    #expect(await second.notify(token, "x") == "403 Terminal is disconnected")
  }
}
