package import Foundation
import SodiumPrimitives

/// What comes of a sealed socket: the peer's part of the handshake, then records, whose plaintext is
/// a stream of frames (CHANNEL-PROTOCOL.md, "The sealed socket").
///
/// Keeps nothing of what has not come whole: that is its owner's to keep, never more than
/// ``byteCountMax``.
package struct SealedInput: ~Copyable {
  /// Of the longest record, with its length.
  package static let byteCountMax = RecordCipher.lengthByteCount + Int(UInt16.max)

  /// Why nothing more is read or written. The peer is not told.
  package struct Failure: Error, Equatable {
    package let fault: ProtocolFault
    package let detail: String
  }

  private enum State: ~Copyable {
    case handshaking(NoiseHandshake)
    case open(RecordCipher)
    case failed
  }

  private var state: State
  /// Where a record is opened.
  private let plaintext = UnsafeMutableRawBufferPointer.allocate(
    byteCount: RecordCipher.plaintextByteCountMax, alignment: 1)

  package init(_ handshake: consuming NoiseHandshake) { state = .handshaking(handshake) }

  deinit { plaintext.deallocate() }

  /// What is to be done when ``goOn()`` has been called.
  package struct Step: ~Copyable {
    /// To be written as it is; empty for nothing.
    package var message: [UInt8] = []
    /// After the message, once: the handshake is complete, with this cipher for what is sent.
    package var sending: RecordCipher?
    /// The peer's static key.
    package var peerKey = Data()
  }

  private mutating func takeState() -> State {
    var taken = State.failed
    swap(&taken, &state)
    return taken
  }

  /// To be called in the beginning, and after each message of the handshake that was taken.
  ///
  /// Throws `limitExceeded` when the system has no secret memory left.
  package mutating func goOn() throws(Failure) -> Step {
    var step = Step()
    switch takeState() {
    case .failed: break
    case .open(let cipher): state = .open(cipher)
    case .handshaking(var handshake):
      do throws(CryptoError) {
        if handshake.isWriting {
          let message = try handshake.write()
          withUnsafeBytes(of: UInt16(message.count).littleEndian) { step.message.append(contentsOf: $0) }
          step.message += message
        }
        guard handshake.isComplete else {
          state = .handshaking(handshake)
          return step
        }
        step.peerKey = Data(handshake.peerKey ?? [])
        let ciphers = try handshake.split()
        step.sending = consume ciphers.sending
        state = .open(consume ciphers.receiving)
      } catch {
        throw Self.failure(of: error)
      }
    }
    return step
  }

  private static func failure(of error: CryptoError) -> Failure {
    switch error {
    case .notAuthentic:
      Failure(fault: .certificateNotFound, detail: "the peer did not prove the key that it should have")
    // This side stops.
    case .keysWiped: Failure(fault: .connectionLost, detail: "\(error)")
    default: Failure(fault: .limitExceeded, detail: "\(error)")
    }
  }

  /// What was taken of some bytes.
  package enum Taken: Equatable {
    /// Nothing: more has to come before.
    case nothing
    /// A message of the handshake of so many bytes: then ``goOn()``.
    case handshake(byteCount: Int)
    /// A record of so many bytes.
    case record(byteCount: Int)
  }

  /// Takes the message or the record that `bytes` begin with, and appends the record's plaintext to
  /// `frames`. Throws `malformed` and `certificateNotFound`, after which nothing more can be taken.
  package mutating func take(
    _ bytes: UnsafeRawBufferPointer, into frames: inout FrameDecoder
  ) throws(Failure) -> Taken {
    let lengthByteCount = RecordCipher.lengthByteCount
    guard bytes.count >= lengthByteCount else { return .nothing }
    let length = Int(UInt16(littleEndian: bytes.loadUnaligned(as: UInt16.self)))
    let end = lengthByteCount + length
    switch takeState() {
    case .failed: return .nothing
    case .handshaking(var handshake):
      guard !handshake.isWriting, length == handshake.messageByteCount else {
        throw Failure(fault: .malformed, detail: "no handshake")
      }
      guard bytes.count >= end else {
        state = .handshaking(handshake)
        return .nothing
      }
      do throws(CryptoError) {
        _ = try handshake.read(Array(bytes[lengthByteCount..<end]))
      } catch {
        throw Self.failure(of: error)
      }
      state = .handshaking(handshake)
      return .handshake(byteCount: end)
    case .open(var cipher):
      guard RecordCipher.lengths.contains(length) else {
        throw Failure(fault: .malformed, detail: "a record of \(length) bytes")
      }
      guard bytes.count >= end else {
        state = .open(cipher)
        return .nothing
      }
      do throws(CryptoError) {
        let opened = UnsafeMutableRawBufferPointer(
          rebasing: plaintext[..<(length - ChaChaPoly.tagByteCount)])
        try cipher.open(UnsafeRawBufferPointer(rebasing: bytes[lengthByteCount..<end]), into: opened)
        frames.append(UnsafeRawBufferPointer(opened))
      } catch {
        throw Failure(fault: .malformed, detail: "a record that does not open")
      }
      state = .open(cipher)
      return .record(byteCount: end)
    }
  }
}
