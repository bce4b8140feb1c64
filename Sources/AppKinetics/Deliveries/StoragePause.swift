/// When a container that takes nothing is tried again: after a pause that grows, in milliseconds.
struct StoragePause {
  /// Nil when nothing waits for it.
  private(set) var end: UInt64?
  /// The container failed, and is not tried before; else there is only no room for some messages.
  private(set) var isFailing = false
  private var pause: UInt64 = 0
  private static let pauseMin: UInt64 = 1000
  private static let pauseMax: UInt64 = 60_000
  /// So many messages of a sender wait for room; others for which there is none are refused.
  static let roomWaitersMax = 4
  /// More than so many bytes do not wait when they are more than sixteen times the room: there will be none.
  static let waitingByteCountMax: UInt64 = 1 << 40

  mutating func begin(at now: UInt64, isFailing: Bool) {
    if isFailing { self.isFailing = true }
    guard end == nil else { return }
    pause = min(max(2 * pause, Self.pauseMin), Self.pauseMax)
    end = now + pause
  }

  /// Ends it when its time has come.
  mutating func isOver(_ now: UInt64) -> Bool {
    guard let end, now >= end else { return false }
    (self.end, isFailing) = (nil, false)
    return true
  }

  /// A message was stored.
  mutating func reset() { pause = 0 }
}

/// The room on the disk for a message.
struct Room: Sendable {
  /// Bytes that are still to come, and the records of the files.
  var needed: UInt64
  var free: UInt64
}

/// The container has no room for a message.
struct NoRoom: Error {
  var room: Room
}
