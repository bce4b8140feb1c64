import Foundation

/// The package's own files.
enum SourceTree {
  static let package = URL(filePath: #filePath)
    .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
  static let sources = package.appending(path: "Sources")

  /// The folders of `Sources/`, which are the targets.
  static func targets() throws -> [String] {
    let entries = try FileManager.default.contentsOfDirectory(
      at: sources, includingPropertiesForKeys: [.isDirectoryKey], options: .skipsHiddenFiles)
    return try entries.filter { try $0.resourceValues(forKeys: [.isDirectoryKey]).isDirectory == true }
      .map(\.lastPathComponent).sorted()
  }

  /// Paths below `Sources/` of the files of a target, subfolders included.
  static func files(of target: String, extensions: Set<String>) throws -> [String] {
    try FileManager.default.subpathsOfDirectory(atPath: sources.appending(path: target).path)
      .filter { extensions.contains(URL(filePath: $0).pathExtension) }
      .map { "\(target)/\($0)" }.sorted()
  }

  static func text(of file: String) throws -> String {
    try String(contentsOf: sources.appending(path: file), encoding: .utf8)
  }
}
