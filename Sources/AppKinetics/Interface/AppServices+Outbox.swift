import ContainerStore
public import Foundation
public import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// A message with files, or the reply to one, that the receiver does not have yet. It stays in the container until then, whatever ends.
public struct OutboxMessage: ServiceMessage, Hashable {
  /// How far a message in the outbox is.
  public enum State: Sendable, Hashable {
    /// For the receiver, or for others before it; after `stop()` for the next start.
    case waiting
    /// The receiver has taken it, and has so many bytes of its files.
    case underWay(bytesDone: UInt64)
    /// The receiver's key is not the one that is trusted (``PeerKey``): the message waits until the user
    /// has decided.
    case held
    /// The receiver is locked: the message waits until it is unlocked.
    case locked
    /// The receiver is suspended: the message waits until it runs.
    case suspended
    /// The receiver's container takes nothing, because it is closed, read-only, full, or fails: the message waits until it does.
    case noStorage

    init?(_ reason: WireDeliveryWaiting.Reason) {
      switch reason {
      case .unlock: self = .locked
      case .resumption: self = .suspended
      case .storage: self = .noStorage
      case .UNRECOGNIZED: return nil
      }
    }
  }

  /// The request, or the one that it answers.
  public var request: RequestID
  /// Whether the message is a reply; else it is a request.
  public var isReply: Bool
  /// The app that the message is for.
  public var receiver: ApplicationID
  /// When it was sent.
  public var date: Date
  /// The number of its files; folders count as the files in them.
  public var fileCount: UInt64
  /// Of all files.
  public var byteCount: UInt64
  /// How far the message is.
  public var state: State
  /// The params of the request, or of the reply; nil when there are none, and for a reply that is an error.
  public var params: ServiceValue?
  /// The paths of all files when the message was sent. Only ``AppServices/onOutboxEnd(_:)`` hears them; lists have the count.
  public var attachments: [String] = []
}

/// Told what became of a message: nil when the receiver has it.
public typealias OutboxEndHandler = @Sendable (OutboxMessage, ServicesError?) -> Void

extension OutboxMessage {
  /// What waits in a container's outbox, oldest first; all of it is `waiting`. Throws the container's errors: `catalogDamaged` with the
  /// number of a message that cannot be read.
  public static func all(in container: SecureContainer) throws -> [OutboxMessage] {
    try all(in: container, PeerPins(in: container), skipping: nil)
  }

  /// The same without messages that are damaged, when somebody wants to hear of them.
  package static func all(
    in container: SecureContainer, skipping: @escaping (ContainerError) -> Void
  ) throws -> [OutboxMessage] {
    try all(in: container, PeerPins(in: container), skipping: skipping)
  }

  fileprivate static func all(
    in container: SecureContainer, _ pins: PeerPins, skipping: ((ContainerError) -> Void)?,
    states: [UInt64: State] = [:]
  ) throws -> [OutboxMessage] {
    try container.store.outboxEntries(skipping: skipping).compactMap { entry in
      try entry.skippingDamage(skipping) {
        try OutboxMessage(
          entry, in: container, isHeld: pins.isChanged(entry.receiver), state: states[entry.number])
      } ?? nil
    }
  }

  /// With `includesFiles` it names them all, which may be a long list.
  init?(
    _ entry: OutboxEntry, in container: SecureContainer, isHeld: Bool = false, state: State? = nil,
    includesFiles: Bool = false
  ) throws {
    guard let bytes = try container.store.outboxMessageIfThere(entry.number) else { return nil }
    let offer = try WireOffer(stored: bytes)
    guard let request = offer.requestID, let receiver = try? ApplicationID(entry.receiver) else {
      throw ContainerError(.catalogDamaged, detail: "it is no request or reply to an app")
    }
    self.request = request
    isReply = offer.isReply
    self.receiver = receiver
    date = entry.date
    fileCount = entry.fileCount
    byteCount = entry.byteCount
    self.state = state ?? (isHeld ? .held : .waiting)
    params = offer.params
    while includesFiles, UInt64(attachments.count) < fileCount {
      let page = try? container.store.outboxFiles(
        entry.number, from: UInt64(attachments.count), limit: Self.pageFileCount)
      // What cannot be read is missing at the end.
      guard let page, !page.isEmpty else { break }
      attachments += page.map { String(decoding: $0.path, as: UTF8.self) }
    }
  }

  private static let pageFileCount = 4096

  /// As far as it is known without reading it.
  init(unread delivery: OutgoingDelivery, to receiver: ApplicationID) {
    self.init(
      request: delivery.request ?? delivery.entry.id, isReply: delivery.isReply, receiver: receiver,
      date: delivery.entry.date, fileCount: delivery.entry.fileCount, byteCount: delivery.entry.byteCount,
      state: .waiting, params: nil)
  }
}

extension AppServices {
  /// What is on its way, oldest first. Also before ``start()`` and after ``stop()``. Throws the container's errors.
  public func outbox() async throws -> [OutboxMessage] { try await runtime.outbox() }

  /// The messages of ``outbox()`` that these services know, without params. Nothing is read: a container that is read stores what waits first.
  package func outgoing() async -> [OutboxMessage] {
    await runtime.result { core in
      let pins = core.keys.pins
      return core.peers.values.flatMap { $0.outbox.messages(isHeld: pins.isChanged($0.application.text)) }
        .sorted { $0.date < $1.date }
    }
  }

  /// Takes back a reply that is in the outbox, as ``cancelRequest(_:to:)`` does with a request.
  @discardableResult
  public func cancelReply(to request: RequestID, of application: ApplicationID) async throws -> Bool {
    try await runtime.cancelReply(to: request, of: application).value
  }

  /// Begins to take back a message of the outbox: when this returns, that is certain to come before a later ``start()``.
  package func beginCancelling(_ message: OutboxMessage) async throws -> Task<Bool, Never> {
    message.isReply
      ? try await runtime.cancelReply(to: message.request, of: message.receiver)
      : try await runtime.cancelRequest(message.request, to: message.receiver)
  }

  /// Called on the callback queue for every message that leaves the outbox, with its params and the paths of its files, also for those of earlier processes, which have nobody else to tell: the
  /// receiver has it, or it was refused, taken back, also because its time limit is over, or cannot be read. Asked for before ``start()`` it hears of all that ends from there on. A
  /// process that ends in that moment is not told again by the next one.
  public func onOutboxEnd(_ handler: @escaping OutboxEndHandler) {
    runtime.perform { $0.outboxEndHandler = handler }
  }

  /// Does not take the files of a request, or of a reply, which are on their way; nothing of them is left, and its sender's request ends with `cancelled`.
  /// False when everything is there already, or nothing is on its way.
  @discardableResult
  public func cancelReception(of request: RequestID) async -> Bool {
    await runtime.cancelReception(of: request)
  }
}

extension Runtime {
  func outbox() async throws -> [OutboxMessage] {
    let (states, pins) = await result { core in
      var states: [UInt64: OutboxMessage.State] = [:]
      for peer in core.peers.values { states.merge(peer.outbox.states) { $1 } }
      return (states, core.keys.pins)
    }
    do {
      return try await blocking { [self] in
        try OutboxMessage.all(in: container, pins, skipping: leavingOut, states: states)
      }
    } catch {
      throw Self.servicesError(error)
    }
  }

  /// From any app, or from one.
  func cancelReception(of request: RequestID, from sender: ApplicationID? = nil) async -> Bool {
    await result { core in
      core.peers.contains { (sender == nil || sender == $0) && $1.inbox.cancelReception(of: request) }
    }
  }

  func cancelRequest(_ id: RequestID, to application: ApplicationID) async throws -> Task<Bool, Never> {
    if let sent = await result(of: { $0.peers[application]?.sent[id] }) {
      // A caller may wait for this task on a thread of the cooperative pool.
      return Task(executorPreference: QueueExecutor()) { await sent.cancel() }
    }
    // The id of a delivery is that of the request.
    return try await takeBack(to: application) { $0.id == id }
  }

  func cancelReply(to request: RequestID, of application: ApplicationID) async throws -> Task<Bool, Never> {
    try await takeBack(to: application) { [self] entry in
      try entry.skippingDamage(leavingOut) {
        guard let bytes = try container.store.outboxMessageIfThere(entry.number) else { return false }
        let offer = try WireOffer(stored: bytes)
        return offer.requestID == request && offer.isReply
      } ?? false
    }
  }

  /// Takes back the first message of the outbox for an app that is meant.
  private func takeBack(
    to application: ApplicationID, where isMeant: @escaping @Sendable (OutboxEntry) throws -> Bool
  ) async throws -> Task<Bool, Never> {
    let found: OutboxEntry?
    do {
      found = try await blocking { [self] in
        try container.store.outboxEntries(skipping: leavingOut).first {
          try $0.receiver == application.text && isMeant($0)
        }
      }
    } catch {
      throw Self.servicesError(error)
    }
    guard let found else { return Task { false } }
    let (ends, ended) = AsyncStream<Bool>.makeStream()
    await result { core in
      core.takeBack(found, for: application) {
        switch $0 {
        case .refused, .cancelled: ended.yield(true)
        case .committed, .lost, nil: ended.yield(false)
        }
        ended.finish()
      }
    }
    return Task(executorPreference: QueueExecutor()) {
      for await isTakenBack in ends { return isTakenBack }
      return false
    }
  }

  /// Removes a message that nobody was offered from the outbox, durably. `then` goes on with whether it is gone.
  func settleBeforeStart(_ number: UInt64, then: @escaping @Sendable (Core, Bool) -> Void) {
    fileQueue.async { [self] in
      var isSettled = true
      do {
        try container.store.settleOutbox(number)
        try container.store.synchronize()
      } catch {
        logger.error("the outbox cannot be changed", metadata: ["error": "\(error)"])
        isSettled = false
      }
      perform { [isSettled] in then($0, isSettled) }
    }
  }
}

extension Container {
  /// Nil when it was settled meanwhile.
  fileprivate func outboxMessageIfThere(_ number: UInt64) throws -> [UInt8]? {
    do { return try outboxMessage(number) } catch ContainerError.noSuchFile { return nil }
  }
}

extension OutboxEntry {
  /// When it was put into the outbox.
  var date: Date { Date(timeIntervalSince1970: Double(time) / 1e9) }

  fileprivate func skippingDamage<R>(
    _ skipping: ((ContainerError) -> Void)?, _ body: () throws -> R
  ) throws -> R? {
    try ContainerStore.skippingDamage("message \(number) in the outbox", skipping, body)
  }
}

extension WireOffer {
  /// As it stands in an outbox. Throws `catalogDamaged`.
  fileprivate init(stored bytes: [UInt8]) throws {
    do {
      try self.init(serializedBytes: bytes)
    } catch {
      throw ContainerError(.catalogDamaged, detail: "it cannot be read (\(error))", cause: error)
    }
  }

  var isReply: Bool {
    if case .reply? = message { true } else { false }
  }

  /// Nil when there are none that can be read.
  fileprivate var params: ServiceValue? {
    switch message {
    case .request(let request) where request.hasParams: try? ServiceValue(request.params)
    case .reply(let reply): reply.sentParams
    case .request, nil: nil
    }
  }
}
