import Foundation
import Locks
import ServiceWire
import SodiumPrimitives
import TestSupport
import Testing

@testable import LocalTransport

/// Streams between two lanes, and between a lane and a bare socket.
@Suite(.timeLimit(.minutes(10)))
struct BulkLaneTests {
  static let full = BulkFrame.contentsByteCountMax

  static func frames(_ count: Int, contents: Int = full) -> [PlainFrame] {
    let frame = PlainFrame.random(contents: contents)
    return (0..<count).map { PlainFrame(block: Random.bytes(20 + $0), contents: frame.contents) }
  }

  /// Frames of all lengths, some of whose contents are held for a while and released on other
  /// threads.
  @Test(arguments: BulkPair.slotCounts) func carriesManyStreamsBothWaysAtOnce(slots: Int) async throws {
    let seed = UInt64.random(in: 0...UInt64.max)
    var random = SplitMix64(seed: seed)
    let pool = Random.bytes(2 * Self.full)
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    let edges = [
      0, 1, BulkReader.byteCountMax, BulkMemoryPool.smallByteCountMax, BulkMemoryPool.smallByteCountMax + 1,
      Self.full - 1, Self.full,
    ]
    func frame() -> PlainFrame {
      let block = [12, BulkFrame.blockByteCountMax, Int.random(in: 12...5000, using: &random)]
      let contents = edges + [Int](repeating: Int.random(in: 0...300_000, using: &random), count: 7)
      let start = Int.random(in: 0...Self.full, using: &random)
      return PlainFrame(
        block: Random.bytes(block.randomElement(using: &random)!),
        contents: Array(pool[start..<start + contents.randomElement(using: &random)!]))
    }
    var sinks: [(FrameSink, [PlainFrame], UInt32)] = []
    let count: UInt32 = 12
    for stream in 1...count {
      for (sender, receiver) in [(pair.near, pair.far), (pair.far, pair.near)] {
        let key = Data(Random.bytes(32))
        let frames = (0..<Int.random(in: 1...9, using: &random)).map { _ in frame() }
        let own = Guarded<FrameSink?>(nil)
        let sink = FrameSink(holds: true) { [unowned sender, unowned receiver] count in
          receiver.raiseReceivingCredit(stream, to: UInt64(count) + 2)
          sender.raiseCredit(stream, to: UInt64(count) + 2)
          // What is held goes later, in another order.
          let sink = own.withLock { $0 }
          DispatchQueue.global().async { _ = sink?.take(count - 1) }
          if count == frames.count { own.withLock { $0 = nil } }
        }
        own.withLock { $0 = sink }
        sinks.append((sink, frames, stream))
        receiver.expect(stream: stream, key: key, credit: 2, sink: sink)
        sender.send(stream: stream, key: key, byteCount: 1, credit: 2, from: FrameSource(frames))
      }
    }
    for log in [pair.nearLog, pair.farLog] {
      let events = await log.next(2 * Int(count))
      for stream in 1...count {
        #expect(events.count { $0 == .sent(stream) } == 1, "seed \(seed)")
        #expect(events.count { $0 == .received(stream) } == 1, "seed \(seed)")
      }
    }
    for (sink, frames, stream) in sinks {
      #expect(sink.frames == frames, "stream \(stream), seed \(seed)")
      #expect(sink.isLast == frames.indices.map { $0 == frames.count - 1 }, "seed \(seed)")
    }
  }

  @Test func writesWhatTheProtocolSays() async throws {
    let world = try BulkWorld()
    let key = Data(Random.bytes(32))
    let frames = [
      PlainFrame.random(block: 12, contents: Self.full),
      .random(block: BulkFrame.blockByteCountMax, contents: 0), .random(block: 64, contents: 5),
    ]
    world.lane?.send(
      stream: 0x0102_0304, key: key, byteCount: 1, credit: 3, from: FrameSource(frames))
    var opening: StreamByHand?
    for (index, frame) in frames.enumerated() {
      let count = frame.block.count + 17 + (index == 0 ? 24 : 0)
      let header = FrameMaker.words(0x0102_0304, UInt32(count), UInt32(frame.contents.count))
      #expect(await world.read(12) == header)
      var block = await world.read(count)
      if index == 0 {
        opening = StreamByHand(key: key, header: block.prefix(24))
        block.removeFirst(24)
      }
      let opened = try #require(try opening?.open(block))
      #expect(opened.plaintext == frame.block && opened.tag == (index == 2 ? .final : .message))
      #expect(await world.read(frame.contents.count) == frame.contents)
    }
    #expect(await world.log.next() == .sent(0x0102_0304))
    #expect(world.readNow().isEmpty)
    world.lane?.close()
  }

  @Test(arguments: BulkPair.slotCounts) func endsASmallStreamBesideALargeOneEarly(slots: Int) async throws {
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    let (began, smallWasSent) = (Signal(), DispatchSemaphore(value: 0))
    let large = FrameSink {
      if $0 == 1 {
        began.fire()
        smallWasSent.wait()
      }
    }
    pair.carry(1, Self.frames(20), to: large)
    await began.wait()
    pair.carry(2, Self.frames(2, contents: 1000), to: FrameSink())
    smallWasSent.signal()
    #expect(await pair.farLog.next(2) == [.received(2), .received(1)])
    #expect(await pair.nearLog.next(2) == [.sent(2), .sent(1)])
  }

  // MARK: Credit

  @Test func sendsNothingBeyondTheCredit() async throws {
    let world = try BulkWorld()
    world.send(1, Self.frames(4, contents: 100), credit: 1)
    try await world.expectFrame(1, block: 24 + 20 + 17, contents: 100)
    // Were there credit for it, stream 1's next frame would come first.
    world.send(2, Self.frames(1, contents: 7), credit: 1)
    try await world.expectFrame(2, block: 24 + 20 + 17, contents: 7)
    world.lane?.raiseCredit(1, to: 2)
    try await world.expectFrame(1, block: 21 + 17, contents: 100)
    world.lane?.raiseCredit(1, to: 0)
    world.lane?.raiseCredit(1, to: .max)
    for index in 2..<4 { try await world.expectFrame(1, block: 20 + index + 17, contents: 100) }
    #expect(await world.log.next(2) == [.sent(2), .sent(1)])
    world.lane?.close()
  }

  @Test func takesWhatIsWithinTheCreditAndNothingMore() async throws {
    for (credit, raised, count) in [(UInt64(1), UInt64(0), 1), (0, 1, 1), (0, 0, 0), (1, 3, 3)] {
      let world = try BulkWorld()
      let frames = FrameMaker(3)
      let sink = FrameSink()
      world.lane?.expect(stream: 3, key: frames.key, credit: credit, sink: sink)
      world.lane?.raiseReceivingCredit(3, to: raised)
      for _ in 0...count { world.write(frames.frame(contents: 10)) }
      #expect(await world.log.next() == .failed(.limitExceeded))
      #expect(sink.frames.count == count)
    }
  }

  // MARK: Ends of one stream

  @Test(arguments: BulkPair.slotCounts) func goesOnAfterAStreamWasStoppedAtBothSides(slots: Int) async throws
  {
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    let key = Data(Random.bytes(32))
    let came = Signal()
    let sink = FrameSink { if $0 == 3 { came.fire() } }
    pair.far.expect(stream: 1, key: key, credit: .max, sink: sink)
    pair.near.send(
      stream: 1, key: key, byteCount: 1, credit: 3, from: FrameSource(Self.frames(10, contents: 1 << 18)))
    await came.wait()
    pair.near.stopSending(1)
    pair.far.stopReceiving(1)
    pair.near.raiseCredit(1, to: .max)
    await pair.carriesOneMore(2)
    #expect(sink.frames.count == 3)
  }

  @Test(arguments: BulkPair.slotCounts) func skipsWhatStillComesOfAStoppedStream(slots: Int) async throws {
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    let (began, goOn) = (Signal(), DispatchSemaphore(value: 0))
    let sink = FrameSink { _ in
      began.fire()
      goOn.wait()
    }
    pair.carry(1, Self.frames(20), to: sink)
    await began.wait()
    pair.far.stopReceiving(1)
    goOn.signal()
    #expect(await pair.nearLog.next() == .sent(1))
    await pair.carriesOneMore(2)
    #expect(sink.frames.count == 1)
  }

  /// Stopped before anything of it came: its header is skipped, too.
  @Test(arguments: BulkPair.slotCounts) func skipsAStreamThatWasStoppedBeforeItBegan(slots: Int) async throws
  {
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    let key = Data(Random.bytes(32))
    pair.far.expect(stream: 1, key: key, credit: 9, sink: FrameSink())
    pair.far.stopReceiving(1)
    pair.near.send(
      stream: 1, key: key, byteCount: 1, credit: 9, from: FrameSource(Self.frames(9, contents: 200_000)))
    // The lane is read only while something is awaited.
    pair.far.expect(stream: 3, key: key, credit: 1, sink: FrameSink())
    #expect(await pair.nearLog.next() == .sent(1))
    await pair.carriesOneMore(4)
  }

  @Test(arguments: BulkPair.slotCounts) func endsOneStreamWhenItsSinkThrows(slots: Int) async throws {
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    let sink = FrameSink { if $0 == 2 { throw Broken() } }
    pair.carry(1, Self.frames(6), to: sink)
    #expect(await pair.farLog.next() == .received(1, "broken"))
    #expect(await pair.nearLog.next() == .sent(1))
    await pair.carriesOneMore(2)
    #expect(sink.frames.count == 2)
    // At the last frame, too.
    pair.carry(3, Self.frames(1), to: FrameSink { _ in throw Broken() })
    #expect(await pair.farLog.next() == .received(3, "broken"))
    #expect(await pair.nearLog.next() == .sent(3))
    await pair.carriesOneMore(4)
  }

  @Test(arguments: BulkPair.slotCounts) func endsOneStreamWhenItsSourceThrows(slots: Int) async throws {
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    for (index, count) in [0, 1, 3].enumerated() {
      let stream = UInt32(2 * index + 1)
      let frames = Self.frames(count)
      let sink = FrameSink()
      pair.carry(stream, [], from: FrameSource(frames, failsAtEnd: true), to: sink)
      #expect(await pair.nearLog.next() == .sent(stream, "broken"))
      await pair.carriesOneMore(stream + 1)
      #expect(sink.frames == frames)
      #expect(!sink.isLast.contains(true))
      pair.far.stopReceiving(stream)
    }
    await pair.carriesOneMore(100)
  }

  /// A frame that was made when its stream was stopped is not sent, and neither is its slot used.
  @Test(arguments: BulkPair.slotCounts) func sendsNothingOfAStreamThatWasStoppedMeanwhile(
    slots: Int
  ) async throws {
    let pair = try BulkPair(slots: slots)
    defer { pair.close() }
    for stream: UInt32 in [1, 3, 5, 7] {
      let (began, goOn) = (Signal(), DispatchSemaphore(value: 0))
      let sink = FrameSink()
      pair.carry(
        stream, [],
        from: FrameSource(Self.frames(3)) {
          began.fire()
          goOn.wait()
        }, to: sink)
      await began.wait()
      pair.near.stopSending(stream)
      goOn.signal()
      await pair.carriesOneMore(stream + 1)
      #expect(sink.frames.isEmpty)
    }
  }

  // MARK: Ends of the lane

  @Test func closesWhileItWaitsToWrite() async throws {
    var world = try BulkWorld()
    world.send(1, Self.frames(3))
    // The call that writes the first frame cannot end before much of that is read.
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
        stream: 1, key: frames.key, credit: 10,
        sink: FrameSink { _ in
          began.fire()
          goOn.wait()
        })
      if sendsFirst {
        world.write(frames.frame(contents: 10, .final))
        await began.wait()
      }
      world.lane?.close()
      goOn.signal()
      await world.readToEnd()
      await world.untilClosed()
    }
  }

  /// The memory of the slot that its source writes stays where it is.
  @Test(arguments: BulkPair.slotCounts) func closesWhileASourceWorks(slots: Int) async throws {
    let pair = try BulkPair(slots: slots)
    let (began, goOn) = (Signal(), DispatchSemaphore(value: 0))
    final class Slow: BulkSource {
      let work: @Sendable () -> Void
      init(_ work: @escaping @Sendable () -> Void) { self.work = work }

      func next(
        block: UnsafeMutableRawBufferPointer, contents: UnsafeMutableRawBufferPointer
      ) throws -> BulkPart {
        work()
        contents.initializeMemory(as: UInt8.self, repeating: 7)
        return BulkPart(blockByteCount: 12, contentsByteCount: contents.count, isLast: true)
      }
    }
    pair.near.send(
      stream: 1, key: Data(count: 32), byteCount: 1, credit: 1,
      from: Slow {
        began.fire()
        goOn.wait()
      })
    await began.wait()
    pair.close()
    goOn.signal()
  }

  @Test func hasNoThreadBeforeTheFirstStreamNorLongAfterTheLast() async throws {
    var world = try BulkWorld(idleTime: .milliseconds(1))
    let frames = FrameMaker(9)
    #expect(world.runs == [false, false])
    let sink = FrameSink()
    world.lane?.expect(stream: 9, key: frames.key, credit: 1, sink: sink)
    #expect(world.runs == [false, true])
    world.send(1, Self.frames(1, contents: 1))
    let frame = PlainFrame.random(contents: 10)
    world.write(frames.frame(frame, .final))
    let events = await world.log.next(2)
    #expect(events.contains(.received(9)) && events.contains(.sent(1)))
    #expect(sink.frames == [frame])
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
      world.lane?.expect(stream: stream, key: frames.key, credit: 1, sink: FrameSink())
      world.write(frames.frame(contents: 3, .final))
      #expect(await world.log.next() == .received(stream))
      world.send(stream, Self.frames(1, contents: 1))
      #expect(await world.log.next() == .sent(stream))
      while world.runs != [false, false] { await Task.yield() }
    }
    world.lane?.close()
  }

  @Test func saysThatItsDescriptorIsNoSocket() async throws {
    let log = BulkLog()
    var ends: [Int32] = [0, 0]
    #expect(pipe(&ends) == 0)
    let lane = BulkLane(descriptor: ends[0], events: log.events, budget: BulkSlotBudget())
    lane.expect(stream: 1, key: Data(count: 32), credit: 1, sink: FrameSink())
    #expect(await log.next() == .failed(.connectionLost))
    close(ends[1])
  }

  /// A peer draws the numbers and keys that this side sends under.
  @Test func failsWhenThePeerAsksForWhatCannotBe() async throws {
    for (stream, keyByteCount) in [(UInt32(1), 32), (0, 32), (2, 31)] {
      let world = try BulkWorld()
      world.send(1, Self.frames(1), credit: 0)
      world.lane?.send(
        stream: stream, key: Data(count: keyByteCount), byteCount: 10, credit: 0,
        from: FrameSource([]))
      #expect(await world.log.next() == .failed(.malformed))
      await world.readToEnd()
    }
  }
}
