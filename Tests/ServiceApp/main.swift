// An app in a process of its own, for programs that test it from outside: `ServiceApp SOCKET CONTAINER APP_ID USER`.
//
// It offers `com.example.check` 1.0.0.0: `echo` (params and files), `fail`, `nothing`, `hold` (replies when it is cancelled), `later` (keeps the request) and `large` (a reply
// of as many bytes as its params say). It says `ready`, and then answers each line `call APP_ID METHOD JSON` with a line that says what came of it, and each line
// `answer REQUEST_ID JSON`, which replies to a request that is kept, with its files.
// `use` opens, writes and reads in its container, and keeps all of it; `seal` closes the container at once, and `look` says what is thrown then.
// The end of its input ends it.

import AppKinetics
import Foundation
import SecureFiles

let definition = try ServiceDefinition(
  jsonText: """
    {"service-id": "com.example.check", "version": "1.0.0.0", "methods": {
      "echo": {"params": {"type": "any"}, "result-value": {"type": "any"},
               "attachments": {"minItems": 0}, "result-attachments": {"minItems": 0}},
      "fail": {"params": {"type": "any"}, "errors": [{"code": -5}]},
      "nothing": {"params": {"type": "any"}},
      "later": {"params": {"type": "any"}, "result-value": {"type": "any"},
                "attachments": {"minItems": 0}, "result-attachments": {"minItems": 0}},
      "hold": {"params": {"type": "any"}, "result-value": {"type": "any"}},
      "large": {"params": {"type": "integer"}, "result-value": {"type": "any"}}}}
    """)

func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

func answer(_ request: IncomingRequest) async throws -> ServiceResponse {
  switch request.method {
  case "echo": return .reply(request.params, attachments: request.attachments)
  case "fail":
    throw ServiceReplyError(code: -5, text: "no", details: ["why": "é"], attachments: request.attachments)
  case "large":
    guard case .integer(let count)? = request.params else { throw ServicesError(.invalidParams) }
    return .reply(.bytes(Array(repeating: 7, count: Int(count))))
  case "later": return .later
  case "hold":
    await withCheckedContinuation { continuation in request.onCancel { continuation.resume() } }
    return .reply("cancelled")
  default: return .noReply
  }
}

let arguments = CommandLine.arguments
guard arguments.count == 5 else {
  say("usage: ServiceApp SOCKET CONTAINER APP_ID USER")
  exit(64)
}
func openContainer(_ url: URL) async throws -> SecureContainer {
  let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: 32, alignment: 1)
  defer { bytes.deallocate() }
  bytes.initializeMemory(as: UInt8.self, repeating: 7)
  let key = try SecretBytes(copying: UnsafeRawBufferPointer(bytes))
  return FileManager.default.fileExists(atPath: url.path)
    ? try await SecureContainer.open(at: url, rawKey: key)
    : try await SecureContainer.create(at: url, rawKey: key)
}

let container = try await openContainer(URL(fileURLWithPath: arguments[2]))
var options = AppServices.Options()
options.broker = arguments[1]
options.attachmentByteCountMax = nil
let services = try AppServices(
  Application(id: ApplicationID(arguments[3]), name: "check", activationUser: arguments[4]),
  container: container, options: options)
try services.offer(definition, handler: answer)
try await services.start()
say("ready")

func call(_ words: [Substring]) async -> String {
  do {
    let params = words.count > 3 ? try ServiceValue(jsonText: String(words[3])) : nil
    let request = ServiceRequest(
      service: definition.serviceID, version: definition.version, method: String(words[2]), params: params)
    guard let reply = try await services.call(request, to: ApplicationID(String(words[1]))) else {
      return "no reply"
    }
    return "reply " + (try reply.params?.jsonText() ?? "nothing")
  } catch let error as ServiceReplyError {
    return "error \(error.code) \(error.text)"
  } catch let error as ServicesError {
    return "failed \(error.code.rawValue)"
  } catch {
    return "failed \(error)"
  }
}

func answerKept(_ words: [Substring]) async -> String {
  do {
    guard let kept = try await services.keptRequests().first(where: { $0.id.description == words[1] }) else {
      return "not kept"
    }
    try await kept.reply(try ServiceValue(jsonText: String(words[2])), attachments: kept.attachments)
    return "answered"
  } catch {
    return "failed \(error)"
  }
}

/// What stands on the container, for as long as the process lives.
var kept: [Any] = []

@MainActor func use() throws -> String {
  let file = try container.store.openFile("/marked", .readWrite, create: true)
  // Nothing of it is in ordinary memory of this program's own.
  var bytes = try SecretBytes(count: 1 << 20)
  bytes.withUnsafeMutableBytes { Random.fill($0) }
  _ = try bytes.withUnsafeBytes { try file.write($0, at: 0) }
  try container.synchronize()
  var target = try SecretBytes(count: 1 << 18)
  _ = try target.withUnsafeMutableBytes { try file.read(at: 0, into: $0) }
  let snapshot = try container.store.snapshot()
  kept = [
    file, snapshot, try snapshot.list("/"), try container.store.changes(at: "/"),
    try container.store.list("/", recursively: true),
  ]
  return "used"
}

@MainActor func seal() throws -> String {
  // This is not stored before.
  var bytes = try SecretBytes(count: 1 << 20)
  bytes.withUnsafeMutableBytes { Random.fill($0) }
  if let file = kept.first as? OpenFile { _ = try bytes.withUnsafeBytes { try file.write($0, at: 1 << 20) } }
  return "sealed " + (try container.close(.now, because: "sealed by a test").joined(separator: " "))
}

func look() -> String {
  do {
    _ = try container.store.list("/")
    return "open"
  } catch {
    return
      "\((error as? ContainerError)?.code.rawValue ?? "another"): \((error as? ContainerError)?.detail ?? "")"
  }
}

while let line = readLine() {
  let words = line.split(separator: " ", maxSplits: 3)
  switch words.first {
  case "answer": say(await answerKept(words))
  case "use": say(try use())
  case "seal": say(try seal())
  case "look": say(look())
  default: say(await call(words))
  }
}
await services.stop()
try container.close()
