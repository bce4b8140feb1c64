import ContainerStore
@preconcurrency import Dispatch
import Foundation
import LocalTransport
import Logging
import SecureFiles
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// What stands behind an `AppServices`: the connection to the broker, the channels to other apps, and the requests on them.
///
/// All state is in `core`; the threads of lanes, timers, callers and callbacks bring their work there.
final class Runtime: Sendable {
  let application: Application
  let container: SecureContainer
  let options: AppServices.Options
  let core: SerialState<Core>
  /// Names this runtime to others: who has another one knows nothing of earlier requests.
  let process = Identifier.random()
  /// What must not be called within the runtime's own work, and writes of a few bytes.
  let workQueue: DispatchQueue
  /// What waits for the disk.
  let fileQueue: DispatchQueue
  let logger: Logger
  /// Of tasks beside the control lanes to other apps.
  private let timer: any DispatchSourceTimer

  init(_ application: Application, _ container: SecureContainer, _ options: AppServices.Options) throws {
    self.application = application
    self.container = container
    self.options = options
    let (identity, pins) = (try Identity(in: container), try PeerPins(in: container))
    // Behind everything that throws: a timer that was never activated must not be released.
    timer = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "opendynamics.services.timer"))
    let core = Core(identity, pins, timer)
    self.core = SerialState(core) { $0.setTimer(workCount: $1) }
    workQueue = DispatchQueue(label: "opendynamics.services.work")
    fileQueue = DispatchQueue(label: "opendynamics.services.files", attributes: .concurrent)
    logger = options.logger
  }

  deinit { timer.cancel() }

  var appID: String { application.id.text }

  /// Milliseconds of a clock that only goes on.
  static var now: UInt64 { DispatchTime.now().uptimeNanoseconds / 1_000_000 }

  /// Milliseconds since 1970.
  static var wallTime: UInt64 { UInt64(max(0, Date().timeIntervalSince1970 * 1000)) }

  // MARK: Life

  /// Returns when the app is registered; throws when the first connection does not come to that.
  func start() async throws {
    let left = try await left()
    try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
      core.perform { core in
        let starter: BrokerPart.Starter = { continuation.resume(with: $0.mapError { $0 as any Error }) }
        switch (core.life, core.broker.phase) {
        case (.stopped, _): starter(.failure(ServicesError(.general, detail: "these services were stopped")))
        case (_, .up) where !core.isUnregistered: starter(.success(()))
        case (_, .up):
          core.isUnregistered = false
          self.ask(.register(self.registration(core)), &core) { _, result in starter(result.map { _ in }) }
        default:
          core.broker.started.append(starter)
          core.broker.hasGivenUp = false
          core.isUnregistered = !self.options.registers
          if core.life == .new { self.begin(left, &core) } else { self.connectBroker(&core) }
        }
      }
    }
  }

  /// What earlier processes left in the container; nil when that was read before.
  private func left() async throws -> (outbox: [OutboxEntry], queue: [QueuedMessage])? {
    guard await core.result(of: { $0.life == .new }) else { return nil }
    do {
      return try await blocking { [self] in
        let store = container.store
        // For any time that an app may name, also one without end.
        let oldest = min(9e9, max(-9e9, Date().timeIntervalSince1970 - options.stagingTime))
        try store.discardArrivals(olderThan: Int64(oldest) * 1_000_000_000)
        return (
          try store.outboxEntries(skipping: leavingOut), try store.queuedMessages(skipping: leavingOut)
        )
      }
    } catch {
      throw Self.servicesError(error)
    }
  }

  private func begin(_ left: (outbox: [OutboxEntry], queue: [QueuedMessage])?, _ core: inout Core) {
    core.life = .running
    for queued in left?.queue ?? [] { handle(queued, isRedelivered: true, &core) }
    resumeOutbox(left?.outbox ?? [], &core)
    timer.setEventHandler { [weak self] in
      guard let self else { return }
      self.core.perform { self.lookAtDeadlines(&$0) }
    }
    timer.activate()
    connectBroker(&core)
  }

  /// Calls back when every lane has said goodbye, which takes until the other side has heard it, a second at most.
  func stop(_ done: @escaping @Sendable () -> Void = {}) {
    core.perform { core in
      guard core.life != .stopped else { return done() }
      let wasRunning = core.life == .running
      core.life = .stopped
      for ended in core.takenBack.values.joined() { ended(nil) }
      core.takenBack = [:]
      if !wasRunning { self.timer.activate() }
      self.timer.cancel()
      let lanes = DispatchGroup()
      for peer in core.peers.values {
        for channel in peer.channels.values {
          lanes.enter()
          channel.lane.whenClosed { lanes.leave() }
        }
      }
      // Nothing is written to the container after this.
      for delivery in core.peers.values.flatMap(\.arriving.values) {
        lanes.enter()
        delivery.queue.async {
          delivery.suspend()
          lanes.leave()
        }
      }
      if let lane = core.broker.lane {
        lanes.enter()
        lane.whenClosed { lanes.leave() }
      }
      // What was told to the app is settled in the container, so that nothing of it comes again.
      lanes.enter()
      self.fileQueue.async(flags: .barrier) { lanes.leave() }
      lanes.notify(queue: self.workQueue, execute: done)
      for application in core.peers.keys { self.endPeer(application, &core) }
      core.broker.lane?.close(.noError)
      self.brokerEnded(ServicesError(.brokerUnavailable, detail: "these services were stopped"), &core)
      for watcher in core.frontWatchers.values { watcher.finish() }
      core.frontWatchers = [:]
      for watcher in core.keyWatchers.values { watcher.finish() }
      core.keyWatchers = [:]
    }
  }
}
