import CPosix
import EncryptedFile
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// An item of the native file system and everything below it, parents first.
struct NativeTree: Sendable {
  let root: String
  private(set) var items: [NativeItem] = []

  var top: NativeItem { items[0] }

  /// Lists the item at a path and everything below it. A link at the path itself is followed.
  /// Throws `noSuchFile`, and `cannotStore` for pipes and devices, for names that are not UTF-8,
  /// and for targets of links that do not have 1 to 4096 bytes of UTF-8.
  init(_ root: String) throws {
    self.root = root
    var status = stat()
    guard stat(root, &status) == 0 else { throw Self.failure("stat", root) }
    try Self.checkKind(status, root)
    items.append(NativeItem(parent: 0, name: nil, status: status))
    var next = 0
    while next < items.count {
      defer { next += 1 }
      guard items[next].kind == .directory else { continue }
      let directory = path(of: next)
      for name in try Self.fileNames(in: directory).sorted() {
        let path = directory + "/" + name.description
        guard lstat(path, &status) == 0 else { throw Self.failure("lstat", path) }
        try Self.checkKind(status, path)
        var item = NativeItem(parent: next, name: name, status: status)
        if item.kind == .symbolicLink { item.target = try Self.target(of: path) }
        items.append(item)
      }
    }
  }

  /// The item's path relative to the top, as names; empty for the top itself.
  func names(of index: Int) -> [FileName] {
    var names: [FileName] = []
    var index = index
    while let name = items[index].name {
      names.append(name)
      index = Int(items[index].parent)
    }
    return names.reversed()
  }

  private func path(of index: Int) -> String {
    ([root] + names(of: index).map(\.description)).joined(separator: "/")
  }

  private static func checkKind(_ status: stat, _ path: String) throws {
    switch status.st_mode & S_IFMT {
    case S_IFREG, S_IFDIR, S_IFLNK: break
    default: throw ContainerError(.cannotStore, nativePath: path, detail: "neither a file nor a directory")
    }
  }

  private static func target(of path: String) throws -> [UInt8] {
    var target = [UInt8](repeating: 0, count: Inode.targetByteCountMax + 1)
    let count = target.withUnsafeMutableBytes {
      readlink(path, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count)
    }
    guard count >= 0 else { throw failure("readlink", path) }
    target.removeLast(target.count - count)
    guard (1...Inode.targetByteCountMax).contains(count), String(validating: target, as: UTF8.self) != nil
    else {
      throw ContainerError(
        .cannotStore, nativePath: path,
        detail: "a symbolic link whose target has not 1 to \(Inode.targetByteCountMax) bytes of UTF-8")
    }
    return target
  }

  private static func fileNames(in directory: String) throws -> [FileName] {
    guard let stream = opendir(directory) else { throw failure("opendir", directory) }
    defer { closedir(stream) }
    var names: [FileName] = []
    while true {
      errno = 0  // readdir(3) reports a failure only in errno
      guard let entry = readdir(stream) else {
        let code = errno
        if code != 0 { throw failure("readdir", directory, code) }
        return names
      }
      let bytes = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
      guard let name = FileName(bytes: bytes) else { continue }  // . and ..
      guard String(validating: bytes, as: UTF8.self) != nil else {
        throw ContainerError(
          .cannotStore, nativePath: directory + "/" + name.description, detail: "its name is not UTF-8")
      }
      names.append(name)
    }
  }

  /// Fills the buffer from byte `offset` of a file on. Throws `sourceChanged` if the file has
  /// changed since it was listed.
  func read(_ index: Int, into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64) throws {
    let path = path(of: index)
    // O_NONBLOCK: if the file was replaced by a pipe, opening it must not wait.
    let descriptor = cposix_open(path, O_RDONLY | O_NONBLOCK | (index == 0 ? 0 : O_NOFOLLOW), 0)
    guard descriptor >= 0 else { throw Self.failure("open", path, -descriptor) }
    defer { close(descriptor) }
    let count = try Self.naming(path) { () throws(IOFailure) in
      try readFully(descriptor, into: buffer, at: offset, name: Self.anyFile)
    }
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { throw Self.failure("fstat", path) }
    guard count == buffer.count, items[index].isUnchanged(status) else {
      throw ContainerError(.sourceChanged, nativePath: path)
    }
  }

  /// Replaces the path in descriptions: a path below an exported folder has names from inside the
  /// container.
  static let anyFile = "the native file"

  static func failure(_ operation: String, _ path: String, _ code: Int32 = errno) -> ContainerError {
    failure(IOFailure(operation, anyFile, errno: code), path)
  }

  private static func failure(_ failure: IOFailure, _ path: String) -> ContainerError {
    switch failure.errno {
    case ENOENT: return ContainerError(.noSuchFile, nativePath: path)
    case ENOTDIR: return ContainerError(.notADirectory, nativePath: path)
    default:
      let error = ContainerError.from(failure)
      return ContainerError(error.code, nativePath: path, detail: error.detail, cause: failure)
    }
  }

  /// Adds the native path to a failed system call in `body`, which would otherwise be taken for a
  /// failure in the container.
  static func naming<R>(_ path: String, _ body: () throws(IOFailure) -> R) throws -> R {
    do throws(IOFailure) { return try body() } catch { throw failure(error, path) }
  }
}

/// The stored permissions that a native file or directory receives, before the umask. A file from
/// any sender is not writable for everybody and has no set-id and sticky bits.
package enum NativePermissions {
  package static let mask: UInt16 = 0o775
}
