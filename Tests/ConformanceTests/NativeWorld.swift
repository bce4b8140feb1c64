import Foundation

/// Foundation's file manager over a native folder, which goes with this.
final class NativeWorld: World {
  private var files: FileManager { manager as! FileManager }

  init() throws {
    let files = FileManager()
    let folder = files.temporaryDirectory.resolvingSymlinksInPath().appendingPathComponent(
      "conformance-\(UUID())")
    try files.createDirectory(at: folder, withIntermediateDirectories: true)
    super.init(name: "Foundation", root: folder.path, manager: files)
  }

  deinit {
    // What a case left without permissions can be removed only by who may do everything.
    _ = try? FileManager.default.removeItem(atPath: root)
  }

  override func url(_ path: String, isDirectory: Bool) -> URL {
    URL(fileURLWithPath: self.path(path), isDirectory: isDirectory)
  }

  override func handle(_ access: Access, atPath path: String) -> (any FileHandling)? {
    switch access {
    case .reading: FileHandle(forReadingAtPath: path)
    case .writing: FileHandle(forWritingAtPath: path)
    case .updating: FileHandle(forUpdatingAtPath: path)
    }
  }

  override func handle(_ access: Access, at url: URL) throws -> any FileHandling {
    switch access {
    case .reading: try FileHandle(forReadingFrom: url)
    case .writing: try FileHandle(forWritingTo: url)
    case .updating: try FileHandle(forUpdating: url)
    }
  }

  override func inputStream(atPath path: String) -> InputStream? { InputStream(fileAtPath: path) }
  override func inputStream(at url: URL) -> InputStream? { InputStream(url: url) }
  override func outputStream(atPath path: String, append: Bool) -> OutputStream? {
    OutputStream(toFileAtPath: path, append: append)
  }
  override func outputStream(at url: URL, append: Bool) -> OutputStream? {
    OutputStream(url: url, append: append)
  }

  override func resourceValues(_ keys: Set<URLResourceKey>, at url: URL) throws -> [URLResourceKey: Any] {
    try url.resourceValues(forKeys: keys).allValues
  }

  override func setDelegate(_ delegate: RecordingDelegate?) { files.delegate = delegate }
  override func anotherManager() -> any FileManaging { FileManager() }
}
