// Sends a document of its container for approval, and keeps the approval, which may come when this process has long ended.
//
//   ApprovalClient DIR [PATH]        DIR: its container; PATH: a document in it. Without PATH it goes on with what earlier processes have sent. The
//                                    passphrase is in DYNAMICS_PASSPHRASE.
import AppKinetics
import ExampleSupport
import Foundation

let arguments = CommandLine.arguments
guard (2...3).contains(arguments.count),
  let passphrase = ProcessInfo.processInfo.environment["DYNAMICS_PASSPHRASE"]
else { fail("usage: DYNAMICS_PASSPHRASE=… ApprovalClient DIR [PATH]", 64) }

enum Event { case somethingEnded, interrupted }

do {
  let interruptions = interruptions()
  let container = try await openContainer(arguments[1], passphrase)
  let files = container.files
  // In /Sent is a note for each request that has no reply yet, so that later processes know as well.
  for folder in ["/Sent", "/Approvals"] {
    try files.createDirectory(atPath: folder, withIntermediateDirectories: true)
  }
  let services = try AppServices(
    Application(id: ApplicationID("com.example.approval.client"), name: "Approval client"),
    container: container)
  let (events, event) = AsyncStream<Event>.makeStream()
  // Before the start, so that these two hear of everything that earlier processes have sent.
  services.onOutboxEnd { message, error in
    say("\(message.receiver) \(error == nil ? "has" : "does not take") \(message.request)")
    if error != nil { try? files.removeItem(atPath: "/Sent/\(message.request)") }
    event.yield(.somethingEnded)
  }
  services.onUnclaimedReply { reply in
    await take(reply.result.map { $0 }, to: reply.request, services)
    event.yield(.somethingEnded)
  }
  try await services.start()

  var waiting: Task<Void, Never>?
  if arguments.count == 3 {
    let approvals = Approvals.definition
    let providers = try await services.providers(of: approvals.serviceID, version: approvals.version)
    guard let provider = providers.first else {
      throw ServicesError(.applicationNotFound, detail: "nobody approves documents")
    }
    let sent = try await services.send(
      ServiceRequest(approvals, "approve", attachments: [arguments[2]]), to: provider.application)
    try files.write(Data(arguments[2].utf8), toPath: "/Sent/\(sent.id)")
    // Not even a kill takes back what is said.
    try container.synchronize()
    say("sent \(sent.id)")
    waiting = Task {
      let result: Result<ServiceReply?, any Error>
      do { result = .success(try await sent.reply()) } catch { result = .failure(error) }
      // When this process ends, the reply comes to a later one.
      if !Task.isCancelled { await take(result, to: sent.id, services) }
      event.yield(.somethingEnded)
    }
  }

  // Until nothing is on its way and every request has its reply, or until SIGINT or SIGTERM.
  let signals = Task { for await _ in interruptions { event.yield(.interrupted) } }
  event.yield(.somethingEnded)
  for await event in events {
    if event == .interrupted { break }
    let (outbox, notes) = (try await services.outbox(), try files.contentsOfDirectory(atPath: "/Sent"))
    if outbox.isEmpty, notes.isEmpty { break }
  }
  signals.cancel()
  waiting?.cancel()
  await services.stop()
  await waiting?.value
  try container.close()
} catch {
  fail("ApprovalClient: \(error)", 1)
}

/// Keeps the approval in /Approvals, under the id of the request, and removes the note.
@Sendable func take(
  _ result: Result<ServiceReply?, any Error>, to request: RequestID, _ services: AppServices
) async {
  do {
    let files = services.container.files
    let outcome: String
    switch result {
    case .success(let reply?):
      // After a kill the reply comes once more, and its file may have been moved.
      for approval in reply.attachments where files.fileExists(atPath: approval) {
        try files.moveItem(atPath: approval, toPath: "/Approvals/\(request)")
      }
      try await services.removeAttachments(reply.attachments)
      outcome = "approved"
    case .failure(let error as ServiceReplyError) where error.code == Approvals.rejected:
      outcome = "rejected"
    case .success(nil), .failure: outcome = "nobody answers"
    }
    if files.fileExists(atPath: "/Sent/\(request)") { try files.removeItem(atPath: "/Sent/\(request)") }
    try await services.container.synchronize()
    say("\(outcome) \(request)")
  } catch {
    say("no approval of \(request): \(error)")
  }
}
