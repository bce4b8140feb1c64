import OpenDynamicsTesting
import SodiumPrimitives
import Testing

@testable import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What a test opens a container with; unlike a Credential, it can be copied.
enum TestSecret: Sendable, CustomTestStringConvertible {
  case rawKey(UInt8)
  case passphrase(String)

  func credential() throws -> Credential {
    switch self {
    case .rawKey(let byte): try testCredential(byte)
    case .passphrase(let text): .passphrase(try SecretBytes(utf8: text))
    }
  }

  var testDescription: String {
    switch self {
    case .rawKey: "a raw key"
    case .passphrase: "a passphrase"
    }
  }
}

extension Container {
  static func create(_ io: RecordingIO, _ secret: TestSecret, _ options: Options = testOptions()) throws
    -> Container
  {
    try create(io: io, credential: secret.credential(), options: options)
  }

  static func open(_ image: DiskImage, _ secret: TestSecret, mode: Mode = .readOnly) throws -> Container {
    try open(RecordingIO(image), secret, mode: mode)
  }

  static func open(_ io: RecordingIO, _ secret: TestSecret, mode: Mode = .readOnly) throws -> Container {
    try open(io: io, credential: secret.credential(), mode: mode, options: testOptions())
  }

  /// Why the container does not open; nil when it does.
  static func openingError(_ image: DiskImage, _ secret: TestSecret, mode: Mode = .readOnly) throws
    -> ContainerError?
  {
    do {
      try open(image, secret, mode: mode).close()
      return nil
    } catch let error as ContainerError {
      return error
    }
  }

  static func verify(_ image: DiskImage, _ secret: TestSecret) throws -> VerifyReport {
    try verify(io: RecordingIO(image), credential: secret.credential(), options: testOptions())
  }
}

extension DiskImage {
  /// A file's bytes; nil when there is none. Setting makes, replaces or removes the file.
  subscript(path: String) -> [UInt8]? {
    get { names[path].flatMap { contents[$0] } }
    set {
      if let newValue {
        let inode = names[path] ?? 1_000_000 + names.count
        names[path] = inode
        contents[inode] = newValue
      } else if let inode = names.removeValue(forKey: path) {
        contents[inode] = nil
      }
    }
  }

  /// Paths of a directory's files, in order.
  func files(in directory: String) -> [String] {
    names.keys.filter { $0.hasPrefix(directory + "/") }.sorted()
  }

  mutating func flipBit(_ bit: Int, at offset: Int, of path: String) {
    contents[names[path]!]![offset] ^= 1 << UInt8(bit)
  }

  // MARK: Superblock

  /// One of the two slots of the superblock.
  func slot(_ index: Int) -> [UInt8] {
    let offset = Int(SuperblockSlot.offsets[index])
    return Array(self["superblock"]![offset..<(offset + SuperblockSlot.byteCount)])
  }

  mutating func setSlot(_ index: Int, _ bytes: [UInt8]) {
    let offset = Int(SuperblockSlot.offsets[index])
    self["superblock"]!.replaceSubrange(offset..<(offset + SuperblockSlot.byteCount), with: bytes)
  }

  /// XORs a byte of a slot and, unless the slot is to be torn, makes its checksum right again.
  mutating func alterSlot(_ index: Int, at offset: Int, xor mask: UInt8, fixingChecksum: Bool = true) {
    var slot = slot(index)
    slot[offset] ^= mask
    setSlot(index, fixingChecksum ? withChecksum(slot) : slot)
  }
}

/// A superblock slot with the checksum that its bytes ask for.
func withChecksum(_ slot: [UInt8]) -> [UInt8] {
  slot[..<4064] + slot[..<4064].withUnsafeBytes { KeyedHash.checksum($0, count: 32) }
}

/// What a reader has to say about an image, and what it read.
struct Verdict {
  /// Why the container does not open.
  var error: ContainerError?
  var findings: [Finding] = []
  /// What was read otherwise than it should; empty when all is well.
  var complaints: [String] = []

  private static let damageCodes: Set<ContainerError.Code> = [
    .rolledBack, .superblockTorn, .superblockAltered, .journalDamaged, .journalAltered, .tableDamaged,
    .catalogDamaged,
    .notAContainer,
  ]

  var isDetected: Bool { error != nil || findings.contains { $0.severity == .damage } }

  /// Opens the image, verifies it and reads every file. Whatever is read has to be as in one of `states`, all in the same one;
  /// what cannot be read has to be refused for a reason that a user can act on.
  init(_ image: DiskImage, _ secret: TestSecret, states: [[String: [UInt8]?]]) {
    do {
      let container = try Container.open(image, secret)
      findings = try container.verify().findings
      let listed = try container.list("/", recursively: true)
      let paths = Set(listed.map { "/" + $0.path })
      var possible = states.filter { Set($0.keys) == paths }
      if possible.isEmpty { complaints.append("another tree: \(paths.sorted())") }
      for file in listed where file.attributes.kind == .file {
        do {
          let contents = try container.contents(at: "/" + file.path)
          possible = possible.filter { $0["/" + file.path] == contents }
          if possible.isEmpty { complaints.append("wrong contents of \(file.path)") }
        } catch ContainerError.fileDamaged {
          if !isDetected { complaints.append("verify missed the damage of \(file.path)") }
        }
      }
    } catch let error as ContainerError {
      self.error = error
      if !Self.damageCodes.contains(error.code) { complaints.append("refused with \(error)") }
    } catch {
      complaints.append("threw \(error)")
    }
  }
}
