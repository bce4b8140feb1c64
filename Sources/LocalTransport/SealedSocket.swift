import Foundation
import NIOCore
import ServiceWire
import SodiumPrimitives

/// The sealed socket in a lane's pipeline: a handshake, then records (CHANNEL-PROTOCOL.md, "The
/// sealed socket").
final class SealedSocket: ChannelDuplexHandler {
  typealias InboundIn = ByteBuffer
  typealias InboundOut = ByteBuffer
  typealias OutboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  /// The handshake is complete, and the peer's static key is this one.
  struct DidOpen: Sendable { let peerKey: Data }

  /// Why nothing more is read or written.
  struct Failure: Error {
    let fault: ProtocolFault
    let detail: String
  }

  private enum State: ~Copyable {
    case handshaking(NoiseHandshake)
    case open(RecordCiphers)
    case failed
  }

  private var state: State
  private var received = ByteBuffer()
  /// What was written before the handshake was complete.
  private var waiting: [(ByteBuffer, EventLoopPromise<Void>?)] = []

  init(_ handshake: consuming NoiseHandshake) { state = .handshaking(handshake) }

  func handlerAdded(context: ChannelHandlerContext) {
    if context.channel.isActive { begin(context) }
  }

  func channelActive(context: ChannelHandlerContext) {
    begin(context)
    context.fireChannelActive()
  }

  func handlerRemoved(context: ChannelHandlerContext) {
    let rest = waiting
    waiting = []
    for (_, promise) in rest { promise?.fail(ChannelError.ioOnClosedChannel) }
  }

  // MARK: Handshake

  private func begin(_ context: ChannelHandlerContext) {
    goOn(context)
    context.flush()
  }

  /// Writes the next message of the handshake if it is this side's turn, and opens the socket after
  /// the last one.
  private func goOn(_ context: ChannelHandlerContext) {
    guard case .handshaking(var handshake) = takeState() else {
      preconditionFailure("a handshake is under way")
    }
    do throws(CryptoError) {
      if handshake.isWriting {
        let message = try handshake.write()
        var bytes = context.channel.allocator.buffer(capacity: RecordCipher.lengthByteCount + message.count)
        bytes.writeInteger(UInt16(message.count), endianness: .little)
        bytes.writeBytes(message)
        context.write(wrapOutboundOut(bytes), promise: nil)
      }
      guard handshake.isComplete else {
        state = .handshaking(handshake)
        return
      }
      let peerKey = Data(handshake.peerKey ?? [])
      state = .open(try handshake.split())
      // Before anything that is sent because the socket is open.
      let rest = waiting
      waiting = []
      for (bytes, promise) in rest { seal(bytes, promise, context) }
      context.fireUserInboundEventTriggered(DidOpen(peerKey: peerKey))
      context.flush()
    } catch {
      fail(context, Self.failure(of: error))
    }
  }

  /// Bytes that are kept of what was received, for tests.
  var receivedCapacity: Int { received.capacity }

  private static func failure(of error: CryptoError) -> Failure {
    error == .notAuthentic
      ? Failure(fault: .certificateNotFound, detail: "the peer did not prove the key that it should have")
      : Failure(fault: .limitExceeded, detail: "\(error)")
  }

  private func takeState() -> State {
    var taken = State.failed
    swap(&taken, &state)
    return taken
  }

  // MARK: Receiving

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    var bytes = unwrapInboundIn(data)
    if received.readableBytes == 0 {
      received = bytes
    } else {
      // The space of what was taken is used again: else all that was ever received would stay.
      if received.readerIndex >= received.readableBytes { received.discardReadBytes() }
      received.writeBuffer(&bytes)
    }
    var plaintext = ByteBuffer()
    let failure = takeAll(into: &plaintext, context)
    if plaintext.readableBytes > 0 { context.fireChannelRead(wrapInboundOut(plaintext)) }
    if let failure { fail(context, failure) }
  }

  /// Takes all complete messages and records. Returns why the socket failed, if it did.
  private func takeAll(into plaintext: inout ByteBuffer, _ context: ChannelHandlerContext) -> Failure? {
    while let length = received.getInteger(at: received.readerIndex, endianness: .little, as: UInt16.self) {
      switch state {
      case .failed: return nil
      case .handshaking(let handshake):
        guard !handshake.isWriting, Int(length) == handshake.messageByteCount else {
          return Failure(fault: .malformed, detail: "no handshake")
        }
      case .open:
        guard RecordCipher.lengths.contains(Int(length)) else {
          return Failure(fault: .malformed, detail: "a record of \(length) bytes")
        }
      }
      let end = RecordCipher.lengthByteCount + Int(length)
      guard received.readableBytes >= end, var message = received.readSlice(length: end) else { return nil }
      message.moveReaderIndex(forwardBy: RecordCipher.lengthByteCount)
      do throws(CryptoError) {
        try take(message, into: &plaintext, context)
      } catch {
        return isHandshaking
          ? Self.failure(of: error) : Failure(fault: .malformed, detail: "a record that does not open")
      }
    }
    return nil
  }

  private var isHandshaking: Bool {
    switch state {
    case .handshaking: true
    default: false
    }
  }

  private func take(
    _ message: ByteBuffer, into plaintext: inout ByteBuffer, _ context: ChannelHandlerContext
  ) throws(CryptoError) {
    switch takeState() {
    case .failed: break
    case .handshaking(var handshake):
      do throws(CryptoError) { _ = try handshake.read(Array(message.readableBytesView)) } catch {
        state = .handshaking(handshake)
        throw error
      }
      state = .handshaking(handshake)
      goOn(context)
    case .open(var ciphers):
      let count = message.readableBytes - ChaChaPoly.tagByteCount
      var failure: CryptoError?
      plaintext.writeWithUnsafeMutableBytes(minimumWritableBytes: count) { space in
        message.withUnsafeReadableBytes { sealed in
          do throws(CryptoError) {
            try ciphers.receiving.open(sealed, into: UnsafeMutableRawBufferPointer(rebasing: space[..<count]))
            return count
          } catch {
            failure = error
            return 0
          }
        }
      }
      state = .open(ciphers)
      if let failure { throw failure }
    }
  }

  private func fail(_ context: ChannelHandlerContext, _ failure: Failure) {
    state = .failed
    context.fireErrorCaught(failure)
  }

  // MARK: Sending

  func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    let bytes = unwrapOutboundIn(data)
    if isHandshaking { waiting.append((bytes, promise)) } else { seal(bytes, promise, context) }
  }

  private func seal(
    _ bytes: ByteBuffer, _ promise: EventLoopPromise<Void>?, _ context: ChannelHandlerContext
  ) {
    guard case .open(var ciphers) = takeState() else {
      promise?.fail(ChannelError.ioOnClosedChannel)
      return
    }
    let byteCount = RecordCipher.sealedByteCount(bytes.readableBytes)
    var sealed = context.channel.allocator.buffer(capacity: byteCount)
    var failure: ProtocolFault?
    bytes.withUnsafeReadableBytes { plaintext in
      _ = sealed.writeWithUnsafeMutableBytes(minimumWritableBytes: byteCount) { space in
        var (from, to) = (0, 0)
        while from < plaintext.count {
          let count = min(plaintext.count - from, RecordCipher.plaintextByteCountMax)
          let end = to + count + RecordCipher.overheadByteCount
          do throws(ProtocolFault) {
            try ciphers.sending.seal(
              UnsafeRawBufferPointer(rebasing: plaintext[from..<from + count]),
              into: UnsafeMutableRawBufferPointer(rebasing: space[to..<end]))
          } catch {
            failure = error
            break
          }
          (from, to) = (from + count, end)
        }
        return to
      }
    }
    state = .open(ciphers)
    context.write(wrapOutboundOut(sealed), promise: promise)
    if let failure { fail(context, Failure(fault: failure, detail: "records of one connection")) }
  }
}
