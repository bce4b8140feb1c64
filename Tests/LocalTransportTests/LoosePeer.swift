import Foundation
import NIOCore
import NIOPosix
import ServiceWire
import SodiumPrimitives
import Testing

@testable import LocalTransport

/// A peer that speaks Noise, and after that whatever a test wants, while the test does something else.
final class LoosePeer: Sendable {
  private let channel: any Channel
  private let handler: NIOLoopBound<Handler>
  private let received: AsyncStream<Data>
  private let opening: EventLoopFuture<Void>

  init(_ descriptor: Int32, _ sealing: LaneSealing) async throws {
    let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
    let (received, continuation) = AsyncStream<Data>.makeStream()
    let opening = eventLoop.makePromise(of: Void.self)
    let box = NIOLoopBoundBox<Handler?>.makeEmptyBox(valueType: Handler.self, eventLoop: eventLoop)
    self.received = received
    self.opening = opening.futureResult
    channel = try await ClientBootstrap(group: eventLoop).channelInitializer { channel in
      channel.eventLoop.makeCompletedFuture {
        let handler = try Handler(sealing.handshake(), opening, continuation)
        box.value = handler
        try channel.pipeline.syncOperations.addHandler(handler)
      }
    }.withConnectedSocket(descriptor).get()
    handler = try await eventLoop.submit {
      NIOLoopBound(try #require(box.value), eventLoop: eventLoop)
    }.get()
  }

  /// Throws when it failed.
  func handshake() async throws { try await opening.get() }

  /// Seals the bytes, in as few records as there may be.
  func write(_ bytes: some Collection<UInt8>) {
    let bytes = Array(bytes)
    channel.eventLoop.execute { [channel, handler] in
      do {
        channel.writeAndFlush(ByteBuffer(bytes: try handler.value.records(bytes)), promise: nil)
      } catch {
        Issue.record(error)
      }
    }
  }

  /// Without sealing them.
  func writeRaw(_ bytes: some Collection<UInt8>) {
    channel.writeAndFlush(ByteBuffer(bytes: Array(bytes)), promise: nil)
  }

  func setReads(_ reads: Bool) async throws { try await channel.setOption(.autoRead, value: reads).get() }

  /// Without a word.
  func breakOff() { channel.close(promise: nil) }

  /// It reads on.
  func endWriting() { channel.close(mode: .output, promise: nil) }

  /// The frames until the connection ends.
  func frames() async throws -> [WireChannelMessage] {
    var decoder = FrameDecoder(byteCountMax: 1 << 24)
    var messages: [WireChannelMessage] = []
    for await bytes in received {
      decoder.append(bytes)
      while let frame = try decoder.next() {
        messages += [try WireChannelMessage.read(frame)].compactMap { $0 }
      }
    }
    return messages
  }

  /// What happens to it on its event loop.
  private final class Handler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private enum State: ~Copyable {
      case handshaking(NoiseHandshake)
      case open(SealingByHand)
      case failed
    }

    private var state: State
    private var received: [UInt8] = []
    private let opening: EventLoopPromise<Void>
    private let continuation: AsyncStream<Data>.Continuation

    init(
      _ handshake: consuming NoiseHandshake, _ opening: EventLoopPromise<Void>,
      _ continuation: AsyncStream<Data>.Continuation
    ) {
      state = .handshaking(handshake)
      self.opening = opening
      self.continuation = continuation
    }

    private func take() -> State {
      var taken = State.failed
      swap(&taken, &state)
      return taken
    }

    func records(_ bytes: [UInt8]) throws -> [UInt8] {
      guard case .open(let sealing) = take() else { throw Broken() }
      state = .open(sealing)
      var records: [UInt8] = []
      for begin in stride(from: 0, to: bytes.count, by: RecordCipher.plaintextByteCountMax) {
        records += try sealing.record(
          Array(bytes[begin..<min(bytes.count, begin + RecordCipher.plaintextByteCountMax)]))
      }
      return records
    }

    /// Writes the next message of the handshake if it is this side's turn.
    private func goOn(_ context: ChannelHandlerContext) throws {
      guard case .handshaking(var handshake) = take() else { return }
      if handshake.isWriting {
        let message = SealingByHand.withLength(try handshake.write())
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: message)), promise: nil)
      }
      guard handshake.isComplete else {
        state = .handshaking(handshake)
        return
      }
      state = .open(try SealingByHand(handshake))
      opening.succeed()
    }

    private func read(_ message: [UInt8], _ context: ChannelHandlerContext) throws {
      switch take() {
      case .handshaking(var handshake):
        _ = try handshake.read(message)
        state = .handshaking(handshake)
        try goOn(context)
      case .open(let sealing):
        state = .open(sealing)
        continuation.yield(Data(try sealing.plaintext(message)))
      case .failed: break
      }
    }

    func channelActive(context: ChannelHandlerContext) {
      do { try goOn(context) } catch { errorCaught(context: context, error: error) }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      received += unwrapInboundIn(data).readableBytesView
      var begin = 0
      do {
        while received.count >= begin + 2 {
          let end = begin + 2 + Int(received[begin]) + Int(received[begin + 1]) << 8
          guard received.count >= end else { break }
          try read(Array(received[begin + 2..<end]), context)
          begin = end
        }
      } catch {
        errorCaught(context: context, error: error)
      }
      received.removeFirst(begin)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
      opening.fail(error)
      context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
      opening.fail(ChannelError.eof)
      continuation.finish()
    }
  }
}

/// The records of one side of a connection.
final class SealingByHand {
  private var ciphers: RecordCiphers

  init(_ handshake: consuming NoiseHandshake) throws { ciphers = try handshake.split() }

  /// A message of a handshake, or what is in a record.
  static func withLength(_ bytes: [UInt8]) -> [UInt8] {
    [UInt8(truncatingIfNeeded: bytes.count), UInt8(truncatingIfNeeded: bytes.count >> 8)] + bytes
  }

  /// The next record that is sent.
  func record(_ plaintext: [UInt8]) throws -> [UInt8] {
    var record = [UInt8](repeating: 0, count: plaintext.count + RecordCipher.overheadByteCount)
    try plaintext.withUnsafeBytes { plaintext in
      try record.withUnsafeMutableBytes { try ciphers.sending.seal(plaintext, into: $0) }
    }
    return record
  }

  /// Of the next record that was received, without its length.
  func plaintext(_ sealed: [UInt8]) throws -> [UInt8] {
    guard sealed.count >= ChaChaPoly.tagByteCount else { throw CryptoError.notAuthentic }
    var plaintext = [UInt8](repeating: 0, count: sealed.count - ChaChaPoly.tagByteCount)
    try sealed.withUnsafeBytes { sealed in
      try plaintext.withUnsafeMutableBytes { try ciphers.receiving.open(sealed, into: $0) }
    }
    return plaintext
  }
}

/// The far end of a socket pair, sealed by hand and step by step.
struct PeerByHand {
  let sockets: SocketPair
  let sealing: SealingByHand
  /// What it wrote of the handshake.
  let handshakeMessage: [UInt8]

  /// Shakes hands with the near side.
  init(_ sockets: SocketPair, _ laneSealing: LaneSealing) async throws {
    self.sockets = sockets
    var handshake = try laneSealing.handshake()
    var written: [UInt8] = []
    while !handshake.isComplete {
      if handshake.isWriting {
        written = SealingByHand.withLength(try handshake.write())
        sockets.write(written)
      } else {
        let message = await sockets.read(2 + handshake.messageByteCount)
        _ = try handshake.read(Array(message.dropFirst(2)))
      }
    }
    handshakeMessage = written
    sealing = try SealingByHand(handshake)
  }

  /// A record with these messages.
  func record(_ messages: [WireChannelMessage]) throws -> [UInt8] {
    var frames: [UInt8] = []
    for message in messages { try message.appendFrame(to: &frames, byteCountMax: 1 << 24) }
    return try sealing.record(frames)
  }

  /// The plaintext of the next record of the near side; nil at the end of what it sends.
  func read() async throws -> [UInt8]? {
    let length = await sockets.read(2)
    guard length.count == 2 else { return nil }
    return try sealing.plaintext(await sockets.read(Int(length[0]) + Int(length[1]) << 8))
  }

  /// The near side sends nothing any more, and has not said goodbye.
  func expectSilentEnd(sourceLocation: SourceLocation = #_sourceLocation) async {
    #expect(await sockets.read(1).isEmpty, sourceLocation: sourceLocation)
    sockets.closeFar()
  }
}
