import CPosix
import Foundation
import ServiceWire
import SodiumPrimitives
import Testing
import UnixSockets

@testable import LocalTransport

/// Contents in shared memory, between a lane and a bare socket.
@Suite(.timeLimit(.minutes(10)), .enabled(if: SharedMemory.isAvailable))
struct BulkLaneMemoryTests {
  static let full = BulkFrame.contentsByteCountMax

  // MARK: A lane that gives memory

  /// The memory that the lane gives, once its frame was read.
  private func takeMemory(_ world: BulkWorld, slots: Int) throws -> SharedMemory.Reader {
    let (bytes, descriptor) = try world.readWithDescriptor(12)
    #expect(bytes == FrameMaker.words(0, 1, UInt32(slots)))
    let memory = SharedMemory.Reader(
      try Descriptor(adopting: descriptor), byteCount: slots * BulkSlots.byteCount)
    return try #require(memory)
  }

  private func contents(_ memory: SharedMemory.Reader, slot: Int, _ count: Int) throws -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    try bytes.withUnsafeMutableBytes { try memory.read(at: slot * BulkSlots.byteCount, into: $0) }
    return bytes
  }

  @Test func writesWhatTheProtocolSays() async throws {
    let world = try BulkWorld(peerSlots: 3)
    let frames = [Self.full, 70_000, 1, 0, Self.full, 5].map { PlainFrame.random(contents: $0) }
    world.send(7, frames)
    let memory = try takeMemory(world, slots: 3)
    func expect(_ index: Int, slot: Int) async throws {
      let count = frames[index].contents.count
      try await world.expectFrame(
        7, block: 64 + 17 + (index == 0 ? 24 : 0), contents: count, isInSlot: true)
      #expect(try contents(memory, slot: slot, count) == frames[index].contents)
    }
    for index in 0..<3 { try await expect(index, slot: index) }
    // The slots are full: were there room, the first would be overwritten by now, or soon.
    try await Task.sleep(for: .milliseconds(20))
    #expect(world.readNow().isEmpty)
    #expect(try contents(memory, slot: 0, Self.full) == frames[0].contents)
    world.write(FrameMaker.words(0, 2, 1))
    // No contents take no slot.
    try await world.expectFrame(7, block: 64 + 17, contents: 0)
    try await expect(4, slot: 0)
    world.write(FrameMaker.words(0, 2, 2))
    try await expect(5, slot: 1)
    #expect(await world.log.next() == .sent(7))
    world.lane?.close()
  }

  @Test func givesNoneForASmallStreamNorToAPeerThatTakesNone() async throws {
    for (slots, minimum) in [(0, UInt64(1)), (3, 2)] {
      let world = try BulkWorld(peerSlots: slots, sharedByteCountMin: minimum)
      world.send(1, [.random(contents: 1000)])
      try await world.expectFrame(1, block: 64 + 17 + 24, contents: 1000)
      world.lane?.close()
    }
  }

  /// A source that throws leaves its slot to the next frame; with one slot, two would be one too
  /// many.
  /// What one lane has another does not; one that gets none sends over its socket, and gets some when there is room
  /// again.
  @Test func lanesShareABudget() async throws {
    let budget = BulkSlotBudget(slotCount: 5)
    func world(_ slots: Int) throws -> BulkWorld { try BulkWorld(peerSlots: slots, budget: budget) }
    let frames = [PlainFrame.random(contents: 100)]
    func gives(_ world: BulkWorld, _ stream: UInt32, slots: Int) async throws {
      world.send(stream, frames)
      if slots > 0 { _ = try takeMemory(world, slots: slots) }
      try await world.expectFrame(
        stream, block: 64 + 17 + 24, contents: 100, isInSlot: slots > 0)
      #expect(await world.log.next() == .sent(stream))
    }
    var first: BulkWorld? = try world(3)
    try await gives(first!, 1, slots: 3)
    let second = try world(4)
    try await gives(second, 1, slots: 2)
    let third = try world(4)
    try await gives(third, 1, slots: 0)
    first?.lane?.close()
    first = nil
    // Kept for the peer for a while.
    var stream: UInt32 = 2
    var isGiven = false
    for _ in 0..<500 where !isGiven {
      third.send(stream, frames)
      if try await third.readFrame().header == .memory(slotCount: 3) {
        isGiven = true
      } else {
        #expect(await third.log.next() == .sent(stream))
        stream += 1
        try await Task.sleep(for: .milliseconds(20))
      }
    }
    #expect(isGiven)
    for world in [second, third] { world.lane?.close() }
  }

  @Test func losesNoSlotWhenASourceThrows() async throws {
    let pair = try BulkPair(slots: 1)
    defer { pair.close() }
    for stream: UInt32 in 1...5 {
      pair.carry(stream, [], from: FrameSource([], failsAtEnd: true), to: FrameSink())
      #expect(await pair.nearLog.next() == .sent(stream, "broken"))
      pair.far.stopReceiving(stream)
    }
    await pair.carriesOneMore(6)
  }

  /// The slot was given to the source, and the peer has not heard of it.
  @Test func failsForASlotThatWasNotSaidYet() async throws {
    let goOn = DispatchSemaphore(value: 0)
    let world = try BulkWorld(peerSlots: 1)
    world.lane?.send(
      stream: 1, key: Data(count: 32), byteCount: 10, credit: 10,
      from: FrameSource([]) { goOn.wait() })
    _ = try takeMemory(world, slots: 1)
    world.write(FrameMaker.words(0, 2, 1))
    #expect(await world.log.next() == .failed(.streamDamaged))
    goOn.signal()
    await world.untilClosed()
  }

  /// Its receiving thread ends while nothing is sent, and what the peer says then is read later.
  @Test func readsWhatWasFreedWhileItHadNoThread() async throws {
    let world = try BulkWorld(peerSlots: 1, idleTime: .milliseconds(1))
    world.send(1, [.random(contents: 10)])
    _ = try takeMemory(world, slots: 1)
    for round: UInt32 in 1...3 {
      try await world.expectFrame(round, block: 64 + 17 + 24, contents: 10, isInSlot: true)
      #expect(await world.log.next() == .sent(round))
      while world.runs != [false, false] { await Task.yield() }
      world.write(FrameMaker.words(0, 2, 1))
      world.send(round + 1, [.random(contents: 10)])
    }
    world.lane?.close()
  }

  /// Its receiving thread goes on while a stream waits for a slot, however long.
  @Test func readsWhatIsFreedAfterTheIdleTime() async throws {
    let world = try BulkWorld(peerSlots: 1, idleTime: .milliseconds(1))
    world.send(1, [.random(contents: 10), .random(contents: 10)])
    _ = try takeMemory(world, slots: 1)
    try await world.expectFrame(1, block: 64 + 17 + 24, contents: 10, isInSlot: true)
    try await Task.sleep(for: .milliseconds(50))
    #expect(world.runs == [true, true])
    world.write(FrameMaker.words(0, 2, 1))
    try await world.expectFrame(1, block: 64 + 17, contents: 10, isInSlot: true)
    world.lane?.close()
  }

  @Test(arguments: [
    ("none", [UInt32(0)]), ("more than was used", [2]), ("twice", [1, 1]), ("a great many", [.max]),
  ])
  func failsForACountThatCannotBe(_ name: String, counts: [UInt32]) async throws {
    let world = try BulkWorld(peerSlots: 1)
    // Something is awaited, however long the rest takes, so that the lane is read.
    world.lane?.expect(stream: 1, key: Data(count: 32), credit: 1, sink: FrameSink())
    world.send(1, [.random(contents: 10)])
    _ = try takeMemory(world, slots: 1)
    try await world.expectFrame(1, block: 64 + 17 + 24, contents: 10, isInSlot: true)
    #expect(await world.log.next() == .sent(1))
    for count in counts { world.write(FrameMaker.words(0, 2, count)) }
    #expect(await world.log.next() == .failed(.streamDamaged))
  }

  // MARK: A lane that takes memory

  /// Memory as a peer gives it, and contents in its slots.
  private final class Giver {
    let memory: SharedMemory
    let slotCount: Int
    private var used = 0

    init(_ slotCount: Int) throws {
      self.slotCount = slotCount
      memory = try SharedMemory(byteCount: slotCount * BulkSlots.byteCount)
    }

    func give(_ world: BulkWorld) throws {
      try BulkLaneMemoryTests.give(world, slots: slotCount, memory.duplicateDescriptor())
    }

    /// The frame without its contents, which are put into the next slot.
    func put(_ frame: PlainFrame, _ frames: FrameMaker, _ tag: SecretStreamTag = .message) -> [UInt8] {
      let slot = UnsafeMutableRawBufferPointer(
        rebasing: memory.bytes[(used % slotCount * BulkSlots.byteCount)...])
      slot.copyBytes(from: frame.contents)
      used += 1
      var bytes = Array(frames.frame(frame, tag).dropLast(frame.contents.count))
      bytes[11] |= 0x80
      return bytes
    }
  }

  /// A lane that has taken memory, and a stream 1 with a sink.
  private struct Taking {
    let world: BulkWorld
    let giver: Giver
    let frames = FrameMaker(1)
    let sink: FrameSink

    init(slots: Int, holds: Bool = false) throws {
      world = try BulkWorld(slots: slots)
      giver = try Giver(slots)
      sink = FrameSink(holds: holds)
      world.lane?.expect(stream: 1, key: frames.key, credit: .max, sink: sink)
      try giver.give(world)
    }

    func put(_ frame: PlainFrame, _ tag: SecretStreamTag = .message) {
      world.write(giver.put(frame, frames, tag))
    }

    func untilCame(_ count: Int) async {
      while sink.frames.count < count { await Task.yield() }
    }
  }

  @Test func takesContentsInAndBesideSlotsAndSaysWhatItRead() async throws {
    let taking = try Taking(slots: 8)
    let frames = (0..<8).map { PlainFrame.random(contents: 1 + $0 * 20_000) }
    for (index, frame) in frames.enumerated() {
      switch index {
      case 2: taking.world.write(taking.frames.frame(frame))
      case 7: taking.put(frame, .final)
      default: taking.put(frame)
      }
    }
    #expect(await taking.world.log.next() == .received(1))
    #expect(taking.sink.frames == frames)
    // A quarter of eight at a time, and the rest at the stream's end: seven frames used slots.
    for count: UInt32 in [2, 2, 2, 1] {
      #expect(await taking.world.read(12) == FrameMaker.words(0, 2, count))
    }
    taking.world.lane?.close()
  }

  @Test func saysThatASlotIsFreeWhenTheFirstOfThemIsReleased() async throws {
    let taking = try Taking(slots: 4, holds: true)
    let frames = (0..<4).map { _ in PlainFrame.random(contents: 100) }
    for frame in frames { taking.put(frame) }
    await taking.untilCame(4)
    for index in [2, 1] { _ = taking.sink.take(index) }
    // Releasing tells at once, if at all.
    #expect(taking.world.readNow().isEmpty)
    let last = try #require(taking.sink.take(3))
    _ = taking.sink.take(0)
    #expect(taking.world.readNow() == FrameMaker.words(0, 2, 3))
    // Contents that are held are as they were, while others come.
    let more = PlainFrame.random(contents: 200)
    for index in 0..<3 {
      taking.put(more)
      await taking.untilCame(5 + index)
      _ = taking.sink.take(4 + index)
    }
    #expect(taking.world.readNow().isEmpty)
    #expect(try last.bytes() == frames[3].contents)
    _ = consume last
    // The lane's thread may hold the last frame that it gave for a moment.
    let told = taking.world.readNow()
    #expect([3, 4].map { FrameMaker.words(0, 2, $0) }.contains(told))
    taking.world.lane?.close()
  }

  /// Slots that are released after the end of the last stream wait for no quarter.
  @Test func saysThatSlotsAreFreeAfterTheStreamsEnd() async throws {
    let taking = try Taking(slots: 40, holds: true)
    for index in 0..<3 { taking.put(.random(contents: 10), index == 2 ? .final : .message) }
    #expect(await taking.world.log.next() == .received(1))
    #expect(taking.world.readNow().isEmpty)
    for index in 0..<3 {
      _ = taking.sink.take(index)
      #expect(taking.world.readNow() == FrameMaker.words(0, 2, 1))
    }
    taking.world.lane?.close()
  }

  @Test func saysThatSlotsOfSkippedFramesAreFree() async throws {
    let taking = try Taking(slots: 8)
    taking.world.lane?.expect(stream: 2, key: Data(count: 32), credit: 1, sink: FrameSink())
    taking.world.lane?.stopReceiving(1)
    for _ in 0..<3 {
      taking.put(.random(contents: 100))
      #expect(await taking.world.read(12) == FrameMaker.words(0, 2, 1))
    }
    #expect(taking.sink.frames.isEmpty)
    taking.world.lane?.close()
  }

  @Test func failsForASlotThatIsNotFree() async throws {
    let taking = try Taking(slots: 2, holds: true)
    for _ in 0..<3 { taking.put(.random(contents: 100)) }
    #expect(await taking.world.log.next() == .failed(.streamDamaged))
    #expect(taking.sink.frames.count == 2)
  }

  /// What the peer changes in a slot is its own affair.
  @Test func readsASlotAsItIsNow() async throws {
    let taking = try Taking(slots: 1, holds: true)
    taking.put(PlainFrame(block: Random.bytes(20), contents: [1, 2, 3]))
    await taking.untilCame(1)
    let contents = try #require(taking.sink.take(0))
    taking.giver.memory.bytes[1] = 9
    #expect(try contents.bytes() == [1, 9, 3])
    taking.world.lane?.close()
  }

  /// Contents outlive the lane; then nobody is told of their slots.
  @Test(arguments: [false, true]) func keepsContentsWhenTheLaneIsClosed(isInSlot: Bool) async throws {
    let taking = try Taking(slots: 1, holds: true)
    let frame = PlainFrame.random(contents: 200_000)
    if isInSlot { taking.put(frame) } else { taking.world.write(taking.frames.frame(frame)) }
    await taking.untilCame(1)
    taking.world.lane?.close()
    await taking.world.untilClosed()
    let contents = try #require(taking.sink.take(0))
    #expect(try contents.bytes() == frame.contents)
    _ = consume contents
    #expect(taking.world.readNow().isEmpty)
  }

  /// While its sending thread waits for a peer that does not read, what is free is said as soon as
  /// that has read.
  @Test func goesOnReadingWhileItCannotSayWhatItRead() async throws {
    let taking = try Taking(slots: 1)
    taking.world.send(5, BulkLaneTests.frames(4))
    // It writes a frame with one call, and waits within it from here on.
    #expect(await taking.world.read(12 + 24 + 20 + 17).count == 73)
    taking.put(.random(contents: 10), .final)
    #expect(await taking.world.log.next() == .received(1))
    #expect(await taking.world.read(Self.full).count == Self.full)
    var headers: [BulkFrame.Header] = []
    for _ in 0..<4 { headers.append(try await taking.world.readFrame().header) }
    #expect(headers.filter { $0 == .slotsRead(1) }.count == 1)
    #expect(await taking.world.log.next() == .sent(5))
    taking.world.lane?.close()
  }

  /// The socket is full, and nobody writes to it: the sending thread says what is free when there
  /// is room.
  @Test func saysWhatItReadOnceTheSocketHasRoom() async throws {
    var wasFull = false
    // These sizes are near what the socket takes in one call. A sender that does not get the processor looks
    // as if it waited, so all sizes are tried again, up to 20 times.
    for _ in 0..<20 where !wasFull {
      for count in stride(from: 150_000, through: 215_000, by: 5000) {
        let taking = try Taking(slots: 1)
        let byteCount = 12 + 24 + 64 + 17 + count
        taking.world.send(5, [.random(contents: count)])
        while taking.world.unreadByteCount == 0 { await Task.yield() }
        try await Task.sleep(for: .milliseconds(5))
        let isWritten = taking.world.unreadByteCount == byteCount
        taking.put(.random(contents: 10), .final)
        if isWritten {
          #expect(await taking.world.log.next(2) == [.sent(5), .received(1)])
          wasFull = wasFull || taking.world.unreadByteCount == byteCount
        }
        #expect(await taking.world.read(byteCount).count == byteCount)
        #expect(await taking.world.read(12) == FrameMaker.words(0, 2, 1))
        taking.world.lane?.close()
      }
    }
    #expect(wasFull, "no such size was tried")
  }

  @Test func skipsSlotsOfAStreamThatWasStopped() async throws {
    let pair = try BulkPair(slots: 2)
    defer { pair.close() }
    let (began, goOn) = (Signal(), DispatchSemaphore(value: 0))
    pair.carry(
      1, BulkLaneTests.frames(20),
      to: FrameSink { _ in
        began.fire()
        goOn.wait()
      })
    await began.wait()
    pair.far.stopReceiving(1)
    goOn.signal()
    #expect(await pair.nearLog.next() == .sent(1))
    await pair.carriesOneMore(2)
  }

  // MARK: A peer that keeps to nothing

  /// What comes to a lane that takes two slots, and how it fails.
  struct Case: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let fault: ProtocolFault
    let write: @Sendable (BulkWorld, FrameMaker) throws -> Void

    init(
      _ name: String, _ fault: ProtocolFault,
      write: @escaping @Sendable (BulkWorld, FrameMaker) throws -> Void
    ) {
      (testDescription, self.fault, self.write) = (name, fault, write)
    }
  }

  private static func give(
    _ world: BulkWorld, slots: Int, _ descriptor: consuming Descriptor
  ) throws {
    var descriptors = DescriptorList()
    descriptors.append(descriptor)
    try world.write(FrameMaker.words(0, 1, UInt32(slots)), descriptors)
  }

  private static func memory(_ slots: Int, plus more: Int = 0) throws -> Descriptor {
    try SharedMemory(byteCount: slots * BulkSlots.byteCount + more).duplicateDescriptor()
  }

  static let cases = [
    Case("memory without a descriptor", .malformed) { world, _ in
      world.write(FrameMaker.words(0, 1, 1))
    },
    Case("memory of no slot", .limitExceeded) { world, _ in try give(world, slots: 0, memory(1)) },
    Case("memory of one slot too many", .limitExceeded) { world, _ in try give(world, slots: 3, memory(3)) },
    Case("memory of very many slots", .limitExceeded) { world, _ in
      try give(world, slots: Int(UInt32.max), memory(1))
    },
    Case("a descriptor of too much memory", .malformed) { world, _ in
      try give(world, slots: 1, memory(1, plus: 1))
    },
    Case("a descriptor of too little memory", .malformed) { world, _ in try give(world, slots: 2, memory(1))
    },
    Case("a descriptor of a socket", .malformed) { world, _ in
      try give(world, slots: 1, Descriptor(adopting: dup(world.sockets.far)))
    },
    Case("a descriptor of a file of the right size", .malformed) { world, _ in
      let path = NSTemporaryDirectory() + "slots-\(UUID().uuidString)"
      let file = open(path, O_RDWR | O_CREAT | O_EXCL, 0o600)
      unlink(path)
      ftruncate(file, off_t(BulkSlots.byteCount))
      try give(world, slots: 1, Descriptor(adopting: file))
    },
    Case("two descriptors", .unexpectedDescriptors) { world, _ in
      var descriptors = DescriptorList()
      for _ in 0..<2 { descriptors.append(try memory(1)) }
      try world.write(FrameMaker.words(0, 1, 1), descriptors)
    },
    Case("a descriptor with another frame", .unexpectedDescriptors) { world, frames in
      var descriptors = DescriptorList()
      descriptors.append(try memory(1))
      try world.write(FrameMaker(2).frame(contents: 0), descriptors)
    },
    Case("memory twice", .unexpectedMessage) { world, _ in
      for _ in 0..<2 { try give(world, slots: 1, memory(1)) }
    },
    Case("contents of length 0 in a slot", .streamDamaged) { world, frames in
      let giver = try Giver(1)
      try giver.give(world)
      world.write(giver.put(.random(contents: 0), frames))
    },
    Case("contents in a slot before the memory", .streamDamaged) { world, frames in
      let giver = try Giver(1)
      world.write(giver.put(.random(contents: 1), frames))
      try giver.give(world)
    },
    Case("contents that are longer than may be in a slot", .streamDamaged) { world, frames in
      try give(world, slots: 1, memory(1))
      world.write(
        BulkLaneDamageTests.announcing(frames.frame(contents: 0), contents: 0x8000_0000 | 1_051_201))
    },
    Case("a damaged block with contents in a slot", .streamDamaged) { world, frames in
      let giver = try Giver(1)
      try giver.give(world)
      world.write(BulkLaneDamageTests.flipped(giver.put(.random(contents: 1), frames), at: 50))
    },
  ]

  @Test(arguments: cases) func fails(damage: Case) async throws {
    let world = try BulkWorld(slots: 2)
    let frames = FrameMaker(1)
    let sink = FrameSink()
    world.lane?.expect(stream: 1, key: frames.key, credit: .max, sink: sink)
    // Skipped, so that a descriptor is all that is wrong with a frame of it.
    world.lane?.expect(stream: 2, key: frames.key, credit: .max, sink: sink)
    world.lane?.stopReceiving(2)
    // A lane that has failed takes no more of it.
    do { try damage.write(world, frames) } catch SocketError.closed {}
    #expect(await world.log.next() == .failed(damage.fault))
    #expect(sink.frames.isEmpty)
    await world.untilClosed()
  }

  @Test func refusesMemoryWhenItTakesNone() async throws {
    let world = try BulkWorld()
    world.lane?.expect(stream: 1, key: Data(count: 32), credit: 1, sink: FrameSink())
    try Self.give(world, slots: 1, Self.memory(1))
    #expect(await world.log.next() == .failed(.unexpectedDescriptors))
  }
}
