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
