import Locks
import SecureFiles

/// The file of a ``GDFileHandle``: one of the container, or a native one. Offsets are in bytes.
protocol OpenedFile: Sendable {
  func readToEnd() throws -> Data?
  func read(upToCount count: Int) throws -> Data?
  func write(contentsOf data: some DataProtocol) throws
  func offset() throws -> UInt64
  func seekToEnd() throws -> UInt64
  func seek(toOffset offset: UInt64) throws
  func truncate(atOffset offset: UInt64) throws
  func synchronize() throws
  func close() throws
}

extension SecureFileHandle: OpenedFile {}

/// A native file with an offset that moves along. It is never written.
final class NativeFileHandle: OpenedFile {
  private struct State {
    var file: NativeFile?
    var offset: UInt64 = 0
  }

  private let path: String
  private let state: Guarded<State>

  init(_ file: NativeFile) {
    path = file.path
    state = Guarded(State(file: file))
  }

  func readToEnd() throws -> Data? { try read(upToCount: .max) }

  func read(upToCount count: Int) throws -> Data? {
    try withFile { file, offset in
      guard count >= 0 else { throw FileErrors.of(.EINVAL, path: path) }
      let bytes = try file.bytes(at: offset, upTo: count)
      offset += UInt64(bytes.count)
      return bytes.isEmpty ? nil : bytes
    }
  }

  func offset() throws -> UInt64 { try withFile { $1 } }

  func seekToEnd() throws -> UInt64 {
    try withFile { file, offset in
      offset = try file.end()
      return offset
    }
  }

  func seek(toOffset offset: UInt64) throws {
    try withFile {
      guard offset <= UInt64(Int64.max) else { throw FileErrors.of(.EINVAL, path: path) }
      $1 = offset
    }
  }

  func write(contentsOf data: some DataProtocol) throws { try refuseWriting() }
  func truncate(atOffset offset: UInt64) throws { try refuseWriting() }
  /// Nothing was written that could be made durable.
  func synchronize() throws { try withFile { _, _ in } }
  func close() throws { state.withLock { $0.file = nil } }

  /// The handle was opened for reading.
  private func refuseWriting() throws { throw FileErrors.of(.EBADF, path: path, isReading: false) }

  private func withFile<R>(_ body: (NativeFile, inout UInt64) throws -> R) throws -> R {
    try state.withLock { state in
      guard let file = state.file else { throw FileErrors.of(.EBADF, path: path) }
      return try body(file, &state.offset)
    }
  }
}
