import Foundation
import Testing

/// The page that says which tests hold which attacks off.
struct AttackPageTests {
  @Test func namesTestsThatThereAre() throws {
    let page = try String(
      contentsOf: SourceTree.package.appending(path: "Documentation/SERVICE-ATTACKS.md"), encoding: .utf8)
    let rows = page.split(separator: "\n").filter { $0.firstMatch(of: #/^\| \d+ \|/#) != nil }
    #expect(rows.count == 30)
    let tests = SourceTree.package.appending(path: "Tests")
    let files = try FileManager.default.subpathsOfDirectory(atPath: tests.path).filter {
      $0.hasSuffix(".swift") || $0.hasSuffix(".py")
    }
    let texts = try files.map { path in
      (path, try String(contentsOf: tests.appending(path: path), encoding: .utf8))
    }
    var names = 0
    for row in rows {
      // A finding has a test, or a sentence.
      let cells = row.split(separator: "|", omittingEmptySubsequences: false).map {
        $0.trimmingCharacters(in: .whitespaces)
      }
      #expect(cells.count == 6 && !(cells[3].isEmpty && cells[4].isEmpty), "\(row)")
      for match in cells[3].matches(of: #/`(\w+)\.(\w+)`/#) {
        let (suite, function) = (match.output.1, match.output.2)
        names += 1
        let isThere = texts.contains { path, text in
          path.hasSuffix(".py")
            ? path.hasSuffix("/\(suite).py") && text.contains("def \(function)(")
            : text.contains("struct \(suite)") && text.contains("@Test")
              && text.contains("func \(function)(")
        }
        #expect(isThere, "\(suite).\(function)")
      }
    }
    #expect(names > 60)
  }
}
