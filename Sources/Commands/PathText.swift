/// Slash-separated paths, byte by byte: Swift's characters would join a slash with a combining mark
/// behind it.
enum PathText {
  private static let slash = UInt8(ascii: "/")

  static func endsWithSlash(_ path: String) -> Bool { path.utf8.last == slash }

  /// The last name; nil when there is none, or it is `.` or `..`.
  static func baseName(_ path: String) -> String? {
    guard let last = path.utf8.split(separator: slash).last.map({ String(Substring($0)) }), last != ".",
      last != ".."
    else { return nil }
    return last
  }

  /// The last name, be it `.` or `..`; `/` of the root.
  static func lastName(_ path: String) -> String {
    path.utf8.split(separator: slash).last.map { String(Substring($0)) } ?? "/"
  }

  static func joined(_ directory: String, _ name: String) -> String {
    endsWithSlash(directory) ? directory + name : directory + "/" + name
  }

  /// Without slashes at the end, but for the root.
  static func trimmed(_ path: String) -> String {
    var trimmed = path.utf8[...]
    while trimmed.count > 1, trimmed.last == slash { trimmed = trimmed.dropLast() }
    return String(Substring(trimmed))
  }

  /// `directory` joined with the path of something below it; empty: itself.
  static func below(_ directory: String, _ relative: String) -> String {
    relative.isEmpty ? directory : joined(directory, relative)
  }

  /// How many slashes there are.
  static func depth(_ relative: String) -> Int { relative.utf8.count { $0 == slash } }

  /// Bytewise name by name: what is in a directory follows it, before its neighbours.
  static func precedes(_ a: String, _ b: String) -> Bool {
    a.utf8.lexicographicallyPrecedes(b.utf8) { a, b in (a == slash ? 0 : a) < (b == slash ? 0 : b) }
  }

  /// The directory that holds it, as far as the text tells.
  static func parent(_ path: String) -> String {
    let trimmed = trimmed(path)
    guard let cut = trimmed.utf8.lastIndex(of: slash) else { return "." }
    let parent = String(trimmed[..<cut])
    return parent.isEmpty ? "/" : PathText.trimmed(parent)
  }
}
