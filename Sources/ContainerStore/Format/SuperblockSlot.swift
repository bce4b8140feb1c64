import EncryptedFile
import SodiumPrimitives

/// One slot of the superblock, decoded as far as possible without a key (CONTAINER-FORMAT.md,
/// "Superblock").
struct SuperblockSlot: Equatable {
  static let byteCount = 4096
  static let offsets: [UInt64] = [0, 65536]
  static let magic: [UInt8] = Array("ODCONT1\n".utf8)
  /// The format version, which is also the minimum version of readers and writers.
  static let formatVersion: UInt16 = 3
  static let keySlotCount = 8
  static let keySlotsOffset = 64
  private static let bodyOffset = 1344
  private static let macOffset = 4032
  private static let checksumOffset = 4064

  let bytes: [UInt8]
  /// The minimum version of a writer. Older programs open the container for reading only.
  let minimumWriter: UInt16
  let containerID: Identifier
  let sequence: UInt64
  let keySlots: [KeySlot?]

  enum Reading: Equatable {
    case good(SuperblockSlot)
    /// The magic number is missing.
    case foreign
    case unsupported(version: UInt16, minimumReader: UInt16)
    case torn
    /// The checksum is correct, but fields are impossible.
    case malformed(String)

    /// Whether nothing of a container is there that could still be read.
    var isLost: Bool { self == .torn || self == .foreign }
  }

  /// The container's id as it stands in the header, of a slot that may be torn or overwritten behind it; nil without the magic.
  static func containerID(in bytes: [UInt8]) -> Identifier? {
    guard bytes.count >= 32, bytes.starts(with: magic) else { return nil }
    return Identifier(Array(bytes[16..<32]))
  }

  static func read(_ bytes: [UInt8]) -> Reading {
    guard bytes.count == byteCount, Array(bytes[0..<8]) == magic else { return .foreign }
    let checksum = bytes[0..<checksumOffset].withUnsafeBytes { KeyedHash.checksum($0, count: 32) }
    guard checksum == Array(bytes[checksumOffset...]) else { return .torn }
    do throws(MalformedBytes) {
      var reader = ByteReader(bytes[8...])
      let version = try reader.read(UInt16.self)
      let minimum = try reader.read(UInt16.self)
      guard minimum == formatVersion else { return .unsupported(version: version, minimumReader: minimum) }
      let minimumWriter = try reader.read(UInt16.self)
      guard minimum <= minimumWriter, minimumWriter <= version else {
        throw MalformedBytes(what: "versions \(version), \(minimum) and \(minimumWriter)")
      }
      try reader.zeros(2)
      let containerID = try reader.identifier()
      let sequence = try reader.read(UInt64.self)
      guard sequence < 1 << 62 else { throw MalformedBytes(what: "a sequence over 62 bits") }
      try reader.zeros(24)
      var slots: [KeySlot?] = []
      for _ in 0..<keySlotCount { slots.append(try KeySlot.decode(reader.bytes(KeySlot.byteCount))) }
      guard KeySlot.cost(of: slots) <= KeySlot.costMax else {
        throw MalformedBytes(what: "password hashes that cost too much together")
      }
      reader = ByteReader(bytes[(bodyOffset + sealedBodyByteCount)..<macOffset])
      try reader.zeros(macOffset - bodyOffset - sealedBodyByteCount)
      return .good(
        SuperblockSlot(
          bytes: bytes, minimumWriter: minimumWriter, containerID: containerID, sequence: sequence,
          keySlots: slots))
    } catch {
      return .malformed(error.what)
    }
  }

  private static let sealedBodyByteCount =
    SuperblockBody.byteCount + SecretStreamCipher.overheadByteCount

  /// Opens the slot's body after checking its MAC. Throws `superblockAltered`.
  func open(rootKey: borrowing SecretKey) throws -> SuperblockBody {
    let keys = try SuperblockKeys(rootKey: rootKey, containerID: containerID)
    let mac = try keys.mac(of: Array(bytes[0..<Self.macOffset]))
    guard mac == Array(bytes[Self.macOffset..<Self.checksumOffset]) else {
      throw ContainerError(.superblockAltered, detail: "its authenticator does not hold")
    }
    let sealed = Array(bytes[Self.bodyOffset..<(Self.bodyOffset + Self.sealedBodyByteCount)])
    do {
      var body = try SealedMessage.open(
        sealed, key: keys.body, ad: Self.bodyAD(containerID, sequence), cipher: .once())
      defer { body.withUnsafeMutableBytes { wipe($0) } }
      let opened = try SuperblockBody(body, in: rootKey.pool)
      guard !zip(keySlots, opened.keyLabels).contains(where: { $0 == nil && !$1.isEmpty }) else {
        throw MalformedBytes(what: "a label of a key that there is not")
      }
      return opened
    } catch let error as MalformedBytes {
      throw ContainerError(.superblockAltered, detail: error.what)
    } catch CryptoError.notAuthentic {
      throw ContainerError(
        .superblockAltered, detail: "its body is not authentic", cause: CryptoError.notAuthentic)
    }
  }

  static func make(
    containerID: Identifier, sequence: UInt64, keySlots: [KeySlot?], body: SuperblockBody,
    rootKey: borrowing SecretKey
  ) throws -> SuperblockSlot {
    let keys = try SuperblockKeys(rootKey: rootKey, containerID: containerID)
    var writer = ByteWriter()
    writer.append(magic)
    for _ in 0..<3 { writer.append(formatVersion) }
    writer.appendZeros(2)
    writer.append(containerID)
    writer.append(sequence)
    writer.pad(to: keySlotsOffset)
    for slot in keySlots { writer.append(slot?.encoded ?? [UInt8](repeating: 0, count: KeySlot.byteCount)) }
    var plaintext = try body.encoded
    defer { plaintext.withUnsafeMutableBytes { wipe($0) } }
    writer.append(
      try SealedMessage.seal(
        plaintext, key: keys.body, ad: bodyAD(containerID, sequence), cipher: .once()))
    writer.pad(to: macOffset)
    writer.append(try keys.mac(of: writer.bytes))
    writer.append(writer.bytes.withUnsafeBytes { KeyedHash.checksum($0, count: 32) })
    return SuperblockSlot(
      bytes: writer.bytes, minimumWriter: formatVersion, containerID: containerID, sequence: sequence,
      keySlots: keySlots)
  }

  private static func bodyAD(_ containerID: Identifier, _ sequence: UInt64) -> [UInt8] {
    var writer = ByteWriter()
    writer.append(label("OD1-super-ad"))
    writer.append(containerID)
    writer.append(sequence)
    writer.pad(to: 80)
    return writer.bytes
  }
}

private struct SuperblockKeys: ~Copyable {
  let macKey: SecretKey
  let body: SecretKey

  init(rootKey: borrowing SecretKey, containerID: Identifier) throws(CryptoError) {
    let macKey = try rootKey.derive(label("OD1-super-mac") + containerID.bytes)
    let body = try rootKey.derive(label("OD1-super-body") + containerID.bytes)
    self.macKey = macKey
    self.body = body
  }

  borrowing func mac(of bytes: [UInt8]) throws(CryptoError) -> [UInt8] {
    try macKey.withUnsafeBytes { KeyedHash.compute(count: 32, key: $0, data: bytes) }
  }
}

extension SecretBytes {
  /// `KB(32, key, data)`.
  borrowing func derive(_ data: [UInt8]) throws(CryptoError) -> SecretKey {
    try withUnsafeBytes { key throws(CryptoError) in
      try SecretKey { output in
        data.withUnsafeBytes { KeyedHash.compute(key: key, data: $0, into: output) }
      }
    }
  }
}

extension SecretStreamCipher {
  /// A cipher for one message with keys of keys in it. libsodium keeps nothing of what it was given, and the plaintext is wiped with the cipher.
  static func once() -> SecretStreamCipher { SecretStreamCipher(.libsodium) }
}
