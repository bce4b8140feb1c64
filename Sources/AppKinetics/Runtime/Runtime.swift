import ContainerStore
@preconcurrency import Dispatch
import Foundation
import LocalTransport
import Locks
import Logging
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// What stands behind an `AppServices`: what does not change, and the one way to what does, its ``Core``.
///
/// The threads of lanes, timers, callers and callbacks bring their work there, and it is done one piece at a time.
final class Runtime: Sendable {
  let application: Application
  let container: SecureContainer
  let options: AppServices.Options
  /// Names this runtime to others: who has another one knows nothing of earlier requests.
  let process = Identifier.random()
  /// What must not be called within the runtime's own work, and writes of a few bytes.
  let workQueue: DispatchQueue
  /// What waits for the disk.
  let fileQueue: DispatchQueue
  /// Messages that are being written into the outbox, and requests that are being kept in the queue, begun while these services ran.
  let storing = DispatchGroup()
  let logger: Logger
  /// Shared memory for all other apps together.
  let slotBudget = BulkSlotBudget()
  let handlers = RunningHandlers()
  /// What properties tell, without waiting.
  let shown = Guarded(Shown())
  private let work = SerialWork()
  private let clock: RuntimeClock
  // Invariant: set in the initialiser, and from then on touched within `work` only, which keeps this object alive.
  nonisolated(unsafe) private var core: Core!

  struct Shown: Sendable {
    var connectionError: ServicesError?
    var isInFront = false
  }

  init(_ application: Application, _ container: SecureContainer, _ options: AppServices.Options) throws {
    self.application = application
    self.container = container
    self.options = options
    clock = RuntimeClock(options.clock)
    workQueue = DispatchQueue(label: "opendynamics.services.work")
    fileQueue = DispatchQueue(label: "opendynamics.services.files", attributes: .concurrent)
    logger = options.logger
    // Files are read here, since work of the core must not wait for the disk.
    core = Core(self, try Identity(in: container), try PeerPins(in: container), Presence(self), clock)
  }

  var appID: String { application.id.text }

  /// Milliseconds of a clock that only goes on.
  var now: UInt64 { clock.now }

  /// The wall clock, by which messages have time limits and keys their dates.
  var date: Date { options.clock.date }

  /// Pieces of work that wait for their turn.
  var pendingCount: Int { work.pendingCount }

  // MARK: What changes

  /// Does a piece of work, behind what was asked for before.
  func perform(_ body: @escaping @Sendable (Core) -> Void) {
    work.perform { [self] in
      body(core)
      core.setClock()
    }
  }

  /// Waits until it is done. Not from within work.
  func performAndWait<Result: Sendable>(_ body: @escaping @Sendable (Core) -> Result) -> Result {
    work.performAndWait { [self] in
      defer { core.setClock() }
      return body(core)
    }
  }

  /// The same for tasks, which hold no thread meanwhile.
  func result<Result: Sendable>(of body: @escaping @Sendable (Core) -> Result) async -> Result {
    await withCheckedContinuation { continuation in
      perform { continuation.resume(returning: body($0)) }
    }
  }

  /// Does a piece of work on what is under way with an app, if anything is by then.
  func perform(with application: ApplicationID, _ body: @escaping @Sendable (PeerSession) -> Void) {
    perform { core in
      if let peer = core.peers[application] { body(peer) }
    }
  }

  // MARK: Work that waits for the disk

  /// Runs `job` where it may block.
  func blocking<R: Sendable>(_ job: @escaping @Sendable () throws -> R) async throws -> R {
    try await withCheckedThrowingContinuation { continuation in
      fileQueue.async { continuation.resume(with: Result { try job() }) }
    }
  }

  /// The same for work on what is under way with an app: `then` goes on with what came of it, if anything still is.
  func run<R: Sendable>(
    with application: ApplicationID, _ job: @escaping @Sendable () throws -> R,
    then: @escaping @Sendable (PeerSession, Result<R, any Error>) -> Void
  ) {
    fileQueue.async {
      let result = Result { try job() }
      self.perform(with: application) { then($0, result) }
    }
  }

  static func servicesError(_ error: any Error) -> ServicesError {
    switch error {
    case let error as ServicesError: error
    case ContainerError.diskFull: ServicesError(.noSpace, detail: "the container's disk")
    case ContainerError.fileDamaged: ServicesError(.sourceDamaged, path: (error as? ContainerError)?.path)
    case ContainerError.noSuchFile, ContainerError.cannotStore:
      ServicesError(.attachmentNotFound, path: (error as? ContainerError)?.path)
    default: ServicesError(.general, detail: "\(error)")
    }
  }

  /// Of what is damaged the rest need not suffer.
  func leavingOut(_ error: ContainerError) {
    logger.error(
      "a message is damaged and left out: `dynamics container verify` tells more",
      metadata: ["error": "\(error)"])
  }

  // MARK: Life

  /// Returns when the app is registered; throws when the first connection does not come to that.
  func start() async throws {
    let left = try await left()
    try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
      perform { core in
        core.start(left) { continuation.resume(with: $0.mapError { $0 as any Error }) }
      }
    }
  }

  /// What earlier processes left in the container; nil when that was read before.
  private func left() async throws -> Core.Left? {
    guard await result(of: { $0.life == .new }) else { return nil }
    do {
      return try await blocking { [self] in
        let store = container.store
        // For any time that an app may name, also one without end.
        let seconds = date.timeIntervalSince1970 - options.stagingTime / .seconds(1)
        let oldest = Int64(min(9e9, max(-9e9, seconds)) * 1e9)
        try store.discardArrivals(olderThan: oldest)
        // A command that only sends has no say in how long they stay.
        if options.registers { try store.endUnclaimed(olderThan: oldest) }
        let outbox = try store.outboxEntries(skipping: leavingOut).map { entry in
          guard let offer = try? WireOffer(serializedBytes: store.outboxMessage(entry.number)) else {
            return Core.Left.Outgoing(entry: entry)
          }
          return Core.Left.Outgoing(
            entry: entry, request: offer.requestID, isReply: offer.isReply,
            timeLimit: offer.hasTimeLimit ? offer.timeLimit : nil)
        }
        let queue = try store.messageQueue(skipping: leavingOut)
        return Core.Left(outbox: outbox, queue: queue, unhandled: queue.unhandled.map(ReadMessage.init))
      }
    } catch {
      throw Self.servicesError(error)
    }
  }

  func startClock() {
    clock.start { [weak self] in self?.perform { $0.lookAtDeadlines() } }
  }

  func stopClock() { clock.stop() }

  /// Calls back when every lane has said goodbye, which takes until the other side has heard it, a second at most.
  func stop(_ done: @escaping @Sendable () -> Void = {}) {
    perform { core in
      self.handlers.close()
      let parts = core.stopping ?? DispatchGroup()
      defer { parts.notify(queue: self.workQueue, execute: done) }
      guard core.stop(parts) else { return }
      // The container's next services find in the outbox and in the queue what is being stored now.
      parts.enter()
      self.storing.notify(queue: self.workQueue) { parts.leave() }
      // What was told to the app is settled in the container, so that nothing of it comes again.
      parts.enter()
      self.fileQueue.async(flags: .barrier) { parts.leave() }
    }
  }

  /// Calls back when nothing is written any more.
  func hold(_ done: @escaping @Sendable () -> Void) {
    perform { core in
      self.handlers.close()
      let parts = DispatchGroup()
      core.hold(parts)
      parts.enter()
      self.storing.notify(queue: self.workQueue) { parts.leave() }
      parts.enter()
      self.fileQueue.async(flags: .barrier) { parts.leave() }
      parts.notify(queue: self.workQueue, execute: done)
    }
  }

  /// The same when the handlers that run have returned, after `time` at most. No other begins.
  func stop(waitingForHandlers time: Duration, _ done: @escaping @Sendable () -> Void) {
    // Taken by whichever of the two comes first.
    let rest = Guarded<(@Sendable () -> Void)?>(nil)
    let timer = options.clock.makeTimer { rest.withLock { $0.take() }?() }
    rest.withLock {
      $0 = {
        timer.cancel()
        self.stop(done)
      }
    }
    timer.set(to: options.clock.now + max(time, .zero))
    perform { _ in
      self.handlers.close()
      self.handlers.whenNone { rest.withLock { $0.take() }?() }
    }
  }

  // MARK: Sending

  func send(_ request: ServiceRequest, to application: ApplicationID) async throws -> SentRequest {
    guard application != self.application.id else {
      throw ServicesError(.notAllowed, detail: "an app sends no requests to itself")
    }
    guard !options.isSimulation else { throw Core.simulation }
    try check(request)
    try await checkAttachments(request.attachments)
    let sent = SentRequest(Identifier.random(), request, to: application, self)
    if sent.isDelivery { try await store(sent) } else { perform { $0.submit(sent) } }
    try await sent.accepted()
    return sent
  }

  /// What may be known before anything is sent.
  private func check(_ request: ServiceRequest) throws {
    guard !request.method.isEmpty, request.method.utf8.count <= Self.methodByteCountMax else {
      throw ServicesError(
        .methodNotFound, detail: "a method's name has 1 to \(Self.methodByteCountMax) bytes")
    }
    try request.params?.validate()
    try request.definition?.validate(
      request: request.method, params: request.params, attachmentCount: request.attachments.count)
  }

  private static let methodByteCountMax = ExchangeLimits.nameByteCountMax

  /// Looks them up in the container, where that may wait for the disk.
  func checkAttachments(_ paths: [String]) async throws {
    guard !paths.isEmpty else { return }
    try await blocking { for path in paths { try self.checkAttachment(path) } }
  }

  /// Removes the inbox directory `/Inbox/<sender>/<time>` of the message that these files came with.
  func removeMessage(with attachments: [String]) async throws {
    guard let first = attachments.first else { return }
    // Bytes, since a slash before a combining mark is no character of its own.
    let names = first.utf8.split(separator: UInt8(ascii: "/")).prefix(3)
    let directory = names.map { "/" + String(decoding: $0, as: UTF8.self) }.joined()
    try await blocking { try self.container.store.removeArrivedMessages([directory]) }
  }

  /// Relative paths begin at the root, as they do when the files are sent.
  private func checkAttachment(_ path: String) throws(ServicesError) {
    let store = container.store
    guard let attributes = try? store.attributes(at: path),
      attributes.kind == .file || attributes.kind == .directory,
      // Without links, `.` and `..`.
      let place = try? store.resolvedPath(path)
    else { throw ServicesError(.attachmentNotFound, path: path) }
    guard !Identity.holdsPrivateKey(place) else {
      throw ServicesError(
        .attachmentNotFound, path: path,
        detail: "\(Identity.directory) holds the app's private key and is not sent, nor is a folder around it"
      )
    }
  }

  func cancel(_ sent: SentRequest) {
    perform(with: sent.application) { $0.cancel(sent) }
  }

  func requests(to application: ApplicationID) async -> [SentRequest] {
    await result { core in core.peers[application].map { Array($0.sent.values) } ?? [] }
  }

  // MARK: Into the outbox

  /// Returns when the request is on the disk.
  private func store(_ sent: SentRequest) async throws {
    let wire = WireOffer.with {
      $0.request = sent.wire(isInFront: false)
      if let timeLimit = sent.request.timeLimit { $0.timeLimit = timeLimit.milliseconds }
    }
    try await store(wire, id: sent.id, to: sent.application, sent.request.attachments) { core in
      core.notRunning
    } then: { core, stored in
      guard let stored else { return }
      FailPoint.stored.pass()
      core.enqueue(sent, stored)
    }
  }

  /// Puts a message into the outbox, unless `refusal` gives an error. `then` gets what was stored, nil if nothing was. stop() waits
  /// for the message, and so does whoever takes it back meanwhile.
  func store(
    _ wire: WireOffer, id: Identifier, to application: ApplicationID, _ attachments: [String],
    endingQueued arrival: UInt64? = nil, unless refusal: @escaping @Sendable (Core) -> ServicesError?,
    then: @escaping @Sendable (Core, StoredMessage?) -> Void
  ) async throws {
    let refused = await result { [storing] core in
      if let refused = refusal(core) { return refused as ServicesError? }
      core.beginEnqueuing(id)
      storing.enter()
      return nil
    }
    if let refused { throw refused }
    defer { storing.leave() }
    func end(_ stored: StoredMessage?) async {
      await result { core in
        then(core, stored)
        core.endEnqueuing(id, for: application)
      }
    }
    do {
      let stored = try await write(wire, id: id, to: application, attachments, endingQueued: arrival)
      await end(stored)
    } catch {
      await end(nil)
      throw error
    }
  }

  /// Writes a message into the outbox, for ``store(_:id:to:_:endingQueued:unless:then:)``.
  func write(
    _ wire: WireOffer, id: Identifier, to application: ApplicationID, _ attachments: [String],
    endingQueued arrival: UInt64? = nil
  ) async throws -> StoredMessage {
    let message: [UInt8] = try wire.serializedBytes()
    // Then it is offered at once, and no second commit is needed for that.
    let isConnected = await result { $0.peers[application]?.isConnected ?? false }
    do {
      return try await blocking { [container] in
        let entry = try container.store.enqueue(
          OutgoingMessage(
            id: id, receiver: application.text, message: message, attachments: attachments),
          mayBeOffered: isConnected, endingQueued: arrival)
        // An error here comes again when the offer is wanted.
        let offer = isConnected ? try? PeerOutbox.offer(wire, entry, to: application, in: container) : nil
        return StoredMessage(entry: entry, offer: offer)
      }
    } catch {
      throw Self.servicesError(error)
    }
  }

  // MARK: What is left of messages

  /// Whoever a message of the queue was for has had it, or a request was answered.
  func endQueued(_ arrival: UInt64) {
    FailPoint.handled.pass()
    changeQueue { try $0.endQueued(arrival) }
  }

  /// The handler of a request has returned.
  func keepQueued(_ arrival: UInt64) { changeQueue { try $0.keepForReply(arrival) } }

  /// Nobody awaits a reply.
  func keepUnclaimed(_ arrival: UInt64, wasGiven: Bool) {
    changeQueue { try $0.keepUnclaimed(arrival, wasGiven: wasGiven) }
  }

  private func changeQueue(_ change: @escaping @Sendable (Container) throws -> Void) {
    fileQueue.async { [container, logger] in
      do {
        try change(container.store)
      } catch {
        logger.error("the queue of messages cannot be changed", metadata: ["error": "\(error)"])
      }
    }
  }

  /// Puts a request without files into the queue. Returns its number there when it is on the disk.
  func keepForReply(
    _ wire: WireOffer, id: Identifier, from sender: ApplicationID, isHandled: Bool
  ) async throws -> UInt64 {
    let message: [UInt8] = try wire.serializedBytes()
    do {
      return try await blocking { [container] in
        FailPoint.keeping.pass()
        let arrival = try container.store.enqueueForReply(
          id, from: sender.text, message, isHandled: isHandled)
        FailPoint.kept.pass()
        return arrival
      }
    } catch {
      throw Self.servicesError(error)
    }
  }
}

extension WireFailure {
  init(_ error: ServicesError) {
    self = .with {
      $0.error = UInt32(error.code.rawValue)
      $0.detail = error.path ?? error.detail ?? ""
    }
  }
}
