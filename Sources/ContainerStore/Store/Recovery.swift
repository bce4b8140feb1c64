import EncryptedFile
import SodiumPrimitives

/// Recovery by a writer after an unclean end, except for replaying the journals. A missing file
/// does not prevent opening: reading reports it as damage.
enum Recovery {
  /// Drops cached pages: recovery must accept what the disk has, not what a failed write left in
  /// memory.
  static func dropCaches(_ io: any BlockIO) throws {
    for directory in ["journal", CopiedFile.copyFolder, "slab"] {
      for name in try io.fileNames(in: directory) {
        try io.openIfThere(directory + "/" + name, .read)?.dropCache()
      }
    }
  }

  /// Makes the copies of a journal equal again, where a crash left a record in only one of them.
  static func level(_ io: any BlockIO, _ records: [UnevenRecord]) throws(IOFailure) {
    for record in records {
      let bytes = try io.open(record.whole, .read).read(record.range.count, at: record.range.lowerBound)
      try io.openIfThere(record.torn, .readWrite)?.write(bytes, at: record.range.lowerBound)
    }
  }

  static func synchronize(_ io: any BlockIO, journals: [Identifier], slabs: Set<UInt32>) throws(IOFailure) {
    for name in slabs.sorted().map(SlabStore.name) + journals.flatMap({ CopiedFile.names($0, in: .journal) })
    {
      try io.openIfThere(name, .readWrite)?.synchronize()
    }
    if !slabs.isEmpty { try io.synchronizeDirectory("slab") }
  }
}
