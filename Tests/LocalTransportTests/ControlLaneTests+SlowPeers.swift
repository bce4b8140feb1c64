import ServiceWire
import Synchronization
import Testing

@testable import LocalTransport

/// A peer that does not read.
extension ControlLaneTests {
  @Test func tellsThatItIsFullAndThatItIsNotAnyMore() async throws {
    var limits = LaneLimits.patient
    limits.queuedByteCountMax = 1 << 20
    let (_, lane, near, peer) = try await openLoosely(limits: limits)
    peer.setReads(false)
    var count = 0
    repeat {
      try lane.send([.filler(byteCount: 100_000)])
      count += 1
      // More than the socket may still take of it.
    } while lane.queuedByteCount <= 2 * limits.queuedByteCountMax
    #expect(await near.next() == .isFull(true))
    #expect(lane.queuedByteCount > limits.queuedByteCountMax)
    peer.setReads(true)
    #expect(await near.next() == .isFull(false))
    #expect(lane.queuedByteCount <= limits.queuedByteCountMax / 2)
    try lane.send([.ping(1)])
    async let frames = peer.frames()
    peer.write(try WireChannelMessage.goodbye(0).frame(byteCountMax: 100))
    #expect(await near.end() == LaneEnd(.peer, .noError))
    _ = try await frames
    #expect(count > 10)
  }

  @Test func saysThatThereIsRoomToWhoAsksForIt() async throws {
    let limits = LaneLimits.patient
    let (_, lane, near, peer) = try await openLoosely(limits: limits)
    // Nothing waits.
    lane.awaitRoom()
    #expect(await near.next() == .isFull(false))
    // More than half of the limit, and less than the limit.
    peer.setReads(false)
    for _ in 0..<35 { try lane.send([.filler(byteCount: 100_000)]) }
    lane.awaitRoom()
    peer.setReads(true)
    #expect(await near.next() == .isFull(false))
    #expect(lane.queuedByteCount <= limits.queuedByteCountMax / 2)
    async let frames = peer.frames()
    peer.write(try WireChannelMessage.goodbye(0).frame(byteCountMax: 100))
    #expect(await near.end() == LaneEnd(.peer, .noError))
    _ = try await frames
  }

  @Test func endsALaneWhosePeerReadsNothing() async throws {
    var limits = LaneLimits.patient
    limits.idleTime = .milliseconds(200)
    let (sockets, lane, near, peer) = try await openLoosely(limits: limits)
    peer.setReads(false)
    for _ in 0..<100 { try lane.send([.filler(byteCount: 100_000)]) }
    #expect(await near.end()?.fault == .tooSlow)
    #expect(lane.queuedByteCount == 0)
    #expect(!sockets.isNearOpen)
    peer.breakOff()
  }

  /// In the socket's queue each message would take thousands of bytes.
  @Test func handsNoMoreToTheSocketThanOneWriteUntilItIsTaken() async throws {
    var limits = LaneLimits.patient
    limits.lingerTime = .seconds(600)
    limits.queuedByteCountMax = 500_000
    let (_, lane, near, peer) = try await openLoosely(limits: limits)
    peer.setReads(false)
    let sent = [WireChannelMessage.filler(byteCount: 1_000_000)] + (0..<10_000).map { .ping($0) }
    for message in sent { try lane.send([message]) }
    // The socket takes no more.
    #expect(await near.next() == .isFull(true))
    let handedByteCount = lane.output.withLock { $0.sealedByteCount }
    let writeByteCountMax = LaneOutput.writeByteCountMax
    #expect(handedByteCount > 0)
    #expect(handedByteCount <= writeByteCountMax + writeByteCountMax / 100)
    #expect(lane.queuedByteCount > 700_000)
    // What waited comes whole, in order, and before the goodbye.
    lane.close(.noError)
    peer.setReads(true)
    #expect(try await peer.frames() == sent + [.goodbye(0)])
    #expect(await near.end() == LaneEnd(.here, .noError))
  }

  /// Also when no goodbye takes everything along.
  @Test func goesOnWithWhatWaitedWhenThePeerReads() async throws {
    let (near, far) = try await world.openLanes()
    let sent = (0..<40).map { WireChannelMessage.filler(byteCount: 100_000 + $0) }
    for message in sent { try near.0.send([message]) }
    #expect(await far.1.messages(sent.count) == sent)
    near.0.close(.noError)
  }

  /// That more is sent is no sign that the peer reads.
  @Test func endsALaneWhosePeerReadsNothingWhileMoreIsSent() async throws {
    var limits = LaneLimits.patient
    limits.idleTime = .milliseconds(200)
    let (_, lane, near, peer) = try await openLoosely(limits: limits)
    peer.setReads(false)
    try lane.send([.filler(byteCount: 1_000_000)])
    let pingCount = Atomic(0)
    let pings = Task {
      while !Task.isCancelled {
        try lane.send([.ping(1)])
        // In time for the lane to end before: ten times as long.
        if pingCount.add(1, ordering: .relaxed).newValue == 100 { lane.close(.noError) }
        try await Task.sleep(for: .milliseconds(20))
      }
    }
    #expect(await near.end()?.fault == .tooSlow)
    pings.cancel()
    peer.breakOff()
  }

  /// The peer does not even begin the handshake, so all of it waits.
  @Test func endsALaneForWhichTooMuchWaits() async throws {
    var limits = LaneLimits.patient
    #expect(limits.queuedFactorMax == 4)
    limits.queuedByteCountMax = 1000
    let sockets = try SocketPair()
    let (lane, near) = try world.lane(isDialler: false, sockets.near, limits: limits)
    for _ in 0..<40 { try lane.send([.filler(byteCount: 96)]) }
    #expect(lane.queuedByteCount == 4000)
    #expect(await near.next() == .isFull(true))
    #expect(sockets.isNearOpen)
    try lane.send([.ping(1)])
    #expect(await near.end() == LaneEnd(.here, .tooSlow, "too much waits to be written"))
    #expect(!sockets.isNearOpen)
    sockets.closeFar()
  }
}
