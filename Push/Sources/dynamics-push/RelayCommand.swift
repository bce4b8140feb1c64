import ArgumentParser
import Foundation
import Logging
import NIOCore
import NIOSSL
import PushRelay
import PushWire
import ServiceLifecycle

struct RelayCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "relay", abstract: "Runs a relay.",
    discussion: """
      Everything that it keeps is in one directory: push.sqlite, relay.key, which encrypts the tokens in it, \
      and, when no certificate is given, a certificate for this machine. It stops with SIGTERM or SIGINT.

      Settings are in a JSON file or in environment variables, such as PUSH_WAITING_EVENTS for waitingEvents: \
      \(RelaySettings.names.joined(separator: ", ")).
      """)

  @Option(help: "Where the relay keeps its state.")
  var directory = "push-relay"

  @Option(help: ArgumentHelp("The relay's name in tokens.", valueName: "name"))
  var name = "local"

  @Option(help: ArgumentHelp("Where devices connect, over TLS.", valueName: "host:port"))
  var devices = "127.0.0.1:17434"

  @Option(help: ArgumentHelp("Where back ends connect, over TLS.", valueName: "host:port"))
  var backEnds = "127.0.0.1:17433"

  @Option(
    help: ArgumentHelp("Where back ends connect without TLS; 'none' for nowhere.", valueName: "host:port"))
  var plainBackEnds = "127.0.0.1:17080"

  @Option(help: ArgumentHelp("Where devices connect without TLS: for tests.", valueName: "host:port"))
  var plainDevices = "none"

  @Option(
    name: .customLong("operator"),
    help: ArgumentHelp("Where /health, /metrics and /revoke are, without TLS.", valueName: "host:port"))
  var operatorAddress = "127.0.0.1:17081"

  @Option(help: ArgumentHelp("The certificate and those above it (PEM).", valueName: "file"))
  var certificate: String?

  @Option(help: ArgumentHelp("The certificate's key (PEM).", valueName: "file"))
  var key: String?

  @Option(help: ArgumentHelp("Admission keys of devices, one a line.", valueName: "file"))
  var admissionKeys: String?

  @Flag(help: "Admits every device, also from other machines.")
  var admitAll = false

  @Flag(help: "Permits connections without TLS from other machines.")
  var allowPlain = false

  @Option(help: ArgumentHelp("Settings (JSON).", valueName: "file"))
  var settings: String?

  @Option(
    name: .customLong("allow-callbacks-to"), parsing: .singleValue,
    help: ArgumentHelp("A network that may be called back although it is not public.", valueName: "network"))
  var callbackNetworks: [String] = []

  @Option(help: ArgumentHelp("Further authorities for callbacks (PEM).", valueName: "file"))
  var callbackAuthorities: String?

  @Option(help: "trace, debug, info, notice, warning, error or critical.")
  var logLevel = "info"

  @Flag(name: .customLong("log-json"), help: "Writes each line of the log as a JSON object.")
  var logJSON = false

  func run() async throws {
    guard let level = Logger.Level(rawValue: logLevel) else {
      throw ValidationError("\(logLevel) is no level of the log")
    }
    LoggingSystem.bootstrap { [logJSON] label in
      var handler: any LogHandler =
        logJSON ? JSONLogHandler(label: label) : StreamLogHandler.standardError(label: label)
      handler.logLevel = level
      return handler
    }
    let logger = Logger(label: "dynamics-push")
    let addresses = try addresses()
    let configuration = try await relayConfiguration(addresses, logger)

    let directory = URL(fileURLWithPath: directory)
    try FileManager.default.createDirectory(
      at: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    let prometheus = PrometheusMetrics()
    let store = try SQLiteStore(path: directory.appendingPathComponent("push.sqlite").path)
    let caller = try CallbackClient(configuration: configuration, logger: logger)
    let vault = try TokenVault(keyFile: directory.appendingPathComponent("relay.key").path)
    try await vault.check(store)
    let relay = Relay(
      configuration: configuration, store: store, vault: vault, caller: caller,
      metrics: RelayMetrics(factory: prometheus), logger: logger)
    let server = try RelayServer(
      relay: relay, addresses: addresses, tls: try tls(directory), prometheus: prometheus, logger: logger
    ) { ports in
      for (name, port) in ports.named { print("listening: \(name) \(port)") }
      fflush(nil)
    }
    var group = ServiceGroupConfiguration(
      services: [server], gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
    group.maximumGracefulShutdownDuration = .seconds(10)
    try await ServiceGroup(configuration: group).run()
    caller.close()
    try store.close()
  }

  private func addresses() throws -> RelayServer.Addresses {
    var addresses = RelayServer.Addresses()
    addresses.devices = try address(devices, "devices")
    addresses.backEnds = try address(backEnds, "back-ends")
    addresses.plainDevices = try address(plainDevices, "plain-devices")
    addresses.plainBackEnds = try address(plainBackEnds, "plain-back-ends")
    addresses.operator = try address(operatorAddress, "operator")
    if let devices = addresses.plainDevices, !devices.isLoopback {
      throw ValidationError("--plain-devices is for loopback addresses: \(devices) is none")
    }
    if let plain = addresses.plainBackEnds, !plain.isLoopback, !allowPlain {
      throw ValidationError(
        "back ends at \(plain) would send tokens in clear text: use --back-ends, or --allow-plain on a network that you trust"
      )
    }
    let isPublic = [addresses.devices, addresses.backEnds].contains { $0.map { !$0.isLoopback } ?? false }
    if isPublic, certificate == nil {
      throw ValidationError("other machines need a certificate that they trust: give --certificate and --key")
    }
    if let devices = addresses.devices, !devices.isLoopback, admissionKeys == nil, !admitAll {
      throw ValidationError(
        "devices at \(devices) may come from anywhere: give --admission-keys, or --admit-all")
    }
    guard (certificate == nil) == (key == nil) else {
      throw ValidationError("--certificate and --key go together")
    }
    return addresses
  }

  private func address(_ text: String, _ option: String) throws -> ListenAddress? {
    if text == "none" { return nil }
    guard let address = ListenAddress(text) else {
      throw ValidationError("--\(option) \(text): write HOST:PORT, or none")
    }
    return address
  }

  /// A relay that runs out of open files cannot even close connections orderly, so its limits stay below.
  private func fitToOpenFiles(_ configuration: inout RelayConfiguration, _ logger: Logger) {
    let available = OpenFiles.raiseLimit()
    let reserve = 200
    let wanted = configuration.devices + configuration.newConnections + configuration.connections + reserve
    guard wanted > available else { return }
    configuration.connections = min(configuration.connections, max(16, available / 10))
    configuration.newConnections = min(configuration.newConnections, max(16, available / 20))
    let rest = available - configuration.connections - configuration.newConnections - reserve
    configuration.devices = min(configuration.devices, max(1, rest))
    logger.notice(
      "this process may open \(available) files, and wants \(wanted): limits are lowered",
      metadata: [
        "devices": "\(configuration.devices)", "newConnections": "\(configuration.newConnections)",
        "connections": "\(configuration.connections)",
      ])
  }

  private func relayConfiguration(
    _ addresses: RelayServer.Addresses, _ logger: Logger
  ) async throws -> RelayConfiguration {
    var configuration = RelayConfiguration()
    guard let name = RelayName(name) else {
      throw ValidationError("--name \(name): 1 to 63 of a-z, 0-9, '.' and '-'")
    }
    configuration.name = name
    try await RelaySettings(file: settings).apply(to: &configuration)
    for text in callbackNetworks {
      guard let network = Network(text) else {
        throw ValidationError("--allow-callbacks-to \(text): write ADDRESS/BITS, such as 10.0.0.0/8")
      }
      configuration.callbackNetworks.append(network)
    }
    configuration.callbackAuthorities = callbackAuthorities
    fitToOpenFiles(&configuration, logger)
    if let admissionKeys {
      let text = try String(contentsOfFile: admissionKeys, encoding: .utf8)
      let keys = Set(text.split(whereSeparator: \.isNewline).map { $0.trimmingCharacters(in: .whitespaces) })
        .subtracting([""])
      guard !keys.isEmpty else { throw ValidationError("\(admissionKeys) has no keys") }
      guard keys.allSatisfy({ $0.utf8.count <= DeviceFrame.Hello.admissionKeyByteCountMax }) else {
        throw ValidationError("\(admissionKeys): a key has at most 256 bytes")
      }
      configuration.admissionKeys = keys
    }
    return configuration
  }

  private func tls(_ directory: URL) throws -> TLSConfiguration {
    if let certificate, let key {
      return try RelayServer.tls(
        certificate: String(contentsOfFile: certificate, encoding: .utf8),
        key: String(contentsOfFile: key, encoding: .utf8))
    }
    let certificateFile = directory.appendingPathComponent("loopback.pem")
    let keyFile = directory.appendingPathComponent("loopback-key.pem")
    let old = try? String(contentsOf: certificateFile, encoding: .utf8)
    if old.map(LoopbackCertificate.isCurrent) != true {
      try? FileManager.default.removeItem(at: keyFile)
      let made = try LoopbackCertificate()
      guard
        FileManager.default.createFile(
          atPath: keyFile.path, contents: Data(made.key.utf8), attributes: [.posixPermissions: 0o600])
      else { throw Failure(description: "\(keyFile.path) cannot be made") }
      try Data(made.certificate.utf8).write(to: certificateFile, options: .atomic)
    }
    return try RelayServer.tls(
      certificate: String(contentsOf: certificateFile, encoding: .utf8),
      key: String(contentsOf: keyFile, encoding: .utf8))
  }
}
