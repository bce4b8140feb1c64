import EncryptedFile
import Locks
import SodiumPrimitives
import Synchronization

/// The amount of data in a container's open files that is not stored yet.
final class DirtyTally: Sendable {
  /// Bytes of memory in dirty grains.
  let byteCount = Atomic<Int>(0)
  /// The number of files with changes that the catalog lacks.
  let fileCount = Atomic<Int>(0)
  /// Memory of released grains, kept because new memory from the system costs more than filling it.
  /// The memory is wiped when it is freed, at most some seconds after the last write.
  private let spares: Guarded<(kept: [UnsafeMutableRawBufferPointer], countMax: Int)>

  init(spareByteCountMax: Int = 0) { spares = Guarded(([], spareByteCountMax / DirtyGrain.byteCount)) }

  deinit { releaseSpares() }

  func takeMemory() -> UnsafeMutableRawBufferPointer {
    byteCount.add(DirtyGrain.byteCount, ordering: .relaxed)
    return spares.withLock { $0.kept.popLast() } ?? .allocate(byteCount: DirtyGrain.byteCount, alignment: 64)
  }

  /// Returns the memory of a grain.
  func giveBack(_ memory: UnsafeMutableRawBufferPointer) {
    byteCount.subtract(DirtyGrain.byteCount, ordering: .relaxed)
    let isKept = spares.withLock { spares in
      guard spares.kept.count < spares.countMax else { return false }
      spares.kept.append(memory)
      return true
    }
    if isKept { return }
    // All of it: spare memory has what was written in an earlier grain.
    wipe(memory)
    memory.deallocate()
  }

  /// Wipes and frees the spare memory after a pause in writing; with `forGood`, none is kept later
  /// either.
  func releaseSpares(forGood: Bool = false) {
    let released = spares.withLock { spares in
      defer { spares = ([], forGood ? 0 : spares.countMax) }
      return spares.kept
    }
    for memory in released {
      wipe(memory)
      memory.deallocate()
    }
  }
}
