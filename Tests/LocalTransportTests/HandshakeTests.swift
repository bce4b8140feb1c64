import Foundation
import NIOSSL
import ServiceWire
import TestSupport
import Testing

@testable import LocalTransport

/// Who may speak on a control lane, and what others are told.
@Suite(.timeLimit(.minutes(10)), .everyPlace)
struct HandshakeTests {
  let world: LaneWorld

  init() throws { world = try LaneWorld() }

  // MARK: Certificates

  enum Wrong: CaseIterable {
    case otherAuthority, otherApp, otherUser

    var fault: ProtocolFault { self == .otherUser ? .enterpriseUserNotMatch : .certificateNotFound }

    func identity(_ world: LaneWorld) throws -> LaneWorld.Identity {
      switch self {
      case .otherAuthority: try world.identity("far", by: CertificateAuthority())
      case .otherApp: try world.identity("third")
      case .otherUser: try world.identity("far", user: "other")
      }
    }
  }

  @Test(arguments: LaneRole.allCases, Wrong.allCases)
  func refusesAPeerWithTheWrongCertificate(role: LaneRole, wrong: Wrong) async throws {
    let sockets = try SocketPair()
    let other: LaneRole = role == .dialler ? .acceptor : .dialler
    let (_, near) = try world.lane(role, sockets.near)
    let (_, far) = try world.lane(other, sockets.far, as: wrong.identity(world), expecting: "near")
    let end = await near.next()
    guard case .closed(let nearEnd)? = end else {
      Issue.record("\(String(describing: end)) before the end")
      return
    }
    #expect(nearEnd.fault == wrong.fault)
    #expect(nearEnd.side == .here)
    let farEnd = await far.end()
    #expect(farEnd?.fault == .certificateNotFound)
    #expect(farEnd?.side == .peer)
  }

  @Test func refusesADiallerWithoutACertificate() async throws {
    let sockets = try SocketPair()
    let (_, near) = try world.lane(.acceptor, sockets.near)
    let peer = try await LoosePeer(.dialler, sockets.far, world.configuration(.dialler, as: nil))
    let end = await near.end()
    #expect(end?.fault == .certificateNotFound)
    #expect(try await peer.frames().isEmpty)
    #expect(!sockets.isNearOpen)
  }

  // MARK: Versions

  @Test(arguments: LaneRole.allCases)
  func refusesAPeerThatSpeaksNoTLS13(role: LaneRole) async throws {
    let sockets = try SocketPair()
    let other: LaneRole = role == .dialler ? .acceptor : .dialler
    let (_, near) = try world.lane(role, sockets.near)
    let peer = try await LoosePeer(
      other, sockets.far, world.configuration(other, as: world.identity("far"), versions: (.tlsv12, .tlsv12)))
    await #expect(throws: (any Error).self) { try await peer.handshake() }
    #expect(await near.end()?.fault == .versionNotSupported)
    #expect(!sockets.isNearOpen)
  }

  // MARK: What is no TLS

  @Test(arguments: LaneRole.allCases, [0, 1])
  func closesOnPlainTextAndGarbage(role: LaneRole, kind: Int) async throws {
    let sockets = try SocketPair()
    let (_, near) = try world.lane(role, sockets.near)
    let seed = UInt64.random(in: 0 ... .max)
    var random = SplitMix64(seed: seed)
    // The first byte of a record of TLS is 20 to 24; the others are no type at all. The second is 3, and the type is
    // not looked at before as many bytes are there as the record says.
    let garbage =
      [UInt8.random(in: 64...255, using: &random), .random(in: 4...255, using: &random)]
      + (0..<2000).map { _ in .random(in: 0...255, using: &random) }
    sockets.write(kind == 0 ? Array("GET / HTTP/1.1\r\n\r\n".utf8) : garbage)
    #expect(await near.end()?.fault == .malformed, "seed \(seed)")
    #expect(!sockets.isNearOpen)
    sockets.closeFar()
  }

  @Test(arguments: LaneRole.allCases, [0, 1, 5, 30])
  func endsAHandshakeThatIsNotComplete(role: LaneRole, byteCount: Int) async throws {
    let sockets = try SocketPair()
    var limits = LaneLimits.patient
    limits.beginningTime = .milliseconds(100)
    let (_, near) = try world.lane(role, sockets.near, limits: limits)
    // The beginning of a record of a handshake, and of a hello of 256 bytes.
    let hello: [UInt8] =
      [22, 3, 1, 1, 4, role == .acceptor ? 1 : 2, 0, 1, 0, 3, 3] + Array(repeating: 7, count: 19)
    if byteCount > 0 { sockets.write(hello.prefix(byteCount)) }
    let end = await near.next()
    guard case .closed(let nearEnd)? = end else {
      Issue.record("\(String(describing: end)) before the end")
      return
    }
    #expect(nearEnd.fault == .timedOut)
    #expect(!sockets.isNearOpen)
    sockets.closeFar()
  }

  @Test(arguments: LaneRole.allCases, [0, 1, 5, 30])
  func tellsOfAConnectionThatEndsInTheHandshake(role: LaneRole, byteCount: Int) async throws {
    let sockets = try SocketPair()
    let (_, near) = try world.lane(role, sockets.near)
    let hello: [UInt8] =
      [22, 3, 1, 1, 4, role == .acceptor ? 1 : 2, 0, 1, 0, 3, 3] + Array(repeating: 7, count: 19)
    if byteCount > 0 { sockets.write(hello.prefix(byteCount)) }
    sockets.closeFar()
    let end = await near.next()
    guard case .closed(let nearEnd)? = end else {
      Issue.record("\(String(describing: end)) before the end")
      return
    }
    #expect(nearEnd.fault == .connectionLost)
    #expect(nearEnd.side == .neither)
    #expect(!sockets.isNearOpen)
  }

  @Test func endsALaneWhosePeerSaysNothingAfterTheHandshake() async throws {
    // On a busy machine the handshake itself may take that long: then there is nobody to say goodbye to.
    for time in [0.3, 3, 30] {
      let sockets = try SocketPair()
      var limits = LaneLimits.patient
      limits.beginningTime = .seconds(time)
      let (_, near) = try world.lane(.acceptor, sockets.near, limits: limits)
      let peer = try await LoosePeer(
        .dialler, sockets.far, world.configuration(.dialler, as: world.identity("far")))
      let frames = try await peer.frames()
      guard await near.next() == .opened else { continue }
      #expect(frames == [.goodbye(ProtocolFault.timedOut.rawValue)])
      #expect(await near.end()?.fault == .timedOut)
      return
    }
    Issue.record("no handshake in 30 s")
  }

  // MARK: This side's own

  @Test func closesTheDescriptorWhenItsOwnIdentityCannotBeUsed() throws {
    let sockets = try SocketPair()
    let identity = try world.identity("near")
    let events = EventLog { _, _ in }
    #expect(throws: (any Error).self) {
      try ControlLane.open(
        descriptor: sockets.near, role: .dialler, key: identity.key, certificate: Data([1, 2, 3]),
        peer: .leaf(authority: world.authority.certificate, appID: "far", activationUser: "user"),
        events: events.events, on: LanePlace.tested)
    }
    #expect(!sockets.isNearOpen)
    sockets.closeFar()
  }

  @Test func tellsOfADescriptorThatIsNoSocket() async throws {
    let descriptor = open("/dev/null", O_RDWR)
    try #require(descriptor >= 0)
    let (_, near) = try world.lane(.dialler, descriptor)
    #expect(await near.end()?.fault == .connectionLost)
  }

  @Test(arguments: LaneRole.allCases)
  func closesBeforeTheHandshakeIsDone(role: LaneRole) async throws {
    let sockets = try SocketPair()
    let (lane, near) = try world.lane(role, sockets.near)
    lane.close(.shuttingDown)
    lane.close(.malformed)
    #expect(await near.next() == .closed(LaneEnd(.here, .shuttingDown)))
    #expect(!sockets.isNearOpen)
    sockets.closeFar()
  }
}
