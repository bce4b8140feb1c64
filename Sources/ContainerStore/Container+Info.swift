public import EncryptedFile
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

extension Container {
  public struct Info: Sendable {
    public var id: Identifier
    public var created: Int64
    public var commit: UInt64
    public var generation: UInt64
    public var fileCount: Int
    public var directoryCount: Int
    /// Plaintext bytes of all files; files with holes may add up to more than can be counted.
    public var byteCount: UInt64
    public var slabCount: Int
    /// Stored bytes that some file needs.
    public var liveByteCount: UInt64
    /// Bytes of the slabs up to the last that was committed.
    public var slabByteCount: UInt64
    /// Bytes on the disk that nothing needs and that are not given back yet.
    public var deadByteCount: UInt64
    /// Bytes that are held back for a full disk.
    public var reservedByteCount: UInt64
    public var keySlots: [String]
  }

  public func info() throws -> Info {
    let (commit, generation, keySlots) = flushing.withLock { state in
      (state.commit, state.newestGeneration, state.slot.keySlots.compactMap { $0.map { "\($0.kind)" } })
    }
    let slabCounters = core.withLock { $0.slabCounters }
    let reserved: UInt64
    do { reserved = try reservedByteCount() } catch { throw translated(error, path: io.place) }
    return try withSnapshot { records in
      var info = Info(
        id: id, created: created, commit: commit, generation: generation, fileCount: 0, directoryCount: 0,
        byteCount: 0, slabCount: 0, liveByteCount: 0, slabByteCount: 0,
        deadByteCount: slabs.fills().reduce(0) { $0 + $1.wastedByteCount },
        reservedByteCount: reserved,
        keySlots: keySlots)
      try records.scan(.all(.inode)) { _, value in
        let inode = try CatalogSnapshot.decode(value) { bytes throws(MalformedBytes) in try Inode(bytes) }
        if inode.kind == .directory { info.directoryCount += 1 } else { info.fileCount += 1 }
        let (sum, overflows) = info.byteCount.addingReportingOverflow(inode.size)
        info.byteCount = overflows ? .max : sum
      }
      for counter in slabCounters.values {
        info.slabCount += 1
        info.liveByteCount += counter.liveByteCount
        info.slabByteCount += counter.end
      }
      return info
    }
  }

  /// What `verify` needs besides a snapshot.
  func withSuperblock<R>(_ body: (SuperblockSlot, inout SuperblockBody, borrowing SecretBytes) throws -> R)
    throws -> R
  {
    try flushing.withLock { state in
      var opened = try state.slot.open(rootKey: state.rootKey, cipher: state.cipher)
      defer { opened.wipeSecrets() }
      return try body(state.slot, &opened, state.rootKey)
    }
  }
}

/// What the file system that a container lies on has room for, and how many files the container has.
public struct ContainerStatistics: Sendable {
  /// Bytes of the file system.
  public var byteCount: UInt64
  /// Bytes that are free for this process.
  public var freeByteCount: UInt64
  /// Numbers of files that were given out; no file ever gets one that another had.
  public var usedFileCount: UInt64
  /// So many there can be.
  public var fileCountMax: UInt64
}

extension Container {
  /// Throws `ioFailed`.
  public func statistics() throws -> ContainerStatistics {
    var system = statvfs()
    guard statvfs(io.place, &system) == 0 else {
      throw ContainerError.from(IOFailure("statvfs", "the container", errno: errno)).with(path: io.place)
    }
    return ContainerStatistics(
      byteCount: UInt64(system.f_blocks) * UInt64(system.f_frsize),
      freeByteCount: UInt64(system.f_bavail) * UInt64(system.f_frsize),
      usedFileCount: core.withLock { $0.counters.nextFile - 1 }, fileCountMax: CatalogCounters.fileCountMax)
  }
}
