import Dispatch
import SodiumPrimitives

/// Work in memory alone: copying, and sealing.
final class BenchMemory {
  /// More than the caches of a processor hold.
  private static let copiedByteCount = 64 << 20
  /// A message as containers seal it.
  private static let messageByteCount = 16 << 10

  private let byteCount: Int
  private let backend: CipherBackend
  private let source: [UInt8]
  private var target: [UInt8]

  init(byteCount: Int, _ backend: CipherBackend) {
    self.byteCount = byteCount
    self.backend = backend
    let count = min(byteCount, Self.copiedByteCount)
    source = [UInt8](repeating: 1, count: count)
    // Written once, so that no repetition pays for its pages.
    target = [UInt8](repeating: 2, count: count)
  }

  func copy() {
    target.withUnsafeMutableBytes { target in
      source.withUnsafeBytes { source in
        var left = byteCount
        while left > 0 {
          let count = min(left, source.count)
          target.copyMemory(from: UnsafeRawBufferPointer(rebasing: source[..<count]))
          left -= count
        }
      }
    }
  }

  /// Each thread seals one message again and again, which stays in its core's cache: the cipher alone.
  func seal(threadCount: Int) {
    let (messageCount, backend) = (byteCount / Self.messageByteCount, backend)
    DispatchQueue.concurrentPerform(iterations: threadCount) { thread in
      let cipher = SecretStreamCipher(backend)
      let keyAndHeader = Random.bytes(SecretKey.byteCount + SecretStreamCipher.headerByteCount)
      let message = [UInt8](repeating: 3, count: Self.messageByteCount)
      var sealed = [UInt8](repeating: 0, count: message.count + SecretStreamCipher.messageOverheadByteCount)
      var state = SecretStreamState(
        key: keyAndHeader.span.bytes.extracting(first: SecretKey.byteCount),
        header: keyAndHeader.span.bytes.extracting(droppingFirst: SecretKey.byteCount))
      sealed.withUnsafeMutableBytes { sealed in
        for _ in stride(from: thread, to: messageCount, by: threadCount) {
          var output = OutputRawSpan(buffer: sealed, initializedCount: 0)
          cipher.push(&state, message.span.bytes, ad: RawSpan(), tag: .message, into: &output)
        }
      }
    }
  }
}
