import EncryptedFile
import SodiumPrimitives

@testable import ContainerStore

extension Target {
  /// A slot as it stands on the disk, and the same bytes with magic number and checksum set right.
  static let superblockSlot = Target(
    name: "superblock-slot", inputByteCountMax: SuperblockSlot.byteCount,
    seeds: {
      let keySlot = try KeySlot.make(
        Known.credential(), parameters: .standard, rootKey: Known.key(), containerID: Known.container)
      let keySlots =
        [keySlot, nil, keySlot] + [KeySlot?](repeating: nil, count: SuperblockSlot.keySlotCount - 3)
      let slot = try SuperblockSlot.make(
        containerID: Known.container, sequence: 3, keySlots: keySlots, body: SuperblockBody(sampleBody()),
        rootKey: Known.key())
      // The authentication tag of this slot is wrong; a reader still parses the clear part.
      var later = slot.bytes
      later.replaceSubrange(versions, with: [5, 0, 3, 0, 4, 0])
      return [Seed("slot", slot.bytes), Seed("later-version", later, isAccepted: false)]
    },
    accepts: { bytes in
      let asItIs = try acceptsSlot(bytes)
      var mended = Array(bytes.prefix(SuperblockSlot.byteCount))
      mended += [UInt8](repeating: 0, count: SuperblockSlot.byteCount - mended.count)
      mended.replaceSubrange(0..<SuperblockSlot.magic.count, with: SuperblockSlot.magic)
      let end = SuperblockSlot.byteCount - 32
      mended.replaceSubrange(
        end..., with: mended[..<end].withUnsafeBytes { KeyedHash.checksum($0, count: 32) })
      let whenMended = try acceptsSlot(mended)
      return asItIs && whenMended
    })

  /// Byte range of the three versions: the format's, and the minimum versions of a reader and a writer.
  private static let versions = 8..<14

  private static func acceptsSlot(_ bytes: [UInt8]) throws -> Bool {
    guard case .good(let slot) = SuperblockSlot.read(bytes) else { return false }
    require(slot.bytes == bytes, "a slot has other bytes than were read")
    let again = try SuperblockSlot.make(
      containerID: slot.containerID, sequence: slot.sequence, keySlots: slot.keySlots,
      body: SuperblockBody(sampleBody()), rootKey: Known.key())
    // The comparison covers everything before the sealed body except the versions: this reader accepts other versions than it writes.
    let clear = versions.upperBound..<(64 + SuperblockSlot.keySlotCount * KeySlot.byteCount)
    require(again.bytes[clear] == slot.bytes[clear], "the clear part of a slot is written differently")
    for keySlot in slot.keySlots {
      guard let keySlot, keySlot.kind == .rawKey else { continue }
      try refusing(.superblockAltered) {
        _ = try keySlot.open(Known.credential(), containerID: slot.containerID, in: .shared)
      }
    }
    return try refusing(.superblockAltered) {
      let body = try slot.open(rootKey: Known.key())
      require(try SuperblockBody(body.encoded) == body, "a body is not what was written")
    }
  }

  static let keySlot = Target(
    name: "key-slot", inputByteCountMax: KeySlot.byteCount + 8,
    seeds: {
      let passphrase = Credential.passphrase(try SecretBytes(utf8: "passphrase"))
      let cheap = PasswordHash.Parameters(passes: 1, memoryKiB: 8)
      let key = try KeySlot.make(
        Known.credential(), parameters: cheap, rootKey: Known.key(), containerID: Known.container)
      let word = try KeySlot.make(
        passphrase, parameters: cheap, rootKey: Known.key(), containerID: Known.container)
      return [
        Seed("raw-key", key.encoded), Seed("passphrase", word.encoded),
        Seed("empty", [UInt8](repeating: 0, count: KeySlot.byteCount)),
      ]
    },
    accepts: { bytes in
      guard let slot = try? KeySlot.decode(bytes) as KeySlot?? else { return false }
      let encoded = slot?.encoded ?? [UInt8](repeating: 0, count: KeySlot.byteCount)
      require(encoded == bytes, "a key slot is written differently")
      return true
    })

  /// The body's plaintext; zeros are added up to its length.
  static let superblockBody = Target(
    name: "superblock-body", inputByteCountMax: SuperblockBody.byteCount + 8,
    seeds: {
      var body = try SuperblockBody(sampleBody())
      let clean = try body.encoded
      body.isClean = false
      let open = try body.encoded
      body.journal = nil
      body.isClean = true
      return [Seed("clean", clean), Seed("open", open), Seed("without-journal", try body.encoded)]
    },
    accepts: { bytes in
      let padded = bytes + [UInt8](repeating: 0, count: max(0, SuperblockBody.byteCount - bytes.count))
      guard let body = try? SuperblockBody(padded) else { return false }
      require(try body.encoded == padded, "a body is written differently")
      let keys = try Keyring(container: Known.container, body: body)
      for generation in body.generations {
        for table in generation.tables { _ = try keys.tableKey(table.id, table.keying) }
      }
      if let journal = body.journal { _ = try keys.journalKey(journal.id, generation: journal.generation) }
      return true
    })

  /// The plaintext of a body with everything that a body can have.
  static func sampleBody() throws -> [UInt8] {
    let secret = Known.bytes(32, seed: 1)
    let tables = [Known.table, Known.journal].map {
      Generation.Table(
        id: $0, byteCount: 321, footerLength: 39, footerTag: Known.bytes(16, seed: 2),
        keying: .init(epoch: 1, secret: Known.bytes(32, seed: 6)))
    }
    var body = SuperblockBody(
      created: 1, epoch: SuperblockBody.Epoch(number: 1, key: try SharedKey(copying: secret)),
      generation: Generation(
        number: 2, epoch: 1, state: .complete, secret: secret, commit: 9, tables: tables))
    body.generations.insert(
      Generation(number: 3, epoch: 1, state: .pending, secret: secret, commit: 0, tables: []), at: 0)
    body.journal = SuperblockBody.Journal(
      id: Known.journal, generation: 2,
      knownEnd: JournalEnd(record: 4, offset: 17000, tag: Known.bytes(16, seed: 3), commit: 12))
    return try body.encoded
  }

  /// Whether the body went through; it may refuse with the one code.
  @discardableResult
  static func refusing(_ code: ContainerError.Code, _ body: () throws -> Void) throws -> Bool {
    do {
      try body()
      return true
    } catch let error as ContainerError where error.code == code {
      return false
    }
  }
}
