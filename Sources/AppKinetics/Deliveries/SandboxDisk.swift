/// How much of the disk the apps of each sandbox have: half of what would be free without it (DELIVERY-PROTOCOL.md, "Limits").
struct SandboxDisk {
  private struct Share {
    /// The apps of the sandbox that were met.
    var applications: Set<String> = []
    /// Bytes that they had in the container when they were counted last, with what messages that ended since were promised; nil before the
    /// first count.
    var counted: UInt64?
    /// When they are counted again, in milliseconds.
    var countedUntil: UInt64 = 0
    var isCounting = false
    /// To messages that are under way.
    var promised: UInt64 = 0
  }

  /// Room that a message was promised.
  struct Promise: Sendable {
    let sandbox: UInt64
    let byteCount: UInt64
  }

  private var shares: [UInt64: Share] = [:]
  private static let countingInterval: UInt64 = 10_000

  mutating func join(_ application: String, _ sandbox: UInt64) {
    shares[sandbox, default: Share()].applications.insert(application)
  }

  func applications(of sandbox: UInt64) -> [String] { Array(shares[sandbox]?.applications ?? []) }

  func isCounted(_ sandbox: UInt64) -> Bool { shares[sandbox]?.counted != nil }

  /// True: the caller has to count. One does at a time.
  mutating func beginCounting(_ sandbox: UInt64, now: UInt64) -> Bool {
    let share = shares[sandbox, default: Share()]
    guard !share.isCounting, share.counted == nil || share.countedUntil <= now else { return false }
    shares[sandbox, default: Share()].isCounting = true
    return true
  }

  /// Nil: it could not be counted, and what was known stays.
  mutating func endCounting(_ byteCount: UInt64?, _ sandbox: UInt64, now: UInt64) {
    guard var share = shares[sandbox] else { return }
    share.isCounting = false
    share.counted = byteCount ?? share.counted ?? 0
    share.countedUntil = now + Self.countingInterval
    shares[sandbox] = share
  }

  /// Something was removed.
  mutating func countSoon(_ sandbox: UInt64) { shares[sandbox]?.countedUntil = 0 }

  /// Nil if the sandbox would have more than half.
  mutating func promise(_ byteCount: UInt64, _ sandbox: UInt64, free: UInt64) -> Promise? {
    guard let share = shares[sandbox], let counted = share.counted else { return nil }
    var wanted = counted
    for part in [share.promised, byteCount] {
      let (sum, overflows) = wanted.addingReportingOverflow(part)
      wanted = overflows ? .max : sum
    }
    guard wanted <= free / 2 + counted / 2 else { return nil }
    shares[sandbox]?.promised += byteCount
    return Promise(sandbox: sandbox, byteCount: byteCount)
  }

  /// The message has ended, or broke off: what of it is there is counted later.
  mutating func end(_ promise: Promise) {
    guard var share = shares[promise.sandbox] else { return }
    share.promised -= promise.byteCount
    let (sum, overflows) = (share.counted ?? 0).addingReportingOverflow(promise.byteCount)
    share.counted = overflows ? .max : sum
    shares[promise.sandbox] = share
  }
}
