/// What one side of the deliveries between two apps takes (DELIVERY-PROTOCOL.md, "Limits"). Those in time are the owner's, which has a clock.
package struct DeliveryLimits: Sendable, Equatable {
  /// Deliveries of ours that are offered at once, over all channels. No more than the peer takes on one: 16.
  package var sentCountMax = 8
  /// Deliveries of the peer's that are under way on one channel.
  package var receivedCountMax = 16
  /// Bytes of offers of the peer's that wait for what becomes of an earlier offer of the same delivery: a sender's channel has ended then, and
  /// this side has not noticed yet.
  package var waitingOfferByteCountMax = 2 << 20
  /// Files of one page of a manifest.
  package var pageFileCountMax = 256
  /// Bytes of one page, as encoded.
  package var pageByteCountMax = 64 << 10
  /// The files of a message that its offer brings: all of a list that is no longer than this, of a longer one none.
  package static let offeredFileCountMax: UInt64 = 16
  /// Their bytes, as encoded. Offers wait for their turn, pages do not.
  package static let offeredFilesByteCountMax = 4 << 10
  /// Frames of a stream that the peer may send beyond those that were taken.
  package var creditFrameCount: UInt64 = 8
  /// Frames between one report to the peer and the next.
  package var progressFrameCount: UInt64 = 2
  /// Files of one message of the peer's; 0: as many as there are. The same as ``ExchangeLimits/attachmentCountMax``, which `Hello` states.
  package var attachmentCountMax: UInt64 = 0
  /// Bytes of all files of one message of the peer's, holes with them; 0: as many as there are.
  package var attachmentByteCountMax: UInt64 = 0
  /// Questions about replies on one channel that have no answer yet, in either direction.
  package var inquiryCountMax = 256

  /// The key of a stream.
  package static let keyByteCount = 32
  /// Of all files of one message, as they are and as they are stored: no sum of sizes overflows.
  package static let byteCountMax: UInt64 = 1 << 62 - 1
  /// The permission bits of a file.
  static let permissionsMax: UInt32 = 0o7777
  static let nameByteCountMax = 255

  package static let attachmentCountName = "attachments of a message"
  package static let attachmentByteCountName = "bytes of the attachments of a message"
  package static let pageName = "manifest page"

  package init() {}
}
