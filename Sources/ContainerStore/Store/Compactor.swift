import Dispatch
import EncryptedFile
import Locks
import SodiumPrimitives

/// The compactions of one store: decides when one runs, and runs one at a time.
///
/// A compaction runs in the background when there is much waste, at closing, and on request. It may
/// end at any moment, and the next one continues.
final class Compactor: Sendable {
  /// The time without a change after which the container counts as idle.
  private static let idleNanoseconds: Int64 = 500_000_000

  private struct State {
    var isScheduled = false
    var deadByteCountAfterLast: UInt64 = 0
  }

  private let options: ContainerOptions
  private let queue = DispatchQueue(label: "compaction", qos: .utility)
  private let background = DispatchGroup()
  private let stopSignal = StopSignal()
  private let running = Guarded(OneAtATime())
  private let state = Guarded(State())

  init(_ options: ContainerOptions) { self.options = options }

  // MARK: On request

  /// See ``Container/compact(control:)``.
  func compact(_ store: Store, control: BulkControl) throws -> CompactionReceipt {
    try running.withLock { _ in try run(store, .thorough, bytesPerSecond: nil, control: control) }
  }

  private func run(
    _ store: Store, _ policy: CompactionPolicy, bytesPerSecond: UInt64?, control: BulkControl = BulkControl()
  ) throws -> CompactionReceipt {
    var compaction = Compaction(
      store: store, policy: policy, control: control,
      pace: Pace(bytesPerSecond: bytesPerSecond, stop: stopSignal)
    ) { [self] in
      if bytesPerSecond != nil { try waitUntilIdle(store) }
    }
    return try compaction.run()
  }

  // MARK: At closing

  /// Ends a compaction that runs in the background, prevents new ones, and compacts once more if
  /// that is little work.
  func stop(compactingForClose store: Store) {
    stop()
    guard options.durability != .none, options.compactionBytesPerSecond > 0 else { return }
    let policy = CompactionPolicy.closing(liveByteCount: store.catalogState.withLock { $0.liveByteCount })
    // Skipped when a compaction runs: its progress report may be the caller that closes the store.
    _ = try? running.withLockIfFree { _ in try run(store, policy, bytesPerSecond: nil) }
  }

  /// Ends a compaction that runs in the background, and prevents new ones.
  func stop() {
    stopSignal.stop()
    background.wait()
  }

  /// Waits for compactions in the background.
  func wait() { background.wait() }

  // MARK: In the background

  /// Begins a compaction when enough has become waste since the last one. Called after a durable
  /// commit.
  func startWhenDue(in store: Store) {
    guard options.compactionBytesPerSecond > 0, !stopSignal.isStopped else { return }
    let policy = CompactionPolicy.background(options)
    let (isClosed, dead, live) = store.catalogState.withLock {
      ($0.isClosed, $0.deadByteCount, $0.liveByteCount)
    }
    let isDue = state.withLock { state in
      // Holes count as dead here; the actual waste is measured when the compaction begins.
      guard !isClosed, !state.isScheduled,
        dead > state.deadByteCountAfterLast + policy.wasteByteCountMax(liveByteCount: live)
      else { return false }
      state.isScheduled = true
      return true
    }
    guard isDue else { return }
    store.inBackground(queue, background) { [self] store in
      defer { state.withLock { $0.isScheduled = false } }
      guard (try? waitUntilIdle(store)) != nil else { return }
      // A failure is harmless, since nothing depends on it. The thread that has the lock may be
      // waiting for this task.
      _ = try? running.withLockIfFree { _ in
        try run(store, policy, bytesPerSecond: options.compactionBytesPerSecond)
      }
      let dead = store.catalogState.withLock { $0.deadByteCount }
      state.withLock { $0.deadByteCountAfterLast = dead }
    }
  }

  /// Leaves disk and processor to writers until they pause, unless there is more waste than live
  /// bytes. Throws `cancelled` when the compaction has to end.
  private func waitUntilIdle(_ store: Store) throws {
    while !stopSignal.isStopped, !store.isClosed {
      let busyNanoseconds = store.catalogState.withLock { catalog -> Int64 in
        if catalog.deadByteCount > catalog.liveByteCount + options.backgroundWasteByteCountMin { return 0 }
        return catalog.lastChange + Self.idleNanoseconds - Clock.monotonicNanoseconds()
      }
      if busyNanoseconds <= 0 { return }
      if stopSignal.wait(nanoseconds: busyNanoseconds) { break }
    }
    throw ContainerError(.cancelled)
  }
}

/// Limits a compaction to a number of bytes per second, and measures its progress.
final class Pace {
  private let bytesPerSecond: UInt64?
  private let stop: StopSignal
  private let beginning = Clock.monotonicNanoseconds()
  private var done: UInt64 = 0

  init(bytesPerSecond: UInt64?, stop: StopSignal) {
    self.bytesPerSecond = bytesPerSecond
    self.stop = stop
  }

  /// Counts so many bytes, reports the progress, and waits as long as the pace requires.
  func advance(_ count: UInt64, of byteCount: UInt64, control: BulkControl) {
    done += count
    let elapsed = Clock.monotonicNanoseconds() - beginning
    control.progress?(
      BulkProgress(
        bytesDone: min(done, byteCount), byteCount: byteCount, filesDone: done >= byteCount ? 1 : 0,
        fileCount: 1, seconds: Double(elapsed) / 1e9))
    guard let bytesPerSecond else { return }
    _ = stop.wait(nanoseconds: Int64(Double(done) / Double(bytesPerSecond) * 1e9) - elapsed)
  }
}
