import Foundation
import Testing

/// A page of the documentation with its blocks of code, or the documentation comments of a source file.
struct Page: Sendable, CustomTestStringConvertible {
  struct Block: Sendable {
    let language: String
    /// Where its text begins, counted from 1.
    let line: Int
    let text: String
  }

  static let package = URL(filePath: #filePath)
    .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()

  /// Relative to the package.
  let path: String
  let blocks: [Block]

  var testDescription: String { path }

  init(path: String) throws {
    let text = try String(contentsOf: Self.package.appending(path: path), encoding: .utf8)
    self.init(path: path, text: text)
  }

  /// In a source file only comments count.
  init(path: String, text: String) {
    self.path = path
    let isSource = path.hasSuffix(".swift")
    var blocks: [Block] = []
    var open: (language: String, line: Int, lines: [Substring])?
    for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
      var content = line
      if isSource {
        let trimmed = line.drop { $0 == " " }
        guard trimmed.hasPrefix("///") else { continue }
        content = trimmed.dropFirst(3)
        if content.hasPrefix(" ") { content = content.dropFirst() }
      }
      let isFence = content.hasPrefix("```") && !content.hasPrefix("``` ")
      switch open {
      case let block? where isFence:
        blocks.append(
          Block(language: block.language, line: block.line, text: block.lines.joined(separator: "\n") + "\n"))
        open = nil
      case nil where isFence: open = (String(content.dropFirst(3)), index + 2, [])
      case nil: break
      default: open?.lines.append(content)
      }
    }
    self.blocks = blocks
  }

  func blocks(_ language: String) -> [Block] { blocks.filter { $0.language == language } }

  /// The README, the pages below `Documentation`, the articles, and the sources' comments, in so far as they have Swift.
  static func all() throws -> [Page] {
    var paths = ["README.md"]
    for (folder, ending) in [("Documentation", ".md"), ("Sources", ".md"), ("Sources", ".swift")] {
      let found = try FileManager.default.subpathsOfDirectory(atPath: package.appending(path: folder).path)
      paths += found.filter { $0.hasSuffix(ending) }.sorted().map { "\(folder)/\($0)" }
    }
    return try paths.map { try Page(path: $0) }.filter { !$0.blocks("swift").isEmpty }
  }
}
