// An app in a process of its own, for tests of the front: `FrontApp SOCKET CONTAINER APP_ID`.
//
// It offers `com.example.front` 1.0.0.0, whose only method is `show`, and the front request. It says `ready`, and then
// does what each line says:
//
//   send APP_ID FOREGROUND [PATH]   sends `show`; PATH is a file that it makes and sends along
//   reply FOREGROUND [PATH]         replies to the oldest request that has no reply
//   fail FOREGROUND [PATH]          replies with an error
//   keep                            keeps the oldest request that has no reply
//   answer                          replies to the oldest request that is kept
//   request-front APP_ID            sends a front request, and waits for its end
//   bring APP_ID                    brings the app to front
//   launch APP_ID                   the same without a request
//   state STATE                     is `running`, `locked` or `suspended` from then on
//   look                            asks the broker something, behind whatever was asked before
//   quit                            ends it
//
// What came of a line is a line that begins with its first word: `bring: done`, `bring: notAllowed`. Other lines say what
// happens: `in front`, `not in front`, `show of APP_ID`, `front request of APP_ID`, `reply arrived`, `reply lost`,
// `outcome: replied` or `outcome: error 5`, `unclaimed reply`.

import AppKinetics
import Foundation
import Locks
import SecureFiles

let definition = try ServiceDefinition(
  jsonText: """
    {"service-id": "com.example.front", "version": "1.0.0.0", "methods": {
      "show": {"params": {"type": "any"}, "result-value": {"type": "any"},
               "attachments": {"minItems": 0}, "result-attachments": {"minItems": 0},
               "errors": [{"code": 5}]}}}
    """)

func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

/// Keeps requests until a line answers them.
final class Requests: ServiceProvider {
  private let open = Guarded<[IncomingRequest]>([])

  func didReceive(_ request: IncomingRequest) {
    guard request.service != FrontRequest.serviceID else {
      return say("front request of \(request.sender)")
    }
    open.withLock { $0.append(request) }
    say("\(request.method) of \(request.sender)")
  }

  func didFinishSending(
    _ params: ServiceValue?, attachments: [String], for request: IncomingRequest
  ) { say("reply arrived") }
  func didFailSending(_ request: IncomingRequest, _ error: ServicesError) { say("reply lost") }

  /// Throws `general` when each request has a reply.
  func takeOldest() throws -> IncomingRequest {
    try open.withLock { open throws(ServicesError) in
      guard !open.isEmpty else { throw ServicesError(.general) }
      return open.removeFirst()
    }
  }
}

func openContainer(_ url: URL) async throws -> SecureContainer {
  let key = try SecretBytes(utf8: String(repeating: "k", count: 32))
  return FileManager.default.fileExists(atPath: url.path)
    ? try await SecureContainer.open(at: url, rawKey: key)
    : try await SecureContainer.create(at: url, rawKey: key)
}

let arguments = CommandLine.arguments
guard arguments.count == 4 else {
  say("usage: FrontApp SOCKET CONTAINER APP_ID")
  exit(64)
}
let container = try await openContainer(URL(fileURLWithPath: arguments[2]))
var options = AppServices.Options()
options.broker = arguments[1]
let services = try AppServices(
  Application(id: ApplicationID(arguments[3]), name: "front"), container: container, options: options)
let requests = Requests()
try services.offer([definition, WellKnownService.frontRequest.definition], provider: requests)
services.onUnclaimedReply { _ in say("unclaimed reply") }
let frontChanges = services.frontChanges
Task.detached {
  for await isInFront in frontChanges { say(isInFront ? "in front" : "not in front") }
}
try await services.start()
say("ready")

func foreground(_ word: String) -> ForegroundPreference {
  switch word {
  case "me": .me
  case "peer": .peer
  default: .none
  }
}

/// Makes the file that a line names, if it names one.
func files(_ words: ArraySlice<String>) throws -> [String] {
  for path in words { try container.files.write(Data("contents".utf8), toPath: path) }
  return Array(words)
}

func send(_ request: ServiceRequest, to application: ApplicationID) async throws {
  let sent = try await services.send(request, to: application)
  try await sent.delivered()
  say("send: done")
  do {
    _ = try await sent.reply()
    say("outcome: replied")
  } catch let error as ServiceReplyError {
    say("outcome: error \(error.code)")
  } catch {
    say("outcome: \(name(of: error))")
  }
}

func perform(_ words: [String]) async throws {
  switch words[0] {
  case "send":
    return try await send(
      ServiceRequest(
        definition, "show", attachments: files(words[3...]), foreground: foreground(words[2])),
      to: ApplicationID(words[1]))
  case "reply":
    try await requests.takeOldest().reply(
      attachments: files(words[2...]), foreground: foreground(words[1]))
  case "fail":
    try await requests.takeOldest().reply(
      error: ServiceReplyError(code: 5, attachments: files(words[2...])), foreground: foreground(words[1]))
  case "keep": try await requests.takeOldest().keep()
  case "answer":
    guard let kept = try await services.keptRequests().first else { throw ServicesError(.general) }
    try await kept.reply()
  case "request-front": _ = try await services.requestFront(from: ApplicationID(words[1])).reply()
  case "state":
    let states: [String: ApplicationState] = ["locked": .locked, "suspended": .suspended]
    try await services.setState(states[words[1]] ?? .running)
  case "bring": try await services.bringToFront(ApplicationID(words[1]))
  case "launch": try await services.launch(ApplicationID(words[1]))
  default: _ = try await services.providers()
  }
  say("\(words[0]): done")
}

func name(of error: any Error) -> String { (error as? ServicesError)?.code.name ?? "\(error)" }

while let line = readLine(), line != "quit" {
  let words = line.split(separator: " ").map(String.init)
  Task.detached {
    do {
      try await perform(words)
    } catch {
      say("\(words[0]): \(name(of: error))")
    }
  }
}
await services.stop()
try container.close()
