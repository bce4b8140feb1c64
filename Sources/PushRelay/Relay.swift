internal import Foundation
internal import Locks
package import Logging
package import PushWire

/// The connection of a device, as the relay uses it. Calls return at once and may come from any thread;
/// what they send goes out in the order of the calls.
package protocol DeviceLink: AnyObject, Sendable {
  /// The body of an event counts as unsent until ``Relay/written(_:)`` was called for its bytes.
  func send(_ frame: RelayFrame)
  /// Says goodbye and closes the connection.
  func end(_ reason: GoodbyeReason, retryAfterSeconds: UInt32)
  /// One request of the device is done: `Open` or `Close`. The device may have another one when what answers
  /// this one was written.
  func finishedRequest()
}

/// A relay: devices on one side, back ends on the other, and the store between them. It has no sockets.
package final class Relay: RelayNode {
  package let configuration: RelayConfiguration
  package let store: any PushStore
  package let clock: any RelayClock
  package let metrics: RelayMetrics
  let vault: TokenVault
  let wire: any NodeWire
  let logger: Logger
  let pinger: Pinger
  let outbox: DisconnectOutbox
  let tokenLimiter: RateLimiter<Data>
  let addressLimiter: RateLimiter<String>
  private let newOfDevice: RateLimiter<DeviceKey>
  private let newOfAddress: RateLimiter<String>
  private let started: Int64
  /// For tests that hold a `Close` back.
  private let beforeClose: @Sendable () async -> Void
  private let state: Guarded<State>

  private struct State: Sendable {
    var hub: Hub
    var links: [Hub.ConnectionID: any DeviceLink] = [:]
    var nextConnection: UInt64 = 1
    var isDraining = false
    var unsentBytes = 0
    /// Of the store, as of the last tick, and what was accepted since.
    var waitingBytes = 0
    var channels = 0
    /// What devices have acknowledged and the store does not have yet.
    var takes: [ChannelNumber: UInt64] = [:]
    var isTaking = false
    /// New channels that wait until their device and its address may make one, in the order of their `Open`.
    var delayedOpens: [Hub.ConnectionID: [DelayedOpen]] = [:]
    var delayedOpenCount = 0

    mutating func removeLink(_ id: Hub.ConnectionID) -> (any DeviceLink)? {
      delayedOpenCount -= delayedOpens.removeValue(forKey: id)?.count ?? 0
      return links.removeValue(forKey: id)
    }
  }

  private struct DelayedOpen: Sendable {
    let channel: ChannelID
    let taken: UInt64
    let device: DeviceKey
    let address: String
  }

  /// Of all devices.
  private static let delayedOpensMax = 100_000

  package init(
    configuration: RelayConfiguration, store: any PushStore, vault: TokenVault,
    clock: any RelayClock = SystemClock(), wire: any NodeWire = ProcessWire(), caller: any CallbackCalling,
    metrics: RelayMetrics, logger: Logger, beforeClose: @escaping @Sendable () async -> Void = {}
  ) {
    self.configuration = configuration
    self.store = store
    self.vault = vault
    self.clock = clock
    self.wire = wire
    self.metrics = metrics
    self.logger = logger
    self.beforeClose = beforeClose
    pinger = Pinger(configuration: configuration, caller: caller)
    outbox = DisconnectOutbox(
      configuration: configuration, store: store, vault: vault, caller: caller, clock: clock,
      metrics: metrics,
      logger: logger)
    tokenLimiter = RateLimiter(rate: configuration.tokenRate, burst: configuration.tokenBurst)
    addressLimiter = RateLimiter(rate: configuration.addressRate, burst: configuration.addressRate)
    newOfDevice = RateLimiter(
      rate: configuration.newChannelsOfDevice / 3600, burst: configuration.newChannelsOfDevice)
    newOfAddress = RateLimiter(
      rate: configuration.newChannelsOfAddress / 3600, burst: configuration.newChannelsOfAddress)
    started = clock.now()
    state = Guarded(State(hub: Hub(limits: configuration.hub)))
    wire.attach(self)
  }

  // MARK: Carrying out what the hub says

  /// Sends happen before the next change of the hub, so that a connection gets them in order.
  @discardableResult
  private func updateState<R: Sendable, E: Error>(
    _ body: (inout State) throws(E) -> (actions: [Hub.Action], result: R)
  ) throws(E) -> R {
    var later: [Hub.Action] = []
    let result = try state.withLock { (state) throws(E) -> R in
      let (actions, result) = try body(&state)
      for action in actions {
        switch action {
        case .send(let id, let channel, let sequence, let event):
          metrics.eventsSent.increment()
          guard let link = state.links[id] else { break }
          state.unsentBytes += event.byteCount
          if state.unsentBytes > configuration.unsentBytes { _ = state.hub.setPaused(true) }
          link.send(.event(channel, sequence: sequence, event))
        case .goodbye(let id, let reason):
          metrics.goodbye(reason)
          logger.debug("a device is sent away", metadata: ["reason": "\(reason)"])
          state.removeLink(id)?.end(reason, retryAfterSeconds: reason == .full ? 60 : 0)
        case .load, .take: later.append(action)
        }
      }
      metrics.connections.record(state.links.count)
      return result
    }
    for action in later {
      switch action {
      case .load(let load): Task { await run(load) }
      case .take(let channel, let through): take(channel, through)
      case .send, .goodbye: break
      }
    }
    return result
  }

  private func update(_ body: (inout Hub) -> [Hub.Action]) {
    updateState { state in (body(&state.hub), ()) }
  }

  private func run(_ load: Hub.Load) async {
    do {
      let events = try await store.events(
        of: load.channel, after: load.after, count: load.count, byteCount: load.byteCount, now: clock.now())
      update { $0.loaded(events, for: load) }
    } catch {
      fail(load.connection, error)
    }
  }

  /// Acknowledgements are collected for some milliseconds: a device drops what it is sent again, so nothing
  /// waits for them.
  private func take(_ channel: ChannelNumber, _ through: UInt64) {
    let isFirst = state.withLock { state in
      state.takes[channel] = max(through, state.takes[channel] ?? 0)
      defer { state.isTaking = true }
      return !state.isTaking
    }
    guard isFirst else { return }
    Task {
      try? await Task.sleep(for: .milliseconds(20))
      await storeTakes()
    }
  }

  /// Stores what devices have acknowledged.
  package func storeTakes() async {
    let takes = state.withLock { state in
      defer { (state.takes, state.isTaking) = ([:], false) }
      return Array(state.takes)
    }
    // In pieces, so that messages do not wait for all of them.
    for begin in stride(from: 0, to: takes.count, by: 200) {
      do {
        let piece = takes[begin..<min(begin + 200, takes.count)]
        try await store.take(piece.map { ($0.key, $0.value) }, now: clock.now())
      } catch {
        // The events stay, and the device drops them when they come again.
        metrics.storeFailures.increment()
        logger.error("events that a device has taken could not be deleted: \(error)")
      }
    }
  }

  private func fail(_ connection: Hub.ConnectionID, _ error: any Error) {
    logger.error("the store failed: \(error)")
    metrics.storeFailures.increment()
    update { $0.fail(connection, .failed) }
  }

  // MARK: Devices

  package func makeConnectionID() -> Hub.ConnectionID {
    state.withLock { state in
      defer { state.nextConnection += 1 }
      return Hub.ConnectionID(value: state.nextConnection)
    }
  }

  /// A device said hello. Returns the heartbeat in seconds that holds, or nil when it was sent away.
  package func hello(
    _ hello: DeviceFrame.Hello, at address: String, _ id: Hub.ConnectionID, _ link: any DeviceLink
  ) -> UInt32? {
    let refusal: GoodbyeReason? = state.withLock { state in
      guard hello.version == 1 else { return .version }
      guard admits(hello.admissionKey) else { return .notAdmitted }
      guard !state.isDraining else { return .draining }
      guard state.links.count < configuration.devices else { return .full }
      return nil
    }
    if let refusal {
      metrics.goodbye(refusal)
      logger.debug("a device is not taken", metadata: ["address": "\(address)", "reason": "\(refusal)"])
      link.end(refusal, retryAfterSeconds: refusal == .full ? 60 : 0)
      return nil
    }
    let device = TokenVault.key(ofDevice: hello.deviceSecret)
    let heartbeat = min(hello.heartbeatSeconds, configuration.heartbeatSecondsMax)
    updateState { state in
      let actions = state.hub.connect(id, device: device)
      state.links[id] = link
      link.send(.welcome(heartbeatSeconds: heartbeat, channelsMax: UInt32(configuration.channelsOfDevice)))
      return (actions, ())
    }
    Task { await wire.connected(device, to: self) }
    return heartbeat
  }

  private func admits(_ key: Data) -> Bool {
    guard let keys = configuration.admissionKeys else { return true }
    // By hash, so that the time of the comparison tells nothing about a key.
    let hash = TokenVault.key(ofDevice: key)
    return keys.contains { TokenVault.key(ofDevice: Data($0.utf8)) == hash }
  }

  /// An `Open`, `Close` or `Taken` of a device. ``DeviceLink/finishedRequest()`` follows the first two, unless
  /// this throws.
  package func receive(
    _ frame: DeviceFrame, from device: DeviceKey, at address: String, _ id: Hub.ConnectionID,
    _ link: any DeviceLink
  ) throws(Hub.Violation) {
    switch frame {
    case .hello: throw Hub.Violation(reason: "a second Hello")
    case .open(let channel, let isKnown, let taken):
      Task {
        await open(channel, isKnown: isKnown, taken: taken, device, address, id, link)
        link.finishedRequest()
      }
    case .close(let channel):
      guard let number = state.withLock({ $0.hub.channel(channel, id) }) else {
        return link.finishedRequest()
      }
      Task {
        await beforeClose()
        do { try await end(number, with: .closed) } catch { fail(id, error) }
        link.finishedRequest()
      }
    case .taken(let channel, let through):
      try updateState { (state: inout State) throws(Hub.Violation) in
        (try state.hub.taken(channel, through: through, id), ())
      }
    }
  }

  private func open(
    _ channel: ChannelID, isKnown: Bool, taken: UInt64, _ device: DeviceKey, _ address: String,
    _ id: Hub.ConnectionID, _ link: any DeviceLink
  ) async {
    if !isKnown {
      guard state.withLock({ $0.channels }) < configuration.channelsMax else {
        return link.send(.failed(channel, code: ChannelError.tooManyChannels.rawValue))
      }
      let request = DelayedOpen(channel: channel, taken: taken, device: device, address: address)
      guard takeNewChannel(request, now: clock.now()) else { return delay(request, id, link) }
    }
    await openStored(channel, isKnown: isKnown, taken: taken, device, id, link)
  }

  /// Whether the device and its address may make a channel now.
  private func takeNewChannel(_ request: DelayedOpen, now: Int64) -> Bool {
    let address = IPAddress.group(request.address)
    // Neither is charged for what the other refuses.
    guard newOfAddress.wouldAllow(address, now: now), newOfDevice.wouldAllow(request.device, now: now) else {
      return false
    }
    newOfAddress.charge(address, now: now)
    newOfDevice.charge(request.device, now: now)
    return true
  }

  /// The answer waits, since a failure would end a channel for good that the device may have later.
  private func delay(_ request: DelayedOpen, _ id: Hub.ConnectionID, _ link: any DeviceLink) {
    enum Outcome { case waits, tooMany, full }
    let outcome = state.withLock { state -> Outcome in
      guard state.links[id] != nil else { return .waits }
      guard state.delayedOpens[id, default: []].count < configuration.channelsOfDevice else {
        return .tooMany
      }
      guard state.delayedOpenCount < Self.delayedOpensMax else { return .full }
      state.delayedOpens[id, default: []].append(request)
      state.delayedOpenCount += 1
      return .waits
    }
    switch outcome {
    case .waits:
      logger.debug("a new channel waits for its device's quota", metadata: ["address": "\(request.address)"])
    case .tooMany: link.send(.failed(request.channel, code: ChannelError.tooManyChannels.rawValue))
    case .full: update { $0.fail(id, .full) }
    }
  }

  /// Opens the channels whose time has come.
  private func openDelayed(now: Int64) {
    let ready = state.withLock { state in
      var ready: [(Hub.ConnectionID, any DeviceLink, DelayedOpen)] = []
      for (id, requests) in state.delayedOpens {
        guard let link = state.links[id] else { continue }
        let count = requests.prefix { takeNewChannel($0, now: now) }.count
        guard count > 0 else { continue }
        for request in requests.prefix(count) { ready.append((id, link, request)) }
        state.delayedOpens[id] = count == requests.count ? nil : Array(requests.dropFirst(count))
        state.delayedOpenCount -= count
      }
      return ready
    }
    for (id, link, request) in ready {
      Task {
        await openStored(request.channel, isKnown: false, taken: request.taken, request.device, id, link)
      }
    }
  }

  private func openStored(
    _ channel: ChannelID, isKnown: Bool, taken: UInt64, _ device: DeviceKey, _ id: Hub.ConnectionID,
    _ link: any DeviceLink
  ) async {
    let now = clock.now()
    do {
      // A prefix that another channel has is a chance of one in 2^48; twice it is none.
      for _ in 0..<2 {
        let token = vault.stored(PushToken(relay: configuration.name))
        let outcome = try await store.open(
          OpenRequest(
            device: device, channel: channel, isKnown: isKnown, taken: taken, token: token,
            channelsMax: configuration.channelsOfDevice, now: now))
        switch outcome {
        case .failed(.relayFailed): continue
        case .failed(let error): return link.send(.failed(channel, code: error.rawValue))
        case .opened(let stored, let sealed):
          let text = try vault.open(sealed)
          let frame = RelayFrame.opened(channel, token: text, host: configuration.regionalHost)
          do {
            try updateState { (state: inout State) throws(Hub.Violation) in
              // The answer comes before the first event.
              guard let actions = try state.hub.open(stored, id) else { return ([], ()) }
              link.send(frame)
              return (actions, ())
            }
            pinger.opened(stored, now: now)
          } catch {
            update { $0.fail(id, .malformed) }
          }
          return
        }
      }
      link.send(.failed(channel, code: ChannelError.relayFailed.rawValue))
    } catch {
      fail(id, error)
    }
  }

  /// The transport takes more bytes, or has enough for now.
  package func setWritable(_ isWritable: Bool, _ id: Hub.ConnectionID) {
    update { $0.setWritable(isWritable, id, now: clock.now()) }
  }

  /// A transport that takes nothing more has sent some of what it has.
  package func progressed(_ id: Hub.ConnectionID) {
    update { hub in
      hub.progressed(id, now: clock.now())
      return []
    }
  }

  /// Bytes of bodies have left a transport, or it has ended.
  package func written(_ byteCount: Int) {
    let mayResume = state.withLock { state in
      state.unsentBytes -= byteCount
      // Some room is made before anything more is read, so that this does not happen for each event.
      return state.hub.isPaused && state.unsentBytes <= configuration.unsentBytes / 4 * 3
    }
    if mayResume { update { $0.setPaused(false) } }
  }

  /// A connection has ended.
  package func closed(_ id: Hub.ConnectionID) {
    updateState { state in
      state.hub.disconnect(id)
      _ = state.removeLink(id)
      return ([], ())
    }
  }

  /// Ends a connection whose device breaks the protocol or has become silent.
  package func end(_ id: Hub.ConnectionID, _ reason: GoodbyeReason) {
    update { $0.fail(id, reason) }
  }

  // MARK: Channels

  /// Ends a channel, tells its device, and calls its back end. Nothing happens when it has ended before.
  package func end(_ channel: ChannelNumber, with end: ChannelEnd) async throws {
    guard let number = try await store.end(channel, with: end, now: clock.now()) else { return }
    pinger.ended(channel)
    await wire.publish(channel, end.event, as: number)
    outbox.wake()
  }

  /// Ends the channel of a token or of its prefix. Returns whether there is one that is open.
  package func revoke(_ tokenOrPrefix: String) async throws -> Bool {
    let found: StoredChannel?
    if let channel = try await store.channel(tokenHash: TokenVault.hash(tokenOrPrefix)) {
      found = channel
    } else {
      found = try await store.channel(prefix: tokenOrPrefix)
    }
    guard let found, found.state == .open else { return false }
    try await end(found.number, with: .error(.revoked))
    logger.info("a token is revoked", metadata: ["token": "\(found.prefix)"])
    return true
  }

  /// Stores a message and sends it.
  func append(
    _ event: AppendRequest.Event, to target: AppendRequest.Target, timeToLive: Int64, waitingMax: Int
  ) async throws -> AppendOutcome {
    let now = clock.now()
    let byteCount = event.channelEvent.byteCount
    let bound = configuration.waitingBytesOfRelay
    guard state.withLock({ $0.waitingBytes + byteCount <= bound }) else { return .full }
    var sentThrough: UInt64 = .max
    // What was not sent is replaced by what has the same topic.
    if case .channel(let channel) = target { sentThrough = await wire.sentThrough(channel) }
    let outcome = try await store.append(
      AppendRequest(
        target: target, event: event, sentThrough: sentThrough,
        expires: now + timeToLive, waitingCountMax: waitingMax,
        waitingByteCountMax: configuration.waitingBytes, now: now))
    if case .stored(let channel, let number) = outcome {
      if timeToLive > 0 { state.withLock { $0.waitingBytes += byteCount + 256 } }
      await wire.publish(channel, event.channelEvent, as: number)
    }
    return outcome
  }

  // MARK: RelayNode

  package func isConnected(_ channel: ChannelNumber) -> Bool {
    state.withLock { $0.hub.isConnected(channel) }
  }

  package func sentThrough(_ channel: ChannelNumber) -> UInt64 {
    state.withLock { $0.hub.sentThrough(channel) }
  }

  package func stored(_ channel: ChannelNumber, _ event: ChannelEvent, as number: EventNumber) {
    update { $0.stored(channel, event, as: number) }
  }

  package func replaced(_ device: DeviceKey) {
    update { $0.replace(device) }
  }

  package var connectionCount: Int { state.withLock { $0.links.count } }
  package var isDraining: Bool { state.withLock { $0.isDraining } }

  // MARK: Time

  /// Does what the time asks for: slow devices, pings, calls. To be called about once a second.
  package func tick() async {
    let now = clock.now()
    update { $0.tick(now: now) }
    openDelayed(now: now)
    ping(now: now)
    await outbox.run()
  }

  private func ping(now: Int64) {
    for batch in pinger.due(now: now, isConnected: isConnected) {
      Task { await ping(batch) }
    }
  }

  private func ping(_ batch: Pinger.Batch) async {
    let failed = await pinger.send(batch)
    // Another URL of the host may have waited.
    ping(now: clock.now())
    for ping in failed {
      metrics.pingFailures.increment()
      do {
        _ = try await append(
          .pingFailed(ping.code), to: .channel(ping.channel), timeToLive: configuration.notifyTimeToLive,
          waitingMax: configuration.waitingEvents)
      } catch {
        logger.error("a failed ping could not be stored: \(error)")
      }
    }
  }

  /// Deletes expired events and refreshes the sums of the store. To be called every few seconds.
  package func measure() async {
    do {
      try await store.expire(now: clock.now())
      let totals = try await store.totals()
      state.withLock { state in
        state.waitingBytes = totals.waitingBytes + 256 * totals.waitingEvents
        state.channels = totals.channels
      }
      metrics.record(totals)
    } catch {
      metrics.storeFailures.increment()
      logger.error("the store failed: \(error)")
    }
  }

  /// Deletes what is over. To be called every few minutes.
  package func sweep() async {
    let now = clock.now()
    for limiter in [newOfAddress, addressLimiter] { limiter.sweep(now: now) }
    newOfDevice.sweep(now: now)
    pinger.sweep(now: now, isConnected: isConnected)
    tokenLimiter.sweep(now: now)
    do {
      let connected = state.withLock { Array($0.hub.connectedChannels) }
      // In pieces, so that nobody waits for all of them.
      for begin in stride(from: 0, to: connected.count, by: 500) {
        try await store.touch(Array(connected[begin..<min(begin + 500, connected.count)]), now: now)
      }
      let mayAbandon = now - started >= RelayConfiguration.day
      try await store.sweep(
        now: now, abandonedBefore: mayAbandon ? now - configuration.abandonedTime : .min,
        endedBefore: now - configuration.endedTime, callsOfHost: configuration.waitingCallsOfHost)
    } catch {
      metrics.storeFailures.increment()
      logger.error("the store failed: \(error)")
    }
  }

  /// Does all of these for as long as the task is not cancelled.
  package func run() async {
    await withTaskGroup(of: Void.self) { group in
      group.addTask { await self.every(1000) { await self.tick() } }
      group.addTask { await self.every(10_000) { await self.measure() } }
      group.addTask { await self.every(600_000) { await self.sweep() } }
    }
  }

  private func every(_ milliseconds: Int64, _ body: () async -> Void) async {
    while !Task.isCancelled {
      await body()
      do { try await clock.sleep(milliseconds: milliseconds) } catch { return }
    }
  }

  /// Sends all devices away, and takes no new ones. They come back after a time that spreads them.
  package func drain() {
    let links = state.withLock { state in
      state.isDraining = true
      let links = state.links
      for id in links.keys {
        state.hub.disconnect(id)
        _ = state.removeLink(id)
      }
      return links
    }
    for link in links.values { link.end(.draining, retryAfterSeconds: 2) }
    wire.detach(self)
  }
}

extension AppendRequest.Event {
  var channelEvent: ChannelEvent {
    switch self {
    case .message(let message): .message(message)
    case .pingFailed(let code): .pingFailed(code)
    }
  }
}
