import Foundation
import Locks
import ServiceWire
import TestSupport
import Testing

@testable import LocalTransport

/// What crosses a control lane after the handshake, and how it ends.
@Suite(.timeLimit(.minutes(10)))
struct ControlLaneTests {
  let world: LaneWorld

  init() throws { world = try LaneWorld() }

  /// A lane, and a peer with the right key that then sends whatever it likes.
  func openLoosely(
    isDialler: Bool = false, limits: LaneLimits = .patient
  ) async throws -> (SocketPair, ControlLane, EventLog, LoosePeer) {
    let sockets = try SocketPair()
    let (lane, near) = try world.lane(isDialler: isDialler, sockets.near, limits: limits)
    let peer = try LoosePeer(sockets.far, world.farSealing(isDialler: !isDialler))
    try await peer.handshake()
    #expect(await near.next() == .opened)
    return (sockets, lane, near, peer)
  }

  // MARK: Messages

  @Test func carriesMessagesBothWays() async throws {
    let (near, far) = try await world.openLanes()
    try near.0.send([.ping(1), .ping(2)])
    #expect(await far.1.messages(2) == [.ping(1), .ping(2)])
    try far.0.send([.ping(3)])
    #expect(await near.1.messages(1) == [.ping(3)])
    near.0.close(.noError)
    #expect(await far.1.next() == .closed(LaneEnd(.peer, .noError)))
    #expect(await near.1.next() == .closed(LaneEnd(.here, .noError)))
  }

  @Test func keepsWhatIsSentBeforeTheHandshakeForAfterIt() async throws {
    let sockets = try SocketPair()
    let (lane, _) = try world.lane(isDialler: true, sockets.near)
    try lane.send([.ping(1)])
    try lane.send([.ping(2)])
    let (other, far) = try world.lane(world.farSealing(isDialler: false), sockets.far)
    #expect(await far.next() == .opened)
    #expect(await far.messages(2) == [.ping(1), .ping(2)])
    other.close(.noError)
  }

  @Test func keepsTheOrderOfEachThread() async throws {
    // The far side says nothing, and the near one waits for all.
    var limits = LaneLimits.patient
    limits.beginningTime = .seconds(3600)
    let (near, far) = try await world.openLanes(limits: limits)
    let seed = UInt64.random(in: 0 ... .max)
    let (batches, count) = (200, 2)
    await withTaskGroup { group in
      for sender in 0..<count {
        group.addTask {
          var random = SplitMix64(seed: seed &+ UInt64(sender))
          for batch in 0..<batches {
            let messages = (0..<3).map { part in
              WireChannelMessage.with {
                $0.request.serviceID = "\(sender)"
                $0.request.attachments = UInt64(batch * 3 + part)
                $0.request.method = String(repeating: "x", count: Int.random(in: 0...20_000, using: &random))
              }
            }
            do { try near.0.send(messages) } catch { Issue.record(error) }
          }
        }
      }
    }
    let received = await far.1.messages(batches * 3 * count).map(\.request)
    for sender in 0..<count {
      let numbers = received.filter { $0.serviceID == "\(sender)" }.map(\.attachments)
      #expect(numbers == (0..<UInt64(batches * 3)).map { $0 }, "seed \(seed)")
    }
    near.0.close(.noError)
  }

  @Test func answersWithinAnEvent() async throws {
    let (near, far) = try await world.openLanes(
      answers: (
        { _, _ in },
        { lane, event in
          guard case .received(let messages) = event else { return }
          for message in messages {
            do { try lane.send([.with { $0.pong.number = message.ping.number }]) } catch {
              Issue.record(error)
            }
          }
        }
      ))
    for number in 0..<100 {
      try near.0.send([.ping(number)])
      #expect(await near.1.messages(1) == [.with { $0.pong.number = UInt64(number) }])
    }
    far.0.close(.noError)
  }

  @Test func carriesAFrameOfTheGreatestLengthAndSendsNoneAboveIt() async throws {
    let (near, far) = try await world.openLanes()
    let byteCountMax = LaneLimits().frameByteCountMax
    #expect(byteCountMax == 1_114_112)
    #expect(throws: ProtocolFault.frameTooLong) {
      try near.0.send([.ping(1), .filler(byteCount: byteCountMax + 1)])
    }
    let greatest = WireChannelMessage.filler(byteCount: byteCountMax)
    try near.0.send([greatest])
    #expect(await far.1.messages(1) == [greatest])
    near.0.limitSentFrames(to: 100)
    try near.0.send([.filler(byteCount: 100)])
    #expect(throws: ProtocolFault.frameTooLong) { try near.0.send([.filler(byteCount: 101)]) }
    #expect(await far.1.messages(1) == [.filler(byteCount: 100)])
    near.0.close(.noError)
  }

  /// Its lists were counted before anything of it was read.
  @Test func aFrameWithLongerListsThanMayBeEndsTheLane() async throws {
    var limits = LaneLimits.patient
    limits.elementCountMax = 10
    let (near, far) = try await world.openLanes(limits: limits)
    func list(_ count: Int) -> WireChannelMessage {
      .with { $0.request.params.array.elements = Array(repeating: WireValue(), count: count) }
    }
    try near.0.send([list(10)])
    #expect(await far.1.messages(1) == [list(10)])
    try near.0.send([.ping(1), list(11), .ping(2)])
    #expect(await far.1.messages(1) == [.ping(1)])
    await far.1.expectEnd(.here, .limitExceeded)
    await near.1.expectEnd(.peer, .limitExceeded)
    #expect(LaneLimits().elementCountMax == 100_512)
  }

  /// Until then there is nothing in memory but the bytes that came.
  @Test func readsNoMessageBeforeItsTurn() async throws {
    let sockets = try SocketPair()
    let turns = Guarded((begun: 0, passed: 0))
    let gate = DispatchSemaphore(value: 0)
    let log = EventLog { _, _ in }
    var events = log.events
    events.turn = LaneTurn(
      begin: {
        turns.withLock { $0.begun += 1 }
        gate.wait()
      }, pass: { turns.withLock { $0.passed += 1 } })
    let near = try ControlLane.open(
      descriptor: sockets.near,
      sealing: .channel(
        isDialler: true, own: world.near, peer: Data(world.far.publicKey), prologue: world.prologue),
      limits: .patient, events: events)
    let far = try world.lane(world.farSealing(isDialler: false), sockets.far)
    #expect(await log.next() == .opened)
    #expect(await far.1.next() == .opened)
    try far.0.send([.ping(1)])
    while turns.withLock({ $0.begun }) == 0 { await Task.yield() }
    // What comes meanwhile is read in the next turn, and what is sent goes out.
    try far.0.send([.ping(2)])
    try near.send([.ping(3)])
    #expect(await far.1.messages(1) == [.ping(3)])
    gate.signal()
    #expect(await log.messages(1) == [.ping(1)])
    gate.signal()
    #expect(await log.messages(1) == [.ping(2)])
    // A goodbye is for no owner.
    far.0.close(.noError)
    while turns.withLock({ $0.begun }) == 2 { await Task.yield() }
    gate.signal()
    await log.expectEnd(.peer, .noError)
    #expect(turns.withLock { $0 == (3, 1) })
  }

  // MARK: The end

  @Test func deliversAllThatWasSentBeforeTheGoodbye() async throws {
    let (near, far) = try await world.openLanes()
    try near.0.send([.ping(1)])
    try near.0.send([.ping(2), .ping(3)])
    near.0.close(.limitExceeded, detail: "requests under way")
    #expect(await far.1.messages(3) == [.ping(1), .ping(2), .ping(3)])
    #expect(await far.1.next() == .closed(LaneEnd(.peer, .limitExceeded, "requests under way")))
    #expect(await near.1.next() == .closed(LaneEnd(.here, .limitExceeded, "requests under way")))
    try near.0.send([.ping(4)])
    #expect(near.0.queuedByteCount == 0)
    near.0.close(.malformed)
  }

  /// The order of events is checked by `EventLog`.
  @Test func tellsTheEndAfterTheEventThatBroughtIt() async throws {
    let close: EventLog.Answer = { lane, event in
      if event == .opened { lane.close(.shuttingDown) }
    }
    let sockets = try SocketPair()
    let (_, near) = try world.lane(isDialler: false, sockets.near, answer: close)
    let (_, far) = try world.lane(world.farSealing(isDialler: true), sockets.far)
    #expect(await near.next() == .opened)
    #expect(await near.next() == .closed(LaneEnd(.here, .shuttingDown)))
    #expect(await far.end() == LaneEnd(.peer, .shuttingDown))
    #expect(!sockets.isNearOpen)
  }

  @Test(arguments: [false, true])
  func takesAnEndWithoutAGoodbyeForALostConnection(isHalf: Bool) async throws {
    let (sockets, _, near, peer) = try await openLoosely()
    peer.write(try WireChannelMessage.ping(1).frame(byteCountMax: 100))
    #expect(await near.messages(1) == [.ping(1)])
    if isHalf { peer.endWriting() } else { peer.breakOff() }
    let end = await near.end()
    #expect(end?.fault == .connectionLost)
    #expect(end?.side == .neither)
    #expect(!sockets.isNearOpen)
  }

  @Test(
    arguments: [
      (0, "", LaneEnd(.peer, .noError)), (101, "", LaneEnd(.peer, .frameTooLong)),
      (16, "channels", LaneEnd(.peer, .limitExceeded, "channels")),
      (4711, "", LaneEnd(.peer, .malformed, "a goodbye with the unknown number 4711")),
    ] as [(UInt32, String, LaneEnd)])
  func tellsWhatTheGoodbyeSaid(error: UInt32, detail: String, end: LaneEnd) async throws {
    let (_, _, near, peer) = try await openLoosely()
    let goodbye = try WireChannelMessage.goodbye(error, detail).frame(byteCountMax: 1000)
    let late = try WireChannelMessage.ping(1).frame(byteCountMax: 1000)
    peer.write(goodbye + late)
    #expect(await near.next() == .closed(end))
  }

  // MARK: Faults of a peer

  @Test(
    arguments: [
      ([0, 0, 0, 0], .frameTooLong),
      ([1, 0, 17, 0, 8], .frameTooLong),  // one more than the limit
      ([255, 255, 255, 255], .frameTooLong),
      ([2, 0, 0, 0, 0xff, 0xff], .malformed),
      ([3, 0, 0, 0, 0xba, 0x3e, 0], .malformed),  // the unknown kind 999
    ] as [([UInt8], ProtocolFault)])
  func closesWithTheFaultOfTheFrame(bytes: [UInt8], fault: ProtocolFault) async throws {
    let (sockets, _, near, peer) = try await openLoosely()
    let before = try WireChannelMessage.ping(1).frame(byteCountMax: 100)
    let ignored: [UInt8] = [3, 0, 0, 0, 0xc2, 0x3e, 0]
    peer.write(Array(before) + ignored + bytes + Array(before))
    #expect(await near.messages(1) == [.ping(1)])
    #expect(await near.next() == .closed(LaneEnd(.here, fault)))
    #expect(try await peer.frames() == [.goodbye(fault.rawValue)])
    #expect(!sockets.isNearOpen)
  }

  @Test(arguments: [1, 4, 5, 1000])
  func endsALaneWhoseFrameIsNotComplete(byteCount: Int) async throws {
    var limits = LaneLimits.patient
    limits.frameTime = .milliseconds(100)
    let (_, _, near, peer) = try await openLoosely(limits: limits)
    peer.write(try WireChannelMessage.ping(1).frame(byteCountMax: 100))
    #expect(await near.messages(1) == [.ping(1)])
    peer.write(try WireChannelMessage.filler(byteCount: 2000).frame(byteCountMax: 2000).prefix(byteCount))
    #expect(try await peer.frames() == [.goodbye(ProtocolFault.timedOut.rawValue)])
    #expect(await near.end()?.fault == .timedOut)
  }

  @Test func takesNoMoreMemoryThanAFrameHas() async throws {
    let limits = LaneLimits.patient
    let (_, _, near, peer) = try await openLoosely(limits: limits)
    // Says that it is the longest that may be, and goes on after its end: what comes then is a length again.
    let byteCountMax = limits.frameByteCountMax
    let length = FrameDecoder.length(byteCountMax)
    peer.write(
      length + Array(repeating: UInt8(0xff), count: byteCountMax) + Array(repeating: 0xff, count: 1 << 24))
    #expect(await near.end()?.fault == .malformed)
  }

  /// Who sends within an event holds up the thread that would write what waits: then the sender does, before it gives the peer up.
  @Test func goesOnSendingWithinAnEvent() async throws {
    var limits = LaneLimits.patient
    limits.queuedByteCountMax = 256 << 10
    limits.queuedFactorMax = 2
    let wasTaken = Guarded(true)
    let (near, _) = try await world.openLanes(
      limits: limits,
      answers: (
        { _, _ in },
        { lane, event in
          guard event == .received([.ping(1)]) else { return }
          for _ in 0..<100 {
            try? lane.send([.filler(byteCount: 32 << 10)])
            let end = ContinuousClock.now + .seconds(30)
            while lane.queuedByteCount > 256 << 10, ContinuousClock.now < end {
              Thread.sleep(forTimeInterval: 0.001)
              try? lane.send([.ping(2)])
            }
            if ContinuousClock.now >= end {
              wasTaken.withLock { $0 = false }
              return lane.close(.noError)
            }
          }
          try? lane.send([.ping(3)])
        }
      ))
    try near.0.send([.ping(1)])
    while let event = await near.1.next() {
      if case .closed = event {
        Issue.record("\(event)")
        return
      }
      if case .received(let messages) = event, messages.contains(.ping(3)) { break }
    }
    #expect(wasTaken.withLock { $0 })
  }

  /// An event whose thread goes on with work for others keeps no answer back.
  @Test func writesWithinAnEventWhenItIsAsked() async throws {
    let isOver = DispatchSemaphore(value: 0)
    let (near, _) = try await world.openLanes(
      limits: .patient,
      answers: (
        { _, _ in },
        { lane, event in
          guard event == .received([.ping(1)]) else { return }
          try? lane.send([.ping(2)])
          lane.flush()
          try? lane.send([.ping(3)])
          isOver.wait()
        }
      ))
    try near.0.send([.ping(1)])
    var answers: [WireChannelMessage] = []
    while answers.count < 2, let event = await near.1.next() {
      guard case .received(let messages) = event else { continue }
      answers += messages
    }
    #expect(answers == [.ping(2), .ping(3)])
    isOver.signal()
  }
}
