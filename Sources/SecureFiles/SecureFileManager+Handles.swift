public import Foundation

/// Handles and streams whose paths begin at the manager's working directory.
extension SecureFileManager {
  /// Nil when the file cannot be opened.
  public func fileHandle(forReadingAtPath path: String) -> SecureFileHandle? {
    SecureFileHandle(forReadingAtPath: path, in: self)
  }

  /// Nil when the file cannot be opened; it must exist.
  public func fileHandle(forWritingAtPath path: String) -> SecureFileHandle? {
    SecureFileHandle(forWritingAtPath: path, in: self)
  }

  /// For reading and writing; nil when the file cannot be opened; it must exist.
  public func fileHandle(forUpdatingAtPath path: String) -> SecureFileHandle? {
    SecureFileHandle(forUpdatingAtPath: path, in: self)
  }

  /// Opens a file for reading, at its beginning. Throws `CocoaError` with `fileReadNoSuchFile`, `fileReadUnsupportedScheme`.
  public func fileHandle(forReadingFrom url: URL) throws -> SecureFileHandle {
    try SecureFileHandle(forReadingFrom: url, in: self)
  }

  /// Opens a file that exists for writing, at its beginning, and empties nothing. Throws `CocoaError` with `fileNoSuchFile`,
  /// `fileWriteUnknown` for a directory, `fileWriteVolumeReadOnly`, `fileWriteUnsupportedScheme`.
  public func fileHandle(forWritingTo url: URL) throws -> SecureFileHandle {
    try SecureFileHandle(forWritingTo: url, in: self)
  }

  /// Opens a file that exists for reading and writing, at its beginning. Throws as ``fileHandle(forWritingTo:)`` does.
  public func fileHandle(forUpdating url: URL) throws -> SecureFileHandle {
    try SecureFileHandle(forUpdating: url, in: self)
  }

  /// A stream that is not open yet; opening it fails when there is no such file.
  public func inputStream(forPath path: String) -> SecureInputStream { SecureInputStream(path, in: self) }

  /// A stream that is not open yet. Opening it makes the file if need be, and empties it unless `append`.
  public func outputStream(forPath path: String, append: Bool) -> SecureOutputStream {
    SecureOutputStream(path, append: append, in: self)
  }
}
