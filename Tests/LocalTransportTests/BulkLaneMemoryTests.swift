import Foundation
import ServiceWire
import SodiumPrimitives
import Testing
import UnixSockets

@testable import LocalTransport

/// Messages in shared memory, between a lane and a bare socket.
@Suite(.timeLimit(.minutes(10)), .enabled(if: SharedMemory.isAvailable))
struct BulkLaneMemoryTests {
  static let message = BulkFrame.messageByteCountMax

  // MARK: A lane that gives memory

  /// The memory that the lane gives, once its frame was read.
  private func takeMemory(
    _ world: BulkWorld, slots: Int
  ) throws -> SharedMemory.Reader {
    let (bytes, descriptor) = try world.readWithDescriptor(12)
    #expect(bytes == BulkFrame.memory(slotCount: slots))
    let memory = SharedMemory.Reader(
      try Descriptor(adopting: descriptor), byteCount: slots * BulkSlots.byteCount)
    return try #require(memory)
  }

  private func body(_ memory: SharedMemory.Reader, slot: Int, _ count: Int) throws -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    try bytes.withUnsafeMutableBytes { try memory.read(at: slot * BulkSlots.byteCount, into: $0) }
    return bytes
  }

  @Test func writesWhatTheProtocolSays() async throws {
    let world = try BulkWorld(peerSlots: 3)
    let key = Data(Random.bytes(32))
    let bytes = Random.bytes(4 * Self.message + 5)
    world.lane?.send(
      stream: 7, key: key, byteCount: UInt64(bytes.count), credit: .max,
      from: ByteSource(bytes, pieces: 100_000))
    let memory = try takeMemory(world, slots: 3)
    let header = await world.read(8 + 24)
    #expect(Array(header.prefix(8)) == [7, 0, 0, 0, 24, 0, 0, 0])
    let opening = StreamByHand(key: key, header: header[8...])
    var plaintext: [UInt8] = []
    func open(slot: Int, _ count: Int, _ tag: SecretStreamTag) async throws {
      #expect(
        try await world.readHeader()
          == BulkFrame.Header(stream: 7, length: UInt32(count + 17), isInSlot: true))
      let sealed = try body(memory, slot: slot, count + 17)
      let opened = try opening.open(sealed)
      #expect(opened.tag == tag)
      plaintext += opened.plaintext
    }
    for slot in 0..<3 { try await open(slot: slot, Self.message, .message) }
    // The slots are full: were there room, the first would be overwritten by now, or soon.
    let first = try body(memory, slot: 0, 64)
    try await Task.sleep(for: .milliseconds(20))
    #expect(try body(memory, slot: 0, 64) == first)
    world.write(BulkFrame.freed(1))
    try await open(slot: 0, Self.message, .message)
    world.write(BulkFrame.freed(3))
    try await open(slot: 1, 5, .final)
    #expect(plaintext == bytes)
    #expect(await world.log.next() == .sent(7))
    world.lane?.close()
  }

  @Test func givesNoneForASmallStreamNorToAPeerThatTakesNone() async throws {
    for (slots, minimum) in [(0, UInt64(1)), (3, 1001)] {
      let world = try BulkWorld(peerSlots: slots, sharedByteCountMin: minimum)
      world.lane?.send(
        stream: 1, key: Data(count: 32), byteCount: 1000, credit: .max,
        from: ByteSource(Random.bytes(1000)))
      try await world.expectFrame(1, 24)
      try await world.expectFrame(1, 1017)
      world.lane?.close()
    }
  }

  /// A source that throws leaves its slot to the next message; with one slot, two would be one too many.
  @Test func losesNoSlotWhenASourceThrows() async throws {
    let pair = try BulkPair(slots: 1)
    defer { pair.close() }
    for stream: UInt32 in 1...5 {
      pair.carry(stream, [], from: ByteSource([], failsAtEnd: true), to: ByteSink(), announced: 100)
      #expect(await pair.nearLog.next() == .sent(stream, "broken"))
      pair.far.stopReceiving(stream)
    }
    await pair.carriesOneMore(6)
  }

  /// The slot was given to the source, and the peer has not heard of it.
  @Test func failsForATotalOfWhatWasNotSaidYet() async throws {
    final class Blocked: BulkSource {
      let goOn = DispatchSemaphore(value: 0)
      func read(into buffer: UnsafeMutableRawBufferPointer) throws -> Int {
        goOn.wait()
        throw Broken()
      }
    }
    let world = try BulkWorld(peerSlots: 1)
    let source = Blocked()
    world.lane?.send(stream: 1, key: Data(count: 32), byteCount: 10, credit: 10, from: source)
    _ = try takeMemory(world, slots: 1)
    world.write(BulkFrame.freed(1))
    #expect(await world.log.next() == .failed(.streamDamaged))
    source.goOn.signal()
    await world.untilClosed()
  }

  /// Its receiving thread ends while nothing is sent, and what the peer says then is read later.
  @Test func readsWhatWasFreedWhileItHadNoThread() async throws {
    let world = try BulkWorld(peerSlots: 1, idleTime: .milliseconds(1))
    func send(_ stream: UInt32) {
      world.lane?.send(
        stream: stream, key: Data(count: 32), byteCount: 10, credit: 10,
        from: ByteSource(Random.bytes(10)))
    }
    send(1)
    _ = try takeMemory(world, slots: 1)
    for round: UInt32 in 1...3 {
      try await world.expectFrame(round, 24)
      #expect(
        try await world.readHeader() == BulkFrame.Header(stream: round, length: 27, isInSlot: true))
      #expect(await world.log.next() == .sent(round))
      while world.runs != [false, false] { await Task.yield() }
      world.write(BulkFrame.freed(UInt64(round)))
      send(round + 1)
    }
    world.lane?.close()
  }

  @Test(arguments: [
    ("more than was used", [UInt64(2)]), ("less than before", [1, 0]), ("a great many", [.max]),
  ])
  func failsForATotalThatCannotBe(_ name: String, totals: [UInt64]) async throws {
    let world = try BulkWorld(peerSlots: 1)
    // Something is awaited, however long the rest takes, so that the lane is read.
    world.lane?.expect(stream: 1, key: Data(count: 32), byteCount: 1, credit: 1, sink: ByteSink())
    world.lane?.send(
      stream: 1, key: Data(count: 32), byteCount: 10, credit: 10, from: ByteSource(Random.bytes(10)))
    _ = try takeMemory(world, slots: 1)
    try await world.expectFrame(1, 24)
    _ = try await world.readHeader()
    #expect(await world.log.next() == .sent(1))
    for total in totals { world.write(BulkFrame.freed(total)) }
    #expect(await world.log.next() == .failed(.streamDamaged))
  }

  // MARK: A lane that takes memory

  /// Memory as a peer gives it, and messages in its slots.
  private final class Giver {
    let memory: SharedMemory
    let slotCount: Int
    private var used = 0

    init(_ slotCount: Int) throws {
      self.slotCount = slotCount
      memory = try SharedMemory(byteCount: slotCount * BulkSlots.byteCount)
    }

    func give(_ world: BulkWorld) throws {
      var descriptors = DescriptorList()
      descriptors.append(try memory.duplicateDescriptor())
      try world.write(BulkFrame.memory(slotCount: slotCount), descriptors)
    }

    /// The frame of a message that is put into the next slot.
    func put(_ frame: [UInt8], damagedAt index: Int? = nil) -> [UInt8] {
      let slot = UnsafeMutableRawBufferPointer(
        rebasing: memory.bytes[(used % slotCount * BulkSlots.byteCount)...])
      slot.copyBytes(from: frame.dropFirst(8))
      if let index { slot[index] ^= 1 }
      used += 1
      var header = Array(frame.prefix(8))
      header[7] |= 0x80
      return header
    }
  }

  @Test func takesMessagesInAndBesideSlotsAndSaysWhatItRead() async throws {
    let world = try BulkWorld(slots: 8)
    let giver = try Giver(8)
    let frames = FrameMaker(1)
    let sink = ByteSink()
    let bytes = Random.bytes(6 * Self.message + 100)
    world.lane?.expect(
      stream: 1, key: frames.key, byteCount: UInt64(bytes.count), credit: .max, sink: sink)
    world.write(frames.headerFrame())
    try giver.give(world)
    for index in 0..<6 {
      let frame = frames.message(Array(bytes[index * Self.message..<(index + 1) * Self.message]))
      world.write(index == 2 ? frame : giver.put(frame))
    }
    world.write(giver.put(frames.message(Array(bytes.suffix(100)), .final)))
    #expect(await world.log.next() == .received(1))
    #expect(sink.bytes == bytes)
    // A quarter of eight at a time, and the rest at the stream's end: six messages came in slots.
    for total in [2, 4, 6] {
      #expect(await world.read(16) == BulkFrame.freed(UInt64(total)))
    }
    world.lane?.close()
  }

  /// While its sending thread waits for a peer that does not read, what is free is said as soon as that has read.
  @Test func goesOnReadingWhileItCannotSayWhatItRead() async throws {
    let world = try BulkWorld(slots: 1)
    let giver = try Giver(1)
    let frames = FrameMaker(1)
    let sink = ByteSink()
    let large = 4 << 20
    world.lane?.send(
      stream: 5, key: Data(count: 32), byteCount: UInt64(large), credit: .max,
      from: ByteSource(Random.bytes(large)))
    // It writes sixteen messages with one call, and waits within it from here on.
    try await world.expectFrame(5, 24)
    world.lane?.expect(stream: 1, key: frames.key, byteCount: 10, credit: 10, sink: sink)
    try giver.give(world)
    world.write(frames.headerFrame() + giver.put(frames.message(Random.bytes(10), .final)))
    #expect(await world.log.next() == .received(1))
    var freed = 0
    for _ in 0..<large / Self.message + 1 {
      let frame = try await world.readFrame()
      if frame.stream == 0 {
        #expect(frame.body == Array(BulkFrame.freed(1).dropFirst(8)))
        freed += 1
      } else {
        #expect(frame.stream == 5 && frame.body.count == Self.message + 17)
      }
    }
    #expect(freed == 1)
    #expect(await world.log.next() == .sent(5))
    world.lane?.close()
  }

  @Test func skipsSlotsOfAStreamThatWasStopped() async throws {
    let pair = try BulkPair(slots: 2)
    defer { pair.close() }
    let (began, goOn) = (Signal(), DispatchSemaphore(value: 0))
    pair.carry(
      1, Random.bytes(40 * Self.message),
      to: ByteSink { _ in
        began.fire()
        goOn.wait()
      })
    await began.wait()
    pair.far.stopReceiving(1)
    goOn.signal()
    #expect(await pair.nearLog.next() == .sent(1))
    await pair.carriesOneMore(2)
  }

  /// What comes after the memory of two slots and the stream's header, and how the lane fails.
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
    try world.write(BulkFrame.memory(slotCount: slots), descriptors)
  }

  private static func memory(_ slots: Int, plus more: Int = 0) throws -> Descriptor {
    try SharedMemory(byteCount: slots * BulkSlots.byteCount + more).duplicateDescriptor()
  }

  static let cases = [
    Case("memory without a descriptor", .malformed) { world, _ in
      world.write(BulkFrame.memory(slotCount: 1))
    },
    Case("memory of no slot", .limitExceeded) { world, _ in try give(world, slots: 0, memory(1)) },
    Case("memory of one slot too many", .limitExceeded) { world, _ in try give(world, slots: 3, memory(3)) },
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
      try world.write(BulkFrame.memory(slotCount: 1), descriptors)
    },
    Case("a descriptor with another frame", .unexpectedDescriptors) { world, frames in
      var descriptors = DescriptorList()
      descriptors.append(try memory(1))
      try world.write(frames.headerFrame(), descriptors)
    },
    Case("memory twice", .unexpectedMessage) { world, _ in
      for _ in 0..<2 { try give(world, slots: 1, memory(1)) }
    },
    Case("a message in a slot without memory", .streamDamaged) { world, frames in
      world.write(frames.headerFrame() + (try Giver(1)).put(frames.message([1], .final)))
    },
    Case("a stream's header in a slot", .streamDamaged) { world, frames in
      let giver = try Giver(1)
      try giver.give(world)
      world.write(giver.put(frames.headerFrame()))
    },
    Case("a flipped byte in a slot", .streamDamaged) { world, frames in
      let giver = try Giver(1)
      try giver.give(world)
      world.write(frames.headerFrame() + giver.put(frames.message([1], .final), damagedAt: 3))
    },
    Case("an empty slot", .streamDamaged) { world, frames in
      try give(world, slots: 1, memory(1))
      world.write(frames.headerFrame() + [1, 0, 0, 0, 18, 0, 0, 0x80])
    },
    Case("a message of another length in a slot", .streamDamaged) { world, frames in
      let giver = try Giver(1)
      try giver.give(world)
      world.write(frames.headerFrame() + giver.put(frames.message([1, 2], .final)))
    },
    Case("freed slots without memory", .streamDamaged) { world, _ in world.write(BulkFrame.freed(0)) },
    Case("a frame of the lane without a body", .streamDamaged) { world, _ in
      world.write(FrameMaker.frame(0, []))
    },
    Case("a frame of the lane of five bytes", .streamDamaged) { world, _ in
      world.write(FrameMaker.frame(0, [1, 2, 3, 4, 5]))
    },
    Case("a frame of the lane in a slot", .streamDamaged) { world, _ in
      world.write([0, 0, 0, 0, 8, 0, 0, 0x80])
    },
  ]

  @Test(arguments: cases) func fails(damage: Case) async throws {
    let world = try BulkWorld(slots: 2)
    let frames = FrameMaker(1)
    let sink = ByteSink()
    world.lane?.expect(stream: 1, key: frames.key, byteCount: 1, credit: 1, sink: sink)
    try damage.write(world, frames)
    #expect(await world.log.next() == .failed(damage.fault))
    #expect(sink.bytes.isEmpty)
    await world.untilClosed()
  }

  @Test func refusesMemoryWhenItTakesNone() async throws {
    let world = try BulkWorld()
    world.lane?.expect(stream: 1, key: Data(count: 32), byteCount: 1, credit: 1, sink: ByteSink())
    try Self.give(world, slots: 1, Self.memory(1))
    #expect(await world.log.next() == .failed(.unexpectedDescriptors))
  }
}
