import Foundation
import ServiceWire
import SodiumPrimitives
import Testing

@testable import LocalTransport

/// The records of a sealed socket: what is not the next one ends the lane, without a word.
@Suite(.timeLimit(.minutes(10)))
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

  /// Also in its length. There is always as much as it may say.
  @Test func endsOnARecordThatWasChanged() async throws {
    let byteCount = try await open().1.record([.ping(1)]).count
    for i in 0..<byteCount {
      let (near, peer) = try await open()
      let first = try peer.record([.ping(1)])
      var record = try peer.record([.ping(2)])
      record[i] ^= 1 << UInt8(i % 8)
      peer.sockets.offer(first + record + [UInt8](repeating: 0, count: 1 << 16))
      #expect(await near.messages(1) == [.ping(1)])
      guard case .closed(let end)? = await near.next() else {
        Issue.record("byte \(i)")
        continue
      }
      #expect(end.side == .here && end.fault == .malformed, "byte \(i)")
      await peer.expectSilentEnd()
    }
  }

  enum Order: CaseIterable { case repeated, swapped, leftOut, cut }

  @Test(arguments: Order.allCases) func endsOnARecordThatIsNotTheNext(order: Order) async throws {
    let (near, peer) = try await open()
    let records = try (1...3).map { try peer.record([.ping($0)]) }
    let bytes =
      switch order {
      case .repeated: records[0] + records[0]
      case .swapped: records[0] + records[2] + records[1]
      case .leftOut: records[0] + records[2]
      // One byte alone may be the one that follows.
      case .cut: records[0] + records[1].dropLast(8) + records[2]
      }
    peer.sockets.write(bytes)
    #expect(await near.messages(1) == [.ping(1)])
    #expect(await near.next() == .closed(LaneEnd(.here, .malformed, "a record that does not open")))
    await peer.expectSilentEnd()
  }

  /// It has another key than what comes from the other side.
  @Test func endsOnItsOwnRecord() async throws {
    let sockets = try SocketPair()
    let (lane, near) = try world.lane(isDialler: false, sockets.near)
    let peer = try await PeerByHand(sockets, world.farSealing(isDialler: true))
    #expect(await near.next() == .opened)
    try lane.send([.ping(1)])
    let byteCount = try WireChannelMessage.ping(1).frame(byteCountMax: 100).count
    sockets.write(await sockets.read(byteCount + RecordCipher.overheadByteCount))
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

  @Test func manyMessagesMayBeInOneRecord() async throws {
    let sockets = try SocketPair()
    let (lane, near) = try world.lane(isDialler: false, sockets.near)
    let peer = try await PeerByHand(sockets, world.farSealing(isDialler: true))
    #expect(await near.next() == .opened)
    let messages = (0..<100).map { WireChannelMessage.ping($0) }
    sockets.write(try peer.record(messages))
    #expect(await near.messages(100) == messages)
    // What is sent together goes in one, too.
    try lane.send(messages)
    var frames: [UInt8] = []
    for message in messages { try message.appendFrame(to: &frames, byteCountMax: 100) }
    #expect(try await peer.read() == frames)
    sockets.closeFar()
    #expect(await near.end()?.fault == .connectionLost)
  }

  /// No record is shorter than it must be.
  @Test func aFrameIsInAsFewRecordsAsItCan() async throws {
    let sockets = try SocketPair()
    let (lane, near) = try world.lane(isDialler: false, sockets.near)
    let peer = try await PeerByHand(sockets, world.farSealing(isDialler: true))
    #expect(await near.next() == .opened)
    let message = WireChannelMessage.filler(byteCount: 100_000)
    try lane.send([message])
    let (first, second) = (try await peer.read() ?? [], try await peer.read() ?? [])
    #expect(first.count == 65_519)
    #expect(Data(first + second) == (try message.frame(byteCountMax: 100_000)))
    sockets.closeFar()
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
