/// Numbers that continue from one opening to the next.
struct CatalogCounters: Equatable {
  static let fileCountMax: UInt64 = 1 << 62
  /// The bound for `nextFile` when a change begins. The 2^40 ids above it are more than one change
  /// uses.
  static let nextFileMax = fileCountMax - 1 << 40
  var nextFile: UInt64
  var nextSlab: UInt32

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(nextFile)
    writer.append(nextSlab)
    writer.append(UInt32(0))
    return writer.bytes
  }

  init(nextFile: UInt64, nextSlab: UInt32) {
    self.nextFile = nextFile
    self.nextSlab = nextSlab
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    nextFile = try reader.read()
    nextSlab = try reader.read()
    try reader.zeros(4)
    try reader.end()
    // The bounds keep later increments from overflowing.
    guard nextFile > rootFileID, nextFile < Self.fileCountMax, nextSlab < 1 << 31 else {
      throw MalformedBytes(what: "counters that cannot be")
    }
  }
}
