package import PushWire

/// Which channels are connected, and which of their events are sent next. A value: calls and times in,
/// actions out. Source: PUSH-PROTOCOL.md, *Order*.
///
/// A new event is sent from memory when everything before it was sent and the device's window has room.
/// Otherwise the hub forgets its body, and loads it from the store when there is room.
package struct Hub: Sendable {
  package struct Limits: Sendable {
    /// Events, and bytes of their bodies, that a device may have without taking them: of all channels, and
    /// of each. One event is always allowed.
    package var windowCount = 64
    package var windowByteCount = 2 << 20
    package var channelWindowCount = 16
    package var channelWindowByteCount = 1 << 20
    /// Of the events of a channel, those that it may send whatever the device has of its other channels:
    /// channels that are not taken hold up no other.
    package var channelShareCount = 4
    /// Longest time in milliseconds for which a transport takes nothing more.
    package var writeTime: Int64 = 60_000

    package init() {}
  }

  /// A connection of a device, of one process of the relay.
  package struct ConnectionID: Hashable, Sendable {
    package let value: UInt64

    package init(value: UInt64) {
      self.value = value
    }
  }

  package enum Action: Equatable, Sendable {
    case send(ConnectionID, ChannelID, sequence: UInt64, ChannelEvent)
    /// Read events from the store and give them to ``loaded(_:for:)``.
    case load(Load)
    case take(ChannelNumber, through: UInt64)
    case goodbye(ConnectionID, GoodbyeReason)
  }

  package struct Load: Equatable, Sendable {
    package let connection: ConnectionID
    package let channel: ChannelNumber
    package let after: UInt64
    package let count: Int
    package let byteCount: Int
  }

  /// The device breaks the protocol; the connection has to end.
  package struct Violation: Error, Equatable {
    package let reason: String
  }

  private struct Connection: Sendable {
    let device: DeviceKey
    var channels: [ChannelID: ChannelNumber] = [:]
    /// Channels with events in the store that were not sent, the next one first.
    var backlog: [ChannelNumber] = []
    var sentCount = 0
    var sentBytes = 0
    /// Since when the transport takes nothing more. Nil while it does.
    var fullSince: Int64?
    /// The channel for which events are read from the store, 0 for none. An optional would make each
    /// connection longer by a word.
    var loading: Int64 = 0
    /// The last channels that have ended, so that an acknowledgement that comes twice is no fault.
    var ended: [ChannelID] = []

    var isWritable: Bool { fullSince == nil }
  }

  private struct Channel: Sendable {
    let id: ChannelID
    let connection: ConnectionID
    /// Number of the newest event that is known to be stored.
    var last: UInt64
    var sentThrough: UInt64
    var taken: UInt64
    /// Numbers and bytes of the events that were sent and not taken.
    var sent: [(sequence: UInt64, byteCount: Int)] = []
    var sentBytes = 0
    var hasBacklog = false
    var isLoading = false
    /// The last event that the channel has was sent.
    var isEndSent = false
    /// An event was loaded for which the window had no room. Nothing is loaded until the device takes some:
    /// of this channel, if its own window was the narrow one.
    var blocked = Block.none
    /// Something was stored since the load began, so its result may not be all.
    var changedWhileLoading = false
  }

  private enum Block: Sendable { case none, byChannel, byDevice }

  private static let endedMax = 64

  private let limits: Limits
  private var connections: [ConnectionID: Connection] = [:]
  private var devices: [DeviceKey: ConnectionID] = [:]
  private var channels: [ChannelNumber: Channel] = [:]
  package private(set) var isPaused = false

  package init(limits: Limits = Limits()) {
    self.limits = limits
  }

  package var connectionCount: Int { connections.count }
  package var connectedChannels: Set<ChannelNumber> { Set(channels.keys) }

  package func isConnected(_ channel: ChannelNumber) -> Bool { channels[channel] != nil }

  /// Events of the channel up to this number may have reached its device.
  package func sentThrough(_ channel: ChannelNumber) -> UInt64 { channels[channel]?.sentThrough ?? 0 }

  // MARK: Connections

  /// A device said hello. An earlier connection of it is replaced.
  package mutating func connect(_ id: ConnectionID, device: DeviceKey) -> [Action] {
    var actions: [Action] = []
    if let earlier = devices[device] {
      disconnect(earlier)
      actions.append(.goodbye(earlier, .replaced))
    }
    devices[device] = id
    connections[id] = Connection(device: device)
    return actions
  }

  /// The device has a newer connection elsewhere.
  package mutating func replace(_ device: DeviceKey) -> [Action] {
    guard let earlier = devices[device] else { return [] }
    disconnect(earlier)
    return [.goodbye(earlier, .replaced)]
  }

  /// What a connection needs cannot be had. Nothing happens for one that is unknown.
  package mutating func fail(_ id: ConnectionID, _ reason: GoodbyeReason) -> [Action] {
    guard connections[id] != nil else { return [] }
    disconnect(id)
    return [.goodbye(id, reason)]
  }

  /// A connection has ended. Nothing happens for one that is unknown.
  package mutating func disconnect(_ id: ConnectionID) {
    guard let connection = connections.removeValue(forKey: id) else { return }
    for channel in connection.channels.values { channels[channel] = nil }
    devices[connection.device] = nil
  }

  /// The transport takes more bytes, or has enough for now.
  package mutating func setWritable(_ isWritable: Bool, _ id: ConnectionID, now: Int64) -> [Action] {
    if isWritable {
      connections[id]?.fullSince = nil
    } else if connections[id]?.fullSince == nil {
      connections[id]?.fullSince = now
    }
    return fill(id)
  }

  /// A transport that takes nothing more has sent some of what it has: its device is slow, and reads.
  package mutating func progressed(_ id: ConnectionID, now: Int64) {
    if connections[id]?.fullSince != nil { connections[id]?.fullSince = now }
  }

  /// While the transports of all devices together have enough, nothing more is sent.
  package mutating func setPaused(_ isPaused: Bool) -> [Action] {
    guard isPaused != self.isPaused else { return [] }
    self.isPaused = isPaused
    return isPaused ? [] : Array(connections.keys).flatMap { fill($0) }
  }

  /// Ends the connections of devices whose transport has sent nothing for too long.
  package mutating func tick(now: Int64) -> [Action] {
    let slow = connections.filter { connection in
      connection.value.fullSince.map { now - $0 > limits.writeTime } ?? false
    }
    for id in slow.keys { disconnect(id) }
    return slow.keys.map { .goodbye($0, .slow) }
  }

  // MARK: Channels

  /// The store has opened a channel for a connection. Returns nil if the connection has ended meanwhile.
  package mutating func open(_ stored: StoredChannel, _ id: ConnectionID) throws(Violation) -> [Action]? {
    guard let connection = connections[id] else { return nil }
    guard connection.channels[stored.id] == nil else { throw Violation(reason: "a channel was opened twice") }
    connections[id]?.channels[stored.id] = stored.number
    // What was sent to an earlier connection and not taken is sent again.
    channels[stored.number] = Channel(
      id: stored.id, connection: id, last: stored.last, sentThrough: stored.taken, taken: stored.taken)
    // Also when nothing waited: an event may have been stored since, and the hub did not know the channel.
    addBacklog(stored.number)
    return fill(id)
  }

  /// The channel that a connection has opened under this id.
  package func channel(_ id: ChannelID, _ connection: ConnectionID) -> ChannelNumber? {
    connections[connection]?.channels[id]
  }

  // MARK: Events

  /// An event is durable. Calls for one channel may come in any order.
  package mutating func stored(
    _ number: ChannelNumber, _ event: ChannelEvent, as eventNumber: EventNumber
  ) -> [Action] {
    let sequence = eventNumber.sequence
    guard var channel = channels[number], sequence > channel.sentThrough else { return [] }
    let follows = eventNumber.previous == channel.last
    channel.last = max(channel.last, sequence)
    guard follows, !channel.hasBacklog, !channel.isLoading, let connection = connections[channel.connection],
      connection.isWritable, !isPaused,
      room(for: event.byteCount, in: channel, connection) == .none
    else {
      if channel.isLoading { channel.changedWhileLoading = true }
      channels[number] = channel
      addBacklog(number)
      return fill(channel.connection)
    }
    channels[number] = channel
    return [send(number, sequence, event)]
  }

  /// What the store has for a load, in order: all there is, or as much as the load asked for.
  package mutating func loaded(_ events: [StoredEvent], for load: Load) -> [Action] {
    if channels[load.channel] == nil, connections[load.connection]?.loading == load.channel.value {
      // The channel has ended meanwhile.
      connections[load.connection]!.loading = 0
      return fill(load.connection)
    }
    guard var channel = channels[load.channel], channel.connection == load.connection, channel.isLoading
    else {
      return []
    }
    let changed = channel.changedWhileLoading
    channel.isLoading = false
    channel.changedWhileLoading = false
    channels[load.channel] = channel
    connections[load.connection]!.loading = 0
    var actions: [Action] = []
    // A transport that has become full meanwhile gets them when it takes more.
    let isWritable = connections[load.connection]!.isWritable && !isPaused
    for event in events where isWritable && event.sequence > channel.sentThrough {
      let block = room(
        for: event.event.byteCount, in: channels[load.channel]!, connections[load.connection]!)
      guard block == .none else {
        channels[load.channel]!.blocked = block
        break
      }
      actions.append(send(load.channel, event.sequence, event.event))
    }
    // An empty result says that the rest was replaced or has expired.
    let isBehind = !events.isEmpty && channels[load.channel]!.sentThrough < channels[load.channel]!.last
    if isBehind || changed { addBacklog(load.channel) }
    return actions + fill(load.connection)
  }

  /// The device has stored the events of a channel up to `through`.
  package mutating func taken(
    _ id: ChannelID, through: UInt64, _ connection: ConnectionID
  ) throws(Violation) -> [Action] {
    guard let number = channel(id, connection), var channel = channels[number] else {
      if connections[connection]?.ended.contains(id) ?? false { return [] }
      throw Violation(reason: "an event of a channel that is not open was taken")
    }
    guard through <= channel.sentThrough else {
      throw Violation(reason: "an event was taken that was not sent")
    }
    guard through > channel.taken else { return [] }
    let count = channel.sent.prefix { $0.sequence <= through }.count
    let byteCount = channel.sent.prefix(count).reduce(0) { $0 + $1.byteCount }
    channel.sent.removeFirst(count)
    channel.sentBytes -= byteCount
    channel.taken = through
    channel.blocked = .none
    channels[number] = channel
    connections[connection]!.sentCount -= count
    connections[connection]!.sentBytes -= byteCount
    if channel.isEndSent, through == channel.sentThrough { forget(number) }
    for waiting in connections[connection]!.backlog where channels[waiting]!.blocked == .byDevice {
      channels[waiting]!.blocked = .none
    }
    return [.take(number, through: through)] + fill(connection)
  }

  /// The device has taken the last event of a channel.
  private mutating func forget(_ number: ChannelNumber) {
    guard let channel = channels.removeValue(forKey: number) else { return }
    connections[channel.connection]!.channels[channel.id] = nil
    connections[channel.connection]!.backlog.removeAll { $0 == number }
    connections[channel.connection]!.ended.append(channel.id)
    if connections[channel.connection]!.ended.count > Self.endedMax {
      connections[channel.connection]!.ended.removeFirst()
    }
  }

  // MARK: The window

  /// Which window has no room for one more event of a channel.
  private func room(for byteCount: Int, in channel: Channel, _ connection: Connection) -> Block {
    guard
      channel.sent.isEmpty
        || (channel.sent.count < limits.channelWindowCount
          && channel.sentBytes + byteCount <= limits.channelWindowByteCount)
    else { return .byChannel }
    if channel.sent.count < limits.channelShareCount { return .none }
    guard
      connection.sentCount == 0
        || (connection.sentCount < limits.windowCount
          && connection.sentBytes + byteCount <= limits.windowByteCount)
    else { return .byDevice }
    return .none
  }

  private mutating func send(_ number: ChannelNumber, _ sequence: UInt64, _ event: ChannelEvent) -> Action {
    let connection = channels[number]!.connection
    channels[number]!.sent.append((sequence, event.byteCount))
    channels[number]!.sentBytes += event.byteCount
    channels[number]!.sentThrough = sequence
    if event.isLast { channels[number]!.isEndSent = true }
    channels[number]!.last = max(channels[number]!.last, sequence)
    connections[connection]!.sentCount += 1
    connections[connection]!.sentBytes += event.byteCount
    return .send(connection, channels[number]!.id, sequence: sequence, event)
  }

  private mutating func addBacklog(_ number: ChannelNumber) {
    guard let channel = channels[number], !channel.hasBacklog, !channel.isLoading else { return }
    channels[number]!.hasBacklog = true
    connections[channel.connection]!.backlog.append(number)
  }

  /// Loads events for the channels that wait, one load at a time for a connection, in turns, while there
  /// is room.
  private mutating func fill(_ id: ConnectionID) -> [Action] {
    guard let connection = connections[id], connection.isWritable, !isPaused, connection.loading == 0,
      let index = connection.backlog.firstIndex(where: { number in
        channels[number]!.blocked == .none && room(for: 0, in: channels[number]!, connection) == .none
      })
    else { return [] }
    let number = connections[id]!.backlog.remove(at: index)
    connections[id]!.loading = number.value
    channels[number]!.hasBacklog = false
    channels[number]!.isLoading = true
    let channel = channels[number]!
    let share = limits.channelShareCount - channel.sent.count
    let count = min(
      limits.channelWindowCount - channel.sent.count, max(share, limits.windowCount - connection.sentCount))
    let ownBytes = limits.channelWindowByteCount - channel.sentBytes
    let byteCount = share > 0 ? ownBytes : min(ownBytes, limits.windowByteCount - connection.sentBytes)
    return [
      .load(
        Load(
          connection: id, channel: number, after: channel.sentThrough, count: max(1, count),
          byteCount: max(0, byteCount)))
    ]
  }
}
