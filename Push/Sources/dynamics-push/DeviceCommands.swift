import ArgumentParser
import Foundation
import Logging
import PushClient

/// What every command of a device needs.
struct DeviceOptions: ParsableArguments {
  @Option(help: ArgumentHelp("The relay.", valueName: "url"))
  var relay = "wss://localhost:17434"

  @Option(
    help: ArgumentHelp(
      "Authorities that may certify the relay (PEM); by default the relay's own certificate in push-relay, if it is there.",
      valueName: "file"))
  var authorities: String?

  @Option(help: ArgumentHelp("Where the device keeps its state.", valueName: "directory"))
  var directory = "push-device"

  @Option(help: ArgumentHelp("The key that the relay's operator gave out.", valueName: "key"))
  var admissionKey = ""

  @Flag(help: "Prints a JSON object a line.")
  var json = false

  func runtime() throws -> PushRuntime {
    LoggingSystem.bootstrap { label in
      var handler = StreamLogHandler.standardError(label: label)
      handler.logLevel = .notice
      return handler
    }
    guard let relay = URL(string: relay) else { throw ValidationError("\(relay) is no URL") }
    let directory = URL(fileURLWithPath: directory)
    var options = PushRuntime.Options(
      relay: relay, directory: directory, stateKey: try key(in: directory))
    options.admissionKey = admissionKey
    options.authorities = authorities
    let own = "push-relay/loopback.pem"
    if authorities == nil, FileManager.default.fileExists(atPath: own) { options.authorities = own }
    return try PushRuntime(options)
  }

  /// An app keeps this key in its container. This program has none.
  private func key(in directory: URL) throws -> Data {
    try FileManager.default.createDirectory(
      at: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    let file = directory.appendingPathComponent("state.key")
    if let key = FileManager.default.contents(atPath: file.path) { return key }
    var generator = SystemRandomNumberGenerator()
    let key = Data((0..<32).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
    guard
      FileManager.default.createFile(
        atPath: file.path, contents: key, attributes: [.posixPermissions: 0o600])
    else { throw ValidationError("\(file.path) cannot be made") }
    return key
  }
}

struct OpenCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "open", abstract: "Opens a channel, or ends one, and prints its token.",
    discussion: "The channel stays open when the command ends, and messages wait at the relay.")

  @Argument(help: "The channel, such as com.example.app.")
  var identifier: String

  @Flag(help: "Ends the channel.")
  var close = false

  @OptionGroup var device: DeviceOptions

  func run() async throws {
    let runtime = try device.runtime()
    let channel = runtime.channel(identifier)
    await channel.connect()
    for await event in channel.events {
      try Printer(json: device.json).print(event)
      switch event {
      case .opened where close: await channel.disconnect()
      case .opened, .closed: return await runtime.stop()
      case .error(let code):
        await runtime.stop()
        throw Failure(description: "the channel ended with error \(code)")
      case .message, .pingFailed: break
      }
    }
  }
}

struct ListenCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "listen", abstract: "Opens a channel, and prints what arrives.")

  @Argument(help: "The channel, such as com.example.app.")
  var identifier: String

  @Option(help: ArgumentHelp("Ends after that many messages.", valueName: "n"))
  var count: Int?

  @Option(
    help: ArgumentHelp(
      "Appends the lines to a file, and completes a message when its line is on the disk: none is lost when the program is killed, and one may be there twice, with the same id.",
      valueName: "file"))
  var append: String?

  @OptionGroup var device: DeviceOptions

  func run() async throws {
    let runtime = try device.runtime()
    let channel = runtime.channel(identifier)
    await channel.connect()
    var count = 0
    if self.count == 0 { return await runtime.stop() }
    let printer = try Printer(json: device.json, file: append)
    for await event in append == nil ? channel.events : channel.uncompletedEvents {
      try printer.print(event)
      switch event {
      case .message(let message):
        if append != nil { await channel.complete(message) }
        count += 1
        if count == self.count { return await runtime.stop() }
      case .closed: return await runtime.stop()
      case .error(let code):
        await runtime.stop()
        throw Failure(description: "the channel ended with error \(code)")
      case .opened, .pingFailed: break
      }
    }
  }
}

struct Failure: Error, CustomStringConvertible {
  let description: String
}

/// Events as lines.
struct Printer {
  private let json: Bool
  /// Nil for the standard output.
  private let file: FileHandle?

  init(json: Bool, file path: String? = nil) throws {
    self.json = json
    guard let path else {
      file = nil
      return
    }
    let exists = FileManager.default.fileExists(atPath: path)
    guard exists || FileManager.default.createFile(atPath: path, contents: nil),
      let file = FileHandle(forUpdatingAtPath: path)
    else { throw Failure(description: "\(path) cannot be written") }
    let end = try file.seekToEnd()
    if end > 0 {
      // A line that was cut off stays apart from the next one.
      try file.seek(toOffset: end - 1)
      if try file.read(upToCount: 1) != Data("\n".utf8) { try file.write(contentsOf: Data("\n".utf8)) }
    }
    self.file = file
  }

  func print(_ event: PushEvent) throws {
    let text = json ? jsonLine(event) : line(event)
    guard let file else {
      Swift.print(text)
      fflush(nil)
      return
    }
    try file.write(contentsOf: Data((text + "\n").utf8))
    try file.synchronize()
  }

  private func line(_ event: PushEvent) -> String {
    switch event {
    case .opened(let token, let host, _): "opened " + token + (host.map { " at \($0)" } ?? "")
    case .message(let message): "message " + (message.text ?? "(\(message.data.count) bytes)")
    case .pingFailed(let failure): "ping-failed \(failure.rawValue) \(failure)"
    case .closed: "closed"
    case .error(let code): "error \(code)"
    }
  }

  private func jsonLine(_ event: PushEvent) -> String {
    var fields: [String: String] = [:]
    switch event {
    case .opened(let token, let host, let keys):
      fields = [
        "event": "opened", "token": token, "publicKey": keys.publicKeyBase64URL,
        "authenticationSecret": keys.authenticationSecretBase64URL,
      ]
      fields["host"] = host
    case .message(let message):
      fields = ["event": "message", "id": "\(message.id)", "urgency": "\(message.urgency)"]
      fields["topic"] = message.topic
      if let text = message.text {
        fields["text"] = text
      } else {
        fields["base64"] = message.data.base64EncodedString()
      }
    case .pingFailed(let failure): fields = ["event": "ping-failed", "code": "\(failure.rawValue)"]
    case .closed(let token): fields = ["event": "closed", "token": token]
    case .error(let code): fields = ["event": "error", "code": "\(code)"]
    }
    let data = try? JSONSerialization.data(withJSONObject: fields, options: [.sortedKeys])
    return String(decoding: data ?? Data(), as: UTF8.self)
  }
}
