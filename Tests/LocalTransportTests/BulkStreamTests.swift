import Foundation
import ServiceWire
import SodiumPrimitives
import Testing

@testable import LocalTransport

/// What streams are sealed with, by itself.
struct BulkStreamTests {
  let key = Data(Random.bytes(32))
  let header = Random.bytes(24)
  let cipher = SecretStreamCipher()

  private func beginning() -> BulkStreamState {
    header.withUnsafeBytes { BulkStreamState(key: key, header: $0) }
  }

  /// With and without memory of its own to seal in.
  private func seal(
    _ message: [UInt8], isLast: Bool, with state: BulkStreamState, throughScratch: Bool = false
  ) -> [UInt8] {
    var (output, scratch) = ([UInt8](repeating: 0, count: message.count + 17), [UInt8]())
    if throughScratch { scratch = output }
    message.withUnsafeBytes { message in
      output.withUnsafeMutableBytes { output in
        scratch.withUnsafeMutableBytes {
          state.seal(message, isLast: isLast, into: output, through: throughScratch ? $0 : nil, cipher)
        }
      }
    }
    return output
  }

  @Test(arguments: [false, true]) func sealsAndOpensASecretstream(throughScratch: Bool) throws {
    let (sealing, opening) = (beginning(), beginning())
    let byHand = StreamByHand(key: key, header: header)
    for (count, isLast) in [(1, false), (65_536, false), (100, false), (5, true)] {
      let message = Random.bytes(count)
      let sealed = seal(message, isLast: isLast, with: sealing, throughScratch: throughScratch)
      #expect(sealed == byHand.seal(message, isLast ? .final : .message))
      try sealed.withUnsafeBytes {
        try opening.open($0, cipher) { plaintext, opensAsLast in
          #expect(Array(plaintext) == message)
          #expect(opensAsLast == isLast)
        }
      }
    }
  }

  /// Nothing that is damaged opens, a cut message and another tag included; and what is whole opens afterwards.
  @Test func opensNothingElse() {
    let sealed = seal(Random.bytes(100), isLast: false, with: beginning())
    let opening = beginning()
    func opens(_ bytes: [UInt8]) -> Bool {
      var wasCalled = false
      do {
        try bytes.withUnsafeBytes { try opening.open($0, cipher) { _, _ in wasCalled = true } }
        return true
      } catch {
        #expect(!wasCalled)
        return false
      }
    }
    for place in sealed.indices {
      for bit in [0, 1, 7] {
        var damaged = sealed
        damaged[place] ^= 1 << bit
        #expect(!opens(damaged), "bit \(bit) of byte \(place)")
      }
    }
    for count in 0..<sealed.count { #expect(!opens(Array(sealed.prefix(count)))) }
    #expect(!opens(sealed + [0]))
    #expect(opens(sealed))
    // Not twice.
    #expect(!opens(sealed))
  }
}
