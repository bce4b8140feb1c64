import AppKinetics
import ArgumentParser
import Locks

struct OutboxResumeCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "resume", abstract: "Goes on with what waits in the outbox, until every receiver has it.",
    discussion: """
      Says of each message whether it was delivered or refused; what is refused, or cannot be read any more, is gone from the outbox, and the exit \
      code is that of the first such error. On a signal it ends; what is not delivered goes on waiting.
      """)

  @OptionGroup var app: AppOptions
  @OptionGroup var bulk: BulkOptions

  @Flag(help: "Prints one JSON object for each message, on a line of its own.")
  var json = false

  var reportsJSON: Bool { json }

  /// Long enough for a receiver to prove the trusted key.
  private static let heldTime = Duration.seconds(5)

  func run() throws {
    let isSilent = bulk.quiet
    let json = json
    let bar = bulk.sharedBar("outbox")
    defer { bar.clear() }
    let ended = EndedMessages()
    try app.withServices(registers: false, containerOptions: bulk.containerOptions()) { services, _ in
      try AsyncWork.run {
        let begin = ContinuousClock.now
        let waiting = try await services.outbox()
        let byteCount = waiting.saturatingSum { $0.byteCount }
        services.onOutboxEnd { message, error in ended.put(message, error) }
        try await services.start()
        var endedCount = 0
        var failure: ServicesError?
        var told: Set<ApplicationID> = []
        var heldSince: ContinuousClock.Instant?
        while endedCount < waiting.count {
          let left = try await services.outbox()
          for (message, error) in ended.take() {
            endedCount += 1
            failure = failure ?? error
            bar.clear()
            if let error { StandardError.write(OutboxDescription.refusal(of: message.request, error)) }
            guard !isSilent else { continue }
            let description = OutboxDescription(message, state: error == nil ? "delivered" : "refused")
            try StandardOutput.write(json ? JSONText.of(description) : description.text)
          }
          let bytesLeft = left.saturatingSum { $0.byteCount - min($0.byteCount, $0.bytesDone) }
          bar.show(
            ProgressState(
              bytesDone: byteCount - min(byteCount, bytesLeft), byteCount: byteCount,
              seconds: begin.secondsSince))
          for message in left {
            guard let state = message.receiverState, told.insert(message.receiver).inserted else { continue }
            let receiver = PrintableText.of(message.receiver.text)
            bar.write("dynamics: \(receiver) is \(state); its messages wait in the outbox\n")
          }
          // Their receivers are not dialled again for minutes: the user has to decide.
          let isHeld = !left.isEmpty && left.allSatisfy { $0.state == .held }
          heldSince = isHeld ? heldSince ?? .now : nil
          if let heldSince, heldSince.duration(to: .now) > Self.heldTime {
            throw ServicesError(
              .peerKeyChanged, detail: "\(left.count) messages are held: dynamics peers list says for whom")
          }
          if endedCount < waiting.count { try await Task.sleep(for: .milliseconds(200)) }
        }
        if let failure { throw failure }
      }
    }
  }
}

/// What has left the outbox and was not told yet.
private final class EndedMessages: Sendable {
  private let ended = Guarded<[(OutboxMessage, ServicesError?)]>([])

  func put(_ message: OutboxMessage, _ error: ServicesError?) {
    ended.withLock { $0.append((message, error)) }
  }

  func take() -> [(OutboxMessage, ServicesError?)] {
    ended.withLock { ended in
      defer { ended = [] }
      return ended
    }
  }
}

extension OutboxMessage {
  /// Why the receiver does not take it for now, in a word; nil if that is not so.
  var receiverState: String? {
    switch state {
    case .locked: "locked"
    case .suspended: "suspended"
    case .noStorage: "unable to store it"
    case .waiting, .underWay, .held: nil
    }
  }

  fileprivate var bytesDone: UInt64 {
    if case .underWay(let bytes) = state { bytes } else { 0 }
  }
}
