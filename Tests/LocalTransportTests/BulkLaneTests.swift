import Foundation
import ServiceWire
import SodiumPrimitives
import Synchronization
import TestSupport
import Testing

@testable import LocalTransport

/// Streams between two lanes, and between a lane and a bare socket.
@Suite(.timeLimit(.minutes(10)))
struct BulkLaneTests {
  static let message = BulkFrame.messageByteCountMax

  @Test(arguments: BulkPair.slotCounts) func carriesManyStreamsBothWaysAtOnce(slots: Int) async throws {
    let seed = UInt64.random(in: 0...UInt64.max)
    var random = SplitMix64(seed: seed)
    let pool = Random.bytes(4 << 20)
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    let m = Self.message
    let edges = [1, m - 1, m, m + 1, 2 * m, BulkLane.readByteCount, BulkLane.readByteCount + 1]
    let sizes = edges + (0..<13).map { _ in Int.random(in: 1...3 << 20, using: &random) }
    var sinks: [(ByteSink, [UInt8], UInt32)] = []
    for (index, size) in sizes.enumerated() {
      let start = Int.random(in: 0...pool.count - size, using: &random)
      let pieces = Int.random(in: 1...2 << 20, using: &random)
      for (sender, receiver) in [(pair.near, pair.far), (pair.far, pair.near)] {
        let stream = UInt32(index * 1000 + 7)
        let key = Data(Random.bytes(32))
        let bytes = Array(pool[start..<start + size])
        // Credit for some messages, raised as they come.
        let credit = UInt64(3 * m)
        let sink = ByteSink { [unowned sender, unowned receiver] count in
          receiver.raiseReceivingCredit(stream, to: UInt64(count) + credit)
          sender.raiseCredit(stream, to: UInt64(count) + credit)
        }
        sinks.append((sink, bytes, stream))
        receiver.expect(stream: stream, key: key, byteCount: UInt64(size), credit: credit, sink: sink)
        sender.send(
          stream: stream, key: key, byteCount: UInt64(size), credit: credit,
          from: ByteSource(bytes, pieces: pieces))
      }
    }
    for log in [pair.nearLog, pair.farLog] {
      let events = await log.next(2 * sizes.count)
      for index in sizes.indices {
        let stream = UInt32(index * 1000 + 7)
        #expect(events.count { $0 == .sent(stream) } == 1, "seed \(seed)")
        #expect(events.count { $0 == .received(stream) } == 1, "seed \(seed)")
      }
    }
    for (sink, bytes, stream) in sinks { #expect(sink.bytes == bytes, "stream \(stream), seed \(seed)") }
  }

  @Test func writesWhatTheProtocolSays() async throws {
    let world = try BulkWorld()
    let key = Data(Random.bytes(32))
    let bytes = Random.bytes(2 * Self.message + 5)
    world.lane?.send(
      stream: 0x0102_0304, key: key, byteCount: UInt64(bytes.count), credit: .max,
      from: ByteSource(bytes, pieces: 1000))
    let header = await world.read(8 + 24)
    #expect(Array(header.prefix(8)) == [4, 3, 2, 1, 24, 0, 0, 0])
    let opening = StreamByHand(key: key, header: header[8...])
    var plaintext: [UInt8] = []
    for (count, tag) in [
      (Self.message, SecretStreamTag.message), (Self.message, .message), (5, .final),
    ] {
      let (stream, body) = try await world.readFrame()
      #expect(stream == 0x0102_0304)
      try #require(body.count == count + 17)
      let opened = try opening.open(body)
      #expect(opened.tag == tag)
      plaintext += opened.plaintext
    }
    #expect(plaintext == bytes)
    #expect(await world.log.next() == .sent(0x0102_0304))
    world.lane?.close()
  }

  @Test(arguments: BulkPair.slotCounts) func endsASmallStreamBesideALargeOneEarly(slots: Int) async throws {
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    let (began, smallWasSent) = (Signal(), DispatchSemaphore(value: 0))
    let large = ByteSink {
      if $0 == Self.message {
        began.fire()
        smallWasSent.wait()
      }
    }
    pair.carry(1, Random.bytes(16 << 20), to: large)
    await began.wait()
    pair.carry(2, Random.bytes(200_000), to: ByteSink())
    smallWasSent.signal()
    #expect(await pair.farLog.next(2) == [.received(2), .received(1)])
    #expect(await pair.nearLog.next(2) == [.sent(2), .sent(1)])
  }

  // MARK: Credit

  @Test func sendsNothingBeyondTheCredit() async throws {
    let world = try BulkWorld()
    let two = UInt64(2 * Self.message)
    world.lane?.send(
      stream: 1, key: Data(count: 32), byteCount: 2 * two, credit: two - 1,
      from: ByteSource(Random.bytes(Int(2 * two))))
    for length in [24, Self.message + 17] { try await world.expectFrame(1, length) }
    // Were there credit for it, stream 1's next message would come first.
    world.lane?.send(stream: 2, key: Data(count: 32), byteCount: 1, credit: 1, from: ByteSource([1]))
    for length in [24, 18] { try await world.expectFrame(2, length) }
    world.lane?.raiseCredit(1, to: two)
    try await world.expectFrame(1, Self.message + 17)
    world.lane?.raiseCredit(1, to: 0)
    world.lane?.raiseCredit(1, to: .max)
    for _ in 0..<2 { try await world.expectFrame(1, Self.message + 17) }
    #expect(await world.log.next(2) == [.sent(2), .sent(1)])
    world.lane?.close()
  }

  @Test func takesWhatIsWithinTheCreditAndNothingMore() async throws {
    for (credit, count) in [(Self.message, 1), (Self.message - 1, 0), (2 * Self.message - 1, 1)] {
      let world = try BulkWorld()
      let frames = FrameMaker(3)
      let sink = ByteSink()
      world.lane?.expect(
        stream: 3, key: frames.key, byteCount: UInt64(3 * Self.message), credit: UInt64(credit),
        sink: sink)
      let bytes = Random.bytes(Self.message)
      world.write(frames.headerFrame())
      for _ in 0...count { world.write(frames.message(bytes)) }
      #expect(await world.log.next() == .failed(.limitExceeded))
      #expect(sink.bytes.count == count * Self.message)
    }
  }

  // MARK: Ends of one stream

  @Test(arguments: BulkPair.slotCounts) func goesOnAfterAStreamWasStoppedAtBothSides(slots: Int) async throws
  {
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    let key = Data(Random.bytes(32))
    let came = Signal()
    let count = UInt64(8 << 20)
    let sink = ByteSink { if $0 == 1 << 20 { came.fire() } }
    pair.far.expect(stream: 1, key: key, byteCount: count, credit: count, sink: sink)
    pair.near.send(
      stream: 1, key: key, byteCount: count, credit: 1 << 20, from: ByteSource(Random.bytes(Int(count))))
    await came.wait()
    pair.near.stopSending(1)
    pair.far.stopReceiving(1)
    pair.near.raiseCredit(1, to: count)
    await pair.carriesOneMore(2)
    #expect(sink.bytes.count == 1 << 20)
  }

  @Test(arguments: BulkPair.slotCounts) func skipsWhatStillComesOfAStoppedStream(slots: Int) async throws {
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    let (began, goOn) = (Signal(), DispatchSemaphore(value: 0))
    let sink = ByteSink { _ in
      began.fire()
      goOn.wait()
    }
    pair.carry(1, Random.bytes(8 << 20), to: sink)
    await began.wait()
    pair.far.stopReceiving(1)
    goOn.signal()
    #expect(await pair.nearLog.next() == .sent(1))
    await pair.carriesOneMore(2)
    #expect(sink.bytes.count == Self.message)
  }

  /// Stopped before anything of it came: its header is skipped, too.
  @Test(arguments: BulkPair.slotCounts) func skipsAStreamThatWasStoppedBeforeItBegan(slots: Int) async throws
  {
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    let key = Data(Random.bytes(32))
    pair.far.expect(stream: 1, key: key, byteCount: 100_000, credit: 100_000, sink: ByteSink())
    pair.far.stopReceiving(1)
    pair.near.send(
      stream: 1, key: key, byteCount: 100_000, credit: 100_000, from: ByteSource(Random.bytes(100_000)))
    #expect(await pair.nearLog.next() == .sent(1))
    await pair.carriesOneMore(2)
  }

  @Test(arguments: BulkPair.slotCounts) func endsOneStreamWhenItsSinkThrows(slots: Int) async throws {
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    let sink = ByteSink { if $0 > Self.message { throw Broken() } }
    pair.carry(1, Random.bytes(4 << 20), to: sink)
    #expect(await pair.farLog.next() == .received(1, "broken"))
    #expect(await pair.nearLog.next() == .sent(1))
    await pair.carriesOneMore(2)
    #expect(sink.bytes.count == 2 * Self.message)
    // At the last message, too.
    pair.carry(3, Random.bytes(10), to: ByteSink { _ in throw Broken() })
    #expect(await pair.farLog.next() == .received(3, "broken"))
    #expect(await pair.nearLog.next() == .sent(3))
    await pair.carriesOneMore(4)
  }

  @Test(arguments: BulkPair.slotCounts) func endsOneStreamWhenItsSourceThrows(slots: Int) async throws {
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    let bytes = Random.bytes(2 * Self.message + 9)
    let sink = ByteSink()
    pair.carry(1, bytes, from: ByteSource(bytes, failsAtEnd: true), to: sink, announced: 1 << 20)
    #expect(await pair.nearLog.next() == .sent(1, "broken"))
    await pair.carriesOneMore(2)
    #expect(sink.bytes == Array(bytes.prefix(2 * Self.message)))
    pair.far.stopReceiving(1)
    await pair.carriesOneMore(3)
  }

  @Test(arguments: BulkPair.slotCounts) func sendsNoLastFrameOfASourceThatIsTooShortOrTooLong(slots: Int)
    async throws
  {
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    for (stream, count) in [(UInt32(1), 99_999), (2, 100_001)] {
      let bytes = Random.bytes(count)
      pair.carry(stream, bytes, to: ByteSink(), announced: 100_000)
      let error: BulkSourceError =
        count < 100_000
        ? .tooShort(byteCount: UInt64(count), announced: 100_000) : .tooLong(announced: 100_000)
      #expect(await pair.nearLog.next() == .sent(stream, "\(error)"))
      pair.far.stopReceiving(stream)
    }
    await pair.carriesOneMore(3)
  }

  // MARK: Ends of the lane

  @Test func closesWhileItWaitsToWrite() async throws {
    var world = try BulkWorld()
    world.lane?.send(
      stream: 1, key: Data(count: 32), byteCount: 64 << 20, credit: .max,
      from: ByteSource(Random.bytes(64 << 20)))
    // It writes sixteen messages with one call, which cannot end before much of them is read.
    #expect(await world.read(1).count == 1)
    world.lane?.close()
    await world.readToEnd()
    await world.untilClosed()
    world.lane?.close()
    world.letGo()
  }

  @Test func closesWhileItWaitsToReadAndWhileASinkWorks() async throws {
    for sendsFirst in [false, true] {
      let world = try BulkWorld()
      let (began, goOn) = (Signal(), DispatchSemaphore(value: 0))
      let frames = FrameMaker(1)
      world.lane?.expect(
        stream: 1, key: frames.key, byteCount: 10, credit: 10,
        sink: ByteSink { _ in
          began.fire()
          goOn.wait()
        })
      if sendsFirst {
        world.write(frames.headerFrame() + frames.message(Random.bytes(10), .final))
        await began.wait()
      }
      world.lane?.close()
      goOn.signal()
      await world.readToEnd()
      await world.untilClosed()
    }
  }

  @Test func hasNoThreadBeforeTheFirstStreamNorLongAfterTheLast() async throws {
    var world = try BulkWorld(idleTime: .milliseconds(1))
    let frames = FrameMaker(9)
    #expect(world.runs == [false, false])
    let sink = ByteSink()
    world.lane?.expect(stream: 9, key: frames.key, byteCount: 10, credit: 10, sink: sink)
    #expect(world.runs == [false, true])
    world.lane?.send(stream: 1, key: Data(count: 32), byteCount: 1, credit: 1, from: ByteSource([1]))
    world.write(frames.headerFrame() + frames.message(Array(0..<10), .final))
    let events = await world.log.next(2)
    #expect(events.contains(.received(9)) && events.contains(.sent(1)))
    #expect(sink.bytes == Array(0..<10))
    // Only its threads hold the lane now: the socket is closed when they have ended.
    world.letGo()
    await world.readToEnd()
    #expect(!world.sockets.isNearOpen)
  }

  /// New threads begin where the old ones have ended.
  @Test func carriesAStreamAfterItsThreadsEnded() async throws {
    let world = try BulkWorld(idleTime: .milliseconds(1))
    for stream: UInt32 in 1...5 {
      let frames = FrameMaker(stream)
      world.lane?.expect(stream: stream, key: frames.key, byteCount: 3, credit: 3, sink: ByteSink())
      world.write(frames.headerFrame() + frames.message([1, 2, 3], .final))
      #expect(await world.log.next() == .received(stream))
      world.lane?.send(
        stream: stream, key: Data(count: 32), byteCount: 1, credit: 1, from: ByteSource([1]))
      #expect(await world.log.next() == .sent(stream))
      while world.runs != [false, false] { await Task.yield() }
    }
    world.lane?.close()
  }

  @Test func saysThatItsDescriptorIsNoSocket() async throws {
    let log = BulkLog()
    var ends: [Int32] = [0, 0]
    #expect(pipe(&ends) == 0)
    let lane = BulkLane(descriptor: ends[0], events: log.events)
    lane.expect(stream: 1, key: Data(count: 32), byteCount: 1, credit: 1, sink: ByteSink())
    #expect(await log.next() == .failed(.connectionLost))
    close(ends[1])
  }

  /// A peer draws the numbers and keys that this side sends under.
  @Test func failsWhenThePeerAsksForWhatCannotBe() async throws {
    for (stream, keyByteCount) in [(UInt32(1), 32), (2, 31)] {
      let world = try BulkWorld()
      world.lane?.send(
        stream: 1, key: Data(count: 32), byteCount: 10, credit: 0, from: ByteSource([]))
      world.lane?.send(
        stream: stream, key: Data(count: keyByteCount), byteCount: 10, credit: 0,
        from: ByteSource([]))
      #expect(await world.log.next() == .failed(.malformed))
      await world.readToEnd()
    }
  }
}
