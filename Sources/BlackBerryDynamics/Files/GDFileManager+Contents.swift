import SecureFiles

extension GDFileManager {
  /// Makes a file, or replaces the one that is there. Returns false when that fails, as for a
  /// missing directory, and logs the kind of the failure.
  @discardableResult
  public func createFile(
    atPath path: String, contents data: Data?, attributes attr: [FileAttributeKey: Any]? = nil
  ) -> Bool {
    do {
      let (files, place) = (try files(), container(path))
      if files.createFile(atPath: place, contents: data, attributes: attr) { return true }
      let parent = (place as NSString).deletingLastPathComponent
      log(
        !place.isEmpty && files.fileExists(atPath: parent)
          ? "createFile has failed" : "createFile has failed: its directory is missing")
    } catch {
      log("createFile has failed", error)
    }
    return false
  }

  /// The whole file; nil when it cannot be read. A native one with more than 1 GiB is not.
  public func contents(atPath path: String) -> Data? {
    optional { files in
      if let contents = files.contents(atPath: container(path)) { return contents }
      return try nativeItem(path, files)?.open().bytes(at: 0)
    }
  }

  /// Whether both have the same contents. A native directory equals nothing.
  public func contentsEqual(atPath path1: String, andPath path2: String) -> Bool {
    optional { files in
      if files.contentsEqual(atPath: container(path1), andPath: container(path2)) { return true }
      let (item1, item2) = (nativeItem(path1, files), nativeItem(path2, files))
      guard item1 != nil || item2 != nil else { return false }
      return try contentsEqual(path1, item1, path2, item2, in: files)
    } ?? false
  }

  // MARK: Questions

  /// Whether something is there, after links of the container.
  public func fileExists(atPath path: String) -> Bool { exists(path, nil) }

  /// The same, and whether that is a directory.
  public func fileExists(atPath path: String, isDirectory: UnsafeMutablePointer<ObjCBool>?) -> Bool {
    exists(path, isDirectory)
  }

  private func exists(
    _ path: String, _ isDirectory: UnsafeMutablePointer<ObjCBool>?, _ call: StaticString = #function
  ) -> Bool {
    optional(call) { files in
      if files.fileExists(atPath: container(path), isDirectory: isDirectory) { return true }
      guard let item = nativeItem(path, files) else { return false }
      isDirectory?.pointee = ObjCBool(item.kind == .directory)
      return true
    } ?? false
  }

  /// Whether the item's permissions let its owner read it; of a native item, whether the system lets
  /// this process read it.
  public func isReadableFile(atPath path: String) -> Bool {
    optional { files in
      files.isReadableFile(atPath: container(path)) || nativeItem(path, files)?.isReadable ?? false
    } ?? false
  }

  /// Whether the item's permissions let its owner write it. False for native items.
  public func isWritableFile(atPath path: String) -> Bool {
    optional { $0.isWritableFile(atPath: container(path)) } ?? false
  }

  /// Whether the item's permissions let its owner execute it. False for native items.
  public func isExecutableFile(atPath path: String) -> Bool {
    optional { $0.isExecutableFile(atPath: container(path)) } ?? false
  }

  /// Whether the item can be removed. False for native items.
  public func isDeletableFile(atPath path: String) -> Bool {
    optional { $0.isDeletableFile(atPath: container(path)) } ?? false
  }

  // MARK: Attributes

  /// Type, size in bytes, dates, permissions and others; see `SecureFileManager.attributesOfItem`. Of
  /// a native item those of Foundation, as the system states them.
  public func attributesOfItem(atPath path: String) throws -> [FileAttributeKey: Any] {
    try performing(on: [path]) { files in
      do { return try files.attributesOfItem(atPath: container(path)) } catch {
        guard let item = nativeItem(path, files) else { throw error }
        return try attributes(of: item)
      }
    }
  }

  /// Sets dates and permissions, and passes over others.
  public func setAttributes(
    _ attributes: [FileAttributeKey: Any], ofItemAtPath path: String
  ) throws {
    try performing(on: [path]) { try $0.setAttributes(attributes, ofItemAtPath: container(path)) }
  }

  /// Sizes and free space in bytes, of the file system that the container lies on.
  public func attributesOfFileSystem(forPath path: String) throws -> [FileAttributeKey: Any] {
    try performing(on: [path]) { try $0.attributesOfFileSystem(forPath: container(path)) }
  }
}
