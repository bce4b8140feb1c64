package import SodiumPrimitives

/// One side of a handshake (CHANNEL-PROTOCOL.md, "The sealed socket"): a value without a socket.
///
/// The sides write and read in turns, the initiator writes first. After the last message
/// ``split()`` gives the ciphers of the records. A handshake that failed is of no further use.
package struct NoiseHandshake: ~Copyable {
  private let pattern: NoisePattern
  private let isInitiator: Bool
  private let own: KeyPair
  private var ephemeral: KeyPair?
  private var peerEphemeral: [UInt8]?
  /// The peer's static key: as given, or as received. It is proved when the handshake is complete at
  /// the initiator, and when the first record has opened at the responder.
  package private(set) var peerKey: [UInt8]?
  private var state: NoiseSymmetricState
  private var messageCount = 0

  /// `peerKey` is nil for the responder of `ik` alone. `ephemeral` is for published vectors.
  package init(
    _ pattern: NoisePattern, isInitiator: Bool, own: KeyPair, peerKey: [UInt8]?, prologue: [UInt8],
    ephemeral: KeyPair? = nil
  ) {
    let isKnown = isInitiator || pattern.hasKnownInitiator
    precondition(peerKey?.count == (isKnown ? KeyPair.byteCount : nil), "the pattern says which are known")
    self.pattern = pattern
    self.isInitiator = isInitiator
    self.own = own
    self.peerKey = peerKey
    self.ephemeral = ephemeral
    var state = NoiseSymmetricState(pattern.name)
    state.mixHash(prologue)
    let peerKey = peerKey ?? []
    if pattern.hasKnownInitiator { state.mixHash(isInitiator ? own.publicKey : peerKey) }
    state.mixHash(isInitiator ? peerKey : own.publicKey)
    self.state = state
  }

  /// Whether the next message is this side's to write.
  package var isWriting: Bool { !isComplete && (messageCount % 2 == 0) == isInitiator }
  package var isComplete: Bool { messageCount == pattern.messages.count }

  /// The length of the next message, when its payload is empty.
  package var messageByteCount: Int { pattern.messageByteCounts[messageCount] }

  /// The hash of the handshake: 64 bytes that are the same on both sides and of no other handshake.
  package var hash: [UInt8] { state.hash }

  /// The next message. Throws `notAuthentic` for a peer's key that proves nothing, and
  /// `secretMemoryExhausted`.
  package mutating func write(payload: [UInt8] = []) throws(CryptoError) -> [UInt8] {
    precondition(isWriting, "the sides take turns")
    var message: [UInt8] = []
    for token in pattern.messages[messageCount] {
      switch token {
      case .e:
        let pair: KeyPair
        if let ephemeral { pair = ephemeral } else { pair = try KeyPair() }
        ephemeral = pair
        state.mixHash(pair.publicKey)
        message += pair.publicKey
      case .s: message += state.encryptAndHash(own.publicKey)
      case .ee, .es, .se, .ss: try agree(token)
      }
    }
    message += state.encryptAndHash(payload)
    messageCount += 1
    return message
  }

  /// Takes the peer's message and returns its payload. Throws `notAuthentic` for a message that is
  /// not of this handshake, and `secretMemoryExhausted`.
  package mutating func read(_ message: [UInt8]) throws(CryptoError) -> [UInt8] {
    precondition(!isWriting && !isComplete, "the sides take turns")
    var rest = message[...]
    func take(_ count: Int) throws(CryptoError) -> [UInt8] {
      guard rest.count >= count else { throw .notAuthentic }
      defer { rest = rest.dropFirst(count) }
      return Array(rest.prefix(count))
    }
    for token in pattern.messages[messageCount] {
      switch token {
      case .e:
        let key = try take(KeyPair.byteCount)
        state.mixHash(key)
        peerEphemeral = key
      case .s: peerKey = try state.decryptAndHash(take(KeyPair.byteCount + ChaChaPoly.tagByteCount))
      case .ee, .es, .se, .ss: try agree(token)
      }
    }
    let payload = try state.decryptAndHash(Array(rest))
    messageCount += 1
    return payload
  }

  /// Mixes in the secret of two keys. In the name of a token the initiator's key comes first.
  private mutating func agree(_ token: NoisePattern.Token) throws(CryptoError) {
    let ownIsEphemeral = token == .ee || token == (isInitiator ? .es : .se)
    let peersIsEphemeral = token == .ee || token == (isInitiator ? .se : .es)
    guard let pair = ownIsEphemeral ? ephemeral : own, let key = peersIsEphemeral ? peerEphemeral : peerKey
    else { preconditionFailure("the pattern agrees on keys that were sent before") }
    try pair.withSharedSecret(with: key.span.bytes) { secret in state.mixKey(secret) }
  }

  /// The ciphers of what this side sends and receives. The keys of the handshake are wiped with it.
  package consuming func split() throws(CryptoError) -> RecordCiphers {
    precondition(isComplete, "both messages have crossed")
    return RecordCiphers(
      sending: RecordCipher(try state.transportKey(ofInitiator: isInitiator)),
      receiving: RecordCipher(try state.transportKey(ofInitiator: !isInitiator)))
  }
}

/// The two directions of a sealed socket, at one of its ends.
package struct RecordCiphers: ~Copyable {
  package var sending: RecordCipher
  package var receiving: RecordCipher
}
