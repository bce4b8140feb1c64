import Foundation
import ServiceWire
import SodiumPrimitives
import Synchronization
import Testing
import UnixSockets

@testable import LocalTransport

/// What a bulk lane tells, in order.
final class BulkLog: Sendable {
  enum Event: Equatable, Sendable {
    case sent(UInt32, String? = nil)
    case received(UInt32, String? = nil)
    case failed(ProtocolFault)
  }

  let stream: AsyncStream<Event>
  private let continuation: AsyncStream<Event>.Continuation

  init() { (stream, continuation) = AsyncStream.makeStream() }

  var events: BulkEvents {
    BulkEvents(
      sent: { [continuation] in continuation.yield(.sent($0, $1.map { "\($0)" })) },
      received: { [continuation] in continuation.yield(.received($0, $1.map { "\($0)" })) },
      failed: { [continuation] fault, _ in continuation.yield(.failed(fault)) })
  }

  func next() async -> Event? {
    for await event in stream { return event }
    return nil
  }

  func next(_ count: Int) async -> [Event] {
    var events: [Event] = []
    for await event in stream {
      events.append(event)
      if events.count == count { break }
    }
    return events
  }
}

struct Broken: Error, CustomStringConvertible {
  var description: String { "broken" }
}

/// Gives bytes in pieces of some size; at their end it ends or throws.
final class ByteSource: BulkSource {
  private let bytes: [UInt8]
  private let pieceByteCount: Int
  private let failsAtEnd: Bool
  private let position = Mutex(0)

  init(_ bytes: [UInt8], pieces: Int = .max, failsAtEnd: Bool = false) {
    (self.bytes, pieceByteCount, self.failsAtEnd) = (bytes, pieces, failsAtEnd)
  }

  func read(into buffer: UnsafeMutableRawBufferPointer) throws -> Int {
    try position.withLock { position in
      #expect(buffer.count >= BulkLane.readByteCount)
      let count = min(buffer.count, pieceByteCount, bytes.count - position)
      if count == 0, failsAtEnd { throw Broken() }
      buffer.copyBytes(from: bytes[position..<position + count])
      position += count
      return count
    }
  }
}

/// Keeps what it is given. `came` is called with the count so far, and may throw for the stream.
final class ByteSink: BulkSink {
  private let kept = Mutex<[UInt8]>([])
  private let came: @Sendable (Int) throws -> Void

  init(_ came: @escaping @Sendable (Int) throws -> Void = { _ in }) { self.came = came }

  var bytes: [UInt8] { kept.withLock { $0 } }

  func receive(_ plaintext: UnsafeRawBufferPointer) throws {
    let count = kept.withLock { kept in
      kept.append(contentsOf: plaintext)
      return kept.count
    }
    try came(count)
  }
}

/// Something that one thread says and a task waits for.
struct Signal: Sendable {
  private let stream: AsyncStream<Void>
  private let continuation: AsyncStream<Void>.Continuation

  init() { (stream, continuation) = AsyncStream.makeStream() }

  func fire() { continuation.yield() }
  func wait() async { for await _ in stream { return } }
}

/// A lane, what it tells, and the bare socket at the other end.
struct BulkWorld {
  let log = BulkLog()
  let sockets: SocketPair
  private(set) var lane: BulkLane?

  /// Takes so many slots of shared memory, and gives some for every stream when the bare socket's side takes as many.
  init(
    slots: Int = 0, peerSlots: Int = 0, sharedByteCountMin: UInt64 = 1, idleTime: Duration = .seconds(10)
  ) throws {
    sockets = try SocketPair()
    lane = BulkLane(
      descriptor: sockets.near, events: log.events, slotCountMax: slots,
      sharedByteCountMin: sharedByteCountMin, idleTime: idleTime)
    lane?.allowSlots(peerSlots)
  }

  mutating func letGo() { lane = nil }

  var runs: [Bool] { lane.map { [$0.isRunning.sending, $0.isRunning.receiving] } ?? [] }

  /// As much as the lane takes: one that has failed takes no more.
  func write(_ bytes: [UInt8]) { sockets.offer(bytes) }

  /// Bytes that the lane sends; fewer at the end of what it sends.
  func read(_ count: Int) async -> [UInt8] { await sockets.read(count) }

  /// Stream and length of the next frame, whose body is read, too.
  func readFrame() async throws -> (stream: UInt32, body: [UInt8]) {
    let header = try await readHeader()
    try #require(!header.isInSlot)
    return (header.stream, await read(Int(header.length)))
  }

  func readHeader() async throws -> BulkFrame.Header {
    let header = await read(BulkFrame.headerByteCount)
    try #require(header.count == BulkFrame.headerByteCount)
    return header.withUnsafeBytes { BulkFrame.readHeader($0) }
  }

  /// Bytes that the lane sends with one descriptor.
  func readWithDescriptor(_ count: Int) throws -> ([UInt8], Int32) {
    let connection = try connection()
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: 8)
    defer { buffer.deallocate() }
    var received = try connection.receive(into: buffer, descriptorsMax: 1, deadline: .now + .seconds(60))
    guard received.byteCount == count, let descriptor = received.descriptors.popFirst() else {
      throw Broken()
    }
    return (Array(buffer), descriptor.take())
  }

  private func connection() throws -> UnixConnection {
    try UnixConnection(adopting: Descriptor(adopting: dup(sockets.far)))
  }

  /// Descriptors go with the first byte.
  func write(_ bytes: [UInt8], _ descriptors: borrowing DescriptorList) throws {
    let connection = try connection()
    try bytes.withUnsafeBufferPointer { bytes throws(SocketError) in
      try connection.send(UnsafeRawBufferPointer(bytes), descriptors: descriptors, deadline: nil)
    }
  }

  /// The next frame is one of the stream, with a body of so many bytes.
  func expectFrame(_ stream: UInt32, _ bodyByteCount: Int) async throws {
    let frame = try await readFrame()
    #expect(frame.stream == stream && frame.body.count == bodyByteCount)
  }

  /// The socket is shut down first, and closed when the last thread has let go of it.
  func untilClosed() async { while sockets.isNearOpen { await Task.yield() } }

  /// Reads, and forgets, until the lane's end is shut down.
  func readToEnd() async { while await read(1 << 16).count == 1 << 16 {} }
}

/// Two lanes that are connected.
struct BulkPair {
  let near: BulkLane
  let far: BulkLane
  let nearLog = BulkLog()
  let farLog = BulkLog()

  /// Without shared memory, with as little as there can be, and with as much as there is.
  static let slotCounts = BulkLane.slotCountMax > 0 ? [0, 1, 3, BulkLane.slotCountMax] : [0]

  /// With so many slots of shared memory in each direction, for every stream.
  init(slots: Int = 0) throws {
    let sockets = try SocketPair()
    func lane(_ descriptor: Int32, _ events: BulkEvents) -> BulkLane {
      let lane = BulkLane(
        descriptor: descriptor, events: events, slotCountMax: slots, sharedByteCountMin: 1,
        idleTime: .seconds(10))
      lane.allowSlots(slots)
      return lane
    }
    near = lane(sockets.near, nearLog.events)
    far = lane(sockets.far, farLog.events)
  }

  func close() {
    near.close()
    far.close()
  }

  /// From near to far, with enough credit.
  func carry(
    _ stream: UInt32, _ bytes: [UInt8], from source: ByteSource? = nil, to sink: ByteSink,
    announced: Int? = nil
  ) {
    let key = Data(Random.bytes(32))
    let count = UInt64(announced ?? bytes.count)
    far.expect(stream: stream, key: key, byteCount: count, credit: count, sink: sink)
    near.send(stream: stream, key: key, byteCount: count, credit: count, from: source ?? ByteSource(bytes))
  }

  /// The lane is as good as new.
  func carriesOneMore(_ stream: UInt32) async {
    let sink = ByteSink()
    let bytes = Random.bytes(100_000)
    carry(stream, bytes, to: sink)
    #expect(await nearLog.next() == .sent(stream))
    #expect(await farLog.next() == .received(stream))
    #expect(sink.bytes == bytes)
  }
}

/// A stream as the protocol's page says it, sealed and opened by hand.
final class StreamByHand {
  private let cipher = SecretStreamCipher(.libsodium)
  private var state: SecretStreamState

  init(key: Data, header: some Collection<UInt8>) {
    state = SecretStreamState(key: Array(key).span.bytes, header: Array(header).span.bytes)
  }

  func seal(_ plaintext: [UInt8], _ tag: SecretStreamTag) -> [UInt8] {
    var body = [UInt8](repeating: 0, count: plaintext.count + 17)
    body.withUnsafeMutableBytes { memory in
      var output = OutputRawSpan(buffer: memory, initializedCount: 0)
      cipher.push(&state, plaintext.span.bytes, ad: RawSpan(), tag: tag, into: &output)
    }
    return body
  }

  func open(_ body: [UInt8]) throws -> (plaintext: [UInt8], tag: SecretStreamTag?) {
    let opened = try cipher.pull(&state, body.span.bytes, ad: RawSpan())
    return (Array(opened.plaintext), opened.tag)
  }
}

/// Frames that are made by hand.
final class FrameMaker {
  let stream: UInt32
  let key = Data(Random.bytes(32))
  let header = Random.bytes(24)
  private let sealing: StreamByHand

  init(_ stream: UInt32) {
    self.stream = stream
    sealing = StreamByHand(key: key, header: header)
  }

  static func frame(_ stream: UInt32, length: Int? = nil, _ body: [UInt8]) -> [UInt8] {
    let length = UInt32(length ?? body.count)
    return (0..<4).map { UInt8(truncatingIfNeeded: stream >> (8 * $0)) }
      + (0..<4).map { UInt8(truncatingIfNeeded: length >> (8 * $0)) } + body
  }

  func headerFrame() -> [UInt8] { Self.frame(stream, header) }

  func message(_ plaintext: [UInt8], _ tag: SecretStreamTag = .message) -> [UInt8] {
    Self.frame(stream, sealing.seal(plaintext, tag))
  }
}
