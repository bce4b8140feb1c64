import Foundation

/// Makes the URLs of what is below a directory.
struct ItemURLs {
  let directory: URL
  private let isRelative: Bool

  init(_ directory: URL, _ options: SecureFileManager.DirectoryEnumerationOptions) {
    isRelative = options.contains(.producesRelativePathURLs)
    self.directory =
      directory.hasDirectoryPath || !isRelative ? directory : directory.appendingPathComponent("")
  }

  func url(of path: String, isDirectory: Bool) -> URL {
    // Foundation would take a tilde for somebody's home.
    if isRelative, directory.isFileURL, path.utf8.first != UInt8(ascii: "~") {
      return URL(fileURLWithPath: path, isDirectory: isDirectory, relativeTo: directory)
    }
    if isRelative, let url = URL(string: Self.encoded(path, isDirectory), relativeTo: directory) {
      return url
    }
    return directory.appendingPathComponent(path, isDirectory: isDirectory)
  }

  private static func encoded(_ path: String, _ isDirectory: Bool) -> String {
    // A colon would end a scheme.
    let allowed = CharacterSet.urlPathAllowed.subtracting(CharacterSet(charactersIn: ":"))
    return (path.addingPercentEncoding(withAllowedCharacters: allowed) ?? path) + (isDirectory ? "/" : "")
  }
}
