package enum BlockAccess: Sendable {
  case read
  case readWrite
  /// Fails when the file exists.
  case createNew
}

/// The narrow interface through which every byte of a container passes. Paths are relative to the
/// container's directory: to the one that was there at the first use, wherever it is moved.
package protocol BlockIO: AnyObject, Sendable {
  /// The location of the container, for messages.
  var place: String { get }
  /// Whether the container's directory exists.
  var isThere: Bool { get }
  /// The container's directory in the native file system, once it was used; nil for a container elsewhere.
  var directory: OpenDirectory? { get }
  /// Throws when `path` is anything other than a directory, such as a symbolic link to one. A
  /// missing directory is no error.
  func requireDirectory(_ path: String) throws(IOFailure)
  /// Opens a regular file. Fails for any other kind of file, and never blocks on one.
  func open(_ path: String, _ access: BlockAccess) throws(IOFailure) -> any BlockFile
  /// The identity of the file at `path`; nil when there is none.
  func identity(of path: String) throws(IOFailure) -> FileIdentity?
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
  package var directory: OpenDirectory? { nil }
  package func requireDirectory(_ path: String) throws(IOFailure) {}

  /// The names of the files in a directory, or none when the system does not tell them.
  func readableFileNames(in directory: String) throws(IOFailure) -> [String] {
    do throws(IOFailure) { return try fileNames(in: directory) } catch {
      guard error.isOfFile else { throw error }
      return []
    }
  }

  /// Opens a file; returns nil when it is missing, is no regular file, or is damaged as a whole.
  package func openIfReadable(_ path: String, _ access: BlockAccess) throws(IOFailure) -> (any BlockFile)? {
    do throws(IOFailure) { return try open(path, access) } catch {
      guard error.isOfFile else { throw error }
      return nil
    }
  }

  /// Opens a file, which is made where it is missing, by this process or by one that was faster.
  package func openOrCreate(_ path: String, _ access: BlockAccess) throws(IOFailure) -> any BlockFile {
    do throws(IOFailure) { return try open(path, access) } catch {
      guard error.errno == missingFile else { throw error }
    }
    do throws(IOFailure) { return try open(path, .createNew) } catch {
      guard error.errno == existingFile else { throw error }
    }
    return try open(path, access)
  }

  /// Whether `path` still leads to an open file.
  package func leads(_ path: String, to file: any BlockFile) throws(IOFailure) -> Bool {
    guard let identity = try identity(of: path) else { return false }
    if try identity == file.identity() { return true }
    // The file system may give one file several numbers. A lock shows what is one file.
    let mark = LockRange.mark()
    guard try file.tryLock(mark, exclusive: false) else { return false }
    defer { file.unlock(mark) }
    return try openIfReadable(path, .read)?.isLocked(mark) ?? false
  }
}
