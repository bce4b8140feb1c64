public import SodiumPrimitives

/// A passphrase or key that opens a container, as far as the container knows it.
public struct ContainerKey: Sendable, Hashable, Identifiable {
  public enum Kind: String, Sendable, Hashable {
    case passphrase
    case rawKey
    case recoveryCode
  }

  /// The most bytes of a label.
  public static let labelByteCountMax = SuperblockBody.labelByteCountMax

  /// Stays the same until the key is replaced or removed. It is in clear in the superblock.
  public let id: Identifier
  public let kind: Kind
  /// What the key is called: 1 to 63 bytes, in one container once. Who cannot open the container cannot read it.
  public let label: String?
  /// The cost of trying it; nil for a raw key.
  public let passwordHash: PasswordHash.Parameters?

  init(_ slot: KeySlot, label: String?) {
    id = slot.id
    kind =
      switch slot.kind {
      case .passphrase: .passphrase
      case .rawKey: .rawKey
      case .recoveryCode: .recoveryCode
      }
    self.label = label
    passwordHash = kind == .rawKey ? nil : slot.parameters
  }
}
