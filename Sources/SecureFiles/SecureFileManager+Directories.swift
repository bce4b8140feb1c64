import ContainerStore
public import Foundation

extension SecureFileManager {
  /// Foundation's own type, for code in which `FileManager` is an alias.
  public typealias DirectoryEnumerationOptions = FileManager.DirectoryEnumerationOptions

  // MARK: Making

  /// Makes a directory with its attributes in one commit; with intermediates, those that are made on the way get them, too, and an
  /// existing one is fine and stays as it is. Without permissions only its owner may use it.
  public func createDirectory(
    atPath path: String, withIntermediateDirectories: Bool, attributes: [FileAttributeKey: Any]? = nil
  ) throws {
    try writing(path) { place in
      try store.createDirectory(
        place, withIntermediateDirectories: withIntermediateDirectories,
        attributes: AttributeChanges(attributes ?? [:]))
    }
  }

  /// ``createDirectory(atPath:withIntermediateDirectories:attributes:)`` for a URL.
  public func createDirectory(
    at url: URL, withIntermediateDirectories: Bool, attributes: [FileAttributeKey: Any]? = nil
  ) throws {
    try writing(at: url) {
      try createDirectory(
        atPath: $0, withIntermediateDirectories: withIntermediateDirectories, attributes: attributes)
    }
  }

  // MARK: Listing

  /// The names in a directory, in bytewise order. Follows a link to a directory.
  public func contentsOfDirectory(atPath path: String) throws -> [String] {
    try reading(path, variant: "Folder") { try store.names(in: $0) }
  }

  /// The items of a directory as URLs below the one that is given, directories with a slash at the end, in bytewise order of names.
  /// Keys are passed over: a URL cannot carry what a container knows; see ``entries(atPath:)`` and ``resourceValues(forKeys:at:)``.
  public func contentsOfDirectory(
    at url: URL, includingPropertiesForKeys keys: [URLResourceKey]?,
    options mask: DirectoryEnumerationOptions = []
  ) throws -> [URL] {
    try reading(at: url) { path in
      try reading(path, variant: "Folder") { place in
        let urls = ItemURLs(url, mask)
        return try store.list(place).compactMap { item in
          if mask.contains(.skipsHiddenFiles), item.isHidden { return nil }
          return urls.url(of: item.path, isDirectory: item.attributes.kind == .directory)
        }
      }
    }
  }

  /// An item of a directory with its attributes, as they were when the directory was listed. Name, size and date of each:
  ///
  /// ```swift
  /// for entry in try files.entries(atPath: "/Documents") {
  ///   let size = entry.isDirectory ? "-" : Int64(entry.size).formatted(.byteCount(style: .file))
  ///   print(entry.name, size, entry.modificationDate.formatted(.iso8601))
  /// }
  /// ```
  public struct Entry: Sendable {
    /// The last part of its path.
    public let name: String
    let attributes: FileAttributes

    /// A link to a directory is none.
    public var isDirectory: Bool { attributes.kind == .directory }
    /// A link to a file is none.
    public var isRegularFile: Bool { attributes.kind == .file }
    /// Whether it is a link itself.
    public var isSymbolicLink: Bool { attributes.kind == .symbolicLink }
    /// Bytes of contents; 0 for directories.
    public var size: UInt64 { attributes.size }
    /// When it was made, or what was set.
    public var creationDate: Date { Date(nanoseconds: attributes.created) }
    /// When its contents, or what is directly in it, last changed, or what was set.
    public var modificationDate: Date { Date(nanoseconds: attributes.modified) }
    /// POSIX bits.
    public var permissions: UInt16 { attributes.permissions }
    /// How many names the file has.
    public var referenceCount: Int { attributes.linkCount }
    /// The number of the file, the same for all its names.
    public var systemFileNumber: UInt64 { attributes.id }
  }

  /// The items of a directory with their attributes, in bytewise order of names: the cheapest way to both. Links are not followed.
  public func entries(atPath path: String) throws -> [Entry] {
    try reading(path, variant: "Folder") { place in
      try store.list(place).map { Entry(name: $0.path, attributes: $0.attributes) }
    }
  }

  /// ``entries(atPath:)`` for a URL.
  public func entries(at url: URL) throws -> [Entry] { try reading(at: url) { try entries(atPath: $0) } }

  /// Everything below a directory, relative to it, parents before children; nothing for a file. Links are not followed, not even at
  /// the end of `path` unless a slash comes after it.
  public func subpathsOfDirectory(atPath path: String) throws -> [String] {
    try reading(path) { place in
      guard try existing(place).kind == .directory else { return [] }
      return try store.list(place, recursively: true).map(\.path)
    }
  }

  /// ``subpathsOfDirectory(atPath:)`` for a URL.
  public func subpathsOfDirectory(at url: URL) throws -> [String] {
    try reading(at: url) { try subpathsOfDirectory(atPath: $0) }
  }

  /// The same, but nil when there is nothing at the path.
  public func subpaths(atPath path: String) -> [String]? { try? subpathsOfDirectory(atPath: path) }

  // MARK: Enumerating

  /// Goes through everything below a directory, as relative paths. Nil for an empty path; where there is no directory it gives nothing.
  public func enumerator(atPath path: String) -> DirectoryEnumerator? {
    path.isEmpty ? nil : DirectoryEnumerator(self, place(path), .paths, [], errorHandler: nil)
  }

  /// Goes through everything below a directory, as URLs below the one that is given. `errorHandler` is told which item could not be
  /// read and says whether to go on; without it the enumerator goes on.
  public func enumerator(
    at url: URL, includingPropertiesForKeys keys: [URLResourceKey]?,
    options mask: DirectoryEnumerationOptions = [], errorHandler handler: ((URL, any Error) -> Bool)? = nil
  ) -> DirectoryEnumerator? {
    do {
      let path = try path(for: url)
      let place = place(url.hasDirectoryPath && path != "/" ? path + "/" : path)
      return DirectoryEnumerator(self, place, .urls(ItemURLs(url, mask)), mask, errorHandler: handler)
    } catch {
      _ = handler?(url, error)
      return nil
    }
  }

  // MARK: Links

  /// Makes a link; the destination is kept as it is and may name nothing. A relative one is seen from the link's directory.
  public func createSymbolicLink(atPath path: String, withDestinationPath destPath: String) throws {
    try writing(path) { try store.createSymbolicLink($0, to: destPath) }
  }

  /// ``createSymbolicLink(atPath:withDestinationPath:)`` for URLs.
  public func createSymbolicLink(at url: URL, withDestinationURL destURL: URL) throws {
    try writing(at: url) { path in
      try createSymbolicLink(atPath: path, withDestinationPath: self.path(for: destURL, .writing))
    }
  }

  /// Where a link leads, as it was written.
  public func destinationOfSymbolicLink(atPath path: String) throws -> String {
    try reading(path) { try store.destinationOfSymbolicLink($0) }
  }

  /// ``destinationOfSymbolicLink(atPath:)`` for a URL.
  public func destinationOfSymbolicLink(at url: URL) throws -> String {
    try reading(at: url) { try destinationOfSymbolicLink(atPath: $0) }
  }
}

extension ListedFile {
  /// Its name begins with a dot.
  var isHidden: Bool { path.utf8.first == UInt8(ascii: ".") }
}
