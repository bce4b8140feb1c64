import AppKinetics
import ArgumentParser

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
          let messages = try await services.outbox()
          var cancellations: [(RequestID, Task<Bool, Never>?)] = []
          for request in requests {
            let message = messages.first { $0.request == request && $0.isReply == isReply }
            var cancellation: Task<Bool, Never>?
            if let message { cancellation = try await services.beginCancelling(message) }
            cancellations.append((request, cancellation))
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
            guard await cancellation?.value == true else {
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
