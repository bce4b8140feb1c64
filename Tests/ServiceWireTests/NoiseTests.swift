import Foundation
import SodiumPrimitives
import Testing

@testable import ServiceWire

/// The handshake against published vectors, and against what is not its message.
struct NoiseTests {
  // MARK: Vectors

  /// `Fixtures/noise/vectors.json`, from the vectors that implementations of Noise share.
  struct Vector: Decodable, Sendable, CustomTestStringConvertible {
    let protocolName, initPrologue, initStatic, initEphemeral, respStatic, respEphemeral: String
    let initRemoteStatic, respRemoteStatic: String?
    let handshakeHash: String
    let messages: [Message]

    struct Message: Decodable, Sendable { let payload, ciphertext: String }

    var testDescription: String { protocolName }
    var pattern: NoisePattern { protocolName == NoisePattern.kk.name ? .kk : .ik }

    func handshake(isInitiator: Bool) throws -> NoiseHandshake {
      let remote = isInitiator ? initRemoteStatic : respRemoteStatic
      return NoiseHandshake(
        pattern, isInitiator: isInitiator,
        own: try KeyPair(copying: bytes(isInitiator ? initStatic : respStatic)),
        peerKey: pattern == .ik && !isInitiator ? nil : bytes(remote ?? ""), prologue: bytes(initPrologue),
        ephemeral: try KeyPair(copying: bytes(isInitiator ? initEphemeral : respEphemeral)))
    }
  }

  static let vectors: [Vector] = {
    let path = URL(filePath: #filePath).deletingLastPathComponent().appending(
      path: "../../Fixtures/noise/vectors.json")
    let decoder = JSONDecoder()
    decoder.keyDecodingStrategy = .convertFromSnakeCase
    return (try? Data(contentsOf: path)).flatMap { try? decoder.decode([Vector].self, from: $0) } ?? []
  }()

  @Test func hasAVectorForEachPattern() {
    #expect(Set(Self.vectors.map(\.protocolName)) == [NoisePattern.kk.name, NoisePattern.ik.name])
  }

  @Test(arguments: vectors) func agreesWithThePublishedVector(vector: Vector) throws {
    var initiator = try vector.handshake(isInitiator: true)
    var responder = try vector.handshake(isInitiator: false)
    for (index, message) in vector.messages.prefix(2).enumerated() {
      let payload = bytes(message.payload)
      let written =
        index == 0 ? try initiator.write(payload: payload) : try responder.write(payload: payload)
      #expect(written == bytes(message.ciphertext))
      let read = index == 0 ? try responder.read(written) : try initiator.read(written)
      #expect(read == payload)
    }
    #expect(initiator.isComplete && responder.isComplete)
    #expect(initiator.hash == bytes(vector.handshakeHash) && responder.hash == initiator.hash)
    #expect(responder.peerKey == (try KeyPair(copying: bytes(vector.initStatic))).publicKey)
    var near = try Ciphers(initiator)
    var far = try Ciphers(responder)
    #expect(vector.messages.count > 4)
    for (index, message) in vector.messages.dropFirst(2).enumerated() {
      let (payload, sealed) = (bytes(message.payload), bytes(message.ciphertext))
      let written = index % 2 == 0 ? try near.seal(payload) : try far.seal(payload)
      #expect(Array(written.dropFirst(2)) == sealed)
      #expect(written.prefix(2) == [UInt8(sealed.count & 0xff), UInt8(sealed.count >> 8)])
      let read = index % 2 == 0 ? try far.open(sealed) : try near.open(sealed)
      #expect(read == payload)
    }
  }

  // MARK: What is refused

  struct Pair {
    let initiator: KeyPair
    let responder: KeyPair

    init() throws { (initiator, responder) = (try KeyPair(), try KeyPair()) }

    func handshake(
      _ pattern: NoisePattern, isInitiator: Bool, own: KeyPair? = nil, peer: KeyPair? = nil,
      prologue: [UInt8] = [1, 2]
    ) -> NoiseHandshake {
      let peer = peer ?? (isInitiator ? responder : initiator)
      return NoiseHandshake(
        pattern, isInitiator: isInitiator, own: own ?? (isInitiator ? initiator : responder),
        peerKey: pattern == .ik && !isInitiator ? nil : peer.publicKey, prologue: prologue)
    }
  }

  @Test(arguments: [NoisePattern.kk, .ik]) func refusesEachChangedBit(pattern: NoisePattern) throws {
    let pair = try Pair()
    var initiator = pair.handshake(pattern, isInitiator: true)
    let first = try initiator.write()
    #expect(first.count == pattern.messageByteCounts[0])
    var right = pair.handshake(pattern, isInitiator: false)
    #expect(try right.read(first) == [])
    let second = try right.write()
    #expect(second.count == pattern.messageByteCounts[1])
    for bit in 0..<8 * first.count {
      var responder = pair.handshake(pattern, isInitiator: false)
      var changed = first
      changed[bit / 8] ^= 1 << UInt8(bit % 8)
      #expect(!Self.takes(&responder, changed), "bit \(bit) of the first message")
    }
    for bit in 0..<8 * second.count {
      // The ephemeral key of the first message is another one each time.
      var initiator = pair.handshake(pattern, isInitiator: true)
      var responder = pair.handshake(pattern, isInitiator: false)
      _ = try responder.read(initiator.write())
      var changed = try responder.write()
      changed[bit / 8] ^= 1 << UInt8(bit % 8)
      #expect(!Self.takes(&initiator, changed), "bit \(bit) of the second message")
    }
    #expect(try initiator.read(second) == [])
    #expect(initiator.hash == right.hash)
  }

  private static func takes(_ handshake: inout NoiseHandshake, _ message: [UInt8]) -> Bool {
    do {
      _ = try handshake.read(message)
      return true
    } catch {
      return false
    }
  }

  @Test(arguments: [NoisePattern.kk, .ik]) func refusesOtherKeysAndPrologues(pattern: NoisePattern) throws {
    let (pair, other) = (try Pair(), try KeyPair())
    func message(own: KeyPair? = nil, peer: KeyPair? = nil, prologue: [UInt8] = [1, 2]) throws -> [UInt8] {
      var initiator = pair.handshake(pattern, isInitiator: true, own: own, peer: peer, prologue: prologue)
      return try initiator.write()
    }
    var (one, two, three) = (false, false, false)
    var responder = pair.handshake(pattern, isInitiator: false)
    one = Self.takes(&responder, try message(peer: other))
    responder = pair.handshake(pattern, isInitiator: false)
    two = Self.takes(&responder, try message(prologue: [1, 3]))
    responder = pair.handshake(pattern, isInitiator: false)
    three = Self.takes(&responder, try message(own: other))
    #expect(!one && !two)
    // IK takes any initiator, and says who it is.
    #expect(three == (pattern == .ik))
    if pattern == .ik { #expect(responder.peerKey == other.publicKey) }
    for byteCount in [0, 31, 32, 47, 95] where byteCount < pattern.messageByteCounts[0] {
      responder = pair.handshake(pattern, isInitiator: false)
      let isTaken = Self.takes(&responder, try message().dropLast(pattern.messageByteCounts[0] - byteCount))
      #expect(!isTaken, "\(byteCount) bytes")
    }
  }

  /// Of a responder without the key, of one of another prologue, and of another handshake.
  @Test(arguments: [NoisePattern.kk, .ik])
  func refusesAnAnswerThatIsNotTheExpectedOnes(pattern: NoisePattern) throws {
    let (pair, other) = (try Pair(), try KeyPair())
    for (own, prologue) in [(other, [1, 2]), (pair.responder, [1, 3]), (pair.responder, [1, 2])]
      as [(
        KeyPair, [UInt8]
      )]
    {
      // Each answers a first message that it can read.
      var another = pair.handshake(pattern, isInitiator: true, peer: own, prologue: prologue)
      var responder = pair.handshake(pattern, isInitiator: false, own: own, prologue: prologue)
      _ = try responder.read(another.write())
      let answer = try responder.write()
      var initiator = pair.handshake(pattern, isInitiator: true)
      _ = try initiator.write()
      let isTaken = Self.takes(&initiator, answer)
      #expect(!isTaken && !initiator.isComplete)
      #expect(try another.read(answer) == [])
      #expect(another.hash == responder.hash && another.hash != initiator.hash)
    }
  }

  @Test func sealsEachRecordUnderItsNumber() throws {
    let pair = try Pair()
    var initiator = pair.handshake(.kk, isInitiator: true)
    var responder = pair.handshake(.kk, isInitiator: false)
    _ = try responder.read(initiator.write())
    _ = try initiator.read(responder.write())
    var near = try Ciphers(initiator)
    var far = try Ciphers(responder)
    let records = try (0..<4).map { Array(try near.seal([UInt8($0)]).dropFirst(2)) }
    #expect(records[0] != records[1])
    #expect(try far.open(records[0]) == [0])
    #expect(throws: CryptoError.notAuthentic) { try far.open(records[2]) }
    #expect(try far.open(records[1]) == [1])
    #expect(throws: CryptoError.notAuthentic) { try far.open(records[1]) }
    // The other direction has another key.
    #expect(throws: CryptoError.notAuthentic) { try near.open(records[0]) }
  }

  /// Over the end of a byte of the number.
  @Test func takesTheNumberOfARecordForItsNonce() throws {
    let bytes = Random.bytes(32)
    func key() throws -> SecretKey {
      try SecretKey { key in bytes.withUnsafeBytes { key.copyMemory(from: $0) } }
    }
    var sending = RecordCipher(try key())
    var receiving = RecordCipher(try key())
    for number in 0..<300 {
      let plaintext = [UInt8](repeating: UInt8(number & 0xff), count: 1 + number)
      var record = [UInt8](repeating: 0, count: plaintext.count + RecordCipher.overheadByteCount)
      try plaintext.withUnsafeBytes { plaintext in
        try record.withUnsafeMutableBytes { try sending.seal(plaintext, into: $0) }
      }
      var sealed = [UInt8](repeating: 0, count: plaintext.count + ChaChaPoly.tagByteCount)
      sealed.withUnsafeMutableBytes {
        ChaChaPoly.seal(
          plaintext.span.bytes, key: bytes.span.bytes, number: UInt64(number), ad: RawSpan(), into: $0)
      }
      #expect(Array(record.dropFirst(2)) == sealed, "record \(number)")
      var opened = [UInt8](repeating: 0, count: plaintext.count)
      try sealed.withUnsafeBytes { sealed in
        try opened.withUnsafeMutableBytes { try receiving.open(sealed, into: $0) }
      }
      #expect(opened == plaintext)
    }
  }

  @Test(arguments: [
    (0, 0), (1, 19), (65_519, 65_537), (65_520, 65_556), (131_038, 131_074), (131_039, 131_093),
  ])
  func saysHowLongRecordsAre(byteCount: Int, sealedByteCount: Int) {
    #expect(RecordCipher.sealedByteCount(byteCount) == sealedByteCount)
  }

  @Test func aPrologueBindsAllOfAnIntroduction() {
    let ticket = Data(repeating: 7, count: 32)
    let right = Prologue.channel(ticket: ticket, dialler: ("a", "u"), acceptor: ("b", "v"))
    #expect(
      right == Array("OpenDynamics channel 1".utf8) + ticket
        + [1, 0, 0, 0, 97, 1, 0, 0, 0, 98, 1, 0, 0, 0, 117, 1, 0, 0, 0, 118])
  }
}

/// The records of one side, for tests.
private struct Ciphers: ~Copyable {
  private var ciphers: RecordCiphers

  init(_ handshake: consuming NoiseHandshake) throws { ciphers = try handshake.split() }

  mutating func seal(_ plaintext: [UInt8]) throws -> [UInt8] {
    var record = [UInt8](repeating: 0, count: plaintext.count + RecordCipher.overheadByteCount)
    try plaintext.withUnsafeBytes { plaintext in
      try record.withUnsafeMutableBytes { try ciphers.sending.seal(plaintext, into: $0) }
    }
    return record
  }

  mutating func open(_ sealed: [UInt8]) throws -> [UInt8] {
    var plaintext = [UInt8](repeating: 0, count: sealed.count - ChaChaPoly.tagByteCount)
    try sealed.withUnsafeBytes { sealed in
      try plaintext.withUnsafeMutableBytes { try ciphers.receiving.open(sealed, into: $0) }
    }
    return plaintext
  }
}

private func bytes(_ hex: String) -> [UInt8] { Hexadecimal.bytes(hex.utf8)! }
