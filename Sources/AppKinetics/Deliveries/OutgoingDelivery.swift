import ContainerStore
import Foundation
import LocalTransport
import Locks
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// A message that is in the outbox, with its offer when there was a channel.
struct StoredMessage: Sendable {
  let entry: OutboxEntry
  let offer: WireOffer?
}

/// A message of the outbox, on its way to one app.
struct OutgoingDelivery: Sendable {
  struct Stream: Sendable, Hashable {
    let channel: ChannelNumber
    let number: UInt32
  }

  var entry: OutboxEntry
  /// The id of the request that the message is or answers; nil when a message of an earlier process cannot be read.
  var request: Identifier?
  var isReply: Bool
  let files: OutgoingFiles
  /// The meter counts its bytes for the object that sent it; nil for a message of an earlier process.
  let meter: TransferMeter?
  /// The offer that was made when the message was written down; nil once the message is enqueued.
  var offer: WireOffer?
  var stream: Stream?
  /// The incarnation under which the receiver could not take its number, and the newest generation that it had seen.
  var taken: (incarnation: Incarnation, generation: UInt64)?
  /// The receiver's count of messages, as it was said with the commit of this one.
  var receipt: DeliveryReceipt?
  /// How often it was offered, also by earlier processes.
  var offerCount = 0
  /// Why it is taken back.
  var failure: ServicesError?
  /// The receiver has taken it.
  var wasAccepted = false
  /// These run when the delivery is settled: they tell what came of the reply to the request that it is.
  var afterwards: [@Sendable (PeerSession) -> Void] = []
  /// Of all files, that the receiver has.
  var bytesDone: UInt64 = 0
  /// Called with its end; with nil when the services stop before.
  var whenEnded: [@Sendable (SentDeliveryEnd?) -> Void] = []
}

/// The files of a message of the outbox, as its sender's app is told of them.
final class OutgoingFiles: Sendable {
  private struct Fields {
    /// Files that the app was told of.
    var toldCount: UInt64 = 0
    /// Some of them, from the file `first` on.
    var page: [OutboxFile] = []
    var first: UInt64 = 0
  }

  private let guarded = Guarded(Fields())
  private let store: Container
  private let entry: OutboxEntry
  /// Called for each file before its first byte goes, and for what goes of it.
  private let willSend: @Sendable (String) -> Void

  init(_ store: Container, _ entry: OutboxEntry, willSend: @escaping @Sendable (String) -> Void) {
    self.store = store
    self.entry = entry
    self.willSend = willSend
  }

  private static let pageFileCount = 256

  /// The app hears of every file before this one, once.
  func tell(before end: UInt64) {
    guarded.withLock { guarded in
      while guarded.toldCount < end {
        guard let file = try? file(guarded.toldCount, &guarded) else { return }
        willSend(String(decoding: file.path, as: UTF8.self))
        guarded.toldCount += 1
      }
    }
  }

  func file(_ index: UInt64) throws -> OutboxFile? { try guarded.withLock { try file(index, &$0) } }

  private func file(_ index: UInt64, _ guarded: inout Fields) throws -> OutboxFile? {
    guard index < entry.fileCount else { return nil }
    if index < guarded.first || index >= guarded.first + UInt64(guarded.page.count) {
      guarded.page = try store.outboxFiles(entry.number, from: index, limit: Self.pageFileCount)
      guarded.first = index
    }
    return guarded.page.first == nil ? nil : guarded.page[Int(index - guarded.first)]
  }
}

/// Reads what is sent over the bulk lane. The reader is opened with the first frame, on the lane's sending
/// thread, which may wait for the disk: no other thread hands the stream on.
final class OutboxSource: BulkSource {
  private let store: Container
  private let entry: OutboxEntry
  private let from: UInt64
  private let checking: UInt64?
  private let reader = Guarded<OutboxReader?>(nil)
  private let files: OutgoingFiles
  /// Told how many files were read whole, and how far the last one is of which something was read.
  private let advanced: @Sendable (UInt64, TransferProgress.File?) -> Void

  /// With `checking`, the segment at that position has to open.
  init(
    _ store: Container, _ entry: OutboxEntry, from: UInt64, checking: UInt64?, files: OutgoingFiles,
    advanced: @escaping @Sendable (UInt64, TransferProgress.File?) -> Void
  ) {
    self.store = store
    self.entry = entry
    self.from = from
    self.checking = checking
    self.files = files
    self.advanced = advanced
  }

  private func opened() throws -> OutboxReader {
    try reader.withLock { reader in
      if let reader { return reader }
      let opened = try store.outboxReader(entry.number, from: from)
      if let checking { try opened.check(at: checking) }
      reader = opened
      return opened
    }
  }

  /// Throws `invalidParams` for positions that the receiver cannot mean.
  private func openedOrRefused() throws -> OutboxReader {
    do {
      return try opened()
    } catch ContainerError.invalidArgument {
      throw ServicesError(.invalidParams)
    }
  }

  func next(
    block: UnsafeMutableRawBufferPointer, contents: UnsafeMutableRawBufferPointer
  ) throws -> BulkPart {
    let reader = try openedOrRefused()
    let frame = try reader.next(block: block, contents: contents)
    let (end, position) = reader.place
    try FailPoint.streaming.passOrFail()
    files.tell(before: position > 0 ? end + 1 : end)
    let file = try files.file(frame.lastFile).map {
      TransferProgress.File(
        path: String(decoding: $0.path, as: UTF8.self), bytesSent: frame.lastFile == end ? position : $0.size,
        byteCount: $0.size)
    }
    advanced(end, file)
    return BulkPart(
      blockByteCount: frame.blockByteCount, contentsByteCount: frame.contentsByteCount, isLast: frame.isLast)
  }
}
