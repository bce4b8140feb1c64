import Foundation
import ServiceWire
import SodiumPrimitives
import Testing
import UnixSockets

@testable import LocalTransport

/// What a lane makes of a peer that keeps to nothing.
@Suite(.timeLimit(.minutes(10)))
struct BulkLaneDamageTests {
  static let message = BulkFrame.messageByteCountMax
  /// Of stream 1: two messages.
  static let byteCount = message + 100

  /// What comes, how much of it reaches the sink, and how the lane fails.
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

  static let full = [UInt8](repeating: 5, count: message)
  static let rest = [UInt8](repeating: 6, count: 100)

  static func flipped(_ frame: [UInt8], at index: Int) -> [UInt8] {
    var frame = frame
    frame[index] ^= 1
    return frame
  }

  static let cases = [
    Case("a flipped byte of the stream's header") { flipped($0.headerFrame(), at: 20) + $0.message(full) },
    Case("a flipped byte of the tag") { $0.headerFrame() + flipped($0.message(full), at: 8) },
    Case("a flipped byte within a message") { $0.headerFrame() + flipped($0.message(full), at: 40_000) },
    Case("a flipped byte at the end of a message") {
      $0.headerFrame() + flipped($0.message(full), at: 8 + message + 16)
    },
    Case("a flipped byte in the last message", reaches: message) {
      $0.headerFrame() + $0.message(full) + flipped($0.message(rest, .final), at: 30)
    },
    Case("a length of 0") { _ in FrameMaker.frame(1, length: 0, []) },
    Case("a header one byte too short") { _ in FrameMaker.frame(1, length: 23, []) },
    Case("a header one byte too long") { _ in FrameMaker.frame(1, length: 25, []) },
    Case("the greatest length") { _ in FrameMaker.frame(1, length: Int(UInt32.max), []) },
    Case("a message without the stream's header") { $0.message(full) },
    Case("the stream's header twice") { $0.headerFrame() + $0.headerFrame() },
    Case("a message one byte too short") { $0.headerFrame() + $0.message(full.dropLast()) },
    Case("a message one byte too long") { $0.headerFrame() + $0.message(full + [1]) },
    Case("an empty message") { $0.headerFrame() + $0.message([]) },
    Case("a last message one byte too short", reaches: message) {
      $0.headerFrame() + $0.message(full) + $0.message(rest.dropLast(), .final)
    },
    Case("a byte too much", reaches: message) {
      $0.headerFrame() + $0.message(full) + $0.message(rest + [1], .final)
    },
    Case("FINAL before the announced count") { $0.headerFrame() + $0.message(full, .final) },
    Case("no FINAL at the announced count", reaches: message) {
      $0.headerFrame() + $0.message(full) + $0.message(rest)
    },
    Case("another tag") { $0.headerFrame() + $0.message(full, .rekey) },
    Case("messages in another order") {
      let first = $0.message(full)
      let second = $0.message(full)
      return $0.headerFrame() + second + first
    },
    Case("a message twice", reaches: message) {
      let first = $0.message(full)
      return $0.headerFrame() + first + first.prefix(8 + 100 + 17)
    },
    Case("a stream that was not announced") { _ in FrameMaker(2).headerFrame() },
    Case("nothing", .connectionLost) { _ in [] },
    Case("half a frame's header", .connectionLost) { Array($0.headerFrame().prefix(5)) },
    Case("half a body", reaches: message, .connectionLost) {
      $0.headerFrame() + $0.message(full) + $0.message(rest, .final).prefix(50)
    },
    Case("no last message", reaches: message, .connectionLost) { $0.headerFrame() + $0.message(full) },
  ]

  @Test(arguments: cases) func fails(damage: Case) async throws {
    let world = try BulkWorld()
    let frames = FrameMaker(1)
    let sink = ByteSink()
    world.lane?.expect(
      stream: 1, key: frames.key, byteCount: UInt64(Self.byteCount), credit: .max, sink: sink)
    world.write(damage.bytes(frames))
    shutdown(world.sockets.far, Int32(SHUT_WR))
    #expect(await world.log.next() == .failed(damage.fault))
    await world.readToEnd()
    #expect(sink.bytes.count == damage.reaches)
  }

  @Test func failsForAFrameAfterTheLastOne() async throws {
    let world = try BulkWorld()
    let frames = FrameMaker(1)
    world.lane?.expect(stream: 1, key: frames.key, byteCount: 100, credit: 100, sink: ByteSink())
    world.write(
      frames.headerFrame() + frames.message(Self.rest, .final) + frames.message([1], .final))
    #expect(await world.log.next(2) == [.received(1), .failed(.streamDamaged)])
  }

  @Test func tellsThatThePeerClosedInGoodOrder() async throws {
    let world = try BulkWorld()
    let frames = FrameMaker(1)
    world.lane?.expect(stream: 1, key: frames.key, byteCount: 100, credit: 100, sink: ByteSink())
    world.write(frames.headerFrame() + frames.message(Self.rest, .final))
    close(world.sockets.far)
    #expect(await world.log.next(2) == [.received(1), .failed(.noError)])
  }

  @Test func tellsThatThePeerClosedWhileAStreamWaitsForCredit() async throws {
    let pair = try BulkPair()
    let key = Data(count: 32)
    pair.near.expect(stream: 1, key: key, byteCount: 1, credit: 1, sink: ByteSink())
    pair.near.send(stream: 1, key: key, byteCount: 1, credit: 0, from: ByteSource([1]))
    pair.far.close()
    #expect(await pair.nearLog.next() == .failed(.connectionLost))
  }

  @Test func tellsThatThePeerClosedWhileItWasWrittenTo() async throws {
    let world = try BulkWorld()
    world.lane?.send(
      stream: 1, key: Data(count: 32), byteCount: 8 << 20, credit: .max,
      from: ByteSource(Random.bytes(8 << 20)))
    #expect(await world.read(1).count == 1)
    close(world.sockets.far)
    #expect(await world.log.next() == .failed(.connectionLost))
  }

  @Test func refusesDescriptors() async throws {
    let world = try BulkWorld()
    let frames = FrameMaker(1)
    world.lane?.expect(stream: 1, key: frames.key, byteCount: 100, credit: 100, sink: ByteSink())
    let far = try UnixConnection(adopting: Descriptor(adopting: world.sockets.far))
    var descriptors = DescriptorList()
    descriptors.append(try Descriptor(adopting: dup(0)))
    let bytes = frames.headerFrame()
    try bytes.withUnsafeBytes { try far.send($0, descriptors: descriptors, deadline: nil) }
    #expect(await world.log.next() == .failed(.unexpectedDescriptors))
  }
}
