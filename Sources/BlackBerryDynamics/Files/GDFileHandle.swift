import AppRuntime
import Locks
import SecureFiles

/// A file of the app's container, with an offset that moves along. For reading, also a native file
/// where the container has nothing of that path.
///
/// The members without `throws` log what fails, and return nothing, where the vendor's raise an
/// exception. Those that throw are Foundation's newer ones, and throw as `GDFileManager` does. Any
/// thread may use a handle. It is no subclass of `FileHandle`, and has no descriptor.
public final class GDFileHandle: NSObject, Sendable {
  private let handle: (any OpenedFile)?
  private let path: String
  private let app: HostedApp

  /// A handle without a file, which reads nothing.
  public override init() {
    app = .current
    path = ""
    handle = nil
  }

  private init(
    _ call: String, _ path: String, _ open: (SecureFileManager) throws -> any OpenedFile
  ) throws {
    app = .current
    self.path = path
    do { handle = try open(app.files("GDFileHandle.\(call)")) } catch {
      throw FileErrors(paths: app.paths, given: [path]).of(error)
    }
  }

  // MARK: Opening

  /// Opens a file for reading; nil when that fails.
  public convenience init?(forReadingAtPath path: String) {
    do {
      try self.init("init(forReadingAtPath:)", path) { files in
        let manager = GDFileManager.shared
        do { return try files.fileHandle(forReadingFrom: manager.url(path)) } catch {
          guard let item = manager.nativeItem(path, files) else { throw error }
          return NativeFileHandle(try item.open())
        }
      }
    } catch { return nil }
  }

  /// Opens a file that exists for writing, and empties nothing; nil when that fails.
  public convenience init?(forWritingAtPath path: String) {
    do {
      try self.init("init(forWritingAtPath:)", path) {
        try $0.fileHandle(forWritingTo: GDFileManager.shared.url(path))
      }
    } catch { return nil }
  }

  /// Opens a file that exists for reading and writing; nil when that fails.
  public convenience init?(forUpdatingAtPath path: String) {
    do {
      try self.init("init(forUpdatingAtPath:)", path) {
        try $0.fileHandle(forUpdating: GDFileManager.shared.url(path))
      }
    } catch { return nil }
  }

  /// Opens a file for reading. A URL without a scheme is taken for its path.
  public convenience init(forReadingFrom url: URL) throws {
    try self.init("init(forReadingFrom:)", url.path(percentEncoded: false)) { files in
      let manager = GDFileManager.shared
      do { return try SecureFileHandle(forReadingFrom: manager.container(url), in: files) } catch {
        guard let item = manager.nativeItem(url, files) else { throw error }
        return NativeFileHandle(try item.open())
      }
    }
  }

  /// Opens a file that exists for writing, and empties nothing.
  public convenience init(forWritingTo url: URL) throws {
    try self.init("init(forWritingTo:)", url.path(percentEncoded: false)) {
      try SecureFileHandle(forWritingTo: GDFileManager.shared.container(url), in: $0)
    }
  }

  /// Opens a file that exists for reading and writing.
  public convenience init(forUpdating url: URL) throws {
    try self.init("init(forUpdating:)", url.path(percentEncoded: false)) {
      try SecureFileHandle(forUpdating: GDFileManager.shared.container(url), in: $0)
    }
  }

  // MARK: Members that throw

  /// Everything from the offset on; nil at the end. Of a native file 1 GiB at most.
  public func readToEnd() throws -> Data? { try opened { try $0.readToEnd() } }

  /// So many bytes from the offset on, fewer where the file ends; nil at its end.
  public func read(upToCount count: Int) throws -> Data? { try opened { try $0.read(upToCount: count) } }

  /// Writes at the offset.
  public func write(contentsOf data: some DataProtocol) throws {
    try opened { try $0.write(contentsOf: data) }
  }

  /// The offset in bytes.
  public func offset() throws -> UInt64 { try opened { try $0.offset() } }

  /// Moves to the end, and returns where that is, in bytes.
  @discardableResult
  public func seekToEnd() throws -> UInt64 { try opened { try $0.seekToEnd() } }

  /// Moves to an offset in bytes.
  public func seek(toOffset offset: UInt64) throws { try opened { try $0.seek(toOffset: offset) } }

  /// Cuts or extends the file to so many bytes, and moves there.
  public func truncate(atOffset offset: UInt64) throws { try opened { try $0.truncate(atOffset: offset) } }

  /// Makes durable what was written.
  public func synchronize() throws { try opened { try $0.synchronize() } }

  /// Commits what was written. Every later call fails, except this one.
  public func close() throws {
    if handle != nil { try opened { try $0.close() } }
  }

  /// Nil after a failure. The error is logged without its text, which has names from the container.
  func logged<R>(_ call: StaticString = #function, _ body: () throws -> R?) -> R? {
    do { return try body() } catch {
      app.configuration.logger.error(
        "GDFileHandle.\(call) has failed", metadata: ["error": "\(FileErrors.name(error))"])
      return nil
    }
  }

  private func opened<R>(_ body: (any OpenedFile) throws -> R) throws -> R {
    do {
      guard let handle else { throw CocoaError(.fileReadUnknown, userInfo: [:]) }
      return try body(handle)
    } catch {
      throw FileErrors(paths: app.paths, given: [path]).of(error)
    }
  }
}
