public import AppKinetics
public import Foundation

/// An app of a test: its services and its container, until ``TestApps/end(_:)``.
public struct TestApp: Sendable {
  /// What the app's own code gets: it offers and calls.
  public let services: AppServices
  let options: AppServices.Options

  /// The app's id, to which others send.
  public var id: ApplicationID { services.application.id }
  /// The app's container, which is open.
  public var container: SecureContainer { services.container }
  /// The file manager of the container.
  public var files: SecureFileManager { container.files }

  /// Writes a file into the container, with the folders that its path names. Throws what Foundation's `FileManager` throws.
  public func put(_ contents: Data, at path: String) throws {
    let folder = (path as NSString).deletingLastPathComponent
    try files.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try files.write(contents, toPath: path)
  }

  /// Writes a text as UTF-8, as ``put(_:at:)-(Data,_)`` does.
  public func put(_ text: String, at path: String) throws { try put(Data(text.utf8), at: path) }

  /// The paths of all files in the inbox, sorted. Throws what Foundation's `FileManager` throws.
  public func inboxFiles() throws -> [String] {
    let names: [String]
    do {
      names = try files.subpathsOfDirectory(atPath: "/Inbox")
    } catch let error as CocoaError where error.code == .fileReadNoSuchFile {
      return []
    }
    return names.map { "/Inbox/" + $0 }.filter {
      var isDirectory: ObjCBool = false
      return files.fileExists(atPath: $0, isDirectory: &isDirectory) && !isDirectory.boolValue
    }.sorted()
  }
}
