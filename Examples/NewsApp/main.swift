// An app that receives news by push: it opens a channel, gives the token to its server, and prints what arrives.
//
//   NewsApp SERVER_URL RELAY_URL AUTHORITIES_FILE STATE_DIRECTORY

import Foundation
import PushClient

#if canImport(FoundationNetworking)
  import FoundationNetworking
#endif

guard CommandLine.arguments.count == 5, let server = URL(string: CommandLine.arguments[1]),
  let relay = URL(string: CommandLine.arguments[2])
else {
  print("usage: NewsApp SERVER_URL RELAY_URL AUTHORITIES_FILE STATE_DIRECTORY")
  exit(64)
}

/// The key of the state. A real app keeps it in its encrypted container.
func stateKey(in directory: URL) throws -> Data {
  try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
  let file = directory.appending(path: "state.key")
  if let key = FileManager.default.contents(atPath: file.path) { return key }
  var generator = SystemRandomNumberGenerator()
  let key = Data((0..<32).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
  _ = FileManager.default.createFile(atPath: file.path, contents: key, attributes: [.posixPermissions: 0o600])
  return key
}

/// Gives the token to the app's own server, again and again until the server has it.
func register(_ token: String) async {
  var request = URLRequest(url: server.appending(path: "register"))
  request.httpMethod = "POST"
  request.httpBody = Data(token.utf8)
  while true {
    if let (_, response) = try? await URLSession.shared.data(for: request),
      (response as? HTTPURLResponse)?.statusCode == 200
    {
      return
    }
    try? await Task.sleep(for: .seconds(1))
  }
}

func say(_ text: String) {
  print(text)
  fflush(nil)
}

let directory = URL(filePath: CommandLine.arguments[4])
var options = PushRuntime.Options(relay: relay, directory: directory, stateKey: try stateKey(in: directory))
options.authorities = CommandLine.arguments[3]
let runtime = try PushRuntime(options)
let channel = runtime.channel("org.example.news")
await channel.connect()
var token: String?
for await event in channel.events {
  switch event {
  case .opened(let opened, _, _):
    say("opened")
    token = opened
    await register(opened)
    say("registered")
  case .message(let message):
    say("news: \(message.text ?? "")")
    if message.text == "goodbye" { await channel.disconnect() }
  case .pingFailed(let failure):
    say("ping failed: \(failure.rawValue) \(failure)")
    // Anything else mends itself, or is for whoever runs the server.
    guard failure == .unknownToken, let token else { break }
    await register(token)
    say("registered")
  case .closed:
    say("closed")
    await runtime.stop()
  case .error(let code):
    say("error \(code)")
    await runtime.stop()
  }
}
