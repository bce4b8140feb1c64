import Foundation
import PushWire
import TestSupport
import Testing

@testable import PushRelay

struct HubTests {
  static let device = DeviceKey(hash: Data(repeating: 1, count: 32))
  static let first = Hub.ConnectionID(value: 1)
  static let second = Hub.ConnectionID(value: 2)

  static func channel(_ number: Int64 = 1, last: UInt64 = 0, taken: UInt64 = 0) -> StoredChannel {
    StoredChannel(
      number: ChannelNumber(value: number), id: .random(), prefix: "a b c", state: .open, last: last,
      taken: taken,
      callbacks: GNPRequest.Callbacks())
  }

  /// A number of a channel whose numbers have no gaps.
  static func number(_ sequence: UInt64) -> EventNumber { EventNumber(after: sequence - 1, now: 0) }

  static func message(_ count: Int) -> ChannelEvent {
    .message(PushMessage(body: Data(count: count), accepted: 0))
  }

  @Test func aNewEventIsSentAtOnce() throws {
    var hub = Hub()
    #expect(hub.connect(Self.first, device: Self.device).isEmpty)
    let channel = Self.channel()
    #expect(!hub.isConnected(channel.number))
    // What is stored is looked up once, since something may have been stored meanwhile.
    guard case .load(let load) = try hub.open(channel, Self.first)?.first else {
      Issue.record("no load")
      return
    }
    #expect(hub.loaded([], for: load) == [])
    #expect(hub.isConnected(channel.number))
    let event = Self.message(3)
    #expect(
      hub.stored(channel.number, event, as: Self.number(1)) == [
        .send(Self.first, channel.id, sequence: 1, event)
      ])
    #expect(hub.sentThrough(channel.number) == 1)
    #expect(try hub.taken(channel.id, through: 1, Self.first) == [.take(channel.number, through: 1)])
    // Repeated, and of another channel or connection.
    #expect(try hub.taken(channel.id, through: 1, Self.first) == [])
    #expect(throws: Hub.Violation.self) { try hub.taken(channel.id, through: 2, Self.first) }
    #expect(throws: Hub.Violation.self) { try hub.taken(.random(), through: 1, Self.first) }
    #expect(throws: Hub.Violation.self) { try hub.taken(channel.id, through: 1, Self.second) }
    #expect(throws: Hub.Violation.self) { try hub.open(channel, Self.first) }
  }

  @Test func aDeviceHasOneConnection() throws {
    var hub = Hub()
    _ = hub.connect(Self.first, device: Self.device)
    let channel = Self.channel()
    _ = try hub.open(channel, Self.first)
    #expect(hub.connect(Self.second, device: Self.device) == [.goodbye(Self.first, .replaced)])
    #expect(!hub.isConnected(channel.number) && hub.connectionCount == 1)
    // The end of the first changes nothing for the second.
    _ = try hub.open(channel, Self.second)
    hub.disconnect(Self.first)
    #expect(hub.isConnected(channel.number))
    #expect(try hub.open(Self.channel(2), Self.first) == nil)
    hub.disconnect(Self.second)
    #expect(!hub.isConnected(channel.number) && hub.connectionCount == 0)
  }

  /// What it does not take waits in the store, and costs nothing.
  @Test func aDeviceThatReadsNothingIsCut() throws {
    var hub = Hub()
    _ = hub.connect(Self.first, device: Self.device)
    let channel = Self.channel()
    _ = try hub.open(channel, Self.first)
    _ = hub.stored(channel.number, Self.message(1), as: Self.number(1))
    #expect(hub.tick(now: 1_000_000) == [])
    _ = hub.setWritable(false, Self.first, now: 1_000_000)
    _ = hub.setWritable(false, Self.first, now: 1_030_000)
    #expect(hub.tick(now: 1_060_000) == [])
    _ = hub.setWritable(true, Self.first, now: 1_060_000)
    #expect(hub.tick(now: 2_000_000) == [])
    _ = hub.setWritable(false, Self.first, now: 1_900_000)
    // A slow line is not a device that reads nothing.
    hub.progressed(Self.first, now: 2_000_000)
    #expect(hub.tick(now: 2_060_000) == [])
    #expect(hub.tick(now: 2_060_001) == [.goodbye(Self.first, .slow)])
    #expect(!hub.isConnected(channel.number))
  }

  /// An app that is behind in one channel gets the messages of its others.
  @Test func aChannelThatIsNotTakenDoesNotHoldUpTheOthers() throws {
    var hub = Hub()
    _ = hub.connect(Self.first, device: Self.device)
    let (slow, quick) = (Self.channel(1), Self.channel(2))
    for channel in [slow, quick] {
      guard case .load(let load) = try hub.open(channel, Self.first)?.first else {
        Issue.record("no load")
        return
      }
      _ = hub.loaded([], for: load)
    }
    for sequence in 1...100 as ClosedRange<UInt64> {
      let sent = hub.stored(slow.number, Self.message(10), as: Self.number(sequence))
      #expect(sent.count == (sequence <= 16 ? 1 : 0), "\(sequence)")
    }
    for sequence in 1...100 as ClosedRange<UInt64> {
      let event = Self.message(10)
      #expect(
        hub.stored(quick.number, event, as: Self.number(sequence)) == [
          .send(Self.first, quick.id, sequence: sequence, event)
        ])
      #expect(
        try hub.taken(quick.id, through: sequence, Self.first) == [.take(quick.number, through: sequence)])
    }
    guard case .load(let load) = try hub.taken(slow.id, through: 3, Self.first).last else {
      Issue.record("no load")
      return
    }
    #expect(load.channel == slow.number && load.after == 16 && load.count == 3)
  }

  /// Opens channels for which nothing waits.
  static func open(_ channels: [StoredChannel], _ hub: inout Hub) throws {
    for channel in channels {
      var actions = try hub.open(channel, first) ?? []
      while case .load(let load) = actions.first { actions = hub.loaded([], for: load) }
    }
  }

  /// As many channels as fill the device's window, and another one.
  @Test func manyChannelsThatAreNotTakenHoldUpNoOther() throws {
    var hub = Hub()
    _ = hub.connect(Self.first, device: Self.device)
    let slow = (1...8 as ClosedRange<Int64>).map { Self.channel($0) }
    let quick = Self.channel(9)
    try Self.open(slow + [quick], &hub)
    for channel in slow {
      for sequence in 1...20 as ClosedRange<UInt64> {
        for case .load(let load) in hub.stored(channel.number, Self.message(10), as: Self.number(sequence)) {
          _ = hub.loaded([], for: load)
        }
      }
    }
    for sequence in 1...50 as ClosedRange<UInt64> {
      let event = Self.message(1 << 20)
      let sent = hub.stored(quick.number, event, as: Self.number(sequence))
      #expect(sent == [.send(Self.first, quick.id, sequence: sequence, event)])
      _ = try hub.taken(quick.id, through: sequence, Self.first)
    }
  }

  /// What has ended costs nothing for as long as its connection lives.
  @Test func anEndedChannelIsForgotten() throws {
    var hub = Hub()
    _ = hub.connect(Self.first, device: Self.device)
    let (ended, other) = (Self.channel(1), Self.channel(2))
    try Self.open([ended, other], &hub)
    _ = hub.stored(ended.number, Self.message(1), as: Self.number(1))
    _ = hub.stored(ended.number, .closed, as: Self.number(2))
    _ = try hub.taken(ended.id, through: 1, Self.first)
    #expect(hub.connectedChannels == [ended.number, other.number])
    #expect(try hub.taken(ended.id, through: 2, Self.first) == [.take(ended.number, through: 2)])
    #expect(hub.connectedChannels == [other.number] && !hub.isConnected(ended.number))
    // An acknowledgement that comes again is no fault.
    #expect(try hub.taken(ended.id, through: 2, Self.first) == [])
    #expect(throws: Hub.Violation.self) { try hub.taken(.random(), through: 2, Self.first) }
  }

  /// The channel that ends while the store is read for it takes its connection's turn with it.
  @Test func aChannelThatEndsDuringALoadHoldsUpNoOther() throws {
    var hub = Hub()
    _ = hub.connect(Self.first, device: Self.device)
    let (ended, other) = (Self.channel(1), Self.channel(2))
    try Self.open([ended, other], &hub)
    // The end was stored after a message, and the hub hears of it first.
    guard case .load(let load) = hub.stored(ended.number, .closed, as: Self.number(2)).first else {
      Issue.record("no load")
      return
    }
    #expect(hub.stored(ended.number, Self.message(1), as: Self.number(1)) == [])
    let events = [
      StoredEvent(sequence: 1, event: Self.message(1)), StoredEvent(sequence: 2, event: .closed),
    ]
    guard case .load(let again) = hub.loaded(events, for: load).last else {
      Issue.record("no second load")
      return
    }
    #expect(try hub.taken(ended.id, through: 2, Self.first) == [.take(ended.number, through: 2)])
    #expect(hub.stored(other.number, Self.message(1), as: EventNumber(after: 7, now: 0)) == [])
    guard case .load(let next) = hub.loaded([], for: again).first else {
      Issue.record("no load of the other channel")
      return
    }
    #expect(next.channel == other.number)
  }

  /// The store was read before the event was written, and had nothing any more.
  @Test func anEventThatIsStoredDuringAnEmptyLoadIsNotForgotten() throws {
    var hub = Hub()
    _ = hub.connect(Self.first, device: Self.device)
    let channel = Self.channel(last: 1)
    guard case .load(let load) = try hub.open(channel, Self.first)?.first else {
      Issue.record("no load")
      return
    }
    let event = Self.message(1)
    #expect(hub.stored(channel.number, event, as: Self.number(2)) == [])
    guard case .load(let again) = hub.loaded([], for: load).first else {
      Issue.record("no load")
      return
    }
    #expect(
      hub.loaded([StoredEvent(sequence: 2, event: event)], for: again)
        == [.send(Self.first, channel.id, sequence: 2, event)])
    // A result for an earlier connection changes nothing.
    #expect(hub.loaded([StoredEvent(sequence: 2, event: event)], for: again) == [])
  }

  @Test func nothingIsSentToATransportThatIsFull() throws {
    var hub = Hub()
    _ = hub.connect(Self.first, device: Self.device)
    let channel = Self.channel()
    guard case .load(let opening) = try hub.open(channel, Self.first)?.first else {
      Issue.record("no load")
      return
    }
    _ = hub.loaded([], for: opening)
    #expect(hub.setWritable(false, Self.first, now: 0) == [])
    #expect(hub.stored(channel.number, Self.message(1), as: Self.number(1)) == [])
    let actions = hub.setWritable(true, Self.first, now: 0)
    guard case .load(let load) = actions.first else {
      Issue.record("\(actions)")
      return
    }
    #expect(load.after == 0 && load.count == 16)
  }

  /// Random lives of three channels of one device over a store in memory: whatever the order of calls, a
  /// device that stores what it gets has every event once and in order, and never more than its window.
  @Test(arguments: 0..<40) func everyEventArrivesOnceAndInOrder(seed: UInt64) throws {
    var life = HubLife(seed: seed)
    for _ in 0..<3000 { try life.step() }
    try life.finish()
  }
}

/// A store, a device and a network that loses connections, around a hub.
struct HubLife {
  struct Row {
    var events: [StoredEvent] = []
    var last: UInt64 = 0
    var all: [UInt64] = []
    var taken: UInt64 = 0
    /// Stored, and the hub was not told yet.
    var untold: [(number: EventNumber, event: ChannelEvent)] = []
    /// What the device has, over all connections.
    var received: [UInt64] = []
    /// Replaced or expired before they were sent.
    var deleted: Set<UInt64> = []
  }

  var generator: SplitMix64
  var hub: Hub
  var rows: [Row] = Array(repeating: Row(), count: 3)
  let ids = (0..<3).map { _ in ChannelID.random() }
  var connection = Hub.ConnectionID(value: 0)
  var isConnected = false
  /// What the store has read, and the hub hears later.
  var loads: [(load: Hub.Load, events: [StoredEvent])] = []
  /// Of this connection, by channel: sent and not taken.
  var outstanding: [[(sequence: UInt64, byteCount: Int)]] = Array(repeating: [], count: 3)

  init(seed: UInt64) {
    generator = SplitMix64(seed: seed)
    var limits = Hub.Limits()
    limits.windowCount = 4
    limits.windowByteCount = 100
    limits.channelWindowCount = 3
    limits.channelWindowByteCount = 70
    limits.channelShareCount = 1
    hub = Hub(limits: limits)
  }

  func number(_ index: Int) -> ChannelNumber { ChannelNumber(value: Int64(index + 1)) }

  mutating func random(_ count: Int) -> Int { Int(generator.next() % UInt64(count)) }

  mutating func step() throws {
    switch random(12) {
    case 0 where random(8) == 0: disconnect()
    case 0, 1: try connect()
    case 2, 3, 4: append(random(3))
    case 5, 6: tell(random(3))
    case 7: answerLoad()
    case 8, 9: try take(random(3))
    case 10 where isConnected: try perform(hub.setWritable(random(3) > 0, connection, now: 0))
    case 11: for _ in 0..<random(6) { deleteUnsent(random(3)) }
    default: break
    }
  }

  mutating func connect() throws {
    guard !isConnected else { return }
    isConnected = true
    connection = Hub.ConnectionID(value: connection.value + 1)
    outstanding = Array(repeating: [], count: 3)
    try perform(hub.connect(connection, device: HubTests.device))
    for index in rows.indices {
      // The device has stored what it received, and the store hears it with Open.
      let taken = max(rows[index].taken, rows[index].received.last ?? 0)
      rows[index].taken = taken
      rows[index].events.removeAll { $0.sequence <= taken }
      let stored = StoredChannel(
        number: number(index), id: ids[index], prefix: "a b c", state: .open, last: rows[index].last,
        taken: rows[index].taken, callbacks: GNPRequest.Callbacks())
      // Something may be stored, and told, before the hub hears of the channel.
      if random(3) == 0 {
        append(index)
        tell(index)
      }
      try perform(try hub.open(stored, connection) ?? [])
    }
  }

  mutating func disconnect() {
    guard isConnected else { return }
    isConnected = false
    hub.disconnect(connection)
  }

  mutating func append(_ index: Int) {
    // Sometimes the clock has gone on.
    let number = EventNumber(
      after: rows[index].last, now: random(2) == 0 ? 0 : Int64(rows[index].last / 1000 + 1))
    rows[index].last = number.sequence
    rows[index].all.append(number.sequence)
    let event = HubTests.message(random(60))
    rows[index].events.append(StoredEvent(sequence: number.sequence, event: event))
    rows[index].untold.append((number, event))
  }

  mutating func tell(_ index: Int) {
    guard !rows[index].untold.isEmpty else { return }
    let (told, event) = rows[index].untold.remove(at: random(rows[index].untold.count))
    try? perform(hub.stored(number(index), event, as: told))
  }

  mutating func answerLoad() {
    guard !loads.isEmpty else { return }
    let (load, events) = loads.remove(at: random(loads.count))
    try? perform(hub.loaded(events, for: load))
  }

  func read(_ load: Hub.Load) -> [StoredEvent] {
    var room = load.byteCount
    var events: [StoredEvent] = []
    for event in rows[Int(load.channel.value) - 1].events
    where event.sequence > load.after && events.count < load.count {
      room -= event.event.byteCount
      if room < 0, !events.isEmpty { break }
      events.append(event)
    }
    return events
  }

  mutating func take(_ index: Int) throws {
    guard isConnected, !outstanding[index].isEmpty else { return }
    let count = 1 + random(outstanding[index].count)
    let through = outstanding[index][count - 1].sequence
    outstanding[index].removeFirst(count)
    try perform(try hub.taken(ids[index], through: through, connection))
  }

  /// A message that was not sent is replaced by a later one or expires.
  mutating func deleteUnsent(_ index: Int) {
    let sent = max(hub.sentThrough(number(index)), rows[index].received.last ?? 0)
    guard let event = rows[index].events.first(where: { $0.sequence > sent }),
      // One that the hub is about to be told of goes from memory.
      !rows[index].untold.contains(where: { $0.number.sequence == event.sequence }),
      loads.isEmpty
    else { return }
    rows[index].events.removeAll { $0.sequence == event.sequence }
    rows[index].deleted.insert(event.sequence)
  }

  mutating func perform(_ actions: [Hub.Action]) throws {
    for action in actions {
      switch action {
      case .send(let to, let id, let sequence, let event):
        let index = try #require(ids.firstIndex(of: id))
        try #require(to == connection && isConnected)
        // A second time on one connection would be a fault; after a break the device drops it.
        #expect(outstanding[index].last.map { $0.sequence < sequence } ?? true)
        outstanding[index].append((sequence, event.byteCount))
        if sequence > rows[index].received.last ?? 0 { rows[index].received.append(sequence) }
        let all = outstanding.flatMap { $0 }
        // Beyond the device's window each channel has its share.
        let isShare = outstanding[index].count == 1
        #expect(isShare || all.count <= 4)
        #expect(isShare || all.reduce(0) { $0 + $1.byteCount } <= 100)
        let own = outstanding[index]
        #expect(own.count <= 3)
        #expect(own.count == 1 || own.reduce(0) { $0 + $1.byteCount } <= 70)
      case .load(let load): loads.append((load, read(load)))
      case .take(let channel, let through):
        let index = Int(channel.value) - 1
        rows[index].taken = max(rows[index].taken, through)
        rows[index].events.removeAll { $0.sequence <= through }
      case .goodbye: Issue.record("a goodbye")
      }
    }
  }

  /// Everything that waits is done; then the device has it all.
  mutating func finish() throws {
    try connect()
    try perform(hub.setWritable(true, connection, now: 0))
    for _ in 0..<100_000 {
      let isDone =
        loads.isEmpty && rows.allSatisfy { $0.untold.isEmpty } && outstanding.allSatisfy { $0.isEmpty }
      if isDone { break }
      for index in 0..<3 {
        tell(index)
        try take(index)
      }
      answerLoad()
    }
    for row in rows {
      #expect(row.received == row.all.filter { !row.deleted.contains($0) })
    }
  }
}

struct WriteProgressTests {
  @Test func aSystemThatAcknowledgesNothingIsStalled() {
    let progress = WriteProgress()
    let stuck = { TransportState(isDrained: false, acknowledged: 7) }
    let check = { (now: Int64, sent: Int64, state: () -> TransportState?) in
      progress.check(sent: sent, now: now, writeTime: 60_000, state: state)
    }
    // Nobody asks the system at once.
    #expect(check(14_999, 0, { fatalError() }) == .open)
    #expect(check(15_000, 0, stuck) == .moving)
    #expect(check(60_000, 0, stuck) == .open)
    #expect(check(75_000, 0, stuck) == .stalled)
    // Slow is not stalled.
    #expect(check(75_000, 0, { TransportState(isDrained: false, acknowledged: 8) }) == .moving)
    #expect(check(134_999, 0, { TransportState(isDrained: false, acknowledged: 8) }) == .open)
    #expect(check(135_000, 0, { TransportState(isDrained: true, acknowledged: 9) }) == .drained)
    // A system that does not tell.
    #expect(check(500_000, 0, { nil }) == .open)
  }
}
