/// Progress, cancellation and error handling of a bulk operation.
public struct BulkControl {
  /// Called on the calling thread, at most about twenty times a second, and once at the end.
  public var progress: ((BulkProgress) -> Void)?
  public var cancellation: Cancellation?
  /// Called on the calling thread with the error of each file and directory that is left out: below
  /// an exported one because it is damaged, below an imported one because it cannot be read or
  /// stored. Everything else is copied. Nil: the first of them ends the work, and nothing of it is
  /// left.
  public var skipping: ((ContainerError) -> Void)?
  /// Whether files and links that are at the destination stay as they are, for an import or export.
  /// Directories are merged in any case.
  public var keepsExisting = false
  /// Called on the calling thread with each item that an import or export has copied, when it is
  /// complete; with directories that were there already, too.
  public var copied: ((BulkItem) -> Void)?

  public init(
    progress: ((BulkProgress) -> Void)? = nil, cancellation: Cancellation? = nil,
    skipping: ((ContainerError) -> Void)? = nil
  ) {
    self.progress = progress
    self.cancellation = cancellation
    self.skipping = skipping
  }
}

/// An item that was imported or exported.
public struct BulkItem: Sendable {
  /// The path in the container below what was named; empty for that itself.
  public var path: String
  /// The same in the native file system, where it differs: names that are not UTF-8 are escaped.
  public var nativePath: String
  public var kind: FileKind
  /// Nanoseconds since 1970-01-01 UTC.
  public var modified: Int64

  init(_ names: [FileName], _ kind: FileKind, modified: Int64) {
    path = names.map(\.description).joined(separator: "/")
    nativePath = names.map(\.native.text).joined(separator: "/")
    self.kind = kind
    self.modified = modified
  }
}
