import ArgumentParser
import Foundation
import Logging
import NIOCore
import NIOPosix
import NIOSSL
import PushRelay
import PushWire
import ServiceLifecycle
import UnixSockets

struct RelayCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "relay", abstract: "Runs a relay.",
    discussion: """
      Everything that it keeps is in one directory: push.sqlite, relay.key, which encrypts the tokens in it, \
      and, when no certificate is given, a certificate for this machine. It stops with SIGTERM or SIGINT.

      Settings are in a JSON file or in environment variables, which override the file; options override \
      both. waitingEvents in the file is PUSH_WAITING_EVENTS in the environment, and PUSH_SETTINGS names the \
      file. The settings: \(RelaySettings.names.joined(separator: ", ")).
      """)

  @Option(
    help: ArgumentHelp("Where the relay keeps its state. (default: push-relay)", valueName: "directory"))
  var directory: String?

  @Option(help: ArgumentHelp("The relay's name in tokens. (default: local)", valueName: "name"))
  var name: String?

  @Option(
    help: ArgumentHelp(
      "Where devices connect, over TLS; 'none' for nowhere. (default: 127.0.0.1:17434)",
      valueName: "host:port"))
  var devices: String?

  @Option(
    help: ArgumentHelp(
      "Where back ends connect, over TLS. (default: 127.0.0.1:17433)", valueName: "host:port"))
  var backEnds: String?

  @Option(
    help: ArgumentHelp(
      "Where back ends connect without TLS. (default: 127.0.0.1:17080)", valueName: "host:port")
  )
  var plainBackEnds: String?

  @Option(
    help: ArgumentHelp(
      "Where devices connect without TLS: for tests. (default: none)", valueName: "host:port"))
  var plainDevices: String?

  @Option(
    name: .customLong("operator"),
    help: ArgumentHelp(
      "Where /health, /metrics and /revoke are, without TLS. (default: 127.0.0.1:17081)",
      valueName: "host:port"))
  var operatorAddress: String?

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

  @Option(help: "trace, debug, info, notice, warning, error or critical. (default: info)")
  var logLevel: String?

  @Flag(name: .customLong("log-json"), help: "Writes each line of the log as a JSON object.")
  var logJSON = false

  func run() async throws {
    let settings = try await RelaySettings(file: settings)
    try startLog(settings)
    let logger = Logger(label: DynamicsPush.name)
    let listeners = try listeners(settings)
    var configuration = try relayConfiguration(settings)
    let directory = try makeDirectory(
      settings.text("directory", option: "--directory", directory)
        ?? NamedValue(value: "push-relay", source: "--directory"))
    let tls = try tls(settings, directory)
    try await listeners.check()
    fitToOpenFiles(&configuration, logger)

    let prometheus = PrometheusMetrics()
    let store = try openStore(directory.appendingPathComponent("push.sqlite").path)
    let caller = try CallbackClient(configuration: configuration, logger: logger)
    // Last, so that a start that fails leaves no new key behind.
    let vault = try await openVault(directory.appendingPathComponent("relay.key").path, store)
    let relay = Relay(
      configuration: configuration, store: store, vault: vault, caller: caller,
      metrics: RelayMetrics(factory: prometheus), logger: logger)
    let server = try RelayServer(
      relay: relay, addresses: listeners.addresses, tls: tls, prometheus: prometheus, logger: logger
    ) { ports in
      for (name, port) in ports.named { print("listening: \(name) \(port)") }
      fflush(nil)
    }
    var group = ServiceGroupConfiguration(
      services: [server], gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
    group.maximumGracefulShutdownDuration = .seconds(10)
    do {
      try await ServiceGroup(configuration: group).run()
    } catch let error as IOError {
      throw Failure("a port cannot be opened: \(systemReason(error.errnoCode))")
    }
    caller.close()
    try store.close()
  }

  private func startLog(_ settings: RelaySettings) throws {
    let name = settings.text("logLevel", option: "--log-level", logLevel)
    guard let level = name.map({ Logger.Level(rawValue: $0.value) }) ?? .info else {
      let levels = Logger.Level.allCases.map(\.rawValue).joined(separator: ", ")
      throw ValidationError("\(name?.description ?? ""): write one of \(levels)")
    }
    let isJSON = try settings.flag("logJson", logJSON)
    LoggingSystem.bootstrap { label in
      RelayLogHandler(
        isJSON ? JSONLogHandler(label: label) : StreamLogHandler.standardError(label: label), level: level)
    }
  }

  // MARK: Addresses

  /// Where the relay listens, and the options that say so.
  private struct Listeners {
    var addresses = RelayServer.Addresses()
    var named: [(option: String, address: ListenAddress)] = []

    /// Binds each address for a moment, so that an error names the option.
    func check() async throws {
      var bound: [any Channel] = []
      var failure: Failure?
      for (option, address) in named where address.port != 0 {
        do {
          bound.append(
            try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
              .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
              .bind(host: address.host, port: address.port).get())
        } catch {
          failure = Failure("\(option) \(address): \(Self.cause(error, address))")
          break
        }
      }
      for channel in bound { try? await channel.close() }
      if let failure { throw failure }
    }

    private static func cause(_ error: any Error, _ address: ListenAddress) -> String {
      switch (error as? IOError)?.errnoCode {
      case EADDRINUSE: "port \(address.port) is in use; stop the program that has it, or give another port"
      case EACCES: "port \(address.port) needs a privilege; give one above 1023"
      case EADDRNOTAVAIL: "this machine has no such address"
      case let code?: systemReason(code)
      case nil: "the name cannot be resolved"
      }
    }
  }

  private func listeners(_ settings: RelaySettings) throws -> Listeners {
    var listeners = Listeners()
    func address(_ setting: String, _ option: String, _ value: String?, _ standard: String) throws
      -> (source: String, address: ListenAddress)?
    {
      let text =
        settings.text(setting, option: option, value) ?? NamedValue(value: standard, source: option)
      if text.value == "none" { return nil }
      guard let address = ListenAddress(text.value) else {
        throw ValidationError("\(text): write HOST:PORT, or none")
      }
      listeners.named.append((text.source, address))
      return (text.source, address)
    }
    let devices = try address("devicesAddress", "--devices", devices, "127.0.0.1:17434")
    let plainDevices = try address("plainDevicesAddress", "--plain-devices", plainDevices, "none")
    let backEnds = try address("backEndsAddress", "--back-ends", backEnds, "127.0.0.1:17433")
    let plainBackEnds = try address(
      "plainBackEndsAddress", "--plain-back-ends", plainBackEnds, "127.0.0.1:17080")
    let operatorAddress = try address(
      "operatorAddress", "--operator", operatorAddress, "127.0.0.1:17081")

    guard !listeners.named.isEmpty else {
      throw ValidationError(
        "all addresses are none: give one of --devices, --back-ends, --plain-back-ends and --operator")
    }
    let allowsPlain = try settings.flag("allowPlain", allowPlain)
    if let plainDevices, !plainDevices.address.isLoopback {
      throw ValidationError(
        "\(plainDevices.source) \(plainDevices.address): only a loopback address is allowed; use --devices")
    }
    if let plainBackEnds, !plainBackEnds.address.isLoopback, !allowsPlain {
      throw ValidationError(
        "\(plainBackEnds.source) \(plainBackEnds.address): back ends would send tokens in clear text; use --back-ends, or --allow-plain on a network that you trust"
      )
    }
    if let operatorAddress, !operatorAddress.address.isLoopback, !allowsPlain {
      throw ValidationError(
        "\(operatorAddress.source) \(operatorAddress.address): /revoke and /metrics have neither TLS nor a password; use a loopback address, or --allow-plain on a network that you trust"
      )
    }
    let isCertified = settings.text("certificate", option: "--certificate", certificate) != nil
    let hasKey = settings.text("key", option: "--key", key) != nil
    guard isCertified == hasKey else {
      throw ValidationError("--certificate and --key go together: give both")
    }
    for listener in [devices, backEnds].compactMap({ $0 }) where !listener.address.isLoopback && !isCertified
    {
      throw ValidationError(
        "\(listener.source) \(listener.address): other machines need a certificate that they trust; give --certificate and --key"
      )
    }
    let hasAdmission = settings.text("admissionKeys", option: "--admission-keys", admissionKeys) != nil
    if let devices, !devices.address.isLoopback, !hasAdmission, try !settings.flag("admitAll", admitAll) {
      throw ValidationError(
        "\(devices.source) \(devices.address): devices may come from anywhere; give --admission-keys, or --admit-all"
      )
    }
    listeners.addresses.devices = devices?.address
    listeners.addresses.plainDevices = plainDevices?.address
    listeners.addresses.backEnds = backEnds?.address
    listeners.addresses.plainBackEnds = plainBackEnds?.address
    listeners.addresses.operator = operatorAddress?.address
    return listeners
  }

  // MARK: Configuration

  /// A relay that runs out of open files cannot even close connections, so its limits stay below that.
  private func fitToOpenFiles(_ configuration: inout RelayConfiguration, _ logger: Logger) {
    let limit = (try? DescriptorLimit.raiseSoftToHard()) ?? (try? DescriptorLimit.current())
    let available = limit.map { Int(clamping: $0.soft) } ?? 256
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

  private func relayConfiguration(_ settings: RelaySettings) throws -> RelayConfiguration {
    var configuration = RelayConfiguration()
    if let text = settings.text("name", option: "--name", name) {
      guard let name = RelayName(text.value) else {
        throw ValidationError("\(text): write 1 to 63 of a-z, 0-9, '.' and '-'")
      }
      configuration.name = name
    }
    try settings.apply(to: &configuration)
    for text in callbackNetworks {
      guard let network = Network(text) else {
        throw ValidationError("--allow-callbacks-to \(text): write ADDRESS/BITS, such as 10.0.0.0/8")
      }
      configuration.callbackNetworks.append(network)
    }
    let authorities = settings.text(
      "callbackAuthorities", option: "--callback-authorities", callbackAuthorities)
    if let authorities { try checkAuthorities(authorities) }
    configuration.callbackAuthorities = authorities?.value
    if let file = settings.text("admissionKeys", option: "--admission-keys", admissionKeys) {
      let text = String(decoding: try contents(of: file), as: UTF8.self)
      let keys = Set(text.split(whereSeparator: \.isNewline).map { $0.trimmingCharacters(in: .whitespaces) })
        .subtracting([""])
      guard !keys.isEmpty else { throw Failure("\(file) has no keys: write one a line") }
      guard keys.allSatisfy({ $0.utf8.count <= DeviceFrame.Hello.admissionKeyByteCountMax }) else {
        throw Failure("\(file) has a key of more than 256 bytes")
      }
      configuration.admissionKeys = keys
    }
    return configuration
  }

  private func tls(_ settings: RelaySettings, _ directory: URL) throws -> TLSConfiguration {
    if let certificate = settings.text("certificate", option: "--certificate", certificate),
      let key = settings.text("key", option: "--key", key)
    {
      return try tls(certificate, key)
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
      else { throw Failure("\(keyFile.path) cannot be made: \(systemReason())") }
      do {
        try Data(made.certificate.utf8).write(to: certificateFile, options: .atomic)
      } catch {
        throw Failure("\(certificateFile.path) cannot be written: \(reason(error))")
      }
    }
    do {
      return try tls(
        NamedValue(value: certificateFile.path, source: "the certificate"),
        NamedValue(value: keyFile.path, source: "the key"))
    } catch let error as Failure {
      throw Failure("\(error); delete loopback.pem and loopback-key.pem, and the relay makes new ones")
    }
  }

  private func tls(_ certificate: NamedValue, _ key: NamedValue) throws -> TLSConfiguration {
    let chain = try contents(of: certificate)
    let secret = try contents(of: key)
    guard let certificates = try? NIOSSLCertificate.fromPEMBytes(Array(chain)), !certificates.isEmpty else {
      throw Failure("\(certificate) has no certificate in PEM form")
    }
    guard (try? NIOSSLPrivateKey(bytes: Array(secret), format: .pem)) != nil else {
      throw Failure("\(key) has no private key in PEM form without a passphrase")
    }
    do {
      let tls = try RelayServer.tls(
        certificate: String(decoding: chain, as: UTF8.self), key: String(decoding: secret, as: UTF8.self))
      _ = try NIOSSLContext(configuration: tls)
      return tls
    } catch {
      throw Failure("\(key) is not the key of \(certificate)")
    }
  }

  // MARK: State

  private func openStore(_ path: String) throws -> SQLiteStore {
    let name = NamedValue(value: path, source: "the database")
    let advice = "check its owner and permissions, and those of its directory"
    if FileManager.default.fileExists(atPath: path) {
      guard access(path, R_OK | W_OK) == 0 else {
        throw Failure("\(name) cannot be written: \(systemReason()); \(advice)")
      }
      let head = try FileHandle(forReadingFrom: URL(fileURLWithPath: path)).read(upToCount: 16) ?? Data()
      guard head.isEmpty || head == Data("SQLite format 3\0".utf8) else {
        throw Failure("\(name) is damaged: put a backup back")
      }
    }
    do {
      return try SQLiteStore(path: path)
    } catch {
      let text = "\(error)".lowercased()
      if text.contains("another process") || text.contains("locked") {
        throw Failure("\(name) is used by another process: a directory is for one relay")
      }
      guard text.contains("damaged") || text.contains("malformed") else {
        throw Failure("\(name) cannot be opened or written: \(advice), and the room on its disk")
      }
      throw Failure(
        "\(name) is damaged: put a backup back, or delete push.sqlite, push.sqlite-wal and push.sqlite-shm, which ends all channels"
      )
    }
  }

  /// Makes no key for a database that has another one.
  private func openVault(_ path: String, _ store: SQLiteStore) async throws -> TokenVault {
    if !FileManager.default.fileExists(atPath: path), try await store.anyToken() != nil {
      throw Failure(
        "the key \(path) is missing: put relay.key back, or delete push.sqlite, push.sqlite-wal and push.sqlite-shm, which ends all channels"
      )
    }
    let vault = try TokenVault(keyFile: path)
    try await vault.check(store)
    return vault
  }
}
