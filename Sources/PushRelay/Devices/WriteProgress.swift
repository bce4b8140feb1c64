internal import NIOCore

/// Finds out whether a device's system takes what is sent to it. The relay's own system buffers a megabyte and
/// more for a device that reads nothing, so the transport's state alone does not show it.
///
/// A device that reads and does not take is another case: its system has acknowledged every byte.
final class WriteProgress {
  enum Verdict: Equatable {
    case open
    /// Bytes wait, and some were acknowledged since the last look.
    case moving
    /// The device's system has everything.
    case drained
    /// Bytes have waited for *write time*, and none of them was acknowledged.
    case stalled
  }

  /// What the device's system has acknowledged as of the last look, and since when that has not changed.
  private var acknowledged: UInt64?
  private var since: Int64 = 0

  /// To be called about once a second. `sent` is when an event was sent of which the device has acknowledged
  /// none since.
  func check(
    sent: Int64, now: Int64, writeTime: Int64, state: () -> TransportState?
  ) -> Verdict {
    // The system is asked when there was no sign for a while: most devices have taken the event by then.
    let lastSign = acknowledged == nil ? sent : since
    guard now - lastSign >= writeTime / 4, let state = state() else { return .open }
    if state.isDrained { return .drained }
    if acknowledged != state.acknowledged {
      acknowledged = state.acknowledged
      since = now
      return .moving
    }
    return now - since >= writeTime ? .stalled : .open
  }
}

/// What the system has of a TCP connection.
struct TransportState: Equatable {
  /// Nothing waits to be sent or to be acknowledged.
  var isDrained: Bool
  /// Bytes that the peer's system has acknowledged since the connection began.
  var acknowledged: UInt64

  init(isDrained: Bool, acknowledged: UInt64) {
    self.isDrained = isDrained
    self.acknowledged = acknowledged
  }

  /// To be called on the channel's loop. Nil where the system does not tell.
  init?(_ channel: any Channel) {
    #if os(Linux)
      // `struct tcp_info` of linux/tcp.h; the C library's has fewer fields.
      typealias Word = UInt64
      typealias Eight = (Word, Word, Word, Word, Word, Word, Word, Word)
      typealias Information = (Eight, Eight, Eight, Eight)
      guard let provider = channel as? any SocketOptionProvider else { return nil }
      let future: EventLoopFuture<Information> = provider.unsafeGetSocketOption(
        level: .tcp, name: NIOBSDSocket.Option(rawValue: 11))
      var found: Information?
      future.assumeIsolated().whenSuccess { found = $0 }
      guard let found else { return nil }
      self = withUnsafeBytes(of: found) { bytes in
        let unacknowledged = bytes.loadUnaligned(fromByteOffset: 24, as: UInt32.self)
        let notSent = bytes.loadUnaligned(fromByteOffset: 144, as: UInt32.self)
        return TransportState(
          isDrained: unacknowledged == 0 && notSent == 0,
          acknowledged: bytes.loadUnaligned(fromByteOffset: 120, as: UInt64.self))
      }
    #else
      return nil
    #endif
  }
}
