public import AppKinetics
public import Foundation

/// An app of a test: its services and its container, until ``TestApps/end(_:)``.
public struct TestApp: Sendable {
  /// What the app's own code gets: it offers and calls.
  public let services: AppServices
  /// What goes wrong for the app.
  public let faults: TestFaults
  let options: AppServices.Options
  let observer: RecordingObserver

  /// The app's id, to which others send.
  public var id: ApplicationID { services.application.id }
  /// The app's container, which is open.
  public var container: SecureContainer { services.container }
  /// The file manager of the container.
  public var files: SecureFileManager { container.files }

  /// Breaks the connections with other apps, and returns how many there were; they are made again
  /// when they are needed.
  @discardableResult
  public func breakChannels() async -> Int { await services.cutChannels() }

  /// Writes a file into the container, with the folders that its path names. Throws what
  /// Foundation's `FileManager` throws.
  public func put(_ contents: Data, at path: String) throws { try files.put(contents, at: path) }

  /// Writes a text as UTF-8, as ``put(_:at:)-(Data,_)`` does.
  public func put(_ text: String, at path: String) throws { try put(Data(text.utf8), at: path) }

  /// The paths of all files in the inbox, sorted. Throws what Foundation's `FileManager` throws.
  public func inboxFiles() throws -> [String] { try files.inboxFiles() }
}

extension SecureFileManager {
  func put(_ contents: Data, at path: String) throws {
    let folder = (path as NSString).deletingLastPathComponent
    try createDirectory(atPath: folder, withIntermediateDirectories: true)
    try write(contents, toPath: path)
  }

  func inboxFiles() throws -> [String] {
    let names: [String]
    do {
      names = try subpathsOfDirectory(atPath: "/Inbox")
    } catch let error as CocoaError where error.code == .fileReadNoSuchFile {
      return []
    }
    return names.map { "/Inbox/" + $0 }.filter {
      var isDirectory: ObjCBool = false
      return fileExists(atPath: $0, isDirectory: &isDirectory) && !isDirectory.boolValue
    }.sorted()
  }
}
