public import Dispatch
import Foundation
import LocalTransport
public import Logging
public import SecureFiles
import ServiceWire

/// An app among those of the user: it offers services and uses those of others. See Documentation/SERVICES.md.
///
/// Any thread may use it. It holds the container open until ``stop()``, and goes on by itself when the broker went away and came back.
public final class AppServices: Sendable {
  /// Where the broker is, where callbacks run, and the limits that an app keeps.
  public struct Options: Sendable {
    /// The broker's socket.
    public var broker: String = BrokerPlaces.socketPath()
    /// Whether the app registers, so that others find it; else what an earlier process of it registered stays as it is.
    public var registers = true
    /// Where providers are called and handlers begin, a serial queue. Nil: a queue for each other app, so that its requests begin one after
    /// another, and nobody else waits for them.
    public var callbackQueue: DispatchQueue?
    /// How long requests without files wait for a locked app; those with files wait until it runs.
    public var unlockTime: Duration = .seconds(30)
    /// A channel over which nothing of a message with files came for so long is given up, and another one tried.
    public var deliveryIdleTime: Duration = .seconds(600)
    /// How long what has arrived of a message with files is kept for a sender that does not come back. Looked at when the app starts.
    public var stagingTime: Duration = .seconds(7 * 86_400)
    /// Files of one message that are taken, whose list is held in memory, and bytes of all of them; nil: as many as there is room for.
    public var attachmentCountMax: UInt64? = 1_000_000
    /// The most bytes that the files of one message may have together, in messages that arrive. Holes of files
    /// count as the bytes that the app reads there. With nil the only limit is the room for what is stored,
    /// where holes take none.
    public var attachmentByteCountMax: UInt64? = 1 << 44
    /// Whether contents of large files may come in memory that the sender shares, which spares copies through the socket: sealed there as
    /// they are on the socket, 2 MiB for each channel over which large files come. Where the system has no such memory (Linux has), nothing comes so.
    public var takesSharedMemory = true

    /// Refuses all services, as the enterprise simulation mode of the BlackBerry Dynamics runtime does: ``AppServices/start()`` and whatever needs it
    /// throw `notAllowed`. For tests of how an app gets along without them.
    public var isSimulation = false

    var exchangeLimits: ExchangeLimits {
      var limits = ExchangeLimits()
      limits.attachmentCountMax = attachmentCountMax ?? 0
      limits.slotCountMax = takesSharedMemory ? BulkLane.slotCountMax : 0
      return limits
    }

    var deliveryLimits: DeliveryLimits {
      var limits = DeliveryLimits()
      limits.attachmentCountMax = attachmentCountMax ?? 0
      limits.attachmentByteCountMax = attachmentByteCountMax ?? 0
      return limits
    }
    /// The logger for what the app's code cannot catch. Its label is `opendynamics.services`.
    public var logger = Logger(label: "opendynamics.services")
    /// The clock of all time limits, retries and dates. A test that does not want to wait gives one that it moves by itself: `ManualClock` of
    /// `AppKineticsTesting`.
    public var clock: any AppClock = SystemClock()
    package var observer: (any ServicesObserver)?

    /// Makes the default options.
    public init() {}
  }

  let runtime: Runtime

  /// Reads or makes the app's key in the container. Throws the container's errors, among them `readOnly`, and `certificateNotFound` for a key that
  /// cannot be read. Throws `invalidRegistration` for an application with more servers than may be.
  public init(
    _ application: Application, container: SecureContainer, options: Options = Options()
  ) throws {
    try application.checkServers()
    runtime = try Runtime(application, container, options)
  }

  /// Makes the services as the initializer of the same name does, on a thread of its own.
  public init(
    _ application: Application, container: SecureContainer, options: Options = Options()
  ) async throws {
    try application.checkServers()
    runtime = try await BlockingCall.run { try Runtime(application, container, options) }
  }

  deinit { runtime.stop() }

  /// The app as it was given to the initializer.
  public var application: Application { runtime.application }

  /// The app's container, with the inbox for what comes from other apps.
  public var container: SecureContainer { runtime.container }

  // MARK: Life

  /// Dials the broker, enrols and registers. Throws `brokerUnavailable`, `certificateNotFound`, `invalidRegistration`, and `approvalPending` when an
  /// administrator has to approve the app first: called again, it waits for that. After a failure it tries again by itself, or when it is called again.
  public func start() async throws { try await runtime.start() }

  /// Ends all channels and the connection to the broker, for good. Requests under way end with `connectionLost`. Returns when the others know, after
  /// a second at most, and what was delivered and handled is settled in the container.
  ///
  /// It does not wait for handlers. The tasks of those that run are cancelled, nothing that they return is sent any more, and a request that is in the container comes again at
  /// the next start.
  public func stop() async {
    await withCheckedContinuation { continuation in runtime.stop { continuation.resume() } }
  }

  /// From now on nothing of what other apps have sent is committed, handled, answered or refused, and nothing is said to them: messages stay in the
  /// outboxes of their senders, as they would if this process had ended, and come again at the next start. Channels end; calls end with
  /// `connectionLost` when their senders hear of the app's next process. The connection to the broker stays until ``stop()``. For an app whose
  /// container is about to close; these services do not run again. Returns when nothing is written to the container any more.
  public func hold() async {
    await withCheckedContinuation { continuation in runtime.hold { continuation.resume() } }
  }

  /// Lets no further handler begin, waits until those that run have returned, for `time` at most, and then does what ``stop()`` does. Until then the services run: what handlers
  /// return is sent, and they may send and call. Requests without files that wait for their turn end with `connectionLost`, those with files come again at the next start.
  /// A handler that awaits this waits for itself.
  public func stop(waitingForHandlers time: Duration) async {
    await withCheckedContinuation { continuation in
      runtime.stop(waitingForHandlers: time) { continuation.resume() }
    }
  }

  /// Starts, serves until its task is cancelled or somebody calls ``stop()``, and stops. While there is no broker, or the app waits to be approved,
  /// it goes on trying. Throws what ``start()`` throws for other reasons, and what keeps the app from the broker for good (``connectionError``);
  /// it has stopped then, too.
  public func run() async throws {
    let changes = frontChanges
    let startError = await withTaskCancellationHandler {
      do {
        try await start()
        return (any Error)?.none
      } catch {
        return error
      }
    } onCancel: {
      runtime.stop()
    }
    if let startError {
      let triesAgain = await runtime.result { $0.life != .stopped && !$0.broker.hasGivenUp }
      switch startError {
      case ServicesError.brokerUnavailable where triesAgain, ServicesError.approvalPending where triesAgain:
        runtime.logger.notice("waiting for the broker", metadata: ["error": "\(startError)"])
      default:
        await stop()
        if Task.isCancelled { return }
        throw startError
      }
    }
    for await _ in changes {}
    let wasStopped = await runtime.result { $0.life == .stopped }
    let error = connectionError
    await stop()
    if !wasStopped, !Task.isCancelled, let error { throw error }
  }

  /// Takes the registration back: nobody finds the app, until it starts or offers something again.
  public func unregister() async throws {
    runtime.perform { $0.broker.registration.isTakenBack = true }
    _ = try await runtime.ask(.unregister(WireUnregister()))
  }

  /// Why there is no connection to the broker; nil when there is one, or it is on its way.
  public var connectionError: ServicesError? {
    runtime.shown.withLock { $0.connectionError }
  }

  /// ``connectionError`` as it is, and each one after it, of which a slow reader hears the latest. Ends with ``stop()``.
  public var connectionErrors: AsyncStream<ServicesError?> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
      runtime.perform { core in
        continuation.yield(core.runtime.shown.withLock { $0.connectionError })
        core.watch(\.connectionWatchers, continuation)
      }
    }
  }

  /// Tells the broker, and other apps with it, what became of the app. Locked, it is given nothing until it runs again: requests without files are
  /// refused after ``Options/unlockTime``, those with files wait. Suspended, it refuses requests without files at once, and those with files wait as well.
  /// Replies arrive in every state; those that no call awaits wait until the app runs.
  public func setState(_ state: ApplicationState) async throws {
    try await withCheckedThrowingContinuation { (told: CheckedContinuation<Void, any Error>) in
      runtime.perform { core in
        core.setState(state)
        core.broker.tellState { told.resume(with: $0) }
      }
    }
  }

  /// The apps that have wanted something of this one since it was locked or suspended: a channel, or that a message is taken. One that has given up meanwhile
  /// stays among them. The current ones come first, then all of them after each change, of which a slow reader hears the latest; none when the app runs.
  /// At most 1,024 are told. Ends with ``stop()``.
  public var waitingPeers: AsyncStream<Set<ApplicationID>> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
      runtime.perform { core in
        continuation.yield(core.waitingPeers)
        core.watch(\.waitingPeerWatchers, continuation)
      }
    }
  }

  // MARK: Provider

  /// Answers one service with a function. With `validates` requests that break the definition are refused, and replies that do are not sent.
  /// Throws `invalidRegistration` for a service that is offered already in this version.
  public func offer(
    _ definition: ServiceDefinition, type: ServiceType = .application, validates: Bool = false,
    handler: @escaping ServiceHandler
  ) throws(ServicesError) {
    try offer([Offer(definition: definition, type: type, validates: validates, handler: .function(handler))])
  }

  /// Answers several services with one object, which is kept until they are withdrawn. Throws as ``offer(_:type:validates:handler:)`` does.
  public func offer(
    _ definitions: [ServiceDefinition], type: ServiceType = .application, validates: Bool = false,
    provider: any ServiceProvider
  ) throws(ServicesError) {
    try offer(
      definitions.map {
        Offer(definition: $0, type: type, validates: validates, handler: .object(provider))
      })
  }

  private func offer(_ offers: [Offer]) throws(ServicesError) {
    let refused: ServicesError? = runtime.performAndWait { core in
      do throws(ServicesError) {
        try core.services.add(offers)
      } catch {
        return error
      }
      core.broker.registration.isTakenBack = false
      core.messages.handleUnhandled()
      core.broker.registration.renew()
      return nil
    }
    if let refused { throw refused }
  }

  /// Gives a function all requests that nothing else was offered for, whatever their service, version and method, in place of refusing them with
  /// `serviceNotFound`, `versionNotFound` or `methodNotFound`: it answers these itself where it does not know better. Nothing of it is registered, so that
  /// only those find the app that know it. A later call takes the place of an earlier one; nil refuses such requests again.
  public func offerRest(handler: ServiceHandler?) { offerRest(handler.map { .function($0) }) }

  /// The same with an object.
  public func offerRest(provider: any ServiceProvider) { offerRest(.object(provider)) }

  private func offerRest(_ handler: Offer.Handler?) {
    runtime.performAndWait { core in
      core.services.rest = handler
      core.messages.handleUnhandled()
    }
  }

  /// Sets whose requests this app takes; nil: everybody's. Others are refused with `notAllowed`, also those whose files are on their way, and do
  /// not find the app. The broker's rules hold beside this. Throws `invalidRegistration` for nobody, and for more than 64.
  public func take(from callers: Set<Caller>?) throws(ServicesError) {
    if let callers, !(1...Caller.countMax).contains(callers.count) {
      throw ServicesError(
        .invalidRegistration, detail: "\(callers.count) callers: 1 to \(Caller.countMax) can be")
    }
    runtime.perform { core in
      core.services.callers = callers
      core.broker.registration.renew()
    }
  }

  /// What is under way goes on. Without a version: all of them.
  public func withdraw(_ service: ServiceIdentifier, version: ServiceVersion? = nil) {
    runtime.perform { core in
      core.services.remove(service, version)
      core.broker.registration.renew()
    }
  }

  /// Switches a service, a version or a method off for now, or on again: requests are refused with `serviceDisabled`, `versionDisabled`,
  /// `methodDisabled`.
  public func setDisabled(
    _ isDisabled: Bool, _ service: ServiceIdentifier, version: ServiceVersion? = nil, method: String? = nil
  ) {
    precondition(method == nil || version != nil, "a method is one of a version")
    let part = DisabledPart(service: service, version: version, method: method)
    runtime.perform { $0.services.setDisabled(isDisabled, part) }
  }

  /// Removes the message with which these files came into the inbox, and all of its files. Nothing else removes them. Files that are gone already
  /// are ignored. Throws the container's errors.
  public func removeAttachments(_ paths: [String]) async throws {
    try await runtime.removeMessage(with: paths)
  }

  // MARK: Consumer

  /// Sends a request; returns when it was taken, which is not yet delivered.
  ///
  /// Throws `invalidParams`, `methodNotFound` (by the definition), `attachmentNotFound`, `applicationNotFound`, `brokerUnavailable`, `limitExceeded`.
  public func send(_ request: ServiceRequest, to application: ApplicationID) async throws -> SentRequest {
    try await runtime.send(request, to: application)
  }

  /// Sends a request and waits for its reply; nil when the provider ended without one. Throws what ``send(_:to:)`` and ``SentRequest/reply()`` throw.
  /// Cancelling the task cancels the request.
  @discardableResult
  public func call(_ request: ServiceRequest, to application: ApplicationID) async throws -> ServiceReply? {
    let sent = try await send(request, to: application)
    return try await withTaskCancellationHandler {
      try await sent.reply()
    } onCancel: {
      runtime.cancel(sent)
    }
  }

  /// Cancels a request by its id, also one with files of an earlier process, and one before ``start()``, which does not deliver it then; the answer may come after the start. True:
  /// the receiver's handler never saw it and never will, and nothing of its files is left there. False: it was too late, or no request of this id is on its way to the
  /// app. What the receiver cannot know of is cancelled at once; else this waits for its answer, which can take until it runs again. Throws the container's errors.
  @discardableResult
  public func cancelRequest(_ request: RequestID, to application: ApplicationID) async throws -> Bool {
    try await runtime.cancelRequest(request, to: application).value
  }

  /// Cancels all requests to an app, also those with files of earlier processes, each as ``cancelRequest(_:to:)`` does: before ``start()`` the answer may come after
  /// it. True when at least one was. Throws the container's errors; what this process has sent is cancelled all the same.
  @discardableResult
  public func cancelRequests(to application: ApplicationID) async throws -> Bool {
    let sent = await runtime.requests(to: application)
    let known = Set(sent.map(\.id))
    // At once: one of them may wait for its receiver to answer.
    return try await withThrowingTaskGroup(of: Bool.self) { group in
      for request in sent { group.addTask { await request.cancel() } }
      let outbox: Result<[OutboxMessage], any Error>
      do { outbox = .success(try await self.outbox()) } catch { outbox = .failure(error) }
      for message in (try? outbox.get()) ?? []
      where !message.isReply && message.receiver == application && !known.contains(message.request) {
        group.addTask { try await self.cancelRequest(message.request, to: application) }
      }
      let isCancelled = try await group.reduce(false) { $0 || $1 }
      _ = try outbox.get()
      return isCancelled
    }
  }

  // MARK: Discovery

  /// Who offers what; an empty list when nobody does. What is nil is not asked for. `includesNonProviders` adds apps that offer nothing, where
  /// no service, version or type is asked for. Throws `brokerUnavailable`.
  public func providers(
    of service: ServiceIdentifier? = nil, version: ServiceVersion? = nil, type: ServiceType? = nil,
    includesOwn: Bool = false, includesContents: Bool = false, includesNonProviders: Bool = false
  ) async throws -> [Provider] {
    let found = try await runtime.providers(
      Self.filter(service, version, type, includesOwn, includesContents, includesNonProviders))
    return found.compactMap { Provider($0, askedBy: application.id) }
  }

  /// Lists like those of ``providers(of:version:type:includesOwn:includesContents:includesNonProviders:)``: the first at once, and one whenever something changed; who reads slowly sees the
  /// latest. It outlives connections to the broker, and ends with an error when there will be none any more.
  public func watchProviders(
    of service: ServiceIdentifier? = nil, version: ServiceVersion? = nil, type: ServiceType? = nil,
    includesOwn: Bool = false, includesContents: Bool = false, includesNonProviders: Bool = false
  ) -> AsyncThrowingStream<[Provider], any Error> {
    AsyncThrowingStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
      let filter = Self.filter(
        service, version, type, includesOwn, includesContents, includesNonProviders)
      let own = application.id
      let watcher = runtime.performAndWait { core in
        core.broker.watches.add(filter) { result in
          switch result {
          case .success(let providers):
            continuation.yield(providers.compactMap { Provider($0, askedBy: own) })
          case .failure(let error): continuation.finish(throwing: error)
          }
        }
      }
      continuation.onTermination = { [runtime] _ in runtime.perform { $0.broker.watches.remove(watcher) } }
    }
  }

  private static func filter(
    _ service: ServiceIdentifier?, _ version: ServiceVersion?, _ type: ServiceType?, _ includesOwn: Bool,
    _ includesContents: Bool, _ includesNonProviders: Bool
  ) -> WireFind {
    .with {
      if let service { $0.serviceID = service.text }
      if let version { $0.version = version.text }
      if let type { $0.type = type == .server ? .server : .application }
      $0.includesOwn = includesOwn
      $0.includesContents = includesContents
      $0.includesNonProviders = includesNonProviders
    }
  }

  // MARK: Front

  /// Whether the app is in front; false without a connection to the broker.
  public var isInFront: Bool { runtime.shown.withLock { $0.isInFront } }

  /// True whenever the app comes to the front, false whenever it loses it. A stream that nobody reads keeps the last 64. It ends when there will be no
  /// broker any more: ``connectionError`` says why.
  public var frontChanges: AsyncStream<Bool> {
    AsyncStream(bufferingPolicy: .bufferingNewest(64)) { continuation in
      runtime.perform { core in
        guard !core.broker.hasGivenUp, !core.runtime.options.isSimulation else {
          return continuation.finish()
        }
        core.watch(\.broker.frontWatchers, continuation)
      }
    }
  }

  /// Passes the front on to an app with which a request is under way: one that this process has sent to it and that has not
  /// ended, one of its own that has no reply yet, or its front request, which counts until this app loses the front.
  ///
  /// An installed app that does not run is started first. Returns when the other app is in front. Throws `notAllowed` outside of
  /// a request and when a rule keeps this app from the other one, `notInFront` unless this app has the front,
  /// `applicationNotFound` when the other one does not run and does not start, `frontRefused`, `brokerUnavailable`.
  public func bringToFront(_ application: ApplicationID) async throws {
    try await runtime.bringToFront(application)
  }

  /// Passes the front on to any app, for a person who has chosen it: no request is needed. An installed app that does not run is started first.
  /// Throws what ``bringToFront(_:)`` throws; `notAllowed` when a rule keeps this app from the other one.
  public func launch(_ application: ApplicationID) async throws {
    _ = try await runtime.ask(.bringToFront(.with { $0.appID = application.text }))
  }

  /// Asks another app to bring this one to the front (`FrontRequest`). It decides.
  @discardableResult
  public func requestFront(from application: ApplicationID) async throws -> SentRequest {
    try await send(
      ServiceRequest(WellKnownService.frontRequest.definition, FrontRequest.method), to: application)
  }
}
