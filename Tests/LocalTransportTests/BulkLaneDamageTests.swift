import Foundation
import ServiceWire
import SodiumPrimitives
import Testing
import UnixSockets

@testable import LocalTransport

/// What a lane makes of a peer that keeps to nothing.
@Suite(.timeLimit(.minutes(10)))
struct BulkLaneDamageTests {
  /// What comes of stream 1, how many frames reach the sink, and how the lane fails.
  struct Case: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let reaches: Int
    let fault: ProtocolFault
    let bytes: @Sendable (FrameMaker) -> [UInt8]

    init(
      _ name: String, reaches: Int = 0, _ fault: ProtocolFault = .streamDamaged,
      bytes: @escaping @Sendable (FrameMaker) -> [UInt8]
    ) {
      (testDescription, self.reaches, self.fault, self.bytes) = (name, reaches, fault, bytes)
    }
  }

  static func flipped(_ frame: [UInt8], at index: Int) -> [UInt8] {
    var frame = frame
    frame[index] ^= 1
    return frame
  }

  /// A frame with another length in its header.
  static func announcing(_ frame: [UInt8], block: Int? = nil, contents: UInt32? = nil) -> [UInt8] {
    var frame = frame
    if let block { frame.replaceSubrange(4..<8, with: FrameMaker.words(UInt32(block))) }
    if let contents { frame.replaceSubrange(8..<12, with: FrameMaker.words(contents)) }
    return frame
  }

  static let cases = [
    Case("a flipped byte of the stream's header") { flipped($0.frame(contents: 10), at: 12 + 20) },
    Case("a flipped byte of the tag") { flipped($0.frame(contents: 10), at: 12 + 24) },
    Case("a flipped byte within a block") { flipped($0.frame(contents: 10), at: 12 + 24 + 30) },
    Case("a flipped byte at the end of a block") {
      flipped($0.frame(block: 64, contents: 10), at: 12 + 24 + 64 + 16)
    },
    Case("a flipped byte in the second block", reaches: 1) {
      $0.frame(contents: 10) + flipped($0.frame(contents: 10, .final), at: 12 + 5)
    },
    Case("a block of length 0") { announcing($0.frame(contents: 10), block: 0) },
    Case("a block that is one byte too short") { $0.frame(block: 11, contents: 10) },
    Case("a block that is one byte too long") {
      $0.frame(block: BulkFrame.blockByteCountMax + 1, contents: 10)
    },
    Case("a second block that is one byte too short", reaches: 1) {
      $0.frame(contents: 10) + $0.frame(block: 11, contents: 10)
    },
    Case("a second block that is one byte too long", reaches: 1) {
      $0.frame(contents: 10) + $0.frame(block: BulkFrame.blockByteCountMax + 1, contents: 10)
    },
    Case("a block of the greatest length") { announcing($0.frame(contents: 10), block: Int(UInt32.max)) },
    Case("contents that are one byte too long") {
      announcing($0.frame(contents: 10), contents: UInt32(BulkFrame.contentsByteCountMax + 1))
    },
    Case("contents of the greatest length") {
      announcing($0.frame(contents: 10), contents: UInt32.max >> 1)
    },
    Case("a block whose length was cut by one") {
      var frame = announcing($0.frame(contents: 10), block: 24 + 64 + 16)
      frame.remove(at: 12 + 24 + 64 + 16)
      return frame
    },
    Case("tag REKEY") { $0.frame(contents: 10, .rekey) },
    Case("tag PUSH") { $0.frame(contents: 10, .push) },
    Case("a second frame without the first") {
      _ = $0.frame(contents: 10)
      return $0.frame(contents: 10)
    },
    Case("frames in another order", reaches: 1) {
      let (first, second, third) = ($0.frame(contents: 1), $0.frame(contents: 2), $0.frame(contents: 3))
      return first + third + second
    },
    Case("a frame twice", reaches: 2) {
      let (first, second) = ($0.frame(contents: 1), $0.frame(contents: 2))
      return first + second + second
    },
    Case("a frame of another stream") { _ in FrameMaker(2).frame(contents: 10) },
    Case("a frame of the lane of kind 0") { _ in FrameMaker.words(0, 0, 1) },
    Case("a frame of the lane of kind 3") { _ in FrameMaker.words(0, 3, 1) },
    Case("slots read without memory") { _ in FrameMaker.words(0, 2, 1) },
    Case("contents in a slot without memory") {
      announcing($0.frame(contents: 0), contents: 10 | 0x8000_0000)
    },
    Case("nothing", .connectionLost) { _ in [] },
    Case("half a frame's header", .connectionLost) { Array($0.frame(contents: 1).prefix(5)) },
    Case("half a block", .connectionLost) { Array($0.frame(contents: 1).prefix(50)) },
    Case("a block without its contents", reaches: 1, .connectionLost) {
      $0.frame(contents: 1) + $0.frame(contents: 1).dropLast()
    },
    Case("half of the contents", .connectionLost) { Array($0.frame(contents: 100_000).prefix(60_000)) },
    Case("no last frame", reaches: 2, .connectionLost) { $0.frame(contents: 1) + $0.frame(contents: 1) },
  ]

  @Test(arguments: cases) func fails(damage: Case) async throws {
    let world = try BulkWorld(slots: 2)
    let frames = FrameMaker(1)
    let sink = FrameSink()
    world.lane?.expect(stream: 1, key: frames.key, credit: .max, sink: sink)
    world.write(damage.bytes(frames))
    shutdown(world.sockets.far, Int32(SHUT_WR))
    #expect(await world.log.next() == .failed(damage.fault))
    await world.readToEnd()
    #expect(sink.frames.count == damage.reaches)
    #expect(!sink.isLast.contains(true))
  }

  @Test func failsForAFrameAfterTheLastOne() async throws {
    let world = try BulkWorld()
    let frames = FrameMaker(1)
    world.lane?.expect(stream: 1, key: frames.key, credit: 100, sink: FrameSink())
    world.write(frames.frame(contents: 10, .final) + frames.frame(contents: 10, .final))
    #expect(await world.log.next(2) == [.received(1), .failed(.streamDamaged)])
  }

  /// What is skipped is not opened, but its header is checked.
  @Test func failsForADamagedFrameThatIsSkipped() async throws {
    let world = try BulkWorld()
    let frames = FrameMaker(1)
    world.lane?.expect(stream: 1, key: frames.key, credit: 3, sink: FrameSink())
    world.lane?.stopReceiving(1)
    world.lane?.expect(stream: 2, key: frames.key, credit: 1, sink: FrameSink())
    world.write(Self.flipped(frames.frame(contents: 50_000), at: 40) + frames.frame(contents: 0))
    world.write(Self.announcing(frames.frame(contents: 10), contents: 1_051_201))
    #expect(await world.log.next() == .failed(.streamDamaged))
  }

  @Test func tellsThatThePeerClosedInGoodOrder() async throws {
    let world = try BulkWorld()
    let frames = FrameMaker(1)
    world.lane?.expect(stream: 1, key: frames.key, credit: 100, sink: FrameSink())
    world.write(frames.frame(contents: 10, .final))
    close(world.sockets.far)
    #expect(await world.log.next(2) == [.received(1), .failed(.noError)])
  }

  @Test func tellsThatThePeerClosedWhileAStreamWaitsForCredit() async throws {
    let pair = try BulkPair()
    let key = Data(count: 32)
    pair.near.expect(stream: 1, key: key, credit: 1, sink: FrameSink())
    pair.near.send(stream: 1, key: key, byteCount: 1, credit: 0, from: FrameSource([]))
    pair.far.close()
    #expect(await pair.nearLog.next() == .failed(.connectionLost))
  }

  @Test func tellsThatThePeerClosedWhileItWasWrittenTo() async throws {
    let world = try BulkWorld()
    world.send(1, BulkLaneTests.frames(3))
    #expect(await world.read(1).count == 1)
    close(world.sockets.far)
    #expect(await world.log.next() == .failed(.connectionLost))
  }

  /// A descriptor that comes with the first bytes of a frame, or among its contents.
  @Test(arguments: [0, 50_000], [0, 2]) func refusesDescriptors(offset: Int, slots: Int) async throws {
    let world = try BulkWorld(slots: slots)
    let frames = FrameMaker(1)
    world.lane?.expect(stream: 1, key: frames.key, credit: 100, sink: FrameSink())
    let frame = frames.frame(contents: 100_000)
    var descriptors = DescriptorList()
    descriptors.append(try Descriptor(adopting: dup(0)))
    if offset > 0 { world.write(Array(frame.prefix(offset))) }
    try world.write(Array(frame.dropFirst(offset)), descriptors)
    #expect(await world.log.next() == .failed(.unexpectedDescriptors))
  }
}
