/// The times at which a channel is asked for. After one that ended too early there is a pause, so
/// that a peer whose channels fail at once is not dialled without end.
struct ChannelRetry: Sendable {
  private let limits: ExchangeLimits
  /// A channel was asked for, and neither came nor was refused.
  private(set) var isConnecting = false
  /// The end of the pause, in milliseconds; nil if there is none.
  private(set) var time: UInt64?
  /// The next pause; 0 for the first attempt after a channel that lasted.
  private var pause: UInt64 = 0
  /// The last request for a channel was refused: there is no way to the peer.
  private var wasRefused = false
  /// Channels one after another that ended before the peer's `Hello`.
  private var failedBeginningCount = 0

  init(limits: ExchangeLimits) { self.limits = limits }

  /// The request for a channel was answered: one has come, or it was refused.
  mutating func answered() { isConnecting = false }

  /// A channel has come, and is not one too many: the pause is over.
  mutating func opened() {
    time = nil
    wasRefused = false
  }

  /// The peer's `Hello` came over a channel.
  mutating func tookHello() { failedBeginningCount = 0 }

  /// There is no way to the peer.
  mutating func refused() { wasRefused = true }

  /// The app has a new request. After a refusal it ends the pause, to learn whether there is a way
  /// now.
  mutating func submitted() { if wasRefused { time = nil } }

  /// A channel has ended. Pauses begin anew if it had lasted.
  mutating func closed(_ channel: ExchangeChannels.Channel, now: UInt64) {
    failedBeginningCount = channel.isOpen ? 0 : failedBeginningCount + 1
    if channel.isOpen, now >= channel.opened + limits.retryPauseMax { pause = 0 }
  }

  /// Returns whether so many beginnings failed that nothing may wait any longer. If so, the count
  /// begins again.
  mutating func givesUp() -> Bool {
    guard failedBeginningCount >= limits.failedBeginningCountMax else { return false }
    failedBeginningCount = 0
    return true
  }

  // MARK: Asking for a channel

  /// Asks for a channel, unless one is asked for already, or there is a pause.
  mutating func connect(_ outputs: inout [ExchangeOutput]) {
    guard !isConnecting, time == nil else { return }
    isConnecting = true
    outputs.append(.connect)
  }

  /// Asks for another channel in place of one that ended: after a pause, unless that one had
  /// lasted.
  mutating func reconnect(now: UInt64, _ outputs: inout [ExchangeOutput]) {
    guard pause == 0 else { return wait(now: now) }
    pause = limits.retryPauseMin
    isConnecting = true
    outputs.append(.connect)
  }

  /// Begins a pause. The one after that is twice as long.
  mutating func wait(now: UInt64) {
    pause = min(max(pause, limits.retryPauseMin), limits.retryPauseMax)
    time = now + pause
    pause = min(2 * pause, limits.retryPauseMax)
  }

  /// Ends the pause if its time has passed. Returns whether it did.
  mutating func endPause(now: UInt64) -> Bool {
    guard let time, now >= time, !isConnecting else { return false }
    self.time = nil
    return true
  }
}
