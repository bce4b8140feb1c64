import ContainerStore
public import Foundation

extension SecureFileManager {
  /// Creates a file, or replaces the one that is there, in one commit with its attributes; false when it cannot be. A symbolic link is
  /// replaced itself. Without permissions only its owner may read and write it.
  @discardableResult
  public func createFile(
    atPath path: String, contents: Data?, attributes: [FileAttributeKey: Any]? = nil
  ) -> Bool {
    do {
      try (contents ?? Data()).withUnsafeBytes {
        try store.write(
          $0, to: place(path), attributes: AttributeChanges(attributes ?? [:]), followingLinks: false)
      }
      return true
    } catch {
      return false
    }
  }

  /// ``createFile(atPath:contents:attributes:)`` for a URL.
  @discardableResult
  public func createFile(at url: URL, contents: Data?, attributes: [FileAttributeKey: Any]? = nil) -> Bool {
    guard let path = try? path(for: url, .writing) else { return false }
    return createFile(atPath: path, contents: contents, attributes: attributes)
  }

  /// Creates a file, or replaces the one that is there, in one step; follows a symbolic link. Throws `CocoaError` with
  /// `fileNoSuchFile` when the directory is missing, `fileWriteUnknown` for a directory, `fileWriteOutOfSpace`.
  public func write(_ data: Data, toPath path: String) throws {
    try writing(path) { place in try data.withUnsafeBytes { try store.write($0, to: place) } }
  }

  /// ``write(_:toPath:)`` for a URL: what `data.write(to:options: .atomic)` is for a native one.
  public func write(_ data: Data, to url: URL) throws {
    try writing(at: url) { try write(data, toPath: $0) }
  }

  /// The whole file, or nil when it cannot be read.
  public func contents(atPath path: String) -> Data? { try? data(atPath: path) }

  /// ``contents(atPath:)`` for a URL.
  public func contents(at url: URL) -> Data? { try? data(at: url) }

  /// The whole file. Throws `CocoaError` with `fileReadNoSuchFile`, `fileReadUnknown` for a directory, `fileReadCorruptFile`.
  public func data(atPath path: String) throws -> Data {
    try reading(path) { place in
      var memory: UnsafeMutableRawBufferPointer?
      do {
        try store.read(place) { byteCount in
          guard UInt64(byteCount) <= ProcessInfo.processInfo.physicalMemory else {
            throw SecureFilesError(
              .invalidArgument, path: place,
              detail: "the file has \(byteCount) bytes, more than there is memory: read it in pieces")
          }
          let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: byteCount, alignment: 16)
          memory = buffer
          return buffer
        }
      } catch {
        memory?.deallocate()
        throw error
      }
      guard let memory, let start = memory.baseAddress, !memory.isEmpty else {
        memory?.deallocate()
        return Data()
      }
      return Data(
        bytesNoCopy: start, count: memory.count, deallocator: .custom { bytes, _ in bytes.deallocate() })
    }
  }

  /// ``data(atPath:)`` for a URL: what `Data(contentsOf:)` is for a native one.
  public func data(at url: URL) throws -> Data { try reading(at: url) { try data(atPath: $0) } }

  /// Whether two files have the same bytes, two links the same target, or two directories the same names with equal items; false when
  /// one cannot be read. Links are not followed. In constant memory but for names.
  public func contentsEqual(atPath path1: String, andPath path2: String) -> Bool {
    (try? store.contentsEqual(place(path1), place(path2))) ?? false
  }

  /// ``contentsEqual(atPath:andPath:)`` for URLs; false for one of another container.
  public func contentsEqual(at url1: URL, and url2: URL) -> Bool {
    guard let path1 = try? path(for: url1), let path2 = try? path(for: url2) else { return false }
    return contentsEqual(atPath: path1, andPath: path2)
  }
}
