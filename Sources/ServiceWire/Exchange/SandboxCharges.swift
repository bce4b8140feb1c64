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

  package subscript(_ sandbox: UInt64) -> Charge { charges[sandbox, default: Charge()] }

  /// What may be kept in all for an app of the sandbox for which `own` is kept: what the others leave.
  package func room(in sandbox: UInt64, own: Charge) -> Charge {
    limit - (charges[sandbox, default: Charge()] - own)
  }
}
