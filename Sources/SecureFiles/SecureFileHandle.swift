import ContainerStore
public import Foundation
import Locks

/// A file of a container, open for reading or writing at any place, with an offset that moves along: Foundation's `FileHandle`.
///
/// Handles on one file see one another's writes at once, and so does everything that takes a path. A file that is removed or
/// replaced behind a handle stays there for it until it is closed. Bytes written stand in a bounded cache of the container until it
/// fills, a second has passed, or ``synchronize()`` or ``close()`` is called.
///
/// Any thread may call. Each call is one step, the offset included: two threads that read one handle never get the same bytes.
/// Everything throws `CocoaError` as `FileHandle` does. A handle that is let go is closed, and errors of that are lost.
///
/// There is no descriptor, and nothing is posted from the background: read from a thread, or with ``bytes`` and ``chunks(ofCount:)``.
public final class SecureFileHandle: Sendable {
  /// As it was given.
  let path: String
  private let target: Target
  private let state = Guarded(State())

  private enum Target: Sendable {
    case file(OpenFile)
    /// Opens for reading as on POSIX, and cannot be read.
    case directory(Container)
  }

  private struct State {
    var offset: UInt64 = 0
    var isClosed = false
  }

  // MARK: Opening

  /// Opens a file for reading, at its beginning; nil when that fails. A directory can be opened, but not read.
  public convenience init?(forReadingAtPath path: String, in manager: SecureFileManager) {
    do { try self.init(path, .read, in: manager) } catch { return nil }
  }

  /// Opens a file that exists for writing, at its beginning, and empties nothing; nil when that fails.
  public convenience init?(forWritingAtPath path: String, in manager: SecureFileManager) {
    do { try self.init(path, .write, in: manager) } catch { return nil }
  }

  /// Opens a file that exists for reading and writing, at its beginning; nil when that fails.
  public convenience init?(forUpdatingAtPath path: String, in manager: SecureFileManager) {
    do { try self.init(path, .readWrite, in: manager) } catch { return nil }
  }

  /// Throws `fileReadNoSuchFile`, `fileReadUnsupportedScheme`.
  public convenience init(forReadingFrom url: URL, in manager: SecureFileManager) throws {
    try self.init(manager.path(for: url, .reading), .read, in: manager, url: url)
  }

  /// Throws `fileNoSuchFile`, `fileWriteUnknown` for a directory, `fileWriteVolumeReadOnly`, `fileWriteUnsupportedScheme`.
  public convenience init(forWritingTo url: URL, in manager: SecureFileManager) throws {
    try self.init(manager.path(for: url, .writing), .write, in: manager, url: url)
  }

  /// Throws as ``init(forWritingTo:in:)`` does.
  public convenience init(forUpdating url: URL, in manager: SecureFileManager) throws {
    try self.init(manager.path(for: url, .writing), .readWrite, in: manager, url: url)
  }

  init(_ path: String, _ access: OpenFile.Access, in manager: SecureFileManager, url: URL? = nil) throws {
    self.path = path
    do {
      target = .file(try manager.store.openFile(manager.place(path), access))
    } catch ContainerError.isADirectory where access == .read {
      target = .directory(manager.store)
    } catch {
      throw cocoaError(error, path: path, access == .read ? .reading : .writing, url: url)
    }
  }

  // MARK: Reading

  /// Everything from the offset on, which moves to the end; nil at the end. Throws `fileReadTooLarge` when there is more than memory
  /// takes, and `fileReadCorruptFile`; then the offset stays.
  public func readToEnd() throws -> Data? { try read(upToCount: .max) }

  /// So many bytes from the offset on, fewer where the file ends, nil at its end or for a count of 0. Takes no more memory than there
  /// are bytes. When it throws, the offset stays: bytes before a damaged place can be read in smaller pieces.
  public func read(upToCount count: Int) throws -> Data? {
    // As in Foundation, also of a handle that is open for writing.
    if count == 0 { return try position(.reading) { _ in nil } }
    return try step(.reading) { file, offset in
      guard count >= 0 else { throw Misuse.negativeCount }
      let memory = try file.bytes(at: offset, count: count)
      offset += UInt64(memory?.count ?? 0)
      return memory
    }
  }

  /// Fills the caller's memory from the offset on, without a copy between; returns how many bytes there were, 0 at the end.
  public func read(into buffer: UnsafeMutableRawBufferPointer) throws -> Int {
    try step(.reading) { file, offset in
      let count = try file.fill(buffer, at: offset)
      offset += UInt64(count)
      return count
    }
  }

  // MARK: Writing

  /// Writes at the offset and moves it on. What lies between the end of the file and it reads as zeros. Throws `fileWriteOutOfSpace`.
  public func write(contentsOf data: some DataProtocol) throws {
    // As in Foundation, also to a handle that is open for reading.
    if data.isEmpty { return try position(.writing) { _ in } }
    try step(.writing) { file, offset in
      for region in data.regions {
        try region.withUnsafeBytes { bytes in
          guard !bytes.isEmpty else { return }
          try file.write(bytes, at: offset)
          offset += UInt64(bytes.count)
        }
      }
    }
  }

  // MARK: Offset and size

  /// Where the next read or write begins.
  public func offset() throws -> UInt64 { try position(.reading) { $0 } }

  /// Moves to the end of the file and returns where that is.
  @discardableResult
  public func seekToEnd() throws -> UInt64 {
    try position(.reading) { offset in
      offset = if case .file(let file) = target { file.size } else { 0 }
      return offset
    }
  }

  /// Moves the offset, be it past the end: then a read finds nothing, and a write makes the file longer.
  public func seek(toOffset offset: UInt64) throws {
    try position(.reading) {
      guard offset <= UInt64(Int64.max) else { throw Misuse.offsetTooLarge }
      $0 = offset
    }
  }

  /// Cuts the file at an offset, or makes it longer with zeros that take no space, and moves there.
  public func truncate(atOffset offset: UInt64) throws {
    try step(.writing) { file, place in
      try file.truncate(to: offset)
      place = offset
    }
  }

  // MARK: Storing and closing

  /// Makes durable what was written, with everything else in the container (except with the durability `none`).
  public func synchronize() throws {
    try position(.writing) { _ in
      switch target {
      case .file(let file): try file.synchronize()
      case .directory(let store): try store.synchronize()
      }
    }
  }

  /// Commits what was written, as durably as the container does, and gives the file up; every later call throws, except this one.
  /// When it throws, what could not be stored is lost, unless other handles have the file open.
  public func close() throws {
    do {
      try state.withLock { state in
        guard !state.isClosed else { return }
        state.isClosed = true
        if case .file(let file) = target { try file.close() }
      }
    } catch {
      throw translated(error, .writing)
    }
  }

  // MARK: Steps

  /// Runs `body` alone on this handle, with the file and the offset.
  private func step<R>(_ access: FileAccess, _ body: (OpenFile, inout UInt64) throws -> R) throws -> R {
    try position(access) { offset in
      guard case .file(let file) = target else {
        throw ContainerError(.isADirectory, detail: "a directory has no contents to read")
      }
      if access == .reading, file.access == .write { throw Misuse.openForWritingOnly }
      if access == .writing, file.access == .read { throw Misuse.openForReadingOnly }
      return try body(file, &offset)
    }
  }

  private func position<R>(_ access: FileAccess, _ body: (inout UInt64) throws -> R) throws -> R {
    do {
      return try state.withLock { state in
        guard !state.isClosed else { throw Misuse.closed }
        return try body(&state.offset)
      }
    } catch {
      throw translated(error, access)
    }
  }

  private func translated(_ error: any Error, _ access: FileAccess) -> any Error {
    guard let misuse = error as? Misuse else { return cocoaError(error, path: path, access) }
    return misuse.error(path: path, access)
  }
}

/// What POSIX refuses before it looks at the file.
private enum Misuse: Error {
  case closed, negativeCount, offsetTooLarge, openForReadingOnly, openForWritingOnly

  func error(path: String, _ access: FileAccess) -> CocoaError {
    let (code, posix, detail): (ContainerError.Code, POSIXErrorCode, String?) =
      switch self {
      case .closed: (.closed, .EBADF, nil)
      case .negativeCount: (.invalidArgument, .EINVAL, "a number of bytes is not negative")
      case .offsetTooLarge: (.invalidArgument, .EINVAL, "an offset is below 2^63")
      case .openForReadingOnly: (.readOnly, .EBADF, nil)
      case .openForWritingOnly: (.invalidArgument, .EBADF, "the file handle was opened for writing only")
      }
    let error = ContainerError(ofHandle: code, path: path, detail: detail)
    return CocoaError(
      access == .reading ? .fileReadUnknown : .fileWriteUnknown,
      userInfo: [
        NSFilePathErrorKey: path, NSUnderlyingErrorKey: POSIXError(posix), secureFilesErrorKey: error,
        NSLocalizedFailureReasonErrorKey: detail ?? error.what,
        NSLocalizedRecoverySuggestionErrorKey: error.remedy,
      ])
  }
}

extension OpenFile {
  /// Fills `buffer` as far as the file goes. Unlike ``read(at:into:)`` throws also for a later piece.
  func fill(_ buffer: UnsafeMutableRawBufferPointer, at offset: UInt64) throws -> Int {
    var done = 0
    while done < buffer.count {
      let (position, overflows) = offset.addingReportingOverflow(UInt64(done))
      guard !overflows else { break }
      let count = try read(at: position, into: UnsafeMutableRawBufferPointer(rebasing: buffer[done...]))
      guard count > 0 else { break }
      done += count
    }
    return done
  }

  /// At most `count` bytes from an offset on, nil when there are none.
  func bytes(at offset: UInt64, count: Int) throws -> Data? {
    // Also of what cannot be read: a closed container, a handle for writing.
    guard try read(at: offset, into: UnsafeMutableRawBufferPointer(start: nil, count: 0)) == 0, count > 0
    else { return nil }
    let size = size
    guard offset < size else { return nil }
    let wanted = Int(min(UInt64(count), size - offset))
    // Not Data(count:), which clears what is overwritten at once.
    // A system that gives more memory than there is gives it for a file of zeros, too. Asking costs more than a small read.
    guard wanted <= 16 << 20 || UInt64(wanted) <= ProcessInfo.processInfo.physicalMemory,
      let start = malloc(wanted)
    else { throw CocoaError(.fileReadTooLarge) }
    let memory = UnsafeMutableRawBufferPointer(start: start, count: wanted)
    do {
      let done = try fill(memory, at: offset)
      guard done > 0 else {
        free(start)
        return nil
      }
      return Data(bytesNoCopy: start, count: done, deallocator: .free)
    } catch {
      free(start)
      throw error
    }
  }
}
