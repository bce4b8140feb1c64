import Foundation
import SecureFiles
import SodiumPrimitives
import TestSupport

/// A folder of a new container, whose native directory goes with this.
final class SecureWorld: World {
  enum Style: String, CaseIterable, CustomStringConvertible {
    case container, file
    var description: String { "\(rawValue) URLs" }
    var urlStyle: SecureFileManager.URLStyle { self == .file ? .file : .container }
  }

  private let style: Style
  private let native = TemporaryDirectory()
  private var container: SecureContainer
  private var files: SecureFileManager { manager as! SecureFileManager }

  init(_ style: Style) throws {
    self.style = style
    container = try SecureContainer.create(at: native.url, rawKey: Self.key(), options: Self.options)
    super.init(
      name: "SecureFiles, \(style)", root: "/a folder of the container",
      manager: SecureFileManager(container, urlStyle: style.urlStyle))
    try files.createDirectory(atPath: root, withIntermediateDirectories: false)
  }

  deinit { try? container.close() }

  private static func key() throws -> SecretBytes {
    var key = try SecretBytes(count: 32)
    _ = key.withUnsafeMutableBytes { $0.initializeMemory(as: UInt8.self, repeating: 7) }
    return key
  }

  private static var options: Container.Options {
    var options = Container.Options()
    options.threadCount = 2
    return options
  }

  override func reopen() throws {
    try container.close()
    container = try SecureContainer.open(at: native.url, rawKey: Self.key(), options: Self.options)
    let report = try container.store.verify()
    guard report.findings.isEmpty else {
      throw CannotSetUp(description: "the container is damaged: \(report)")
    }
    use(anotherManager())
  }

  override func anotherManager() -> any FileManaging {
    SecureFileManager(container, urlStyle: style.urlStyle)
  }

  override func url(_ path: String, isDirectory: Bool) -> URL {
    files.url(forPath: self.path(path), isDirectory: isDirectory)
  }

  override func handle(_ access: Access, atPath path: String) -> (any FileHandling)? {
    switch access {
    case .reading: SecureFileHandle(forReadingAtPath: path, in: files)
    case .writing: SecureFileHandle(forWritingAtPath: path, in: files)
    case .updating: SecureFileHandle(forUpdatingAtPath: path, in: files)
    }
  }

  override func handle(_ access: Access, at url: URL) throws -> any FileHandling {
    switch access {
    case .reading: try SecureFileHandle(forReadingFrom: url, in: files)
    case .writing: try SecureFileHandle(forWritingTo: url, in: files)
    case .updating: try SecureFileHandle(forUpdating: url, in: files)
    }
  }

  override func inputStream(atPath path: String) -> InputStream? {
    SecureInputStream(fileAtPath: path, in: files)
  }
  override func inputStream(at url: URL) -> InputStream? { SecureInputStream(url: url, in: files) }
  override func outputStream(atPath path: String, append: Bool) -> OutputStream? {
    SecureOutputStream(toFileAtPath: path, append: append, in: files)
  }
  override func outputStream(at url: URL, append: Bool) -> OutputStream? {
    SecureOutputStream(url: url, append: append, in: files)
  }

  override func resourceValues(_ keys: Set<URLResourceKey>, at url: URL) throws -> [URLResourceKey: Any] {
    try files.resourceValues(forKeys: keys, at: url).allValues
  }

  override func setDelegate(_ delegate: RecordingDelegate?) { files.delegate = delegate }
}

extension SecureFileManager: FileManaging {}
extension SecureFileManager.DirectoryEnumerator: DirectoryEnumerating {}
extension SecureFileHandle: FileHandling {}

extension RecordingDelegate: SecureFileManagerDelegate {
  func fileManager(_ files: SecureFileManager, shouldCopyItemAtPath from: String, toPath to: String) -> Bool {
    should("copy", from, to)
  }
  func fileManager(_ files: SecureFileManager, shouldCopyItemAt from: URL, to: URL) -> Bool {
    should("copy", from.path, to.path)
  }
  func fileManager(
    _ files: SecureFileManager, shouldProceedAfterError error: any Error, copyingItemAtPath from: String,
    toPath to: String
  ) -> Bool {
    proceeds("copying", error, from, to)
  }
  func fileManager(
    _ files: SecureFileManager, shouldProceedAfterError error: any Error, copyingItemAt from: URL, to: URL
  ) -> Bool {
    proceeds("copying", error, from.path, to.path)
  }
  func fileManager(_ files: SecureFileManager, shouldMoveItemAtPath from: String, toPath to: String) -> Bool {
    should("move", from, to)
  }
  func fileManager(_ files: SecureFileManager, shouldMoveItemAt from: URL, to: URL) -> Bool {
    should("move", from.path, to.path)
  }
  func fileManager(
    _ files: SecureFileManager, shouldProceedAfterError error: any Error, movingItemAtPath from: String,
    toPath to: String
  ) -> Bool {
    proceeds("moving", error, from, to)
  }
  func fileManager(
    _ files: SecureFileManager, shouldProceedAfterError error: any Error, movingItemAt from: URL, to: URL
  ) -> Bool {
    proceeds("moving", error, from.path, to.path)
  }
  func fileManager(_ files: SecureFileManager, shouldLinkItemAtPath from: String, toPath to: String) -> Bool {
    should("link", from, to)
  }
  func fileManager(_ files: SecureFileManager, shouldLinkItemAt from: URL, to: URL) -> Bool {
    should("link", from.path, to.path)
  }
  func fileManager(
    _ files: SecureFileManager, shouldProceedAfterError error: any Error, linkingItemAtPath from: String,
    toPath to: String
  ) -> Bool {
    proceeds("linking", error, from, to)
  }
  func fileManager(
    _ files: SecureFileManager, shouldProceedAfterError error: any Error, linkingItemAt from: URL, to: URL
  ) -> Bool {
    proceeds("linking", error, from.path, to.path)
  }
  func fileManager(_ files: SecureFileManager, shouldRemoveItemAtPath path: String) -> Bool {
    should("remove", path)
  }
  func fileManager(_ files: SecureFileManager, shouldRemoveItemAt url: URL) -> Bool {
    should("remove", url.path)
  }
  func fileManager(
    _ files: SecureFileManager, shouldProceedAfterError error: any Error, removingItemAtPath path: String
  ) -> Bool {
    proceeds("removing", error, path)
  }
  func fileManager(
    _ files: SecureFileManager, shouldProceedAfterError error: any Error, removingItemAt url: URL
  ) -> Bool {
    proceeds("removing", error, url.path)
  }
}
