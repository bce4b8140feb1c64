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
  /// Throws `noSuchFile`, and `cannotStore` for pipes and devices, for names that are not UTF-8, for
  /// targets of links that do not have 1 to 4096 bytes of UTF-8, and for the directory `excluded`,
  /// which is that of the container. With `skipping`, what is below the item is left out instead.
  init(_ root: String, excluding excluded: FileIdentity? = nil, skipping: ((ContainerError) -> Void)? = nil)
    throws
  {
    self.root = root
    var status = stat()
    guard stat(root, &status) == 0 else { throw Self.failure("stat", root) }
    try Self.check(status, root, excluded)
    items.append(NativeItem(parent: 0, name: nil, status: status))
    func leavingOut(_ body: () throws -> Void) throws {
      do { try body() } catch let error as ContainerError {
        guard let skipping, error.isOfSource else { throw error }
        skipping(error)
      }
    }
    var next = 0
    while next < items.count {
      defer { next += 1 }
      guard items[next].kind == .directory else { continue }
      let directory = path(of: next)
      var names: [FileName] = []
      try leavingOut {
        try Self.readNames(in: directory) { name in try leavingOut { names.append(try name()) } }
      }
      for name in names.sorted() {
        let path = directory + "/" + name.description
        try leavingOut {
          guard lstat(path, &status) == 0 else { throw Self.failure("lstat", path) }
          try Self.check(status, path, excluded)
          var item = NativeItem(parent: next, name: name, status: status)
          if item.kind == .symbolicLink { item.target = try Self.target(of: path) }
          items.append(item)
        }
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

  static func leftOutWithAnotherName(_ path: String) -> ContainerError {
    ContainerError(.cannotStore, nativePath: path, detail: "another name of this file was left out")
  }

  func path(of index: Int) -> String {
    ([root] + names(of: index).map(\.description)).joined(separator: "/")
  }

  private static func check(_ status: stat, _ path: String, _ excluded: FileIdentity?) throws {
    switch status.st_mode & S_IFMT {
    case S_IFREG, S_IFLNK: break
    case S_IFDIR:
      guard FileIdentity(status) == excluded else { break }
      throw ContainerError(.cannotStore, nativePath: path, detail: "it is the container itself")
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

  /// Calls `body` with each name, which throws when it cannot be stored.
  private static func readNames(
    in directory: String, _ body: (_ name: () throws -> FileName) throws -> Void
  ) throws {
    guard let stream = opendir(directory) else { throw failure("opendir", directory) }
    defer { closedir(stream) }
    while true {
      errno = 0  // readdir(3) reports a failure only in errno
      guard let entry = readdir(stream) else {
        let code = errno
        if code != 0 { throw failure("readdir", directory, code) }
        return
      }
      let bytes = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
      guard let name = FileName(bytes: bytes) else { continue }  // . and ..
      try body {
        guard String(validating: bytes, as: UTF8.self) != nil else {
          throw ContainerError(
            .cannotStore, nativePath: directory + "/" + name.description, detail: "its name is not UTF-8")
        }
        return name
      }
    }
  }

  /// Fills the buffer from byte `offset` of a file on. Throws `sourceChanged` if the file has
  /// changed since it was listed, or has other contents than its size says: /proc and some FUSE file
  /// systems state 0.
  func read(_ index: Int, into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64) throws {
    let path = path(of: index)
    let descriptor = try open(index, path)
    defer { close(descriptor) }
    let isLast = offset + UInt64(buffer.count) >= items[index].size
    let count = try Self.naming(path) { () throws(IOFailure) in
      try isLast
        ? Self.readPast(descriptor, into: buffer, at: offset)
        : readFully(descriptor, into: buffer, at: offset, name: Self.anyFile)
    }
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { throw Self.failure("fstat", path) }
    guard count == buffer.count, items[index].isUnchanged(status) else {
      throw ContainerError(.sourceChanged, nativePath: path)
    }
  }

  /// Fills the buffer up to the end of the file, and returns one more when the file goes on.
  private static func readPast(
    _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64
  ) throws(IOFailure) -> Int {
    var done = 0
    repeat {
      let count = cposix_read_past(
        descriptor, buffer.baseAddress.map { $0 + done }, buffer.count - done, Int64(offset) + Int64(done))
      if count < 0 { throw IOFailure("read", anyFile, errno: Int32(-count)) }
      if count == 0 { break }
      done += count
      // A count that is short, or exact, is no end: some file systems read piece by piece.
    } while done <= buffer.count
    return done
  }

  /// The ranges of a file that are no holes; nil where the file system does not tell.
  func dataRanges(_ index: Int) throws -> [Range<UInt64>]? {
    #if os(Linux)
      let descriptor = try open(index, path(of: index))
      defer { close(descriptor) }
      let size = items[index].size
      var ranges: [Range<UInt64>] = []
      var offset: off_t = 0
      while offset < size {
        let data = lseek(descriptor, offset, 3)  // SEEK_DATA
        if data < 0, errno == ENXIO { break }
        let hole = data < 0 ? -1 : lseek(descriptor, data, 4)  // SEEK_HOLE
        guard data >= offset, hole > data else { return nil }
        ranges.append(UInt64(data)..<min(UInt64(hole), size))
        offset = hole
      }
      return ranges
    #else
      return nil
    #endif
  }

  private func open(_ index: Int, _ path: String) throws -> Int32 {
    // O_NONBLOCK: if the file was replaced by a pipe, opening it must not wait.
    let descriptor = cposix_open(path, O_RDONLY | O_NONBLOCK | (index == 0 ? 0 : O_NOFOLLOW), 0)
    guard descriptor >= 0 else { throw Self.failure("open", path, -descriptor) }
    return descriptor
  }

  /// Calls `body` with the contents of a file from its first byte to its last, whatever its size is said to be, in pieces that fill
  /// the buffer but for the last. Returns the date of modification. Throws `sourceChanged` if somebody changes the file meanwhile, but
  /// not for one that grows.
  func readAll(
    _ index: Int, into buffer: UnsafeMutableRawBufferPointer,
    _ body: (UnsafeMutableRawBufferPointer, _ offset: UInt64) throws -> Void
  ) throws -> Int64 {
    let path = path(of: index)
    let descriptor = try open(index, path)
    defer { close(descriptor) }
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { throw Self.failure("fstat", path) }
    guard status.st_mode & S_IFMT == S_IFREG else { throw ContainerError(.sourceChanged, nativePath: path) }
    var offset: UInt64 = 0
    while true {
      let count = try Self.naming(path) { () throws(IOFailure) in
        try readFully(descriptor, into: buffer, at: offset, name: Self.anyFile)
      }
      if count > 0 { try body(UnsafeMutableRawBufferPointer(rebasing: buffer[..<count]), offset) }
      offset += UInt64(count)
      if count < buffer.count { break }
    }
    var after = stat()
    guard fstat(descriptor, &after) == 0 else { throw Self.failure("fstat", path) }
    let isUnchanged =
      after.st_size == status.st_size && NativeTime.modified(after) == NativeTime.modified(status)
    // Where no size is stated, dates say nothing either.
    guard isUnchanged || after.st_size > status.st_size || status.st_size == 0 else {
      throw ContainerError(.sourceChanged, nativePath: path)
    }
    return NativeTime.modified(status)
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
