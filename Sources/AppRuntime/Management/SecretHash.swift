import Foundation
public import SodiumPrimitives

/// The hash of an unlock code or a former password: a PHC string of Argon2id, version 19, one lane, as `crypto_pwhash_str` and
/// the `argon2` program write it.
public struct SecretHash: Sendable, Hashable {
  /// The hash as it stands in the management file.
  public let text: String
  private let parameters: PasswordHash.Parameters
  private let salt: [UInt8]
  private let hash: [UInt8]

  /// The most memory that verifying may take, 1 GiB, and the most passes. Whoever wrote the file does not decide that.
  static let memoryKiBMax: UInt32 = 1 << 20
  static let passesMax: UInt32 = 16
  private static let hashByteCount = 32

  /// Reads a hash. Returns nil for another scheme, costs beyond 1 GiB or 16 passes, and a salt or a hash of another
  /// length than 16 and 32 bytes.
  public init?(_ text: String) {
    // One of 300 bytes has room for every number.
    guard text.utf8.count <= 300 else { return nil }
    let fields = text.split(separator: "$", omittingEmptySubsequences: false)
    guard fields.count == 6, fields[0].isEmpty, fields[1] == "argon2id", fields[2] == "v=19",
      let parameters = Self.parameters(fields[3]), let salt = Self.bytes(fields[4]),
      salt.count == PasswordHash.saltByteCount, let hash = Self.bytes(fields[5]),
      hash.count == Self.hashByteCount
    else { return nil }
    (self.text, self.parameters, self.salt, self.hash) = (text, parameters, salt, hash)
  }

  /// Hashes a new code. Takes the time of a password hash, some 0.2 s.
  public init(hashing code: borrowing SecretBytes, parameters: PasswordHash.Parameters = .standard) throws {
    let salt = Random.bytes(PasswordHash.saltByteCount)
    let key = try PasswordHash.key(passphrase: code, salt: salt, parameters: parameters)
    let hash = try key.withUnsafeBytes { [UInt8]($0) }
    (self.parameters, self.salt, self.hash) = (parameters, salt, hash)
    text =
      "$argon2id$v=19$m=\(parameters.memoryKiB),t=\(parameters.passes),p=1$\(Self.base64(salt))$\(Self.base64(hash))"
  }

  /// Whether a code has this hash. Takes the time and the memory that the hash states.
  public func isHash(of code: borrowing SecretBytes) throws -> Bool {
    let key = try PasswordHash.key(passphrase: code, salt: salt, parameters: parameters)
    return try key.withUnsafeBytes { key in hash.withUnsafeBytes { KeyedHash.equal(key, $0) } }
  }

  private static func parameters(_ text: Substring) -> PasswordHash.Parameters? {
    let fields = text.split(separator: ",", omittingEmptySubsequences: false)
    guard fields.count == 3, fields[2] == "p=1", let memoryKiB = number(fields[0], "m="),
      let passes = number(fields[1], "t="), (8...memoryKiBMax).contains(memoryKiB),
      (1...passesMax).contains(passes)
    else { return nil }
    return PasswordHash.Parameters(passes: passes, memoryKiB: memoryKiB)
  }

  private static func number(_ text: Substring, _ prefix: String) -> UInt32? {
    guard text.hasPrefix(prefix) else { return nil }
    let digits = text.dropFirst(prefix.count)
    guard digits.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) else { return nil }
    return UInt32(digits)
  }

  /// Base64 without padding.
  private static func base64(_ bytes: [UInt8]) -> String {
    Data(bytes).base64EncodedString().replacingOccurrences(of: "=", with: "")
  }

  private static func bytes(_ text: Substring) -> [UInt8]? {
    guard !text.contains("=") else { return nil }
    let padding = String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
    return Data(base64Encoded: text + padding).map { [UInt8]($0) }
  }
}
