/// Metadata of a file, read without opening the file. Example: name, size and date of each item in
/// a folder (`store` is the ``Container``):
///
/// ```swift
/// import ContainerStore
/// import Foundation
///
/// let store = container.store
/// for file in try store.list("/Documents") {
///   let date = Date(timeIntervalSince1970: Double(file.attributes.modified) / 1e9)
///   print(file.path, file.attributes.size, date.formatted(.iso8601))
/// }
/// ```
public struct FileAttributes: Sendable, Equatable {
  public var id: UInt64
  public var kind: FileKind
  /// Bytes of contents; 0 for directories.
  public var size: UInt64
  /// Nanoseconds since 1970-01-01 UTC, as in the other dates.
  public var created: Int64
  public var modified: Int64
  public var changed: Int64
  /// POSIX permission bits.
  public var permissions: UInt16
  public var linkCount: Int

  init(_ found: FoundFile) {
    id = found.id
    kind = found.inode.kind
    size = found.inode.size
    created = found.inode.created
    modified = found.inode.modified
    changed = found.inode.changed
    permissions = found.inode.permissions
    linkCount = Int(found.inode.linkCount)
  }
}
