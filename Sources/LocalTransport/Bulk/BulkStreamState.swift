import Foundation
import SodiumPrimitives

/// Where a stream stands, for the thread that seals or opens it (SERVICE-PROTOCOL.md, "The bulk lane"). Its key is wiped when it goes.
final class BulkStreamState {
  private var state: SecretStreamState

  /// The stream at its beginning. `header` is that of its first frame.
  init(key: Data, header: UnsafeRawBufferPointer) {
    state = SecretStreamState(key: key.bytes, header: header.bytes)
  }

  deinit { state.wipe() }

  /// Seals the next message, `BulkFrame.overheadByteCount` longer. With `scratch` of the same size each byte of `output` is written once, and none is read:
  /// others may look at it, and change it.
  func seal(
    _ message: UnsafeRawBufferPointer, isLast: Bool, into output: UnsafeMutableRawBufferPointer,
    through scratch: UnsafeMutableRawBufferPointer?, _ cipher: SecretStreamCipher
  ) {
    let memory = scratch ?? output
    var sealed = OutputRawSpan(buffer: memory, initializedCount: 0)
    cipher.push(&state, message.bytes, ad: RawSpan(), tag: isLast ? .final : .message, into: &sealed)
    if scratch != nil { output.copyMemory(from: UnsafeRawBufferPointer(memory)) }
  }

  /// Opens the next message, and calls `body` with its plaintext, which is valid until `body` returns, and with whether it is tagged as the last one. Throws what
  /// `body` throws, and for a message that does not open.
  func open(
    _ sealed: UnsafeRawBufferPointer, _ cipher: SecretStreamCipher,
    _ body: (UnsafeRawBufferPointer, Bool) throws -> Void
  ) throws {
    let (plaintext, tag) = try cipher.pull(&state, sealed.bytes, ad: RawSpan())
    guard tag == .message || tag == .final else { throw BulkSealError.otherTag }
    try body(plaintext, tag == .final)
  }
}

enum BulkSealError: Error {
  /// Neither MESSAGE nor FINAL.
  case otherTag
}
