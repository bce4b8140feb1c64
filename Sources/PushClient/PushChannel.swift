public import Foundation
internal import Locks
@_exported public import PushChannels
internal import Synchronization

/// A channel by which an app's server reaches the app.
///
/// ```swift
/// import PushClient
///
/// func news(_ runtime: PushRuntime, tellServer: (String) async -> Void) async {
///   let channel = runtime.channel("com.example.mail")
///   await channel.connect()
///   var current = ""
///   for await event in channel.events {
///     switch event {
///     case .opened(let token, _, _):
///       current = token
///       await tellServer(token)
///     case .pingFailed(.unknownToken): await tellServer(current)
///     case .message(let message): print(message.text ?? "")
///     case .pingFailed, .closed, .error: break
///     }
///   }
/// }
/// ```
///
/// A channel that is not connected again in a later process stays open at the relay for seven days, and
/// resumes with its token when its identifier is connected.
public final class PushChannel: Sendable {
  /// Unique within the app, such as `com.example.mail`. It is not sent to anybody.
  public let identifier: String
  private let runtime: PushRuntime
  /// The name under which the runtime knows this object, once it was used: the identifier, unless another
  /// object has it.
  private let key = Guarded<String?>(nil)
  private let isGone = Atomic<Bool>(false)

  init(identifier: String, runtime: PushRuntime) {
    self.identifier = identifier
    self.runtime = runtime
  }

  deinit { letGo() }

  /// Gives the identifier back at once. Whoever waits for an event of this object gets nil.
  package func letGo() {
    isGone.store(true, ordering: .releasing)
    if let key = key.withLock({ $0.take() }) { runtime.release(key) }
  }

  /// Where the channel is in its documented cycle, as far as the app was shown.
  public var phase: ChannelPhase { key.withLock { $0 }.map { runtime.phase($0) } ?? .prepared }

  /// The documented value of ``phase``.
  public var state: ChannelState { phase.state }

  /// ``phase`` now, and each one after it. Ends when the runtime is stopped.
  public var phases: AsyncStream<ChannelPhase> {
    let (stream, continuation) = AsyncStream.makeStream(of: ChannelPhase.self)
    Task { runtime.watch(await claimed(), continuation) }
    return stream
  }

  /// Opens the channel. Its token comes with ``PushEvent/opened(token:host:keys:)``, a new one for each
  /// connect; a channel of an earlier process that has not ended resumes with its token.
  ///
  /// Allowed when the channel was never connected or has ended; else, and while another object has the
  /// identifier, error 0 follows and nothing changes. When the other object was dropped, this one resumes
  /// its channel as after a restart of the app. Returns when the intent is stored.
  public func connect() async {
    if let key = key.withLock({ $0 }), PushRuntime.isDuplicate(key) {
      // The other object may be gone by now.
      runtime.release(key)
      self.key.withLock { $0 = nil }
    }
    await runtime.connect(await claimed())
  }

  /// Ends the channel for good. Messages that were sent before may still arrive, then
  /// ``PushEvent/closed(token:)``. Allowed while the channel is open; else error 0 follows.
  public func disconnect() async {
    await runtime.disconnect(await claimed())
  }

  /// Gives up ``connect()``: error 0 follows, and the channel may be connected again. Does nothing when the relay has opened the channel by then,
  /// which is shown, or refused it.
  public func giveUp() async { await runtime.giveUp(await claimed()) }

  private func claimed() async -> String {
    if let key = key.withLock({ $0 }) { return key }
    let claimed = await runtime.claim(identifier, for: ObjectIdentifier(self))
    key.withLock { $0 = claimed }
    return claimed
  }

  // MARK: Events

  /// The events of the channel. An event goes to one of those who ask; a message counts as shown before it
  /// is returned.
  public var events: PushEvents { PushEvents(channel: self, completesLater: false) }

  /// The events of the channel. A message counts as shown when ``complete(_:)`` was called for it; one that
  /// was not completed comes again when the app is started and connects the identifier the next time, also
  /// when its channel has ended.
  public var uncompletedEvents: PushEvents { PushEvents(channel: self, completesLater: true) }

  /// The app is done with a message of ``uncompletedEvents``.
  public func complete(_ message: PushMessageEvent) async {
    await runtime.complete(message.id)
  }

  fileprivate func next(completesLater: Bool) async -> PushEvent? {
    while !isGone.load(ordering: .acquiring) {
      switch await runtime.next(
        await claimed(), of: ObjectIdentifier(self), completesLater: completesLater)
      {
      case .event(let event): return event
      case .ended: return nil
      // It has another name now, or none.
      case .released: continue
      }
    }
    return nil
  }
}

/// The events of a channel, in order. It ends when the runtime is stopped or the task is cancelled.
public struct PushEvents: AsyncSequence, Sendable {
  fileprivate let channel: PushChannel
  fileprivate let completesLater: Bool

  public struct Iterator: AsyncIteratorProtocol {
    fileprivate let sequence: PushEvents

    public mutating func next() async -> PushEvent? {
      await sequence.channel.next(completesLater: sequence.completesLater)
    }
  }

  public func makeAsyncIterator() -> Iterator { Iterator(sequence: self) }
}

// MARK: - Notifications

extension Notification.Name {
  public static let pushChannelOpened = Notification.Name("OpenDynamicsPushChannelOpened")
  public static let pushChannelMessage = Notification.Name("OpenDynamicsPushChannelMessage")
  public static let pushChannelPingFailed = Notification.Name("OpenDynamicsPushChannelPingFailed")
  public static let pushChannelClosed = Notification.Name("OpenDynamicsPushChannelClosed")
  public static let pushChannelError = Notification.Name("OpenDynamicsPushChannelError")
  /// ``PushRuntime/isAvailable`` has changed; the object is the runtime.
  public static let pushReachabilityChanged = Notification.Name("OpenDynamicsPushReachabilityChanged")
}

/// Keys of the notifications' `userInfo`.
public enum PushChannelKey {
  /// `String`, of opened and closed.
  public static let token = "token"
  /// `String`, of opened, if a regional host applies.
  public static let host = "host"
  /// `String`, of message; may be empty.
  public static let message = "message"
  /// `Int`, of error and ping-failed.
  public static let error = "error"
}

extension PushChannel {
  /// Posts the events as notifications on the main actor, with the channel as their object, until the task
  /// is cancelled. Use this or ``events``: an event goes to one of them.
  public func postNotifications(to center: NotificationCenter = .default) -> Task<Void, Never> {
    Task { @MainActor [weak self] in
      while let event = await self?.next(completesLater: false) {
        guard let self else { return }
        let (name, info) = event.notification
        center.post(name: name, object: self, userInfo: info)
      }
    }
  }
}

extension PushEvent {
  fileprivate var notification: (Notification.Name, [String: any Sendable]) {
    switch self {
    case .opened(let token, let host, _):
      var info: [String: any Sendable] = [PushChannelKey.token: token]
      info[PushChannelKey.host] = host
      return (.pushChannelOpened, info)
    case .message(let message): return (.pushChannelMessage, [PushChannelKey.message: message.text ?? ""])
    case .pingFailed(let failure):
      return (.pushChannelPingFailed, [PushChannelKey.error: failure.rawValue])
    case .closed(let token): return (.pushChannelClosed, [PushChannelKey.token: token])
    case .error(let code): return (.pushChannelError, [PushChannelKey.error: code])
    }
  }
}
