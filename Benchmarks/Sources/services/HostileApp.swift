import Foundation
import LocalTransport
import Locks
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// An app that keeps to the protocol as far as it likes: what it says is said by ``Flood``.
final class HostileApp: Sendable {
  let appID: String
  let client: BrokerClient
  let key: KeyPair
  let path: String
  private let introductions: AsyncStream<WireIntroduction>
  private let sockets: AsyncStream<(Int32, Int32)>

  /// Under which its messages with files go, one number after the other.
  let incarnation = WireIncarnation.with {
    $0.generation = 1
    $0.draw = Identifier.random().data
  }
  private let lastNumber = Guarded<UInt64>(0)
  func nextNumber() -> UInt64 {
    lastNumber.withLock { number in
      number += 1
      return number
    }
  }

  static let user = NSUserName()

  init(_ appID: String, broker path: String, key own: KeyPair? = nil) async throws {
    self.appID = appID
    self.path = path
    let key = try own ?? KeyPair()
    self.key = key
    let (introductions, introduced) = AsyncStream<WireIntroduction>.makeStream()
    let (sockets, handed) = AsyncStream<(Int32, Int32)>.makeStream()
    (self.introductions, self.sockets) = (introductions, sockets)
    (client, _) = try await BrokerClient.begin(
      path: path, key: key, broker: nil,
      .with {
        $0.enrol.version = 1
        $0.enrol.appID = appID
        $0.enrol.activationUser = Self.user
        $0.enrol.state = .running
      },
      descriptors: { _, control, bulk in handed.yield((control, bulk)) },
      other: { message in
        if case .introduction(let introduction) = message.kind, introduction.role == .dialler {
          introduced.yield(introduction)
        }
      })
  }

  /// A channel to another app, opened and greeted. One at a time.
  func dial(_ target: String, received: @escaping @Sendable (HostileChannel, WireChannelMessage) -> Void)
    async throws -> HostileChannel
  {
    _ = try await client.ask(.connect(.with { $0.appID = target }))
    guard let introduction = await introductions.first(where: { _ in true }),
      let (control, bulk) = await sockets.first(where: { _ in true })
    else { throw ServicesError(.connectionLost) }
    let channel = HostileChannel(bulk)
    let prologue = Prologue.channel(
      ticket: introduction.ticket, dialler: (appID, Self.user), acceptor: (target, Self.user))
    try await withCheckedThrowingContinuation { (opened: CheckedContinuation<Void, any Error>) in
      let opening = Opening(opened)
      do {
        _ = try ControlLane.open(
          descriptor: control,
          sealing: .channel(
            isDialler: true, own: key, peer: introduction.publicKey, prologue: prologue),
          limits: LaneLimits(),
          events: LaneEvents(
            opened: { lane in
              channel.begin(lane)
              _ = channel.send([
                .with {
                  $0.hello.version = Exchange.versionMax
                  $0.hello.ticket = introduction.ticket
                  $0.hello.appID = self.appID
                  $0.hello.process = Identifier.random().data
                  $0.hello.requests = 1024
                  $0.hello.frameByteCount = 1 << 20
                }
              ])
              opening.take()?.resume()
            },
            received: { _, messages in for message in messages { received(channel, message) } },
            closed: { _, end in
              channel.end()
              opening.take()?.resume(throwing: ServicesError(.connectionLost, detail: "\(end)"))
            }))
      } catch {
        opening.take()?.resume(throwing: error)
      }
    }
    return channel
  }
}

/// The continuation of whoever waits for a channel to open, for the first event that says what became of it.
private final class Opening: Sendable {
  private let continuation: Guarded<CheckedContinuation<Void, any Error>?>
  init(_ continuation: CheckedContinuation<Void, any Error>) { self.continuation = Guarded(continuation) }
  func take() -> CheckedContinuation<Void, any Error>? { continuation.withLock { $0.take() } }
}

/// One channel of a hostile app. Its bulk lane is never used.
final class HostileChannel: Sendable {
  private struct Fields {
    var lane: ControlLane?
    var hasEnded = false
    var credit = 0
  }

  private let fields = Guarded(Fields())
  private let bulk: Int32

  init(_ bulk: Int32) { self.bulk = bulk }

  deinit { Foundation.close(bulk) }

  func begin(_ lane: ControlLane) { fields.withLock { $0.lane = lane } }
  func end() { fields.withLock { ($0.hasEnded, $0.lane) = (true, nil) } }

  var hasEnded: Bool { fields.withLock { $0.hasEnded } }
  /// Requests that the other app takes.
  var credit: Int { fields.withLock { $0.credit } }
  func grant(_ more: Int) { fields.withLock { $0.credit += more } }
  /// Bytes that wait to be written.
  var queuedByteCount: Int { fields.withLock { $0.lane }?.queuedByteCount ?? 0 }

  /// False when the channel has ended.
  func send(_ messages: [WireChannelMessage]) -> Bool {
    guard let lane = fields.withLock({ $0.lane }) else { return false }
    do {
      try lane.send(messages)
      return true
    } catch {
      lane.close(.noError)
      return false
    }
  }

  func close() { fields.withLock { $0.lane }?.close(.noError) }
}
