public import ContainerStore
public import Foundation

/// The files of a container, under the names and with the behaviour of Foundation's `FileManager`.
///
/// Paths are absolute and of the container; a relative path begins at the root. Nothing native is ever read or written, except by
/// ``importItem(at:toPath:progress:)`` and ``exportItem(atPath:to:progress:)``, which say so.
///
/// | Differs from `FileManager` | How |
/// |---|---|
/// | `contents(atPath:)` | like Foundation's returns nil for every failure; ``data(atPath:)`` throws |
/// | names | exact bytes, never normalised |
/// | `copyItem` of a file | another file with a key of its own; never shares blocks |
/// | a change of several steps | is one commit: all or nothing after a crash |
public final class SecureFileManager: Sendable {
  /// The store beneath.
  let store: Container
  private let state: Guarded<State>

  private struct State {
    var directory = "/"
    var urlStyle: URLStyle
    weak var delegate: (any SecureFileManagerDelegate)?
  }

  /// A manager of its own, with working directory, delegate and URL style; any number may be used at the same time.
  public convenience init(_ container: SecureContainer, urlStyle: URLStyle = .container) {
    self.init(container.store, urlStyle: urlStyle)
  }

  init(_ store: Container, urlStyle: URLStyle = .container) {
    self.store = store
    state = Guarded(State(urlStyle: urlStyle))
  }

  /// What URLs look like that the manager hands out, and which ones it takes.
  public var urlStyle: URLStyle {
    get { state.withLock { $0.urlStyle } }
    set { state.withLock { $0.urlStyle = newValue } }
  }

  /// Asked and told about copying, moving, linking and removing, on the thread that calls. Not kept alive.
  public var delegate: (any SecureFileManagerDelegate)? {
    get { state.withLock { $0.delegate } }
    set { state.withLock { $0.delegate = newValue } }
  }

  // MARK: Working directory

  /// Where relative paths begin; of this manager, not of the process. Empty when that directory was removed.
  public var currentDirectoryPath: String {
    let directory = state.withLock { $0.directory }
    let found = try? store.attributes(at: directory, followingLinks: true)
    return found?.kind == .directory ? directory : ""
  }

  /// False, and nothing changes, when there is no directory.
  public func changeCurrentDirectoryPath(_ path: String) -> Bool {
    let place = place(path)
    guard let found = try? store.attributes(at: place, followingLinks: true), found.kind == .directory,
      let directory = try? store.resolvedPath(place)
    else { return false }
    state.withLock { $0.directory = directory }
    return true
  }

  /// The absolute path of one that may be relative; an empty one stays empty, which names nothing.
  func place(_ path: String) -> String {
    if path.isEmpty || path.hasPrefix("/") { return path }
    let directory = state.withLock { $0.directory }
    return directory.hasSuffix("/") ? directory + path : directory + "/" + path
  }

  // MARK: Errors

  /// Calls `body` with the absolute path, and throws what Foundation throws when something is read.
  func reading<R>(_ path: String, _ body: (String) throws -> R) throws -> R {
    do { return try body(place(path)) } catch { throw cocoaError(error, path: path, .reading) }
  }

  /// The same when something is changed.
  func writing<R>(_ path: String, _ body: (String) throws -> R) throws -> R {
    do { return try body(place(path)) } catch { throw cocoaError(error, path: path, .writing) }
  }

  // MARK: Contents

  /// Creates a file, or replaces the one that is there; false when it cannot be.
  @discardableResult
  public func createFile(
    atPath path: String, contents: Data?, attributes: [FileAttributeKey: Any]? = nil
  ) -> Bool {
    do {
      try write(contents ?? Data(), toPath: path)
      if let attributes { try setAttributes(attributes, ofItemAtPath: path) }
      return true
    } catch {
      return false
    }
  }

  /// Creates a file, or replaces the one that is there, in one step. Throws `noSuchFile` when the directory is missing,
  /// `isADirectory`, `diskFull`.
  public func write(_ data: Data, toPath path: String) throws {
    try data.withUnsafeBytes { try store.write($0, to: path) }
  }

  /// The whole file, or nil when it cannot be read.
  public func contents(atPath path: String) -> Data? { try? data(atPath: path) }

  /// The whole file. Throws `noSuchFile`, `isADirectory`, `fileDamaged`.
  public func data(atPath path: String) throws -> Data { Data(try store.contents(at: path)) }

  // MARK: Looking

  public func fileExists(atPath path: String) -> Bool { attributes(path) != nil }

  /// `isDirectory` is set when there is something at the path.
  public func fileExists(atPath path: String, isDirectory: inout Bool) -> Bool {
    guard let attributes = attributes(path) else { return false }
    isDirectory = attributes.kind == .directory
    return true
  }

  private func attributes(_ path: String) -> FileAttributes? { try? store.attributes(at: path) }

  /// `.type`, `.size`, `.creationDate`, `.modificationDate`, `.posixPermissions`, `.referenceCount`, `.systemFileNumber`.
  public func attributesOfItem(atPath path: String) throws -> [FileAttributeKey: Any] {
    guard let attributes = try store.attributes(at: path) else {
      throw SecureFilesError(.noSuchFile, path: path)
    }
    let type: FileAttributeType =
      switch attributes.kind {
      case .file: .typeRegular
      case .directory: .typeDirectory
      case .symbolicLink: .typeSymbolicLink
      }
    return [
      .type: type, .size: NSNumber(value: attributes.size),
      .creationDate: Date(nanoseconds: attributes.created),
      .modificationDate: Date(nanoseconds: attributes.modified),
      .posixPermissions: NSNumber(value: attributes.permissions),
      .referenceCount: NSNumber(value: attributes.linkCount),
      .systemFileNumber: NSNumber(value: attributes.id),
    ]
  }

  /// Takes `.creationDate`, `.modificationDate` and `.posixPermissions`, and ignores the others.
  public func setAttributes(_ attributes: [FileAttributeKey: Any], ofItemAtPath path: String) throws {
    try store.setAttributes(
      at: path, created: (attributes[.creationDate] as? Date)?.nanoseconds,
      modified: (attributes[.modificationDate] as? Date)?.nanoseconds,
      permissions: (attributes[.posixPermissions] as? NSNumber)?.uint16Value)
  }

  /// The names in a directory, in bytewise order.
  public func contentsOfDirectory(atPath path: String) throws -> [String] {
    try store.names(in: path)
  }

  /// Everything below a directory, relative to it, parents before children.
  public func subpathsOfDirectory(atPath path: String) throws -> [String] {
    try store.list(path, recursively: true).map(\.path)
  }

  // MARK: Changing

  /// Makes a directory; with intermediates, an existing one is fine. Takes `.posixPermissions`.
  public func createDirectory(
    atPath path: String, withIntermediateDirectories: Bool, attributes: [FileAttributeKey: Any]? = nil
  ) throws {
    let permissions = (attributes?[.posixPermissions] as? NSNumber)?.uint16Value ?? 0o700
    try store.createDirectory(
      path, withIntermediateDirectories: withIntermediateDirectories, permissions: permissions)
  }

  /// Throws `fileExists` when something is at the destination.
  public func moveItem(atPath source: String, toPath destination: String) throws {
    try store.move(source, to: destination)
  }

  /// Throws `fileExists` when something is at the destination.
  public func copyItem(atPath source: String, toPath destination: String) throws {
    try store.copy(source, to: destination)
  }

  /// Removes a file, or a directory with everything in it.
  public func removeItem(atPath path: String) throws { try store.remove(path) }

  // MARK: Native files

  /// Copies a native file or folder into the container, encrypting as it reads; what is at `path` is replaced, folders are merged.
  /// Runs on a thread of its own; see ``SecureContainer/send(_:to:sender:options:progress:)`` for progress and cancellation.
  @discardableResult
  public func importItem(at url: URL, toPath path: String, progress: Progress? = nil) async throws
    -> BulkReceipt
  {
    let native = url.path
    return try await BlockingCall.run(progress: progress) { [store] in
      try store.importItem(at: native, to: path, control: $0)
    }
  }

  /// Copies a file or directory **in plain** to the native file system; files there are replaced when the new one is whole.
  @discardableResult
  public func exportItem(atPath path: String, to url: URL, progress: Progress? = nil) async throws
    -> BulkReceipt
  {
    let native = url.path
    return try await BlockingCall.run(progress: progress) { [store] in
      try store.exportItem(path, to: native, control: $0)
    }
  }
}

extension Date {
  fileprivate init(nanoseconds: Int64) { self.init(timeIntervalSince1970: Double(nanoseconds) / 1e9) }
  /// The nearest that 64 bits hold: they reach from 1677 to 2262.
  fileprivate var nanoseconds: Int64 {
    let exact = (timeIntervalSince1970 * 1e9).rounded()
    return Int64(exactly: exact) ?? (exact < 0 ? .min : .max)
  }
}
