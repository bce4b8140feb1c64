import SodiumPrimitives
import Testing

@testable import EncryptedFile

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

struct MessageHeaderTests {
  private func headers(_ count: Int, key: [UInt8], place: [UInt8]) -> [[UInt8]] {
    var output = [UInt8](repeating: 0, count: count * 32)
    key.withUnsafeBytes { key in
      place.withUnsafeBytes { place in
        output.withUnsafeMutableBytes { MessageHeader.fill($0, key: key, place: place) }
      }
    }
    return (0..<count).map { Array(output[$0 * 32..<$0 * 32 + 24]) }
  }

  @Test func headersDifferBetweenCallsWithTheSameInputs() {
    let key = Random.bytes(32)
    let place = Random.bytes(32)
    let seen = (0..<500).flatMap { _ in headers(1, key: key, place: place) }
    #expect(Set(seen).count == 500)
  }

  @Test func headersOfABatchDiffer() {
    let key = Random.bytes(32)
    let seen = (0..<5).flatMap { _ in headers(200, key: key, place: []) }
    #expect(Set(seen).count == 1_000)
    // secretstream takes 16 bytes for the key and 8 for the nonce: both parts differ.
    #expect(Set(seen.map { $0[0..<16] }).count == 1_000)
    #expect(Set(seen.map { $0[16..<24] }).count == 1_000)
  }

  @Test(arguments: [0, 1, 79, 80, 81, 500])
  func takesPlaceOfAnyLength(count: Int) {
    #expect(Set(headers(2, key: Random.bytes(32), place: Random.bytes(count))).count == 2)
  }
}

struct ClockTests {
  @Test func aTimeBeyond64BitsIsTheLatest() {
    let latest = Clock.latest
    let (seconds, rest) = (Int(latest / 1_000_000_000), Int(latest % 1_000_000_000))
    #expect(Clock.nanoseconds(timespec(tv_sec: seconds, tv_nsec: rest)) == latest)
    #expect(Clock.nanoseconds(timespec(tv_sec: seconds, tv_nsec: rest - 1)) == latest - 1)
    #expect(Clock.nanoseconds(timespec(tv_sec: seconds, tv_nsec: rest + 1)) == latest)
    #expect(Clock.nanoseconds(timespec(tv_sec: .max, tv_nsec: 999_999_999)) == latest)
    #expect(Clock.nanoseconds(timespec(tv_sec: .min, tv_nsec: 0)) == .min)
    #expect(Clock.nanoseconds(timespec(tv_sec: 1, tv_nsec: 2)) == 1_000_000_002)
  }
}

struct SealedMessageTests {
  static let byteCounts = [0, 1, 16, 70, 255, 256, 4096, 4097, 40_000]

  @Test(arguments: byteCounts, CipherBackend.allCases)
  func opensWhatWasSealed(count: Int, backend: CipherBackend) throws {
    let key = try SecretKey.random()
    let plaintext = Random.bytes(count)
    let ad = Random.bytes(48)
    let cipher = SecretStreamCipher(backend)
    let one = SealedMessage.seal(plaintext, key: key, ad: ad, cipher: cipher)
    let other = SealedMessage.seal(plaintext, key: key, ad: ad, cipher: cipher)
    #expect(one.count == count + 41)
    #expect(!same(Array(one[0..<24]), Array(other[0..<24])))
    for opening in CipherBackend.allCases {
      let opened = try SealedMessage.open(one, key: key, ad: ad, cipher: SecretStreamCipher(opening))
      #expect(same(opened, plaintext))
    }
  }

  @Test(arguments: [1, 70, 256], CipherBackend.allCases)
  func noticesEveryChangedByte(count: Int, backend: CipherBackend) throws {
    let keyBytes = Random.bytes(32)
    let ad = Random.bytes(48)
    let cipher = SecretStreamCipher(backend)
    let sealed = SealedMessage.seal(
      Random.bytes(count), key: try SecretKey(bytes: keyBytes), ad: ad, cipher: cipher)

    func refuse(_ sealed: [UInt8], key: [UInt8], ad: [UInt8], _ what: String) throws {
      let key = try SecretKey(bytes: key)
      do {
        _ = try SealedMessage.open(sealed, key: key, ad: ad, cipher: cipher)
        throw Mismatch("opened with \(what)")
      } catch CryptoError.notAuthentic {}
    }
    func flipped(_ bytes: [UInt8], _ index: Int) -> [UInt8] {
      var bytes = bytes
      bytes[index] ^= 1 << UInt8(index % 8)
      return bytes
    }
    for index in sealed.indices {
      try refuse(flipped(sealed, index), key: keyBytes, ad: ad, "byte \(index) changed")
    }
    for index in ad.indices {
      try refuse(sealed, key: keyBytes, ad: flipped(ad, index), "associated data byte \(index) changed")
    }
    for index in keyBytes.indices {
      try refuse(sealed, key: flipped(keyBytes, index), ad: ad, "key byte \(index) changed")
    }
    try refuse(sealed + [0], key: keyBytes, ad: ad, "a byte more")
    try refuse(Array(sealed.dropLast()), key: keyBytes, ad: ad, "a byte less")
  }

  @Test func refusesMessageShorterThanAny() throws {
    for count in [0, 24, 40] {
      let key = try SecretKey.random()
      do {
        _ = try SealedMessage.open(Random.bytes(count), key: key, ad: [], cipher: SecretStreamCipher())
        Issue.record("\(count) bytes opened")
      } catch {
        #expect(error == .tooShort(byteCount: count, minimum: 41))
      }
    }
  }
}
