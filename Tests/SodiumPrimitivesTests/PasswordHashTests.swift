import CSodium
import Foundation
import SodiumPrimitives
import Testing

struct PasswordHashTests {
  let salt = Random.bytes(16)

  @Test(
    arguments: ["", "correct horse battery staple", "Grüße, 世界", String(repeating: "long ", count: 100)],
    [
      PasswordHash.Parameters(passes: 1, memoryKiB: 8), .init(passes: 1, memoryKiB: 1024),
      .init(passes: 3, memoryKiB: 67),
    ])
  func givesLibsodiumsArgon2id(text: String, parameters: PasswordHash.Parameters) throws {
    var expected = [UInt8](repeating: 0, count: 32)
    let status = crypto_pwhash(
      &expected, 32, text, UInt64(text.utf8.count), salt, UInt64(parameters.passes),
      Int(parameters.memoryKiB) * 1024, crypto_pwhash_ALG_ARGON2ID13)
    #expect(status == 0)
    #expect(try key(text, salt, parameters) == expected)
  }

  /// A passphrase is bytes: one that holds a zero does not end there.
  @Test func hashesBytesAfterAZero() throws {
    let parameters = PasswordHash.Parameters(passes: 1, memoryKiB: 8)
    #expect(try key("a\0b", salt, parameters) != key("a", salt, parameters))
  }

  @Test func everyInputCounts() throws {
    let parameters = PasswordHash.Parameters(passes: 2, memoryKiB: 16)
    let reference = try key("passphrase", salt, parameters)
    #expect(try key("passphrase", salt, parameters) == reference)
    #expect(try key("Passphrase", salt, parameters) != reference)
    #expect(try key("passphrase", salt.reversed(), parameters) != reference)
    #expect(try key("passphrase", salt, .init(passes: 3, memoryKiB: 16)) != reference)
    #expect(try key("passphrase", salt, .init(passes: 2, memoryKiB: 17)) != reference)
  }

  @Test func standardIsThreePassesOverSixtyFourMebibytes() {
    #expect(PasswordHash.Parameters.standard == .init(passes: 3, memoryKiB: 65_536))
  }

  #if os(Linux)
    @Test func throwsWhenTheMemoryIsNotThere() async {
      // An own process, whose address space is limited, so that no machine is big enough.
      await #expect(processExitsWith: .success) {
        var limit = rlimit(rlim_cur: 16 << 30, rlim_max: 16 << 30)
        guard setrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &limit) == 0 else { fatalError("no limit") }
        let passphrase = try SecretBytes(utf8: "passphrase")
        do {
          _ = try PasswordHash.key(
            passphrase: passphrase, salt: [UInt8](repeating: 1, count: 16),
            parameters: .init(passes: 1, memoryKiB: 32 << 20))
          fatalError("hashed in 32 GiB")
        } catch CryptoError.passwordHashOutOfMemory(byteCount: 32 << 30) {}
      }
    }
  #endif

  @Test func endsTheProcessOnASaltOfAnotherLength() async {
    await #expect(processExitsWith: .failure) {
      let passphrase = try SecretBytes(utf8: "passphrase")
      _ = try PasswordHash.key(
        passphrase: passphrase, salt: [UInt8](repeating: 1, count: 15),
        parameters: .init(passes: 1, memoryKiB: 8))
    }
  }

  private func key(
    _ passphrase: String, _ salt: [UInt8], _ parameters: PasswordHash.Parameters
  ) throws -> [UInt8] {
    let passphrase = try SecretBytes(utf8: passphrase)
    let key = try PasswordHash.key(passphrase: passphrase, salt: salt, parameters: parameters)
    return try key.withUnsafeBytes { [UInt8]($0) }
  }
}
