/// What push may do at a moment.
public struct PushPermission: Sendable, Equatable {
  /// A connection to the relay may exist: the app is authorized, and is not kept from the network.
  public var mayConnect: Bool
  /// The app may be shown events: it is authorized and not locked.
  public var mayShow: Bool

  public init(mayConnect: Bool, mayShow: Bool) {
    self.mayConnect = mayConnect
    self.mayShow = mayShow
  }

  public static let all = PushPermission(mayConnect: true, mayShow: true)
}

/// Tells push what it may do: the runtime of the app does, which knows whether the app is authorized and in
/// the background.
public protocol PushGate: Sendable {
  /// The permission that holds now, and each later one. Before the first nothing is permitted.
  func permissions() -> AsyncStream<PushPermission>
}

/// Permits everything at all times.
public struct OpenPushGate: PushGate {
  public init() {}

  public func permissions() -> AsyncStream<PushPermission> {
    AsyncStream { continuation in
      continuation.yield(.all)
    }
  }
}
