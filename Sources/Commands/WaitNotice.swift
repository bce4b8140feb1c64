import AppKinetics

/// What keeps a request from its receiver, said when it has waited for a while.
enum WaitNotice {
  private static let time = Duration.seconds(2)

  /// Returns or throws without a word when that is not so any more, or its task was cancelled. `whatWaits` ends the sentence.
  static func say(
    of sent: SentRequest, _ services: AppServices, _ whatWaits: String, write: (String) -> Void
  ) async throws {
    try await Task.sleep(for: time)
    let receiver = try await services.providers().first { $0.application == sent.application }
    // A receiver in a sandbox does not show it to all.
    let told = try await services.outbox().first { $0.request == sent.id }?.receiverState
    guard !Task.isCancelled, sent.transfer.bytesDone == 0, [.waiting, .sent].contains(sent.status) else {
      return
    }
    let state =
      switch receiver?.state {
      case .locked: "is locked"
      case .suspended: "is suspended"
      case .notRunning, .running, .hidden, nil: told.map { "is \($0)" } ?? "has not taken it yet"
      }
    write("dynamics: \(PrintableText.of(sent.application.text)) \(state); \(whatWaits)\n")
  }
}
