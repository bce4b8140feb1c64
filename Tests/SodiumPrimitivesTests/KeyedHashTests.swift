import CSodium
import SodiumPrimitives
import Testing

struct KeyedHashTests {
  let key = Random.bytes(32)

  @Test(arguments: [16, 24, 32, 33, 63, 64])
  func computesWhatLibsodiumComputes(outputCount: Int) {
    for dataCount in [0, 1, 63, 64, 127, 128, 129, 1_000] {
      for keyCount in [16, 32, 64] {
        let data = Random.bytes(dataCount)
        let key = Random.bytes(keyCount)
        var expected = [UInt8](repeating: 0, count: outputCount)
        #expect(crypto_generichash(&expected, outputCount, data, UInt64(dataCount), key, keyCount) == 0)
        #expect(
          key.withUnsafeBytes { KeyedHash.compute(count: outputCount, key: $0, data: data) } == expected)
      }
    }
  }

  @Test(arguments: [16, 32, 64])
  func checksumsAsLibsodiumDoesWithoutAKey(outputCount: Int) {
    for dataCount in [0, 1, 128, 129, 4_096] {
      let data = Random.bytes(dataCount)
      var expected = [UInt8](repeating: 0, count: outputCount)
      #expect(crypto_generichash(&expected, outputCount, data, UInt64(dataCount), nil, 0) == 0)
      #expect(data.withUnsafeBytes { KeyedHash.checksum($0, count: outputCount) } == expected)
    }
  }

  /// RFC 7693, appendix A.
  @Test func checksumsAbcAsTheRFCSays() {
    let expected = hex(
      "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
        + "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923")
    #expect(Array("abc".utf8).withUnsafeBytes { KeyedHash.checksum($0, count: 64) } == expected)
  }

  @Test func checksumHasSixteenBytesUnlessTold() {
    #expect([UInt8](repeating: 0, count: 9).withUnsafeBytes { KeyedHash.checksum($0) }.count == 16)
  }

  @Test func hchacha20IsLibsodiums() {
    for _ in 0..<100 {
      let input = Random.bytes(16)
      let key = Random.bytes(32)
      var expected = [UInt8](repeating: 0, count: 32)
      #expect(crypto_core_hchacha20(&expected, input, key, nil) == 0)
      #expect(hchacha20(key: key, input: input) == expected)
    }
  }

  /// draft-irtf-cfrg-xchacha-03, section 2.2.1.
  @Test func hchacha20GivesThePublishedAnswer() {
    let answer = hchacha20(key: Array(0..<32), input: hex("000000090000004a0000000031415927"))
    #expect(answer == hex("82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"))
  }

  @Test(arguments: [1, 24, 63, 64, 65, 32 * 64, 5_000])
  func keyStreamIsLibsodiumsUnderANonceOfZeros(count: Int) {
    var expected = [UInt8](repeating: 0, count: count)
    crypto_stream_chacha20_ietf(&expected, UInt64(count), [UInt8](repeating: 0, count: 12), key)
    #expect(keyStream(key: key, count: count) == expected)
  }

  /// RFC 8439, appendix A.1, test vector 1.
  @Test func keyStreamBeginsAtBlockZero() {
    let expected = hex(
      "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        + "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586")
    #expect(keyStream(key: [UInt8](repeating: 0, count: 32), count: 64) == expected)
  }

  @Test func equalComparesLengthAndEveryByte() {
    func equal(_ a: [UInt8], _ b: [UInt8]) -> Bool {
      a.withUnsafeBytes { a in b.withUnsafeBytes { KeyedHash.equal(a, $0) } }
    }
    #expect(equal([], []))
    #expect(equal(key, key))
    #expect(!equal(key, []))
    #expect(!equal(key, Array(key.dropLast())))
    for place in 0..<32 {
      var other = key
      other[place] ^= 0x80
      #expect(!equal(key, other))
    }
  }

  @Test func wipeLeavesZerosAndNothingElse() {
    var bytes = [UInt8](repeating: 0xFF, count: 100)
    bytes.withUnsafeMutableBytes { wipe(UnsafeMutableRawBufferPointer(rebasing: $0[10..<90])) }
    #expect(bytes[0..<10].allSatisfy { $0 == 0xFF } && bytes[90...].allSatisfy { $0 == 0xFF })
    #expect(bytes[10..<90].allSatisfy { $0 == 0 })
    wipe(UnsafeMutableRawBufferPointer(start: nil, count: 0))
  }

  @Test(arguments: [(8, 32), (15, 32), (65, 32), (32, 8), (32, 65)])
  func endsTheProcessOutsideSixteenToSixtyFourBytes(outputCount: Int, keyCount: Int) async {
    // libsodium itself takes 1 … 64 and 0 … 64.
    await #expect(processExitsWith: .failure) { [outputCount, keyCount] in
      _ = [UInt8](repeating: 1, count: keyCount).withUnsafeBytes {
        KeyedHash.compute(count: outputCount, key: $0, data: [1])
      }
    }
  }

  private func hchacha20(key: [UInt8], input: [UInt8]) -> [UInt8] {
    var output = [UInt8](repeating: 0, count: 32)
    output.withUnsafeMutableBytes { output in
      key.withUnsafeBytes { key in
        input.withUnsafeBytes { KeyedHash.hchacha20(key: key, input: $0, into: output) }
      }
    }
    return output
  }

  private func keyStream(key: [UInt8], count: Int) -> [UInt8] {
    var output = [UInt8](repeating: 0xFF, count: count)
    output.withUnsafeMutableBytes { output in
      key.withUnsafeBytes { KeyedHash.keyStream(key: $0, into: output) }
    }
    return output
  }
}

/// The bytes that `text` spells; anything that is not hexadecimal is a mistake in the test.
func hex(_ text: String) -> [UInt8] {
  var bytes = [UInt8](repeating: 0, count: text.utf8.count / 2)
  var count = 0
  let status = sodium_hex2bin(&bytes, bytes.count, text, text.utf8.count, nil, &count, nil)
  precondition(status == 0 && 2 * count == text.utf8.count, "not hexadecimal: \(text.prefix(80))")
  return bytes
}
