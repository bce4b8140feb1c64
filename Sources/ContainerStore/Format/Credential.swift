public import SodiumPrimitives

/// A secret that opens a container.
public struct Credential: ~Copyable, Sendable {
  public enum Kind: Sendable {
    case passphrase
    case rawKey
  }

  public static let rawKeyByteCount = 32

  public let kind: Kind
  let secret: SecretBytes

  private init(_ kind: Kind, _ secret: consuming SecretBytes) {
    self.kind = kind
    self.secret = secret
  }

  /// A passphrase of any bytes, at least one. It is stretched with Argon2id.
  public static func passphrase(_ secret: consuming SecretBytes) -> Credential {
    Credential(.passphrase, secret)
  }

  /// A key of 32 random bytes, from a key file or a system's keystore. It is not stretched. Throws
  /// `invalidArgument` for another length.
  public static func rawKey(_ secret: consuming SecretBytes) throws(ContainerError) -> Credential {
    guard secret.count == rawKeyByteCount else {
      throw ContainerError(
        .invalidArgument, detail: "a raw key has \(rawKeyByteCount) bytes, this one has \(secret.count)")
    }
    return Credential(.rawKey, secret)
  }
}
