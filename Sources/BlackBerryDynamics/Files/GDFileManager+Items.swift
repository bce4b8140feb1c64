import SecureFiles

extension GDFileManager {
  // MARK: Removing, moving, copying

  /// Removes a file, or a directory with what is in it. Never removes a native item.
  public func removeItem(atPath path: String) throws {
    try performing(on: [path]) { try $0.removeItem(atPath: container(path)) }
  }

  /// Removes a file, or a directory with what is in it. Never removes a native item.
  public func removeItem(at url: URL) throws {
    try performing(on: [url]) { try $0.removeItem(at: container(url)) }
  }

  /// Moves an item to a path that is free. A native file is copied into the container, and removed
  /// once the copy is durable; a native directory is refused (`GDFileManagerErrorNotSupported`).
  public func moveItem(atPath srcPath: String, toPath dstPath: String) throws {
    try performing(on: [srcPath, dstPath]) { files in
      do { try files.moveItem(atPath: container(srcPath), toPath: container(dstPath)) } catch {
        guard case SecureFilesError.noSuchFile = error, let item = nativeItem(srcPath, files) else {
          throw error
        }
        try bringAndRemove(item, to: dstPath)
      }
    }
  }

  /// Moves an item to a URL that is free, as ``moveItem(atPath:toPath:)`` does.
  public func moveItem(at srcURL: URL, to dstURL: URL) throws {
    try performing(on: [srcURL, dstURL]) { files in
      do { try files.moveItem(at: container(srcURL), to: container(dstURL)) } catch {
        guard case SecureFilesError.noSuchFile = error, let item = nativeItem(srcURL, files) else {
          throw error
        }
        try bringAndRemove(item, to: dstURL.path(percentEncoded: false))
      }
    }
  }

  /// Copies an item to a path that is free, also a native one.
  public func copyItem(atPath srcPath: String, toPath dstPath: String) throws {
    try performing(on: [srcPath, dstPath]) { files in
      do { try files.copyItem(atPath: container(srcPath), toPath: container(dstPath)) } catch {
        guard case SecureFilesError.noSuchFile = error, let item = nativeItem(srcPath, files) else {
          throw error
        }
        try bring(item, to: dstPath)
      }
    }
  }

  /// Copies an item to a URL that is free, also a native one.
  public func copyItem(at srcURL: URL, to dstURL: URL) throws {
    try performing(on: [srcURL, dstURL]) { files in
      do { try files.copyItem(at: container(srcURL), to: container(dstURL)) } catch {
        guard case SecureFilesError.noSuchFile = error, let item = nativeItem(srcURL, files) else {
          throw error
        }
        try bring(item, to: dstURL.path(percentEncoded: false))
      }
    }
  }

  // MARK: Directories

  /// Makes a directory. Throws for one that is there, unless intermediate ones are made, too.
  public func createDirectory(
    atPath path: String, withIntermediateDirectories createIntermediates: Bool,
    attributes: [FileAttributeKey: Any]? = nil
  ) throws {
    try performing(on: [path]) {
      try $0.createDirectory(
        atPath: container(path), withIntermediateDirectories: createIntermediates, attributes: attributes)
    }
  }

  /// Makes a directory. Throws for one that is there, unless intermediate ones are made, too.
  public func createDirectory(
    at url: URL, withIntermediateDirectories createIntermediates: Bool,
    attributes: [FileAttributeKey: Any]? = nil
  ) throws {
    try performing(on: [url]) {
      try $0.createDirectory(
        at: container(url), withIntermediateDirectories: createIntermediates, attributes: attributes)
    }
  }

  /// The names of what is in a directory, in no particular order. A directory of the container has
  /// none of the native one.
  public func contentsOfDirectory(atPath path: String) throws -> [String] {
    try performing(on: [path]) { files in
      do { return try files.contentsOfDirectory(atPath: container(path)) } catch {
        guard let item = nativeItem(path, files) else { throw error }
        return try FileErrors.ofFoundation { try FileManager.default.contentsOfDirectory(atPath: item.path) }
      }
    }
  }

  /// The URLs of what is in a directory, in no particular order. A directory of the container has none
  /// of the native one.
  public func contentsOfDirectory(
    at url: URL, includingPropertiesForKeys keys: [URLResourceKey]?,
    options mask: FileManager.DirectoryEnumerationOptions = []
  ) throws -> [URL] {
    try performing(on: [url]) { files in
      do {
        return try files.contentsOfDirectory(
          at: container(url), includingPropertiesForKeys: keys, options: mask
        ).map { native($0) }
      } catch {
        guard let item = nativeItem(url, files) else { throw error }
        return try FileErrors.ofFoundation {
          try FileManager.default.contentsOfDirectory(
            at: URL(fileURLWithPath: item.path, isDirectory: true), includingPropertiesForKeys: keys,
            options: mask)
        }
      }
    }
  }

  /// The paths of everything below a directory, relative to it.
  public func subpathsOfDirectory(atPath path: String) throws -> [String] {
    try performing(on: [path]) { try $0.subpathsOfDirectory(atPath: container(path)) }
  }

  /// The paths of everything below a directory, relative to it; nil when it cannot be read.
  public func subpaths(atPath path: String) -> [String]? {
    optional { $0.subpaths(atPath: container(path)) }
  }

  // MARK: Standard directories

  /// The directory with its native path, whether it is there or not; none for one that a container
  /// has no place for.
  public func urls(
    for directory: FileManager.SearchPathDirectory, in domainMask: FileManager.SearchPathDomainMask
  ) -> [URL] {
    (optional { $0.urls(for: directory, in: domainMask) } ?? []).map { native($0) }
  }

  /// The directory with its native path; with `shouldCreate` it is made when it is missing.
  public func url(
    for directory: FileManager.SearchPathDirectory, in domain: FileManager.SearchPathDomainMask,
    appropriateFor url: URL?, create shouldCreate: Bool
  ) throws -> URL {
    try performing(on: url.map { [$0] } ?? []) { files in
      native(
        try files.url(
          for: directory, in: domain, appropriateFor: url.map { container($0) }, create: shouldCreate))
    }
  }
}
