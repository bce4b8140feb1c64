import Foundation
import Testing

extension Case {
  /// What the case saw in a new world.
  func transcript(in world: World) -> Transcript {
    do {
      try run(world)
    } catch {
      world.note("could not go on", "\(error)")
    }
    return world.transcript
  }

  /// The same in Foundation's world; in a process of its own where the case changes what belongs to the process.
  func foundationsTranscript() async throws -> Transcript {
    guard changesWorkingDirectory else { return transcript(in: try NativeWorld()) }
    let file = FileManager.default.temporaryDirectory.appendingPathComponent("transcript-\(UUID())")
    defer { try? FileManager.default.removeItem(at: file) }
    await #expect(processExitsWith: .success) { [name = name as String, path = file.path as String] in
      let transcript = try #require(Case.named(name)).transcript(in: NativeWorld())
      try JSONEncoder().encode(transcript).write(to: URL(fileURLWithPath: path))
    }
    return try JSONDecoder().decode(Transcript.self, from: Data(contentsOf: file))
  }
}

struct ConformanceTests {
  /// A transcript that differs from one time to the next would find differences where there are none.
  @Test(arguments: Case.all)
  func foundationSaysTheSameTwice(_ sample: Case) async throws {
    let first = try await sample.foundationsTranscript()
    let second = try await sample.foundationsTranscript()
    for difference in Difference.Seen.between(first, second, in: sample.name) {
      Issue.record("Foundation says two things: \(difference)")
    }
    #expect(!first.entries.isEmpty)
    #expect(!first.entries.contains { $0.step == "could not go on" })
  }

  #if os(Linux)
    /// What stays different is in the table, and what is in the table is different.
    @Test(arguments: Case.all, SecureWorld.Style.allCases)
    func differsOnlyWhereTheTableSaysSo(_ sample: Case, _ style: SecureWorld.Style) async throws {
      let foundation = try await sample.foundationsTranscript()
      let ours = sample.transcript(in: try SecureWorld(style))
      let seen = Difference.Seen.between(foundation, ours, in: sample.name)
      let isRoot = geteuid() == 0
      let lines = Difference.all.filter { $0.case == sample.name && (isRoot || !$0.onlyAsRoot) }
      let faults = Difference.toBeMended.filter { $0.case == sample.name }.map(\.step)
      for fault in faults where !seen.contains(where: { $0.step == fault }) {
        Issue.record("mended: take '\(fault)' of '\(sample.name)' from Difference.toBeMended")
      }
      for difference in seen
      where !faults.contains(difference.step) && !lines.contains(where: { $0.covers(difference) }) {
        Issue.record("not in the table of differences: \(difference)")
      }
      for line in lines {
        let count = seen.count { line.covers($0) }
        #expect(count == line.count, "the table's \(line.row)")
      }
    }
  #endif

  @Test func everyLineOfTheTableIsOfACaseAndNoneIsThereTwice() {
    for line in Difference.all {
      #expect(Case.named(line.case) != nil, "\(line.row)")
      #expect(line.foundation != line.ours || line.ours.contains("*"), "\(line.row)")
    }
    #expect(Set(Difference.all.map { $0.case + ": " + $0.step }).count == Difference.all.count)
    #expect(Set(Case.all.map(\.name)).count == Case.all.count)
  }

  @Test func thePageHasTheTable() throws {
    let page = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appendingPathComponent("Documentation/FILES.md")
    let lines = try String(contentsOf: page, encoding: .utf8).components(separatedBy: "\n")
    let heading = try #require(lines.firstIndex(of: "## Differences from Foundation"))
    let rows = lines[heading...].dropFirst().prefix { !$0.hasPrefix("## ") }.filter { $0.hasPrefix("|") }
    let expected = Difference.all.map(\.row)
    #expect(
      Array(rows.dropFirst(2)) == expected,
      "the rows under Differences from Foundation must be:\n\(expected.joined(separator: "\n"))")
  }

  @Test(arguments: [
    ("abc", "abc", true), ("abc", "abd", false), ("abc", "*", true), ("abc", "a*", true), ("abc", "*c", true),
    ("abc", "a*c", true),
    ("abc", "*b*", true), ("abc", "a*b", false), ("abc", "b*", false), ("abcabd", "*ab*d", true),
    ("aa", "a*a", true), ("a", "a*a", false),
  ])
  func aStarStandsForAnyText(text: String, pattern: String, isMatch: Bool) {
    #expect(Difference.matches(text, pattern) == isMatch)
  }
}
