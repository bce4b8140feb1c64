import Foundation
import GRDB
import Locks
import NIOCore
import NIOEmbedded
import NIOWebSocket
import PushWire
import TestSupport
import Testing

@testable import PushChannels
@testable import PushClient

struct WebPushKeysTests {
  /// RFC 8291, appendix A.
  @Test func opensTheExampleOfTheStandard() throws {
    let key = try #require(Data(base64URL: "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"))
    let secret = try #require(Data(base64URL: "BTBZMqHH6r4Tts7J_aSIgg"))
    let body = try #require(
      Data(
        base64URL:
          "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
      ))
    let keys = try #require(WebPushKeys(bytes: key + secret))
    #expect(
      keys.publicKeys.publicKeyBase64URL
        == "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4")
    #expect(
      String(decoding: try keys.open(body), as: UTF8.self) == "When I grow up, I want to be a watermelon")
    // The size of a record is not authenticated, and any that holds the whole body is the same.
    for index in body.indices where !(16..<20).contains(index) && (index < 24 || index % 5 == 0) {
      var damaged = body
      damaged[index] ^= 1
      #expect(throws: (any Error).self) { try keys.open(damaged) }
    }
    for count in stride(from: 0, to: body.count, by: 9) {
      #expect(throws: (any Error).self) { try keys.open(body.prefix(count)) }
    }
  }
}

struct ReconnectDelayTests {
  @Test func growsToAMinuteAndBeginsAgain() {
    var generator = SplitMix64(seed: 1)
    var delay = ReconnectDelay()
    var longest: [Double] = []
    for failure in 1...20 {
      let seconds = delay.afterLoss(using: &generator)
      #expect((0...min(60, 0.5 * pow(2, Double(failure)))).contains(seconds))
      longest.append(seconds)
    }
    #expect(longest.max()! > 30)
    delay.succeeded()
    #expect(delay.afterLoss(using: &generator) <= 1)
  }

  @Test func waitsAsLongAsTheRelayAsks() {
    var generator = SplitMix64(seed: 1)
    var delay = ReconnectDelay()
    for _ in 0..<100 {
      #expect((10...20).contains(delay.after(.draining, retryAfterSeconds: 10, using: &generator)))
      #expect((1...2).contains(delay.after(.slow, retryAfterSeconds: 0, using: &generator)))
      #expect((3600...7200).contains(delay.after(.notAdmitted, retryAfterSeconds: 0, using: &generator)))
    }
  }
}

struct RelayAddressTests {
  @Test(arguments: [
    ("wss://push.example", "push.example", 443, true),
    ("wss://push.example:17434/device", "push.example", 17434, true),
    ("ws://127.0.0.1:8080", "127.0.0.1", 8080, false), ("wss://[::1]:1/", "::1", 1, true),
  ])
  func readsRelays(text: String, host: String, port: Int, isSecure: Bool) throws {
    let address = try RelayAddress(try #require(URL(string: text)))
    #expect(address.host == host && address.port == port && address.isSecure == isSecure)
  }

  /// Plain WebSocket is for this machine.
  @Test(arguments: ["ws://push.example", "https://push.example", "wss://", "wss://u@x", "wss://x/other", "x"])
  func refusesTheRest(_ text: String) throws {
    #expect(throws: PushError.self) { try RelayAddress(URL(string: text)!) }
  }
}

struct RelayConnectionTests {
  private static func pings(_ channel: EmbeddedChannel) throws -> Int {
    var count = 0
    while let frame = try channel.readOutbound(as: WebSocketFrame.self) {
      if frame.opcode == .ping { count += 1 }
    }
    return count
  }

  private static func answer(_ channel: EmbeddedChannel) throws {
    try channel.writeInbound(WebSocketFrame(fin: true, opcode: .pong, data: ByteBuffer()))
  }

  /// The relay hears of the device at least once in each heartbeat.
  @Test func aPingFollowsAHeartbeatAfterTheLastWrite() throws {
    let channel = EmbeddedChannel()
    let connection = RelayConnection(channel) { _ in }
    try channel.pipeline.syncOperations.addHandler(connection)
    connection.startHeartbeat(seconds: 60)
    channel.embeddedEventLoop.advanceTime(by: .seconds(1))
    connection.send(.close(.random()))
    channel.embeddedEventLoop.advanceTime(by: .seconds(59))
    #expect(try Self.pings(channel) == 0)
    channel.embeddedEventLoop.advanceTime(by: .seconds(1))
    #expect(try Self.pings(channel) == 1)
    try Self.answer(channel)
    channel.embeddedEventLoop.advanceTime(by: .seconds(60))
    #expect(try Self.pings(channel) == 1)
    connection.close()
    channel.embeddedEventLoop.advanceTime(by: .seconds(600))
    _ = try? channel.finish()
  }

  @Test func aPingWithoutAnAnswerEndsTheConnection() throws {
    let channel = EmbeddedChannel()
    let ends = Guarded(0)
    let connection = RelayConnection(channel) { event in
      if case .ended = event { ends.withLock { $0 += 1 } }
    }
    try channel.pipeline.syncOperations.addHandler(connection)
    connection.ping(within: .seconds(3))
    channel.embeddedEventLoop.advanceTime(by: .seconds(2))
    // Another one does not give the relay more time.
    connection.ping(within: .seconds(3))
    try Self.answer(channel)
    channel.embeddedEventLoop.advanceTime(by: .seconds(2))
    #expect(ends.withLock { $0 } == 0)
    connection.ping(within: .seconds(10))
    connection.ping(within: .seconds(3))
    channel.embeddedEventLoop.advanceTime(by: .seconds(3))
    #expect(ends.withLock { $0 } == 1)
    #expect(try Self.pings(channel) == 3)
    _ = try? channel.finish()
  }
}

struct DeviceStorageTests {
  static let key = Data((0..<32).map { UInt8($0) })

  @Test func keepsChannelsAndEventsAndItsSecret() throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: "push-\(UUID().uuidString)")
    defer { try? FileManager.default.removeItem(at: folder) }
    var record = ChannelBook.Record(id: .random(), identifier: "inbox", keys: Data(count: 48))
    (record.token, record.stored, record.isEnded) = ("a b c d", 7, true)
    let event = ChannelEvent.message(PushMessage(body: Data("secret text".utf8), accepted: 5))
    var storage = try DeviceStorage(directory: folder, key: Self.key)
    let secret = try storage.load().secret
    try storage.perform(
      [.save(record), .saveEvent(record.id, sequence: 6, event), .saveEvent(record.id, sequence: 7, event)],
      isDurable: true)
    try storage.perform([.removeEvent(record.id, sequence: 6)], isDurable: false)
    storage.close()
    storage = try DeviceStorage(directory: folder, key: Self.key)
    let state = try storage.load()
    #expect(state.secret == secret && secret.count == 32 && state.records == [record])
    #expect(state.events[record.id]?.map(\.sequence) == [7] && state.events[record.id]?.first?.event == event)
    // Either all of a change or nothing.
    try storage.perform([.remove(record.id)], isDurable: true)
    #expect(try storage.load().records == [])
    storage.close()
    let bytes = try Data(contentsOf: folder.appending(path: "push.sqlite"))
    #expect(bytes.range(of: Data("inbox".utf8)) == nil && bytes.range(of: Data("secret text".utf8)) == nil)
  }

  @Test func anEventInAnotherRowIsRefused() throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: "push-\(UUID().uuidString)")
    defer { try? FileManager.default.removeItem(at: folder) }
    let record = ChannelBook.Record(id: .random(), identifier: "inbox")
    let storage = try DeviceStorage(directory: folder, key: Self.key)
    try storage.perform(
      [
        .save(record), .saveEvent(record.id, sequence: 1, .closed),
        .saveEvent(record.id, sequence: 2, .closed),
      ],
      isDurable: true)
    #expect(try storage.load().records == [record])
    try storage.queue.write { try $0.execute(sql: "UPDATE event SET sequence = 3 WHERE sequence = 1") }
    #expect(throws: PushError.self) { try storage.load() }
    storage.close()
  }
}
