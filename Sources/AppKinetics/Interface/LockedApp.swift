import ContainerStore
public import Foundation
import LocalTransport
import Locks
import ServiceValues
import ServiceWire

/// An app whose container is not open: it is there for others, locked, and hears that they want something of it.
///
/// A program that needs the user's passphrase before it can open its container does not exist for other apps until
/// then. With this it is there: messages with files for it wait, requests without files wait for the unlocking, the user
/// can bring it to front, and it can say who asks for it. It learns nothing else, sends nothing, and receives nothing:
/// for that an ``AppServices`` with the open container takes its place, which ends ``run()``.
///
/// ```swift
/// import AppKinetics
///
/// let locked = try LockedApp(containerAt: url)
/// try await locked.start()
/// Task { try await locked.run() }
/// for await peers in locked.waitingPeers where !peers.isEmpty {
///   print("\(peers) wait: the passphrase?")
/// }
/// ```
///
/// The app must have enrolled once, with its container open. That writes `presence.json` into the container's
/// directory: a key that is good for this alone, in the clear, for the system's user.
public final class LockedApp: Sendable {
  /// The app's id.
  public let application: ApplicationID
  private let file: PresenceFile
  private let options: AppServices.Options
  private let state = Guarded(State())

  private typealias Connection = (client: BrokerClient, end: AsyncStream<ProtocolFault>)

  private struct State: Sendable {
    var waitingPeers: Set<ApplicationID> = []
    var isInFront = false
    var isRunning = false
    var hasEnded = false
    /// Of ``start()``, for ``run()``.
    var started: Connection?
    var isStarting = false
    /// The continuation of ``run()`` while it waits for ``start()``.
    var waitingForStart: CheckedContinuation<Void, Never>?
    var waiting = Watchers<Set<ApplicationID>>()
    var front = Watchers<Bool>()
    var lastWatcher: UInt64 = 0
  }

  /// Reads the key beside the container; of the options it takes the broker's socket, the clock and the logger. Throws
  /// `SecureFilesError.notAContainer` when there is no container, and `certificateNotFound` when there is no such
  /// key: the app never enrolled, or its directory was restored without.
  public init(containerAt url: URL, options: AppServices.Options = AppServices.Options()) throws {
    try Container.requireContainer(at: url.path)
    file = try PresenceFile(inContainerAt: url.path)
    application = file.application
    self.options = options
  }

  deinit { state.withLock { $0.started }?.client.close() }

  // MARK: What it hears

  /// The apps that have wanted something of this one since it is present, as ``AppServices/waitingPeers`` has them.
  /// Ends with ``run()``.
  public var waitingPeers: AsyncStream<Set<ApplicationID>> {
    stream(.bufferingNewest(1), \.waiting) { $0.waitingPeers }
  }

  /// Whether this app is in front: now, and after each change. A stream that nobody reads keeps the last 64. Ends with ``run()``.
  public var frontChanges: AsyncStream<Bool> { stream(.bufferingNewest(64), \.front) { $0.isInFront } }

  private func stream<Event: Sendable>(
    _ policy: AsyncStream<Event>.Continuation.BufferingPolicy,
    _ watchers: any WritableKeyPath<State, Watchers<Event>> & Sendable, _ current: @Sendable (State) -> Event
  ) -> AsyncStream<Event> {
    let (stream, continuation) = AsyncStream.makeStream(of: Event.self, bufferingPolicy: policy)
    let number: UInt64? = state.withLock { state in
      guard !state.hasEnded else { return nil }
      continuation.yield(current(state))
      state.lastWatcher += 1
      state[keyPath: watchers].add(continuation, as: state.lastWatcher)
      return state.lastWatcher
    }
    guard let number else {
      continuation.finish()
      return stream
    }
    // Later: this is called with the reader's task locked, and whoever tells an event holds the app's lock when it wakes that task.
    continuation.onTermination = { [weak self] _ in
      DispatchQueue.global().async { [self] in self?.state.withLock { $0[keyPath: watchers].remove(number) } }
    }
    return stream
  }

  private func take(_ message: WireBrokerMessage) {
    switch message.kind {
    case .peerWaits(let message):
      guard let peer = try? ApplicationID(message.appID) else { return }
      state.withLock { state in
        guard state.waitingPeers.count < Core.waitingPeerCountMax, state.waitingPeers.insert(peer).inserted
        else { return }
        state.waiting.yield(state.waitingPeers)
      }
    case .frontChanged(let change): setFront(change.isInFront)
    // Nothing else is for it, of this version.
    default: break
    }
  }

  private func setFront(_ isInFront: Bool) {
    state.withLock { state in
      guard state.isInFront != isInFront else { return }
      state.isInFront = isInFront
      state.front.yield(isInFront)
    }
  }

  // MARK: Life

  /// Dials the broker, and returns when the app is present. Then ``run()`` goes on. Called again, it does nothing.
  ///
  /// Throws what ``run()`` throws; `CancellationError` also when ``run()`` ended meanwhile; `brokerUnavailable` also when
  /// nobody answers, `placeTaken` also when the app runs; `certificateNotFound` when another broker answers than the one
  /// that the app enrolled with; and `limitExceeded` when the broker has too many connections.
  public func start() async throws {
    let isFirst = state.withLock { state in
      guard !state.hasEnded, !state.isRunning, !state.isStarting, state.started == nil else { return false }
      state.isStarting = true
      return true
    }
    guard isFirst else { return }
    defer { startEnded() }
    do {
      let connection = try await connect()
      let isTaken = state.withLock { state in
        guard !state.hasEnded else { return false }
        state.started = connection
        return true
      }
      if !isTaken {
        connection.client.close()
        throw CancellationError()
      }
    } catch let error as CancellationError {
      throw error
    } catch let fault as ProtocolFault {
      throw Self.error(of: fault) ?? BrokerSession.error(of: LaneEnd(.peer, fault))
    } catch {
      throw ServicesError(.brokerUnavailable, detail: "\(options.broker): \(error)")
    }
  }

  private func startEnded() {
    let waiting = state.withLock { state in
      state.isStarting = false
      return state.waitingForStart.take()
    }
    waiting?.resume()
  }

  /// Waits until ``start()`` no longer dials, or the task is cancelled. The broker has one place for this key, so that two connections
  /// would replace each other.
  private func waitForStart() async {
    await withTaskCancellationHandler {
      await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
        let waits = state.withLock { state in
          guard state.isStarting, !Task.isCancelled else { return false }
          state.waitingForStart = continuation
          return true
        }
        if !waits { continuation.resume() }
      }
    } onCancel: {
      let waiting = state.withLock { $0.waitingForStart.take() }
      waiting?.resume()
    }
  }

  /// Is present until a process that has opened the container takes its place, the app or a tool for its container, or
  /// until its task is cancelled. While there is no broker it goes on trying. After ``start()`` or without; once.
  /// Called while ``start()`` dials, it waits for that.
  ///
  /// Throws `notEnrolled` when the broker does not take the key, or an administrator forgot the app; `placeTaken`
  /// when another process stands in for it; `enterpriseUserNotMatch`; and `brokerUnavailable` when the broker speaks
  /// no version that is known here.
  public func run() async throws {
    let isFirst = state.withLock { state in
      defer { state.isRunning = true }
      return !state.isRunning
    }
    precondition(isFirst, "a locked app runs once: make a new one")
    defer { end() }
    await waitForStart()
    var failureCount: UInt64 = 0
    while !Task.isCancelled {
      var fault: ProtocolFault?
      do {
        let started = state.withLock { $0.started.take() }
        let (client, end) = if let started { started } else { try await connect() }
        failureCount = 0
        fault = await withTaskCancellationHandler {
          await end.first { _ in true }
        } onCancel: {
          client.close()
        }
      } catch let refusal as ProtocolFault {
        fault = refusal
      } catch {
        options.logger.notice("no broker", metadata: ["error": "\(error)"])
      }
      if fault == .replaced || Task.isCancelled { return }
      if let fault, let error = Self.error(of: fault) { throw error }
      setFront(false)
      failureCount += 1
      let pause = BrokerSession.pause(after: failureCount, fault)
      try? await options.clock.sleep(for: .milliseconds(Int64(clamping: pause)))
    }
  }

  private func end() {
    var (started, waiting, front) = state.withLock { state in
      defer { (state.started, state.waiting, state.front) = (nil, Watchers(), Watchers()) }
      state.hasEnded = true
      return (state.started, state.waiting, state.front)
    }
    started.take()?.client.close()
    waiting.finish()
    front.finish()
  }

  /// Nil for what may be better at the next try.
  private static func error(of fault: ProtocolFault) -> ServicesError? {
    switch fault {
    case .keyNotPinned:
      return ServicesError(.notEnrolled, detail: "it does not take the key in the container's presence.json")
    case .forgotten: return ServicesError(.notEnrolled, detail: "an administrator forgot the app")
    case .replaced: return ServicesError(.placeTaken, detail: "the app runs, with its container open")
    case .duplicated:
      return ServicesError(.placeTaken, detail: "that process stands in for the app in the place of this one")
    default: break
    }
    return BrokerSession.isFinal(fault) ? BrokerSession.error(of: LaneEnd(.peer, fault)) : nil
  }

  private func connect() async throws -> Connection {
    let (end, continuation) = AsyncStream.makeStream(of: ProtocolFault.self)
    let beginning = WireBrokerMessage.with {
      $0.enrol.version = BrokerSession.versionMax
      $0.enrol.appID = application.text
      $0.enrol.activationUser = file.activationUser
      $0.enrol.state = .locked
      $0.enrol.standsIn = true
    }
    let (client, _) = try await BrokerClient.begin(
      path: options.broker, key: file.key, broker: file.brokerKey, beginning,
      other: { [weak self] in self?.take($0) },
      ended: {
        continuation.yield($0)
        continuation.finish()
      })
    return (client, end)
  }
}
