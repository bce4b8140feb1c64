import ArgumentParser
import Foundation
import LocalTransport
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

/// Where the broker answers: all that an app has to know of it.
struct BrokerSocketOptions: ParsableArguments {
  @Option(help: "The broker's socket; else OPENDYNAMICS_BROKER, or the user's own.", completion: .file())
  var socket: String?

  var socketPath: String { socket ?? BrokerPlaces.socketPath() }
}

/// Which broker a command is about.
struct BrokerOptions: ParsableArguments {
  @OptionGroup var place: BrokerSocketOptions

  @Option(
    help: "The broker's state directory; else OPENDYNAMICS_BROKER_STATE, or the user's own.",
    completion: .directory)
  var state: String?

  var socketPath: String { place.socketPath }
  var stateDirectory: String { state ?? BrokerPlaces.stateDirectory() }

  /// A connection that asks. The broker has to be the one of the state directory, where there is one.
  func attend() async throws -> BrokerClient {
    try await BrokerClient.attend(path: socketPath, name: "dynamics", broker: try brokerKey())
  }

  /// A connection that administers, with the key from the state directory.
  func administer() async throws -> BrokerClient {
    guard let key = try administratorKey() else {
      // Where no broker answers either, that is what to say.
      try await attend().close()
      throw CommandError.native("open", administratorKeyPath, ENOENT)
    }
    return try await BrokerClient.attend(
      path: socketPath, name: "dynamics", broker: try brokerKey(), administrator: key)
  }

  /// Sends one administrative request over a connection of its own, and returns the answer.
  @discardableResult
  func administer(_ request: WireAdminister) async throws -> WireAnswer {
    let client = try await administer()
    defer { client.close() }
    return try await client.ask(.administer(request))
  }

  var administratorKeyPath: String { stateDirectory + "/administrator.key" }

  /// Nil where no broker has made one.
  func administratorKey() throws -> KeyPair? { try key(administratorKeyPath) }

  /// The public key of the broker whose state it is; nil where there is none.
  func brokerKey() throws -> Data? { try key(stateDirectory + "/broker.key").map { Data($0.publicKey) } }

  private func key(_ path: String) throws -> KeyPair? {
    guard let bytes = try read(path) else { return nil }
    guard let key = try KeyPair(kept: bytes) else { throw ServiceBrokerError.stateDamaged(path: path) }
    return key
  }

  /// Nil when there is no such file.
  private func read(_ path: String) throws -> Data? {
    guard access(path, F_OK) == 0 || errno != ENOENT else { return nil }
    do {
      return try Data(contentsOf: URL(fileURLWithPath: path))
    } catch {
      throw CommandError.native("read", path, errno == 0 ? EIO : errno)
    }
  }
}

extension WireAppState {
  var text: String {
    switch self {
    case .notRunning: "not running"
    case .running: "running"
    case .suspended: "suspended"
    case .locked: "locked"
    case .hidden: "not shown"
    case .UNRECOGNIZED: "unknown"
    }
  }
}
