import Crypto
import Foundation
import ServiceWire
import SodiumPrimitives

/// Where a stream stands, for the thread that seals or opens it (SERVICE-PROTOCOL.md, "The bulk lane"). Its keys are wiped when it goes, but for those of AES that
/// swift-crypto expands for each message.
protocol BulkStreamState: AnyObject {
  /// Seals the next message, `BulkFrame.overheadByteCount` longer. With `scratch` of the same size each byte of `output` is written once, and none is read:
  /// others may look at it, and change it.
  func seal(
    _ message: UnsafeRawBufferPointer, isLast: Bool, into output: UnsafeMutableRawBufferPointer,
    through scratch: UnsafeMutableRawBufferPointer?, _ cipher: SecretStreamCipher) throws

  /// Opens the next message, and calls `body` with its plaintext, which is valid until `body` returns, and with whether it is tagged as the last one. Throws what
  /// `body` throws, and for a message that does not open.
  func open(
    _ sealed: UnsafeRawBufferPointer, _ cipher: SecretStreamCipher,
    _ body: (UnsafeRawBufferPointer, Bool) throws -> Void
  ) throws
}

extension BulkKey {
  /// The stream at its beginning. `header` is that of its first frame.
  func beginning(header: UnsafeRawBufferPointer) -> any BulkStreamState {
    switch cipher {
    case .secretstream: SecretBulkStream.beginning(key: bytes, header: header)
    case .aes256GCM: GCMBulkStream(key: bytes, header: header)
    }
  }
}

enum BulkSealError: Error {
  /// Neither MESSAGE nor FINAL.
  case otherTag
}

/// Of libsodium, or its bytes through libcrypto.
private final class SecretBulkStream: BulkStreamState {
  private var state: SecretStreamState

  private init(_ state: consuming SecretStreamState) { self.state = state }

  static func beginning(key: Data, header: UnsafeRawBufferPointer) -> SecretBulkStream {
    key.withUnsafeBytes { SecretBulkStream(SecretStreamState(key: $0.bytes, header: header.bytes)) }
  }

  deinit { state.wipe() }

  func seal(
    _ message: UnsafeRawBufferPointer, isLast: Bool, into output: UnsafeMutableRawBufferPointer,
    through scratch: UnsafeMutableRawBufferPointer?, _ cipher: SecretStreamCipher
  ) {
    let memory = scratch ?? output
    var sealed = OutputRawSpan(buffer: memory, initializedCount: 0)
    cipher.push(&state, message.bytes, ad: RawSpan(), tag: isLast ? .final : .message, into: &sealed)
    if scratch != nil { output.copyMemory(from: UnsafeRawBufferPointer(memory)) }
  }

  func open(
    _ sealed: UnsafeRawBufferPointer, _ cipher: SecretStreamCipher,
    _ body: (UnsafeRawBufferPointer, Bool) throws -> Void
  ) throws {
    let (plaintext, tag) = try cipher.pull(&state, sealed.bytes, ad: RawSpan())
    guard tag == .message || tag == .final else { throw BulkSealError.otherTag }
    try body(plaintext, tag == .final)
  }
}

/// AES-256-GCM of swift-crypto.
private final class GCMBulkStream: BulkStreamState {
  private let key: SymmetricKey
  /// XORed with the message's number.
  private let nonceBase: [UInt8]
  /// Header and tag.
  private let associatedData: (message: [UInt8], last: [UInt8])
  private var number: UInt64 = 0

  private static let nonceByteCount = 12
  private static let authenticatorByteCount = 16

  init(key: Data, header: UnsafeRawBufferPointer) {
    self.key = SymmetricKey(data: key)
    nonceBase = Array(header.prefix(Self.nonceByteCount))
    associatedData = (header + [SecretStreamTag.message.rawValue], header + [SecretStreamTag.final.rawValue])
  }

  private func nonce() throws -> AES.GCM.Nonce {
    var bytes = nonceBase
    for i in 0..<8 { bytes[bytes.count - 1 - i] ^= UInt8(truncatingIfNeeded: number >> (8 * UInt64(i))) }
    return try AES.GCM.Nonce(data: bytes)
  }

  func seal(
    _ message: UnsafeRawBufferPointer, isLast: Bool, into output: UnsafeMutableRawBufferPointer,
    through scratch: UnsafeMutableRawBufferPointer?, _ cipher: SecretStreamCipher
  ) throws {
    let box = try AES.GCM.seal(
      message, using: key, nonce: nonce(),
      authenticating: isLast ? associatedData.last : associatedData.message)
    number += 1
    output[0] = (isLast ? SecretStreamTag.final : .message).rawValue
    let end = 1 + message.count
    UnsafeMutableRawBufferPointer(rebasing: output[1..<end]).copyBytes(from: box.ciphertext)
    UnsafeMutableRawBufferPointer(rebasing: output[end...]).copyBytes(from: box.tag)
  }

  func open(
    _ sealed: UnsafeRawBufferPointer, _ cipher: SecretStreamCipher,
    _ body: (UnsafeRawBufferPointer, Bool) throws -> Void
  ) throws {
    guard sealed.count >= BulkFrame.overheadByteCount else {
      throw SodiumPrimitives.CryptoError.tooShort(
        byteCount: sealed.count, minimum: BulkFrame.overheadByteCount)
    }
    let isLast = sealed[0] == SecretStreamTag.final.rawValue
    guard isLast || sealed[0] == SecretStreamTag.message.rawValue else { throw BulkSealError.otherTag }
    let end = sealed.count - Self.authenticatorByteCount
    let box = try AES.GCM.SealedBox(
      nonce: nonce(), ciphertext: UnsafeRawBufferPointer(rebasing: sealed[1..<end]),
      tag: UnsafeRawBufferPointer(rebasing: sealed[end...]))
    var plaintext = try AES.GCM.open(
      box, using: key, authenticating: isLast ? associatedData.last : associatedData.message)
    number += 1
    defer { plaintext.withUnsafeMutableBytes { wipe($0) } }
    try plaintext.withUnsafeBytes { try body($0, isLast) }
  }
}
