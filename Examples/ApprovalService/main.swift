// Takes documents for approval, and answers when somebody has decided, in a later process.
//
//   ApprovalService DIR                   takes one document, and ends
//   ApprovalService DIR approve ID        approves what came with a request, and ends when the other app has the reply
//   ApprovalService DIR reject ID         the same with an error as the reply
//
// DIR: its container, made when it is not there. The passphrase is in DYNAMICS_PASSPHRASE.
import AppKinetics
import Dispatch
import ExampleSupport
import Foundation

enum Event { case taken, delivered, interrupted }

/// Moves documents from the inbox to /Documents, under the ids of their requests. It answers none of them: a request with a file is then kept in the
/// container.
final class Desk: ServiceProvider {
  private let container: SecureContainer
  private let event: AsyncStream<Event>.Continuation
  init(_ container: SecureContainer, _ event: AsyncStream<Event>.Continuation) {
    (self.container, self.event) = (container, event)
  }

  func didReceive(_ request: IncomingRequest) {
    do {
      let document = request.attachments[0]
      try container.files.createDirectory(atPath: "/Documents", withIntermediateDirectories: true)
      // After a kill the request comes once more, and its document may have been moved.
      if container.files.fileExists(atPath: document) {
        try container.files.moveItem(atPath: document, toPath: "/Documents/\(request.id)")
      }
      try container.removeInboxMessages(
        container.inboxMessages().filter { document.hasPrefix($0.directory + "/") })
      say("took \(request.id) of \(request.sender)")
    } catch {
      say("could not take \(request.id): \(error)")
    }
    event.yield(.taken)
  }
}

let arguments = CommandLine.arguments
let decision = arguments.count == 4 ? RequestID(arguments[3]) : nil
guard arguments.count == 2 || decision != nil && ["approve", "reject"].contains(arguments[2]),
  let passphrase = ProcessInfo.processInfo.environment["DYNAMICS_PASSPHRASE"]
else { fail("usage: DYNAMICS_PASSPHRASE=… ApprovalService DIR [approve|reject ID]", 64) }

do {
  let interruptions = interruptions()
  let container = try await openOrCreateContainer(arguments[1], passphrase)
  let desk = DispatchQueue(label: "desk")
  var options = AppServices.Options()
  options.callbackQueue = desk
  let services = try AppServices(
    Application(id: ApplicationID("com.example.approval.service"), name: "Approvals"), container: container,
    options: options)
  let (events, event) = AsyncStream<Event>.makeStream()
  try services.offer([Approvals.definition], validates: true, provider: Desk(container, event))
  services.onOutboxEnd { reply, error in
    say("\(reply.receiver) \(error == nil ? "has" : "does not take") the reply to \(reply.request)")
    event.yield(.delivered)
  }
  try await services.start()
  // The desk gets once more what an earlier process did not finish. This waits until it is done with that.
  desk.sync {}
  for request in try await services.keptRequests() { say("waits: \(request.id) of \(request.sender)") }

  // A reply that was sent is in the outbox, on the disk, and its request is not kept any more.
  if let decision, arguments[2] == "approve" {
    let approval = "/Documents/\(decision).approval"
    try container.files.write(Data("approved\n".utf8), toPath: approval)
    try await services.reply(attachments: [approval], to: decision)
    say("approved \(decision)")
  } else if let decision {
    let error = ServiceReplyError(code: Approvals.rejected, text: "the document is rejected")
    try await services.reply(error: error, to: decision)
    say("rejected \(decision)")
  } else {
    say("ready")
  }

  let signals = Task { for await _ in interruptions { event.yield(.interrupted) } }
  for await event in events {
    if event == .interrupted || event == .taken && decision == nil { break }
    if event == .delivered, decision != nil, try await services.outbox().isEmpty { break }
  }
  signals.cancel()
  // The container keeps each request that the desk took once its handler has returned.
  await services.stop(waitingForHandlers: .seconds(10))
  try container.close()
} catch {
  fail("ApprovalService: \(error)", 1)
}
