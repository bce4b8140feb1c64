import EncryptedFile
public import SodiumPrimitives

/// A summary of a container.
public struct ContainerInfo: Sendable {
  public var id: Identifier
  public var created: Int64
  public var commit: UInt64
  public var generation: UInt64
  public var fileCount: Int
  public var directoryCount: Int
  /// Plaintext bytes of all files, limited to the largest number: files with holes may add up to
  /// more.
  public var byteCount: UInt64
  public var slabCount: Int
  /// Stored bytes that at least one file needs.
  public var liveByteCount: UInt64
  /// Bytes of the slabs up to the last committed one.
  public var slabByteCount: UInt64
  /// Bytes on the disk that nothing needs and that are not freed yet.
  public var deadByteCount: UInt64
  /// Bytes held back for a full disk.
  public var reservedByteCount: UInt64
  public var keys: [ContainerKey]
}

extension ContainerInfo {
  init(_ store: Store, _ records: CatalogSnapshot) throws {
    let usage = store.usage()
    self.init(
      id: store.id, created: store.created, commit: usage.commit, generation: usage.generation,
      fileCount: 0, directoryCount: 0, byteCount: 0, slabCount: usage.slabCounters.count, liveByteCount: 0,
      slabByteCount: 0, deadByteCount: store.slabs.fills().reduce(0) { $0 + $1.wastedByteCount },
      reservedByteCount: try Reserve.byteCount(store.io),
      keys: try store.keyTable().keys)
    try records.scan(.all(.inode)) { _, value in
      let inode = try CatalogSnapshot.decode(value) { bytes throws(MalformedBytes) in try Inode(bytes) }
      if inode.kind == .directory { directoryCount += 1 } else { fileCount += 1 }
      let (sum, overflows) = byteCount.addingReportingOverflow(inode.size)
      byteCount = overflows ? .max : sum
    }
    for counter in usage.slabCounters.values {
      liveByteCount += counter.liveByteCount
      slabByteCount += counter.end
    }
  }
}
