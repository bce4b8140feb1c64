import EncryptedFile
import Locks
import SodiumPrimitives

/// A file as recorded in the catalog.
struct StoredFile {
  var id: UInt64
  var inode: Inode
  var extents: [Extent]
}

/// Opens every segment of the added files, some thousand files at a time.
final class SegmentCheck {
  private let store: Store
  private let control: BulkControl
  private let began = Clock.monotonicNanoseconds()
  private let fileCount: Int
  private let byteCount: UInt64
  private var filesDone = 0
  private var bytesDone: UInt64 = 0
  private var files: [StoredFile] = []
  private var plan = UnitPlan()
  /// Problems by file id.
  private(set) var damaged: [UInt64: String] = [:]

  private static let fileCountMax = 4096
  private static let byteCountMax: UInt64 = 256 << 20

  init(_ store: Store, fileCount: Int, byteCount: UInt64, control: BulkControl) {
    self.store = store
    self.fileCount = fileCount
    self.byteCount = byteCount
    self.control = control
  }

  func add(_ file: StoredFile) throws {
    guard store.hasKey(ofEpoch: file.inode.epoch) else {
      damaged[file.id] = "there is no key for epoch \(file.inode.epoch)"
      return
    }
    files.append(file)
    plan.addFile(extents: file.extents)
    if files.count >= Self.fileCountMax || plan.byteCount >= Self.byteCountMax { try run() }
  }

  func finish() throws { try run() }

  private func run() throws {
    let files = files
    let found = Guarded<[UInt64: String]>([:])
    let progress = control.progress.map { report in
      { [self] (part: BulkProgress) in
        report(
          BulkProgress(
            bytesDone: min(byteCount, bytesDone &+ part.bytesDone), byteCount: byteCount,
            filesDone: filesDone + part.filesDone, fileCount: fileCount,
            seconds: Double(Clock.monotonicNanoseconds() - began) / 1e9))
      }
    }
    let store = store
    _ = try BulkWork(
      plan: plan, control: BulkControl(progress: progress, cancellation: control.cancellation),
      workers: store.workers
    ).run { context, unit in
      for piece in unit.pieces {
        let file = files[piece.file]
        guard found.withLock({ $0[file.id] == nil }) else { continue }
        let problem: String?
        do {
          problem = try verifyRun(
            piece.source!, key: store.fileKey(file.id, file.inode), slabs: store.slabs,
            context: context)?.description
        } catch let failure as IOFailure where failure.isOfFile {
          problem = "the system cannot read it: \(failure)"
        }
        if let problem { found.withLock { $0[file.id] = problem } }
      }
      return []
    }
    damaged.merge(found.withLock { $0 }) { first, _ in first }
    filesDone += files.count
    bytesDone &+= plan.byteCount
    self.files = []
    plan = UnitPlan()
  }
}
