import SodiumPrimitives
import TestSupport
import Testing

/// Random streams against libsodium's own functions: sealed bytes, opened bytes, tags, and every byte of the state after
/// each message.
struct SecretStreamDifferentialTests {
  static let streamsPerShard = 2_500
  static let shards = 0..<8

  @Test(arguments: CipherBackend.allCases, shards)
  func sealsAndOpensStreamsAsLibsodiumDoes(backend: CipherBackend, shard: Int) throws {
    let seed = SplitMix64.testSeed
    let bench = Bench(backend, seed: seed)
    for stream in shard * Self.streamsPerShard..<(shard + 1) * Self.streamsPerShard {
      do {
        try bench.run(SplitMix64(seed: seed &+ UInt64(stream)))
      } catch let mismatch as Mismatch {
        throw Mismatch("\(mismatch); stream \(stream), \(backend), OPENDYNAMICS_TEST_SEED=\(seed)")
      }
    }
  }

  @Test(arguments: CipherBackend.allCases)
  func sealsAndOpensEveryShortLengthAsLibsodiumDoes(backend: CipherBackend) throws {
    let bench = Bench(backend, seed: SplitMix64.testSeed)
    var random = SplitMix64(seed: SplitMix64.testSeed)
    for count in 0...1_040 {
      try bench.run(count: count, adCount: count % 97, random: &random)
    }
  }

  /// The same inputs for our code and libsodium's, and memory for what both make of them.
  private final class Bench {
    static let messageByteCountMax = 70_000
    static let messageByteCounts = [
      0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 255, 256, 257, 263, 264, 265, 272, 511, 512, 1_000, 1_024, 4_096,
      4_104,
      16_376, 16_383, 16_384, 16_385, 16_392, 65_536, 65_537, 70_000,
    ]
    static let adByteCounts = [1, 7, 8, 15, 16, 17, 63, 64, 65, 80, 255, 256]
    static let tags = SecretStreamTag.allCases
    /// Bytes after an output buffer that must stay as they were.
    static let guardByteCount = 64

    let cipher: SecretStreamCipher
    let inputs: Memory
    let expected = Memory(byteCount: messageByteCountMax + 17)
    let sealed = Memory(byteCount: messageByteCountMax + 128)
    let untouched = Memory(byteCount: guardByteCount, repeating: 0xC3)

    init(_ backend: CipherBackend, seed: UInt64) {
      cipher = SecretStreamCipher(backend)
      inputs = Memory(byteCount: 1 << 18, seed: seed)
    }

    func run(_ seeded: SplitMix64) throws {
      var random = seeded
      let key = inputs.anySlice(32, &random)
      let header = inputs.anySlice(24, &random)
      var oracle = LibsodiumStream(key: key, header: header)
      var sealing = SecretStreamState(key: key.bytes, header: header.bytes)
      var opening = SecretStreamState(key: key.bytes, header: header.bytes)
      for message in 0...random.below(4) {
        if random.oneIn(8) {
          oracle.rekey()
          sealing.rekey()
          opening.rekey()
        }
        if random.oneIn(8) {
          let counter = 0xFFFF_FFFF - UInt32(random.below(3))
          oracle.setCounter(counter)
          sealing.setCounter(counter)
          opening.setCounter(counter)
        }
        let count = messageByteCount(&random)
        let adCount = adByteCount(&random)
        let tag = Self.tags[random.below(4)]
        try exchange(
          &oracle, &sealing, &opening, count: count, adCount: adCount, tag: tag, random: &random,
          label: "message \(message)")
      }
    }

    /// Two messages of one length, the second with the tag FINAL.
    func run(count: Int, adCount: Int, random: inout SplitMix64) throws {
      let key = inputs.anySlice(32, &random)
      let header = inputs.anySlice(24, &random)
      var oracle = LibsodiumStream(key: key, header: header)
      var sealing = SecretStreamState(key: key.bytes, header: header.bytes)
      var opening = SecretStreamState(key: key.bytes, header: header.bytes)
      for tag in [SecretStreamTag.message, .final] {
        try exchange(
          &oracle, &sealing, &opening, count: count, adCount: adCount, tag: tag, random: &random,
          label: "message with tag \(tag)")
      }
    }

    private func exchange(
      _ oracle: inout LibsodiumStream, _ sealing: inout SecretStreamState, _ opening: inout SecretStreamState,
      count: Int, adCount: Int, tag: SecretStreamTag, random: inout SplitMix64, label: String
    ) throws {
      let message = inputs.anySlice(count, &random)
      let ad =
        adCount == 0 ? UnsafeRawBufferPointer(start: nil, count: 0) : inputs.anySlice(adCount, &random)
      let shift = random.below(17)
      func require(_ holds: Bool, _ what: String) throws {
        guard holds else { throw Mismatch("\(what): \(label), \(count) bytes, \(adCount) of ad, tag \(tag)") }
      }

      let expected = self.expected.slice(0, count + 17)
      oracle.push(message, ad: ad, rawTag: tag.rawValue, into: expected)
      let state = oracle.stateBytes

      let sealed = self.sealed.slice(shift, count + 17)
      let afterSealed = self.sealed.slice(shift + count + 17, Self.guardByteCount - 17)
      let untouched = UnsafeRawBufferPointer(self.untouched.slice(0, Self.guardByteCount - 17))
      afterSealed.copyMemory(from: untouched)
      var output = OutputRawSpan(buffer: sealed, initializedCount: 0)
      cipher.push(&sealing, message.bytes, ad: ad.bytes, tag: tag, into: &output)
      try require(
        same(UnsafeRawBufferPointer(sealed), UnsafeRawBufferPointer(expected)), "other bytes sealed")
      try require(same(UnsafeRawBufferPointer(afterSealed), untouched), "sealing wrote past its output")
      try require(sealing.bytes == state, "other state after sealing")

      let opened: (plaintext: UnsafeRawBufferPointer, tag: SecretStreamTag?)
      do {
        opened = try cipher.pull(&opening, expected.bytes, ad: ad.bytes)
      } catch {
        throw Mismatch("\(error): \(label), \(count) bytes, \(adCount) of ad, tag \(tag)")
      }
      try require(opened.tag == tag, "opened with tag \(String(describing: opened.tag))")
      try require(same(opened.plaintext, message), "other bytes opened")
      try require(opening.bytes == state, "other state after opening")
    }

    private func messageByteCount(_ random: inout SplitMix64) -> Int {
      switch random.below(20) {
      case 0..<8: Self.messageByteCounts[random.below(Self.messageByteCounts.count)]
      case 8..<11: random.below(300)
      case 11..<15: 8 * random.below(2_100)
      case 15..<19: 1 + 2 * random.below(8_200)
      default: random.below(Self.messageByteCountMax + 1)
      }
    }

    private func adByteCount(_ random: inout SplitMix64) -> Int {
      switch random.below(4) {
      case 0: 0
      case 1, 2: Self.adByteCounts[random.below(Self.adByteCounts.count)]
      default: random.below(1_000)
      }
    }
  }
}
