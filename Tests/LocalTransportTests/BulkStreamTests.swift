import Foundation
import ServiceWire
import SodiumPrimitives
import Testing

@testable import LocalTransport

/// What streams are sealed with, by itself.
struct BulkStreamTests {
  /// The example of the protocol's page, which was made by another implementation.
  @Test func sealsAndOpensTheExample() throws {
    let key = BulkKey(Data(0..<32), .aes256GCM)
    let header = [UInt8](100..<124)
    let sealed = [
      "002979bdde471563f09fa2f43ec65c04ff24d84f", "03118cb306d9a9cf253dec21f26ecf838606235296f2",
    ]
    let messages = [Array("abc".utf8), [0, 1, 2, 3, 4]]
    let cipher = SecretStreamCipher()
    let sealing = header.withUnsafeBytes { key.beginning(header: $0) }
    let opening = header.withUnsafeBytes { key.beginning(header: $0) }
    for (i, (message, expected)) in zip(messages, sealed).enumerated() {
      var output = [UInt8](repeating: 0, count: message.count + 17)
      try message.withUnsafeBytes { message in
        try output.withUnsafeMutableBytes {
          try sealing.seal(message, isLast: i == 1, into: $0, through: nil, cipher)
        }
      }
      #expect(output.map { String(format: "%02x", $0) }.joined() == expected)
      try output.withUnsafeBytes {
        try opening.open($0, cipher) { plaintext, isLast in
          #expect(Array(plaintext) == message)
          #expect(isLast == (i == 1))
        }
      }
    }
  }

  /// Nothing that is damaged opens, a cut message and another tag included; and what is whole opens afterwards.
  @Test(arguments: BulkCipher.allCases) func opensNothingElse(_ kind: BulkCipher) throws {
    let key = BulkKey(Data(Random.bytes(32)), kind)
    let header = Random.bytes(24)
    let cipher = SecretStreamCipher()
    let sealing = header.withUnsafeBytes { key.beginning(header: $0) }
    let opening = header.withUnsafeBytes { key.beginning(header: $0) }
    let message = Random.bytes(100)
    var sealed = [UInt8](repeating: 0, count: message.count + 17)
    try message.withUnsafeBytes { message in
      try sealed.withUnsafeMutableBytes {
        try sealing.seal(message, isLast: false, into: $0, through: nil, cipher)
      }
    }
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
