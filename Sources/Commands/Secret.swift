import ContainerStore
import SodiumPrimitives

/// A passphrase or raw key as it was read, before it is known which container it opens.
struct Secret: ~Copyable {
  let kind: Credential.Kind
  let bytes: SecretBytes
  /// Whether the container is opened when its superblock was put back to an older one.
  var acceptsOlderState = false

  init(_ kind: Credential.Kind, _ bytes: consuming SecretBytes) {
    self.kind = kind
    self.bytes = bytes
  }

  func credential() throws -> Credential {
    switch kind {
    case .passphrase: .passphrase(try bytes.copy())
    case .rawKey: try .rawKey(try bytes.copy())
    }
  }

  func isSame(as other: borrowing Secret) -> Bool {
    guard kind == other.kind else { return false }
    return bytes.isSame(as: other.bytes)
  }
}

extension SecretBytes {
  borrowing func isSame(as other: borrowing SecretBytes) -> Bool {
    withUnsafeBytes { mine in other.withUnsafeBytes { mine.elementsEqual($0) } }
  }

  /// The first `count` bytes.
  borrowing func prefix(_ count: Int) throws(CryptoError) -> SecretBytes {
    try withUnsafeBytes { bytes throws(CryptoError) in
      try SecretBytes(copying: UnsafeRawBufferPointer(rebasing: bytes[0..<count]))
    }
  }
}
