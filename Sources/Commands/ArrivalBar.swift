import AppKinetics
import Locks

/// One bar for all messages with files that are on their way to an app. It is drawn while there are any.
final class ArrivalBar: Sendable {
  private struct Fields {
    var transfers: [IncomingTransfer] = []
    /// When the first of them began.
    var begin = ContinuousClock.now
    /// The bytes of those that have ended since.
    var endedByteCount: UInt64 = 0
    var isDrawing = false
  }

  private let bar: SharedProgressBar
  private let fields = Guarded(Fields())

  init(_ bar: SharedProgressBar) { self.bar = bar }

  /// Returns when the message is there. Throws why it will not be.
  func follow(_ transfer: IncomingTransfer) async throws {
    guard bar.isDrawn else { return try await transfer.ended() }
    let draws = fields.withLock { fields in
      if fields.transfers.isEmpty { fields = Fields(isDrawing: fields.isDrawing) }
      fields.transfers.append(transfer)
      defer { fields.isDrawing = true }
      return !fields.isDrawing
    }
    if draws { Task { await draw() } }
    defer {
      fields.withLock { fields in
        fields.transfers.removeAll { $0 === transfer }
        fields.endedByteCount.addSaturating(transfer.byteCount)
      }
    }
    try await transfer.ended()
  }

  /// Leaves the line empty for an event.
  func clear() { bar.clear() }

  private func draw() async {
    while let state = fields.withLock({ Self.state(of: &$0) }) {
      bar.show(state)
      try? await Task.sleep(for: .milliseconds(100))
    }
    bar.clear()
  }

  /// Nil when there is nothing to be drawn any more.
  private static func state(of fields: inout Fields) -> ProgressState? {
    fields.isDrawing = !fields.transfers.isEmpty
    guard fields.isDrawing else { return nil }
    let (done, all) = fields.transfers.reduce(into: (fields.endedByteCount, fields.endedByteCount)) {
      $0.0.addSaturating($1.bytesDone)
      $0.1.addSaturating($1.byteCount)
    }
    return ProgressState(bytesDone: done, byteCount: all, seconds: fields.begin.secondsSince)
  }
}
