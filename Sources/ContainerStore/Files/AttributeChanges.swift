/// Attributes to set on an item; nil leaves an attribute unchanged.
public struct AttributeChanges: Sendable {
  /// Nanoseconds since 1970-01-01 UTC, as in `modified`.
  public var created: Int64?
  public var modified: Int64?
  /// POSIX permission bits.
  public var permissions: UInt16?
  /// Extended attributes to add to the existing ones; a nil value removes the attribute.
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

  /// Throws `invalidName` unless the name of each extended attribute has 1 to 255 bytes and no NUL,
  /// and `invalidArgument` for a value of more than 32,768 bytes.
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
