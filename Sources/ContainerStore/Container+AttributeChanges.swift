/// Attributes that an item is to get; nil leaves one as it is.
public struct AttributeChanges: Sendable {
  /// Nanoseconds since 1970-01-01 UTC, like the other date.
  public var created: Int64?
  public var modified: Int64?
  /// POSIX bits.
  public var permissions: UInt16?
  /// Extended attributes, set beside those that are there; nil removes one.
  public var extended: [String: [UInt8]?]

  public init(
    created: Int64? = nil, modified: Int64? = nil, permissions: UInt16? = nil,
    extended: [String: [UInt8]?] = [:]
  ) {
    self.created = created
    self.modified = modified
    self.permissions = permissions
    self.extended = extended
  }

  public var isEmpty: Bool { created == nil && modified == nil && permissions == nil && extended.isEmpty }

  private static let extendedByteCountMax = 32_768

  /// Throws `invalidName` for the name of an extended attribute that has not 1 to 255 bytes, `invalidArgument` for a value of more
  /// than 32,768.
  func check(_ path: String) throws {
    for (name, value) in extended {
      guard (1...FileName.byteCountMax).contains(name.utf8.count), !name.utf8.contains(0) else {
        throw ContainerError(
          .invalidName, path: path, detail: "the name of an attribute has 1 to \(FileName.byteCountMax) bytes"
        )
      }
      guard (value?.count ?? 0) <= Self.extendedByteCountMax else {
        throw ContainerError(
          .invalidArgument, path: path,
          detail: "an attribute has at most \(Self.extendedByteCountMax) bytes")
      }
    }
  }
}

extension Container {
  /// Sets attributes of every kind in one commit. Follows symbolic links. Throws `noSuchFile`, `invalidName`, `invalidArgument`.
  public func setAttributes(_ changes: AttributeChanges, at path: String) throws {
    let place = try StorePath(path)
    try changes.check(path)
    try namingPath(path) {
      // Else what was written before would set the date after this.
      try writeBack()
      try transaction { transaction in
        let file = try transaction.existing(place).id
        try transaction.checkNames(of: changes.extended, for: file, at: path)
        try transaction.apply(changes, to: file)
      }
    }
  }
}

extension Transaction {
  func apply(_ changes: AttributeChanges, to file: UInt64) throws {
    guard !changes.isEmpty else { return }
    var inode = try inode(file)
    if let created = changes.created { inode.created = created }
    if let modified = changes.modified { inode.modified = modified }
    if let permissions = changes.permissions { inode.permissions = permissions & 0o7777 }
    inode.changed = now
    put(file, inode)
    for (name, value) in changes.extended { putAttribute(of: file, Array(name.utf8), value) }
  }
}
