import EncryptedFile
import SodiumPrimitives

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
