import Foundation
import PushChannels
import PushWire
import TestSupport
import Testing

struct ChannelBookTests {
  static let token = "1 2 app.gdpush.local x"

  static func message(_ text: String) -> PushMessage { PushMessage(body: Data(text.utf8), accepted: 0) }

  @Test func aChannelOpensAndShowsMessages() throws {
    var book = ChannelBook()
    #expect(book.welcomed() == [])
    let effects = book.connect("a")
    guard case .save(let record) = effects.first else {
      Issue.record("\(effects)")
      return
    }
    #expect(effects == [.save(record), .send(.open(record.id, isKnown: false, taken: 0))])
    #expect(book.phase("a") == .connecting)
    var opened = record
    opened.token = Self.token
    #expect(
      try book.received(.opened(record.id, token: Self.token, host: nil))
        == [.save(opened), .wake(identifier: "a")])
    // What the app has not seen has not happened to it.
    #expect(book.phase("a") == .connecting)
    var step = book.next("a")
    let first = try #require(step)
    #expect(first.notice == .opened(token: Self.token, host: nil, keys: nil) && first.effects == [])
    step = book.next("a")
    #expect(book.phase("a") == .open && step == nil)

    let message = Self.message("hi")
    #expect(
      try book.received(.event(record.id, sequence: 1, .message(message)))
        == [
          .saveEvent(record.id, sequence: 1, .message(message)), .send(.taken(record.id, through: 1)),
          .wake(identifier: "a"),
        ])
    // Sent again after a break.
    #expect(try book.received(.event(record.id, sequence: 1, .message(message))) == [])
    opened.stored = 1
    step = book.next("a")
    let second = try #require(step)
    #expect(
      second.notice == .message(message, record.id, sequence: 1, keys: nil)
        && second.effects == [.shown(opened, sequence: 1)])
  }

  @Test func aChannelThatIsGivenUpOpensAtTheNextConnect() throws {
    var book = ChannelBook()
    #expect(book.giveUp("a") == [])
    guard case .save(let record) = book.connect("a").first else {
      Issue.record()
      return
    }
    #expect(book.needsConnection)
    #expect(book.giveUp("a") == [.wake(identifier: "a")])
    #expect(!book.needsConnection && book.giveUp("a") == [])
    var step = book.next("a")
    #expect(step?.notice == .error(ChannelBook.misuse) && step?.effects == [] && book.phase("a") == .failed)
    // The relay has got its first request all the same.
    _ = book.connect("a")
    _ = book.welcomed()
    _ = try book.received(.opened(record.id, token: Self.token, host: nil))
    // The answer is there, and is shown.
    #expect(book.giveUp("a") == [])
    step = book.next("a")
    #expect(step?.notice == .opened(token: Self.token, host: nil, keys: nil) && book.phase("a") == .open)
    #expect(book.giveUp("a") == [])
  }

  @Test func aMessageThatWasNotCompletedIsShownAgainInTheNextProcess() throws {
    var book = ChannelBook()
    guard case .save(var record) = book.connect("a").first else {
      Issue.record()
      return
    }
    _ = book.welcomed()
    _ = try book.received(.opened(record.id, token: Self.token, host: nil))
    _ = book.next("a", completesLater: true)
    let message = Self.message("hi")
    for sequence in [1, 2] as [UInt64] {
      _ = try book.received(.event(record.id, sequence: sequence, .message(message)))
      let step = book.next("a", completesLater: true)
      #expect(step?.effects == [])
      #expect(step?.notice == .message(message, record.id, sequence: sequence, keys: nil))
    }
    // In any order; a second time it does nothing.
    (record.token, record.stored) = (Self.token, 2)
    #expect(book.complete(record.id, 2) == [.shown(record, sequence: 2)])
    #expect(book.complete(record.id, 2) == [] && book.complete(.random(), 1) == [])

    var next = ChannelBook(records: [record], events: [record.id: [(1, .message(message))]])
    _ = next.connect("a")
    _ = next.welcomed()
    _ = try next.received(.opened(record.id, token: Self.token, host: nil))
    _ = next.next("a")
    let again = next.next("a")
    #expect(again?.notice == .message(message, record.id, sequence: 1, keys: nil))
    let rest = next.next("a")
    #expect(rest == nil)
  }

  /// The end counts as shown when it is returned, and a message when it was completed.
  @Test(arguments: [
    RelayFrame?.none, .event(.random(), sequence: 2, .closed), .event(.random(), sequence: 2, .error(504)),
  ])
  func aMessageThatWasNotCompletedOutlivesTheEndOfItsChannel(_ end: RelayFrame?) throws {
    var book = ChannelBook()
    guard case .save(var record) = book.connect("a").first else {
      Issue.record()
      return
    }
    _ = book.welcomed()
    _ = try book.received(.opened(record.id, token: Self.token, host: nil))
    _ = try book.received(.event(record.id, sequence: 1, .message(Self.message("hi"))))
    _ = book.next("a", completesLater: true)
    _ = book.next("a", completesLater: true)
    (record.token, record.isEnded) = (Self.token, true)
    let effects: [ChannelBook.Effect]
    if case .event(_, _, let event) = end {
      _ = try book.received(.event(record.id, sequence: 2, event))
      record.stored = 2
      effects = [.shown(record, sequence: 2)]
    } else {
      _ = try book.received(.failed(record.id, code: 502))
      record.stored = 1
      effects = [.save(record)]
    }
    var step = book.next("a", completesLater: true)
    #expect(step?.effects == effects && step?.notice != nil)
    step = book.next("a", completesLater: true)
    #expect(step == nil && !book.needsConnection && !book.canResume("a"))

    // The app goes on: its next channel does not repeat the message, which it still has.
    var same = book
    guard case .save(let second) = same.connect("a").first else {
      Issue.record()
      return
    }
    _ = try same.received(.opened(second.id, token: "1 3 app.gdpush.local y", host: nil))
    _ = same.next("a")
    step = same.next("a")
    #expect(step == nil && second.id != record.id)
    #expect(same.complete(record.id, 1) == [.shown(record, sequence: 1), .remove(record.id)])

    // The app was killed: its next channel begins with the message.
    var next = ChannelBook(records: [record], events: [record.id: [(1, .message(Self.message("hi")))]])
    guard case .save(let third) = next.connect("a").first else {
      Issue.record()
      return
    }
    #expect(next.welcomed() == [.send(.open(third.id, isKnown: false, taken: 0))])
    _ = try next.received(.opened(third.id, token: "1 4 app.gdpush.local z", host: nil))
    step = next.next("a")
    #expect(step?.notice == .opened(token: "1 4 app.gdpush.local z", host: nil, keys: nil))
    step = next.next("a")
    #expect(step?.notice == .message(Self.message("hi"), record.id, sequence: 1, keys: nil))
    #expect(step?.effects == [.shown(record, sequence: 1), .remove(record.id)])
    step = next.next("a")
    #expect(step == nil)
  }

  /// The relay takes `Open` once on a connection, so the channel is not opened there again.
  @Test func aNewObjectFindsWhatADroppedOneLeft() throws {
    var book = ChannelBook()
    _ = book.welcomed()
    guard case .save(let record) = book.connect("a").first else {
      Issue.record()
      return
    }
    // Before the relay has answered, and again after that.
    #expect(book.restart("a") == [] && book.phase("a") == .prepared)
    #expect(book.connect("a") == [])
    _ = try book.received(.opened(record.id, token: Self.token, host: nil))
    _ = book.next("a")
    _ = try book.received(.event(record.id, sequence: 1, .message(Self.message("unshown"))))
    _ = book.restart("a")
    // What arrives meanwhile waits too.
    _ = try book.received(.event(record.id, sequence: 2, .message(Self.message("later"))))
    #expect(book.connect("a") == [.wake(identifier: "a")])
    var step = book.next("a")
    #expect(step?.notice == .opened(token: Self.token, host: nil, keys: nil) && book.phase("a") == .open)
    for (sequence, text) in [(1, "unshown"), (2, "later")] as [(UInt64, String)] {
      step = book.next("a")
      #expect(step?.notice == .message(Self.message(text), record.id, sequence: sequence, keys: nil))
    }
    // A channel that is closing is not resumed.
    _ = book.disconnect("a")
    _ = book.restart("a")
    guard case .save(let second) = book.connect("a").first else {
      Issue.record()
      return
    }
    #expect(second.id != record.id)
    #expect(
      try book.received(.event(record.id, sequence: 3, .closed))
        == [.remove(record.id), .send(.taken(record.id, through: 3))])
  }

  /// The relay forgets the channel after its object was dropped and before there is a new one.
  @Test func messagesOfADroppedObjectOutliveTheirChannel() throws {
    var book = ChannelBook()
    _ = book.welcomed()
    guard case .save(var record) = book.connect("a").first else {
      Issue.record()
      return
    }
    _ = try book.received(.opened(record.id, token: Self.token, host: nil))
    _ = book.next("a")
    _ = try book.received(.event(record.id, sequence: 1, .message(Self.message("unshown"))))
    _ = book.restart("a")
    (record.token, record.stored, record.isEnded) = (Self.token, 1, true)
    #expect(try book.received(.failed(record.id, code: 502)) == [.save(record)])
    guard case .save(let second) = book.connect("a").first else {
      Issue.record()
      return
    }
    _ = try book.received(.opened(second.id, token: "1 3 app.gdpush.local y", host: nil))
    _ = book.next("a")
    var step = book.next("a")
    #expect(step?.notice == .message(Self.message("unshown"), record.id, sequence: 1, keys: nil))
    step = book.next("a")
    #expect(step == nil)
  }

  @Test func callsThatDoNotFitGiveErrorZero() {
    var book = ChannelBook()
    #expect(book.disconnect("a") == [.wake(identifier: "a")])
    var step = book.next("a")
    #expect(step?.notice == .error(0) && book.phase("a") == .prepared)
    _ = book.connect("a")
    #expect(book.connect("a") == [.wake(identifier: "a")])
    step = book.next("a")
    #expect(step?.notice == .error(0) && book.phase("a") == .connecting)
  }

  @Test func theRelayIsHeldToThePage() throws {
    var book = ChannelBook()
    _ = book.welcomed()
    guard case .save(let record) = book.connect("a").first else {
      Issue.record()
      return
    }
    #expect(throws: ChannelBook.Violation.self) { try book.received(.event(record.id, sequence: 1, .closed)) }
    _ = try book.received(.opened(record.id, token: Self.token, host: nil))
    #expect(throws: ChannelBook.Violation.self) {
      try book.received(.opened(record.id, token: "1 2 other", host: nil))
    }
    #expect(throws: ChannelBook.Violation.self) {
      try book.received(.welcome(heartbeatSeconds: 60, channelsMax: 1))
    }
    // Channels that were never there change nothing.
    #expect(try book.received(.opened(.random(), token: Self.token, host: nil)) == [])
    #expect(try book.received(.failed(.random(), code: 502)) == [])
  }

  /// An app that shows nothing has a bounded queue; the rest waits at the relay.
  @Test func anAppThatIsBehindTakesNoMore() throws {
    var limits = ChannelBook.Limits()
    limits.unshownCount = 2
    var book = ChannelBook(limits: limits)
    _ = book.welcomed()
    guard case .save(let record) = book.connect("a").first else {
      Issue.record()
      return
    }
    _ = try book.received(.opened(record.id, token: Self.token, host: nil))
    var taken: [UInt64] = []
    func note(_ effects: [ChannelBook.Effect]) {
      for case .send(.taken(_, let through)) in effects { taken.append(through) }
    }
    for sequence in 1...4 as ClosedRange<UInt64> {
      note(try book.received(.event(record.id, sequence: sequence, .message(Self.message("m")))))
    }
    #expect(taken == [1, 2])
    while let step = book.next("a") { note(step.effects) }
    #expect(taken == [1, 2, 4])
  }

  /// Devices that are killed, objects that are dropped, connections that break and relays that forget, in
  /// random order. Every third app completes its messages later.
  @Test(arguments: 0..<60) func everyMessageIsShownOnce(seed: UInt64) throws {
    var life = DeviceLife(seed: seed)
    for _ in 0..<4000 { try life.step() }
    try life.finish()
  }
}

/// A device with a disk that outlives it, a relay after the page, and a network between them.
struct DeviceLife {
  struct Disk {
    var records: [ChannelID: ChannelBook.Record] = [:]
    var events: [ChannelID: [UInt64: ChannelEvent]] = [:]
  }

  struct RelayChannel {
    let token: String
    var last: UInt64 = 0
    var taken: UInt64 = 0
    var events: [(sequence: UInt64, event: ChannelEvent)] = []
    var hasEnded = false
    /// Sent on this connection.
    var sent: UInt64 = 0
    var isOpen = false
  }

  static let identifiers = ["a", "b"]

  var generator: SplitMix64
  var book = ChannelBook()
  var disk = Disk()
  var relay: [ChannelID: RelayChannel] = [:]
  var isConnected = false
  /// Under way on the connection.
  var toRelay: [DeviceFrame] = []
  var toDevice: [RelayFrame] = []
  /// By token: texts that the relay has accepted, and those that the app was shown.
  var accepted: [String: [String]] = [:]
  var shown: [String: [String]] = [:]
  /// Tokens of channels that were closing when the process died: nobody is there for their last messages.
  var deserted: Set<String> = []
  /// Identifiers whose channel the app has seen open, and not its end, in this process.
  var lives: Set<String> = []
  var messageCount = 0
  var mayDie = true
  /// The app completes messages later, and these it has and has not completed.
  let completesLater: Bool
  var uncompleted: [(id: ChannelID, sequence: UInt64)] = []

  let limits: ChannelBook.Limits

  init(seed: UInt64) {
    generator = SplitMix64(seed: seed)
    // Every other device is soon behind.
    var limits = ChannelBook.Limits()
    if seed % 2 == 1 { limits.unshownCount = 2 }
    self.limits = limits
    completesLater = seed % 3 == 0
    book = ChannelBook(limits: limits)
  }

  mutating func random(_ count: Int) -> Int { Int(generator.next() % UInt64(count)) }

  mutating func step() throws {
    let identifier = Self.identifiers[random(2)]
    switch random(20) {
    case 0 where random(4) == 0: restart()
    case 1 where random(3) == 0: breakConnection()
    case 1, 2: welcome()
    case 3: perform(book.connect(identifier))
    case 4 where random(6) == 0: perform(book.disconnect(identifier))
    case 4 where random(3) == 0: perform(book.giveUp(identifier))
    case 5, 6, 7, 8: notify()
    case 9, 10, 11: relayReads()
    case 12, 13, 14: try deviceReads()
    case 15, 16, 17: showNext(identifier)
    case 18 where random(30) == 0: forgetAtRelay()
    case 18 where random(10) == 0: dropObject(identifier)
    case 19 where !uncompleted.isEmpty: complete(random(uncompleted.count))
    default: break
    }
    send()
  }

  /// The process is killed. What was under way is gone; the app opens its channels again later.
  mutating func restart() {
    breakConnection()
    deserted.formUnion(disk.records.values.filter(\.isClosing).compactMap(\.token))
    lives = []
    uncompleted = []
    book = ChannelBook(
      records: Array(disk.records.values),
      events: disk.events.mapValues { $0.sorted { $0.key < $1.key }.map { ($0.key, $0.value) } },
      limits: limits)
  }

  /// The app drops the object of a channel, and makes another one when it connects.
  mutating func dropObject(_ identifier: String) {
    deserted.formUnion(
      disk.records.values.filter { $0.isClosing && $0.identifier == identifier }.compactMap(\.token))
    lives.remove(identifier)
    perform(book.restart(identifier))
  }

  mutating func complete(_ index: Int) {
    let message = uncompleted.remove(at: index)
    perform(book.complete(message.id, message.sequence))
  }

  mutating func breakConnection() {
    isConnected = false
    book.connectionEnded()
    toRelay = []
    toDevice = []
    for id in relay.keys { relay[id]!.isOpen = false }
  }

  mutating func welcome() {
    guard !isConnected else { return }
    isConnected = true
    perform(book.welcomed())
  }

  mutating func notify() {
    let open = relay.filter { !$0.value.hasEnded }.sorted { $0.value.token < $1.value.token }
    guard !open.isEmpty else { return }
    let id = open[random(open.count)].key
    messageCount += 1
    relay[id]!.last += 1
    relay[id]!.events.append(
      (relay[id]!.last, .message(ChannelBookTests.message("\(messageCount)"))))
    accepted[relay[id]!.token, default: []].append("\(messageCount)")
  }

  /// The relay loses a channel that has nothing to be sent any more, and its newest messages with it.
  mutating func forgetAtRelay() {
    guard let (id, channel) = relay.sorted(by: { $0.value.token < $1.value.token }).first else { return }
    // What the device has removed it has shown to the end.
    guard let record = disk.records[id] else { return }
    for stored in channel.events where disk.events[id]?[stored.sequence] == nil {
      if stored.sequence > record.stored, case .message(let message) = stored.event {
        accepted[channel.token]!.removeAll { $0 == String(decoding: message.body, as: UTF8.self) }
      }
    }
    relay[id] = nil
    breakConnection()
  }

  mutating func relayReads() {
    guard isConnected, !toRelay.isEmpty else { return }
    switch toRelay.removeFirst() {
    case .hello: break
    case .open(let id, let isKnown, let taken):
      #expect(relay[id]?.isOpen != true, "opened twice on a connection")
      if relay[id] == nil, !isKnown {
        relay[id] = RelayChannel(token: "token \(relay.count) \(random(1 << 40)) x")
      }
      guard var channel = relay[id], taken <= channel.last else {
        relay[id] = nil
        return toDevice.append(.failed(id, code: 502))
      }
      channel.isOpen = true
      channel.taken = max(channel.taken, taken)
      channel.events.removeAll { $0.sequence <= taken }
      channel.sent = channel.taken
      relay[id] = channel
      toDevice.append(.opened(id, token: channel.token, host: nil))
    case .close(let id):
      guard relay[id]?.isOpen == true, relay[id]?.hasEnded == false else { return }
      relay[id]!.hasEnded = true
      relay[id]!.last += 1
      relay[id]!.events.append((relay[id]!.last, .closed))
    case .taken(let id, let through):
      guard let channel = relay[id] else { return }
      #expect(through <= channel.sent, "the device took what was not sent")
      relay[id]!.taken = max(channel.taken, through)
      relay[id]!.events.removeAll { $0.sequence <= through }
      if channel.hasEnded, through == channel.last { relay[id] = nil }
    }
  }

  /// Events of open channels, up to four ahead.
  mutating func send() {
    guard isConnected else { return }
    for id in relay.keys.sorted(by: { $0.description < $1.description }) where relay[id]!.isOpen {
      for stored in relay[id]!.events where stored.sequence > relay[id]!.sent {
        guard stored.sequence <= relay[id]!.taken + 4 else { break }
        toDevice.append(.event(id, sequence: stored.sequence, stored.event))
        relay[id]!.sent = stored.sequence
      }
    }
  }

  mutating func deviceReads() throws {
    guard isConnected, !toDevice.isEmpty else { return }
    perform(try book.received(toDevice.removeFirst()))
  }

  /// A kill may come between any two effects.
  /// Returns false when the process died before all were carried out.
  @discardableResult
  mutating func perform(_ effects: [ChannelBook.Effect]) -> Bool {
    for effect in effects {
      if mayDie, random(2000) == 0 {
        restart()
        return false
      }
      switch effect {
      case .save(let record): disk.records[record.id] = record
      case .saveEvent(let id, let sequence, let event): disk.events[id, default: [:]][sequence] = event
      case .shown(let record, let sequence):
        let earliest = disk.events[record.id]?.keys.min()
        let event = disk.events[record.id]?.removeValue(forKey: sequence)
        #expect(event != nil, "an event was shown twice")
        disk.records[record.id] = record
        if case .message(let message) = event {
          #expect(completesLater || earliest == sequence, "an event was skipped")
          shown[record.token!, default: []].append(String(decoding: message.body, as: UTF8.self))
        }
      case .remove(let id):
        disk.records[id] = nil
        disk.events[id] = nil
      case .send(let frame): if isConnected { toRelay.append(frame) }
      case .wake: break
      }
    }
    return true
  }

  mutating func showNext(_ identifier: String) {
    guard let step = book.next(identifier, completesLater: completesLater) else { return }
    // One that dies here has counted the event as shown.
    guard perform(step.effects) else { return }
    let isRemoved = step.effects.contains { if case .shown = $0 { true } else { false } }
    switch step.notice {
    case nil: #expect(!isRemoved, "an event was removed, and the app did not see it")
    case .opened:
      #expect(lives.insert(identifier).inserted, "opened twice")
    case .message(_, let id, let sequence, _) where completesLater:
      #expect(!isRemoved && lives.contains(identifier), "a message of a channel that is not open")
      uncompleted.append((id, sequence))
    case .message, .pingFailed:
      #expect(isRemoved && lives.contains(identifier), "a message of a channel that is not open")
    case .error(ChannelBook.misuse): break
    case .closed:
      #expect(lives.remove(identifier) != nil, "closed without having been open")
    case .error: lives.remove(identifier)
    }
  }

  mutating func finish() throws {
    mayDie = false
    for round in 0..<5000 {
      welcome()
      for identifier in Self.identifiers {
        if [.prepared, .disconnected, .failed].contains(book.phase(identifier)), round < 100 {
          perform(book.connect(identifier))
        }
        showNext(identifier)
      }
      while !uncompleted.isEmpty { complete(0) }
      relayReads()
      send()
      try deviceReads()
    }
    for (token, texts) in accepted {
      let seen = shown[token] ?? []
      guard !completesLater else {
        let all = Set(texts)
        #expect(Set(seen).count == seen.count && all.isSuperset(of: seen), "\(token)")
        #expect(deserted.contains(token) || Set(seen) == all, "\(token)")
        continue
      }
      #expect(seen == (deserted.contains(token) ? Array(texts.prefix(seen.count)) : texts), "\(token)")
    }
  }
}
