import SodiumPrimitives
import Testing

/// One-message streams, tags that libsodium does not name, and the choice of the backend.
struct SecretStreamCipherTests {
  static let byteCounts = [0, 1, 7, 8, 64, 255, 256, 257, 264, 1_024, 16_384, 16_385, 70_000]

  let key = Random.bytes(32)
  let header = Random.bytes(24)
  let ad = Random.bytes(80)

  @Test(arguments: CipherBackend.allCases, byteCounts)
  func sealsOneMessageAsLibsodiumDoes(backend: CipherBackend, count: Int) throws {
    let cipher = SecretStreamCipher(backend)
    let message = Random.bytes(count)
    for ad in [ad, []] {
      let expected = LibsodiumStream.seal(message, key: key, header: header, ad: ad)
      #expect(cipher.seal(message, key: key, header: header, ad: ad) == expected)
      #expect(try cipher.open(expected, key: key, ad: ad) == message)
    }
  }

  @Test(arguments: CipherBackend.allCases, byteCounts)
  func refusesOneMessageWithoutTagFinal(backend: CipherBackend, count: Int) {
    let cipher = SecretStreamCipher(backend)
    let message = Random.bytes(count)
    for rawTag: UInt8 in [0, 1, 2, 4, 7, 0x13, 0xFF] {
      let sealed = LibsodiumStream.seal(message, key: key, header: header, ad: ad, rawTag: rawTag)
      #expect(throws: CryptoError.notAuthentic, "tag \(rawTag)") { try cipher.open(sealed, key: key, ad: ad) }
    }
  }

  @Test(arguments: CipherBackend.allCases)
  func refusesWhatIsShorterThanAnySealedMessage(backend: CipherBackend) throws {
    let cipher = SecretStreamCipher(backend)
    let sealed = cipher.seal([], key: key, header: header, ad: ad)
    #expect(sealed.count == SecretStreamCipher.overheadByteCount)
    for count in 0..<41 {
      #expect(throws: CryptoError.tooShort(byteCount: count, minimum: 41)) {
        try cipher.open(Array(sealed[0..<count]), key: key, ad: ad)
      }
    }
    #expect(try cipher.open(sealed, key: key, ad: ad) == [])
  }

  @Test(arguments: CipherBackend.allCases, byteCounts)
  func refusesAlteredOneMessageStream(backend: CipherBackend, count: Int) throws {
    let cipher = SecretStreamCipher(backend)
    let message = Random.bytes(count)
    let sealed = cipher.seal(message, key: key, header: header, ad: ad)
    func refuses(_ sealed: [UInt8], _ key: [UInt8], _ ad: [UInt8], _ what: String) {
      #expect(throws: CryptoError.notAuthentic, Comment(rawValue: what)) {
        try cipher.open(sealed, key: key, ad: ad)
      }
    }
    for place in Set([0, 15, 16, 23, 24, 25, 25 + count / 2, 25 + count, sealed.count - 1]) {
      var altered = sealed
      altered[place] ^= 0x10
      refuses(altered, key, ad, "byte \(place) altered")
    }
    refuses(sealed, key.reversed(), ad, "another key")
    refuses(sealed, key, [], "no associated data")
    refuses(sealed, key, ad + [0], "longer associated data")
    refuses(sealed + [0], key, ad, "a byte more")
    if count > 0 { refuses(Array(sealed.dropLast()), key, ad, "a byte less") }
    if count >= 16 { refuses(Array(sealed.dropLast(16)), key, ad, "without its authenticator") }
    #expect(try cipher.open(sealed, key: key, ad: ad) == message)
  }

  /// libsodium seals under any tag byte; such a stream must go on, and rekeys when the byte has REKEY's bit.
  @Test(arguments: CipherBackend.allCases, [0, 5, 256, 264, 1_000])
  func reportsUnknownTagAsNilAndGoesOn(backend: CipherBackend, count: Int) throws {
    let cipher = SecretStreamCipher(backend)
    var oracle = LibsodiumStream(key: key, header: header)
    let opening = BoxedState(key: key, header: header)
    let message = Random.bytes(count)
    for rawTag: UInt8 in [4, 5, 6, 7, 0x80, 0xFE, 0xFF, 3] {
      let sealed = oracle.push(message, ad: ad, rawTag: rawTag)
      let opened = try opening.pull(sealed, ad: ad, with: cipher)
      #expect(opened.tag == SecretStreamTag(rawValue: rawTag))
      #expect(opened.message == message)
      #expect(opening.state.bytes == oracle.stateBytes, "after tag \(rawTag)")
    }
  }

  /// One cipher, many lengths up and down: its scratch memory grows and what it says stays right.
  @Test(arguments: CipherBackend.allCases)
  func opensLongAndShortMessagesInTurn(backend: CipherBackend) throws {
    let cipher = SecretStreamCipher(backend)
    for count in [16_384, 100, 16_392, 0, 200_000, 256, 16_384, 300_001, 8] {
      let message = Random.bytes(count)
      let sealed = LibsodiumStream.seal(message, key: key, header: header, ad: ad)
      #expect(try cipher.open(sealed, key: key, ad: ad) == message)
    }
  }

  @Test func prefersLibcryptoWhereItIsInstalled() {
    #expect(CipherBackend.preferred == (CipherBackend.libcryptoVersion == nil ? .libsodium : .libcrypto))
    #expect(SecretStreamCipher().backend == .preferred)
  }

  @Test func usesTheBackendItWasAskedFor() {
    #expect(SecretStreamCipher(.libsodium).backend == .libsodium)
    #expect(
      SecretStreamCipher(.libcrypto).backend
        == (CipherBackend.libcryptoVersion == nil ? .libsodium : .libcrypto))
  }

  @Test func namesAVersionOfLibcryptoThatIsInstalled() throws {
    guard let version = CipherBackend.libcryptoVersion else { return }
    #expect(version.hasPrefix("OpenSSL 3."))
  }

  @Test func endsTheProcessOnOutputWithoutRoom() async {
    await #expect(processExitsWith: .failure) {
      let bytes = [UInt8](repeating: 0, count: 32)
      let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: 40, alignment: 1)
      var output = OutputRawSpan(buffer: memory, initializedCount: 0)
      SecretStreamCipher().seal(
        RawSpan(), key: bytes.span.bytes, header: bytes.span.bytes.extracting(first: 24), ad: RawSpan(),
        into: &output)
    }
  }
}
