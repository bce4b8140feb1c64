import Foundation
import ServiceWire
import SodiumPrimitives
import TestSupport
import Testing
import UnixSockets

@testable import LocalTransport

/// Who may speak on a control lane, and what others are told.
@Suite(.timeLimit(.minutes(10)))
struct HandshakeTests {
  let world: LaneWorld

  init() throws { world = try LaneWorld() }

  // MARK: Keys

  enum Wrong: CaseIterable {
    /// The peer has another key than the introduced one.
    case ownKey
    /// The peer was told another key of this side.
    case peersKey
    /// The peer is of another introduction.
    case prologue

    func sealing(_ world: LaneWorld, isDialler: Bool) throws -> LaneSealing {
      switch self {
      case .ownKey: world.farSealing(isDialler: isDialler, as: try KeyPair())
      case .peersKey: world.farSealing(isDialler: isDialler, expecting: try KeyPair())
      case .prologue: world.farSealing(isDialler: isDialler, prologue: [])
      }
    }
  }

  /// The acceptor finds it in the first message, and says nothing.
  @Test(arguments: [false, true], Wrong.allCases)
  func refusesAPeerOfAnotherIntroduction(isDialler: Bool, wrong: Wrong) async throws {
    let sockets = try SocketPair()
    let (_, near) = try world.lane(isDialler: isDialler, sockets.near)
    let (_, far) = try world.lane(wrong.sealing(world, isDialler: !isDialler), sockets.far)
    let (acceptor, dialler) = isDialler ? (far, near) : (near, far)
    guard case .closed(let end)? = await acceptor.next() else {
      Issue.record("the acceptor has opened")
      return
    }
    #expect(end.fault == .certificateNotFound && end.side == .here)
    guard case .closed(let otherEnd)? = await dialler.next() else {
      Issue.record("the dialler has opened")
      return
    }
    #expect(otherEnd.fault == .connectionLost && otherEnd.side == .neither)
    #expect(!sockets.isNearOpen)
  }

  enum Answer: CaseIterable {
    case random
    /// Of somebody with a key of its own.
    case anothers
    /// Of the right acceptor, to another first message.
    case recorded

    func message(_ world: LaneWorld) throws -> [UInt8] {
      guard self != .random else { return Random.bytes(48) }
      let own = self == .recorded ? world.far : try KeyPair()
      var dialler = try LaneSealing.channel(
        isDialler: true, own: world.near, peer: Data(own.publicKey), prologue: world.prologue
      ).handshake()
      var acceptor = try world.farSealing(isDialler: false, as: own).handshake()
      _ = try acceptor.read(dialler.write())
      return try acceptor.write()
    }
  }

  /// Whoever cannot read the first message, and answers all the same.
  @Test(arguments: Answer.allCases) func refusesAnAcceptorWithoutTheKey(answer: Answer) async throws {
    let sockets = try SocketPair()
    let (_, near) = try world.lane(isDialler: true, sockets.near)
    #expect(await sockets.read(50).count == 50)
    sockets.write(SealingByHand.withLength(try answer.message(world)))
    #expect(await near.next() == .closed(Self.notProved))
    #expect(await sockets.read(1).isEmpty)
    #expect(!sockets.isNearOpen)
    sockets.closeFar()
  }

  private static let notProved = LaneEnd(
    .here, .certificateNotFound, "the peer did not prove the key that it should have")

  /// 0, 1, -1 and the points of order 8: they give the same secret with every private key.
  static let lowOrder: [[UInt8]] = [
    [UInt8](repeating: 0, count: 32), [1] + [UInt8](repeating: 0, count: 31),
    [0xec] + [UInt8](repeating: 0xff, count: 30) + [0x7f],
    [
      0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a,
      0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
    ],
    [
      0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef, 0x5b,
      0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57,
    ],
  ]

  @Test(arguments: [false, true], lowOrder)
  func refusesAnEphemeralKeyOfLowOrder(isDialler: Bool, key: [UInt8]) async throws {
    let sockets = try SocketPair()
    let (_, near) = try world.lane(isDialler: isDialler, sockets.near)
    if isDialler { #expect(await sockets.read(50).count == 50) }
    sockets.write(SealingByHand.withLength(key + Random.bytes(16)))
    #expect(await near.next() == .closed(Self.notProved))
    #expect(!sockets.isNearOpen)
    sockets.closeFar()
  }

  /// Whoever plays a recorded beginning again gets an answer that is of no use, and is not heard.
  @Test func actsOnNothingOfARecordedConnection() async throws {
    let first = try SocketPair()
    let (lane, log) = try world.lane(isDialler: false, first.near)
    let peer = try await PeerByHand(first, world.farSealing(isDialler: true))
    #expect(await log.next() == .opened)
    let record = try peer.record([.ping(1)])
    first.write(record)
    #expect(await log.messages(1) == [.ping(1)])
    lane.close(.noError)
    first.closeFar()
    let second = try SocketPair()
    let (_, near) = try world.lane(isDialler: false, second.near)
    second.write(peer.handshakeMessage + record)
    #expect(await near.next() == .opened)
    #expect(await near.next() == .closed(LaneEnd(.here, .malformed, "a record that does not open")))
    #expect(await second.read(100).count == 50)
    second.closeFar()
  }

  // MARK: What is no handshake

  @Test(arguments: [false, true], [0, 1, 47, 49, 96, 0xffff])
  func closesOnAMessageOfAnotherLength(isDialler: Bool, byteCount: Int) async throws {
    let sockets = try SocketPair()
    let (_, near) = try world.lane(isDialler: isDialler, sockets.near)
    // The length alone is enough.
    sockets.write([UInt8(byteCount & 0xff), UInt8(byteCount >> 8)])
    #expect(await near.next() == .closed(LaneEnd(.here, .malformed, "no handshake")))
    #expect(!sockets.isNearOpen)
    sockets.closeFar()
  }

  @Test(arguments: [false, true])
  func closesOnPlainTextAndGarbage(isDialler: Bool) async throws {
    let seed = UInt64.random(in: 0 ... .max)
    var random = SplitMix64(seed: seed)
    for bytes in [
      Array("GET / HTTP/1.1\r\n\r\n".utf8),
      [49] + (0..<2000).map { _ in .random(in: 0...255, using: &random) },
    ] {
      let sockets = try SocketPair()
      let (_, near) = try world.lane(isDialler: isDialler, sockets.near)
      sockets.write(bytes)
      #expect(await near.end()?.fault == .malformed, "seed \(seed)")
      #expect(!sockets.isNearOpen)
      sockets.closeFar()
    }
  }

  @Test(arguments: [false, true], [0, 1, 2, 5, 30])
  func endsAHandshakeThatIsNotComplete(isDialler: Bool, byteCount: Int) async throws {
    let sockets = try SocketPair()
    var limits = LaneLimits.patient
    limits.beginningTime = .milliseconds(100)
    let (_, near) = try world.lane(isDialler: isDialler, sockets.near, limits: limits)
    if byteCount > 0 { sockets.write(SealingByHand.withLength(Random.bytes(48)).prefix(byteCount)) }
    guard case .closed(let end)? = await near.next() else {
      Issue.record("opened")
      return
    }
    #expect(end.fault == .timedOut)
    #expect(!sockets.isNearOpen)
    sockets.closeFar()
  }

  @Test(arguments: [false, true], [0, 1, 2, 5, 30])
  func tellsOfAConnectionThatEndsInTheHandshake(isDialler: Bool, byteCount: Int) async throws {
    let sockets = try SocketPair()
    let (_, near) = try world.lane(isDialler: isDialler, sockets.near)
    if byteCount > 0 { sockets.write(SealingByHand.withLength(Random.bytes(48)).prefix(byteCount)) }
    sockets.closeFar()
    guard case .closed(let end)? = await near.next() else {
      Issue.record("opened")
      return
    }
    #expect(end.fault == .connectionLost && end.side == .neither)
    #expect(!sockets.isNearOpen)
  }

  @Test func endsALaneWhosePeerSaysNothingAfterTheHandshake() async throws {
    // On a busy machine the handshake itself may take that long: then there is nobody to say goodbye to.
    for time in [0.3, 3, 30] {
      let sockets = try SocketPair()
      var limits = LaneLimits.patient
      limits.beginningTime = .seconds(time)
      let (_, near) = try world.lane(isDialler: false, sockets.near, limits: limits)
      let peer = try LoosePeer(sockets.far, world.farSealing(isDialler: true))
      let frames = try await peer.frames()
      guard await near.next() == .opened else { continue }
      #expect(frames == [.goodbye(ProtocolFault.timedOut.rawValue)])
      #expect(await near.end()?.fault == .timedOut)
      return
    }
    Issue.record("no handshake in 30 s")
  }

  // MARK: This side's own

  @Test(arguments: [0, 31, 33])
  func closesTheDescriptorWhenThePeersKeyIsNone(byteCount: Int) throws {
    let sockets = try SocketPair()
    #expect(throws: ProtocolFault.malformed) {
      try world.lane(
        .channel(isDialler: true, own: world.near, peer: Data(count: byteCount), prologue: []), sockets.near)
    }
    #expect(!sockets.isNearOpen)
    sockets.closeFar()
  }

  @Test func takesNoDescriptorThatIsNoSocket() throws {
    let descriptor = open("/dev/null", O_RDWR)
    try #require(descriptor >= 0)
    #expect(throws: SocketError.notASocket(path: nil)) { try world.lane(isDialler: true, descriptor) }
  }

  @Test(arguments: [false, true])
  func closesBeforeTheHandshakeIsDone(isDialler: Bool) async throws {
    let sockets = try SocketPair()
    let (lane, near) = try world.lane(isDialler: isDialler, sockets.near)
    lane.close(.shuttingDown)
    lane.close(.malformed)
    #expect(await near.next() == .closed(LaneEnd(.here, .shuttingDown)))
    #expect(!sockets.isNearOpen)
    sockets.closeFar()
  }
}
