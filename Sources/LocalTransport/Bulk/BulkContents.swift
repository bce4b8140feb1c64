import Locks
package import ServiceWire
import UnixSockets

/// The contents of one received frame: in memory of this process, or in a slot that the other
/// process may still change. The memory can be used again, or the slot is given back, when the last
/// reference goes, on any thread.
package final class BulkContents: Sendable {
  enum Place: Sendable {
    case nowhere
    case memory(BulkMemory, of: BulkMemoryPool)
    case slot(Slot, BulkLane)
  }

  struct Slot: Sendable {
    let number: Int
    let memory: SharedMemory.Reader
  }

  package let byteCount: Int
  private let place: Place

  init(byteCount: Int, _ place: Place) {
    self.byteCount = byteCount
    self.place = place
  }

  deinit {
    switch place {
    case .nowhere: break
    case .memory(let memory, let pool): pool.keep(memory)
    case .slot(let slot, let lane): lane.release(slot.number)
    }
  }

  /// Copies bytes out, on any thread. Two copies of the same bytes may differ.
  ///
  /// Throws `streamDamaged` when they cannot be read.
  package func read(at offset: Int, into buffer: UnsafeMutableRawBufferPointer) throws(BulkFault) {
    precondition(
      0...byteCount ~= offset && buffer.count <= byteCount - offset, "the contents have these bytes")
    switch place {
    case .nowhere: break
    case .memory(let memory, _):
      buffer.copyMemory(
        from: UnsafeRawBufferPointer(rebasing: memory.bytes[offset..<offset + buffer.count]))
    case .slot(let slot, _):
      do throws(SocketError) {
        try slot.memory.read(at: slot.number * BulkSlots.byteCount + offset, into: buffer)
      } catch {
        throw BulkFault(.streamDamaged, "shared memory: \(error.what)")
      }
    }
  }
}

/// Memory for the contents of a frame.
final class BulkMemory: Sendable {
  /// Invariant: the receiving thread writes it before it makes contents of it, and not again before
  /// those are gone.
  nonisolated(unsafe) let bytes: UnsafeMutableRawBufferPointer

  init(byteCount: Int) { bytes = .allocate(byteCount: byteCount, alignment: 4096) }

  deinit { bytes.deallocate() }
}

/// Memory of frames that are gone, for the next ones.
final class BulkMemoryPool: Sendable {
  /// How many it keeps: for a frame that is read, one that is worked on, and one that waits.
  static let countMax = 3
  /// Contents of at most so many bytes have memory of their own size, which is not kept.
  static let smallByteCountMax = 128 << 10

  /// Nil once it keeps no more.
  private let kept = Guarded<[BulkMemory]?>([])

  /// Memory of at least so many bytes.
  func take(_ byteCount: Int) -> BulkMemory {
    guard byteCount > Self.smallByteCountMax else { return BulkMemory(byteCount: byteCount) }
    return kept.withLock { $0?.popLast() } ?? BulkMemory(byteCount: BulkFrame.contentsByteCountMax)
  }

  func keep(_ memory: BulkMemory) {
    guard memory.bytes.count == BulkFrame.contentsByteCountMax else { return }
    kept.withLock { kept in
      if let count = kept?.count, count < Self.countMax { kept?.append(memory) }
    }
  }

  /// Frees what it keeps, and keeps no more.
  func close() {
    let freed = kept.withLock { kept in
      defer { kept = nil }
      return kept
    }
    withExtendedLifetime(freed) {}
  }
}
