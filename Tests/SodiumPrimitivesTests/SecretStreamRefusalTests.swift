import Foundation
import SodiumPrimitives
import TestSupport
import Testing

/// What must not open: it throws, nothing is written to the output, and the state stays where it was.
struct SecretStreamRefusalTests {
  static let shortByteCounts = [0, 1, 7, 8, 15, 16, 63, 64, 255, 256, 257, 264]
  static let longByteCounts = [1_024, 16_384, 16_385, 16_392, 70_000]

  @Test(arguments: CipherBackend.allCases, shortByteCounts)
  func refusesEveryFlippedBit(backend: CipherBackend, count: Int) throws {
    let stream = Stream(backend, count: count)
    for bit in 0..<(count + 17) * 8 { try stream.refuse(flipping: bit) }
    try stream.requireGoodMessageStillOpens()
  }

  @Test(arguments: CipherBackend.allCases, longByteCounts)
  func refusesFlippedBitsOfLongMessages(backend: CipherBackend, count: Int) throws {
    let stream = Stream(backend, count: count)
    var random = SplitMix64(seed: SplitMix64.testSeed)
    let tagBits = Array(0..<8)
    let firstBits = [8, 9, 8 + 511, 8 + 512]
    let authenticatorBits = Array((count + 1) * 8..<(count + 17) * 8)
    let someBits = (0..<64).map { _ in 8 + random.below(count * 8) }
    for bit in tagBits + firstBits + authenticatorBits + someBits + [(count + 1) * 8 - 1] {
      try stream.refuse(flipping: bit)
    }
    try stream.requireGoodMessageStillOpens()
  }

  @Test(arguments: CipherBackend.allCases, shortByteCounts + longByteCounts)
  func refusesCutAndLengthenedMessages(backend: CipherBackend, count: Int) throws {
    let stream = Stream(backend, count: count)
    for lost in [1, 2, 7, 8, 15, 16, 17, 64, count] where (1...max(count, 1)).contains(lost) && lost <= count
    {
      try stream.refuse(Array(stream.sealed.dropLast(lost)), stream.ad, "cut by \(lost) at the end")
      try stream.refuse(Array(stream.sealed.dropFirst(lost)), stream.ad, "cut by \(lost) at the start")
    }
    for added in [1, 8, 16] {
      let zeros = [UInt8](repeating: 0, count: added)
      try stream.refuse(stream.sealed + zeros, stream.ad, "with \(added) bytes more at the end")
      try stream.refuse(zeros + stream.sealed, stream.ad, "with \(added) bytes more at the start")
    }
    try stream.requireGoodMessageStillOpens()
  }

  @Test(arguments: CipherBackend.allCases, shortByteCounts + longByteCounts)
  func refusesOtherAssociatedData(backend: CipherBackend, count: Int) throws {
    let stream = Stream(backend, count: count)
    for bit in [0, 7, 64, stream.ad.count * 8 - 1] {
      var ad = stream.ad
      ad[bit / 8] ^= 1 << UInt8(bit % 8)
      try stream.refuse(stream.sealed, ad, "under associated data with bit \(bit) flipped")
    }
    try stream.refuse(stream.sealed, [], "without associated data")
    try stream.refuse(stream.sealed, Array(stream.ad.dropLast()), "under shorter associated data")
    // The authenticator pads associated data with zeros; only the length tells these apart.
    try stream.refuse(stream.sealed, stream.ad + [0], "under associated data with a zero more")
    try stream.requireGoodMessageStillOpens()
  }

  @Test(arguments: CipherBackend.allCases, shortByteCounts + longByteCounts)
  func refusesMessageAtAnotherPlaceInTheStream(backend: CipherBackend, count: Int) throws {
    let stream = Stream(backend, count: count)
    try stream.refuse(stream.earlier, stream.ad, "that was opened already")
    try stream.refuse(stream.later, stream.ad, "that comes later")
    try stream.requireGoodMessageStillOpens()
    try stream.refuse(stream.sealed, stream.ad, "that was opened just now")
  }

  @Test(arguments: CipherBackend.allCases, shortByteCounts + longByteCounts)
  func refusesStreamUnderAnotherKeyOrHeader(backend: CipherBackend, count: Int) throws {
    for bit in [0, 100, 255] {
      let stream = Stream(backend, count: count, openingFlip: .key(bit))
      try stream.refuse(stream.sealed, stream.ad, "under a key with bit \(bit) flipped")
    }
    for bit in [0, 127, 128, 191] {
      let stream = Stream(backend, count: count, openingFlip: .header(bit))
      try stream.refuse(stream.sealed, stream.ad, "under a header with bit \(bit) flipped")
    }
  }

  @Test func refusesMessageShorterThanAny() async {
    await #expect(processExitsWith: .success) {
      for backend in CipherBackend.allCases {
        let opening = BoxedState(key: Random.bytes(32), header: Random.bytes(24))
        let before = opening.state.bytes
        for count in 0..<17 {
          do {
            _ = try opening.pull(Random.bytes(count), with: SecretStreamCipher(backend))
            fatalError("\(count) bytes opened")
          } catch CryptoError.tooShort(byteCount: count, minimum: 17) {}
        }
        guard opening.state.bytes == before else { fatalError("the state changed") }
      }
    }
  }

  /// A stream of three messages whose first was opened; `state` waits for the second, `sealed`.
  private final class Stream {
    enum Flip {
      case key(Int)
      case header(Int)
    }

    let cipher: SecretStreamCipher
    var state: SecretStreamState
    let message: [UInt8]
    let ad: [UInt8]
    let earlier: [UInt8]
    let sealed: [UInt8]
    let later: [UInt8]

    /// With `openingFlip`, `state` begins under another key or header and has opened nothing.
    init(_ backend: CipherBackend, count: Int, openingFlip: Flip? = nil) {
      cipher = SecretStreamCipher(backend)
      let inputs = Memory(byteCount: count + 256, seed: UInt64(count))
      message = inputs.array(0, count)
      ad = inputs.array(count, 80)
      var key = inputs.array(count + 80, 32)
      var header = inputs.array(count + 112, 24)
      var oracle = LibsodiumStream(key: key, header: header)
      earlier = oracle.push(message, ad: ad, rawTag: 0)
      sealed = oracle.push(message, ad: ad, rawTag: 0)
      later = oracle.push(message, ad: ad, rawTag: 0)
      switch openingFlip {
      case .key(let bit): key[bit / 8] ^= 1 << UInt8(bit % 8)
      case .header(let bit): header[bit / 8] ^= 1 << UInt8(bit % 8)
      case nil: break
      }
      state = SecretStreamState(key: key, header: header)
      if openingFlip == nil, (try? pull(earlier, ad)) == nil {
        Issue.record("the first message did not open")
      }
    }

    private func pull(
      _ sealed: [UInt8], _ ad: [UInt8]
    ) throws(CryptoError) -> (plaintext: UnsafeRawBufferPointer, tag: SecretStreamTag?) {
      try cipher.pull(&state, sealed.span.bytes, ad: ad.span.bytes)
    }

    func refuse(flipping bit: Int) throws {
      var damaged = sealed
      damaged[bit / 8] ^= 1 << UInt8(bit % 8)
      try refuse(damaged, ad, "with bit \(bit) flipped")
    }

    func refuse(_ sealed: [UInt8], _ ad: [UInt8], _ what: @autoclosure () -> String) throws {
      let stateBefore = state.bytes
      do {
        _ = try pull(sealed, ad)
        throw Mismatch("a message of \(message.count) bytes \(what()) opened")
      } catch let error as CryptoError {
        guard error == .notAuthentic else { throw Mismatch("a message \(what()): \(error)") }
      }
      guard state.bytes == stateBefore else {
        throw Mismatch("refusing a message of \(message.count) bytes \(what()) changed the state")
      }
    }

    func requireGoodMessageStillOpens() throws {
      let (plaintext, tag) = try pull(sealed, ad)
      #expect(tag == .message)
      #expect(message.withUnsafeBytes { same($0, plaintext) })
    }
  }
}
