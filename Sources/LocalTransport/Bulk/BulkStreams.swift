import Foundation
import Locks
import ServiceWire
import SodiumPrimitives

/// A stream that is sent, and the state of its secretstream.
///
/// Only the sending thread seals: the lock is never waited for.
final class OutgoingBulkStream: Sendable {
  private struct Sealing: ~Copyable {
    var state: SecretStreamState
    /// Empty once it was sent.
    var header: [UInt8]
  }

  let source: any BulkSource
  private let sealing: Guarded<Sealing>

  init(key: Data, source: any BulkSource) {
    self.source = source
    let header = Random.bytes(BulkFrame.streamHeaderByteCount)
    sealing = Guarded(
      Sealing(state: SecretStreamState(key: key.bytes, header: header.span.bytes), header: header))
  }

  deinit { sealing.withLock { $0.state.wipe() } }

  /// Seals the next block at the end of `room`, behind the stream's header when it is the first.
  /// Returns how many bytes both have.
  func seal(
    _ block: UnsafeRawBufferPointer, isLast: Bool, atEndOf room: UnsafeMutableRawBufferPointer,
    _ cipher: SecretStreamCipher
  ) -> Int {
    sealing.withLock { sealing in
      let count = sealing.header.count + block.count + BulkFrame.overheadByteCount
      var output = OutputRawSpan(
        buffer: UnsafeMutableRawBufferPointer(rebasing: room.suffix(count)), initializedCount: 0)
      sealing.header.withUnsafeBytes { output.append(copying: $0) }
      sealing.header = []
      cipher.push(
        &sealing.state, block.bytes, ad: RawSpan(), tag: isLast ? .final : .message, into: &output)
      return count
    }
  }
}

/// A stream that is received, and the state of its secretstream.
///
/// Only the receiving thread opens: the lock is never waited for.
final class IncomingBulkStream: Sendable {
  private struct Opening: ~Copyable {
    let key: Data
    /// The state belongs to a made-up header until the stream's header has come.
    var state: SecretStreamState
  }

  let sink: any BulkSink
  private let opening: Guarded<Opening>

  init(key: Data, sink: any BulkSink) {
    self.sink = sink
    let header = Data(count: BulkFrame.streamHeaderByteCount)
    opening = Guarded(
      Opening(key: key, state: SecretStreamState(key: key.bytes, header: header.bytes)))
  }

  deinit { opening.withLock { $0.state.wipe() } }

  /// Opens the next block, which has the stream's header in front of it when it is the first. The
  /// plaintext is in the cipher's memory until its next call.
  ///
  /// Throws ``CryptoError`` for a block that is not authentic; the tag is nil when it is none at
  /// all.
  func open(
    _ sealed: UnsafeRawBufferPointer, isFirst: Bool, _ cipher: SecretStreamCipher
  ) throws(CryptoError) -> (block: UnsafeRawBufferPointer, tag: SecretStreamTag?) {
    try opening.withLock { opening throws(CryptoError) in
      var sealed = sealed.bytes
      if isFirst {
        let count = BulkFrame.streamHeaderByteCount
        opening.state = SecretStreamState(key: opening.key.bytes, header: sealed.extracting(first: count))
        sealed = sealed.extracting(droppingFirst: count)
      }
      let (block, tag) = try cipher.pull(&opening.state, sealed, ad: RawSpan())
      return (block, tag)
    }
  }
}
