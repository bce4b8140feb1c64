import Foundation
import ServiceWire
import Testing

@testable import LocalTransport

/// What a side says last is heard, whatever is on its way to it.
@Suite(.timeLimit(.minutes(10)))
struct GoodbyeTests {
  let world: LaneWorld
  /// A lane that waits for its peer alone hangs with it, instead of ending by luck.
  var patient = LaneLimits.patient

  init() throws {
    world = try LaneWorld()
    patient.lingerTime = .seconds(3600)
  }

  /// Closing with bytes unread resets the connection. Each lane is a race, so there are many.
  @Test func isHeardByAPeerThatStillSends() async throws {
    for _ in 0..<50 {
      let (near, far) = try await world.openLanes(
        limits: patient,
        answers: (
          { _, _ in },
          { lane, event in
            if case .received = event { lane.close(.limitExceeded, detail: "requests") }
          }
        ))
      for number in 0..<50 { try near.0.send([.ping(number), .filler(byteCount: 10_000)]) }
      let (nearEnd, farEnd) = (await near.1.end(), await far.1.end())
      #expect(nearEnd == LaneEnd(.peer, .limitExceeded, "requests"))
      #expect(farEnd == LaneEnd(.here, .limitExceeded, "requests"))
    }
  }

  @Test func isHeardWhenBothSayIt() async throws {
    for _ in 0..<50 {
      let (near, far) = try await world.openLanes(limits: patient)
      try near.0.send([.filler(byteCount: 10_000)])
      near.0.close(.noError)
      try far.0.send([.filler(byteCount: 10_000)])
      far.0.close(.shuttingDown)
      let (nearEnd, farEnd) = (await near.1.end(), await far.1.end())
      // Whoever heard the other's before its own turn came, heard it.
      #expect([LaneEnd(.here, .noError), LaneEnd(.peer, .shuttingDown)].contains(nearEnd))
      #expect([LaneEnd(.here, .shuttingDown), LaneEnd(.peer, .noError)].contains(farEnd))
      #expect(nearEnd?.side == .here || farEnd?.side == .here)
    }
  }

  /// More than the socket takes at once.
  @Test func comesAfterWhatWaitsToBeWritten() async throws {
    let (near, far) = try await world.openLanes(limits: patient)
    let message = WireChannelMessage.filler(byteCount: 1_000_000)
    try near.0.send([message, message, message])
    near.0.close(.noError)
    #expect(await far.1.messages(3) == [message, message, message])
    #expect(await far.1.next() == .closed(LaneEnd(.peer, .noError)))
    #expect(await near.1.end() == LaneEnd(.here, .noError))
  }

  /// Also when the lane is closed as soon as it opens.
  @Test(arguments: [false, true])
  func comesAfterWhatWaitedForTheHandshake(isDialler: Bool) async throws {
    let sockets = try SocketPair()
    let (lane, _) = try world.lane(isDialler: isDialler, sockets.near, limits: patient) { lane, event in
      if event == .opened { lane.close(.shuttingDown) }
    }
    let sent: [WireChannelMessage] = [.ping(1), .filler(byteCount: 300_000), .ping(2)]
    try lane.send(sent)
    let (_, far) = try world.lane(world.farSealing(isDialler: !isDialler), sockets.far)
    var received: [WireChannelMessage] = []
    while let event = await far.next() {
      if case .received(let messages) = event { received += messages }
      guard case .closed(let end) = event else { continue }
      #expect(end == LaneEnd(.peer, .shuttingDown))
      break
    }
    #expect(received == sent)
  }

  // MARK: How long a side waits

  /// A peer that got the goodbye, and of whose socket somebody still has a copy.
  private func peerThatDoesNotClose(
    _ limits: LaneLimits
  ) async throws -> (SocketPair, EventLog, copy: Int32) {
    let sockets = try SocketPair()
    let copy = dup(sockets.far)
    let (lane, near) = try world.lane(isDialler: false, sockets.near, limits: limits)
    let peer = try LoosePeer(sockets.far, world.farSealing(isDialler: true))
    #expect(await near.next() == .opened)
    lane.close(.noError)
    #expect(try await peer.frames() == [.goodbye(0)])
    return (sockets, near, copy)
  }

  @Test func staysUntilThePeerHasClosed() async throws {
    let (sockets, near, copy) = try await peerThatDoesNotClose(patient)
    #expect(sockets.isNearOpen)
    #expect(close(copy) == 0)
    #expect(await near.next() == .closed(LaneEnd(.here, .noError)))
    #expect(!sockets.isNearOpen)
  }

  @Test func staysNoLongerThanTheLimit() async throws {
    #expect(LaneLimits().lingerTime == .seconds(1))
    var limits = LaneLimits.patient
    limits.lingerTime = .milliseconds(20)
    let (sockets, near, copy) = try await peerThatDoesNotClose(limits)
    #expect(await near.next() == .closed(LaneEnd(.here, .noError)))
    #expect(!sockets.isNearOpen)
    #expect(close(copy) == 0)
  }
}
