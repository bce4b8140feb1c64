public import Foundation
internal import Locks
public import Logging
internal import NIOCore
internal import NIOPosix
internal import NIOSSL
internal import PushChannels
internal import PushWire

/// Push for one app: one connection to the relay carries all of its channels.
///
/// The runtime connects when the app has connected a channel, connects again after every break, and shows
/// each message once, also over restarts of the app. Its state is in one directory, which one process uses
/// at a time. Source: PUSH-PROTOCOL.md.
public actor PushRuntime {
  public struct Options: Sendable {
    /// `wss://HOST:PORT`; `ws://` for a relay on a loopback address.
    public var relay: URL
    /// PEM file of authorities that may certify the relay, in place of the system's.
    public var authorities: String?
    /// Given to the relay, when its operator requires one. At most 256 bytes of UTF-8.
    public var admissionKey = ""
    /// Where the state is.
    public var directory: URL
    /// 32 bytes that encrypt the state. Whoever has them and the directory has the channels.
    public var stateKey: Data
    /// After how long without traffic the device says that it is there; 10 to 3,600.
    public var heartbeatSeconds: UInt32 = 240
    public var gate: any PushGate = OpenPushGate()
    /// Connects before there is a channel, so that ``PushRuntime/isAvailable`` can be asked first.
    public var staysConnected = false
    /// After how long a channel that the relay has not opened is given up (``PushChannel/giveUp()``), with error 0; nil: never.
    public var connectTime: Duration?

    public init(relay: URL, directory: URL, stateKey: Data) {
      self.relay = relay
      self.directory = directory
      self.stateKey = stateKey
    }
  }

  /// One thread, which the runtimes of a process share: sockets and state live on it, also while the state
  /// is being written. It is never ended, since the tasks of an actor may come at any time.
  private static let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

  private let options: Options
  private let address: RelayAddress
  private let tls: NIOSSLContext?
  private let loop: any EventLoop
  private let storage: DeviceStorage
  private let secret: Data
  private let logger: Logger
  private var book: ChannelBook
  private var connection: NIOLoopBound<RelayConnection>?
  private var isWelcome = false
  private var permission = PushPermission(mayConnect: false, mayShow: false)
  /// Changes that could not be stored yet. Nothing is sent or shown before they are.
  private var unsaved: [DeviceStorage.Change] = []
  /// Those who wait for the next event of an identifier.
  private var waiters: [String: [UInt64: CheckedContinuation<Void, Never>]] = [:]
  private var nextWaiter: UInt64 = 0
  /// The attempt to connect that is under way.
  private var attempt: Attempt?
  private var nextAttempt: UInt64 = 0
  /// Ends the pause before the next attempt to connect.
  private var pause: (id: UInt64, continuation: CheckedContinuation<Void, Never>)?
  private var nextPause: UInt64 = 0
  private var isStopped = false
  private var tasks: [Task<Void, Never>] = []
  private var monitor: NetworkMonitor?
  /// How often each channel was connected: a limit of time is that of one connecting.
  private var connects: [String: UInt64] = [:]
  private nonisolated let phases = Guarded(Phases())
  /// The names under which the book knows channel objects, and the objects that have them. An object that
  /// is dropped gives its name back at once.
  private nonisolated let owners = Guarded<[String: ObjectIdentifier]>([:])
  private nonisolated let available = Guarded(Availability())

  private struct Phases {
    var known: [String: ChannelPhase] = [:]
    var streams: [String: [UUID: AsyncStream<ChannelPhase>.Continuation]] = [:]
    var hasStopped = false
  }

  private struct Availability {
    var state = PushConnectionState.idle
    var hasStopped = false
    var streams: [UUID: AsyncStream<Bool>.Continuation] = [:]
    var stateStreams: [UUID: AsyncStream<PushConnectionState>.Continuation] = [:]
  }

  private struct Attempt {
    let id: UInt64
    let began: NIODeadline
    let continuation: CheckedContinuation<NIOLoopBound<RelayConnection>, any Error>
    /// Its end is scheduled, since the network has changed.
    var isStale = false
  }

  private struct Aborted: Error {}

  public nonisolated var unownedExecutor: UnownedSerialExecutor {
    loop.executor.asUnownedSerialExecutor()
  }

  /// Opens the state, and connects as soon as a channel needs it and the gate permits it.
  ///
  /// Throws ``PushError``.
  public init(_ options: Options, logger: Logger = Logger(label: "push")) throws {
    self.options = options
    self.logger = logger
    address = try RelayAddress(options.relay)
    tls = try address.isSecure ? Self.tls(options.authorities) : nil
    storage = try DeviceStorage(directory: options.directory, key: options.stateKey)
    let state = try storage.load()
    secret = state.secret
    book = ChannelBook(records: state.records, events: state.events)
    loop = Self.group.next()
    Task { await start() }
  }

  private static func tls(_ authorities: String?) throws(PushError) -> NIOSSLContext {
    var configuration = TLSConfiguration.makeClientConfiguration()
    configuration.minimumTLSVersion = .tlsv13
    if let authorities { configuration.trustRoots = .file(authorities) }
    do {
      return try NIOSSLContext(configuration: configuration)
    } catch {
      throw .invalidAuthorities("\(error)")
    }
  }

  private func start() {
    guard !isStopped else { return }
    monitor = NetworkMonitor { [weak self] in
      guard let self else { return }
      Task { await self.networkChanged() }
    }
    tasks.append(
      Task { [weak self, gate = options.gate] in
        for await permission in gate.permissions() {
          guard let self else { return }
          await self.set(permission)
        }
      })
    tasks.append(Task { await run() })
  }

  /// Ends the connection and gives the state back, so that another process may use it. Channels stay open
  /// at the relay, and messages wait there.
  public func stop() async {
    guard !isStopped else { return }
    isStopped = true
    for task in tasks { task.cancel() }
    monitor?.stop()
    endConnection()
    endPause()
    for identifier in Array(waiters.keys) { wake(identifier) }
    let (streams, stateStreams) = available.withLock { available in
      available.hasStopped = true
      return (Array(available.streams.values), Array(available.stateStreams.values))
    }
    for stream in streams { stream.finish() }
    for stream in stateStreams { stream.finish() }
    let phaseStreams = phases.withLock { phases in
      phases.hasStopped = true
      return phases.streams.values.flatMap(\.values)
    }
    for stream in phaseStreams { stream.finish() }
    // What the connection sends last needs the loop for a moment.
    try? await loop.scheduleTask(in: .milliseconds(50)) {}.futureResult.get()
    storage.close()
  }

  // MARK: Channels

  /// The channel of an identifier, such as `com.example.mail.inbox`: unique within the app. A second object
  /// for the same identifier gets error 0 when it connects while the first one is there.
  public nonisolated func channel(_ identifier: String) -> PushChannel {
    PushChannel(identifier: identifier, runtime: self)
  }

  nonisolated func phase(_ identifier: String) -> ChannelPhase {
    phases.withLock { $0.known[identifier] } ?? .prepared
  }

  /// Yields the phase of a channel, and each one after it.
  nonisolated func watch(_ identifier: String, _ stream: AsyncStream<ChannelPhase>.Continuation) {
    let id = UUID()
    let isStopped = phases.withLock { phases in
      stream.yield(phases.known[identifier] ?? .prepared)
      if !phases.hasStopped { phases.streams[identifier, default: [:]][id] = stream }
      return phases.hasStopped
    }
    if isStopped { return stream.finish() }
    stream.onTermination = { _ in self.phases.withLock { $0.streams[identifier]?[id] = nil } }
  }

  /// Gives an object of a channel the identifier, or a name of its own when another object has it.
  func claim(_ identifier: String, for object: ObjectIdentifier) -> String {
    let (name, isNew) = owners.withLock { owners in
      // No app has an identifier with this character.
      let isFree = (owners[identifier] ?? object) == object
      let name = isFree ? identifier : "\0\(identifier) \(object.hashValue)"
      defer { owners[name] = object }
      return (name, owners[name] == nil)
    }
    if isNew {
      perform(book.restart(name))
      note(name)
    }
    return name
  }

  nonisolated func release(_ name: String) {
    owners.withLock { $0[name] = nil }
    Task { await wake(name) }
  }

  /// The name is that of an object whose identifier another object has.
  static func isDuplicate(_ name: String) -> Bool { name.hasPrefix("\0") }

  /// A channel of an earlier process is stored for the identifier, and connecting it resumes that channel.
  package func canResume(_ identifier: String) -> Bool { book.canResume(identifier) }

  func connect(_ identifier: String) {
    let before = book.phase(identifier)
    perform(
      Self.isDuplicate(identifier)
        ? book.misuse(identifier) : book.connect(identifier, keys: WebPushKeys().bytes))
    note(identifier)
    endPause()
    guard let time = options.connectTime, before != .connecting, book.phase(identifier) == .connecting
    else { return }
    let number = connects[identifier, default: 0] + 1
    connects[identifier] = number
    let nanoseconds = Int64(clamping: Int128(time / .nanoseconds(1)))
    loop.scheduleTask(in: .nanoseconds(max(0, nanoseconds))) { [weak self] in
      self?.assumeIsolated { if $0.connects[identifier] == number { $0.giveUp(identifier) } }
    }
  }

  func giveUp(_ identifier: String) { perform(book.giveUp(identifier)) }

  func disconnect(_ identifier: String) {
    perform(book.disconnect(identifier))
    note(identifier)
  }

  private func note(_ identifier: String) {
    let phase = book.phase(identifier)
    let streams: [AsyncStream<ChannelPhase>.Continuation] = phases.withLock { phases in
      guard phases.known.updateValue(phase, forKey: identifier) ?? .prepared != phase else { return [] }
      return phases.streams[identifier].map { Array($0.values) } ?? []
    }
    for stream in streams { stream.yield(phase) }
  }

  enum Next: Sendable {
    case event(PushEvent)
    /// The task is cancelled, or the runtime is stopped.
    case ended
    /// The object does not have this name any more.
    case released
  }

  /// The next event of a channel, for the object that has its name.
  func next(_ identifier: String, of object: ObjectIdentifier, completesLater: Bool) async -> Next {
    while !Task.isCancelled, !isStopped {
      guard owners.withLock({ $0[identifier] }) == object else { return .released }
      guard permission.mayShow, save(), let step = book.next(identifier, completesLater: completesLater)
      else {
        await wait(identifier)
        continue
      }
      perform(step.effects, isDurable: false)
      // A message is shown when it is stored that it was.
      while !save() {
        if Task.isCancelled || isStopped { return .ended }
        try? await Task.sleep(for: .seconds(1))
      }
      note(identifier)
      if let notice = step.notice, let event = event(notice) { return .event(event) }
    }
    return .ended
  }

  func complete(_ id: PushMessageEvent.ID) {
    perform(book.complete(id.channel, id.sequence))
  }

  private func event(_ notice: ChannelBook.Notice) -> PushEvent? {
    switch notice {
    case .opened(let token, let host, let keys):
      guard let keys = keys.flatMap(WebPushKeys.init(bytes:)) else { return nil }
      return .opened(token: token, host: host, keys: keys.publicKeys)
    case .message(let message, let channel, let sequence, let keys):
      let id = PushMessageEvent.ID(channel: channel, sequence: sequence)
      guard message.encoding == .aes128gcm else {
        return .message(PushMessageEvent(message, data: message.body, id: id))
      }
      guard let data = try? keys.flatMap(WebPushKeys.init(bytes:))?.open(message.body) else {
        logger.notice("a message that cannot be decrypted was dropped")
        perform(book.complete(channel, sequence))
        return nil
      }
      return .message(PushMessageEvent(message, data: data, id: id))
    case .pingFailed(let code): return PingFailure(rawValue: Int(code)).map { .pingFailed($0) }
    case .closed(let token): return .closed(token: token)
    case .error(let code): return .error(code: Int(code))
    }
  }

  private func wait(_ identifier: String) async {
    nextWaiter += 1
    let id = nextWaiter
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        if Task.isCancelled || isStopped { return continuation.resume() }
        waiters[identifier, default: [:]][id] = continuation
      }
    } onCancel: {
      Task { await self.cancelWaiter(identifier, id) }
    }
  }

  private func cancelWaiter(_ identifier: String, _ id: UInt64) {
    waiters[identifier]?.removeValue(forKey: id)?.resume()
  }

  private func wake(_ identifier: String) {
    for continuation in waiters.removeValue(forKey: identifier)?.values ?? [:].values {
      continuation.resume()
    }
  }

  // MARK: Effects

  /// Stores first, and then sends and wakes.
  private func perform(_ effects: [ChannelBook.Effect], isDurable: Bool = true) {
    var sends: [DeviceFrame] = []
    var wakes: [String] = []
    for effect in effects {
      switch effect {
      case .save(let record): unsaved.append(.save(record))
      case .saveEvent(let id, let sequence, let event):
        unsaved.append(.saveEvent(id, sequence: sequence, event))
      case .shown(let record, let sequence):
        unsaved.append(.save(record))
        unsaved.append(.removeEvent(record.id, sequence: sequence))
      case .remove(let id): unsaved.append(.remove(id))
      case .send(let frame): sends.append(frame)
      case .wake(let identifier): wakes.append(identifier)
      }
    }
    guard save(isDurable: isDurable) else { return }
    for frame in sends { connection?.value.send(frame) }
    for identifier in wakes { wake(identifier) }
  }

  /// Stores what is not stored. When that fails the connection ends: the relay keeps what was not
  /// acknowledged, and the next attempt to connect tries it again.
  private func save(isDurable: Bool = true) -> Bool {
    guard !unsaved.isEmpty else { return true }
    guard !isStopped else { return false }
    do {
      try storage.perform(unsaved, isDurable: isDurable)
      unsaved = []
      return true
    } catch {
      logger.error("the state of push cannot be stored; trying again: \(error)")
      endConnection()
      return false
    }
  }

  // MARK: The connection

  private enum Ending: Sendable {
    case lost(PushConnectionFailure)
    case goodbye(GoodbyeReason, UInt32)
    /// The attempt was given up for another one at once.
    case aborted
  }

  private func run() async {
    var delay = ReconnectDelay()
    var generator = SystemRandomNumberGenerator()
    while !isStopped {
      guard permission.mayConnect, book.needsConnection || options.staysConnected else {
        await pause(seconds: nil)
        continue
      }
      let ending = save() ? await session() : .lost(.stateNotStored)
      if isWelcome { delay.succeeded() }
      disconnected()
      guard !isStopped, permission.mayConnect else {
        set(.idle)
        continue
      }
      let seconds: Double
      switch ending {
      case .aborted: continue
      case .lost(let failure):
        set(.failed(failure))
        seconds = delay.afterLoss(using: &generator)
      case .goodbye(let reason, let retryAfter):
        set(.failed(PushConnectionFailure(reason)))
        seconds = delay.after(reason, retryAfterSeconds: retryAfter, using: &generator)
      }
      logger.debug("connecting again in \(seconds) s")
      await pause(seconds: seconds)
    }
  }

  /// One connection, from its beginning to its end.
  private func session() async -> Ending {
    let (events, continuation) = AsyncStream.makeStream(of: RelayConnection.Event.self)
    let opened: NIOLoopBound<RelayConnection>
    do {
      opened = try await connect { continuation.yield($0) }
    } catch is Aborted {
      return .aborted
    } catch {
      logger.debug("no connection to the relay: \(error)")
      return .lost(PushConnectionFailure(error))
    }
    guard permission.mayConnect, !isStopped else {
      opened.value.close()
      return .aborted
    }
    connection = opened
    opened.value.send(
      .hello(
        DeviceFrame.Hello(
          deviceSecret: secret, admissionKey: Data(options.admissionKey.utf8),
          heartbeatSeconds: options.heartbeatSeconds)))
    let greeting = loop.scheduleTask(in: .seconds(10)) { continuation.yield(.ended) }
    defer { greeting.cancel() }
    endSession = continuation
    defer { endSession = nil }
    for await event in events {
      guard case .frame(let frame) = event else { return .lost(.lost) }
      switch frame {
      case .goodbye(let reason, let retryAfter):
        logger.info("the relay says goodbye: \(reason)")
        return .goodbye(reason, retryAfter)
      case .welcome(let seconds, _):
        guard !isWelcome else { return .lost(.lost) }
        greeting.cancel()
        isWelcome = true
        opened.value.startHeartbeat(seconds: seconds)
        set(.connected)
        perform(book.welcomed())
      case .opened, .failed, .event:
        guard isWelcome else { return .lost(.lost) }
        do {
          perform(try book.received(frame))
        } catch {
          logger.warning("the relay breaks the protocol: \(error)")
          return .lost(.lost)
        }
      }
    }
    return .lost(.lost)
  }

  /// Connects, until ``abortAttempt()``. An attempt that was aborted goes on without anybody, since a name
  /// that is being resolved cannot be given up, and its connection is closed.
  private func connect(
    _ onEvent: @escaping @Sendable (RelayConnection.Event) -> Void
  ) async throws -> NIOLoopBound<RelayConnection> {
    let seconds: Int64 = 10
    let began = loop.now
    do {
      return try await withCheckedThrowingContinuation { continuation in
        nextAttempt += 1
        let id = nextAttempt
        attempt = Attempt(id: id, began: began, continuation: continuation)
        Task {
          let result: Result<NIOLoopBound<RelayConnection>, any Error>
          do {
            result = .success(
              try await RelayConnection.open(
                address, tls: tls, loop: loop, seconds: seconds, onEvent: onEvent))
          } catch {
            result = .failure(error)
          }
          attemptEnded(id, result)
        }
      }
    } catch let error where !(error is Aborted) && loop.now - began >= .seconds(seconds) {
      // The socket itself reports only that it was closed.
      throw ChannelError.connectTimeout(.seconds(seconds))
    }
  }

  private func attemptEnded(_ id: UInt64, _ result: Result<NIOLoopBound<RelayConnection>, any Error>) {
    guard let attempt, attempt.id == id else {
      if case .success(let late) = result { late.value.close() }
      return
    }
    self.attempt = nil
    attempt.continuation.resume(with: result)
  }

  private func abortAttempt() {
    attempt?.continuation.resume(throwing: Aborted())
    attempt = nil
  }

  private var endSession: AsyncStream<RelayConnection.Event>.Continuation?

  private func endConnection() {
    endSession?.yield(.ended)
    abortAttempt()
  }

  private func disconnected() {
    connection?.value.close()
    connection = nil
    isWelcome = false
    book.connectionEnded()
  }

  /// Waits for that time, without end for nil, or until ``endPause()``.
  private func pause(seconds: Double?) async {
    nextPause += 1
    let id = nextPause
    await withCheckedContinuation { continuation in
      if isStopped { return continuation.resume() }
      pause = (id, continuation)
      guard let seconds else { return }
      loop.scheduleTask(in: .milliseconds(Int64(seconds * 1000))) {
        self.assumeIsolated { runtime in
          if runtime.pause?.id == id { runtime.endPause() }
        }
      }
    }
  }

  private func endPause() {
    let continuation = pause?.continuation
    pause = nil
    continuation?.resume()
  }

  private func set(_ permission: PushPermission) {
    self.permission = permission
    if permission.mayConnect { endPause() } else { endConnection() }
    if permission.mayShow {
      for identifier in Array(waiters.keys) { wake(identifier) }
    }
  }

  // MARK: Reachability

  /// How long the relay has to answer after a change of the network, before the device connects again.
  private static let answerTime = TimeAmount.seconds(3)
  /// An attempt to connect that is younger is not aborted: one change of the network is often reported
  /// several times.
  private static let youngAttempt = TimeAmount.milliseconds(500)

  /// Reports that the network may be another one. The runtime connects at once if there is no connection,
  /// begins an attempt to connect anew, and otherwise asks the relay whether the connection still works. It
  /// notices most changes itself.
  public func networkChanged() {
    endPause()
    connection?.value.ping(within: Self.answerTime)
    guard let attempt, !attempt.isStale else { return }
    self.attempt!.isStale = true
    loop.scheduleTask(deadline: max(loop.now, attempt.began + Self.youngAttempt)) {
      self.assumeIsolated { runtime in
        if runtime.attempt?.id == attempt.id { runtime.abortAttempt() }
      }
    }
  }

  /// Whether there is a connection to the relay. Check it before connecting a channel again after an error.
  public nonisolated var isAvailable: Bool { available.withLock { $0.state } == .connected }

  /// Why there is no connection, if there should be one.
  public nonisolated var connectionState: PushConnectionState { available.withLock { $0.state } }

  /// ``connectionState`` now, and whenever it changes.
  public nonisolated var connectionStates: AsyncStream<PushConnectionState> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
      let id = UUID()
      let isStopped = available.withLock { available in
        if !available.hasStopped { available.stateStreams[id] = continuation }
        continuation.yield(available.state)
        return available.hasStopped
      }
      if isStopped { return continuation.finish() }
      continuation.onTermination = { _ in
        self.available.withLock { _ = $0.stateStreams.removeValue(forKey: id) }
      }
    }
  }

  /// ``isAvailable`` now, and whenever it changes.
  public nonisolated var availability: AsyncStream<Bool> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
      let id = UUID()
      let isStopped = available.withLock { available in
        if !available.hasStopped { available.streams[id] = continuation }
        continuation.yield(available.state == .connected)
        return available.hasStopped
      }
      if isStopped { return continuation.finish() }
      continuation.onTermination = { _ in self.available.withLock { _ = $0.streams.removeValue(forKey: id) } }
    }
  }

  private func set(_ state: PushConnectionState) {
    let (old, streams, stateStreams) = available.withLock { available in
      defer { available.state = state }
      return (available.state, Array(available.streams.values), Array(available.stateStreams.values))
    }
    guard old != state else { return }
    for stream in stateStreams { stream.yield(state) }
    guard (old == .connected) != (state == .connected) else { return }
    for stream in streams { stream.yield(state == .connected) }
    NotificationCenter.default.post(name: .pushReachabilityChanged, object: self)
  }
}
