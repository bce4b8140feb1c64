public import Foundation
import Locks
import ServiceWire

/// A message with files that is on its way to this app: a request, or the reply to one.
public final class IncomingTransfer: Sendable {
  /// The request, or the one that it answers.
  public let request: RequestID
  /// Whether the message is a reply; else it is a request.
  public let isReply: Bool
  /// The app that the message comes from.
  public let sender: ApplicationID
  /// The number of its files.
  public let fileCount: UInt64
  /// The sum of the files' sizes.
  public let byteCount: UInt64

  /// What has to happen to this app before anything of a message comes.
  public enum WaitReason: Sendable, Hashable {
    /// The app is locked (``AppServices/setState(_:)``).
    case unlock
    /// The app is suspended.
    case resumption
    /// The app's container takes nothing: it is closed, read-only, full, or fails.
    case storage

    init?(_ reason: WireDeliveryWaiting.Reason) {
      switch reason {
      case .unlock: self = .unlock
      case .resumption: self = .resumption
      case .storage: self = .storage
      case .UNRECOGNIZED: return nil
      }
    }
  }

  private struct Fields {
    var waitReason: WaitReason?
    /// The files that have begun; of more than 1,024 these are the last ones.
    var files: [ArrivingAttachment] = []
    var fileWatchers: [AsyncStream<ArrivingAttachment>.Continuation] = []
    var outcome: Result<Void, ServicesError>?
    var waiting: [CheckedContinuation<Void, any Error>] = []
  }

  private let guarded = Guarded(Fields())
  private let meter = TransferMeter()
  private let runtime: Runtime

  init(
    _ request: RequestID, isReply: Bool, from sender: ApplicationID, fileCount: UInt64, byteCount: UInt64,
    _ runtime: Runtime
  ) {
    self.request = request
    self.isReply = isReply
    self.sender = sender
    self.fileCount = fileCount
    self.byteCount = byteCount
    self.runtime = runtime
    meter.begin(byteCount: byteCount, fileCount: fileCount)
  }

  // MARK: For the app

  /// Bytes of contents that are here.
  public var bytesDone: UInt64 { meter.transfer.bytesDone }

  /// What the message waits for; nil when it waits for nothing.
  public var waitsFor: WaitReason? { guarded.withLock { $0.waitReason } }

  /// The file that began last; nil before the first one has.
  public var attachment: ArrivingAttachment? { guarded.withLock { $0.files.last } }

  private static let keptFileCountMax = 1_024

  /// The files as they begin, in the message's order: those that have begun by now, of more than 1,024 the last ones, and those that follow. Whoever reads more
  /// than 1,024 behind misses some. Ends with the transfer.
  public var attachments: AsyncStream<ArrivingAttachment> {
    AsyncStream(bufferingPolicy: .bufferingNewest(Self.keptFileCountMax)) { continuation in
      guarded.withLock { guarded in
        for file in guarded.files { continuation.yield(file) }
        guard guarded.outcome == nil else { return continuation.finish() }
        guarded.fileWatchers.append(continuation)
      }
    }
  }

  /// The same as Foundation has it, and no part of a current `Progress`. Cancelling it refuses the message.
  public var progress: Progress {
    meter.progress(hasFiles: true) { [weak self] in
      guard let self else { return }
      Task { await self.cancel() }
    }
  }

  /// Refuses it: nothing of it is left, and its sender's request ends with `cancelled`. False when everything is there already, or it has ended.
  @discardableResult
  public func cancel() async -> Bool { await runtime.cancelReception(of: request, from: sender) }

  /// Returns when the message is there with all of its files. Throws why it will not be: `cancelled` by either side, `noSpace` when others wait for room already, `connectionLost`
  /// when this app stops or the message begins anew, and what else it is refused with. A broken channel is no end: it goes on over the next one.
  public func ended() async throws {
    try await withCheckedThrowingContinuation { continuation in
      let known: Result<Void, ServicesError>? = guarded.withLock {
        if $0.outcome == nil { $0.waiting.append(continuation) }
        return $0.outcome
      }
      if let known { continuation.resume(with: known.mapError { $0 as any Error }) }
    }
  }

  // MARK: For the runtime

  func advance(to position: UInt64) { meter.advance { $0.bytesDone = position } }

  func setWaits(for reason: WaitReason?) { guarded.withLock { $0.waitReason = reason } }

  func began(_ files: [ArrivedFile]) {
    let attachments = files.map { ArrivingAttachment(path: $0.path, byteCount: $0.byteCount) }
    let watchers = guarded.withLock { guarded in
      guarded.files.append(contentsOf: attachments)
      guarded.files.removeFirst(max(0, guarded.files.count - Self.keptFileCountMax))
      return guarded.fileWatchers
    }
    for watcher in watchers {
      for attachment in attachments { watcher.yield(attachment) }
    }
  }

  /// Only the first end counts.
  func end(_ outcome: Result<Void, ServicesError>) {
    let ended: Fields? = guarded.withLock { guarded in
      guard guarded.outcome == nil else { return nil }
      guarded.outcome = outcome
      defer { (guarded.waiting, guarded.fileWatchers) = ([], []) }
      return guarded
    }
    guard let ended else { return }
    for watcher in ended.fileWatchers { watcher.finish() }
    if case .success = outcome { meter.finish() }
    for continuation in ended.waiting { continuation.resume(with: outcome.mapError { $0 as any Error }) }
  }
}

/// A file of a message that is on its way to this app.
public struct ArrivingAttachment: Sendable, Hashable {
  /// Where the file will be when the message is there; nothing is at this path before.
  public var path: String
  public var byteCount: UInt64
}

extension AppServices {
  /// Each message with files that begins to arrive, or waits until this app runs, from now on. Several may be on their way at once. A stream that nobody reads keeps the last
  /// 256. Ends with ``stop()``.
  public var arrivals: AsyncStream<IncomingTransfer> {
    AsyncStream(bufferingPolicy: .bufferingNewest(256)) { continuation in
      runtime.perform { $0.watch(\.arrivalWatchers, continuation) }
    }
  }

  /// The messages with files that are on their way to this app now, or wait for it.
  public func arriving() async -> [IncomingTransfer] {
    await runtime.result { core in
      core.peers.values.flatMap { $0.inbox.arriving.values.compactMap(\.transfer) }
    }
  }

  /// Something has changed about messages with files: one came into ``outbox()``, left it, is further or waits for something else; one begins to
  /// arrive, is further, or is there; its handler has returned. Whoever shows them looks again; of many changes a slow reader hears once. Ends
  /// with ``stop()``.
  public var messageChanges: AsyncStream<Void> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
      runtime.perform { $0.watch(\.messageWatchers, continuation) }
    }
  }
}
