import ContainerStore
public import Foundation

extension SecureFileManager {
  /// Foundation's own type, for code in which `FileManager` is an alias; the next three are, too.
  public typealias SearchPathDirectory = FileManager.SearchPathDirectory
  /// Foundation's own type. A container has the user's domain only.
  public typealias SearchPathDomainMask = FileManager.SearchPathDomainMask
  /// Foundation's own type.
  public typealias URLRelationship = FileManager.URLRelationship
  /// Foundation's own type.
  public typealias VolumeEnumerationOptions = FileManager.VolumeEnumerationOptions

  static let trashPath = "/.Trash"
  private static let temporaryPath = "/tmp"

  // MARK: Standard directories

  private static func path(of directory: SearchPathDirectory) -> String? {
    switch directory {
    case .documentDirectory: "/Documents"
    case .applicationSupportDirectory: "/Library/Application Support"
    case .cachesDirectory: "/Library/Caches"
    case .autosavedInformationDirectory: "/Library/Autosave Information"
    case .desktopDirectory: "/Desktop"
    case .downloadsDirectory: "/Downloads"
    case .moviesDirectory: "/Movies"
    case .musicDirectory: "/Music"
    case .picturesDirectory: "/Pictures"
    case .sharedPublicDirectory: "/Public"
    case .trashDirectory: trashPath
    case .userDirectory: "/Users"
    #if canImport(Darwin)
      case .libraryDirectory: "/Library"
    #endif
    default: nil
    }
  }

  /// Where such directories belong, whether they are there or not; none for what a container has no place for. All are the user's
  /// own, but `.userDirectory`, which is local.
  public func urls(for directory: SearchPathDirectory, in domainMask: SearchPathDomainMask) -> [URL] {
    let domains: SearchPathDomainMask =
      switch directory {
      case .userDirectory: .localDomainMask
      case .trashDirectory: [.userDomainMask, .localDomainMask]
      default: .userDomainMask
      }
    guard !domainMask.isDisjoint(with: domains), let path = Self.path(of: directory) else { return [] }
    return [url(forPath: path, isDirectory: true)]
  }

  /// Where such a directory belongs; with `shouldCreate` it is made when it is missing. `.itemReplacementDirectory` is always a new one,
  /// in the temporary directory: remove it when you are done. Throws `CocoaError` with `fileReadUnknown` for what a container has no
  /// place for.
  public func url(
    for directory: SearchPathDirectory, in domain: SearchPathDomainMask, appropriateFor url: URL?,
    create shouldCreate: Bool
  ) throws -> URL {
    if directory == .itemReplacementDirectory {
      let path = Self.temporaryPath + "/TemporaryItems/" + UUID().uuidString
      try createDirectory(atPath: path, withIntermediateDirectories: true)
      return self.url(forPath: path, isDirectory: true)
    }
    guard let found = urls(for: directory, in: domain).first else {
      throw CocoaError(
        .fileReadUnknown,
        userInfo: [
          NSLocalizedFailureReasonErrorKey: "a container has no place for this kind of directory",
          NSLocalizedRecoverySuggestionErrorKey: "choose one of the user's directories",
        ])
    }
    if shouldCreate { try createDirectory(at: found, withIntermediateDirectories: true) }
    return found
  }

  /// `/`, the root of the container.
  public var homeDirectoryForCurrentUser: URL { url(forPath: "/", isDirectory: true) }

  /// The same for the user who runs the process, nil for all others: there is nobody else in a container.
  public func homeDirectory(forUser userName: String) -> URL? {
    !userName.isEmpty && userName == NSUserName() ? homeDirectoryForCurrentUser : nil
  }

  /// `/tmp`, which is made when it is missing and can be. Nothing empties it but you.
  public var temporaryDirectory: URL {
    if store.mode == .readWrite, !fileExists(atPath: Self.temporaryPath) {
      // Who cannot make it learns so as soon as it is used.
      try? createDirectory(atPath: Self.temporaryPath, withIntermediateDirectories: true)
    }
    return url(forPath: Self.temporaryPath, isDirectory: true)
  }

  /// The root's URL: a container is one volume.
  public func mountedVolumeURLs(
    includingResourceValuesForKeys propertyKeys: [URLResourceKey]?, options: VolumeEnumerationOptions = []
  ) -> [URL]? {
    [url(forPath: "/", isDirectory: true)]
  }

  // MARK: Names

  /// The item's name; `/` for the root.
  public func displayName(atPath path: String) -> String {
    componentsToDisplay(forPath: path)?.last ?? "/"
  }

  /// The names from the root, which is `/`, to the item. Neither need the item exist, nor are links followed.
  public func componentsToDisplay(forPath path: String) -> [String]? {
    let place = path.isEmpty ? currentDirectoryPath : place(path)
    return ["/"] + place.pathComponents
  }

  /// The path's bytes with a zero behind them; the caller deallocates them.
  public func fileSystemRepresentation(withPath path: String) -> UnsafePointer<CChar> {
    let bytes = path.utf8CString
    let copy = UnsafeMutablePointer<CChar>.allocate(capacity: bytes.count)
    bytes.withUnsafeBufferPointer { copy.initialize(from: $0.baseAddress!, count: $0.count) }
    return UnsafePointer(copy)
  }

  /// The path that so many bytes spell.
  public func string(withFileSystemRepresentation string: UnsafePointer<CChar>, length: Int) -> String {
    guard length > 0 else { return "" }
    return String(decoding: UnsafeRawBufferPointer(start: string, count: length), as: UTF8.self)
  }

  // MARK: Relationship

  /// Whether an item is the directory itself, below it, or neither; after links. Throws `CocoaError` with `fileReadNoSuchFile` when one
  /// of them is missing.
  public func getRelationship(
    _ outRelationship: UnsafeMutablePointer<URLRelationship>, ofDirectoryAt directoryURL: URL,
    toItemAt otherURL: URL
  ) throws {
    outRelationship.pointee = try relationship(
      ofDirectoryAtPath: path(for: directoryURL), toItemAtPath: path(for: otherURL))
  }

  /// The same for a standard directory.
  public func getRelationship(
    _ outRelationship: UnsafeMutablePointer<URLRelationship>, of directory: SearchPathDirectory,
    in domainMask: SearchPathDomainMask, toItemAt otherURL: URL
  ) throws {
    let directoryURL = try url(for: directory, in: domainMask, appropriateFor: otherURL, create: false)
    try getRelationship(outRelationship, ofDirectoryAt: directoryURL, toItemAt: otherURL)
  }

  /// Whether the directory contains the item, is it, or neither. Throws `CocoaError` with `fileReadNoSuchFile`.
  public func relationship(ofDirectoryAtPath directoryPath: String, toItemAtPath path: String) throws
    -> URLRelationship
  {
    let directory = try existingAfterLinks(directoryPath)
    let item = try existingAfterLinks(path)
    if directory.found.id == item.found.id { return .same }
    guard directory.found.kind == .directory else { return .other }
    let prefix = directory.place == "/" ? "/" : directory.place + "/"
    return item.place.utf8.starts(with: prefix.utf8) ? .contains : .other
  }

  private func existingAfterLinks(_ path: String) throws -> (place: String, found: FileAttributes) {
    try reading(path) { place in
      guard let found = try store.attributes(at: place, followingLinks: true) else {
        throw SecureFilesError(.noSuchFile, path: place)
      }
      return (try store.resolvedPath(place), found)
    }
  }
}
