public import Foundation

/// Asked before each item is copied, moved, linked or removed, and whether to go on after an error: Foundation's
/// `FileManagerDelegate` for a ``SecureFileManager``. Every member has a default: yes to the item, no to going on.
///
/// The forms with URLs are asked, by the calls with paths, too, as Foundation does; unless they are implemented they ask those with
/// paths. ``SecureFileManager/copyItem(atPath:toPath:progress:)`` and ``SecureFileManager/trashItem(at:resultingItemURL:)`` ask nobody.
public protocol SecureFileManagerDelegate: AnyObject {
  /// Whether the item is copied; what is below a directory is asked about by itself.
  func fileManager(
    _ fileManager: SecureFileManager, shouldCopyItemAtPath srcPath: String, toPath dstPath: String
  ) -> Bool
  /// The same, when the call was one with URLs.
  func fileManager(_ fileManager: SecureFileManager, shouldCopyItemAt srcURL: URL, to dstURL: URL) -> Bool
  /// Whether to go on with the next item after copying this one failed; when not, the call throws the error.
  func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error,
    copyingItemAtPath srcPath: String, toPath dstPath: String
  ) -> Bool
  /// The same, when the call was one with URLs.
  func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error, copyingItemAt srcURL: URL,
    to dstURL: URL
  ) -> Bool

  /// Whether the item is moved or renamed; asked once, for the whole of a directory.
  func fileManager(
    _ fileManager: SecureFileManager, shouldMoveItemAtPath srcPath: String, toPath dstPath: String
  ) -> Bool
  /// The same, when the call was one with URLs.
  func fileManager(_ fileManager: SecureFileManager, shouldMoveItemAt srcURL: URL, to dstURL: URL) -> Bool
  /// Whether to go on with the next item after moving this one failed; when not, the call throws the error.
  func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error,
    movingItemAtPath srcPath: String, toPath dstPath: String
  ) -> Bool
  /// The same, when the call was one with URLs.
  func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error, movingItemAt srcURL: URL,
    to dstURL: URL
  ) -> Bool

  /// Whether the item is given another name; what is below a directory is asked about by itself.
  func fileManager(
    _ fileManager: SecureFileManager, shouldLinkItemAtPath srcPath: String, toPath dstPath: String
  ) -> Bool
  /// The same, when the call was one with URLs.
  func fileManager(_ fileManager: SecureFileManager, shouldLinkItemAt srcURL: URL, to dstURL: URL) -> Bool
  /// Whether to go on with the next item after linking this one failed; when not, the call throws the error.
  func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error,
    linkingItemAtPath srcPath: String, toPath dstPath: String
  ) -> Bool
  /// The same, when the call was one with URLs.
  func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error, linkingItemAt srcURL: URL,
    to dstURL: URL
  ) -> Bool

  /// Whether the item is removed; what is below a directory is asked about by itself.
  func fileManager(_ fileManager: SecureFileManager, shouldRemoveItemAtPath path: String) -> Bool
  /// The same, when the call was one with URLs.
  func fileManager(_ fileManager: SecureFileManager, shouldRemoveItemAt url: URL) -> Bool
  /// Whether to go on with the next item after removing this one failed; when not, the call throws the error.
  func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error,
    removingItemAtPath path: String
  ) -> Bool
  /// The same, when the call was one with URLs.
  func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error, removingItemAt url: URL
  ) -> Bool
}

extension SecureFileManagerDelegate {
  public func fileManager(
    _ fileManager: SecureFileManager, shouldCopyItemAtPath srcPath: String, toPath dstPath: String
  ) -> Bool { true }
  public func fileManager(_ fileManager: SecureFileManager, shouldCopyItemAt srcURL: URL, to dstURL: URL)
    -> Bool
  {
    self.fileManager(fileManager, shouldCopyItemAtPath: srcURL.source, toPath: dstURL.destination)
  }
  public func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error,
    copyingItemAtPath srcPath: String, toPath dstPath: String
  ) -> Bool { false }
  public func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error, copyingItemAt srcURL: URL,
    to dstURL: URL
  ) -> Bool {
    self.fileManager(
      fileManager, shouldProceedAfterError: error, copyingItemAtPath: srcURL.source,
      toPath: dstURL.destination
    )
  }

  public func fileManager(
    _ fileManager: SecureFileManager, shouldMoveItemAtPath srcPath: String, toPath dstPath: String
  ) -> Bool { true }
  public func fileManager(_ fileManager: SecureFileManager, shouldMoveItemAt srcURL: URL, to dstURL: URL)
    -> Bool
  {
    self.fileManager(fileManager, shouldMoveItemAtPath: srcURL.source, toPath: dstURL.destination)
  }
  public func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error,
    movingItemAtPath srcPath: String, toPath dstPath: String
  ) -> Bool { false }
  public func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error, movingItemAt srcURL: URL,
    to dstURL: URL
  ) -> Bool {
    self.fileManager(
      fileManager, shouldProceedAfterError: error, movingItemAtPath: srcURL.source, toPath: dstURL.destination
    )
  }

  public func fileManager(
    _ fileManager: SecureFileManager, shouldLinkItemAtPath srcPath: String, toPath dstPath: String
  ) -> Bool { true }
  public func fileManager(_ fileManager: SecureFileManager, shouldLinkItemAt srcURL: URL, to dstURL: URL)
    -> Bool
  {
    self.fileManager(fileManager, shouldLinkItemAtPath: srcURL.source, toPath: dstURL.destination)
  }
  public func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error,
    linkingItemAtPath srcPath: String, toPath dstPath: String
  ) -> Bool { false }
  public func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error, linkingItemAt srcURL: URL,
    to dstURL: URL
  ) -> Bool {
    self.fileManager(
      fileManager, shouldProceedAfterError: error, linkingItemAtPath: srcURL.source,
      toPath: dstURL.destination
    )
  }

  public func fileManager(_ fileManager: SecureFileManager, shouldRemoveItemAtPath path: String) -> Bool {
    true
  }
  public func fileManager(_ fileManager: SecureFileManager, shouldRemoveItemAt url: URL) -> Bool {
    self.fileManager(fileManager, shouldRemoveItemAtPath: url.source)
  }
  public func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error,
    removingItemAtPath path: String
  ) -> Bool { false }
  public func fileManager(
    _ fileManager: SecureFileManager, shouldProceedAfterError error: any Error, removingItemAt url: URL
  ) -> Bool {
    self.fileManager(fileManager, shouldProceedAfterError: error, removingItemAtPath: url.source)
  }
}

extension URL {
  /// The path that the call gave, else the one that the URL names.
  fileprivate var source: String { PathsAsGiven.current?.from ?? filePath }
  fileprivate var destination: String { PathsAsGiven.current?.to ?? filePath }
}
