/// What a disk may hold after a crash at some place of a log.
package struct CrashPlan: Sendable, CustomStringConvertible {
  package enum Loss: Sendable, Equatable {
    /// Every operation before the crash reached the disk.
    case nothing
    /// Only what was synchronized did: contents by their file's last sync, names by their directory's.
    case everythingUnsynchronized
    /// What was synchronized, and of the rest any subset, drawn with the seed.
    case some(seed: UInt64)
    /// Everything, but of the last write any subset of its 512-byte sectors, drawn with the seed.
    case tornLast(seed: UInt64)
  }

  /// The crash came after so many operations.
  package var operationCount: Int
  package var loss: Loss

  package init(operationCount: Int, loss: Loss) {
    self.operationCount = operationCount
    self.loss = loss
  }

  package var description: String { "crash after operation \(operationCount), \(loss)" }

  private static let sectorByteCount = 512

  /// The disk that is found after the crash, beginning from `start` (all of which is durable).
  package func replay(_ log: [RecordingIO.Operation], from start: DiskImage = DiskImage()) -> DiskImage {
    let operations = Array(log.prefix(operationCount))
    switch loss {
    case .nothing:
      return Self.apply(operations, to: start)
    case .everythingUnsynchronized:
      return Self.durable(operations, from: start) { false }
    case .some(let seed):
      var random = SplitMix64(seed: seed)
      return Self.durable(operations, from: start) { random.next() & 1 == 0 }
    case .tornLast(let seed):
      guard case .write(let path, let offset, let bytes)? = operations.last else {
        return Self.apply(operations, to: start)
      }
      var image = Self.apply(Array(operations.dropLast()), to: start)
      var random = SplitMix64(seed: seed)
      var begin = 0
      while begin < bytes.count {
        let end = min(
          bytes.count, begin + Self.sectorByteCount - (Int(offset) + begin) % Self.sectorByteCount)
        if random.next() & 1 == 0 {
          _ = image.apply(.write(path, offset: offset + UInt64(begin), bytes: Array(bytes[begin..<end])))
        }
        begin = end
      }
      return image
    }
  }

  private static func apply(_ operations: [RecordingIO.Operation], to start: DiskImage) -> DiskImage {
    var image = start
    for operation in operations { _ = image.apply(operation) }
    return image
  }

  /// Runs the log on a volatile image, and beside it keeps what is certain: an operation is certain when a later sync covers it, and
  /// else if `keeps` says so.
  private static func durable(
    _ operations: [RecordingIO.Operation], from start: DiskImage, keeps: () -> Bool
  ) -> DiskImage {
    // For each operation, whether a later sync of its file or directory makes it certain.
    var certain = [Bool](repeating: false, count: operations.count)
    var fileIsSynchronized: Set<String> = []
    var directoryIsSynchronized: Set<String> = []
    for (i, operation) in operations.enumerated().reversed() {
      switch operation {
      case .synchronize(let path): fileIsSynchronized.insert(path)
      case .synchronizeDirectory(let path): directoryIsSynchronized.insert(path)
      case .write(let path, _, _), .truncate(let path, _), .punch(let path, _, _):
        certain[i] = fileIsSynchronized.contains(path)
      case .create(let path), .remove(let path), .createDirectory(let path),
        .removeDirectory(let path):
        certain[i] = directoryIsSynchronized.contains(DiskImage.parent(path))
        // What happened to a name before its creation, or after a removal, was another file.
        if case .create = operation { fileIsSynchronized.remove(path) }
      case .rename(let path, let newPath):
        certain[i] = directoryIsSynchronized.contains(DiskImage.parent(path))
        if fileIsSynchronized.contains(newPath) { fileIsSynchronized.insert(path) }
      }
    }
    // A name that does not reach the disk leaves its contents unreachable.
    var image = start
    for (i, operation) in operations.enumerated() where certain[i] || keeps() {
      if case .write(let path, let offset, let bytes) = operation, !certain[i], bytes.count > sectorByteCount,
        keeps()
      {
        // Half of it, to the sector: a write that was not synchronized need not be whole either.
        let half = (bytes.count / 2 + sectorByteCount - 1) / sectorByteCount * sectorByteCount
        _ = image.apply(.write(path, offset: offset, bytes: Array(bytes.prefix(half))))
        continue
      }
      _ = image.apply(operation)
    }
    return image
  }
}

/// A small generator of random numbers whose whole state is its seed (Steele, Lea, Flood 2014).
package struct SplitMix64: RandomNumberGenerator, Sendable {
  private var state: UInt64

  package init(seed: UInt64) { state = seed }

  package mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var z = state
    z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
    z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
    return z ^ (z >> 31)
  }
}
