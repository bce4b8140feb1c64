/// What one side of the channels with one peer takes (CHANNEL-PROTOCOL.md, "Limits"). Times are milliseconds.
package struct ExchangeLimits: Sendable, Equatable {
  /// Requests under way on one channel: the credit that a new channel begins with.
  package var requestCountMax = 1024
  /// Requests of the peer's over all its channels, with those whose channel broke and those whose reply waits to be acknowledged.
  package var peerRequestCountMax = 4096
  /// Bytes of the replies to the peer that are kept until it has acknowledged them.
  package var keptReplyByteCountMax = 64 << 20
  /// Bytes of the peer's requests that have no answer yet. One more is refused.
  package var requestByteCountMax = 64 << 20
  /// Bytes of requests and answers that may be put out for a channel before the owner is asked for room: what does not fit waits.
  package var queuedByteCountMax = 4 << 20
  /// Requests of ours that wait for a channel or for credit.
  package var queuedRequestCountMax = 16_384
  /// Cancels of ours on one channel that make no difference any more and have no answer yet. While there are so many, no request is sent there.
  package var unansweredCancelCountMax = 1024
  /// Messages of the peer's that are taken on a channel while it does not read what waits there for it.
  package var fullChannelMessageCountMax = 8192
  /// Bytes of one message.
  package var frameByteCountMax = 1 << 20 + 64 << 10
  /// Attachments of one message, as `Hello` states it for deliveries; 0: as many as there are.
  package var attachmentCountMax: UInt64 = 0
  /// Slots of shared memory that a bulk lane takes messages in, as `Hello` states it; 0: none.
  package var slotCountMax = 0
  /// Channels with one peer.
  package var channelCountMax = 4
  package var beginningTime: UInt64 = 10_000
  package var idleTime: UInt64 = 30_000
  package var replyTime: UInt64 = 600_000
  /// Between a channel that ended too early and the next request for one: doubles from the first to the second.
  package var retryPauseMin: UInt64 = 100
  package var retryPauseMax: UInt64 = 10_000
  /// Channels one after another that ended before the peer's `Hello`. After so many, nothing waits for the next any longer.
  package var failedBeginningCountMax = 8

  /// More than anybody may grant.
  static let creditMax = 1 << 20
  /// The least that `Hello` may state for a frame: so that every message without values of the app fits.
  package static let frameByteCountMin = 8192
  /// Channels that one request may outlive.
  package static let inquiryTicketCountMax = 64
  /// Bytes of UTF-8: the ids, the version and the method of a request.
  package static let nameByteCountMax = 255
  /// Bytes of UTF-8: the text of a reply's error, the detail of a failure.
  package static let textByteCountMax = 4096

  package init() {}
}
