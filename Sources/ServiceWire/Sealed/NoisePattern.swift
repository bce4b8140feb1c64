/// A handshake of the Noise Protocol Framework (revision 34), with X25519, ChaChaPoly and BLAKE2b.
package enum NoisePattern: Sendable {
  /// Both sides know each other's static key.
  case kk
  /// The initiator knows the responder's static key, and sends its own, encrypted.
  case ik

  enum Token { case e, s, ee, es, se, ss }

  var name: String {
    switch self {
    case .kk: "Noise_KK_25519_ChaChaPoly_BLAKE2b"
    case .ik: "Noise_IK_25519_ChaChaPoly_BLAKE2b"
    }
  }

  /// Whether the responder knows the initiator's static key before.
  var hasKnownInitiator: Bool { self == .kk }

  /// The first message is the initiator's.
  var messages: [[Token]] {
    switch self {
    case .kk: [[.e, .es, .ss], [.e, .ee, .se]]
    case .ik: [[.e, .es, .s, .ss], [.e, .ee, .se]]
    }
  }

  /// The length of each message with an empty payload.
  package var messageByteCounts: [Int] {
    switch self {
    case .kk: [48, 48]
    case .ik: [96, 48]
    }
  }
}
