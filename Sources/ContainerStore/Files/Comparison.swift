import EncryptedFile
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

extension FileReading {
  /// See ``ContainerReading/contentsEqual(_:_:)``.
  func contentsEqual(_ first: StorePath, _ second: StorePath, in records: CatalogSnapshot) throws -> Bool {
    try store.workers.withContext { one in
      try store.workers.withContext { two in
        try areEqual(
          records.existing(first, followingLast: false), records.existing(second, followingLast: false),
          in: records, Comparison(one, two))
      }
    }
  }

  private func areEqual(
    _ first: FoundFile, _ second: FoundFile, in records: CatalogSnapshot, _ comparison: Comparison
  ) throws -> Bool {
    var open = [(first, second)]
    var seen: Set<UInt64> = []
    while let (first, second) = open.popLast() {
      guard first.inode.kind == second.inode.kind else { return false }
      if first.id == second.id { continue }
      switch first.inode.kind {
      case .symbolicLink:
        guard first.inode.target == second.inode.target else { return false }
      case .file:
        guard first.inode.size == second.inode.size, first.inode.permissions & 0o400 != 0,
          second.inode.permissions & 0o400 != 0, try haveEqualBytes(first, second, in: records, comparison)
        else { return false }
      case .directory:
        guard seen.insert(first.id).inserted else {
          throw ContainerError(.catalogDamaged, detail: "a directory is reached twice")
        }
        let (ours, theirs) = (try records.entries(first.id), try records.entries(second.id))
        guard ours.count == theirs.count,
          zip(ours, theirs).allSatisfy({ $0.name == $1.name && $0.entry.kind == $1.entry.kind })
        else { return false }
        let (a, b) = (ours.map(\.entry.file), theirs.map(\.entry.file))
        for ((id, inode), (other, otherInode)) in zip(
          zip(a, try records.inodes(a)), zip(b, try records.inodes(b)))
        {
          open.append((FoundFile(id: id, inode: inode), FoundFile(id: other, inode: otherInode)))
        }
      }
    }
    return true
  }

  private func haveEqualBytes(
    _ first: FoundFile, _ second: FoundFile, in records: CatalogSnapshot, _ comparison: Comparison
  ) throws -> Bool {
    guard first.inode.size > 0 else { return true }
    var one = try reader(of: first, in: records, comparison.first)
    var two = try reader(of: second, in: records, comparison.second)
    var offset: UInt64 = 0
    while offset < first.inode.size {
      let count = try one.read(at: offset, into: comparison.firstPiece)
      guard try two.read(at: offset, into: comparison.secondPiece) == count,
        memcmp(comparison.firstPiece.baseAddress!, comparison.secondPiece.baseAddress!, count) == 0
      else { return false }
      offset += UInt64(count)
    }
    return true
  }
}

/// Ciphers and buffers for comparing two files piece by piece.
private final class Comparison {
  let first: WorkerContext
  let second: WorkerContext
  let firstPiece: UnsafeMutableRawBufferPointer
  let secondPiece: UnsafeMutableRawBufferPointer

  init(_ first: WorkerContext, _ second: WorkerContext) {
    (self.first, self.second) = (first, second)
    let byteCount = SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax
    firstPiece = .allocate(byteCount: byteCount, alignment: 4096)
    secondPiece = .allocate(byteCount: byteCount, alignment: 4096)
  }

  deinit {
    for piece in [firstPiece, secondPiece] {
      wipe(piece)
      piece.deallocate()
    }
  }
}
