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
  private static let keySlotsOffset = 64
  private static let bodyOffset = 1344
  private static let macOffset = 4032
  private static let checksumOffset = 4064

  let bytes: [UInt8]
  /// The minimum version of a writer. Older programs open the container for reading only.
  let minimumWriter: UInt16
  let containerID: Identifier
  let sequence: UInt64
  let keySlots: [KeySlot?]

  enum Reading {
    case good(SuperblockSlot)
    /// The magic number is missing.
    case foreign
    case unsupported(version: UInt16, minimumReader: UInt16)
    case torn
    /// The checksum is correct, but fields are impossible.
    case malformed(String)
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
  func open(rootKey: borrowing SecretBytes, cipher: SecretStreamCipher) throws -> SuperblockBody {
    let keys = try SuperblockKeys(rootKey: rootKey, containerID: containerID)
    let mac = keys.mac(of: Array(bytes[0..<Self.macOffset]))
    guard mac == Array(bytes[Self.macOffset..<Self.checksumOffset]) else {
      throw ContainerError(.superblockAltered, detail: "its authenticator does not hold")
    }
    let sealed = Array(bytes[Self.bodyOffset..<(Self.bodyOffset + Self.sealedBodyByteCount)])
    do {
      var body = try SealedMessage.open(
        sealed, key: keys.body, ad: Self.bodyAD(containerID, sequence), cipher: cipher)
      defer { body.withUnsafeMutableBytes { wipe($0) } }
      return try SuperblockBody(body)
    } catch let error as MalformedBytes {
      throw ContainerError(.superblockAltered, detail: error.what)
    } catch {
      throw ContainerError(.superblockAltered, detail: "its body is not authentic", cause: error)
    }
  }

  static func make(
    containerID: Identifier, sequence: UInt64, keySlots: [KeySlot?], body: SuperblockBody,
    rootKey: borrowing SecretBytes, cipher: SecretStreamCipher
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
    var plaintext = body.encoded
    defer { plaintext.withUnsafeMutableBytes { wipe($0) } }
    writer.append(
      SealedMessage.seal(plaintext, key: keys.body, ad: bodyAD(containerID, sequence), cipher: cipher))
    writer.pad(to: macOffset)
    writer.append(keys.mac(of: writer.bytes))
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

  init(rootKey: borrowing SecretBytes, containerID: Identifier) throws(CryptoError) {
    let macKey = try rootKey.derive(label("OD1-super-mac") + containerID.bytes)
    let body = try rootKey.derive(label("OD1-super-body") + containerID.bytes)
    self.macKey = macKey
    self.body = body
  }

  borrowing func mac(of bytes: [UInt8]) -> [UInt8] {
    macKey.withUnsafeBytes { KeyedHash.compute(count: 32, key: $0, data: bytes) }
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

/// A set of tables that hold the catalog as of some commit.
struct Generation: Equatable {
  static let byteCount = 472
  static let tableCountMax = 5

  enum State: UInt16 {
    case complete = 1
    case pending = 2
  }

  struct Table: Equatable {
    var id: Identifier
    var byteCount: UInt64
    var footerLength: UInt32
    var footerTag: [UInt8]
    var keying: Keying

    /// The inputs of a table's key.
    struct Keying: Equatable {
      var epoch: UInt32
      var secret: [UInt8]
    }
  }

  var number: UInt64
  var epoch: UInt32
  var state: State
  var secret: [UInt8]
  /// The commit whose state the tables hold.
  var commit: UInt64
  var tables: [Table]

  func append(to writer: inout ByteWriter) {
    let end = writer.bytes.count + Self.byteCount
    writer.append(number)
    writer.append(epoch)
    writer.append(state.rawValue)
    writer.append(UInt16(tables.count))
    writer.append(secret)
    writer.append(commit)
    writer.appendZeros(16)
    for table in tables {
      writer.append(table.id)
      writer.append(table.byteCount)
      writer.append(table.footerLength)
      writer.append(table.keying.epoch)
      writer.append(table.footerTag)
      writer.append(table.keying.secret)
    }
    writer.pad(to: end)
  }

  init(number: UInt64, epoch: UInt32, state: State, secret: [UInt8], commit: UInt64, tables: [Table]) {
    self.number = number
    self.epoch = epoch
    self.state = state
    self.secret = secret
    self.commit = commit
    self.tables = tables
  }

  init(_ reader: inout ByteReader) throws(MalformedBytes) {
    let end = reader.position + Self.byteCount
    number = try reader.read()
    epoch = try reader.read()
    guard let state = State(rawValue: try reader.read()) else {
      throw MalformedBytes(what: "an unknown state of a generation")
    }
    self.state = state
    let tableCount = try reader.read(UInt16.self)
    guard Int(tableCount) <= Self.tableCountMax else { throw MalformedBytes(what: "\(tableCount) tables") }
    secret = try reader.bytes(32)
    commit = try reader.read()
    try reader.zeros(16)
    tables = []
    for _ in 0..<tableCount {
      let id = try reader.identifier()
      let byteCount = try reader.read(UInt64.self)
      let footerLength = try reader.read(UInt32.self)
      let epoch = try reader.read(UInt32.self)
      let tag = try reader.bytes(16)
      tables.append(
        Table(
          id: id, byteCount: byteCount, footerLength: footerLength, footerTag: tag,
          keying: Table.Keying(epoch: epoch, secret: try reader.bytes(32))))
    }
    let ids = Set(tables.map(\.id))
    guard number < 1 << 62, tables.allSatisfy({ $0.byteCount < 1 << 62 }) else {
      throw MalformedBytes(what: "a number over 62 bits")
    }
    guard ids.count == tables.count, !ids.contains(.zero) else { throw MalformedBytes(what: "a table twice") }
    try reader.zeros(end - reader.position)
  }
}

/// The known end of a journal: the record up to which all records are known to exist.
struct JournalEnd: Equatable {
  static let byteCount = 40

  var record: UInt64
  /// The offset after the record's frame, before rounding up.
  var offset: UInt64
  var tag: [UInt8]
  /// The last commit up to that record.
  var commit: UInt64

  func append(to writer: inout ByteWriter) {
    writer.append(record)
    writer.append(offset)
    writer.append(tag)
    writer.append(commit)
  }

  init(record: UInt64, offset: UInt64, tag: [UInt8], commit: UInt64) {
    self.record = record
    self.offset = offset
    self.tag = tag
    self.commit = commit
  }

  init(_ reader: inout ByteReader) throws(MalformedBytes) {
    record = try reader.read()
    offset = try reader.read()
    tag = try reader.bytes(16)
    commit = try reader.read()
  }
}

/// The part of the superblock that is encrypted with a key derived from the root key.
struct SuperblockBody: Equatable {
  static let byteCount = 2560
  static let epochCountMax = 16
  static let generationCountMax = 2
  private static let generationCountOffset = 656
  private static let journalOffset = 1608

  struct Epoch: Equatable {
    var number: UInt32
    var key: [UInt8]
  }

  /// The journal to which commits are appended.
  struct Journal: Equatable {
    var id: Identifier
    /// The generation from which the journal's key is derived.
    var generation: UInt64
    /// The journal's end after a clean close, otherwise a record that was durable in both copies.
    var knownEnd: JournalEnd
  }

  var created: Int64
  var currentEpoch: UInt32
  var epochs: [Epoch]
  /// One complete generation, and perhaps a pending one before it.
  var generations: [Generation]
  var journal: Journal?
  /// Whether the container was closed cleanly.
  var isClean: Bool

  var completeGeneration: Generation { generations.last! }

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(created)
    writer.append(currentEpoch)
    writer.append(UInt32(epochs.count))
    for epoch in epochs {
      writer.append(epoch.number)
      writer.append(UInt32(0))
      writer.append(epoch.key)
    }
    writer.pad(to: Self.generationCountOffset)
    writer.append(UInt32(generations.count))
    writer.append(UInt32(isClean ? 2 : 1))
    for generation in generations { generation.append(to: &writer) }
    writer.pad(to: Self.journalOffset)
    if let journal {
      writer.append(journal.id)
      writer.append(journal.generation)
      journal.knownEnd.append(to: &writer)
    }
    writer.pad(to: Self.byteCount)
    return writer.bytes
  }

  /// Overwrites the keys in this copy. Call it when the copy is no longer needed.
  mutating func wipeSecrets() {
    for i in epochs.indices { epochs[i].key.withUnsafeMutableBytes { wipe($0) } }
    for i in generations.indices {
      generations[i].secret.withUnsafeMutableBytes { wipe($0) }
      for j in generations[i].tables.indices {
        generations[i].tables[j].keying.secret.withUnsafeMutableBytes { wipe($0) }
      }
    }
  }

  init(created: Int64, epoch: Epoch, generation: Generation) {
    self.created = created
    currentEpoch = epoch.number
    epochs = [epoch]
    generations = [generation]
    isClean = true
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    created = try reader.read()
    currentEpoch = try reader.read()
    let epochCount = try reader.read(UInt32.self)
    guard epochCount >= 1, Int(epochCount) <= Self.epochCountMax else {
      throw MalformedBytes(what: "\(epochCount) epochs")
    }
    epochs = []
    for _ in 0..<epochCount {
      let number = try reader.read(UInt32.self)
      try reader.zeros(4)
      epochs.append(Epoch(number: number, key: try reader.bytes(32)))
    }
    try reader.zeros(Self.generationCountOffset - reader.position)
    let generationCount = try reader.read(UInt32.self)
    guard generationCount >= 1, Int(generationCount) <= Self.generationCountMax else {
      throw MalformedBytes(what: "\(generationCount) generations")
    }
    let state = try reader.read(UInt32.self)
    guard state == 1 || state == 2 else { throw MalformedBytes(what: "an unknown state") }
    isClean = state == 2
    generations = []
    for _ in 0..<generationCount { generations.append(try Generation(&reader)) }
    try reader.zeros(Self.journalOffset - reader.position)
    let journalID = try reader.identifier()
    if journalID == .zero {
      guard isClean else { throw MalformedBytes(what: "an open state without a journal") }
    } else {
      journal = Journal(
        id: journalID, generation: try reader.read(), knownEnd: try JournalEnd(&reader))
    }
    try reader.zeros(reader.remaining)
    guard bytes.count == Self.byteCount else { throw MalformedBytes(what: "a body of another length") }
    try checkNumbers()
  }

  private func checkNumbers() throws(MalformedBytes) {
    let epochNumbers = Set(epochs.map(\.number))
    guard epochNumbers.count == epochs.count, epochNumbers.contains(currentEpoch), !epochNumbers.contains(0),
      generations.allSatisfy({ epochNumbers.contains($0.epoch) }),
      generations.flatMap(\.tables).allSatisfy({ epochNumbers.contains($0.keying.epoch) })
    else { throw MalformedBytes(what: "epochs that contradict each other") }
    let numbers = generations.map(\.number)
    guard zip(numbers, numbers.dropFirst()).allSatisfy({ $0 > $1 }), !numbers.contains(0),
      // A pending generation is the newest, and is still empty.
      completeGeneration.state == .complete,
      generations.dropLast().allSatisfy({ $0.state == .pending && $0.commit == 0 && $0.tables.isEmpty }),
      // Commit numbers continue from here, and a reader's pin is a byte of the lock file beyond its
      // commit.
      completeGeneration.commit < 1 << 62
    else { throw MalformedBytes(what: "generations that contradict each other") }
    guard let journal else { return }
    guard numbers.contains(journal.generation), journal.knownEnd.commit < 1 << 62,
      journal.knownEnd.commit >= completeGeneration.commit
    else { throw MalformedBytes(what: "a journal that contradicts the generations") }
  }
}
