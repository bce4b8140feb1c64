package enum BlockAccess: Sendable {
  case read
  case readWrite
  /// Fails when the file exists.
  case createNew
}

/// The narrow interface through which every byte of a container passes. Paths are relative to the
/// container's directory.
package protocol BlockIO: AnyObject, Sendable {
  /// The location of the container, for messages.
  var place: String { get }
  /// Whether the container's directory exists.
  var isThere: Bool { get }
  /// Throws when `path` is anything other than a directory, such as a symbolic link to one. A
  /// missing directory is no error.
  func requireDirectory(_ path: String) throws(IOFailure)
  /// Opens a regular file. Fails for any other kind of file, and never blocks on one.
  func open(_ path: String, _ access: BlockAccess) throws(IOFailure) -> any BlockFile
  /// The names of the files in a directory; empty when the directory is missing.
  func fileNames(in directory: String) throws(IOFailure) -> [String]
  /// Creates the directory ("" is the container itself); fails when it exists.
  func createDirectory(_ path: String) throws(IOFailure)
  /// Removes an empty directory ("" is the container itself).
  func removeDirectory(_ path: String) throws(IOFailure)
  func remove(_ path: String) throws(IOFailure)
  func rename(_ path: String, to newPath: String) throws(IOFailure)
  /// Makes creations, removals and renames in the directory durable.
  func synchronizeDirectory(_ path: String) throws(IOFailure)
  /// The size of the file system, and what is free of it for this process, in bytes.
  func space() throws(IOFailure) -> (byteCount: UInt64, freeByteCount: UInt64)
}

extension BlockIO {
  package var isThere: Bool { true }
  package func requireDirectory(_ path: String) throws(IOFailure) {}

  /// Opens a file; returns nil when it is missing or is no regular file.
  func openIfThere(_ path: String, _ access: BlockAccess) throws(IOFailure) -> (any BlockFile)? {
    do throws(IOFailure) { return try open(path, access) } catch {
      guard absentFile.contains(error.errno) else { throw error }
      return nil
    }
  }
}
