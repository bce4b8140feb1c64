import Foundation
import Locks
import ServiceWire
import SodiumPrimitives
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

/// A frame before it is sealed.
struct PlainFrame: Equatable, Sendable {
  var block: [UInt8]
  var contents: [UInt8]

  static func random(block: Int = 64, contents: Int) -> PlainFrame {
    PlainFrame(block: Random.bytes(block), contents: Random.bytes(contents))
  }
}

/// Gives frames, the last one as such unless it throws then.
final class FrameSource: BulkSource {
  private let frames: [PlainFrame]
  private let failsAtEnd: Bool
  private let asked: @Sendable () throws -> Void
  private let index = Guarded(0)

  /// `asked` is called before each frame and may throw for the source.
  init(
    _ frames: [PlainFrame], failsAtEnd: Bool = false, asked: @escaping @Sendable () throws -> Void = {}
  ) {
    (self.frames, self.failsAtEnd, self.asked) = (frames, failsAtEnd, asked)
  }

  func next(
    block: UnsafeMutableRawBufferPointer, contents: UnsafeMutableRawBufferPointer
  ) throws -> BulkPart {
    #expect(block.count == BulkFrame.blockByteCountMax)
    #expect(contents.count == BulkFrame.contentsByteCountMax)
    // Something that must not reach anybody.
    block.initializeMemory(as: UInt8.self, repeating: 0xBD)
    try asked()
    let position = index.withLock { index in
      defer { index += 1 }
      return index
    }
    guard position < frames.count else { throw Broken() }
    let frame = frames[position]
    block.copyBytes(from: frame.block)
    contents.copyBytes(from: frame.contents)
    return BulkPart(
      blockByteCount: frame.block.count, contentsByteCount: frame.contents.count,
      isLast: position == frames.count - 1 && !failsAtEnd)
  }
}

/// Keeps what it is given, and the contents themselves when it holds them.
final class FrameSink: BulkSink {
  private struct State {
    var frames: [PlainFrame] = []
    var isLast: [Bool] = []
    var held: [BulkContents?] = []
  }

  private let state = Guarded(State())
  private let holds: Bool
  private let came: @Sendable (Int) throws -> Void

  /// `came` is called with the number of frames so far, and may throw for the sink.
  init(holds: Bool = false, _ came: @escaping @Sendable (Int) throws -> Void = { _ in }) {
    (self.holds, self.came) = (holds, came)
  }

  var frames: [PlainFrame] { state.withLock { $0.frames } }
  /// Whether each frame was given as the last one.
  var isLast: [Bool] { state.withLock { $0.isLast } }

  /// Contents that it holds; they are its caller's from now on.
  func take(_ index: Int) -> BulkContents? {
    state.withLock { state in
      defer { state.held[index] = nil }
      return state.held[index]
    }
  }

  func receive(_ block: UnsafeRawBufferPointer, _ contents: BulkContents, isLast: Bool) throws {
    let frame = PlainFrame(block: Array(block), contents: try contents.bytes())
    let count = state.withLock { state in
      state.frames.append(frame)
      state.isLast.append(isLast)
      if holds { state.held.append(contents) }
      return state.frames.count
    }
    try came(count)
  }
}

extension BulkContents {
  func bytes() throws -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: byteCount)
    try bytes.withUnsafeMutableBytes { try read(at: 0, into: $0) }
    return bytes
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

  /// Takes so many slots of shared memory, and gives some for every stream when the bare socket's
  /// side takes as many.
  init(
    slots: Int = 0, peerSlots: Int = 0, sharedByteCountMin: UInt64 = 1, idleTime: Duration = .seconds(10),
    budget: BulkSlotBudget = BulkSlotBudget()
  ) throws {
    sockets = try SocketPair()
    lane = BulkLane(
      descriptor: sockets.near, events: log.events, slotCountMax: slots,
      budget: budget, sharedByteCountMin: sharedByteCountMin,
      socketContentsByteCountMax: BulkFrame.contentsByteCountMax, idleTime: idleTime)
    lane?.allowSlots(peerSlots)
  }

  /// The number of bytes that the lane has sent and nobody has read.
  var unreadByteCount: Int {
    var count: Int32 = 0
    return ioctl(sockets.far, UInt(FIONREAD), &count) == 0 ? Int(count) : -1
  }

  mutating func letGo() { lane = nil }

  var runs: [Bool] { lane.map { [$0.isRunning.sending, $0.isRunning.receiving] } ?? [] }

  /// As much as the lane takes: one that has failed takes no more.
  func write(_ bytes: [UInt8]) { sockets.offer(bytes) }

  /// Bytes that the lane sends; fewer at the end of what it sends.
  func read(_ count: Int) async -> [UInt8] { await sockets.read(count) }

  /// The next frame as it is on the wire; without contents when they are in a slot.
  func readFrame() async throws -> (header: BulkFrame.Header, block: [UInt8], contents: [UInt8]) {
    let bytes = await read(BulkFrame.headerByteCount)
    try #require(bytes.count == BulkFrame.headerByteCount)
    let header = bytes.withUnsafeBytes { BulkFrame.Header($0) }
    guard case .stream(_, let block, let contents, let isInSlot) = header else { return (header, [], []) }
    return (header, await read(Int(block)), isInSlot ? [] : await read(Int(contents)))
  }

  /// Bytes that are there already.
  func readNow() -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: 1 << 16)
    let count = recv(sockets.far, &bytes, bytes.count, Int32(MSG_DONTWAIT))
    return Array(bytes.prefix(max(0, count)))
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

  /// The next frame is one of the stream, with a sealed block and contents of these lengths.
  func expectFrame(_ stream: UInt32, block: Int, contents: Int, isInSlot: Bool = false) async throws {
    #expect(
      try await readFrame().header
        == .stream(stream, block: UInt32(block), contents: UInt32(contents), isInSlot: isInSlot))
  }

  /// Sends frames under a key of zeros.
  func send(_ stream: UInt32, _ frames: [PlainFrame], credit: UInt64 = .max) {
    lane?.send(
      stream: stream, key: Data(count: 32), byteCount: 1, credit: credit, from: FrameSource(frames))
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
        descriptor: descriptor, events: events, slotCountMax: slots, budget: BulkSlotBudget(),
        sharedByteCountMin: 1, socketContentsByteCountMax: BulkFrame.contentsByteCountMax,
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
    _ stream: UInt32, _ frames: [PlainFrame], from source: FrameSource? = nil, to sink: any BulkSink
  ) {
    let key = Data(Random.bytes(32))
    far.expect(stream: stream, key: key, credit: .max, sink: sink)
    near.send(
      stream: stream, key: key, byteCount: 1, credit: .max, from: source ?? FrameSource(frames))
  }

  /// The lane is as good as new.
  func carriesOneMore(_ stream: UInt32) async {
    let sink = FrameSink()
    let frames = (0..<5).map { _ in PlainFrame.random(contents: 100_000) }
    carry(stream, frames, to: sink)
    #expect(await nearLog.next() == .sent(stream))
    #expect(await farLog.next() == .received(stream))
    #expect(sink.frames == frames)
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

/// Frames that are made by hand, as the protocol's page says.
final class FrameMaker {
  let stream: UInt32
  let key = Data(Random.bytes(32))
  let header = Random.bytes(24)
  private let sealing: StreamByHand
  private var isFirst = true

  init(_ stream: UInt32) {
    self.stream = stream
    sealing = StreamByHand(key: key, header: header)
  }

  static func words(_ words: UInt32...) -> [UInt8] {
    words.flatMap { word in (0..<4).map { UInt8(truncatingIfNeeded: word >> (8 * $0)) } }
  }

  /// The stream's next frame, where the first block has the stream's header in front of it.
  func frame(_ frame: PlainFrame, _ tag: SecretStreamTag = .message) -> [UInt8] {
    let block = (isFirst ? header : []) + sealing.seal(frame.block, tag)
    isFirst = false
    return Self.words(stream, UInt32(block.count), UInt32(frame.contents.count)) + block + frame.contents
  }

  func frame(block: Int = 64, contents: Int, _ tag: SecretStreamTag = .message) -> [UInt8] {
    frame(.random(block: block, contents: contents), tag)
  }
}
