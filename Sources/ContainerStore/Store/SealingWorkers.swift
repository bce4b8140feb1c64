import EncryptedFile
import Locks
import SodiumPrimitives

/// The threads that seal and open large files, and ciphers with buffers to lend to other threads.
final class SealingWorkers: Sendable {
  private static let spareCountMax = 4

  let threads: WorkerThreads
  private let backend: CipherBackend
  private let keys: KeyPool
  private let spares = Guarded<[WorkerContext]>([])

  init(threadCount: Int, backend: CipherBackend, in keys: KeyPool) {
    self.backend = backend
    self.keys = keys
    threads = WorkerThreads(count: threadCount, backend: backend, in: keys)
  }

  /// Lends the calling thread a cipher and buffers.
  func withContext<R>(_ body: (WorkerContext) throws -> R) rethrows -> R {
    let context = borrowContext()
    defer { giveBack(context) }
    return try body(context)
  }

  func borrowContext() -> WorkerContext {
    spares.withLock { $0.popLast() } ?? WorkerContext(backend, in: keys)
  }

  func giveBack(_ context: WorkerContext) {
    spares.withLock { if $0.count < Self.spareCountMax, !keys.isShut { $0.append(context) } }
  }

  /// Lets go of idle contexts, whose memory is wiped then.
  func removeAll() { spares.withLock { $0.removeAll() } }
}
