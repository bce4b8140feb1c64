import Foundation
import ServiceWire
import SodiumPrimitives
import Testing

@testable import LocalTransport

/// A lane between an app and the broker, and what each takes of the other.
@Suite(.timeLimit(.minutes(10)))
struct BrokerLaneTests {
  enum Event: Equatable, Sendable {
    case opened(peerKey: Data?)
    case received([WireBrokerMessage])
    case closed(LaneEnd)
  }

  let app: KeyPair
  let broker: KeyPair

  init() throws {
    app = try KeyPair()
    broker = try KeyPair()
  }

  private func lane(
    _ descriptor: Int32, _ sealing: LaneSealing
  ) throws -> (BrokerLane, AsyncStream<Event>.Iterator) {
    let (stream, continuation) = AsyncStream<Event>.makeStream()
    let lane = try BrokerLane.open(
      descriptor: descriptor, sealing: sealing, limits: .patient,
      events: LaneEvents(
        opened: { continuation.yield(.opened(peerKey: $0.peerPublicKey)) },
        received: { continuation.yield(.received($1)) }, closed: { continuation.yield(.closed($1)) }))
    return (lane, stream.makeAsyncIterator())
  }

  private func toBroker(_ broker: KeyPair) -> LaneSealing {
    .toBroker(own: app, broker: Data(broker.publicKey))
  }

  @Test func opensBetweenAnAppAndTheBroker() async throws {
    let sockets = try SocketPair()
    var (appLane, near) = try lane(sockets.near, toBroker(broker))
    var (brokerLane, far) = try lane(sockets.far, .asBroker(own: broker))
    #expect(await far.next() == .opened(peerKey: Data(app.publicKey)))
    #expect(await near.next() == .opened(peerKey: Data(broker.publicKey)))
    let question = WireBrokerMessage.with { $0.attend.name = "tool" }
    try appLane.send([question])
    #expect(await far.next() == .received([question]))
    let answer = WireBrokerMessage.with { $0.frontChanged = .init() }
    try brokerLane.send([answer])
    #expect(await near.next() == .received([answer]))
    brokerLane.close(.forgotten)
    #expect(await near.next() == .closed(LaneEnd(.peer, .forgotten)))
    #expect(await far.next() == .closed(LaneEnd(.here, .forgotten)))
  }

  /// A broker without the key cannot read what the app sends first, and says nothing.
  @Test func opensToNoOtherBroker() async throws {
    let sockets = try SocketPair()
    var (_, near) = try lane(sockets.near, toBroker(try KeyPair()))
    var (_, far) = try lane(sockets.far, .asBroker(own: broker))
    guard case .closed(let nearEnd)? = await near.next(), case .closed(let farEnd)? = await far.next() else {
      Issue.record("opened")
      return
    }
    #expect(nearEnd.side == .neither && nearEnd.fault == .connectionLost)
    #expect(farEnd.side == .here && farEnd.fault == .certificateNotFound)
    #expect(!sockets.isNearOpen)
  }

  /// Nor does it end up with one that answers all the same.
  @Test func opensToNoBrokerThatAnswersWithoutTheKey() async throws {
    let sockets = try SocketPair()
    var (_, near) = try lane(sockets.near, toBroker(broker))
    #expect(await sockets.read(98).prefix(2) == [96, 0])
    let other = try KeyPair()
    var client = try toBroker(other).handshake()
    var impostor = try LaneSealing.asBroker(own: other).handshake()
    _ = try impostor.read(client.write())
    sockets.write(SealingByHand.withLength(try impostor.write()))
    guard case .closed(let end)? = await near.next() else {
      Issue.record("opened")
      return
    }
    #expect(end.side == .here && end.fault == .certificateNotFound)
    #expect(await sockets.read(1).isEmpty)
    sockets.closeFar()
  }

  /// An app and a peer of a channel do not take one another, whatever the keys.
  @Test func opensToNoPeerOfAChannel() async throws {
    let sockets = try SocketPair()
    var (_, far) = try lane(sockets.far, .asBroker(own: broker))
    var (_, near) = try lane(
      sockets.near,
      .channel(isDialler: true, own: app, peer: Data(broker.publicKey), prologue: Prologue.broker))
    guard case .closed(let nearEnd)? = await near.next(), case .closed(let farEnd)? = await far.next() else {
      Issue.record("opened")
      return
    }
    #expect(nearEnd.side == .neither && nearEnd.fault == .connectionLost)
    #expect(farEnd.side == .here && farEnd.fault == .malformed)
  }

  @Test(arguments: [0, 31, 33, 64]) func closesTheDescriptorWhenTheBrokersKeyIsNone(byteCount: Int) throws {
    let sockets = try SocketPair()
    #expect(throws: ProtocolFault.malformed) {
      try lane(sockets.near, .toBroker(own: app, broker: Data(count: byteCount)))
    }
    #expect(!sockets.isNearOpen)
    sockets.closeFar()
  }
}
