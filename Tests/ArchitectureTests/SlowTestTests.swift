import Foundation
import Testing

/// The list of tests that take more than 5 s (`Scripts/test --durations` measures them), and of those that have a long form.
struct SlowTestTests {
  private struct Row {
    let suite, function, reason: String
    let hasLongForm: Bool
  }

  private static func rows() throws -> [Row] {
    let page = try String(
      contentsOf: SourceTree.package.appending(path: "Tests/SLOW-TESTS.md"), encoding: .utf8)
    return page.matches(of: #/(?m)^\| `(\w+)\.(\w+)` \| (.*) \| (yes|–) \|$/#).map {
      Row(
        suite: String($0.1), function: String($0.2),
        reason: $0.3.trimmingCharacters(in: .whitespaces), hasLongForm: $0.4 == "yes")
    }
  }

  @Test func everyLineNamesATestAndAReason() throws {
    let (rows, tests) = (try Self.rows(), try TestSources())
    let page = try String(
      contentsOf: SourceTree.package.appending(path: "Tests/SLOW-TESTS.md"), encoding: .utf8)
    #expect(!rows.isEmpty && rows.count == page.split(separator: "\n").count { $0.hasPrefix("| `") })
    for row in rows {
      #expect(tests.contain(row.suite, row.function), "\(row.suite).\(row.function)")
      #expect(!row.reason.isEmpty, "\(row.suite).\(row.function)")
    }
    #expect(Set(rows.map { $0.suite + "." + $0.function }).count == rows.count)
  }

  /// `Scripts/test --long` runs what the list names.
  @Test func whoeverDrawsSamplesIsInTheList() throws {
    let suites = Set(try Self.rows().map(\.suite))
    for (path, text) in try TestSources().texts
    where text.contains("TestEffort.") && text.contains("@Test") && !path.contains("ArchitectureTests") {
      let isListed = suites.contains { text.contains("struct \($0)") }
      #expect(isListed, "\(path) uses TestEffort: list its tests in Tests/SLOW-TESTS.md")
    }
  }
}
