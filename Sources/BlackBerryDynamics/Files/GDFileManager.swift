import AppRuntime
import SecureFiles

/// Holds the property ``default``, beside which a class cannot declare the method of the same name.
public class GDFileManagerDefault: NSObject {
  /// The one file manager, as a property.
  public class var `default`: GDFileManager { GDFileManager.shared }
}

/// The files of the app's container, under Foundation's names.
///
/// Paths begin with native directories, or at the container's root (Documentation/GD.md, "Files").
/// URLs are `file` URLs with such paths. Errors are `NSError`s of `GDFileManagerErrorDomain`, with
/// Foundation's error beneath; `catch CocoaError.fileNoSuchFile` matches them, too.
///
/// A path that the container does not have may be read from the native file system. Nothing is
/// written there: only a native file that is moved into the container loses its name there.
///
/// Any thread may use it. While the app is not authorized, calls throw, or return nil or false.
/// It is no subclass of `FileManager`, whose members cannot all be overridden on Linux.
public final class GDFileManager: GDFileManagerDefault, @unchecked Sendable {
  // Invariant: this class and its superclass hold no state.

  static let shared = GDFileManager()

  /// The one file manager, as a method.
  public class func `default`() -> GDFileManager { shared }

  /// Another manager of the same files.
  public override init() {}

  // MARK: Translation

  private var app: HostedApp { .current }

  /// Throws `AppRuntimeError` with `notAuthorized`.
  func files(_ call: StaticString = #function) throws -> SecureFileManager {
    try app.files("GDFileManager.\(call)")
  }

  /// The path in the container. Empty for a relative one, which names nothing.
  func container(_ path: String) -> String { app.paths.container(path) }

  /// The URL of the container's path that a URL names.
  func container(_ url: URL) -> URL {
    guard Self.namesFile(url) else { return url }
    return self.url(url.path(percentEncoded: false), isDirectory: url.hasDirectoryPath)
  }

  /// Code makes URLs from paths without a scheme, and with `gd`, by which it tells its web views whose file it is.
  private static func namesFile(_ url: URL) -> Bool {
    url.scheme == nil || url.isFileURL || url.scheme == "gd"
  }

  /// The URL of the container's path that a path names; one without a path when it names nothing.
  func url(_ path: String, isDirectory: Bool = false) -> URL {
    let path = container(path)
    return path.isEmpty ? Self.nothing : URL(fileURLWithPath: path, isDirectory: isDirectory)
  }

  private static let nothing = URL(string: "file:")!

  func native(_ path: String) -> String { app.paths.native(path) }

  func native(_ url: URL) -> URL {
    URL(fileURLWithPath: native(url.path(percentEncoded: false)), isDirectory: url.hasDirectoryPath)
  }

  /// The native item that a path names where the container has nothing; nil when there is none, or
  /// when native files are not read.
  func nativeItem(_ path: String, _ files: SecureFileManager) -> NativeItem? {
    guard app.configuration.readsNativeFiles, let written = NativePaths.written(path),
      isAbsent(container(path), in: files)
    else { return nil }
    return app.nativeFiles?.item(at: written)
  }

  func nativeItem(_ url: URL, _ files: SecureFileManager) -> NativeItem? {
    guard Self.namesFile(url) else { return nil }
    return nativeItem(url.path(percentEncoded: false), files)
  }

  /// Nil while the app is not authorized, and for whatever else fails.
  func optional<R>(
    _ call: StaticString = #function, _ body: (SecureFileManager) throws -> R?
  ) -> R? {
    do { return try body(files(call)) } catch { return nil }
  }

  func log(_ text: String, _ error: (any Error)? = nil) {
    app.configuration.logger.error(
      "\(text)", metadata: error.map { ["error": "\(FileErrors.name($0))"] } ?? [:])
  }

  // MARK: Dynamics

  /// Opens a file for reading. Throws the error of opening.
  public class func getReadStream(_ filePath: String) throws -> GDCReadStream {
    try GDCReadStream(file: filePath)
  }

  /// Opens a file for writing: makes it if need be, and empties it unless it appends. Throws the
  /// error of opening.
  public class func getWriteStream(_ filePath: String, appendmode: Bool) throws -> GDCWriteStream {
    try GDCWriteStream(file: filePath, append: appendmode)
  }

  /// The path in the container. It is never nil, though the vendor's type is optional, and no
  /// plain file lies there.
  public class func getAbsoluteEncryptedPath(_ filePath: String) -> String? {
    shared.container(filePath)
  }
}
