import AppKinetics
import AppRuntime
import ArgumentParser
import ContainerStore
import Foundation
import LauncherPage
import SecureFiles
import ServiceBroker
import ServiceWire
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

struct LauncherCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "launcher", abstract: "Shows the user's apps to a browser, until it is interrupted.",
    discussion: """
      It prints the file that leads there. The page shows which apps run, and how many messages each of them has on their way, and starts and \
      fronts them. The broker takes it when it was installed: --install makes its key in the broker's state directory, and approves that.
      """)

  @Flag(help: "Makes the launcher's key, and approves it at the broker. The broker has to run.")
  var install = false

  @Option(help: "The user whose apps it shows; the system's user without it.")
  var user: String?

  @Flag(help: "Prints each event as a JSON object on a line of its own.")
  var json = false

  @OptionGroup var broker: BrokerOptions

  var reportsJSON: Bool { json }

  func validate() throws {
    if install, user != nil || json {
      throw ValidationError("--install makes a key and shows nothing: --user and --json are for afterwards.")
    }
  }

  func run() throws {
    let place = LauncherPlace(broker.stateDirectory)
    let application = Application(id: .launcher, name: "Launcher", activationUser: user)
    if install {
      // Whatever keeps an administrator away is said before anything is made.
      try AsyncWork.run { [broker] in try await broker.administer().close() }
      let fingerprint = try keyFingerprint([try place.install(application)])
      try AsyncWork.run { [broker] in
        _ = try await broker.administer(
          .with { $0.approve = .with { ($0.appID, $0.keyFingerprint) = (application.id.text, fingerprint) } })
      }
      return
    }
    let report = EventReport(asJSON: json, bar: ArrivalBar(SharedProgressBar(nil)))
    defer { report.flush() }
    var options = AppRuntime.Options()
    options.services = broker.place.services
    // It is no app that others see.
    options.services.registers = false
    options.logger = options.services.logger
    options.launcher = [.setStaysOpen(true)]
    let passphrase = try Answer(try place.secret())
    try AsyncWork.run { [options] in
      let runtime = try await AppRuntime(
        application, containerAt: URL(filePath: place.container), options: options, prepare: { _, _ in })
      do {
        try await Self.show(runtime, passphrase, report)
        await runtime.stop()
      } catch {
        await runtime.stop()
        throw error
      }
    }
  }

  private static func show(_ runtime: AppRuntime, _ passphrase: Answer, _ report: EventReport) async throws {
    try await runtime.authorize(passphrase: passphrase.copy())
    let services = try runtime.opened().services
    // A broker that is not there may come; one that does not take it, or has forgotten it, has to be told to.
    func isWaitedFor(_ error: ServicesError) -> Bool {
      [.brokerUnavailable, .connectionLost].contains(error.code)
    }
    if let error = services.connectionError, !isWaitedFor(error) { throw error }
    let page = try await LauncherPage(of: runtime)
    report.write(AppEvent("launcher", path: page.link.path))
    var refusal: ServicesError?
    for await error in services.connectionErrors {
      guard let error else { continue }
      guard isWaitedFor(error) else {
        refusal = error
        break
      }
      StandardError.write("dynamics: \(error)\n")
    }
    await page.stop()
    if let refusal { throw refusal }
  }
}

/// Where the launcher that shows all apps has its key: a container of its own in the broker's state directory, and a file with what opens it.
struct LauncherPlace: Sendable {
  let container: String
  private let passphrase: String

  init(_ stateDirectory: String) {
    (container, passphrase) = (stateDirectory + "/launcher", stateDirectory + "/launcher.key")
  }

  /// Makes what is not there yet, and returns the fingerprint of the launcher's key.
  func install(_ application: Application) throws -> String {
    // Also after an installation that was interrupted.
    if (try? Container.requireContainer(at: container)) == nil {
      // 256 bits as a line of text.
      let line = Data((Hexadecimal.text(Random.bytes(32)) + "\n").utf8)
      try StateFiles.write(line, passphrase, temporary: passphrase + ".new")
      try Container.create(at: container, credential: try secret().credential()).close()
    }
    return try withContainer(at: container, try secret(), mode: .readWrite) { store in
      let services = try AppServices(application, container: SecureContainer(store))
      return services.keyFingerprint
    }
  }

  func secret() throws -> Secret {
    guard access(passphrase, F_OK) == 0 || errno != ENOENT else {
      throw CommandError(
        .launcherNotInstalled, path: passphrase,
        detail: access(container, F_OK) == 0
          ? "\(PrintableText.of(container)) cannot be opened without that file: remove it first" : nil)
    }
    return try SecretInput.passphraseFile(passphrase)
  }
}
