package import Foundation
package import PushWire

/// All channels of a device. A value: calls of the app and frames of the relay in, effects out.
///
/// Effects are carried out in order, and one that stores something is carried out before the next one
/// begins: that is what makes an event be shown exactly once. Source: PUSH-PROTOCOL.md, *Shown exactly once*.
package struct ChannelBook: Sendable {
  package struct Limits: Sendable {
    /// Events, and bytes of their bodies, of one channel that the device stores for the app. More stay
    /// with the relay.
    package var unshownCount = 1000
    package var unshownByteCount = 16 << 20

    package init() {}
  }

  /// A channel as it is stored. Its events are stored beside it.
  package struct Record: Equatable, Sendable {
    package let id: ChannelID
    package let identifier: String
    /// Nil until the relay has opened the channel.
    package var token: String?
    package var host: String?
    /// The app wants it to end.
    package var isClosing = false
    /// The app was shown the end. What is left are messages that it has not completed.
    package var isEnded = false
    /// Number of the last event that was stored.
    package var stored: UInt64 = 0
    /// What the app needs to read bodies that are encrypted for this channel.
    package let keys: Data?

    package init(id: ChannelID, identifier: String, keys: Data? = nil) {
      self.id = id
      self.identifier = identifier
      self.keys = keys
    }
  }

  /// An event of a channel, as the app gets it.
  package enum Notice: Equatable, Sendable {
    case opened(token: String, host: String?, keys: Data?)
    /// The channel's id and the message's number name the message for good.
    case message(PushMessage, ChannelID, sequence: UInt64, keys: Data?)
    case pingFailed(UInt32)
    case closed(token: String)
    case error(UInt32)
  }

  package enum Effect: Equatable, Sendable {
    case save(Record)
    case saveEvent(ChannelID, sequence: UInt64, ChannelEvent)
    /// Saves the record and removes the event, both or neither: the app is about to be shown it.
    case shown(Record, sequence: UInt64)
    /// Removes a channel and its events.
    case remove(ChannelID)
    /// Sends a frame, or drops it while there is no connection.
    case send(DeviceFrame)
    /// A notice waits for the channel of this identifier.
    case wake(identifier: String)
  }

  /// The relay breaks the protocol; the connection has to end.
  package struct Violation: Error, Equatable {
    package let reason: String
  }

  /// Code of the Error event for a call that does not fit the channel's state, and for a channel that was given up while it was connecting.
  package static let misuse: UInt32 = 0

  private struct Entry: Sendable {
    var record: Record
    /// Events that are stored, and were not shown or not completed.
    var events: [(sequence: UInt64, event: ChannelEvent)]
    /// `Open` was sent on this connection. The relay takes it once.
    var isRequested = false
    /// The relay has answered `Open` on this connection.
    var isOpened = false
    /// Events up to this number are stored, and the relay was told.
    var taken: UInt64 = 0
    /// The stored events are, or were, among the notices of the app's object.
    var isShown = false
    /// The relay has said `Failed`.
    var hasFailed = false

    /// The relay has nothing more to say about the channel.
    var hasEnded: Bool { record.isEnded || hasFailed || events.last?.event.isLast == true }

    /// Connecting the identifier again resumes the channel.
    var canResume: Bool { !record.isClosing && !record.isEnded }

    /// Its messages are those of an earlier object, for the next channel of the identifier to show.
    var isLeftOver: Bool { !canResume && !isShown }
  }

  /// A channel object of the app.
  private struct Handle: Sendable {
    var phase = ChannelPhase.prepared
    /// The channel of the last `connect`, until its last event was shown.
    var channel: ChannelID?
    var notices: [Waiting] = []
  }

  private enum Waiting: Sendable {
    case opened(ChannelID, token: String, host: String?)
    case event(ChannelID, sequence: UInt64, ChannelEvent)
    case failed(ChannelID, UInt32)
    case givenUp
    case misuse
  }

  private let limits: Limits
  private var entries: [ChannelID: Entry] = [:]
  private var handles: [String: Handle] = [:]
  private var isWelcome = false

  /// A book of what is stored. Events are in the order of their numbers.
  package init(
    records: [Record] = [], events: [ChannelID: [(sequence: UInt64, event: ChannelEvent)]] = [:],
    limits: Limits = Limits()
  ) {
    self.limits = limits
    for record in records {
      var entry = Entry(record: record, events: events[record.id] ?? [])
      // An event is stored before its channel's number is.
      entry.record.stored = max(record.stored, entry.events.last?.sequence ?? 0)
      entries[record.id] = entry
    }
  }

  package func phase(_ identifier: String) -> ChannelPhase { handles[identifier]?.phase ?? .prepared }

  /// Some channel has something to do at the relay.
  package var needsConnection: Bool {
    let claimed = Set(handles.values.compactMap(\.channel))
    return entries.values.contains {
      !$0.record.isEnded && ($0.record.isClosing || claimed.contains($0.record.id))
    }
  }

  /// A channel of the identifier is stored, and connecting the identifier resumes it.
  package func canResume(_ identifier: String) -> Bool {
    entries.values.contains { $0.record.identifier == identifier && $0.canResume }
  }

  // MARK: Calls of the app

  /// `keys` are those of a new channel.
  package mutating func connect(_ identifier: String, keys: Data? = nil) -> [Effect] {
    if handles[identifier] == nil { handles[identifier] = Handle() }
    let (phase, action) = handles[identifier]!.phase.applying(.connect)
    guard action == .open else { return showMisuse(identifier) }
    handles[identifier]!.phase = phase
    // A channel of an earlier process is resumed and keeps its token.
    if let resumed = entries.values.first(where: {
      $0.record.identifier == identifier && $0.canResume
    }) {
      handles[identifier]!.channel = resumed.record.id
      // An object that was dropped may have opened it on this connection.
      return resumed.hasEnded || resumed.isOpened
        ? showOpened(resumed.record.id) : open(resumed.record.id)
    }
    let record = Record(id: .random(), identifier: identifier, keys: keys)
    handles[identifier]!.channel = record.id
    entries[record.id] = Entry(record: record, events: [])
    return [.save(record)] + open(record.id)
  }

  package mutating func disconnect(_ identifier: String) -> [Effect] {
    let (next, action) = phase(identifier).applying(.disconnect)
    guard action == .close, let id = handles[identifier]?.channel, entries[id] != nil else {
      return showMisuse(identifier)
    }
    handles[identifier]!.phase = next
    entries[id]!.record.isClosing = true
    let close = entries[id]!.isOpened ? [Effect.send(.close(id))] : []
    return [.save(entries[id]!.record)] + close
  }

  /// Gives up a channel that the relay has not opened. Error 0 follows, and what the relay opens all the same is resumed by the next `connect`,
  /// as after a restart. Nothing happens in another phase, and when the answer waits for the app.
  package mutating func giveUp(_ identifier: String) -> [Effect] {
    guard let handle = handles[identifier], handle.phase == .connecting, let id = handle.channel,
      let entry = entries[id], !entry.isShown, !entry.hasFailed
    else { return [] }
    handles[identifier]!.channel = nil
    handles[identifier]!.notices.append(.givenUp)
    return [.wake(identifier: identifier)]
  }

  /// One step towards the app: effects, and then the notice that the app gets, unless the app does not see
  /// this one. Nil when nothing waits. With `completesLater` a message counts as shown when the app has
  /// completed it.
  package mutating func next(
    _ identifier: String, completesLater: Bool = false
  ) -> (effects: [Effect], notice: Notice?)? {
    guard let waiting = handles[identifier]?.notices.first else { return nil }
    handles[identifier]!.notices.removeFirst()
    return show(waiting, identifier, completesLater: completesLater)
  }

  /// The app is done with a message.
  package mutating func complete(_ id: ChannelID, _ sequence: UInt64) -> [Effect] {
    guard entries[id]?.events.contains(where: { $0.sequence == sequence }) == true else { return [] }
    return shown(id, sequence)
  }

  /// The app has dropped the object of a channel and uses a new one, which finds what it would find after a
  /// restart of the app.
  package mutating func restart(_ identifier: String) -> [Effect] {
    guard handles.removeValue(forKey: identifier) != nil else { return [] }
    var effects: [Effect] = []
    for id in entries.keys.sorted(by: { $0.description < $1.description })
    where entries[id]!.record.identifier == identifier {
      if entries[id]!.hasFailed { effects += end(id) }
      entries[id]?.isShown = false
    }
    return effects
  }

  /// A call of an object that may not use a channel.
  package mutating func misuse(_ name: String) -> [Effect] { showMisuse(name) }

  private mutating func showMisuse(_ identifier: String) -> [Effect] {
    handles[identifier, default: Handle()].notices.append(.misuse)
    return [.wake(identifier: identifier)]
  }

  /// The phase is that which the app has seen, so it changes with the notice.
  private mutating func show(
    _ waiting: Waiting, _ identifier: String, completesLater: Bool
  ) -> (effects: [Effect], notice: Notice?) {
    let input: ChannelPhase.Input
    let notice: Notice
    var effects: [Effect] = []
    var token = ""
    switch waiting {
    case .misuse: return ([], .error(Self.misuse))
    case .givenUp: (input, notice) = (.error, .error(Self.misuse))
    case .opened(let id, let token, let host):
      (input, notice) = (.opened, .opened(token: token, host: host, keys: entries[id]?.record.keys))
    case .failed(let id, let code):
      token = entries[id]?.record.token ?? ""
      (input, notice) = (.error, .error(code))
      effects = end(id)
    case .event(let id, let sequence, let event):
      token = entries[id]?.record.token ?? ""
      switch event {
      case .message(let message):
        (input, notice) = (
          .message, .message(message, id, sequence: sequence, keys: entries[id]?.record.keys)
        )
        // A message that the app does not get is done with at once.
        let isGiven = handles[identifier]!.phase.applying(.message).action == .show
        if !completesLater || !isGiven { effects = shown(id, sequence) }
      case .pingFailed(let code):
        (input, notice) = (.pingFailed, .pingFailed(code))
        effects = shown(id, sequence)
      case .closed:
        (input, notice) = (.closed, .closed(token: token))
        effects = end(id)
      case .error(let code):
        (input, notice) = (.error, .error(code))
        effects = end(id)
      }
    }
    let (phase, action) = handles[identifier]!.phase.applying(input)
    handles[identifier]!.phase = phase
    switch action {
    case .show: return (effects, notice)
    case .showClosed: return (effects, .closed(token: token))
    case .ignore, .open, .close, .showMisuse: return (effects, nil)
    }
  }

  private mutating func shown(_ id: ChannelID, _ sequence: UInt64) -> [Effect] {
    guard entries[id] != nil else { return [] }
    entries[id]!.events.removeAll { $0.sequence == sequence }
    let record = entries[id]!.record
    let effects = [Effect.shown(record, sequence: sequence)]
    guard record.isEnded, entries[id]!.events.isEmpty else { return effects + take(id) }
    entries[id] = nil
    return effects + [.remove(id)]
  }

  /// The app has seen the end of the channel, or is about to. Messages that it has not completed stay until
  /// it has; nothing else of the channel is shown.
  private mutating func end(_ id: ChannelID) -> [Effect] {
    guard let entry = entries[id], !entry.record.isEnded else { return [] }
    let identifier = entry.record.identifier
    if handles[identifier]?.channel == id {
      handles[identifier]!.channel = nil
      handles[identifier]!.notices.removeAll { waiting in
        switch waiting {
        case .opened(id, _, _), .event(id, _, _), .failed(id, _): true
        default: false
        }
      }
    }
    let messages = entry.events.filter { if case .message = $0.event { true } else { false } }
    guard !messages.isEmpty else {
      entries[id] = nil
      return [.remove(id)]
    }
    entries[id]!.record.isEnded = true
    entries[id]!.events = messages
    let record = entries[id]!.record
    let kept = Set(messages.map(\.sequence))
    let others = entry.events.map(\.sequence).filter { !kept.contains($0) }
    return (others.isEmpty ? [.save(record)] : others.map { .shown(record, sequence: $0) }) + take(id)
  }

  // MARK: The connection

  /// The relay said welcome.
  package mutating func welcomed() -> [Effect] {
    isWelcome = true
    let claimed = Set(handles.values.compactMap(\.channel))
    // The end of these channels is stored, and no channel object of the app is left to show it.
    let deserted = entries.values.filter {
      $0.record.isClosing && !$0.record.isEnded && $0.hasEnded && !claimed.contains($0.record.id)
    }
    let removals = deserted.flatMap { end($0.record.id) }
    return removals
      + entries.values
      .filter { claimed.contains($0.record.id) || $0.record.isClosing }
      .map(\.record.id).sorted { $0.description < $1.description }
      .flatMap { open($0) }
  }

  package mutating func connectionEnded() {
    isWelcome = false
    for id in entries.keys { (entries[id]!.isRequested, entries[id]!.isOpened) = (false, false) }
  }

  private mutating func open(_ id: ChannelID) -> [Effect] {
    guard isWelcome, let entry = entries[id], !entry.hasEnded, !entry.isRequested else { return [] }
    entries[id]!.isRequested = true
    entries[id]!.taken = entry.record.stored
    return [.send(.open(id, isKnown: entry.record.token != nil, taken: entry.record.stored))]
  }

  /// An `Opened`, `Failed` or `Event` of the relay.
  package mutating func received(_ frame: RelayFrame) throws(Violation) -> [Effect] {
    switch frame {
    case .opened(let id, let token, let host): try opened(id, token, host)
    case .failed(let id, let code): failed(id, code)
    case .event(let id, let sequence, let event): try received(id, sequence, event)
    case .welcome, .goodbye:
      throw Violation(reason: "a message of the connection was taken for one of a channel")
    }
  }

  private mutating func opened(_ id: ChannelID, _ token: String, _ host: String?) throws(Violation)
    -> [Effect]
  {
    guard let entry = entries[id], !entry.record.isEnded else { return [] }
    guard entry.record.token == nil || entry.record.token == token else {
      throw Violation(reason: "a channel has got another token")
    }
    entries[id]!.isOpened = true
    entries[id]!.record.token = token
    entries[id]!.record.host = host
    var effects: [Effect] = entries[id]!.record == entry.record ? [] : [.save(entries[id]!.record)]
    if entry.record.isClosing { effects.append(.send(.close(id))) }
    return effects + showOpened(id)
  }

  /// Once for an object of the app, and before everything that was stored for an earlier one.
  private mutating func showOpened(_ id: ChannelID) -> [Effect] {
    guard let entry = entries[id], !entry.isShown, let token = entry.record.token,
      handles[entry.record.identifier]?.channel == id
    else { return [] }
    entries[id]!.isShown = true
    let identifier = entry.record.identifier
    handles[identifier]!.notices.append(.opened(id, token: token, host: entry.record.host))
    let leftOver = entries.values.filter { $0.record.identifier == identifier && $0.isLeftOver }
    for other in leftOver.sorted(by: { $0.record.stored < $1.record.stored }) {
      entries[other.record.id]!.isShown = true
      for case (let sequence, .message(let message)) in other.events {
        handles[identifier]!.notices.append(.event(other.record.id, sequence: sequence, .message(message)))
      }
    }
    for stored in entry.events {
      handles[identifier]!.notices.append(.event(id, sequence: stored.sequence, stored.event))
    }
    return [.wake(identifier: identifier)]
  }

  private mutating func failed(_ id: ChannelID, _ code: UInt32) -> [Effect] {
    guard let entry = entries[id], !entry.record.isEnded else { return [] }
    guard handles[entry.record.identifier]?.channel == id else { return end(id) }
    entries[id]!.hasFailed = true
    // Messages that were accepted are shown although the relay has forgotten the channel.
    let effects = entry.events.isEmpty ? [] : showOpened(id)
    handles[entry.record.identifier]!.notices.append(.failed(id, code))
    return effects + [.wake(identifier: entry.record.identifier)]
  }

  private mutating func received(
    _ id: ChannelID, _ sequence: UInt64, _ event: ChannelEvent
  ) throws(Violation) -> [Effect] {
    guard let entry = entries[id], !entry.record.isEnded else {
      // Its end was shown, and the relay has not heard of that yet.
      return [.send(.taken(id, through: sequence))]
    }
    guard entry.isOpened else { throw Violation(reason: "an event of a channel that is not open") }
    guard sequence > entry.record.stored else { return [] }
    guard !isDeserted(entry) else {
      entries[id]!.record.stored = sequence
      guard event.isLast else { return take(id) }
      return end(id) + [.send(.taken(id, through: sequence))]
    }
    entries[id]!.record.stored = sequence
    entries[id]!.events.append((sequence, event))
    let effects = [Effect.saveEvent(id, sequence: sequence, event)] + take(id)
    // When the app has not connected the channel again yet, or was not shown that it is open, the event
    // comes after that.
    guard handles[entry.record.identifier]?.channel == id, entry.isShown else { return effects }
    handles[entry.record.identifier]!.notices.append(.event(id, sequence: sequence, event))
    return effects + [.wake(identifier: entry.record.identifier)]
  }

  /// A channel that is closing after a restart: no object of the app is left to show it.
  private func isDeserted(_ entry: Entry) -> Bool {
    entry.record.isClosing && handles[entry.record.identifier]?.channel != entry.record.id
  }

  /// Acknowledges what is stored, unless the app is too far behind.
  private mutating func take(_ id: ChannelID) -> [Effect] {
    guard let entry = entries[id], entry.isOpened, entry.record.stored > entry.taken else { return [] }
    if !entry.record.isEnded, !isDeserted(entry) {
      guard entry.events.count <= limits.unshownCount,
        entry.events.reduce(0, { $0 + $1.event.byteCount }) <= limits.unshownByteCount
      else { return [] }
    }
    entries[id]!.taken = entry.record.stored
    return [.send(.taken(id, through: entry.record.stored))]
  }
}
