import EncryptedFile

/// 64 units of 1 MiB, more than the caches hold, put through by threads as often as makes the bytes of a
/// repetition.
struct UnitRounds {
  static let unitCount = 64
  /// The bytes of contents in one unit.
  static let unitByteCount = SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax

  let rounds: Int
  var byteCount: Int { rounds * Self.unitCount * Self.unitByteCount }

  /// Rounds `byteCount` down to whole rounds, one at least.
  init(byteCount: Int) { rounds = max(1, byteCount / (Self.unitCount * Self.unitByteCount)) }

  /// Lets the threads put every unit of `source` through `body`, which writes a unit of `destination`. Both
  /// buffers have all units.
  func seconds(
    on workers: WorkerThreads, from source: Buffer, to destination: Buffer,
    _ body:
      @escaping @Sendable (WorkerContext, Int, UnsafeRawBufferPointer, UnsafeMutableRawBufferPointer) throws
      -> Void
  ) throws -> Double {
    // Threads share both pointers. This is safe: `source` and `destination` outlive the call, `forEach` gives each unit to
    // one thread, and no two units overlap.
    nonisolated(unsafe) let input = UnsafeRawBufferPointer(source.bytes)
    nonisolated(unsafe) let output = destination.bytes
    let inputCount = input.count / Self.unitCount
    let outputCount = output.count / Self.unitCount
    return try ladder.seconds {
      for _ in 0..<rounds {
        try workers.forEach(Self.unitCount) { context, unit in
          try body(
            context, unit,
            UnsafeRawBufferPointer(rebasing: input[(unit * inputCount)..<((unit + 1) * inputCount)]),
            UnsafeMutableRawBufferPointer(
              rebasing: output[(unit * outputCount)..<((unit + 1) * outputCount)]))
        }
      }
    }
  }
}
