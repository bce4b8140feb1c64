import Foundation
import Testing

@testable import Commands

struct FindTests {
  /// /a.txt (3 bytes), /B.TXT (0), /d/c.md (2000), /d/e/ (empty), /d/f.txt (600)
  private func filled() throws -> (TemporaryFolder, String) {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    for (i, (path, count)) in [("/a.txt", 3), ("/B.TXT", 0), ("/d/c.md", 2000), ("/d/f.txt", 600)]
      .enumerated()
    {
      try folder.run(
        "put", container, try folder.makeFile("file\(i)", [UInt8](repeating: 1, count: count)), path)
    }
    try folder.run("mkdir", container, "/d/e")
    return (folder, container)
  }

  private func find(_ folder: TemporaryFolder, _ arguments: [String]) throws -> [String] {
    let outcome = try DynamicsProcess((["find"] + arguments + folder.key).map { Array($0.utf8) }, in: folder)
      .finish()
    #expect(outcome.status == 0, "\(arguments): \(outcome.errors)")
    return outcome.text.split(separator: "\n").map(String.init)
  }

  @Test func printsWhatPassesAllTests() throws {
    let (folder, container) = try filled()
    let cases: [([String], [String])] = [
      ([], ["/", "/B.TXT", "/a.txt", "/d", "/d/c.md", "/d/e", "/d/f.txt"]),
      (["d"], ["d", "d/c.md", "d/e", "d/f.txt"]),
      (["/d/"], ["/d/", "/d/c.md", "/d/e", "/d/f.txt"]),
      (["/d/e", "/a.txt"], ["/d/e", "/a.txt"]),
      (["-name", "*.txt"], ["/a.txt", "/d/f.txt"]),
      (["-iname", "*.txt"], ["/B.TXT", "/a.txt", "/d/f.txt"]),
      (["-name", "d"], ["/d"]),
      (["/d/", "-name", "d"], ["/d/"]),
      (["-path", "/d/*.txt"], ["/d/f.txt"]),
      (["-type", "d"], ["/", "/d", "/d/e"]),
      (["-type", "f,d", "-name", "[a-d]*"], ["/a.txt", "/d", "/d/c.md"]),
      (["-type", "f", "-size", "2"], ["/d/f.txt"]),
      (["-type", "f", "-size", "+1k"], ["/d/c.md"]),
      (["-type", "f", "-size", "-1M"], ["/B.TXT"]),
      (["-size", "3c"], ["/a.txt"]),
      (["-empty"], ["/B.TXT", "/d/e"]),
      (["-maxdepth", "1", "-type", "f"], ["/B.TXT", "/a.txt"]),
      (["-mindepth", "2", "-type", "d"], ["/d/e"]),
      (["/d", "-maxdepth", "0"], ["/d"]),
      (["-mtime", "+0"], []),
      (["-mtime", "-1", "-type", "d"], ["/", "/d", "/d/e"]),
      (["-mmin", "+5000"], []),
      (["-name", "nothing"], []),
    ]
    for (arguments, expected) in cases {
      #expect(try find(folder, [container] + arguments) == expected, "\(arguments)")
    }
    #expect(try find(folder, [container + ":/d", "-type", "f"]) == ["/d/c.md", "/d/f.txt"])
  }

  @Test func comparesDates() throws {
    let (folder, container) = try filled()
    let old = try folder.makeFile("old", [1])
    try FileManager.default.setAttributes(
      [.modificationDate: Date(timeIntervalSinceNow: -3.5 * 86400)], ofItemAtPath: old)
    try folder.run("put", container, old, "/old")
    for (test, isFound) in [
      ("3", true), ("+2", true), ("-4", true), ("2", false), ("+3", false), ("-3", false),
    ] {
      #expect(
        try find(folder, [container, "-name", "old", "-mtime", test]) == (isFound ? ["/old"] : []), "\(test)")
    }
    let newer = try find(folder, [container, "-type", "f", "-newer", "/old"])
    #expect(newer == ["/B.TXT", "/a.txt", "/d/c.md", "/d/f.txt"])
  }

  @Test func printsExactPathsAndJSON() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    try folder.run("put", container, try folder.makeFile("f", [1]), "/a\nb")
    #expect(try folder.run("find", container, "-type", "f").text == "/a\\nb\n")
    #expect(try folder.run("find", container, "-type", "f", "-print0").text == "/a\nb\0")
    let output = try folder.run("find", container, "-type", "f", "--json").output
    let files = try #require(try JSONSerialization.jsonObject(with: Data(output)) as? [[String: Any]])
    #expect(files.count == 1)
    #expect(files[0]["path"] as? String == "/a\nb")
    #expect(files[0]["linkCount"] as? Int == 1)
  }

  @Test(arguments: [
    ["-size", "10x"], ["-size", "--1"], ["-type", "x"], ["-mtime", "1d"], ["-maxdepth", "-1"], ["-nonsense"],
  ])
  func refusesTestsThatMeanNothing(arguments: [String]) throws {
    let folder = try TemporaryFolder()
    let outcome = try DynamicsProcess((["find", "d"] + arguments).map { Array($0.utf8) }, in: folder).finish()
    #expect(outcome.status == 64)
  }

  @Test func missingPathsAre5() throws {
    let (folder, container) = try filled()
    try folder.run("find", container, "/gone", expecting: 5)
    try folder.run("find", container, "-newer", "/gone", expecting: 5)
  }

  @Test(
    arguments: [
      ("", ["": true, "a": false]), ("*", ["": true, "a": true, "ab.c": true]),
      ("a*c", ["ac": true, "abc": true, "abcd": false, "acbc": true]),
      ("*a*b*", ["ab": true, "xaxbx": true, "ba": false]), ("?", ["": false, "ü": true, "ab": false]),
      ("[a-c]x", ["bx": true, "dx": false, "x": false]), ("[!a-c]", ["a": false, "d": true, "": false]),
      ("[]x]", ["]": true, "x": true, "y": false]), ("[a", ["[a": true, "a": false]),
      ("[a-]", ["-": true, "b": false]), ("[z-a]", ["m": false]), ("\\*", ["*": true, "a": false]),
      ("a\\", ["a\\": true]), ("[\\]]", ["]": true, "\\": false]),
      ("**a", ["a": true, "bba": true, "ab": false]),
    ] as [(String, [String: Bool])])
  func matchesNames(pattern: String, names: [String: Bool]) {
    let compiled = NamePattern(pattern)
    for (name, matches) in names { #expect(compiled.matches(name) == matches, "\(pattern) \(name)") }
  }

  @Test func matchesInAnyCase() {
    #expect(NamePattern("ÄB[c-e]", ignoringCase: true).matches("äbD"))
    #expect(!NamePattern("ÄB[c-e]").matches("äbD"))
  }
}
