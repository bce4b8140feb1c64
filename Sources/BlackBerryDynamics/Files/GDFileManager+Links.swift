import SecureFiles

extension GDFileManager {
  // MARK: Links

  /// Makes a symbolic link. A relative destination is kept as it is.
  public func createSymbolicLink(atPath path: String, withDestinationPath destPath: String) throws {
    let isAbsolute = destPath.utf8.first == UInt8(ascii: "/")
    try performing(on: [path]) {
      try $0.createSymbolicLink(
        atPath: container(path), withDestinationPath: isAbsolute ? container(destPath) : destPath)
    }
  }

  /// Makes a symbolic link.
  public func createSymbolicLink(at url: URL, withDestinationURL destURL: URL) throws {
    try performing(on: [url, destURL]) {
      try $0.createSymbolicLink(at: container(url), withDestinationURL: container(destURL))
    }
  }

  /// Where a symbolic link leads: a native path, unless it is relative.
  public func destinationOfSymbolicLink(atPath path: String) throws -> String {
    let destination = try performing(on: [path]) {
      try $0.destinationOfSymbolicLink(atPath: container(path))
    }
    return destination.utf8.first == UInt8(ascii: "/") ? native(destination) : destination
  }

  /// Gives a file another name, beside the one that it has.
  public func linkItem(atPath srcPath: String, toPath dstPath: String) throws {
    try performing(on: [srcPath, dstPath]) {
      try $0.linkItem(atPath: container(srcPath), toPath: container(dstPath))
    }
  }

  /// Gives a file another name, beside the one that it has.
  public func linkItem(at srcURL: URL, to dstURL: URL) throws {
    try performing(on: [srcURL, dstURL]) { try $0.linkItem(at: container(srcURL), to: container(dstURL)) }
  }

  // MARK: Replacing

  /// Puts one item in the place of another one. `resultingURL` gets the URL of the new one.
  public func replaceItem(
    at originalItemURL: URL, withItemAt newItemURL: URL, backupItemName: String?,
    options: FileManager.ItemReplacementOptions = [],
    resultingItemURL resultingURL: UnsafeMutablePointer<NSURL?>?
  ) throws {
    let result = try performing(on: [originalItemURL, newItemURL]) {
      try $0.replaceItemAt(
        container(originalItemURL), withItemAt: container(newItemURL), backupItemName: backupItemName,
        options: options)
    }
    resultingURL?.pointee = result.map { NSURL(fileURLWithPath: native($0).path) }
  }

  // MARK: Enumerating

  /// Goes through everything below a directory, as paths relative to it; nil for an empty path and
  /// while the app is not authorized.
  public func enumerator(atPath path: String) -> GDDirectoryEnumerator? {
    optional { $0.enumerator(atPath: container(path)) }.map { GDDirectoryEnumerator($0) { $0 } }
  }

  /// Goes through everything below a directory, as URLs with native paths. `errorHandler` is told
  /// which item could not be read, and says whether to go on.
  public func enumerator(
    at url: URL, includingPropertiesForKeys keys: [URLResourceKey]?,
    options mask: FileManager.DirectoryEnumerationOptions = [],
    errorHandler handler: ((URL, any Error) -> Bool)? = nil
  ) -> GDDirectoryEnumerator? {
    let translated = handler.map { handler in
      { (url: URL, error: any Error) in
        handler(self.native(url), FileErrors(paths: HostedApp.current.paths, given: []).of(error))
      }
    }
    return optional {
      $0.enumerator(
        at: container(url), includingPropertiesForKeys: keys, options: mask, errorHandler: translated)
    }.map { enumerator in
      GDDirectoryEnumerator(enumerator) { item in (item as? URL).map { self.native($0) } ?? item }
    }
  }
}

/// Goes through what is below a directory of the container.
public final class GDDirectoryEnumerator: NSEnumerator {
  private let enumerator: SecureFileManager.DirectoryEnumerator
  private let translate: (Any) -> Any

  init(_ enumerator: SecureFileManager.DirectoryEnumerator, _ translate: @escaping (Any) -> Any) {
    (self.enumerator, self.translate) = (enumerator, translate)
  }

  /// The next item: a path or a URL; nil at the end.
  public override func nextObject() -> Any? { enumerator.nextObject().map(translate) }

  /// The attributes of the last item; nil before the first one.
  public var fileAttributes: [FileAttributeKey: Any]? { enumerator.fileAttributes }

  /// The attributes of the directory.
  public var directoryAttributes: [FileAttributeKey: Any]? { enumerator.directoryAttributes }

  /// The depth of the last item: 1 for what is in the directory itself.
  public var level: Int { enumerator.level }

  /// Leaves out what is below the last item.
  public func skipDescendants() { enumerator.skipDescendants() }

  /// Leaves out what is below the last item.
  public func skipDescendents() { enumerator.skipDescendants() }
}
