import Foundation
import Testing

/// The page that says which tests hold which attacks off.
struct AttackPageTests {
  @Test func namesTestsThatThereAre() throws {
    let page = try String(
      contentsOf: SourceTree.package.appending(path: "Documentation/SERVICE-ATTACKS.md"), encoding: .utf8)
    let rows = page.split(separator: "\n").filter { $0.firstMatch(of: #/^\| \d+ \|/#) != nil }
    #expect(rows.count == 38)
    let tests = try TestSources()
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
        #expect(tests.contain(suite, function), "\(suite).\(function)")
      }
    }
    #expect(names > 60)
  }
}
