/// What one side of a channel takes (SERVICE-PROTOCOL.md, "Limits").
package struct ExchangeLimits: Sendable, Equatable {
  /// Requests under way on one channel.
  package var requestCountMax = 1024
  /// Requests of ours that wait for a channel or for credit.
  package var queuedRequestCountMax = 16_384
  /// Bytes of one message.
  package var frameByteCountMax = 1 << 20 + 64 << 10
  /// Attachments of one message; 0: as many as there are.
  package var attachmentCountMax: UInt64 = 0
  /// Channels with one peer.
  package var channelCountMax = 4
  /// Milliseconds.
  package var beginningTime: UInt64 = 10_000
  package var idleTime: UInt64 = 30_000
  package var replyTime: UInt64 = 600_000

  /// More than anybody may grant.
  static let creditMax = 1 << 20

  package init() {}
}
