import Locks

/// Paths as an app writes them, which begin with native directories, and as the container has them.
struct NativePaths: Sendable {
  /// The directories that every container has.
  static let directories = [
    "/Documents", "/Library/Caches", "/Library/Application Support", "/tmp",
  ]

  private struct Prefix: Sendable {
    let native: String
    let container: String
  }

  /// By which native paths begin, the longest first.
  private let natives: [Prefix]
  /// By which the container's paths begin, the longest first.
  private let containers: [Prefix]

  /// The directories of the user, as Foundation names them.
  init() {
    let first = { (directory: FileManager.SearchPathDirectory) in
      NSSearchPathForDirectoriesInDomains(directory, .userDomainMask, true).first
    }
    self.init(
      home: NSHomeDirectory(),
      directories: [
        (first(.documentDirectory), "/Documents"), (first(.cachesDirectory), "/Library/Caches"),
        (first(.applicationSupportDirectory), "/Library/Application Support"),
        (NSTemporaryDirectory(), "/tmp"),
      ])
  }

  init(home: String, directories: [(native: String?, container: String)]) {
    // The home directory is the container's root, and wins where two are the same.
    let prefixes = ([(home, "")] + directories).compactMap { native, container in
      native.map { Prefix(native: Self.withoutSlashAtEnd($0), container: container) }
    }
    // Code may have resolved the links in a path.
    let resolved = prefixes.map {
      Prefix(native: URL(fileURLWithPath: $0.native).resolvingSymlinksInPath().path, container: $0.container)
    }
    // A sort that keeps the order of equals.
    natives = (prefixes + resolved).filter { !$0.native.isEmpty && $0.native != "/" }.enumerated().sorted {
      let (a, b) = ($0.element.native.utf8.count, $1.element.native.utf8.count)
      return a != b ? a > b : $0.offset < $1.offset
    }.map(\.element)
    containers = prefixes.sorted { $0.container.utf8.count > $1.container.utf8.count }
  }

  /// The path in the container. A relative one names nothing, which the empty path stands for.
  func container(_ path: String) -> String {
    if path.hasPrefix("file:"), let url = URL(string: path), url.isFileURL {
      return container(url.path(percentEncoded: false))
    }
    guard path.utf8.first == UInt8(ascii: "/") else { return "" }
    let path = "/" + String(Substring(path.utf8.drop { $0 == UInt8(ascii: "/") }))
    for prefix in natives {
      guard let rest = Self.rest(of: path, below: prefix.native) else { continue }
      let found = prefix.container + rest
      return found.isEmpty ? "/" : found
    }
    return path
  }

  /// The path with the native directory before it.
  func native(_ path: String) -> String {
    for prefix in containers where !prefix.native.isEmpty || prefix.container.isEmpty {
      guard let rest = Self.rest(of: path, below: prefix.container) else { continue }
      return prefix.native + (rest == "/" && prefix.container.isEmpty && !prefix.native.isEmpty ? "" : rest)
    }
    return path
  }

  /// Empty, or beginning with a slash; nil for a path that is elsewhere.
  private static func rest(of path: String, below directory: String) -> String? {
    let (path, directory) = (path.utf8, directory.utf8)
    guard path.starts(with: directory) else { return nil }
    let rest = path.dropFirst(directory.count)
    return rest.first ?? UInt8(ascii: "/") == UInt8(ascii: "/") ? String(Substring(rest)) : nil
  }

  private static func withoutSlashAtEnd(_ path: String) -> String {
    var path = Substring(path)
    while path.utf8.last == UInt8(ascii: "/") { path.removeLast() }
    return String(path)
  }
}
