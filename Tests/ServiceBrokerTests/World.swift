import Foundation
import LocalTransport
import Locks
import Logging
import ServiceWire
import SodiumPrimitives
import TestSupport
import Testing
import UnixSockets

@testable import ServiceBroker

/// A folder of one test, mode 0700, removed with it, and brokers and apps in it.
final class World: Sendable {
  private let directory = TemporaryDirectory()
  let log = LogLines()

  var path: String { directory.path }

  var socketPath: String { path + "/run/broker" }
  var statePath: String { path + "/state" }

  func configuration(_ compositor: Compositor = .none) -> ServiceBroker.Configuration {
    ServiceBroker.Configuration(socketPath: socketPath, stateDirectory: statePath, compositor: compositor)
  }

  func broker(
    _ compositor: Compositor = .none, limits change: (inout BrokerLimits) -> Void = { _ in }
  ) async throws -> ServiceBroker {
    var configuration = configuration(compositor)
    change(&configuration.limits)
    return try await ServiceBroker.start(configuration, logger: log.logger)
  }

  func file(_ name: String) throws -> Data { try Data(contentsOf: URL(filePath: statePath + "/" + name)) }

  /// The broker's public key.
  func brokerKey() throws -> Data { Data(try key("broker.key").publicKey) }

  private func key(_ name: String) throws -> KeyPair {
    let key = try KeyPair(kept: file(name))
    return try #require(key)
  }

  func administrator() async throws -> BrokerClient {
    try await BrokerClient.attend(
      path: socketPath, name: "test", broker: brokerKey(),
      administrator: key("administrator.key"))
  }

  /// Names the program that starts an app.
  func install(_ appID: String, _ words: [String]) async throws {
    _ = try await administrator().ask(
      .administer(
        .with {
          $0.install.appID = appID
          $0.install.program.path = words[0]
          $0.install.program.arguments = Array(words.dropFirst())
        }))
  }

  /// The app as an administrator sees it; nil when nothing is known of it.
  func app(_ appID: String) async throws -> WireApp? {
    try await administrator().apps().apps.first { $0.provider.appID == appID }
  }

  func tool() async throws -> BrokerClient {
    try await BrokerClient.attend(path: socketPath, name: "test", broker: nil)
  }
}

/// What a broker has logged.
final class LogLines: Sendable {
  private let lines = Guarded<[String]>([])

  var all: [String] { lines.withLock { $0 } }

  var logger: Logger { Logger(label: "test") { _ in Handler(lines: self) } }

  struct Handler: LogHandler {
    let lines: LogLines
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace
    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }
    func log(event: LogEvent) {
      let metadata = (event.metadata ?? [:]).map { "\($0)=\($1)" }.sorted().joined(separator: " ")
      lines.lines.withLock { $0.append("\(event.level) \(event.message) \(metadata)") }
    }
  }
}
