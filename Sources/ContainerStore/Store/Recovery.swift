import EncryptedFile
import SodiumPrimitives

/// Recovery by a writer after an unclean end, except for replaying the journals. A missing file
/// does not prevent opening: reading reports it as damage.
enum Recovery {
  /// Drops cached pages: recovery must accept what the disk has, not what a failed write left in
  /// memory.
  static func dropCaches(_ io: any BlockIO) throws {
    for directory in ["journal", CopiedFile.copyFolder, "slab"] {
      for name in try io.readableFileNames(in: directory) {
        try io.openIfReadable(directory + "/" + name, .read)?.dropCache()
      }
    }
  }

  /// Makes the copies of a journal equal again, where a crash left a record in only one of them.
  static func level(_ io: any BlockIO, _ records: [UnevenRecord]) throws(IOFailure) {
    for record in records {
      let bytes = try io.open(record.whole, .read).read(record.range.count, at: record.range.lowerBound)
      do throws(IOFailure) {
        try io.openIfReadable(record.torn, .readWrite)?.write(bytes, at: record.range.lowerBound)
      } catch {
        // The copy stays damaged, and is reported.
        guard error.isOfFile else { throw error }
      }
    }
  }

  static func synchronize(_ io: any BlockIO, journals: [Identifier], slabs: Set<UInt32>) throws(IOFailure) {
    for slab in slabs.sorted() { try io.openIfReadable(SlabStore.name(slab), .readWrite)?.synchronize() }
    for journal in journals {
      var refusals: [IOFailure] = []
      for name in CopiedFile.names(journal, in: .journal) {
        do throws(IOFailure) { try io.openIfReadable(name, .readWrite)?.synchronize() } catch {
          guard error.isOfFile else { throw error }
          refusals.append(error)
        }
      }
      if refusals.count == CopiedFile.count { throw refusals[0] }
    }
    if !slabs.isEmpty { try io.synchronizeDirectory("slab") }
  }
}
