import EncryptedFile
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Reads the contents of files in a snapshot.
struct FileReading {
  let store: Store

  /// Lends `body` a reader of the file at a path. Throws `noSuchFile`, `isADirectory`, and the
  /// errors of `body` with the path added.
  func withReader(
    _ path: StorePath, in records: CatalogSnapshot, _ body: (inout EncryptedFileReader) throws -> Void
  ) throws {
    let found = try records.existingFile(path)
    try store.workers.withContext { context in
      try store.namingPath(path.text) {
        var reader = try reader(of: found, in: records, context)
        try body(&reader)
      }
    }
  }

  func reader(of file: FoundFile, in records: CatalogSnapshot, _ context: WorkerContext) throws
    -> EncryptedFileReader
  {
    try EncryptedFileReader(
      key: store.fileKey(file.id, file.inode), size: file.inode.size,
      extents: records.extents(file.id, file.inode), cipher: context.cipher,
      storedBytes: { [slabs = store.slabs] in try slabs.read($0, $1, into: $2) })
  }

  /// See ``ContainerReading/contents(at:)``.
  func contents(at path: StorePath, in records: CatalogSnapshot) throws -> [UInt8] {
    var contents: [UInt8] = []
    try withReader(path, in: records) { reader in
      let size = Int(reader.size)
      // Small files skip the check: its system call costs more than reading them.
      guard size <= 16 << 20 || size <= physicalMemoryByteCount() else {
        throw ContainerError(
          .invalidArgument, path: path.text,
          detail: "the file has \(size) bytes, more than there is memory: read it in pieces")
      }
      contents = try [UInt8](unsafeUninitializedCapacity: size) { buffer, initialized in
        let memory = UnsafeMutableRawBufferPointer(start: buffer.baseAddress, count: size)
        while initialized < size {
          let rest = UnsafeMutableRawBufferPointer(rebasing: memory[initialized...])
          initialized += try reader.read(at: UInt64(initialized), into: rest)
        }
      }
    }
    return contents
  }

  /// See ``ContainerReading/read(_:allocate:)``.
  func read(
    _ path: StorePath, in records: CatalogSnapshot, allocate: (Int) throws -> UnsafeMutableRawBufferPointer
  ) throws {
    try withReader(path, in: records) { reader in
      let memory = try allocate(Int(reader.size))
      var done = 0
      while done < memory.count {
        done += try reader.read(
          at: UInt64(done), into: UnsafeMutableRawBufferPointer(rebasing: memory[done...]))
      }
    }
  }

  /// See ``ContainerReading/read(_:control:begin:_:)``.
  func read(
    _ path: StorePath, in records: CatalogSnapshot, control: BulkControl, begin: (UInt64) throws -> Void,
    _ body: (UnsafeRawBufferPointer) throws -> Void
  ) throws {
    try withReader(path, in: records) { reader in
      var report = PieceReport(control, byteCount: reader.size)
      try report.advance(0)
      try begin(reader.size)
      let buffer = UnsafeMutableRawBufferPointer.allocate(
        byteCount: PieceReport.pieceByteCount, alignment: 4096)
      defer {
        wipe(buffer)
        buffer.deallocate()
      }
      while report.bytesDone < reader.size {
        let count = try reader.readOneSegmentAtLeast(at: report.bytesDone, into: buffer)
        try body(UnsafeRawBufferPointer(rebasing: buffer[0..<count]))
        try report.advance(count)
      }
      report.end()
    }
  }
}

extension EncryptedFileReader {
  /// Fills the buffer, or only its first segment if a later one is damaged. `offset` is the start
  /// of a segment.
  fileprivate mutating func readOneSegmentAtLeast(
    at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer
  ) throws -> Int {
    do {
      return try read(at: offset, into: buffer)
    } catch {
      let segment = UnsafeMutableRawBufferPointer(rebasing: buffer[..<SegmentLayout.plaintextByteCountMax])
      return try read(at: offset, into: segment)
    }
  }
}

func physicalMemoryByteCount() -> Int {
  let (count, overflows) = Int(sysconf(Int32(_SC_PHYS_PAGES))).multipliedReportingOverflow(
    by: Int(getpagesize()))
  return overflows ? .max : count
}
