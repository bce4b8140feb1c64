// The names are the vendor's.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

import Locks
import PushClient

extension Notification.Name {
  /// The channel is open. `userInfo` has `GDPushChannelTokenKey`, and `GDPushChannelHostKey` if a regional host applies. The object is the
  /// channel, as in the next four.
  public static let GDPushChannelOpened = Notification.Name("GDPushChannelOpenedNotification")
  /// The channel was disconnected, and its token is dead: `GDPushChannelTokenKey`.
  public static let GDPushChannelClosed = Notification.Name("GDPushChannelClosedNotification")
  /// A call did not fit, or the channel has ended: `GDPushChannelErrorKey`.
  public static let GDPushChannelError = Notification.Name("GDPushChannelErrorNotification")
  /// The app's server sent something: `GDPushChannelMessageKey`.
  public static let GDPushChannelMessage = Notification.Name("GDPushChannelMessageNotification")
  /// The app's server did not answer for a token: `GDPushChannelErrorKey`, 600 to 605.
  public static let GDPushChannelPingFailed = Notification.Name("GDPushChannelPingFailedNotification")
}

/// Key of the token (`String`) in `userInfo` of opened and closed.
public let GDPushChannelTokenKey = "GDPushChannelTokenKey"
/// Key of the host (`String`) in `userInfo` of opened.
public let GDPushChannelHostKey = "GDPushChannelHostKey"
/// Key of the code (`NSNumber`) in `userInfo` of error and ping failed.
public let GDPushChannelErrorKey = "GDPushChannelErrorKey"
/// Key of the text (`String`), which may be empty, in `userInfo` of message.
public let GDPushChannelMessageKey = "GDPushChannelMessageKey"

/// A channel by which the app's server reaches the app, through the relay of `GDConfiguration.relay`.
///
/// What happens to it is a notification, on `GDConfiguration.callbackQueue`. It ends with the object.
public final class GDPushChannel: NSObject, Sendable {
  private struct State {
    /// Nil until there is push for the app.
    var channel: PushChannel?
    var listening: Task<Void, Never>?
  }

  private let app = HostedApp.current
  private let identifier: String
  private let guarded = Guarded(State())

  /// Prepares a channel. The identifier is unique within the app.
  public init(identifier: String) {
    self.identifier = identifier
    super.init()
    _ = try? channel("init")
  }

  deinit {
    let state = guarded.withLock { $0 }
    // At once: the next object of this identifier may connect already.
    state.channel?.letGo()
    state.listening?.cancel()
  }

  /// Opens the channel, with a new token. The outcome is a notification: error 0 also when the relay was not reached for
  /// `GDConfiguration.pushConnectTime`, and when the channel is open.
  public func connect() { perform("connect") { await $0.connect() } }

  /// Ends the channel for good, also while the app is locked. Error 0 follows when it is not open.
  public func disconnect() { perform("disconnect") { await $0.disconnect() } }

  /// `none` before the channel was open for the first time, and while it connects.
  public var state: GDPushChannelState {
    guarded.withLock { $0.channel }.flatMap { GDPushChannelState(rawValue: $0.state.rawValue) } ?? .none
  }

  /// The channel, which is made when there is push. Throws as ``HostedApp/push(_:)`` does.
  private func channel(_ call: String) throws -> PushChannel {
    if let channel = guarded.withLock({ $0.channel }) { return channel }
    let push: PushRuntime
    do { push = try app.push("GDPushChannel.\(call)") } catch {
      app.configuration.logger.error("there is no push", metadata: ["error": "\(error)"])
      throw error
    }
    return guarded.withLock { state in
      if let channel = state.channel { return channel }
      let channel = push.channel(identifier)
      state.channel = channel
      state.listening = listen(to: channel)
      return channel
    }
  }

  private func perform(_ call: String, _ action: @escaping @Sendable (PushChannel) async -> Void) {
    guard let channel = try? channel(call) else {
      return app.configuration.callbackQueue.async { self.post(.error(code: 0)) }
    }
    // One after another, in the order of the calls.
    Task.detached(executorPreference: app.following) { await action(channel) }
  }

  private func listen(to channel: PushChannel) -> Task<Void, Never> {
    let post: @Sendable (PushEvent) -> Bool = { [weak self] event in
      self?.post(event)
      return self != nil
    }
    return Task.detached { [queue = app.configuration.callbackQueue] in
      for await event in channel.uncompletedEvents {
        let isPosted = await withCheckedContinuation { continuation in
          queue.async { continuation.resume(returning: post(event)) }
        }
        // The app has it. One that dies before gets it again.
        if isPosted, case .message(let message) = event { await channel.complete(message) }
      }
    }
  }

  /// For the queue of callbacks.
  private func post(_ event: PushEvent) {
    let name: Notification.Name
    var info: [String: Any] = [:]
    switch event {
    case .opened(let token, let host, _):
      name = .GDPushChannelOpened
      info[GDPushChannelTokenKey] = token
      info[GDPushChannelHostKey] = host
    case .message(let message):
      (name, info[GDPushChannelMessageKey]) = (.GDPushChannelMessage, message.text ?? "")
    case .pingFailed(let failure):
      (name, info[GDPushChannelErrorKey]) = (.GDPushChannelPingFailed, NSNumber(value: failure.rawValue))
    case .closed(let token): (name, info[GDPushChannelTokenKey]) = (.GDPushChannelClosed, token)
    case .error(let code): (name, info[GDPushChannelErrorKey]) = (.GDPushChannelError, NSNumber(value: code))
    }
    app.configuration.onCallback?(GDCallback(name.rawValue))
    NotificationCenter.default.post(name: name, object: self, userInfo: info)
  }
}
