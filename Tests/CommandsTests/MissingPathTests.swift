import Foundation
import Testing

/// `stat`, `find` and `du` show what is there when a path among several is missing.
struct MissingPathTests {
  private let folder: TemporaryFolder
  private let container: String

  /// /a (1 byte), /d/b (2)
  init() throws {
    folder = try TemporaryFolder()
    container = try folder.makeContainer()
    try folder.run("put", container, try folder.makeFile("a", [1]), "/a")
    try folder.run("put", container, try folder.makeFile("b", [1, 2]), "/d/b")
  }

  private func run(_ command: String, _ options: String...) throws -> DynamicsProcess.Outcome {
    let outcome = try folder.run(
      [command, container, "/gone", "/a", "/lost", "/d"] + options, expecting: 5)
    let missing = outcome.errors.split(separator: "\n").filter { $0.contains("no such file or directory") }
    #expect(missing.count == 2)
    #expect(missing.first?.contains("/gone") == true && missing.last?.contains("/lost") == true)
    return outcome
  }

  private func paths(_ outcome: DynamicsProcess.Outcome) throws -> [String?] {
    let json = try JSONSerialization.jsonObject(with: Data(outcome.output))
    return try #require(json as? [[String: Any]]).map { $0["path"] as? String }
  }

  @Test func statShowsTheOthers() throws {
    let paths = try run("stat").text.split(separator: "\n").filter { $0.hasPrefix("path") }
    #expect(paths == ["path         /a", "path         /d"])
    #expect(try self.paths(run("stat", "--json")) == ["/a", "/d"])
  }

  @Test func findShowsTheOthers() throws {
    #expect(try run("find").text == "/a\n/d\n/d/b\n")
    #expect(try run("find", "-type", "d").text == "/d\n")
    #expect(try run("find", "-name", "x").text == "")
    #expect(try paths(run("find", "--json")) == ["/a", "/d", "/d/b"])
    // That is no path to search.
    try folder.run("find", container, "/a", "-newer", "/gone", expecting: 5)
  }

  @Test func duSumsUpTheOthers() throws {
    #expect(try run("du", "-c").text == "1\t/a\n2\t/d\n3\ttotal\n")
    #expect(try paths(run("du", "--json")) == ["/a", "/d"])
  }

  @Test func nothingIsPrintedWhenAllAreMissing() throws {
    for command in ["stat", "find", "du"] {
      let outcome = try folder.run(command, container, "/gone", "--json", expecting: 5)
      #expect(outcome.text == "")
      #expect(outcome.errors.split(separator: "\n").count == 1)
      #expect(outcome.errors.hasPrefix("{\"error\":{\"code\":\"noSuchFile\""))
    }
  }
}
