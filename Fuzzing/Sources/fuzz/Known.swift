import EncryptedFile
import SodiumPrimitives

@testable import ContainerStore
@testable import OpenDynamicsTesting
@testable import TestSupport

/// Keys and identities that every run has the same, so that an input means the same in each.
enum Known {
  static let container = Identifier((0..<16).map { $0 ^ 0xc0 })
  static let journal = Identifier((0..<16).map { $0 ^ 0xa0 })
  static let table = Identifier((0..<16).map { $0 ^ 0xb0 })
  static let session = Identifier((0..<16).map { $0 ^ 0xd0 })
  static let place = JournalFrame.Place(container: container, journal: journal)

  static func key() throws -> SecretKey {
    try SecretKey { _ = $0.initializeMemory(as: UInt8.self, repeating: 7) }
  }

  static func secret() throws -> SecretBytes {
    var secret = try SecretBytes(count: 32)
    _ = secret.withUnsafeMutableBytes { $0.initializeMemory(as: UInt8.self, repeating: 7) }
    return secret
  }

  static func credential() throws -> Credential { try .rawKey(secret()) }

  /// A file in memory.
  static func file(_ bytes: [UInt8]) throws -> any BlockFile {
    var image = DiskImage()
    image.names["file"] = 1
    image.contents[1] = bytes
    return try RecordingIO(image).open("file", .read)
  }

  /// Bytes that differ from seed to seed.
  static func bytes(_ count: Int, seed: UInt64) -> [UInt8] {
    var random = SplitMix64(seed: seed)
    return (0..<count).map { _ in UInt8(truncatingIfNeeded: random.next()) }
  }
}
