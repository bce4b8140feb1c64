package import SodiumPrimitives

/// A message in the outbox.
package struct OutboxEntry: Sendable, Equatable {
  /// The message's number; numbers start at 1 and are never reused.
  package var number: UInt64
  package var id: Identifier
  package var receiver: String
  /// Time of queueing in nanoseconds since 1970-01-01 UTC.
  package var time: Int64
  package var fileCount: UInt64
  /// Bytes of all files' contents together.
  package var byteCount: UInt64
  /// Bytes of all files' segments together: holes have none.
  package var storedByteCount: UInt64
  /// Whether the receiver may know of the message; if false, the message was certainly never
  /// offered.
  package var mayBeOffered: Bool

  package init(
    number: UInt64, id: Identifier, receiver: String, time: Int64, fileCount: UInt64, byteCount: UInt64,
    storedByteCount: UInt64, mayBeOffered: Bool
  ) {
    self.number = number
    self.id = id
    self.receiver = receiver
    self.time = time
    self.fileCount = fileCount
    self.byteCount = byteCount
    self.storedByteCount = storedByteCount
    self.mayBeOffered = mayBeOffered
  }
}
