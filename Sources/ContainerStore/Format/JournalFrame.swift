import EncryptedFile
import SodiumPrimitives

/// One frame of a journal (CONTAINER-FORMAT.md, "Journal").
enum JournalFrame {
  static let headerByteCount = 96
  static let alignment: UInt64 = 4096
  static let payloadByteCountMax = 1_044_480
  private static let magic: [UInt8] = Array("OD1JRNL\n".utf8)

  static func alignedUp(_ offset: UInt64) -> UInt64 { (offset + alignment - 1) / alignment * alignment }

  static func byteCount(payload: Int) -> Int {
    headerByteCount + payload + SecretStreamCipher.overheadByteCount
  }

  struct Place {
    var container: Identifier
    var journal: Identifier
  }

  /// The frame's bytes and the tag that the next frame names.
  static func seal(
    _ payload: [UInt8], number: UInt64, previous: [UInt8], at place: Place, key: borrowing SecretKey,
    cipher: SecretStreamCipher
  ) -> (bytes: [UInt8], tag: [UInt8]) {
    precondition(
      (1...payloadByteCountMax).contains(payload.count), "a record has 1 to \(payloadByteCountMax) bytes")
    let sealed = SealedMessage.seal(
      payload, key: key, ad: ad(place, number: number, count: payload.count, previous: previous),
      cipher: cipher)
    var writer = ByteWriter()
    writer.append(magic)
    writer.append(place.journal)
    writer.append(number)
    writer.append(UInt32(payload.count))
    writer.append(UInt32(0))
    writer.append(previous)
    writer.append(UInt64(0))
    writer.append(sealed.withUnsafeBytes { KeyedHash.checksum($0) })
    writer.append(writer.bytes.withUnsafeBytes { KeyedHash.checksum($0) })
    writer.append(sealed)
    return (writer.bytes, Array(sealed.suffix(16)))
  }

  /// The payload length that the header at an offset states; 0 when there is no header.
  static func payloadByteCount(_ file: any BlockFile, at offset: UInt64) throws(IOFailure) -> Int {
    let header = try file.read(headerByteCount, at: offset)
    guard header.count == headerByteCount, header.starts(with: magic) else { return 0 }
    return Int(header[32..<36].reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) })
  }

  /// The result of reading one copy at an offset.
  enum Reading {
    /// A valid frame. `end` is the offset after it, before rounding up.
    case good(number: UInt64, previous: [UInt8], payload: [UInt8], tag: [UInt8], end: UInt64)
    /// A frame that is absent, truncated or foreign, or whose checksum fails: the trace of a crash.
    case torn(String)
    /// A frame whose checksums are correct but whose record does not open. No crash causes that.
    case altered
  }

  static func read(
    _ file: any BlockFile, at offset: UInt64, place: Place, key: borrowing SecretKey,
    cipher: SecretStreamCipher
  ) throws(IOFailure) -> Reading {
    let header = try file.read(headerByteCount, at: offset)
    guard header.count == headerByteCount else { return .torn("the file ends") }
    do {
      var reader = ByteReader(header)
      guard try reader.take(8).elementsEqual(magic), try reader.identifier() == place.journal else {
        return .torn("no frame of this journal")
      }
      let number = try reader.read(UInt64.self)
      let count = Int(try reader.read(UInt32.self))
      let reserved = try reader.read(UInt32.self)
      let previous = try reader.bytes(16)
      let moreReserved = try reader.read(UInt64.self)
      let payloadChecksum = try reader.bytes(16)
      let headerChecksum = try reader.bytes(16)
      guard header[0..<80].withUnsafeBytes({ KeyedHash.checksum($0) }) == headerChecksum else {
        return .torn("the frame's header is torn")
      }
      guard (1...payloadByteCountMax).contains(count), reserved == 0, moreReserved == 0 else {
        return .altered
      }
      let sealedCount = count + SecretStreamCipher.overheadByteCount
      let sealed = try file.read(sealedCount, at: offset + UInt64(headerByteCount))
      guard sealed.count == sealedCount, sealed.withUnsafeBytes({ KeyedHash.checksum($0) }) == payloadChecksum
      else { return .torn("the frame's payload is torn") }
      guard
        let payload = try? SealedMessage.open(
          sealed, key: key, ad: ad(place, number: number, count: count, previous: previous), cipher: cipher)
      else { return .altered }
      return .good(
        number: number, previous: previous, payload: payload, tag: Array(sealed.suffix(16)),
        end: offset + UInt64(byteCount(payload: count)))
    } catch let failure as IOFailure {
      throw failure
    } catch {
      return .torn("the frame's header is torn")
    }
  }

  private static func ad(_ place: Place, number: UInt64, count: Int, previous: [UInt8]) -> [UInt8] {
    var writer = ByteWriter()
    writer.append(label("OD1-record"))
    writer.append(place.container)
    writer.append(place.journal)
    writer.append(number)
    writer.append(UInt32(count))
    writer.append(UInt32(0))
    writer.append(previous)
    return writer.bytes
  }
}

/// The placeholder for the tag of a record that does not exist.
let noTag = [UInt8](repeating: 0, count: 16)

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

/// One change of a commit: a new value, or nil for a deletion.
struct CatalogChange: Equatable {
  var key: CatalogKey
  var value: [UInt8]?

  static let valueByteCountMax = 32768

  var encodedByteCount: Int { 3 + key.bytes.count + (value.map { 4 + $0.count } ?? 0) }
}

/// A record with changes.
struct JournalRecord: Equatable {
  static let prefixByteCount = 32

  var commit: UInt64
  var durableThrough: UInt64
  var time: Int64
  var isLastOfCommit: Bool
  /// Whether the segments that the commit names were durable before the record was written.
  var segmentsWereDurable: Bool
  var changes: [CatalogChange]

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(commit)
    writer.append(durableThrough)
    writer.append(time)
    writer.append(UInt32((isLastOfCommit ? 1 : 0) | (segmentsWereDurable ? 2 : 0)))
    writer.append(UInt32(changes.count))
    for change in changes {
      writer.append(UInt8(change.value == nil ? 2 : 1))
      writer.append(UInt16(change.key.bytes.count))
      writer.append(change.key.bytes)
      if let value = change.value {
        writer.append(UInt32(value.count))
        writer.append(value)
      }
    }
    return writer.bytes
  }

  init(
    commit: UInt64, durableThrough: UInt64, time: Int64, isLastOfCommit: Bool, segmentsWereDurable: Bool,
    changes: [CatalogChange]
  ) {
    self.commit = commit
    self.durableThrough = durableThrough
    self.time = time
    self.isLastOfCommit = isLastOfCommit
    self.segmentsWereDurable = segmentsWereDurable
    self.changes = changes
  }

  /// Decodes the record with the given number.
  init(_ bytes: [UInt8], number: UInt64) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    commit = try reader.read()
    durableThrough = try reader.read()
    guard durableThrough < number else {
      throw MalformedBytes(what: "a record that says of itself that it is durable")
    }
    time = try reader.read()
    let flags = try reader.read(UInt32.self)
    guard flags <= 3 else { throw MalformedBytes(what: "unknown flags of a record") }
    isLastOfCommit = flags & 1 != 0
    segmentsWereDurable = flags & 2 != 0
    let count = try reader.read(UInt32.self)
    changes = []
    for _ in 0..<count {
      let operation = try reader.read(UInt8.self)
      let key = try reader.catalogKey()
      switch operation {
      case 1: changes.append(CatalogChange(key: key, value: try reader.catalogValue()))
      case 2: changes.append(CatalogChange(key: key, value: nil))
      default: throw MalformedBytes(what: "an unknown operation of a record")
      }
    }
    try reader.end()
  }
}

extension ByteReader {
  mutating func catalogKey() throws(MalformedBytes) -> CatalogKey {
    let count = Int(try read(UInt16.self))
    guard (1...CatalogKey.byteCountMax).contains(count) else {
      throw MalformedBytes(what: "a key of \(count) bytes")
    }
    return CatalogKey(bytes: try bytes(count))
  }

  mutating func catalogValue() throws(MalformedBytes) -> [UInt8] {
    let count = Int(try read(UInt32.self))
    guard count <= CatalogChange.valueByteCountMax else {
      throw MalformedBytes(what: "a value of \(count) bytes")
    }
    return try bytes(count)
  }
}
