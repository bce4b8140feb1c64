import Foundation
import LocalTransport
import ServiceWire
import SodiumPrimitives
import Synchronization
import TestSupport
import UnixSockets

@testable import ServiceBroker

/// An app, as the broker sees one.
final class TestApp: Sendable {
  let client: BrokerClient
  let enrolled: WireEnrolled
  /// Everything that is no answer and of no watch.
  let messages: AsyncStream<WireBrokerMessage>
  let descriptors: AsyncStream<Handed>

  /// What came on the descriptor lane.
  final class Handed: Sendable {
    let ticket: Data
    let control: UnixConnection
    let bulk: UnixConnection

    init(_ ticket: Data, _ control: Int32, _ bulk: Int32) throws {
      self.ticket = ticket
      self.control = try UnixConnection(adopting: Descriptor(adopting: control))
      self.bulk = try UnixConnection(adopting: Descriptor(adopting: bulk))
    }
  }

  init(
    _ world: World, _ appID: String, key: KeyPair, state: WireAppState = .running, user: String = "u",
    broker: Data? = nil
  ) async throws {
    let (messages, messageInput) = AsyncStream<WireBrokerMessage>.makeStream()
    let (descriptors, descriptorInput) = AsyncStream<Handed>.makeStream()
    self.messages = messages
    self.descriptors = descriptors
    let beginning = WireBrokerMessage.with {
      $0.enrol.version = 1
      $0.enrol.appID = appID
      $0.enrol.activationUser = user
      $0.enrol.state = state
    }
    (client, enrolled) = try await BrokerClient.begin(
      path: world.socketPath, key: key, broker: broker, beginning,
      descriptors: { ticket, control, bulk in
        if let handed = try? Handed(ticket, control, bulk) { descriptorInput.yield(handed) }
      }, other: { messageInput.yield($0) })
  }

  func register(_ services: [(String, String)] = []) async throws {
    _ = try await client.ask(
      .register(
        .with {
          $0.name = "App"
          $0.services = services.map { id, version in
            .with {
              $0.id = id
              $0.version = version
            }
          }
        }))
  }

  func connect(to appID: String) async throws -> Data {
    try await client.ask(.connect(.with { $0.appID = appID })).introduced.ticket
  }

  func become(_ state: WireAppState) async throws {
    _ = try await client.ask(.state(.with { $0.state = state }))
  }

  /// The next message of a kind, past all others.
  func next<Value>(_ kind: (WireBrokerMessage) -> Value?) async throws -> Value {
    for await message in messages { if let value = kind(message) { return value } }
    throw TestFailure("the connection ended")
  }

  func introduction() async throws -> WireIntroduction {
    try await next { if case .introduction(let introduction)? = $0.kind { introduction } else { nil } }
  }

  func handed() async throws -> Handed {
    for await handed in descriptors { return handed }
    throw TestFailure("no descriptors")
  }

  /// Until the connection ends, and why.
  func end() async -> ProtocolFault {
    do {
      for try await _ in client.watch(WireFind()) {}
      return .noError
    } catch {
      return error as? ProtocolFault ?? .malformed
    }
  }
}
