import EncryptedFile
import SodiumPrimitives

/// The part of the superblock that is encrypted with a key derived from the root key.
struct SuperblockBody: Equatable {
  static let byteCount = 2560
  static let epochCountMax = 16
  static let generationCountMax = 2
  private static let generationCountOffset = 656
  private static let journalOffset = 1608
  private static let labelsOffset = 2048
  static let labelByteCountMax = 63

  struct Epoch: Equatable {
    var number: UInt32
    var key: SharedKey
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
  /// The labels of the key slots in their order, as UTF-8; empty where there is none.
  var keyLabels = [[UInt8]](repeating: [], count: SuperblockSlot.keySlotCount)

  var completeGeneration: Generation { generations.last! }

  /// The bytes, which have the epochs' keys in clear: the caller wipes them.
  var encoded: [UInt8] {
    get throws(CryptoError) {
      var writer = ByteWriter()
      // An array that grows leaves copies behind, which nobody wipes.
      writer.reserve(Self.byteCount)
      writer.append(created)
      writer.append(currentEpoch)
      writer.append(UInt32(epochs.count))
      for epoch in epochs {
        writer.append(epoch.number)
        writer.append(UInt32(0))
        try epoch.key.key.withUnsafeBytes { writer.append($0) }
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
      writer.pad(to: Self.labelsOffset)
      for label in keyLabels {
        let end = writer.bytes.count + 1 + Self.labelByteCountMax
        writer.append(UInt8(label.count))
        writer.append(label)
        writer.pad(to: end)
      }
      return writer.bytes
    }
  }

  /// Overwrites the secrets of generations and tables in this copy. Call it when the copy is no longer needed.
  mutating func wipeSecrets() {
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

  /// The epochs' keys get places in the pool. Throws `MalformedBytes` and `CryptoError`.
  init(_ bytes: [UInt8], in pool: KeyPool = .shared) throws {
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
      epochs.append(Epoch(number: number, key: try SharedKey(copying: try reader.take(32), in: pool)))
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
    guard bytes.count == Self.byteCount else { throw MalformedBytes(what: "a body of another length") }
    try reader.zeros(Self.labelsOffset - reader.position)
    for i in keyLabels.indices { keyLabels[i] = try Self.label(&reader) }
    try checkNumbers()
  }

  private static func label(_ reader: inout ByteReader) throws(MalformedBytes) -> [UInt8] {
    let count = Int(try reader.read(UInt8.self))
    guard count <= labelByteCountMax else { throw MalformedBytes(what: "a label of \(count) bytes") }
    let label = try reader.bytes(count)
    guard String(validating: label, as: UTF8.self) != nil else {
      throw MalformedBytes(what: "a label that is no text")
    }
    try reader.zeros(labelByteCountMax - count)
    return label
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
