import SodiumPrimitives

/// A place for a state that cannot be copied, and streams of arrays.
final class BoxedState {
  var state: SecretStreamState

  init(key: [UInt8], header: [UInt8]) { state = SecretStreamState(key: key, header: header) }

  func push(_ message: [UInt8], ad: [UInt8] = [], tag: SecretStreamTag, with cipher: SecretStreamCipher)
    -> [UInt8]
  {
    var output = [UInt8](repeating: 0, count: message.count + SecretStreamCipher.messageOverheadByteCount)
    output.withUnsafeMutableBytes { memory in
      var output = OutputRawSpan(buffer: memory, initializedCount: 0)
      cipher.push(&state, message.span.bytes, ad: ad.span.bytes, tag: tag, into: &output)
    }
    return output
  }

  func pull(
    _ sealed: [UInt8], ad: [UInt8] = [], with cipher: SecretStreamCipher
  ) throws -> (tag: SecretStreamTag?, message: [UInt8]) {
    let (plaintext, tag) = try cipher.pull(&state, sealed.span.bytes, ad: ad.span.bytes)
    return (tag, Array(plaintext))
  }
}

extension SecretStreamState {
  init(key: [UInt8], header: [UInt8]) {
    self.init(key: key.span.bytes, header: header.span.bytes)
  }
}
