import AppKinetics
import ArgumentParser
import Foundation
import SecureFiles

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
    let messages = try withContainer(at: dir, secret, mode: .readOnly) {
      try OutboxMessage.all(in: SecureContainer($0))
    }
    for message in messages.map(OutboxDescription.init) {
      try StandardOutput.write(json ? JSONText.of(message) : message.text)
    }
  }
}

struct OutboxResumeCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "resume", abstract: "Goes on with what waits in the outbox, until every receiver has it.",
    discussion: "On a signal it ends; what is not delivered goes on waiting.")

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
    try app.withServices(registers: false, containerOptions: bulk.containerOptions()) { services, _ in
      try AsyncWork.run {
        let begin = ContinuousClock.now
        var waiting = try await services.outbox()
        let byteCount = waiting.reduce(0) { $0 + $1.byteCount }
        try await services.start()
        while true {
          let left = try await services.outbox()
          for message in waiting where !left.contains(where: { $0.isSame(as: message) }) && !isSilent {
            let description = OutboxDescription(message, state: "delivered")
            bar.clear()
            try StandardOutput.write(json ? JSONText.of(description) : description.text)
          }
          waiting = left
          if left.isEmpty { return }
          let bytesLeft = left.reduce(0) { $0 + $1.byteCount - min($1.byteCount, $1.bytesDone) }
          bar.show(
            ProgressState(
              bytesDone: byteCount - min(byteCount, bytesLeft), byteCount: byteCount,
              seconds: begin.secondsSince))
          try await Task.sleep(for: .milliseconds(200))
        }
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

private struct OutboxDescription: Encodable {
  var requestID: String
  var isReply: Bool
  var app: String
  var date: Date
  var fileCount: UInt64
  var byteCount: UInt64
  var state: String?

  init(_ message: OutboxMessage) { self.init(message, state: nil) }

  init(_ message: OutboxMessage, state: String?) {
    requestID = message.request.description
    isReply = message.isReply
    app = message.receiver.text
    date = message.date
    fileCount = message.fileCount
    byteCount = message.byteCount
    self.state = state
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
  fileprivate func isSame(as other: OutboxMessage) -> Bool {
    request == other.request && isReply == other.isReply
  }

  fileprivate var bytesDone: UInt64 {
    if case .underWay(let bytes) = state { bytes } else { 0 }
  }
}
