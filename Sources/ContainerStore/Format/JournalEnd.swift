import EncryptedFile

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
