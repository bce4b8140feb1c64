import Foundation

/// What both file managers have, in Foundation's spelling. The conformances are empty: a member that is spelled differently on one
/// side does not compile.
protocol FileManaging: AnyObject {
  associatedtype Enumerator: DirectoryEnumerating

  func createFile(atPath path: String, contents: Data?, attributes: [FileAttributeKey: Any]?) -> Bool
  func contents(atPath path: String) -> Data?
  func contentsEqual(atPath path1: String, andPath path2: String) -> Bool

  func fileExists(atPath path: String) -> Bool
  func fileExists(atPath path: String, isDirectory: UnsafeMutablePointer<ObjCBool>?) -> Bool
  func isReadableFile(atPath path: String) -> Bool
  func isWritableFile(atPath path: String) -> Bool
  func isExecutableFile(atPath path: String) -> Bool
  func isDeletableFile(atPath path: String) -> Bool

  func attributesOfItem(atPath path: String) throws -> [FileAttributeKey: Any]
  func attributesOfFileSystem(forPath path: String) throws -> [FileAttributeKey: Any]
  func setAttributes(_ attributes: [FileAttributeKey: Any], ofItemAtPath path: String) throws

  func createDirectory(
    atPath path: String, withIntermediateDirectories: Bool, attributes: [FileAttributeKey: Any]?) throws
  func createDirectory(
    at url: URL, withIntermediateDirectories: Bool, attributes: [FileAttributeKey: Any]?) throws
  func contentsOfDirectory(atPath path: String) throws -> [String]
  func contentsOfDirectory(
    at url: URL, includingPropertiesForKeys keys: [URLResourceKey]?,
    options: FileManager.DirectoryEnumerationOptions
  ) throws -> [URL]
  func subpaths(atPath path: String) -> [String]?
  func subpathsOfDirectory(atPath path: String) throws -> [String]
  func enumerator(atPath path: String) -> Enumerator?
  func enumerator(
    at url: URL, includingPropertiesForKeys keys: [URLResourceKey]?,
    options: FileManager.DirectoryEnumerationOptions, errorHandler: ((URL, any Error) -> Bool)?
  ) -> Enumerator?

  func createSymbolicLink(atPath path: String, withDestinationPath destination: String) throws
  func createSymbolicLink(at url: URL, withDestinationURL destination: URL) throws
  func destinationOfSymbolicLink(atPath path: String) throws -> String
  func linkItem(atPath source: String, toPath destination: String) throws
  func linkItem(at source: URL, to destination: URL) throws

  func copyItem(atPath source: String, toPath destination: String) throws
  func copyItem(at source: URL, to destination: URL) throws
  func moveItem(atPath source: String, toPath destination: String) throws
  func moveItem(at source: URL, to destination: URL) throws
  func removeItem(atPath path: String) throws
  func removeItem(at url: URL) throws
  func replaceItemAt(
    _ original: URL, withItemAt new: URL, backupItemName: String?,
    options: FileManager.ItemReplacementOptions
  ) throws -> URL?

  var currentDirectoryPath: String { get }
  func changeCurrentDirectoryPath(_ path: String) -> Bool

  func displayName(atPath path: String) -> String
  func componentsToDisplay(forPath path: String) -> [String]?
  func fileSystemRepresentation(withPath path: String) -> UnsafePointer<CChar>
  func string(withFileSystemRepresentation text: UnsafePointer<CChar>, length: Int) -> String
  func getRelationship(
    _ relationship: UnsafeMutablePointer<FileManager.URLRelationship>, ofDirectoryAt directory: URL,
    toItemAt url: URL) throws
  func urls(
    for directory: FileManager.SearchPathDirectory, in domain: FileManager.SearchPathDomainMask
  ) -> [URL]
  func url(
    for directory: FileManager.SearchPathDirectory, in domain: FileManager.SearchPathDomainMask,
    appropriateFor url: URL?, create: Bool
  ) throws -> URL
  var temporaryDirectory: URL { get }
  var homeDirectoryForCurrentUser: URL { get }
  func homeDirectory(forUser userName: String) -> URL?
}

protocol DirectoryEnumerating: AnyObject {
  var fileAttributes: [FileAttributeKey: Any]? { get }
  var directoryAttributes: [FileAttributeKey: Any]? { get }
  var level: Int { get }
  func skipDescendants()
  func nextObject() -> Any?
}

protocol FileHandling: AnyObject {
  func read(upToCount count: Int) throws -> Data?
  func readToEnd() throws -> Data?
  func write<T: DataProtocol>(contentsOf data: T) throws
  func offset() throws -> UInt64
  func seek(toOffset offset: UInt64) throws
  func seekToEnd() throws -> UInt64
  func truncate(atOffset offset: UInt64) throws
  func synchronize() throws
  func close() throws
}

extension FileManager: FileManaging {}
extension FileManager.DirectoryEnumerator: DirectoryEnumerating {}
extension FileHandle: FileHandling {}
