/// A message in the inbox, as described by its directory.
package struct ArrivedMessage: Sendable, Equatable {
  /// `/Inbox/<sender>/<time>`.
  package var directory: String
  /// Application id.
  package var sender: String
  /// Time of arrival in nanoseconds since 1970-01-01 UTC, a whole number of milliseconds.
  package var date: Int64
  package var fileCount: Int
  /// Bytes of the files' contents; a file with several names counts once for each name.
  package var byteCount: UInt64
}
