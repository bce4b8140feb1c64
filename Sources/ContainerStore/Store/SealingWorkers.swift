import EncryptedFile
import Locks
import SodiumPrimitives

/// The threads that seal and open large files, and ciphers with buffers to lend to other threads.
final class SealingWorkers: Sendable {
  private static let spareCountMax = 4

  let threads: WorkerThreads
  private let backend: CipherBackend
  private let spares = Guarded<[WorkerContext]>([])

  init(threadCount: Int, backend: CipherBackend) {
    self.backend = backend
    threads = WorkerThreads(count: threadCount, backend: backend)
  }

  /// Lends the calling thread a cipher and buffers.
  func withContext<R>(_ body: (WorkerContext) throws -> R) rethrows -> R {
    let context = borrowContext()
    defer { giveBack(context) }
    return try body(context)
  }

  func borrowContext() -> WorkerContext { spares.withLock { $0.popLast() } ?? WorkerContext(backend) }

  func giveBack(_ context: WorkerContext) {
    spares.withLock { if $0.count < Self.spareCountMax { $0.append(context) } }
  }
}
