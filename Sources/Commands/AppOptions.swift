import AppKinetics
import AppRuntime
import ArgumentParser
import ContainerStore
import Foundation
import Locks
import Logging
import SecureFiles
import ServiceWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Throws `ValidationError` for what is no application id.
func checkApplicationID(_ text: String, _ option: String) throws {
  do {
    _ = try ApplicationID(text)
  } catch {
    throw ValidationError("\(option) \(PrintableText.of(text)): \(error.detail ?? "no application id").")
  }
}

extension BrokerSocketOptions {
  /// The options of services that talk to this broker, and log warnings on standard error.
  var services: AppServices.Options {
    var options = AppServices.Options()
    options.broker = socketPath
    options.logger = Logger(label: "dynamics", factory: { PrintableLog(label: $0) })
    options.logger.logLevel = .warning
    return options
  }
}

/// The app that a command is among the others.
struct AppOptions: ParsableArguments {
  @Argument(help: "The app's container.", completion: .directory)
  var dir: String

  @Option(help: ArgumentHelp("The app's id, its address.", valueName: "app-id"))
  var id: String

  @Option(help: "The app's name, for people; the id without it.")
  var name: String?

  @Option(help: "The user that the app was activated for; the system's user without it.")
  var user: String?

  @OptionGroup var broker: BrokerSocketOptions
  @OptionGroup var credential: CredentialOptions

  func validate() throws {
    try checkApplicationID(id, "--id")
    guard (1...Self.textByteCountMax).contains(user?.utf8.count ?? 1),
      (1...Self.textByteCountMax).contains(name?.utf8.count ?? 1)
    else { throw ValidationError("--name and --user have 1 to \(Self.textByteCountMax) bytes.") }
  }

  /// What a broker takes.
  private static let textByteCountMax = BrokerLimits().nameByteCountMax

  /// Runs the app until it is interrupted; its runtime opens the container when it may.
  func runManaged(
    by file: String?, hasLauncher: Bool, _ report: EventReport, prepare: @escaping AppRuntime.Preparation
  ) throws {
    let secret = try credential.secret(for: dir)
    try Container.requireContainer(at: dir)
    var options = AppRuntime.Options()
    options.management = file.map { ManagementSource(path: $0) }
    options.services = broker.services
    options.logger = options.services.logger
    if let file, access(file, F_OK) != 0, errno == ENOENT {
      StandardError.write(
        "dynamics: \(PrintableText.of(file)) is not there: until it is, nobody manages the app\n")
    }
    options.container.acceptsOlderState = secret.acceptsOlderState
    let managed = ManagedApp(
      application: Application(id: try ApplicationID(id), name: name ?? id, activationUser: user),
      url: URL(filePath: dir), options: options, hasLauncher: hasLauncher, report: report, prepare: prepare)
    let first = Guarded<Answer?>(try Answer(secret))
    try AsyncWork.run { try await managed.run(first) }
  }

  /// Opens the container, and closes it again whatever happens. Without `registers` the app is there for what it sends and its replies only.
  func withServices<R>(
    registers: Bool = true, containerOptions: Container.Options = Container.Options(),
    _ body: (AppServices, SecureContainer) throws -> R
  ) throws -> R {
    let secret = try credential.secret(for: dir)
    return try withContainer(at: dir, secret, mode: .readWrite, options: containerOptions) { store in
      let container = SecureContainer(store)
      var options = broker.services
      options.registers = registers
      let services = try AppServices(
        Application(id: ApplicationID(id), name: name ?? id, activationUser: user), container: container,
        options: options)
      // Requests for the app are no matter of a command that only sends: they wait until the app runs.
      if !registers { try AsyncWork.run { try await services.setState(.suspended) } }
      do {
        let result = try body(services, container)
        try AsyncWork.run { await services.stop() }
        return result
      } catch {
        try AsyncWork.run { await services.stop() }
        throw error
      }
    }
  }
}
