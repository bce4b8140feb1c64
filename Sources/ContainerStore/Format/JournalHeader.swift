import EncryptedFile
import SodiumPrimitives

/// Record 0 of a journal.
struct JournalHeader: Equatable {
  static let byteCount = 128

  struct Predecessor: Equatable {
    var id: Identifier
    var generation: UInt64
    var end: JournalEnd
  }

  var session: Identifier
  var generation: UInt64
  var created: Int64
  var predecessor: Predecessor?
  /// The last commit before this journal.
  var commit: UInt64

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(UInt32(1))
    writer.append(UInt32(0))
    writer.append(session)
    writer.append(generation)
    writer.append(created)
    writer.append(predecessor?.id ?? .zero)
    writer.append(predecessor?.generation ?? 0)
    var end = predecessor?.end ?? JournalEnd(record: 0, offset: 0, tag: noTag, commit: 0)
    end.commit = commit
    end.append(to: &writer)
    writer.pad(to: Self.byteCount)
    return writer.bytes
  }

  init(session: Identifier, generation: UInt64, created: Int64, predecessor: Predecessor?, commit: UInt64) {
    self.session = session
    self.generation = generation
    self.created = created
    self.predecessor = predecessor
    self.commit = commit
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    guard try reader.read(UInt32.self) == 1 else {
      throw MalformedBytes(what: "record 0 is no journal header")
    }
    try reader.zeros(4)
    session = try reader.identifier()
    generation = try reader.read()
    created = try reader.read()
    let id = try reader.identifier()
    let predecessorGeneration = try reader.read(UInt64.self)
    let end = try JournalEnd(&reader)
    commit = end.commit
    try reader.zeros(24)
    try reader.end()
    if id != .zero {
      guard predecessorGeneration > 0 else { throw MalformedBytes(what: "a predecessor of no generation") }
      predecessor = Predecessor(id: id, generation: predecessorGeneration, end: end)
    } else if predecessorGeneration != 0
      || end != JournalEnd(record: 0, offset: 0, tag: noTag, commit: commit)
    {
      throw MalformedBytes(what: "an end of no predecessor")
    }
  }
}
