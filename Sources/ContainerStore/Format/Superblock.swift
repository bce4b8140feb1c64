import EncryptedFile
import SodiumPrimitives

/// One slot of the superblock, decoded as far as it can be without a key (CONTAINER-FORMAT.md, "Superblock").
struct SuperblockSlot: Equatable {
  static let byteCount = 4096
  static let offsets: [UInt64] = [0, 65536]
  static let magic: [UInt8] = Array("ODCONT1\n".utf8)
  /// What is written; 1 is read, too.
  static let formatVersion: UInt16 = 2
  static let keySlotCount = 8
  private static let keySlotsOffset = 64
  private static let bodyOffset = 1344
  private static let macOffset = 4032
  private static let checksumOffset = 4064

  let bytes: [UInt8]
  let version: UInt16
  let containerID: Identifier
  let sequence: UInt64
  let keySlots: [KeySlot?]

  enum Reading {
    case good(SuperblockSlot)
    /// The magic number is not there.
    case foreign
    case unsupported(version: UInt16, minimumReader: UInt16)
    case torn
    /// The checksum holds and fields are impossible.
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
      guard minimum <= formatVersion else { return .unsupported(version: version, minimumReader: minimum) }
      guard (1...max(1, version)).contains(minimum) else {
        throw MalformedBytes(what: "a minimum reader version of \(minimum)")
      }
      try reader.zeros(4)
      let containerID = try reader.identifier()
      let sequence = try reader.read(UInt64.self)
      try reader.zeros(24)
      var slots: [KeySlot?] = []
      for _ in 0..<keySlotCount { slots.append(try KeySlot.decode(reader.bytes(KeySlot.byteCount))) }
      reader = ByteReader(bytes[(bodyOffset + sealedBodyByteCount)..<macOffset])
      try reader.zeros(macOffset - bodyOffset - sealedBodyByteCount)
      return .good(
        SuperblockSlot(
          bytes: bytes, version: minimum, containerID: containerID,
          sequence: sequence,
          keySlots: slots))
    } catch {
      return .malformed(error.what)
    }
  }

  private static let sealedBodyByteCount =
    SuperblockBody.byteCount + SecretStreamCipher.overheadByteCount

  /// The slot's body, after its MAC was checked. Throws `superblockAltered`.
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
      return try SuperblockBody(body, version: version)
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
    writer.append(formatVersion)
    writer.append(formatVersion)
    writer.appendZeros(4)
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
      bytes: writer.bytes, version: formatVersion, containerID: containerID, sequence: sequence,
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

/// A set of tables: the catalog as of some commit.
struct Generation: Equatable {
  static let byteCount = 472
  static let tableCountMax = 5
  fileprivate static let byteCount1 = 456
  fileprivate static let tableCountMax1 = 8

  enum State: UInt16 {
    case complete = 1
    case pending = 2
  }

  struct Table: Equatable {
    var id: Identifier
    var byteCount: UInt64
    var footerLength: UInt32
    var footerAuthenticator: [UInt8]
    /// The epoch and the secret of its key; nil for a table of format 1, which has its key from its generation.
    var keying: Keying?

    struct Keying: Equatable {
      var epoch: UInt32
      var secret: [UInt8]
    }
  }

  var number: UInt64
  var epoch: UInt32
  var state: State
  var secret: [UInt8]
  /// The tables hold the state as of this commit.
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
      writer.append(table.keying?.epoch ?? 0)
      writer.append(table.footerAuthenticator)
      writer.append(table.keying?.secret ?? [UInt8](repeating: 0, count: 32))
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

  init(_ reader: inout ByteReader, version: UInt16) throws(MalformedBytes) {
    let end = reader.position + (version == 1 ? Self.byteCount1 : Self.byteCount)
    number = try reader.read()
    epoch = try reader.read()
    guard let state = State(rawValue: try reader.read()) else {
      throw MalformedBytes(what: "an unknown state of a generation")
    }
    self.state = state
    let tableCount = try reader.read(UInt16.self)
    guard Int(tableCount) <= (version == 1 ? Self.tableCountMax1 : Self.tableCountMax) else {
      throw MalformedBytes(what: "\(tableCount) tables")
    }
    secret = try reader.bytes(32)
    commit = try reader.read()
    try reader.zeros(16)
    tables = []
    for _ in 0..<tableCount {
      let id = try reader.identifier()
      let byteCount = try reader.read(UInt64.self)
      let footerLength = try reader.read(UInt32.self)
      let epoch = try reader.read(UInt32.self)
      let authenticator = try reader.bytes(16)
      let secret = version == 1 ? [] : try reader.bytes(32)
      let isKeyedByGeneration = secret.allSatisfy { $0 == 0 }
      guard !isKeyedByGeneration || epoch == 0 else {
        throw MalformedBytes(what: "reserved bytes are not zero")
      }
      tables.append(
        Table(
          id: id, byteCount: byteCount, footerLength: footerLength, footerAuthenticator: authenticator,
          keying: isKeyedByGeneration ? nil : Table.Keying(epoch: epoch, secret: secret)))
    }
    guard Set(tables.map(\.id)).count == tables.count else { throw MalformedBytes(what: "a table twice") }
    try reader.zeros(end - reader.position)
  }
}

/// The end of a journal: its last record.
struct JournalEnd: Equatable {
  var record: UInt64
  /// After the record's frame, before rounding up.
  var offset: UInt64
  var authenticator: [UInt8]
  var commit: UInt64
}

/// What the superblock keeps under the root key.
struct SuperblockBody: Equatable {
  static let byteCount = 2560
  static let epochCountMax = 16
  static let generationCountMax = 3
  private static let generationsOffset = 664
  private static let journalOffset = 2080
  private static let journalOffset1 = 2032

  struct Epoch: Equatable {
    var number: UInt32
    var key: [UInt8]
  }

  var created: Int64
  var currentEpoch: UInt32
  var epochs: [Epoch]
  /// Newest first.
  var generations: [Generation]
  /// The journal that commits go to, and the generation that keys it.
  var journal: (id: Identifier, generation: UInt64)?
  /// Whether the container was closed cleanly.
  var isClean: Bool
  /// Of the current journal; only after a clean close with a journal.
  var end: JournalEnd?

  static func == (a: SuperblockBody, b: SuperblockBody) -> Bool { a.encoded == b.encoded }

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
    writer.pad(to: 656)
    writer.append(UInt32(generations.count))
    writer.append(UInt32(isClean ? 2 : 1))
    for generation in generations { generation.append(to: &writer) }
    writer.pad(to: Self.journalOffset)
    writer.append(journal?.id ?? .zero)
    writer.append(journal?.generation ?? 0)
    if let end {
      writer.append(end.record)
      writer.append(end.offset)
      writer.append(end.authenticator)
      writer.append(end.commit)
    }
    writer.pad(to: Self.byteCount)
    return writer.bytes
  }

  /// Overwrites the keys that this copy holds; call it when the copy is not needed any more.
  mutating func wipeSecrets() {
    for i in epochs.indices { epochs[i].key.withUnsafeMutableBytes { wipe($0) } }
    for i in generations.indices {
      generations[i].secret.withUnsafeMutableBytes { wipe($0) }
      for j in generations[i].tables.indices {
        generations[i].tables[j].keying?.secret.withUnsafeMutableBytes { wipe($0) }
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

  init(_ bytes: [UInt8], version: UInt16 = SuperblockSlot.formatVersion) throws(MalformedBytes) {
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
    try reader.zeros(656 - reader.position)
    let generationCount = try reader.read(UInt32.self)
    guard generationCount >= 1, Int(generationCount) <= Self.generationCountMax else {
      throw MalformedBytes(what: "\(generationCount) generations")
    }
    let state = try reader.read(UInt32.self)
    guard state == 1 || state == 2 else { throw MalformedBytes(what: "an unknown state") }
    isClean = state == 2
    generations = []
    for _ in 0..<generationCount { generations.append(try Generation(&reader, version: version)) }
    try reader.zeros((version == 1 ? Self.journalOffset1 : Self.journalOffset) - reader.position)
    let journalID = try reader.identifier()
    let journalGeneration = try reader.read(UInt64.self)
    journal = journalID == .zero ? nil : (journalID, journalGeneration)
    if isClean, journal != nil {
      let record = try reader.read(UInt64.self)
      let offset = try reader.read(UInt64.self)
      let authenticator = try reader.bytes(16)
      end = JournalEnd(
        record: record, offset: offset, authenticator: authenticator, commit: try reader.read())
    }
    try reader.zeros(Self.byteCount - reader.position)
    try reader.end()
    guard journal != nil || journalGeneration == 0 else {
      throw MalformedBytes(what: "a generation of no journal")
    }
    try checkNumbers()
  }

  private func checkNumbers() throws(MalformedBytes) {
    let epochNumbers = Set(epochs.map(\.number))
    guard epochNumbers.count == epochs.count, epochNumbers.contains(currentEpoch),
      generations.allSatisfy({ epochNumbers.contains($0.epoch) }),
      generations.flatMap(\.tables).compactMap(\.keying).allSatisfy({ epochNumbers.contains($0.epoch) })
    else { throw MalformedBytes(what: "epochs that contradict each other") }
    let numbers = generations.map(\.number)
    guard zip(numbers, numbers.dropFirst()).allSatisfy({ $0 > $1 }),
      generations.contains(where: { $0.state == .complete }),
      // A pending one is the newest, and has nothing yet.
      generations.dropFirst().allSatisfy({ $0.state == .complete }),
      generations[0].state == .complete || (generations[0].commit == 0 && generations[0].tables.isEmpty),
      // Commits are counted on from here, and a reader's pin is a byte of the lock file beyond its commit.
      generations.allSatisfy({ $0.commit < 1 << 62 }),
      journal.map({ numbers.contains($0.generation) }) ?? true
    else { throw MalformedBytes(what: "generations that contradict each other") }
  }
}
