import ArgumentParser
import Foundation
import NIOCore
import NIOPosix
import NIOSSL

#if canImport(FoundationNetworking)
  import FoundationNetworking
#endif

/// Measures a relay from outside: this process has the devices, others have the
/// back ends, and the relay is another one.
@main
struct PushBench: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "push-bench", abstract: "Measures a push relay beside a bare WebSocket server.",
    subcommands: [Run.self, Echo.self, Send.self], defaultSubcommand: Run.self)

  struct Echo: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Serves the baseline: a WebSocket that echoes.", shouldDisplay: false)

    @Option var certificate: String?
    @Option var key: String?

    func run() async throws {
      var tls: TLSConfiguration?
      if let certificate, let key {
        tls = .makeServerConfiguration(
          certificateChain: try NIOSSLCertificate.fromPEMFile(certificate).map { .certificate($0) },
          privateKey: .privateKey(try NIOSSLPrivateKey(file: key, format: .pem)))
        tls?.minimumTLSVersion = .tlsv13
      }
      try await EchoServer.run(tls: tls)
    }
  }

  struct Send: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Sends as soon as its input ends, and prints what came of it.", shouldDisplay: false)

    @Option var port: Int
    @Option var tokens: String
    @Option var count: Int
    @Option var connections: Int
    @Option var bytes: Int

    func run() async throws {
      let senders = Senders(port: port, group: MultiThreadedEventLoopGroup.singleton)
      let list = try String(contentsOfFile: tokens, encoding: .utf8).split(separator: "\n").map(String.init)
      let outcome = try await senders.send(
        count, to: list, connections: connections, byteCount: bytes, notesTimes: false
      ) {
        print("\n", terminator: "")
        fflush(nil)
        while readLine() != nil {}
      }
      print(String(decoding: try JSONEncoder().encode(outcome), as: UTF8.self))
    }
  }

  struct Run: AsyncParsableCommand {
    @Option(help: "The program dynamics-push.") var program: String
    @Option(help: "How many channels at most.") var channels = 15_000
    @Option(help: "How many durable messages to send at full speed.") var messages = 40_000
    @Option(help: "How many processes send.") var senders = 2
    @Option(help: "Which parts to measure; all, if none is named: \(Part.allNames).") var only: [Part] = []
    @Flag(help: "A twentieth of everything: whether it works.") var short = false

    enum Part: String, CaseIterable, ExpressibleByArgument {
      case memory, latency, throughput, channels
      case tls = "channels-tls"

      static var allNames: String { allCases.map(\.rawValue).joined(separator: ", ") }
    }

    func run() async throws {
      let bench = try Bench(
        program: program, channels: short ? channels / 20 : channels,
        messages: short ? messages / 20 : messages, senderCount: senders)
      defer { bench.removeFolder() }
      for part in only.isEmpty ? Part.allCases : only {
        switch part {
        case .memory: try await bench.memory()
        case .latency: try await bench.latency()
        case .throughput: try await bench.throughput()
        case .channels: try await bench.fanOutAndRestart(isSecure: false)
        case .tls: try await bench.fanOutAndRestart(isSecure: true)
        }
      }
    }
  }
}

struct Bench: Sendable {
  let program: String
  let channels: Int
  let messages: Int
  /// Processes that send.
  let senderCount: Int
  private let folder: URL
  private let group = MultiThreadedEventLoopGroup.singleton

  init(program: String, channels: Int, messages: Int, senderCount: Int) throws {
    self.senderCount = senderCount
    self.program = program
    self.channels = channels
    self.messages = messages
    folder = FileManager.default.temporaryDirectory.appending(path: "push-bench-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    let settings = """
      {"devices": 100000, "channelsOfDevice": 100000, "newChannelsOfDevice": 100000000, \
      "newChannelsOfAddress": 100000000, "tokenRate": 100000000, "tokenBurst": 100000000, "addressRate": 100000000, \
      "connectionsOfAddress": 10000, "waitingEvents": 1000000, "loopProbeMilliseconds": 1}
      """
    try Data(settings.utf8).write(to: folder.appending(path: "settings.json"))
    var limit = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    limit.rlim_cur = limit.rlim_max
    setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    print("a process may open \(limit.rlim_cur) files; \(channels) channels")
  }

  func removeFolder() { try? FileManager.default.removeItem(at: folder) }

  // MARK: Servers

  /// A server in a process of its own.
  final class Server: Sendable {
    let ports: [String: Int]
    private let process: Process
    private let output: FileHandle

    init(_ program: String, _ arguments: [String], ports count: Int) throws {
      let process = Process()
      let pipe = Pipe()
      process.executableURL = URL(fileURLWithPath: program)
      process.arguments = arguments
      process.standardOutput = pipe
      try process.run()
      self.process = process
      output = pipe.fileHandleForReading
      var text = ""
      var ports: [String: Int] = [:]
      while ports.count < count {
        let data = output.availableData
        guard !data.isEmpty else { throw ValidationError("\(program) does not start") }
        text += String(decoding: data, as: UTF8.self)
        for line in text.split(separator: "\n") {
          let words = line.split(separator: " ")
          if words.count == 3 { ports[String(words[1])] = Int(words[2]) }
        }
      }
      self.ports = ports
    }

    /// Resident memory in bytes.
    var memory: Int {
      let status =
        (try? String(contentsOfFile: "/proc/\(process.processIdentifier)/status", encoding: .utf8)) ?? ""
      let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") } ?? ""
      return (line.split(separator: " ").compactMap { Int($0) }.first ?? 0) * 1024
    }

    /// Seconds of processor time so far.
    var processorSeconds: Double {
      let stat =
        (try? String(contentsOfFile: "/proc/\(process.processIdentifier)/stat", encoding: .utf8)) ?? ""
      // Fields 14 and 15; the second one may have spaces.
      let fields = stat.split(separator: ")").last?.split(separator: " ").map(String.init) ?? []
      guard fields.count > 12 else { return .nan }
      return ((Double(fields[11]) ?? .nan) + (Double(fields[12]) ?? .nan))
        / Double(sysconf(Int32(_SC_CLK_TCK)))
    }

    func kill() {
      Foundation.kill(process.processIdentifier, SIGKILL)
      process.waitUntilExit()
    }
  }

  private func relay(_ name: String, ports: [String: Int] = [:]) throws -> Server {
    let listen = { (option: String) in "127.0.0.1:\(ports[option] ?? 0)" }
    return try Server(
      program,
      [
        "relay", "--directory", folder.appending(path: name).path, "--settings",
        folder.appending(path: "settings.json").path, "--devices", listen("devices"), "--plain-devices",
        listen("plain-devices"), "--plain-back-ends", listen("plain-back-ends"), "--operator",
        listen("operator"), "--back-ends", "none", "--log-level", "error",
      ], ports: 4)
  }

  private func clientTLS(_ name: String) throws -> NIOSSLContext {
    var tls = TLSConfiguration.makeClientConfiguration()
    tls.trustRoots = .file(folder.appending(path: "\(name)/loopback.pem").path)
    return try NIOSSLContext(configuration: tls)
  }

  // MARK: Memory of a connection

  /// By the slope between a fifth of the channels and all of them.
  func memory() async throws {
    let count = min(channels, 6000)
    for isSecure in [false, true] {
      let relay = try relay("memory")
      defer { relay.kill() }
      var arguments = ["echo"]
      if isSecure {
        let path = { (name: String) in folder.appending(path: "memory/\(name)").path }
        arguments += ["--certificate", path("loopback.pem"), "--key", path("loopback-key.pem")]
      }
      let echo = try Server(CommandLine.arguments[0], arguments, ports: 1)
      defer { echo.kill() }
      let tls = try isSecure ? clientTLS("memory") : nil
      let bare = try await slope(echo, port: echo.ports["devices"]!, count, tls, isBare: true)
      let port = relay.ports[isSecure ? "devices" : "plain-devices"]!
      let own = try await slope(relay, port: port, count, tls, isBare: false)
      print(
        "memory of a connection, \(isSecure ? "TLS" : "plain"): relay \(own) bytes, echo server \(bare) bytes, ratio \((Double(own) / Double(bare)).rounded(to: 2))"
      )
    }
  }

  private func slope(
    _ server: Server, port: Int, _ count: Int, _ tls: NIOSSLContext?, isBare: Bool
  ) async throws -> Int {
    let devices = try Devices(count: count, port: port, tls: tls, isBare: isBare, group: group)
    try await devices.connect(0..<count / 5, atOnce: 50)
    try await Task.sleep(for: .seconds(1))
    let first = server.memory
    try await devices.connect(count / 5..<count, atOnce: 50)
    try await Task.sleep(for: .seconds(1))
    return (server.memory - first) / (count - count / 5)
  }

  // MARK: From a back end to an app

  /// To devices that do nothing but acknowledge, and to apps with the client, which store a message before they show
  /// it. All have TLS.
  func latency() async throws {
    let relay = try relay("latency")
    defer { relay.kill() }
    let port = relay.ports["devices"]!
    let devices = try Devices(
      count: 100, port: port, tls: try clientTLS("latency"), isBare: false, group: group)
    try await devices.connect(0..<100, atOnce: 20)
    let apps = try await Apps(
      count: 20, port: port, authorities: folder.appending(path: "latency/loopback.pem").path, folder: folder)
    for interface in [Senders.Interface.push, .notify] {
      let senders = Senders(port: relay.ports["plain-back-ends"]!, interface: interface, group: group)
      for (load, connections, rate) in [
        ("one at once", 1, nil), ("250 a second at random times", 16, 250), ("eight at once", 8, nil),
      ] as [(String, Int, Double?)] {
        try await latency(
          "\(interface) to a bare device, \(load)", senders, devices.tokens, connections, rate
        ) {
          devices.takeMessages().flatMap { $0 }
        }
        // Eight at once are more than the one thread of all apps can store.
        guard connections != 8 else { continue }
        try await latency(
          "\(interface) to an app, \(load)", senders, apps.tokens, connections, rate, apps.takeMessages)
      }
    }
    try await rateOfApp(relay, apps)
    await apps.stop()
  }

  private func latency(
    _ label: String, _ senders: Senders, _ tokens: [String], _ connections: Int, _ rate: Double?,
    _ take: () -> [(text: String, time: UInt64)]
  ) async throws {
    let count = min(messages, 2000)
    let outcome = try await senders.send(
      count, to: tokens, connections: connections, byteCount: 200, notesTimes: true, rate: rate)
    guard outcome.refused == 0 else { throw ValidationError("\(outcome.refused) messages were refused") }
    var times: [Double] = []
    try await wait {
      for message in take() {
        let name = message.text.trimmingCharacters(in: .whitespaces)
        if let sent = outcome.sent[name] { times.append(Double(message.time - sent) / 1e6) }
      }
      return times.count >= count
    }
    times.sort()
    let at = { (share: Double) in times[Int(Double(times.count - 1) * share)].rounded(to: 2) }
    print(
      "\(label), \(Int(Double(count) / outcome.seconds)) a second: median \(at(0.5)) ms, p99 \(at(0.99)) ms, longest \(at(1)) ms"
    )
  }

  /// How many messages a second one app shows at most.
  private func rateOfApp(_ relay: Server, _ apps: Apps) async throws {
    let senders = Senders(port: relay.ports["plain-back-ends"]!, group: group)
    let count = min(messages, 10_000)
    let begin = ContinuousClock.now
    let outcome = try await senders.send(
      count, to: [apps.tokens[0]], connections: 32, byteCount: 200, notesTimes: false)
    try await wait { apps.messages >= outcome.accepted }
    print(
      "one app: \(Int(Double(outcome.accepted) / ((ContinuousClock.now - begin) / .seconds(1)))) shown a second, \(Int(Double(outcome.accepted) / outcome.seconds)) accepted a second, \(outcome.refused) refused"
    )
  }

  // MARK: Durable messages a second

  func throughput() async throws {
    print("the disk flushes \(try flushesPerSecond()) times a second, one after the other")
    let relay = try relay("throughput")
    defer { relay.kill() }
    let devices = try Devices(
      count: 1000, port: relay.ports["plain-devices"]!, tls: nil, isBare: false, group: group)
    try await devices.connect(0..<1000, atOnce: 50)
    for connections in [64, 256] {
      let before = devices.messages
      let senders = try SenderProcesses(
        senderCount, port: relay.ports["plain-back-ends"]!, messages, to: devices.tokens,
        connections: connections, byteCount: 200, folder: folder)
      let begin = ContinuousClock.now
      let outcome = try await senders.run()
      try await wait { devices.messages - before >= outcome.accepted }
      let seconds = (ContinuousClock.now - begin) / .seconds(1)
      print(
        "durable messages, \(connections) connections: \(Int(Double(outcome.accepted) / outcome.seconds)) accepted a second, \(Int(Double(outcome.accepted) / seconds)) shown a second, \(outcome.refused) refused"
      )
    }
  }

  private func flushesPerSecond() throws -> Int {
    let path = folder.appending(path: "flush").path
    let file = open(path, O_WRONLY | O_CREAT, 0o600)
    defer { close(file) }
    let block = [UInt8](repeating: 1, count: 4096)
    let begin = ContinuousClock.now
    var count = 0
    while ContinuousClock.now - begin < .seconds(1) {
      guard write(file, block, block.count) == block.count, fdatasync(file) == 0 else {
        throw ValidationError("\(path) cannot be written")
      }
      count += 1
    }
    return count
  }

  // MARK: One body to all, and a restart

  func fanOutAndRestart(isSecure: Bool) async throws {
    let name = isSecure ? "all-tls" : "all"
    var relay = try relay(name)
    defer { relay.kill() }
    let devices = try Devices(
      count: channels, port: relay.ports[isSecure ? "devices" : "plain-devices"]!,
      tls: isSecure ? try clientTLS(name) : nil, isBare: false, group: group)
    let kind = isSecure ? "TLS" : "plain"
    var begin = ContinuousClock.now
    try await devices.connect(0..<channels, atOnce: 200)
    print(
      "\(kind): \(devices.open) channels opened in \(seconds(since: begin)) s; the relay has \(relay.memory >> 20) MiB"
    )
    let tokens = devices.tokens
    for connections in [64, 128, 256] {
      let before = devices.messages
      let senders = try SenderProcesses(
        senderCount, port: relay.ports["plain-back-ends"]!, channels, to: tokens, connections: connections,
        byteCount: 1024, folder: folder)
      _ = try await stall(relay)
      let used = relay.processorSeconds
      begin = ContinuousClock.now
      let outcome = try await senders.run()
      try await wait { devices.messages - before >= outcome.accepted }
      print(
        "\(kind): one body of 1 KiB to \(outcome.accepted) channels, \(connections) connections, \(outcome.refused) refused: last byte after \(seconds(since: begin)) s (processor time of the relay \((relay.processorSeconds - used).rounded(to: 2)) s), longest stall of a loop \(try await stall(relay)) ms"
      )
    }

    let known = devices.tokens
    relay.kill()
    try await wait { devices.open == 0 }
    begin = ContinuousClock.now
    relay = try self.relay(name, ports: relay.ports)
    try await devices.connectAgain()
    print(
      "\(kind): restart: \(devices.open) devices back after \(seconds(since: begin)) s, \(devices.tokens == known ? "with the same tokens" : "WITH OTHER TOKENS")"
    )
  }

  /// The longest delay of a loop since the last call, in milliseconds.
  private func stall(_ relay: Server) async throws -> Double {
    let url = URL(string: "http://127.0.0.1:\(relay.ports["operator"]!)/metrics")!
    let text = try String(contentsOf: url, encoding: .utf8)
    let line = text.split(separator: "\n").first { $0.hasPrefix("push_loop_stall_seconds ") }
    return ((line?.split(separator: " ").last.flatMap { Double($0) } ?? .nan) * 1000).rounded(to: 1)
  }

  private func wait(_ condition: () -> Bool) async throws {
    let end = ContinuousClock.now + .seconds(120)
    while !condition() {
      guard ContinuousClock.now < end else { throw ValidationError("it takes more than two minutes") }
      try await Task.sleep(for: .milliseconds(2))
    }
  }

  private func seconds(since begin: ContinuousClock.Instant) -> Double {
    ((ContinuousClock.now - begin) / .seconds(1)).rounded(to: 2)
  }
}

extension Double {
  fileprivate func rounded(to digits: Int) -> Double {
    let factor = pow(10, Double(digits))
    return (self * factor).rounded() / factor
  }
}
