import ArgumentParser
import CPosix
import Foundation
import Logging
import ServiceBroker

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

struct BrokerCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "broker", abstract: "Runs the user's broker until a signal ends it.")

  @OptionGroup var broker: BrokerOptions

  @Option(
    help:
      "A program that brings an app to front: it is run with the app id, or with nothing, and exits with 0.",
    completion: .file())
  var compositor: String?

  @Option(help: ArgumentHelp(newAppsHelp("a process without a sandbox"), valueName: "mode"))
  var plainApps = NewAppsOption(.open(8))

  @Option(help: ArgumentHelp(newAppsHelp("a sandbox"), valueName: "mode"))
  var sandboxedApps = NewAppsOption(.ask)

  func run() async throws {
    // Ignored, as a parent may have left it, it would hide how programs have ended.
    signal(SIGCHLD, SIG_DFL)
    let logger = Logger(label: "dynamics.broker") { PrintableLog(label: $0) }
    // It has the keys of the broker and of the administrator.
    if cposix_set_dumpable(0) < 0 {
      logger.warning("other processes of the user may read this one's memory")
    }
    var configuration = ServiceBroker.Configuration(
      socketPath: broker.socketPath, stateDirectory: broker.stateDirectory,
      compositor: compositor.map { .program($0) } ?? .none)
    if let passed = try PassedSocket.take() {
      (configuration.listeningSocket, configuration.socketPath) = (passed.descriptor, passed.path)
    }
    configuration.plainApps = plainApps.value
    configuration.sandboxedApps = sandboxedApps.value
    let running = try await ServiceBroker.start(configuration, logger: logger)
    // Whoever started it may wait for this line; nobody has to read it.
    try? StandardOutput.write("listening at \(PrintableText.of(running.socketPath))\n")
    await Interruption.shared.wait()
    await running.stop()
  }
}

private func newAppsHelp(_ whose: String) -> String {
  "New app ids of \(whose): open:N takes N that nobody approved, ask waits for `dynamics apps approve`, installed refuses them."
}

struct NewAppsOption: ExpressibleByArgument {
  let value: NewApps

  init(_ value: NewApps) { self.value = value }

  init?(argument: String) {
    switch argument {
    case "ask": value = .ask
    case "installed": value = .installed
    default:
      guard argument.hasPrefix("open:"), let count = Int(argument.dropFirst("open:".count)), count >= 0 else {
        return nil
      }
      value = .open(count)
    }
  }

  var defaultValueDescription: String {
    switch value {
    case .open(let count): "open:\(count)"
    case .ask: "ask"
    case .installed: "installed"
    }
  }
}

extension Interruption {
  /// Until the first signal.
  func wait() async {
    await withCheckedContinuation { continuation in
      Thread.detachNewThread {
        var polled = pollfd(fd: self.wakeDescriptor, events: Int16(POLLIN), revents: 0)
        while !self.cancellation.isCancelled {
          guard poll(&polled, 1, -1) >= 0 || errno == EINTR else { break }
        }
        continuation.resume()
      }
    }
  }
}
