/// What the apps of each sandbox make this app keep, all together: one more app of a sandbox gains it nothing
/// (CHANNEL-PROTOCOL.md, "Charging"). A sandbox is known by the number that the broker gives it in introductions.
package struct SandboxCharges: Sendable {
  package struct Charge: Sendable, Equatable {
    /// Of requests without an answer, and of replies that were not acknowledged, as encoded.
    package var requestByteCount = 0
    package var replyByteCount = 0
    package var channelCount = 0
    /// Of offers under way and their lists of files, of messages whose handlers have not returned, and of callbacks that wait.
    package var offerByteCount = 0

    package init(
      requestByteCount: Int = 0, replyByteCount: Int = 0, channelCount: Int = 0, offerByteCount: Int = 0
    ) {
      self.requestByteCount = requestByteCount
      self.replyByteCount = replyByteCount
      self.channelCount = channelCount
      self.offerByteCount = offerByteCount
    }

    static func - (left: Charge, right: Charge) -> Charge {
      Charge(
        requestByteCount: left.requestByteCount - right.requestByteCount,
        replyByteCount: left.replyByteCount - right.replyByteCount,
        channelCount: left.channelCount - right.channelCount,
        offerByteCount: left.offerByteCount - right.offerByteCount)
    }

    static func + (left: Charge, right: Charge) -> Charge { left - (Charge() - right) }
  }

  /// On one channel of an app in a sandbox: bytes of answers that wait because it does not read, and messages of it that are taken meanwhile.
  package static let queuedByteCountMax = 256 << 10
  package static let fullChannelMessageCountMax = 2048

  /// Bytes that the apps of a sandbox have in this app's container, as they were counted, with what was promised since.
  private struct Stored {
    var byteCount: UInt64
    /// When it is counted again, in milliseconds.
    var until: UInt64
  }

  private var stored: [UInt64: Stored] = [:]
  private static let countingInterval: UInt64 = 10_000

  /// Of one sandbox.
  package let limit: Charge
  private var charges: [UInt64: Charge] = [:]

  package init(
    limit: Charge = Charge(
      requestByteCount: 8 << 20, replyByteCount: 8 << 20, channelCount: 12, offerByteCount: 24 << 20)
  ) {
    self.limit = limit
  }

  /// One app of the sandbox made this app keep `before`, and makes it keep `after` now.
  package mutating func change(_ sandbox: UInt64, from before: Charge, to after: Charge) {
    guard before != after else { return }
    let charge = charges[sandbox, default: Charge()] - before + after
    charges[sandbox] = charge == Charge() ? nil : charge
  }

  // MARK: The disk

  /// Whether it has to be counted first.
  package func mustCountStored(in sandbox: UInt64, now: UInt64) -> Bool {
    stored[sandbox].map { $0.until <= now } ?? true
  }

  package mutating func setStored(_ byteCount: UInt64?, in sandbox: UInt64, now: UInt64) {
    stored[sandbox] = byteCount.map { Stored(byteCount: $0, until: now + Self.countingInterval) }
  }

  /// Takes room for further bytes of a sandbox's apps. False if they would have more than half of what is free without them.
  package mutating func store(_ byteCount: UInt64, in sandbox: UInt64, free: UInt64) -> Bool {
    // Of which nothing is known since, it is counted first.
    guard let before = stored[sandbox]?.byteCount else { return false }
    let (after, overflows) = before.addingReportingOverflow(byteCount)
    guard !overflows, after / 2 <= free / 4 + before / 4 else { return false }
    stored[sandbox]?.byteCount = after
    return true
  }

  package subscript(_ sandbox: UInt64) -> Charge { charges[sandbox, default: Charge()] }

  /// What may be kept in all for an app of the sandbox for which `own` is kept: what the others leave.
  package func room(in sandbox: UInt64, own: Charge) -> Charge {
    limit - (charges[sandbox, default: Charge()] - own)
  }
}
