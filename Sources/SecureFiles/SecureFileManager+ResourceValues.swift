import ContainerStore
public import Foundation

extension SecureFileManager {
  /// What is known of an item, under Foundation's names: those of the keys that were asked for and that a container knows.
  public struct ResourceValues {
    /// By key, those that were asked for and that there are.
    public let allValues: [URLResourceKey: Any]

    private func value<Value>(_ key: URLResourceKey) -> Value? { allValues[key] as? Value }

    /// The last part of the path, like the next; `/` for the root.
    public var name: String? { value(.nameKey) }
    /// The same as ``name``: nothing is translated.
    public var localizedName: String? { value(.localizedNameKey) }
    /// Absolute, of the container.
    public var path: String? { value(.pathKey) }
    /// Nil for the root.
    public var parentDirectory: URL? { value(.parentDirectoryURLKey) }
    /// Of the item itself: false for a link, wherever it leads.
    public var isRegularFile: Bool? { value(.isRegularFileKey) }
    /// Of the item itself: false for a link, wherever it leads.
    public var isDirectory: Bool? { value(.isDirectoryKey) }
    /// Whether the item is a link.
    public var isSymbolicLink: Bool? { value(.isSymbolicLinkKey) }
    /// True for the root alone.
    public var isVolume: Bool? { value(.isVolumeKey) }
    /// Always false.
    public var isPackage: Bool? { value(.isPackageKey) }
    /// Whether the name begins with a dot.
    public var isHidden: Bool? { value(.isHiddenKey) }
    /// By the owner's bit, which keeps nobody from anything.
    public var isReadable: Bool? { value(.isReadableKey) }
    /// By the owner's bit, and false in a container that is open for reading.
    public var isWritable: Bool? { value(.isWritableKey) }
    /// By the owner's bit.
    public var isExecutable: Bool? { value(.isExecutableKey) }
    /// Always false.
    public var isUbiquitousItem: Bool? { value(.isUbiquitousItemKey) }
    /// Bytes of contents; nil for a directory.
    public var fileSize: Int? { value(.fileSizeKey) }
    /// The same as ``fileSize``.
    public var totalFileSize: Int? { value(.totalFileSizeKey) }
    /// How many names the file has.
    public var linkCount: Int? { value(.linkCountKey) }
    /// File, directory or symbolic link.
    public var fileResourceType: URLFileResourceType? { value(.fileResourceTypeKey) }
    /// The same for all names of a file.
    public var fileResourceIdentifier: NSNumber? { value(.fileResourceIdentifierKey) }
    /// When it was made, or what was set.
    public var creationDate: Date? { value(.creationDateKey) }
    /// When its contents, or what is directly in it, last changed, or what was set.
    public var contentModificationDate: Date? { value(.contentModificationDateKey) }
    /// When anything about it last changed; cannot be set.
    public var attributeModificationDate: Date? { value(.attributeModificationDateKey) }
    /// Whether the container is open for reading only.
    public var volumeIsReadOnly: Bool? { value(.volumeIsReadOnlyKey) }
    /// Bytes, like the other capacity.
    public var volumeTotalCapacity: Int? { value(.volumeTotalCapacityKey) }
    /// Bytes that are free on the native file system beneath.
    public var volumeAvailableCapacity: Int? { value(.volumeAvailableCapacityKey) }
  }

  /// What `keys` ask for, of the item itself when it is a link. Keys that a container has no value for have none in the result. Throws
  /// `CocoaError` with `fileReadNoSuchFile`.
  public func resourceValues(forKeys keys: Set<URLResourceKey>, at url: URL) throws -> ResourceValues {
    try reading(at: url) { try resourceValues(forKeys: keys, atPath: $0) }
  }

  /// ``resourceValues(forKeys:at:)`` for a path.
  public func resourceValues(forKeys keys: Set<URLResourceKey>, atPath path: String) throws -> ResourceValues
  {
    try reading(path) { place in
      let found = try existing(place)
      let statistics =
        keys.isDisjoint(with: [.volumeTotalCapacityKey, .volumeAvailableCapacityKey])
        ? nil : try store.statistics()
      var values: [URLResourceKey: Any] = [:]
      for key in keys { values[key] = value(of: key, place, found, statistics) }
      return ResourceValues(allValues: values)
    }
  }

  private func value(
    of key: URLResourceKey, _ place: String, _ found: FileAttributes, _ statistics: ContainerStatistics?
  ) -> Any? {
    let components = place.pathComponents
    switch key {
    case .nameKey, .localizedNameKey: return components.last ?? "/"
    case .pathKey: return place.withoutTrailingSlashes
    case .parentDirectoryURLKey:
      guard !components.isEmpty else { return nil }
      return url(forPath: "/" + components.dropLast().joined(separator: "/"), isDirectory: true)
    case .isRegularFileKey: return found.kind == .file
    case .isDirectoryKey: return found.kind == .directory
    case .isSymbolicLinkKey: return found.kind == .symbolicLink
    case .isVolumeKey: return components.isEmpty
    case .isPackageKey, .isUbiquitousItemKey: return false
    case .isHiddenKey: return components.last?.utf8.first == UInt8(ascii: ".")
    case .isReadableKey: return isReadableFile(atPath: place)
    case .isWritableKey: return isWritableFile(atPath: place)
    case .isExecutableKey: return isExecutableFile(atPath: place)
    case .fileSizeKey, .totalFileSizeKey: return found.kind == .directory ? nil : Int(found.size)
    case .linkCountKey: return found.linkCount
    case .fileResourceTypeKey:
      return switch found.kind {
      case .file: URLFileResourceType.regular
      case .directory: URLFileResourceType.directory
      case .symbolicLink: URLFileResourceType.symbolicLink
      }
    case .fileResourceIdentifierKey: return NSNumber(value: found.id)
    case .creationDateKey: return Date(nanoseconds: found.created)
    case .contentModificationDateKey: return Date(nanoseconds: found.modified)
    case .attributeModificationDateKey: return Date(nanoseconds: found.changed)
    case .volumeIsReadOnlyKey: return store.mode == .readOnly
    case .volumeTotalCapacityKey: return statistics.map { Int(clamping: $0.byteCount) }
    case .volumeAvailableCapacityKey: return statistics.map { Int(clamping: $0.freeByteCount) }
    default: return nil
    }
  }
}
