public import ContainerStore
public import Foundation
import Locks

/// The files of a container, under the names and with the behaviour of Foundation's `FileManager`.
///
/// Paths are of the container; a relative one begins at ``currentDirectoryPath``. Nothing native is ever read or written, except by
/// ``importItem(at:toPath:progress:)`` and ``exportItem(atPath:to:progress:)``, which say so. Calls throw `CocoaError` with
/// Foundation's codes, which `catch SecureFilesError.noSuchFile` matches, too.
///
/// | Differs from `FileManager` | How |
/// |---|---|
/// | `contents(atPath:)` | like Foundation's returns nil for every failure; ``data(atPath:)`` throws |
/// | names | exact bytes, never normalised |
/// | working directory, delegate | belong to this manager, not to the process |
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
  @discardableResult
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
    if path.isEmpty || path.beginsWithSlash { return path }
    return state.withLock { $0.directory }.withSlashAtEnd + path
  }

  // MARK: Errors

  /// Calls `body` with the absolute path, and throws what Foundation throws when something is read. `variant` says in `userInfo` of
  /// which kind the call was.
  func reading<R>(_ path: String, variant: String? = nil, _ body: (String) throws -> R) throws -> R {
    do { return try body(place(path)) } catch { throw translated(error, path, .reading, variant) }
  }

  /// The same when something is changed.
  func writing<R>(_ path: String, variant: String? = nil, _ body: (String) throws -> R) throws -> R {
    do { return try body(place(path)) } catch { throw translated(error, path, .writing, variant) }
  }

  private func translated(_ error: any Error, _ path: String, _ access: FileAccess, _ variant: String?)
    -> any Error
  {
    cocoaError(
      error, path: path, access, url: url(forPath: path, isDirectory: false),
      userInfo: variant.map { [userStringVariantKey: [$0]] } ?? [:])
  }

  // MARK: Native files

  /// Copies a native file or folder into the container, encrypting as it reads; what is at `path` is replaced, folders are merged.
  /// Runs on a thread of its own; see ``SecureContainer/send(_:to:sender:options:progress:)`` for progress and cancellation.
  @discardableResult
  public func importItem(at url: URL, toPath path: String, progress: Progress? = nil) async throws
    -> BulkReceipt
  {
    let (native, path) = (try Self.nativePath(of: url), place(path))
    return try await BlockingCall.run(progress: progress) { [store] in
      try store.importItem(at: native, to: path, control: $0)
    }
  }

  /// Copies a file or directory **in plain** to the native file system; files there are replaced when the new one is whole.
  @discardableResult
  public func exportItem(atPath path: String, to url: URL, progress: Progress? = nil) async throws
    -> BulkReceipt
  {
    let (native, path) = (try Self.nativePath(of: url), place(path))
    return try await BlockingCall.run(progress: progress) { [store] in
      try store.exportItem(path, to: native, control: $0)
    }
  }

  /// A URL of a container must not be taken for a native file: what is in it would lie there in plain.
  private static func nativePath(of url: URL) throws -> String {
    let path = url.path
    guard url.isFileURL, !path.isEmpty else {
      throw SecureFilesError(.invalidArgument, path: path, detail: "a native file has a file URL")
    }
    return path
  }
}
