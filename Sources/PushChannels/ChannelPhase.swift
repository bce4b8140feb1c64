/// The six documented states of a channel, and the events and calls that lead from one to another.
///
/// The table is pure: the runtime applies it to a channel, and does what its result says. Source: the
/// documented state cycle of `GDPushChannel`.
public enum ChannelPhase: Sendable, CaseIterable {
  /// Made, and never connected.
  case prepared
  /// The app has called `connect`; the relay has not opened the channel yet.
  case connecting
  /// The app has a token, and back ends can send.
  case open
  /// The app has called `disconnect`. Messages may still arrive.
  case disconnecting
  /// Ended as the app wished. The token is dead.
  case disconnected
  /// Ended by an error. The token is dead.
  case failed

  /// A call of the app, or an event from the relay.
  public enum Input: Sendable, CaseIterable {
    case connect, disconnect
    case opened, message, pingFailed, closed, error
  }

  /// The runtime's reaction to an input, besides taking the new phase.
  public enum Action: Sendable {
    /// Opens a new channel at the relay, with a new token.
    case open
    /// Closes the channel at the relay.
    case close
    /// Shows the event to the app.
    case show
    /// Shows `closed` in place of the error: the app wanted the channel to end, and it has ended.
    case showClosed
    /// Shows error 0: the call does not fit the phase.
    case showMisuse
    /// Nothing: the event repeats what the app knows.
    case ignore
  }

  /// The phase and action that follow an input. Every pair has one.
  public func applying(_ input: Input) -> (phase: ChannelPhase, action: Action) {
    switch (self, input) {
    case (.prepared, .connect), (.disconnected, .connect), (.failed, .connect): (.connecting, .open)
    case (.open, .disconnect): (.disconnecting, .close)
    case (_, .connect), (_, .disconnect): (self, .showMisuse)

    case (.connecting, .opened): (.open, .show)
    // A channel that is resumed after a break is opened at the relay once more.
    case (_, .opened): (self, .ignore)

    case (.open, .message), (.open, .pingFailed): (self, .show)
    case (.disconnecting, .message), (.disconnecting, .pingFailed): (self, .show)
    case (_, .message), (_, .pingFailed): (self, .ignore)

    case (.open, .closed), (.disconnecting, .closed): (.disconnected, .show)
    case (.disconnecting, .error): (.disconnected, .showClosed)
    case (.connecting, .error), (.open, .error): (.failed, .show)
    case (_, .closed), (_, .error): (self, .ignore)
    }
  }
}

/// The four values of the documented `GDPushChannelState`.
public enum ChannelState: Int, Sendable, CaseIterable {
  case none = 0
  case open = 1
  case closed = 2
  case error = 3
}

extension ChannelPhase {
  /// The documented value of the phase. `connecting` has the value of a channel that was never open.
  public var state: ChannelState {
    switch self {
    case .prepared, .connecting: .none
    case .open, .disconnecting: .open
    case .disconnected: .closed
    case .failed: .error
    }
  }
}
