// Who uses this module writes SecretBytes, Container.Options and `catch SecureFilesError.locked`: one import is enough.
@_exported public import ContainerStore
public import Foundation
import Locks
@_exported public import SodiumPrimitives

/// An app's encrypted container: opened with a passphrase or a key, used through ``files``, closed at the end.
///
/// ```swift
/// let container = try SecureContainer.create(at: url, passphrase: SecretBytes(utf8: "correct horse battery"))
/// try container.files.createDirectory(atPath: "/Documents", withIntermediateDirectories: true)
/// ```
///
/// Any thread may use it. Calls block while they read, write and compute. Creating, opening, synchronizing and closing have async
/// forms of the same names, which asynchronous code calls: they block a thread of their own and none of Swift's pool.
/// ``SecureFileManager`` has async variants of its calls that take long. Changes are durable within 50 ms unless the options say
/// otherwise, and when `close()` returns.
public final class SecureContainer: Sendable {
  /// The store beneath, for what this class does not offer.
  public let store: Container
  /// The file manager of this container, with the URL style ``SecureFileManager/URLStyle/container``. It keeps the
  /// container open for as long as somebody has it.
  public let files: SecureFileManager

  package init(_ store: Container) {
    self.store = store
    files = SecureFileManager(store)
  }

  // MARK: Create

  /// Makes a container in a new directory. Takes the time of a password hash (some 0.2 s). Throws `alreadyExists`.
  public static func create(
    at url: URL, passphrase: consuming SecretBytes, options: Container.Options = Container.Options()
  ) throws -> SecureContainer {
    try create(at: url, .passphrase(passphrase), options)
  }

  /// Makes a container that a raw key of 32 bytes opens, for instance one from the system's keystore.
  public static func create(
    at url: URL, rawKey: consuming SecretBytes, options: Container.Options = Container.Options()
  ) throws -> SecureContainer {
    try create(at: url, .rawKey(rawKey), options)
  }

  /// Makes a container as the function of the same name does, on a thread of its own.
  public static func create(
    at url: URL, passphrase: consuming SecretBytes, options: Container.Options = Container.Options()
  ) async throws -> SecureContainer {
    let credential = Guarded(Credential.passphrase(passphrase))
    return try await BlockingCall.run { try credential.withLock { try create(at: url, $0, options) } }
  }

  /// Makes a container as the function of the same name does, on a thread of its own.
  public static func create(
    at url: URL, rawKey: consuming SecretBytes, options: Container.Options = Container.Options()
  ) async throws -> SecureContainer {
    let credential = Guarded(try Credential.rawKey(rawKey))
    return try await BlockingCall.run { try credential.withLock { try create(at: url, $0, options) } }
  }

  private static func create(
    at url: URL, _ credential: borrowing Credential, _ options: Container.Options
  ) throws -> SecureContainer {
    SecureContainer(try Container.create(at: path(url), credential: credential, options: options))
  }

  // MARK: Open

  /// Opens a container. Throws `wrongKey`, `locked` when another process has it open for writing, `notAContainer`, and the errors of
  /// damage; and what `beforeHash` and `afterHash` throw, which `Container.open` explains.
  public static func open(
    at url: URL, passphrase: consuming SecretBytes, mode: Container.Mode = .readWrite,
    options: Container.Options = Container.Options(), beforeHash: (Identifier) throws -> Void = { _ in },
    afterHash: () throws -> Void = {}
  ) throws -> SecureContainer {
    SecureContainer(
      try Container.open(
        at: path(url), credential: .passphrase(passphrase), mode: mode, options: options,
        beforeHash: beforeHash,
        afterHash: afterHash))
  }

  /// Opens a container with a raw key of 32 bytes. Throws as the form with a passphrase does, and takes no password hash.
  public static func open(
    at url: URL, rawKey: consuming SecretBytes, mode: Container.Mode = .readWrite,
    options: Container.Options = Container.Options()
  ) throws -> SecureContainer {
    try open(at: url, .rawKey(rawKey), mode, options)
  }

  /// Opens a container as the function of the same name does, on a thread of its own.
  public static func open(
    at url: URL, passphrase: consuming SecretBytes, mode: Container.Mode = .readWrite,
    options: Container.Options = Container.Options(),
    beforeHash: @escaping @Sendable (Identifier) throws -> Void = { _ in },
    afterHash: @escaping @Sendable () throws -> Void = {}
  ) async throws -> SecureContainer {
    let credential = Guarded(Credential.passphrase(passphrase))
    return try await BlockingCall.run {
      try credential.withLock {
        SecureContainer(
          try Container.open(
            at: path(url), credential: $0, mode: mode, options: options, beforeHash: beforeHash,
            afterHash: afterHash))
      }
    }
  }

  /// Opens a container as the function of the same name does, on a thread of its own.
  public static func open(
    at url: URL, rawKey: consuming SecretBytes, mode: Container.Mode = .readWrite,
    options: Container.Options = Container.Options()
  ) async throws -> SecureContainer {
    let credential = Guarded(try Credential.rawKey(rawKey))
    return try await BlockingCall.run { try credential.withLock { try open(at: url, $0, mode, options) } }
  }

  private static func open(
    at url: URL, _ credential: borrowing Credential, _ mode: Container.Mode, _ options: Container.Options
  ) throws -> SecureContainer {
    SecureContainer(try Container.open(at: path(url), credential: credential, mode: mode, options: options))
  }

  // MARK: Keys

  /// Whether a passphrase opens the container: with any of its keys, or with that of the given id. On a thread of its own, in the time
  /// of a password hash (some 0.2 s). Throws as `Container.holds` does.
  public func holds(passphrase: consuming SecretBytes, key: Identifier? = nil) async throws -> Bool {
    let credential = Guarded(Credential.passphrase(passphrase))
    return try await BlockingCall.run { try credential.withLock { try self.store.holds($0, key: key) } }
  }

  // MARK: Close

  /// Makes every change so far durable.
  public func synchronize() throws { try store.synchronize() }

  /// Makes every change so far durable, on a thread of its own.
  public func synchronize() async throws { try await BlockingCall.run { try self.store.synchronize() } }

  /// Makes everything durable and lets the container go; every later call throws `closed`.
  public func close() throws { try store.close() }

  /// Makes everything durable and lets the container go, on a thread of its own; every later call throws `closed`.
  public func close() async throws { try await BlockingCall.run { try self.store.close() } }

  /// Closes the container at once: see `Container.close(_:because:)`. Returns the paths of open files whose last bytes are lost.
  @discardableResult
  public func close(_ closing: Container.Closing, because reason: String? = nil) throws -> [String] {
    try store.close(closing, because: reason)
  }

  /// Delivers files and folders into another container's inbox: `/Inbox/<sender>/<time>/<original path>`, in one commit.
  ///
  /// Runs on a thread of its own. Cancelling the task, or `progress`, cancels the delivery and leaves nothing behind. The progress
  /// counts bytes; the files stand in its `userInfo` (`fileTotalCountKey`, `fileCompletedCountKey`).
  public func send(
    _ paths: [String], to receiver: SecureContainer, sender: String,
    options: SendOptions = SendOptions(), progress: Progress? = nil
  ) async throws -> Receipt {
    try await BlockingCall.run(progress: progress) { control in
      try self.store.send(paths, to: receiver.store, sender: sender, options: options, control: control)
    }
  }

  private static func path(_ url: URL) throws -> String {
    guard url.isFileURL else {
      throw SecureFilesError(
        .invalidArgument, path: url.absoluteString, detail: "a container is at a file URL")
    }
    return url.path
  }
}
