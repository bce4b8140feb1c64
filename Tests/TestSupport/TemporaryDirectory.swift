import Foundation

/// A native directory of one test, mode 0700, removed with its owner. Its path is short, as that of a
/// socket in it has to be.
package final class TemporaryDirectory: Sendable {
  package let path: String

  package init() {
    var template = Array("/tmp/od-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { fatalError("a test needs a directory in /tmp (errno \(errno))") }
    path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  deinit { removeTree(path) }

  /// The path of an item in it.
  package subscript(_ name: String) -> String { path + "/" + name }
}

/// Removes a file or directory with everything in it. Fine when it is gone.
package func removeTree(_ path: String) { try? FileManager.default.removeItem(atPath: path) }
