package import Foundation
import ServiceWire
package import SodiumPrimitives

/// How a lane is sealed, and who may be at its other end (CHANNEL-PROTOCOL.md, "The sealed socket").
package enum LaneSealing: Sendable {
  /// A channel between two apps, whose keys the introduction names.
  case channel(isDialler: Bool, own: KeyPair, peer: Data, prologue: [UInt8])
  /// A client's connection to the broker with that key.
  case toBroker(own: KeyPair, broker: Data)
  /// The broker's side: any client is taken, and its key is known when the lane opens.
  case asBroker(own: KeyPair)

  /// Throws `malformed` for a public key that does not have 32 bytes.
  func check() throws(ProtocolFault) {
    switch self {
    case .channel(_, _, let peer, _): _ = try Self.key(peer)
    case .toBroker(_, let broker): _ = try Self.key(broker)
    case .asBroker: break
    }
  }

  /// Throws as ``check()``.
  func handshake() throws(ProtocolFault) -> NoiseHandshake {
    switch self {
    case .channel(let isDialler, let own, let peer, let prologue):
      NoiseHandshake(
        .kk, isInitiator: isDialler, own: own, peerKey: try Self.key(peer), prologue: prologue)
    case .toBroker(let own, let broker):
      NoiseHandshake(
        .ik, isInitiator: true, own: own, peerKey: try Self.key(broker), prologue: Prologue.broker)
    case .asBroker(let own):
      NoiseHandshake(.ik, isInitiator: false, own: own, peerKey: nil, prologue: Prologue.broker)
    }
  }

  private static func key(_ bytes: Data) throws(ProtocolFault) -> [UInt8] {
    guard bytes.count == KeyPair.byteCount else { throw .malformed }
    return Array(bytes)
  }
}
