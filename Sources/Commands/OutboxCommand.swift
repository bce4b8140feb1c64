import AppKinetics
import ArgumentParser
import ContainerStore
import Foundation
import SecureFiles
import ServiceValues
import Synchronization

struct OutboxCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "outbox",
    abstract: "Shows messages with files that their receivers do not have yet, and goes on with them.",
    subcommands: [OutboxListCommand.self, OutboxResumeCommand.self, OutboxCancelCommand.self])
}

struct OutboxListCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "list", abstract: "Lists what waits in a container's outbox, oldest first.")

  @Argument(help: "The sender's container.", completion: .directory)
  var dir: String

  @OptionGroup var credential: CredentialOptions

  @Flag(help: "Prints one JSON object for each message, on a line of its own.")
  var json = false

  var reportsJSON: Bool { json }

  func run() throws {
    let secret = try credential.secret(for: dir)
    var damage: ContainerError?
    let messages = try withContainer(at: dir, secret, mode: .readOnly) {
      try OutboxMessage.all(in: SecureContainer($0), skipping: { damage = damage ?? $0 })
    }
    for message in messages.map(OutboxDescription.init) {
      try StandardOutput.write(json ? JSONText.of(message) : message.text)
    }
    if let damage { throw damage }
  }
}

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
        let byteCount = waiting.reduce(0) { $0 + $1.byteCount }
        services.onOutboxEnd { message, error in ended.put(message, error) }
        try await services.start()
        var endedCount = 0
        var failure: ServicesError?
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
          let bytesLeft = left.reduce(0) { $0 + $1.byteCount - min($1.byteCount, $1.bytesDone) }
          bar.show(
            ProgressState(
              bytesDone: byteCount - min(byteCount, bytesLeft), byteCount: byteCount,
              seconds: begin.secondsSince))
          if endedCount < waiting.count { try await Task.sleep(for: .milliseconds(200)) }
        }
        if let failure { throw failure }
      }
    }
  }
}

struct OutboxCancelCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "cancel", abstract: "Takes messages back that wait in the outbox.",
    discussion: """
      What was never offered to its receiver is taken back at once, and no broker is needed. Of a message that the receiver may have a
      part of, the receiver decides whether it was too late: then this waits until it runs.
      """)

  @OptionGroup var app: AppOptions

  @Argument(
    help: ArgumentHelp("Their requests, as `dynamics outbox list` shows them.", valueName: "request-id"))
  var request: [RequestArgument]

  @Flag(help: "The replies to these requests, not the requests.")
  var reply = false

  struct RequestArgument: ExpressibleByArgument, Sendable {
    let id: RequestID
    init?(argument: String) {
      guard let id = RequestID(argument) else { return nil }
      self.id = id
    }
  }

  func run() throws {
    let (requests, isReply) = (request.map(\.id), reply)
    try app.withServices(registers: false) { services, _ in
      try AsyncWork.run {
        try await withTaskCancellationHandler {
          // Before the start, so that what is taken back is not delivered by it.
          var cancellations: [(RequestID, Task<Bool, Never>)] = []
          for request in requests {
            cancellations.append(
              (request, try await services.beginCancellingOutbox(request, isReply: isReply)))
          }
          // For the receiver's decision on what it may have some of.
          let left = try await services.outbox()
          if requests.contains(where: { request in
            left.contains { $0.request == request && $0.isReply == isReply }
          }) {
            try await services.start()
          }
          let note = WaitNote(
            "waiting for the receiver, which may have a part and decides; a signal ends this")
          defer { note.end() }
          for (request, cancellation) in cancellations {
            guard await cancellation.value else {
              try Task.checkCancellation()
              throw ServicesError(
                .general, detail: "\(request) is not in the outbox any more: it was delivered, or never there"
              )
            }
            try StandardOutput.write("\(request) taken back\n")
          }
        } onCancel: {
          Task { await services.stop() }
        }
      }
    }
  }
}

/// What has left the outbox and was not told yet.
private final class EndedMessages: Sendable {
  private let ended = Mutex<[(OutboxMessage, ServicesError?)]>([])

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

struct OutboxDescription: Encodable {
  var requestID: String
  var isReply: Bool
  var app: String
  var date: String
  var fileCount: UInt64
  var byteCount: UInt64
  var state: String?

  init(_ message: OutboxMessage) { self.init(message, state: nil) }

  init(_ message: OutboxMessage, state: String?) {
    requestID = message.request.description
    isReply = message.isReply
    app = message.receiver.text
    // To the microsecond that such a date holds.
    date = Quantity.timestamp(Int64((message.date.timeIntervalSince1970 * 1e6).rounded()) * 1000)
    fileCount = message.fileCount
    byteCount = message.byteCount
    self.state = state
  }

  /// A line for a message that its receiver refused; part of the error's text is the receiver's.
  static func refusal(of request: some CustomStringConvertible, _ error: ServicesError) -> String {
    "\(request): \(PrintableText.of("\(error)"))\n"
  }

  var text: String {
    let parts = [
      requestID, isReply ? "reply" : "request", PrintableText.of(app),
      Quantity.count(Int(clamping: fileCount), "file"), Quantity.bytes(byteCount), state,
    ]
    return parts.compactMap(\.self).joined(separator: "  ") + "\n"
  }
}

extension OutboxMessage {
  fileprivate var bytesDone: UInt64 {
    if case .underWay(let bytes) = state { bytes } else { 0 }
  }
}
