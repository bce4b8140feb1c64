import Foundation
import SodiumPrimitives

@testable import ServiceWire

extension DeliveryWorld {
  // MARK: What the owners do

  func enqueue(_ side: Side) {
    let id = Identifier(high: UInt64(side.rawValue) + 1, low: nextNumber)
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
          $0.id = id.data
          $0.incarnation = DeliveryFixture.incarnation
          $0.floor = 1
          $0.request.id = id.data
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
    let byteCount = min(3, sending.end - sending.position)
    guard byteCount > 0, sending.sent < sending.credit else { return }
    sending.position += byteCount
    sending.sent += 1
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
    // The app is locked or suspended for a while, once for an offer, and perhaps one behind the other.
    if Int.random(in: 0..<4, using: &random) == 0, processes[side]?.wereLocked.insert(id).inserted == true {
      processes[side]?.locked.append(id)
      let reasons: [WireDeliveryWaiting.Reason] = [.unlock, .resumption].shuffled(using: &random)
      for reason in reasons.prefix(.random(in: 1...2, using: &random)) {
        with(side) { $0.hold(id, for: reason) }
      }
      return
    }
    if breaks, Int.random(in: 0..<15, using: &random) == 0 {
      staged[side]?[id] = nil
      let error: UInt32 = Bool.random(using: &random) ? 7 : 25
      return with(side) { $0.refuse(id, .with { $0.error = error }) }
    }
    let have = staged[side]?[id] ?? Staged()
    if have.fileCount < offer.fileCount { return with(side) { $0.wantPages(id, from: have.fileCount) } }
    staged[side]?[id] = have
    let key = have.byteCount < offer.byteCount ? Data(repeating: 1, count: 32) : Data()
    with(side) { $0.accept(id, from: have.byteCount, key: key) }
    if key.isEmpty { processes[side]?.complete.append(id) }
  }

  func unlock(_ side: Side) {
    guard let id = processes[side]?.locked.first else { return }
    processes[side]?.locked.removeFirst()
    processes[side]?.offersToAnswer.append(id)
    with(side) { $0.release(id) }
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

  func writeCommit(_ id: Identifier, _ side: Side) {
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
}

extension Deliveries {
  /// What must hold after every step and does not.
  var brokenRules: [String] {
    var broken = sent.brokenRules(limits, channels) + received.brokenRules(limits, channels)
    for (number, end) in inquiries.ends {
      if channels[number] == nil { broken.append("questions on no channel") }
      let asked = inquiries.inquiries.values.count { $0 == .asked(number) }
      if asked != end.count { broken.append("\(asked) asked, counted \(end.count)") }
    }
    if channels.numbers.contains(where: { channels[$0] == nil || inquiries.ends[$0] == nil }) {
      broken.append("a channel without an end")
    }
    return broken
  }
}

extension SentDeliveries {
  fileprivate func brokenRules(_ limits: DeliveryLimits, _ channels: DeliveryChannels) -> [String] {
    var broken: [String] = []
    let offered = outgoing.values.count { $0.state.channel != nil }
    if offered != offeredCount { broken.append("\(offered) offered, counted \(offeredCount)") }
    if offered > limits.sentCountMax { broken.append("\(offered) offered at once") }
    if outgoing.count != offered + queue.count { broken.append("\(queue.count) in the queue") }
    if queue.map({ outgoing[$0]?.number ?? 0 }) != queue.compactMap({ outgoing[$0]?.number }).sorted() {
      broken.append("the queue is not in order")
    }
    let waits = outgoing.filter { if case .waiting = $0.value.state { true } else { false } }
    if waiting != Set(waits.keys) { broken.append("\(waits.count) wait, counted \(waiting.count)") }
    if !channels.isEmpty, offered < limits.sentCountMax, !queue.isEmpty { broken.append("nobody is offered") }
    for delivery in outgoing.values {
      if let channel = delivery.state.channel, channels[channel] == nil {
        broken.append("sent on no channel")
      }
      if delivery.stream != nil {
        if case .accepted = delivery.state {} else { broken.append("a stream too many") }
      }
    }
    return broken
  }
}

extension ReceivedDeliveries {
  fileprivate func brokenRules(_ limits: DeliveryLimits, _ channels: DeliveryChannels) -> [String] {
    var broken: [String] = []
    for delivery in incoming.values {
      if Set(delivery.channels).count != delivery.channels.count {
        broken.append("offered twice on a channel")
      }
      if delivery.channels.contains(where: { channels[$0] == nil }) {
        broken.append("received on no channel")
      }
      if delivery.channel == nil, delivery.state != .committing, delivery.state != .withdrawn {
        broken.append("\(delivery.state) without a channel")
      }
      if delivery.stream != nil, delivery.state != .receiving {
        broken.append("a stream is expected too long")
      }
    }
    for (number, end) in ends {
      if channels[number] == nil { broken.append("ends are kept of no channel") }
      if end.ended.count > limits.receivedCountMax { broken.append("\(end.ended.count) ends are kept") }
    }
    if channels.numbers.contains(where: { ends[$0] == nil }) { broken.append("a channel without an end") }
    return broken
  }
}
