import ContainerStore
public import Foundation

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

extension FileAttributeKey {
  /// Extended attributes, as `[String: Data]`; the key that Foundation uses without a name for it.
  static let extendedAttributes = FileAttributeKey("NSFileExtendedAttributes")
}

extension SecureFileManager {
  // MARK: Looking

  /// Follows links.
  public func fileExists(atPath path: String) -> Bool { target(of: path) != nil }

  /// ``fileExists(atPath:)`` for a URL; false for one of another container.
  public func fileExists(at url: URL) -> Bool { (try? fileExists(atPath: path(for: url))) ?? false }

  /// `isDirectory` is set when there is something at the path.
  public func fileExists(atPath path: String, isDirectory: UnsafeMutablePointer<ObjCBool>?) -> Bool {
    guard let found = target(of: path) else { return false }
    isDirectory?.pointee = ObjCBool(found.kind == .directory)
    return true
  }

  /// `isDirectory` is set when there is something at the path.
  public func fileExists(atPath path: String, isDirectory: inout Bool) -> Bool {
    guard let found = target(of: path) else { return false }
    isDirectory = found.kind == .directory
    return true
  }

  /// What is at the path, after links.
  private func target(of path: String) -> FileAttributes? {
    try? store.attributes(at: place(path), followingLinks: true)
  }

  /// By the owner's bit; nobody who has the key is kept from reading.
  public func isReadableFile(atPath path: String) -> Bool { allows(path, 0o400) }

  /// By the owner's bit, and false in a container that is open for reading.
  public func isWritableFile(atPath path: String) -> Bool { store.mode == .readWrite && allows(path, 0o200) }

  /// By the owner's bit.
  public func isExecutableFile(atPath path: String) -> Bool { allows(path, 0o100) }

  private func allows(_ path: String, _ bit: UInt16) -> Bool {
    (target(of: path)?.permissions ?? 0) & bit != 0
  }

  /// Whether the directory of the item, which need not exist, is writable. As in Foundation, true for an empty path.
  public func isDeletableFile(atPath path: String) -> Bool {
    let place = path.isEmpty ? place("x") : place(path).withoutTrailingSlashes
    return place != "/" && isWritableFile(atPath: parent(of: place))
  }

  /// ``isReadableFile(atPath:)`` for a URL; false for one of another container.
  public func isReadableFile(at url: URL) -> Bool { (try? isReadableFile(atPath: path(for: url))) ?? false }
  /// ``isWritableFile(atPath:)`` for a URL; false for one of another container.
  public func isWritableFile(at url: URL) -> Bool { (try? isWritableFile(atPath: path(for: url))) ?? false }
  /// ``isExecutableFile(atPath:)`` for a URL; false for one of another container.
  public func isExecutableFile(at url: URL) -> Bool {
    (try? isExecutableFile(atPath: path(for: url))) ?? false
  }
  /// ``isDeletableFile(atPath:)`` for a URL; false for one of another container.
  public func isDeletableFile(at url: URL) -> Bool { (try? isDeletableFile(atPath: path(for: url))) ?? false }

  // MARK: Attributes

  /// `.type`, `.size`, `.creationDate`, `.modificationDate`, `.posixPermissions`, `.referenceCount`, `.systemFileNumber`,
  /// `.systemNumber`, `.ownerAccountID`, `.groupOwnerAccountID`, and extended attributes as `[String: Data]` under
  /// `FileAttributeKey("NSFileExtendedAttributes")` when there are any. Numbers are `NSNumber`. Of a link, its own.
  public func attributesOfItem(atPath path: String) throws -> [FileAttributeKey: Any] {
    try reading(path) { place in
      var attributes = dictionary(try existing(place))
      let extended = try store.extendedAttributes(at: place)
      if !extended.isEmpty { attributes[.extendedAttributes] = extended.mapValues { Data($0) } }
      return attributes
    }
  }

  /// ``attributesOfItem(atPath:)`` for a URL.
  public func attributesOfItem(at url: URL) throws -> [FileAttributeKey: Any] {
    try reading(at: url) { try attributesOfItem(atPath: $0) }
  }

  /// Not after links. Throws `noSuchFile`, `notADirectory`, `tooManyLinks`.
  func existing(_ place: String) throws -> FileAttributes {
    if let found = try store.attributes(at: place) { return found }
    // Says why there is nothing.
    _ = try store.extendedAttributes(at: place)
    throw SecureFilesError(.noSuchFile, path: place)
  }

  /// Without extended attributes.
  func dictionary(_ found: FileAttributes) -> [FileAttributeKey: Any] {
    [
      .type: found.kind.attributeType, .size: NSNumber(value: found.size),
      .creationDate: Date(nanoseconds: found.created), .modificationDate: Date(nanoseconds: found.modified),
      .posixPermissions: NSNumber(value: found.permissions),
      .referenceCount: NSNumber(value: found.linkCount), .systemFileNumber: NSNumber(value: found.id),
      .systemNumber: systemNumber, .ownerAccountID: NSNumber(value: getuid()),
      .groupOwnerAccountID: NSNumber(value: getgid()),
    ]
  }

  /// The same for everything in one container, and never 0.
  private var systemNumber: NSNumber {
    NSNumber(value: store.id.bytes.prefix(4).reduce(UInt64(0)) { $0 << 8 | UInt64($1) } | 1 << 32)
  }

  /// Takes `.creationDate`, `.modificationDate`, `.posixPermissions` and extended attributes, all in one commit, and passes over the
  /// others and over dates that are not finite. Follows links. Throws `CocoaError` with `fileNoSuchFile`.
  public func setAttributes(_ attributes: [FileAttributeKey: Any], ofItemAtPath path: String) throws {
    // Nothing asked, nothing looked for, as in Foundation.
    if attributes.isEmpty { return }
    let changes = AttributeChanges(attributes)
    try writing(path) { place in
      guard changes.isEmpty else { return try store.setAttributes(changes, at: place) }
      guard try store.attributes(at: place, followingLinks: true) != nil else {
        throw SecureFilesError(.noSuchFile, path: place)
      }
    }
  }

  /// ``setAttributes(_:ofItemAtPath:)`` for a URL.
  public func setAttributes(_ attributes: [FileAttributeKey: Any], ofItemAt url: URL) throws {
    try writing(at: url) { try setAttributes(attributes, ofItemAtPath: $0) }
  }

  /// `.systemSize` and `.systemFreeSize` in bytes of the native file system that the container lies on, `.systemNodes` and
  /// `.systemFreeNodes` in files that the container can have, `.systemNumber`.
  public func attributesOfFileSystem(forPath path: String) throws -> [FileAttributeKey: Any] {
    try reading(path) { place in
      _ = try existing(place)
      let statistics = try store.statistics()
      return [
        .systemSize: NSNumber(value: statistics.byteCount),
        .systemFreeSize: NSNumber(value: statistics.freeByteCount),
        .systemNodes: NSNumber(value: statistics.fileCountMax),
        .systemFreeNodes: NSNumber(value: statistics.fileCountMax - statistics.usedFileCount),
        .systemNumber: systemNumber,
      ]
    }
  }

  /// ``attributesOfFileSystem(forPath:)`` for a URL.
  public func attributesOfFileSystem(for url: URL) throws -> [FileAttributeKey: Any] {
    try reading(at: url) { try attributesOfFileSystem(forPath: $0) }
  }
}

extension FileKind {
  var attributeType: FileAttributeType {
    switch self {
    case .file: .typeRegular
    case .directory: .typeDirectory
    case .symbolicLink: .typeSymbolicLink
    }
  }
}

extension AttributeChanges {
  init(_ attributes: [FileAttributeKey: Any]) {
    self.init(
      created: (attributes[.creationDate] as? Date)?.nanoseconds,
      modified: (attributes[.modificationDate] as? Date)?.nanoseconds,
      permissions: (attributes[.posixPermissions] as? NSNumber)?.uint16Value,
      extended: (attributes[.extendedAttributes] as? [String: Data] ?? [:]).mapValues { Array($0) })
  }
}
