import Foundation
import OpenDynamicsTesting
import SwiftProtobuf

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
    let id: WireID
    var position: UInt64
    let end: UInt64
    var sent: UInt64 = 0
    var credit: UInt64
  }

  struct Expecting {
    let id: WireID
    let byteCount: UInt64
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
    var offersToLoad: [WireID] = []
    var pagesToLoad: [(id: WireID, from: UInt64)] = []
    var sending: [StreamKey: Sending] = [:]
    var accepted: Set<WireID> = []
    var tooLate: Set<WireID> = []
    var offers: [WireID: WireOffer] = [:]
    var offersToAnswer: [WireID] = []
    var expecting: [StreamKey: Expecting] = [:]
    var skipping: Set<StreamKey> = []
    var complete: [WireID] = []
    var committing: [WireID] = []
    var discarding: [WireID] = []
    var asked: [WireID] = []
    var awaiting: [WireID: Int] = [:]
  }

  static let damage = WireFailure.with { $0.error = 23 }

  var random: SplitMix64
  let limits: DeliveryLimits
  var processes: [Side: Process] = [:]
  // What outlives processes.
  var outbox: [Side: [WireID: Record]] = [.a: [:], .b: [:]]
  var ends: [Side: [WireID: SentDeliveryEnd]] = [.a: [:], .b: [:]]
  var ledger: [Side: Set<WireID>] = [.a: [], .b: []]
  var staged: [Side: [WireID: Staged]] = [.a: [:], .b: [:]]
  var pipes: [ChannelNumber: Pipe] = [:]
  var wantsChannel: Set<Side> = []
  var problems: [String] = []
  var trace: [String] = []
  var breaks = true
  private var nextChannel: UInt64 = 1
  private var nextNumber: UInt64 = 1

  init(seed: UInt64, limits: DeliveryLimits) {
    random = SplitMix64(seed: seed)
    self.limits = limits
    for side in Side.allCases { processes[side] = Process(deliveries: Deliveries(limits: limits)) }
  }

  func note(_ problem: String) { problems.append("at \(trace.count): \(problem)") }

  private func name(_ id: WireID) -> String { String(id.description.suffix(3)) }

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
    case .beginStream(let id, let channel, let stream, _, let from, let credit):
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
    case .progressed: break
    case .settled(let id, let end): settle(id, end, side)
    case .tooLate(let id): processes[side]?.tooLate.insert(id)
    default: performForReceiver(output, side)
    }
  }

  private func settle(_ id: WireID, _ end: SentDeliveryEnd, _ side: Side) {
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
      let id = WireID(offer.id)!
      processes[side]?.offers[id] = offer
      processes[side]?.offersToAnswer.append(id)
    case .page(let id, let files):
      staged[side]?[id, default: Staged()].fileCount += UInt64(files.count)
      if staged[side]?[id]?.fileCount == processes[side]?.offers[id]?.fileCount {
        processes[side]?.offersToAnswer.append(id)
      }
    case .expect(let id, let channel, let stream, let key, let from, let byteCount):
      if key.count != 32 || staged[side]?[id]?.byteCount != from { note("expects what is not to come") }
      processes[side]?.expecting[StreamKey(channel: channel, stream: stream)] = Expecting(
        id: id, byteCount: byteCount, credit: limits.creditByteCount)
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

  private func letGo(_ id: WireID, _ side: Side) {
    processes[side]?.offers[id] = nil
    processes[side]?.offersToAnswer.removeAll { $0 == id }
    processes[side]?.complete.removeAll { $0 == id }
    if processes[side]?.expecting.values.contains(where: { $0.id == id }) == true {
      note("let go of while it is expected")
    }
    if processes[side]?.committing.contains(id) == true { note("withdrawn while it is committed") }
  }

  // MARK: What the owners do

  func enqueue(_ side: Side) {
    let id = WireID(high: UInt64(side.rawValue) + 1, low: nextNumber)
    let fileCount = UInt64.random(in: 0...7, using: &random)
    let byteCount: UInt64 = fileCount == 0 ? 0 : [0, 1, 9, 40].randomElement(using: &random)!
    let number = nextNumber
    outbox[side]?[id] = Record(number: number, fileCount: fileCount, byteCount: byteCount)
    nextNumber += 1
    with(side) { $0.enqueue(id, number: number, fileCount: fileCount, byteCount: byteCount) }
  }

  func loadOffer(_ side: Side) {
    guard let id = processes[side]?.offersToLoad.first else { return }
    processes[side]?.offersToLoad.removeFirst()
    // A message that cannot be read, which no receiver has: the one that was offered before may be committed.
    with(side) {
      $0.offer(
        .with {
          $0.id = id.bytes
          $0.incarnation = Data(count: 16)
          $0.floor = 1
          $0.request.id = id.bytes
        })
    }
  }

  func loadPage(_ side: Side) {
    guard let (id, from) = processes[side]?.pagesToLoad.first else { return }
    processes[side]?.pagesToLoad.removeFirst()
    guard let record = outbox[side]?[id] else { return with(side) { $0.page(id, from: from, []) } }
    if breaks, Int.random(in: 0..<20, using: &random) == 0 {
      return with(side) { $0.fail(id, Self.damage) }
    }
    let files = (from..<record.fileCount).map { index in
      WireOfferedFile.with {
        $0.path = Data("/file\(index)".utf8)
        $0.byteCount = index == 0 ? record.byteCount : 0
      }
    }
    with(side) { $0.page(id, from: from, files) }
  }

  func sendChunk(_ side: Side) {
    let keys = processes[side]!.sending.keys.sorted {
      ($0.channel.number, $0.stream) < ($1.channel.number, $1.stream)
    }
    guard let key = keys.randomElement(using: &random), var sending = processes[side]?.sending[key] else {
      return
    }
    if breaks, Int.random(in: 0..<40, using: &random) == 0, sending.position < sending.end {
      return with(side) { $0.fail(sending.id, Self.damage) }
    }
    let byteCount = min(3, sending.end - sending.position, sending.credit - sending.sent)
    guard byteCount > 0 else { return }
    sending.position += byteCount
    sending.sent += byteCount
    processes[side]?.sending[key] = sending
    if pipes[key.channel]?.ended[side.other] == false {
      pipes[key.channel]?.chunks[side.other]?.append(Chunk(stream: key.stream, byteCount: byteCount))
    }
  }

  func answerOffer(_ side: Side) {
    guard let id = processes[side]?.offersToAnswer.first, let offer = processes[side]?.offers[id] else {
      return
    }
    processes[side]?.offersToAnswer.removeFirst()
    if ledger[side]?.contains(id) == true { return with(side) { $0.committed(id) } }
    if breaks, Int.random(in: 0..<15, using: &random) == 0 {
      staged[side]?[id] = nil
      return with(side) { $0.refuse(id, .with { $0.error = 7 }) }
    }
    let have = staged[side]?[id] ?? Staged()
    if have.fileCount < offer.fileCount { return with(side) { $0.wantPages(id, from: have.fileCount) } }
    staged[side]?[id] = have
    let key = have.byteCount < offer.byteCount ? Data(repeating: 1, count: 32) : Data()
    with(side) { $0.accept(id, from: have.byteCount, key: key) }
    if key.isEmpty { processes[side]?.complete.append(id) }
  }

  func beginCommit(_ side: Side) {
    guard let id = processes[side]?.complete.first else { return }
    processes[side]?.complete.removeFirst()
    if processes[side]?.deliveries.beginCommit(id) == true { processes[side]?.committing.append(id) }
  }

  func commit(_ side: Side) {
    guard let id = processes[side]?.committing.first else { return }
    processes[side]?.committing.removeFirst()
    if breaks, Int.random(in: 0..<10, using: &random) == 0 {
      staged[side]?[id] = nil
      return with(side) { $0.refuse(id, .with { $0.error = 22 }) }
    }
    writeCommit(id, side)
    with(side) { $0.committed(id) }
  }

  private func writeCommit(_ id: WireID, _ side: Side) {
    trace.append("\(side) has \(name(id))")
    let byteCount = outbox[side.other]?[id]?.byteCount
    if let byteCount, staged[side]?[id]?.byteCount != byteCount { note("committed a part") }
    staged[side]?[id] = nil
    if ledger[side]?.insert(id).inserted != true { note("\(name(id)) was committed twice") }
    if let end = ends[side.other]?[id] { note("\(name(id)) was committed after it had ended: \(end)") }
  }

  func discard(_ side: Side) {
    guard let id = processes[side]?.discarding.first else { return }
    processes[side]?.discarding.removeFirst()
    if ledger[side]?.contains(id) == true { return with(side) { $0.committed(id) } }
    staged[side]?[id] = nil
    with(side) { $0.discarded(id) }
  }

  func cancel(_ side: Side) {
    guard let id = outbox[side]?.keys.sorted().randomElement(using: &random) else { return }
    trace.append("\(side) cancels \(name(id))")
    outbox[side]?[id]?.isCancelled = true
    with(side) { $0.cancel(id) }
  }

  func answerInquiry(_ side: Side) {
    guard let id = processes[side]?.asked.first else { return }
    processes[side]?.asked.removeFirst()
    with(side) { $0.standing(id, isAwaited: true) }
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
    expecting.received += chunk.byteCount
    if expecting.received > expecting.credit { note("more than its credit") }
    if expecting.received > expecting.byteCount { note("more than there is") }
    let id = expecting.id
    let total = (staged[side]?[id]?.byteCount ?? 0) + chunk.byteCount
    staged[side]?[id]?.byteCount = total
    expecting.credit = expecting.received + limits.creditByteCount
    processes[side]?.expecting[key] = expecting
    with(side) { $0.received(id, total) }
    if expecting.received == expecting.byteCount {
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
      let id = WireID(high: 9, low: UInt64.random(in: 0..<4, using: &random))
      if processes[side]?.awaiting[id] ?? 0 == 0 {
        processes[side]?.awaiting[id] = 1
        with(side) { $0.inquire(id) }
      }
    case 18..<19: with(side) { $0.endRequest(WireID(high: 9, low: 1)) }
    case 19..<20: with(side) { $0.acknowledge(floor: 1, incarnation: Data(count: 16)) }
    case 20..<60: work(side)
    default: deliver()
    }
  }

  private func work(_ side: Side) {
    switch Int.random(in: 0..<8, using: &random) {
    case 0: loadOffer(side)
    case 1: loadPage(side)
    case 2, 3: sendChunk(side)
    case 4: answerOffer(side)
    case 5: Bool.random(using: &random) ? beginCommit(side) : commit(side)
    case 6: discard(side)
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
      for (id, end) in ends[side]! {
        if ledger[side.other]!.contains(id) != (end == .committed) { note("\(name(id)) is \(end)") }
      }
      if processes[side]?.awaiting.values.contains(where: { $0 > 0 }) == true {
        note("a question has no answer")
      }
      // Of one that failed with its channel the receiver hears by the floor.
      for id in staged[side]!.keys.sorted() {
        if let end = ends[side.other]?[id], end != .refused(Self.damage) {
          note("\(name(id)) is still staged")
        }
      }
    }
  }
}

extension Deliveries {
  /// What must hold after every step and does not.
  var brokenRules: [String] {
    var broken: [String] = []
    let offered = outgoing.values.count { $0.state.channel != nil }
    if offered != offeredCount { broken.append("\(offered) offered, counted \(offeredCount)") }
    if offered > limits.sentCountMax { broken.append("\(offered) offered at once") }
    if outgoing.count != offered + queue.count { broken.append("\(queue.count) in the queue") }
    if queue.map({ outgoing[$0]?.number ?? 0 }) != queue.compactMap({ outgoing[$0]?.number }).sorted() {
      broken.append("the queue is not in order")
    }
    if !channels.isEmpty, offered < limits.sentCountMax, !queue.isEmpty { broken.append("nobody is offered") }
    for delivery in outgoing.values {
      if let channel = delivery.state.channel, channels[channel] == nil {
        broken.append("sent on no channel")
      }
      if delivery.stream != nil {
        if case .accepted = delivery.state {} else { broken.append("a stream too many") }
      }
    }
    for delivery in incoming.values {
      if let channel = delivery.channel {
        if channels[channel] == nil { broken.append("received on no channel") }
      } else if delivery.state != .committing, delivery.state != .withdrawn {
        broken.append("\(delivery.state) without a channel")
      }
      if delivery.stream != nil, delivery.state != .receiving {
        broken.append("a stream is expected too long")
      }
    }
    for (number, channel) in channels {
      if channel.ended.count > limits.receivedCountMax {
        broken.append("\(channel.ended.count) ends are kept")
      }
      let asked = inquiries.values.count { $0 == .asked(number) }
      if asked != channel.inquiryCount { broken.append("\(asked) asked, counted \(channel.inquiryCount)") }
    }
    if Set(order) != Set(channels.keys) { broken.append("channels without order") }
    return broken
  }
}
