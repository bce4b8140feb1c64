import ContainerStore

/// An item that `cp` copies.
struct CopyItem {
  /// Below what was named; empty for itself.
  var relative: String
  /// The same where it is not in a container.
  var nativeRelative: String
  var kind: FileKind
  var size: UInt64
  var permissions: UInt16
  /// Nanoseconds since 1970, like the other date; nil when it is not known.
  var created: Int64?
  var modified: Int64
}

extension CopyItem {
  /// A link, of which only the path matters.
  init(link relative: String) {
    self.init(
      relative: relative, nativeRelative: relative, kind: .symbolicLink, size: 0, permissions: 0o777,
      created: nil,
      modified: 0)
  }

  /// An item that an import or export has copied, with its permissions.
  init(_ item: BulkItem) {
    self.init(
      relative: item.path, nativeRelative: item.nativePath, kind: item.kind, size: 0, permissions: 0,
      created: nil,
      modified: item.modified)
  }

  init(_ relative: String, _ attributes: FileAttributes) {
    self.init(
      relative: relative, nativeRelative: relative, kind: attributes.kind,
      size: attributes.kind == .file ? attributes.size : 0,
      permissions: attributes.permissions, created: attributes.created, modified: attributes.modified)
  }
}
