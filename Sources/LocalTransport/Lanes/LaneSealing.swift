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

  /// The peer's public key, where it is known before the handshake.
  private var peer: Data? {
    switch self {
    case .channel(_, _, let peer, _): peer
    case .toBroker(_, let broker): broker
    case .asBroker: nil
    }
  }

  /// Throws `malformed` for a public key that does not have 32 bytes.
  func check() throws(ProtocolFault) {
    if let peer, peer.count != KeyPair.byteCount { throw .malformed }
  }

  /// Throws as ``check()``.
  func handshake() throws(ProtocolFault) -> NoiseHandshake {
    try check()
    let peerKey = peer.map { Array($0) }
    return switch self {
    case .channel(let isDialler, let own, _, let prologue):
      NoiseHandshake(.kk, isInitiator: isDialler, own: own, peerKey: peerKey, prologue: prologue)
    case .toBroker(let own, _):
      NoiseHandshake(.ik, isInitiator: true, own: own, peerKey: peerKey, prologue: Prologue.broker)
    case .asBroker(let own):
      NoiseHandshake(.ik, isInitiator: false, own: own, peerKey: peerKey, prologue: Prologue.broker)
    }
  }
}
