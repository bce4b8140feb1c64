import EncryptedFile
import SodiumPrimitives

/// Appends commits to the journal of this opening.
final class JournalWriter {
  let id: Identifier
  let generation: UInt64
  private let file: any BlockFile
  private let place: JournalFrame.Place
  private let key: SecretKey
  private let cipher: SecretStreamCipher
  private(set) var end: JournalEnd
  private(set) var durableThrough: UInt64 = 0

  static func name(_ id: Identifier) -> String { "journal/" + id.hex }

  /// Creates the file and writes the header; the caller names it in the superblock.
  init(
    io: any BlockIO, container: Identifier, header: JournalHeader, keys: Keyring, cipher: SecretStreamCipher
  ) throws {
    id = .random()
    generation = header.generation
    self.cipher = cipher
    place = JournalFrame.Place(container: container, journal: id)
    key = try keys.journalKey(id, generation: generation)
    file = try io.open(Self.name(id), .createNew)
    let (bytes, authenticator) = JournalFrame.seal(
      header.encoded, number: 0, previous: [UInt8](repeating: 0, count: 16), at: place, key: key,
      cipher: cipher)
    try file.write(bytes, at: 0)
    end = JournalEnd(
      record: 0, offset: UInt64(bytes.count), authenticator: authenticator, commit: header.commit)
    // Synced whatever the policy: the superblock may name only a journal that is there.
    try file.synchronize()
    try io.synchronizeDirectory("journal")
  }

  var byteCount: UInt64 { end.offset }

  /// A commit's records, ready to be written behind the end.
  struct Frames {
    fileprivate var bytes: [UInt8]
    fileprivate var end: JournalEnd
  }

  /// Seals one commit as as many records as it takes.
  func seal(_ changes: [CatalogChange], commit: UInt64, segmentsWereDurable: Bool) -> Frames {
    var frames: [UInt8] = []
    let begin = JournalFrame.alignedUp(end.offset)
    var next = end
    var rest = changes[...]
    repeat {
      var byteCount = JournalRecord.prefixByteCount
      var count = 0
      for change in rest {
        guard byteCount + change.encodedByteCount <= JournalFrame.payloadByteCountMax else { break }
        byteCount += change.encodedByteCount
        count += 1
      }
      let taken = Array(rest.prefix(count))
      rest = rest.dropFirst(count)
      let record = JournalRecord(
        commit: commit, durableThrough: durableThrough, time: Clock.wallNanoseconds(),
        isLastOfCommit: rest.isEmpty, segmentsWereDurable: segmentsWereDurable, changes: taken)
      let (bytes, authenticator) = JournalFrame.seal(
        record.encoded, number: next.record + 1, previous: next.authenticator, at: place, key: key,
        cipher: cipher)
      let offset = JournalFrame.alignedUp(next.offset)
      frames.append(contentsOf: repeatElement(0, count: Int(offset - begin) - frames.count))
      frames.append(contentsOf: bytes)
      next = JournalEnd(
        record: next.record + 1, offset: offset + UInt64(bytes.count), authenticator: authenticator,
        commit: commit)
    } while !rest.isEmpty
    return Frames(bytes: frames, end: next)
  }

  /// In one write.
  func append(_ frames: Frames) throws(IOFailure) {
    try file.write(frames.bytes, at: JournalFrame.alignedUp(end.offset))
    end = frames.end
  }

  /// Gives back what a failed write took behind the end.
  func cut() { try? file.truncate(to: end.offset) }

  func synchronize() throws(IOFailure) {
    try file.synchronize()
    durableThrough = end.record
  }
}

/// A key in guarded memory that several owners share.
final class SharedKey: Sendable {
  let key: SecretKey
  init(_ key: consuming SecretKey) { self.key = key }
}

/// The keys of an opened container, by epoch and generation.
final class Keyring: Sendable {
  let container: Identifier
  private let epochs: [UInt32: SharedKey]
  private let generations: Guarded<[UInt64: SharedKey]>

  init(container: Identifier, body: SuperblockBody) throws {
    self.container = container
    var epochs: [UInt32: SharedKey] = [:]
    for epoch in body.epochs {
      epochs[epoch.number] = SharedKey(try SecretKey { $0.copyBytes(from: epoch.key) })
    }
    self.epochs = epochs
    generations = Guarded([:])
    for generation in body.generations { try add(generation) }
  }

  func add(_ generation: Generation) throws {
    guard let epoch = epochs[generation.epoch] else {
      throw ContainerError(.catalogDamaged, detail: "a generation of an epoch that is gone")
    }
    var data = ByteWriter()
    data.append(label("OD1-generation"))
    data.append(container)
    data.append(generation.number)
    data.append(generation.secret)
    let key = SharedKey(try epoch.key.derive(data.bytes))
    generations.withLock { $0[generation.number] = key }
  }

  func journalKey(_ id: Identifier, generation: UInt64) throws -> SecretKey {
    try generationKey(generation).key.derive(label("OD1-journal") + id.bytes)
  }

  /// `generation` is the one that names the table: those of format 1 have their key from it.
  func tableKey(_ table: Generation.Table, generation: UInt64) throws -> SharedKey {
    guard let keying = table.keying else {
      return SharedKey(try generationKey(generation).key.derive(label("OD1-table") + table.id.bytes))
    }
    return try tableKey(table.id, keying)
  }

  func tableKey(_ id: Identifier, _ keying: Generation.Table.Keying) throws -> SharedKey {
    guard let epoch = epochs[keying.epoch] else {
      throw ContainerError(.catalogDamaged, detail: "a table of an epoch that is gone")
    }
    return SharedKey(
      try epoch.key.derive(label("OD1-table-key") + container.bytes + id.bytes + keying.secret))
  }

  private func generationKey(_ number: UInt64) throws -> SharedKey {
    guard let key = generations.withLock({ $0[number] }) else {
      throw ContainerError(.journalDamaged, detail: "its generation \(number) is gone")
    }
    return key
  }

  func hasEpoch(_ number: UInt32) -> Bool { epochs[number] != nil }

  func fileKey(_ file: UInt64, epoch: UInt32, secret: [UInt8]) throws -> FileKey {
    guard let epochKey = epochs[epoch] else {
      throw ContainerError(.catalogDamaged, detail: "a file of an epoch that is gone")
    }
    var data = ByteWriter()
    data.append(label("OD1-file"))
    data.append(container)
    data.append(file)
    data.append(secret)
    return FileKey(try epochKey.key.derive(data.bytes))
  }
}

extension SecretKey {
  borrowing func derive(_ data: [UInt8]) throws(CryptoError) -> SecretKey {
    try withUnsafeBytes { key throws(CryptoError) in
      try SecretKey { output in
        data.withUnsafeBytes { KeyedHash.compute(key: key, data: $0, into: output) }
      }
    }
  }
}
