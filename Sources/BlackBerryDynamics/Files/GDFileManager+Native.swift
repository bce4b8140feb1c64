import AppRuntime
import SecureFiles

/// Steps of members that also read native files.
extension GDFileManager {
  /// Whether the container has nothing of that path, not even a link. False when it does not tell.
  func isAbsent(_ place: String, in files: SecureFileManager) -> Bool {
    do {
      _ = try files.attributesOfItem(atPath: place)
      return false
    } catch SecureFilesError.noSuchFile {
      return true
    } catch {
      return false
    }
  }

  /// The attributes of a native item. Numbers are `NSNumber`s, as those of the container are; Foundation
  /// on Linux has integers of several types.
  func attributes(of item: NativeItem) throws -> [FileAttributeKey: Any] {
    try FileErrors.ofFoundation { try FileManager.default.attributesOfItem(atPath: item.path) }.mapValues {
      guard !(type(of: $0) is AnyClass), let number = $0 as? any BinaryInteger else { return $0 }
      return Int64(exactly: number).map { NSNumber(value: $0) } ?? NSNumber(value: UInt64(clamping: number))
    }
  }

  // MARK: Into the container

  /// Copies a native file or directory to a path of the container that is free, in one commit. The
  /// directory of a file has to be there; those on the way to a directory are made.
  func bring(
    _ item: NativeItem, to destination: String, _ call: StaticString = #function
  ) throws {
    let store = try HostedApp.current.opened("GDFileManager.\(call)").container.store
    let place = container(destination)
    if item.kind == .directory, item.mayHide(HostedApp.current.nativeFiles?.hidden ?? []) {
      throw FileErrors.of(
        .notSupported, "this native directory may hold what is not for the container: copy what is in it")
    }
    do {
      guard !place.isEmpty else { throw ContainerError(.noSuchFile, path: place) }
      if try store.attributes(at: place.withoutSlashesAtEnd ?? "/") != nil {
        throw ContainerError(.fileExists, path: place)
      }
      if item.kind == .file {
        let parent = (place as NSString).deletingLastPathComponent
        guard let found = try store.attributes(at: parent, followingLinks: true) else {
          throw ContainerError(.noSuchFile, path: place)
        }
        guard found.kind == .directory else { throw ContainerError(.notADirectory, path: place) }
      }
      var control = BulkControl()
      // Something may be made there meanwhile: it stays.
      control.keepsExisting = true
      let receipt = try store.importItem(at: item.path, to: place, control: control)
      if item.kind == .file, receipt.fileCount != 1 { throw ContainerError(.fileExists, path: place) }
    } catch let error as ContainerError {
      let native = error.path.flatMap { $0.hasPrefix(item.path) ? $0 : nil }
      throw FileErrors.of(error, path: native ?? destination)
    }
  }

  /// Copies a native file into the container, and removes the original once the copy is durable. When
  /// the original cannot be removed or was changed meanwhile, the copy is removed again.
  func bringAndRemove(
    _ item: NativeItem, to destination: String, _ call: StaticString = #function
  ) throws {
    guard item.kind == .file else {
      throw FileErrors.of(
        .notSupported, "a native directory cannot be moved into the container: copy it, and remove it")
    }
    try item.requireRemovable()
    // Open until the end, so that no other file gets the number of this one.
    let original = try item.open()
    let before = try original.status()
    try bring(item, to: destination, call)
    try withExtendedLifetime(original) {
      do {
        try HostedApp.current.opened("GDFileManager.\(call)").container.store.synchronize()
        try item.remove(ifStill: before)
      } catch {
        let isRemoved: Void? = optional(call) { try $0.removeItem(atPath: container(destination)) }
        if isRemoved == nil { log("a copy of a native file that could not be moved stays", error) }
        if let error = error as? ContainerError { throw FileErrors.of(error, path: destination) }
        throw error
      }
    }
  }

  // MARK: Comparing

  /// Whether two files have the same contents, of which at least one is native. False for directories,
  /// and when one cannot be read.
  func contentsEqual(
    _ path1: String, _ item1: NativeItem?, _ path2: String, _ item2: NativeItem?,
    in files: SecureFileManager
  ) throws -> Bool {
    let first = try source(path1, item1, in: files)
    let second = try source(path2, item2, in: files)
    var (bytes1, bytes2) = ([UInt8](repeating: 0, count: 64 << 10), [UInt8](repeating: 0, count: 64 << 10))
    var offset: UInt64 = 0
    while true {
      let count1 = try bytes1.withUnsafeMutableBytes { try first($0, offset) }
      let count2 = try bytes2.withUnsafeMutableBytes { try second($0, offset) }
      guard count1 == count2, bytes1[..<count1] == bytes2[..<count2] else { return false }
      if count1 < bytes1.count { return true }
      offset += UInt64(count1)
    }
  }

  /// Fills a buffer from an offset on, fewer bytes at the end alone.
  private typealias Source = (UnsafeMutableRawBufferPointer, UInt64) throws -> Int

  private func source(
    _ path: String, _ item: NativeItem?, in files: SecureFileManager
  ) throws -> Source {
    if let item {
      let file = try item.open()
      return { try file.read(into: $0, at: $1) }
    }
    let handle = try SecureFileHandle(forReadingFrom: url(path), in: files)
    // The offset moves along.
    return { buffer, _ in try handle.read(into: buffer) }
  }
}
