// The names are the vendor's.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

import Locks
import PushClient

extension Notification.Name {
  /// Posted when one of the two kinds of availability has changed, on `GDConfiguration.callbackQueue`. The object is
  /// `GDiOS.sharedInstance()`.
  public static let GDReachabilityChanged = Notification.Name("GDReachabilityChangedNotification")
}

/// Whether there is a network, and whether push works.
///
/// Any thread may use it. Properties are not observed by keys and values (KVO).
public final class GDReachability: NSObject, Sendable {
  private struct State {
    var monitor: NetworkMonitor?
    var told: (status: GDReachabilityStatus, hasPush: Bool)?
  }

  static let shared = GDReachability()
  private let state = Guarded(State())

  private override init() {}

  /// The one object of this class. The first call begins to watch the network.
  public class func sharedInstance() -> GDReachability {
    shared.watch()
    return shared
  }

  /// How the default route leads to the network. A wire counts as Wi-Fi; so does what cannot be told.
  public var status: GDReachabilityStatus { DefaultRoute.status }

  /// Whether there is a network.
  public var isNetworkAvailable: Bool { status != .notReachable }

  /// Whether there is a network.
  @available(*, deprecated, message: "use the property of sharedInstance()")
  public class func isNetworkAvailable() -> Bool { sharedInstance().isNetworkAvailable }

  /// Whether there is a connection to the relay. The first question of an app that is authorized begins to make one.
  public var isPushChannelAvailable: Bool {
    guard let app = HostedApp.begun, app.configuration.relay != nil,
      app.state.withLock({ $0.runtime })?.authorization.isAuthorized == true
    else { return false }
    return (try? app.push("GDReachability.isPushChannelAvailable").isAvailable) ?? false
  }

  private func watch() {
    let isFirst = state.withLock { state in
      guard state.monitor == nil else { return false }
      state.monitor = NetworkMonitor(routes: true) { [weak self] in
        if let app = HostedApp.begun { self?.changed(app) }
      }
      state.told = (DefaultRoute.status, false)
      return true
    }
    if isFirst, let app = HostedApp.begun { changed(app) }
  }

  /// Posts the notification if something is different from what was told last.
  func changed(_ app: HostedApp) {
    app.configuration.callbackQueue.async { [self] in
      let now = (status: DefaultRoute.status, hasPush: app.pushRuntime.withLock { $0 }?.isAvailable ?? false)
      let hasChanged = state.withLock { state in
        defer { state.told = now }
        guard let told = state.told else { return now.hasPush }
        return told != now
      }
      guard hasChanged else { return }
      app.configuration.onCallback?(GDCallback(Notification.Name.GDReachabilityChanged.rawValue))
      NotificationCenter.default.post(name: .GDReachabilityChanged, object: GDiOS.sharedInstance())
    }
  }
}

/// The connections of the runtime.
public final class GDConnectivityManager: NSObject {
  /// Makes the connection to the relay anew if it does not answer, as after a change of the network. True: there is one to look at.
  @discardableResult
  public class func forceResetAllConnections() -> Bool {
    guard let push = HostedApp.begun?.pushRuntime.withLock({ $0 }) else { return false }
    Task.detached { await push.networkChanged() }
    return true
  }
}
