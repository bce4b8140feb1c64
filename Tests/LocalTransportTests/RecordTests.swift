import Foundation
import ServiceWire
import SodiumPrimitives
import Testing

@testable import LocalTransport

/// The records of a sealed socket: what is not the next one ends the lane, without a word.
@Suite(.timeLimit(.minutes(10)), .everyPlace)
struct RecordTests {
  let world: LaneWorld

  init() throws { world = try LaneWorld() }

  private func open() async throws -> (EventLog, PeerByHand) {
    let sockets = try SocketPair()
    let (_, near) = try world.lane(isDialler: false, sockets.near)
    let peer = try await PeerByHand(sockets, world.farSealing(isDialler: true))
    #expect(await near.next() == .opened)
    return (near, peer)
  }

  /// What came before is delivered.
  private func expectEnd(_ bytes: [UInt8], _ detail: String) async throws {
    let (near, peer) = try await open()
    peer.sockets.write(try peer.record([.ping(1)]))
    #expect(await near.messages(1) == [.ping(1)])
    peer.sockets.write(bytes)
    #expect(await near.next() == .closed(LaneEnd(.here, .malformed, detail)))
    await peer.expectSilentEnd()
  }

  @Test(arguments: 0...16) func endsOnARecordThatIsTooShort(length: Int) async throws {
    try await expectEnd([UInt8(length), 0], "a record of \(length) bytes")
  }

  @Test func endsOnARecordThatWasChanged() async throws {
    let byteCount = try await open().1.record([.ping(1)]).count
    for i in 2..<byteCount {
      let (near, peer) = try await open()
      peer.sockets.write(try peer.record([.ping(1)]))
      #expect(await near.messages(1) == [.ping(1)])
      var record = try peer.record([.ping(2)])
      record[i] ^= 1 << UInt8(i % 8)
      peer.sockets.write(record)
      #expect(await near.next() == .closed(LaneEnd(.here, .malformed, "a record that does not open")))
      await peer.expectSilentEnd()
    }
  }

  enum Order: CaseIterable { case repeated, swapped, leftOut }

  @Test(arguments: Order.allCases) func endsOnARecordThatIsNotTheNext(order: Order) async throws {
    let (near, peer) = try await open()
    let records = try (1...3).map { try peer.record([.ping($0)]) }
    let bytes =
      switch order {
      case .repeated: records[0] + records[0]
      case .swapped: records[0] + records[2] + records[1]
      case .leftOut: records[0] + records[2]
      }
    peer.sockets.write(bytes)
    #expect(await near.messages(1) == [.ping(1)])
    #expect(await near.next() == .closed(LaneEnd(.here, .malformed, "a record that does not open")))
    await peer.expectSilentEnd()
  }

  @Test func aRecordThatIsCutIsABrokenConnection() async throws {
    let (near, peer) = try await open()
    let record = try peer.record([.ping(1)])
    peer.sockets.write(record.dropLast())
    peer.sockets.closeFar()
    let end = await near.end()
    #expect(end?.fault == .connectionLost && end?.side == .neither)
  }

  /// Frames know nothing of records.
  @Test func aFrameMayBeInManyRecords() async throws {
    let (near, peer) = try await open()
    var frames: [UInt8] = []
    let messages = (0..<3).map { WireChannelMessage.ping($0) } + [.filler(byteCount: 300)]
    for message in messages { try message.appendFrame(to: &frames, byteCountMax: 1 << 20) }
    for byte in frames { peer.sockets.write(try peer.sealing.record([byte])) }
    #expect(await near.messages(messages.count) == messages)
    peer.sockets.closeFar()
    #expect(await near.end()?.fault == .connectionLost)
  }

  /// The least and the most that one record holds, and one byte more.
  @Test(arguments: [1, 65_515, 65_516, 200_000]) func carriesAnyLength(byteCount: Int) async throws {
    let (near, far) = try await world.openLanes()
    let message = byteCount < 8 ? WireChannelMessage.ping(0) : .filler(byteCount: byteCount)
    try near.0.send([message])
    #expect(await far.1.messages(1) == [message])
    near.0.close(.noError)
  }
}
