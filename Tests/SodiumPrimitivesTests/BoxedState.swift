import SodiumPrimitives

/// A place for a state that cannot be copied, and streams of arrays.
final class BoxedState {
  var state: SecretStreamState

  init(key: [UInt8], header: [UInt8]) { state = SecretStreamState(key: key, header: header) }

  func push(_ message: [UInt8], ad: [UInt8] = [], tag: SecretStreamTag, with cipher: SecretStreamCipher)
    -> [UInt8]
  {
    var output = [UInt8](repeating: 0, count: message.count + SecretStreamCipher.messageOverheadByteCount)
    message.withUnsafeBytes { message in
      ad.withUnsafeBytes { ad in
        output.withUnsafeMutableBytes { cipher.push(&state, message, ad: ad, tag: tag, into: $0) }
      }
    }
    return output
  }

  func pull(
    _ sealed: [UInt8], ad: [UInt8] = [], with cipher: SecretStreamCipher
  ) throws -> (tag: SecretStreamTag?, message: [UInt8]) {
    var output = [UInt8](
      repeating: 0, count: max(0, sealed.count - SecretStreamCipher.messageOverheadByteCount))
    let tag = try sealed.withUnsafeBytes { sealed in
      try ad.withUnsafeBytes { ad in
        try output.withUnsafeMutableBytes { try cipher.pull(&state, sealed, ad: ad, into: $0) }
      }
    }
    return (tag, output)
  }
}

extension SecretStreamState {
  init(key: [UInt8], header: [UInt8]) {
    self = key.span.withUnsafeBytes { key in
      header.span.withUnsafeBytes {
        SecretStreamState(key: key, header: $0)
      }
    }
  }
}
