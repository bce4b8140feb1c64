import ArgumentParser
import Foundation
import Logging
import PushClient
import PushWire
import Synchronization

/// What every command of a device needs.
struct DeviceOptions: ParsableArguments {
  @Option(help: ArgumentHelp("The relay.", valueName: "url"))
  var relay = "wss://localhost:17434"

  @Option(
    help: ArgumentHelp(
      "Authorities that may certify the relay (PEM); by default the certificate in push-relay, for a relay on this machine.",
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
    let wrongAddress = ValidationError(
      "\(NamedValue(value: relay, source: "--relay")) is no address of a relay: use wss://HOST:PORT")
    guard let url = URL(string: relay) else { throw wrongAddress }
    if let authorities { try checkAuthorities(NamedValue(value: authorities, source: "--authorities")) }
    let directory = try makeDirectory(NamedValue(value: self.directory, source: "--directory"))
    var options = PushRuntime.Options(relay: url, directory: directory, stateKey: try key(in: directory))
    options.admissionKey = admissionKey
    options.authorities = authorities ?? ownAuthority(for: url)
    do {
      return try PushRuntime(options)
    } catch PushError.invalidRelay {
      throw wrongAddress
    } catch PushError.stateInUse {
      throw Failure(
        "the state in \(self.directory) is used by another process: end that one, or give another --directory"
      )
    } catch PushError.stateUnreadable {
      throw Failure(
        "the state in \(self.directory) is damaged, or state.key is not its key: put both back, or give another --directory"
      )
    }
  }

  /// Writes on the standard error why there is no connection: each new cause once.
  func report(
    _ runtime: PushRuntime, onFailure: @escaping @Sendable (PushConnectionFailure) async -> Void = { _ in }
  ) -> Task<Void, Never> {
    Task {
      var last: PushConnectionFailure?
      for await state in runtime.connectionStates {
        switch state {
        case .idle: break
        case .connected:
          if last != nil { writeError("connected to \(relay)") }
          last = nil
        case .failed(let failure):
          if failure != last { writeError("not connected to \(relay): \(advice(failure))") }
          last = failure
          await onFailure(failure)
        }
      }
    }
  }

  private func advice(_ failure: PushConnectionFailure) -> String {
    switch failure {
    case .unresolvedHost: "\(failure); check --relay; trying again"
    case .refused: "\(failure); is the relay running? trying again"
    case .unreachable, .timeout: "\(failure); check --relay and the network; trying again"
    case .certificateNotTrusted: "\(failure); give --authorities"
    case .certificateForOtherName: "\(failure); use that name in --relay"
    case .noTLS: "\(failure); give the relay's port for devices"
    case .noRelay: "\(failure); give the relay's port for devices, and wss:// if it speaks TLS"
    case .notAdmitted where admissionKey.isEmpty: "\(failure); give --admission-key"
    case .notAdmitted: "\(failure); give another --admission-key"
    case .versionNotSupported: "\(failure); use the program of that version"
    case .replaced: "\(failure); give each device a --directory of its own; trying again"
    case .stateNotStored: "\(failure); make room in \(directory); trying again"
    case .tlsFailed, .lost, .full, .stopping, .relayFailed: "\(failure); trying again"
    }
  }

  /// An app keeps this key in its container. This program has none.
  private func key(in directory: URL) throws -> Data {
    let file = directory.appendingPathComponent("state.key")
    let name = NamedValue(value: "\(self.directory)/state.key", source: "the key")
    if FileManager.default.fileExists(atPath: file.path) {
      let key = try contents(of: name)
      guard key.count == 32 else {
        throw Failure(
          "\(name) has \(key.count) bytes in place of 32: put it back, or give another --directory")
      }
      return key
    }
    var generator = SystemRandomNumberGenerator()
    let key = Data((0..<32).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
    guard
      FileManager.default.createFile(
        atPath: file.path, contents: key, attributes: [.posixPermissions: 0o600])
    else { throw Failure("\(name) cannot be made: \(systemReason())") }
    return key
  }

  func validate() throws {
    let count = admissionKey.utf8.count
    guard count <= DeviceFrame.Hello.admissionKeyByteCountMax else {
      throw ValidationError("--admission-key has \(count) bytes; at most 256 are allowed")
    }
  }
}

/// Throws for what names no channel.
private func checkIdentifier(_ identifier: String) throws {
  guard !identifier.isEmpty else {
    throw ValidationError("the channel has no name: give one, such as com.example.app")
  }
}

/// What an error of a channel means, with what to do.
private func meaning(ofError code: Int) -> String {
  switch code {
  case 0: "the call does not fit the state of the channel"
  case 500: "the relay failed; open the channel again later"
  case 502: "the relay has lost the channel; open it again, for a new token"
  case 503: "the relay takes no further channel; close others, or try again in an hour"
  case 504: "the relay's operator has revoked the token"
  case 506: "the channel was not connected for too long; open it again, for a new token"
  default: "the relay has ended the channel"
  }
}

struct OpenCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "open",
    abstract: "Opens a channel, or ends one, and prints its token.",
    discussion: "The channel stays open when the command ends, and messages wait at the relay.")

  @Argument(help: "The channel, such as com.example.app.")
  var identifier: String

  @Flag(help: "Ends the channel.")
  var close = false

  @OptionGroup var device: DeviceOptions

  /// How long the relay has to open or end the channel.
  private static let seconds = 15

  func validate() throws {
    try checkIdentifier(identifier)
  }

  func run() async throws {
    let runtime = try device.runtime()
    if close, await !runtime.canResume(identifier) {
      await runtime.stop()
      throw Failure("no channel \(identifier) is open in \(device.directory)")
    }
    let channel = runtime.channel(identifier)
    let isHopeless = Atomic(false)
    let report = device.report(runtime) { failure in
      guard failure == .notAdmitted else { return }
      isHopeless.store(true, ordering: .relaxed)
      await runtime.stop()
    }
    let deadline = Task {
      try await Task.sleep(for: .seconds(Self.seconds))
      await runtime.stop()
    }
    defer {
      report.cancel()
      deadline.cancel()
    }
    await channel.connect()
    for await event in channel.events {
      try Printer(json: device.json).print(event)
      switch event {
      case .opened where close: await channel.disconnect()
      case .opened, .closed: return await runtime.stop()
      case .error(let code):
        await runtime.stop()
        throw Failure("the channel ended with error \(code): \(meaning(ofError: code))")
      case .message, .pingFailed: break
      }
    }
    // The runtime was stopped.
    let action = close ? "ended" : "opened"
    let cause = isHopeless.load(ordering: .relaxed) ? "" : " in \(Self.seconds) seconds"
    throw Failure("the channel \(identifier) was not \(action)\(cause)")
  }
}

struct ListenCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "listen",
    abstract: "Opens a channel, and prints what arrives.")

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

  func validate() throws {
    try checkIdentifier(identifier)
    if let count, count < 0 { throw ValidationError("--count is below 0") }
  }

  func run() async throws {
    let printer = try Printer(json: device.json, file: append)
    let runtime = try device.runtime()
    let channel = runtime.channel(identifier)
    let report = device.report(runtime)
    defer { report.cancel() }
    await channel.connect()
    var count = 0
    if self.count == 0 { return await runtime.stop() }
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
        throw Failure("the channel ended with error \(code): \(meaning(ofError: code))")
      case .opened, .pingFailed: break
      }
    }
  }
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
    let descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else { throw Failure("--append \(path): \(systemReason())") }
    let file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
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
    case .error(let code): "error \(code): \(meaning(ofError: code))"
    }
  }

  private func jsonLine(_ event: PushEvent) -> String {
    var fields: [String: Any] = [:]
    switch event {
    case .opened(let token, let host, let keys):
      fields = [
        "event": "opened", "token": token, "publicKey": keys.publicKeyBase64URL,
        "authenticationSecret": keys.authenticationSecretBase64URL,
      ]
      if let host { fields["host"] = host }
    case .message(let message):
      fields = ["event": "message", "id": "\(message.id)", "urgency": "\(message.urgency)"]
      if let topic = message.topic { fields["topic"] = topic }
      if let text = message.text {
        fields["text"] = text
      } else {
        fields["base64"] = message.data.base64EncodedString()
      }
    case .pingFailed(let failure): fields = ["event": "ping-failed", "code": failure.rawValue]
    case .closed(let token): fields = ["event": "closed", "token": token]
    case .error(let code): fields = ["event": "error", "code": code]
    }
    let data = try? JSONSerialization.data(withJSONObject: fields, options: [.sortedKeys])
    return String(decoding: data ?? Data(), as: UTF8.self)
  }
}
