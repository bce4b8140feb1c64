import Foundation
import SodiumPrimitives
import SwiftProtobuf
import TestSupport

@testable import ServiceWire

/// The deliveries of two apps back to back, with outboxes and ledgers that outlive processes, and channels that deliver in order, late, and
/// sometimes break: what happens next is drawn from a seed. Notes what of it breaks the protocol's promises.
final class DeliveryWorld {
  enum Side: Int, CaseIterable, Sendable {
    case a, b
    var other: Side { self == .a ? .b : .a }
  }

  struct Chunk {
    let stream: UInt32
    let byteCount: UInt64
  }

  /// Both lanes of a channel, by who receives.
  struct Pipe {
    var messages: [Side: [WireChannelMessage]] = [.a: [], .b: []]
    var chunks: [Side: [Chunk]] = [.a: [], .b: []]
    /// Whether the side has seen the end.
    var ended: [Side: Bool] = [.a: false, .b: false]
    var isQuiet: Bool {
      Side.allCases.allSatisfy {
        ended[$0] == true || (messages[$0]?.isEmpty == true && chunks[$0]?.isEmpty == true)
      }
    }
  }

  struct Record {
    let number: UInt64
    let fileCount: UInt64
    let byteCount: UInt64
    var isCancelled = false
  }

  struct StreamKey: Hashable {
    let channel: ChannelNumber
    let stream: UInt32
  }

  struct Sending {
    let id: Identifier
    var position: UInt64
    let end: UInt64
    /// Frames.
    var sent: UInt64 = 0
    var credit: UInt64
  }

  struct Expecting {
    let id: Identifier
    /// Frames.
    var received: UInt64 = 0
    var credit: UInt64
  }

  struct Staged: Equatable {
    var fileCount: UInt64 = 0
    var byteCount: UInt64 = 0
  }

  /// What a process has and loses when it ends.
  struct Process {
    var deliveries: Deliveries
    var offersToLoad: [Identifier] = []
    var pagesToLoad: [(id: Identifier, from: UInt64)] = []
    var sending: [StreamKey: Sending] = [:]
    var accepted: Set<Identifier> = []
    var tooLate: Set<Identifier> = []
    var offers: [Identifier: WireOffer] = [:]
    var offersToAnswer: [Identifier] = []
    /// Those that wait until the app is unlocked, and those that have ever waited.
    var locked: [Identifier] = []
    var wereLocked: Set<Identifier> = []
    var expecting: [StreamKey: Expecting] = [:]
    var skipping: Set<StreamKey> = []
    /// For which another stream was asked since they were offered.
    var askedAgain: Set<Identifier> = []
    var complete: [Identifier] = []
    var committing: [Identifier] = []
    var discarding: [Identifier] = []
    var asked: [Identifier] = []
    var awaiting: [Identifier: Int] = [:]
  }

  static let damage = WireFailure.with { $0.error = 23 }

  var random: SplitMix64
  let limits: DeliveryLimits
  var processes: [Side: Process] = [:]
  // What outlives processes.
  var outbox: [Side: [Identifier: Record]] = [.a: [:], .b: [:]]
  var ends: [Side: [Identifier: SentDeliveryEnd]] = [.a: [:], .b: [:]]
  var ledger: [Side: Set<Identifier>] = [.a: [], .b: []]
  var staged: [Side: [Identifier: Staged]] = [.a: [:], .b: [:]]
  var pipes: [ChannelNumber: Pipe] = [:]
  var wantsChannel: Set<Side> = []
  var problems: [String] = []
  var trace: [String] = []
  var breaks = true
  private var nextChannel: UInt64 = 1
  var nextNumber: UInt64 = 1

  init(seed: UInt64, limits: DeliveryLimits) {
    random = SplitMix64(seed: seed)
    self.limits = limits
    for side in Side.allCases { processes[side] = Process(deliveries: Deliveries(limits: limits)) }
  }

  func note(_ problem: String) { problems.append("at \(trace.count): \(problem)") }

  func name(_ id: Identifier) -> String { String(id.description.suffix(3)) }

  // MARK: What the machines put out

  func with(_ side: Side, _ body: (inout Deliveries) -> [DeliveryOutput]) {
    let outputs = body(&processes[side]!.deliveries)
    for output in outputs { perform(output, side) }
    processes[side]!.deliveries.brokenRules.forEach(note)
  }

  private func perform(_ output: DeliveryOutput, _ side: Side) {
    if case .send = output {} else { trace.append("\(side) \(output)".prefix(90).description) }
    switch output {
    case .send(let message, let channel):
      if pipes[channel]?.ended[side] == true { note("\(side) sends on a channel that has ended") }
      if pipes[channel]?.ended[side.other] == false { pipes[channel]?.messages[side.other]?.append(message) }
    case .close(let channel, let fault, let detail):
      note("\(side) closes with \(fault) \(detail)")
      end(channel, side)
    case .connect: wantsChannel.insert(side)
    case .wantsOffer(let id):
      if outbox[side]?[id] == nil { note("an offer of what is not in the outbox") }
      processes[side]?.offersToLoad.append(id)
    case .wantsPage(let id, let from): processes[side]?.pagesToLoad.append((id, from))
    case .beginStream(let id, let channel, let stream, _, let from, let credit, let checking):
      if let checking, checking < from { note("checks what the receiver has") }
      guard let record = outbox[side]?[id] else { return note("a stream of what is not in the outbox") }
      processes[side]?.sending[StreamKey(channel: channel, stream: stream)] = Sending(
        id: id, position: from, end: record.byteCount, credit: credit)
    case .raiseCredit(_, let channel, let stream, let credit):
      let key = StreamKey(channel: channel, stream: stream)
      if processes[side]?.sending[key]?.credit ?? 0 >= credit { note("a credit that is no more") }
      processes[side]?.sending[key]?.credit = credit
    case .endStream(_, let channel, let stream):
      let key = StreamKey(channel: channel, stream: stream)
      if processes[side]?.sending.removeValue(forKey: key) == nil { note("a stream ends that did not begin") }
    case .accepted(let id):
      if processes[side]?.accepted.insert(id).inserted != true { note("accepted twice") }
    case .waiting, .progressed, .delivered, .putBack: break
    case .settled(let id, let end): settle(id, end, side)
    case .numberTaken(let id, _, _):
      if processes[side]?.sending.values.contains(where: { $0.id == id }) == true {
        note("renumbered while its stream goes on")
      }
    case .tooLate(let id): processes[side]?.tooLate.insert(id)
    default: performForReceiver(output, side)
    }
  }

  private func settle(_ id: Identifier, _ end: SentDeliveryEnd, _ side: Side) {
    guard let record = outbox[side]?.removeValue(forKey: id) else {
      return note("\(name(id)) was settled twice")
    }
    if processes[side]?.sending.values.contains(where: { $0.id == id }) == true {
      note("settled while its stream goes on")
    }
    if end == .cancelled, !record.isCancelled { note("cancelled by nobody") }
    if processes[side]?.tooLate.remove(id) != nil, end != .committed { note("too late, and \(end)") }
    ends[side]?[id] = end
  }

  private func performForReceiver(_ output: DeliveryOutput, _ side: Side) {
    switch output {
    case .offered(let offer):
      let id = Identifier(exactly: offer.id)!
      processes[side]?.offers[id] = offer
      processes[side]?.askedAgain.remove(id)
      processes[side]?.wereLocked.remove(id)
      processes[side]?.offersToAnswer.append(id)
    case .page(let id, let files):
      staged[side]?[id, default: Staged()].fileCount += UInt64(files.count)
      if staged[side]?[id]?.fileCount == processes[side]?.offers[id]?.fileCount {
        processes[side]?.offersToAnswer.append(id)
      }
    case .expect(let id, let channel, let stream, let key):
      if key.count != 32 || staged[side]?[id] == nil { note("expects what is not to come") }
      processes[side]?.expecting[StreamKey(channel: channel, stream: stream)] = Expecting(
        id: id, credit: limits.creditFrameCount)
    case .endExpecting(_, let channel, let stream):
      let key = StreamKey(channel: channel, stream: stream)
      processes[side]?.expecting[key] = nil
      processes[side]?.skipping.insert(key)
    case .interrupted(let id): letGo(id, side)
    case .withdrawn(let id):
      letGo(id, side)
      processes[side]?.discarding.append(id)
    case .resultUnwanted(let id):
      if ledger[side]?.contains(id) != true { note("the result of nothing is not wanted") }
    case .acknowledged: break
    case .inquired(let id): processes[side]?.asked.append(id)
    case .standing(let id, _):
      guard let count = processes[side]?.awaiting[id], count > 0 else { return note("an answer to nothing") }
      processes[side]?.awaiting[id] = count - 1
    case .requestEnded: break
    default: note("\(side) put out \(output)")
    }
  }

  private func letGo(_ id: Identifier, _ side: Side) {
    processes[side]?.offers[id] = nil
    processes[side]?.offersToAnswer.removeAll { $0 == id }
    processes[side]?.locked.removeAll { $0 == id }
    processes[side]?.complete.removeAll { $0 == id }
    if processes[side]?.expecting.values.contains(where: { $0.id == id }) == true {
      note("let go of while it is expected")
    }
    if processes[side]?.committing.contains(id) == true { note("withdrawn while it is committed") }
  }

  // MARK: Channels and processes

  func open() {
    let number = ChannelNumber(nextChannel)
    nextChannel += 1
    pipes[number] = Pipe()
    wantsChannel = []
    trace.append("open \(number.number)")
    for side in Side.allCases { with(side) { $0.channelOpened(number) } }
  }

  /// Delivers a message or a chunk, or lets a side see the end.
  func deliver() {
    pipes = pipes.filter { $0.value.ended.values.contains(false) }
    guard let number = pipes.keys.sorted(by: { $0.number < $1.number }).randomElement(using: &random),
      let pipe = pipes[number]
    else { return }
    let side = Bool.random(using: &random) ? Side.a : .b
    if pipe.ended[side] == true { return }
    if Bool.random(using: &random), let chunk = pipe.chunks[side]?.first {
      pipes[number]?.chunks[side]?.removeFirst()
      receive(chunk, StreamKey(channel: number, stream: chunk.stream), side)
    } else if let message = pipe.messages[side]?.first {
      pipes[number]?.messages[side]?.removeFirst()
      trace.append(
        "\(side) receives on \(number.number): \(message.textFormatString().split(separator: "\n").joined(separator: " "))"
      )
      with(side) { $0.receive(message, on: number) }
    } else if pipe.ended[side.other] == true, pipe.chunks[side]?.isEmpty == true {
      end(number, side)
      with(side) { $0.channelClosed(number) }
    }
  }

  private func receive(_ chunk: Chunk, _ key: StreamKey, _ side: Side) {
    guard var expecting = processes[side]?.expecting[key] else {
      if processes[side]?.skipping.contains(key) != true { note("a chunk of a stream that is not expected") }
      return
    }
    expecting.received += 1
    if expecting.received > expecting.credit { note("more than its credit") }
    let id = expecting.id
    let have = staged[side]?[id]?.byteCount ?? 0
    if breaks, Int.random(in: 0..<10, using: &random) == 0,
      processes[side]?.askedAgain.insert(id).inserted == true
    {
      // It does not open.
      trace.append("\(side) asks for \(name(id)) again")
      return with(side) {
        $0.askAgain(id, from: have, damaged: have, key: Data(repeating: 2, count: 32))
      }
    }
    let total = have + chunk.byteCount
    let byteCount = processes[side]?.offers[id]?.byteCount ?? 0
    if total > byteCount { note("more than there is") }
    staged[side]?[id]?.byteCount = total
    expecting.credit = expecting.received + limits.creditFrameCount
    processes[side]?.expecting[key] = expecting
    with(side) { $0.received(id, total, frameCount: expecting.received) }
    if total == byteCount {
      processes[side]?.expecting[key] = nil
      processes[side]?.skipping.insert(key)
      processes[side]?.complete.append(id)
    }
  }

  private func end(_ number: ChannelNumber, _ side: Side) {
    pipes[number]?.ended[side] = true
    pipes[number]?.messages[side] = []
    pipes[number]?.chunks[side] = []
  }

  func breakChannel() {
    guard let number = pipes.keys.sorted(by: { $0.number < $1.number }).randomElement(using: &random) else {
      return
    }
    trace.append("break \(number.number)")
    // What is under way in either direction is gone from some point on.
    for side in Side.allCases {
      let messages = pipes[number]?.messages[side] ?? []
      pipes[number]?.messages[side] = Array(
        messages.prefix(Int.random(in: 0...messages.count, using: &random)))
      let chunks = pipes[number]?.chunks[side] ?? []
      pipes[number]?.chunks[side] = Array(chunks.prefix(Int.random(in: 0...chunks.count, using: &random)))
    }
    let first = Bool.random(using: &random) ? Side.a : .b
    guard pipes[number]?.ended[first] == false else { return }
    end(number, first)
    with(first) { $0.channelClosed(number) }
  }

  /// The process ends, at any moment, and another one begins with what is on the disk.
  func restart(_ side: Side) {
    trace.append("\(side) begins anew")
    for id in processes[side]!.committing where Bool.random(using: &random) { writeCommit(id, side) }
    for number in pipes.keys { end(number, side) }
    wantsChannel.remove(side)
    processes[side] = Process(deliveries: Deliveries(limits: limits))
    for (id, record) in outbox[side]!.sorted(by: { $0.key < $1.key }) {
      // That it was cancelled was not written down.
      outbox[side]?[id]?.isCancelled = false
      with(side) {
        $0.enqueue(
          id, number: record.number, fileCount: record.fileCount, byteCount: record.byteCount,
          wasOffered: true)
      }
    }
  }

  // MARK: Running

  func step() {
    let side = Bool.random(using: &random) ? Side.a : .b
    switch Int.random(in: 0..<100, using: &random) {
    case 0..<6: enqueue(side)
    case 6..<9: cancel(side)
    case 9..<11: if breaks { breakChannel() }
    case 11..<12: if breaks, Int.random(in: 0..<4, using: &random) == 0 { restart(side) }
    case 12..<15:
      // One that a side does not know to be gone may still be there.
      if !wantsChannel.isEmpty || (breaks && pipes.count < 3) { open() }
    case 15..<16: if wantsChannel.remove(side) != nil { with(side) { $0.channelRefused() } }
    case 16..<17: with(side) { $0.retry() }
    case 17..<18:
      let id = Identifier(high: 9, low: UInt64.random(in: 0..<4, using: &random))
      if processes[side]?.awaiting[id] ?? 0 == 0 {
        processes[side]?.awaiting[id] = 1
        with(side) { $0.inquire(id) }
      }
    case 18..<19: with(side) { $0.endRequest(Identifier(high: 9, low: 1)) }
    case 19..<20: with(side) { $0.acknowledge(floor: 1, incarnation: DeliveryFixture.incarnation) }
    case 20..<60: work(side)
    default: deliver()
    }
  }

  private func work(_ side: Side) {
    switch Int.random(in: 0..<9, using: &random) {
    case 0: loadOffer(side)
    case 1: loadPage(side)
    case 2, 3: sendChunk(side)
    case 4: answerOffer(side)
    case 5: Bool.random(using: &random) ? beginCommit(side) : commit(side)
    case 6: discard(side)
    case 7: unlock(side)
    default: answerInquiry(side)
    }
  }

  /// Lets everything come to its end, without breaks.
  func settle() {
    breaks = false
    for _ in 0..<40_000 {
      for side in Side.allCases where processes[side]!.deliveries.waitsForChannel {
        with(side) { $0.retry() }
      }
      if !wantsChannel.isEmpty, pipes.isEmpty { open() }
      work(Bool.random(using: &random) ? .a : .b)
      deliver()
      if processes.values.allSatisfy({ $0.deliveries.isIdle }), pipes.values.allSatisfy({ $0.isQuiet }) {
        break
      }
    }
    for side in Side.allCases {
      if processes[side]?.deliveries.isIdle != true { note("\(side) is not idle") }
      for id in outbox[side]!.keys.sorted() { note("\(name(id)) was never settled") }
      // Of what is lost nobody says whether it has arrived.
      for (id, end) in ends[side]! where end != .lost(Self.damage) {
        if ledger[side.other]!.contains(id) != (end == .committed) { note("\(name(id)) is \(end)") }
      }
      if processes[side]?.awaiting.values.contains(where: { $0 > 0 }) == true {
        note("a question has no answer")
      }
      // Of one that failed with its channel the receiver hears by the floor.
      for id in staged[side]!.keys.sorted() {
        if let end = ends[side.other]?[id], ![.refused(Self.damage), .lost(Self.damage)].contains(end) {
          note("\(name(id)) is still staged")
        }
      }
    }
  }
}
