package import Foundation

/// What a stream is sealed with (SERVICE-PROTOCOL.md, "The bulk lane").
package enum BulkCipher: UInt32, Sendable, CaseIterable {
  case secretstream = 0
  case aes256GCM = 1

  /// In a peer's `Hello`, known or not.
  static let statedCountMax = 16

  /// Bytes of plaintext of one stream.
  package var byteCountMax: UInt64 {
    switch self {
    case .secretstream: .max
    case .aes256GCM: 1 << 46
    }
  }
}

/// A stream's key, and what it is for.
package struct BulkKey: Equatable, Sendable {
  package let bytes: Data
  package let cipher: BulkCipher

  package init(_ bytes: Data, _ cipher: BulkCipher = .secretstream) {
    (self.bytes, self.cipher) = (bytes, cipher)
  }
}
