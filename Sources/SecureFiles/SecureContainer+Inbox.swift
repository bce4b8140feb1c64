import ContainerStore
public import Foundation

/// A message with files that arrived from another app.
public struct InboxMessage: Sendable, Equatable {
  /// Where its files are: `/Inbox/<sender>/<time>`.
  public let directory: String
  /// Application id.
  public let sender: String
  /// When it arrived.
  public let date: Date
  public let fileCount: Int
  /// Of the files' contents.
  public let byteCount: UInt64
}

extension SecureContainer {
  /// What is in the inbox, the oldest first. The system never removes anything from it: that is the app's business, when it is done
  /// with a message.
  ///
  /// ```swift
  /// let old = try container.inboxMessages().filter { $0.date < .now - 30 * 86_400 }
  /// try container.removeInboxMessages(old)
  /// ```
  public func inboxMessages() throws -> [InboxMessage] {
    try store.arrivedMessages().map {
      InboxMessage(
        directory: $0.directory, sender: $0.sender, date: Date(nanoseconds: $0.date),
        fileCount: $0.fileCount, byteCount: $0.byteCount)
    }
  }

  /// Removes messages with all their files, in one commit. Those that are gone already do not matter.
  public func removeInboxMessages(_ messages: [InboxMessage]) throws {
    try store.removeArrivedMessages(messages.map(\.directory))
  }
}
