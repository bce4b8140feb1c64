import Foundation
import TestSupport

/// A folder for sources that a test compiles.
final class TemporaryFolder: Sendable {
  private let directory = TemporaryDirectory()

  var url: URL { URL(filePath: directory.path) }

  func write(_ text: String, to name: String) throws -> URL {
    let file = url.appending(path: name)
    try Data(text.utf8).write(to: file)
    return file
  }
}
