import Foundation
import Testing

struct ListTests {
  private struct Listed: Decodable {
    var path: String
    var kind: String
    var size: UInt64
    var created: String
    var modified: String
    var permissions: String
    var id: UInt64
  }

  static let hostileName = "a\nb\u{1b}[31m\\\u{202e}ü"

  private func folderWithHostileName() throws -> (TemporaryFolder, String) {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let source = try folder.makeFolder("source")
    _ = try folder.makeFile("source/" + Self.hostileName, [1, 2])
    try folder.run("put", container, source, "/s")
    return (folder, container)
  }

  @Test func escapesWhatCouldControlATerminal() throws {
    let (folder, container) = try folderWithHostileName()
    #expect(try folder.run("ls", container, "/s").text == "a\\nb\\x1b[31m\\\\\\u{202e}ü\n")
    let outcome = try folder.run("cat", container, "/s/\u{1b}", expecting: 5)
    #expect(outcome.errors.contains("/s/\\x1b"))
    #expect(!outcome.errors.contains("\u{1b}"))
  }

  @Test func printsExactNamesBetweenNULs() throws {
    let (folder, container) = try folderWithHostileName()
    #expect(try folder.run("ls", "-0", container, "/s").output == Array(Self.hostileName.utf8) + [0])
    try folder.run("get", container, "/s", folder.path("back"))
    #expect(try fileNames(in: folder.path("back")) == [Self.hostileName])
  }

  @Test func listsAsJSON() throws {
    let (folder, container) = try folderWithHostileName()
    let output = try folder.run("ls", "-R", "--json", container).output
    let files = try JSONDecoder().decode([Listed].self, from: Data(output))
    #expect(files.map(\.path) == ["s", "s/" + Self.hostileName])
    #expect(files.map(\.kind) == ["directory", "file"])
    #expect(files[1].size == 2)
    #expect(files[1].permissions == "0600")
    #expect(files[1].modified.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z/) != nil)
    #expect(files[1].created.hasSuffix("Z"))
    #expect(files[0].id != files[1].id)
  }

  @Test func listsAFileAndALongList() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    try folder.run("put", container, try folder.makeFile("f", [1, 2, 3]), "/d/f")
    #expect(try folder.run("ls", container, "/d/f").text == "/d/f\n")
    let line = try folder.run("ls", "-l", container, "/d").text
    #expect(line.wholeMatch(of: /-rw-------  1  3  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  f\n/) != nil)
    try folder.run("ls", container, "/gone", expecting: 5)
  }

  @Test func showsLinksAndSetsColumnsStraight() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let file = try folder.makeFile("f", [UInt8](repeating: 0, count: 2000))
    try folder.run("put", container, file, "/d/f")
    try folder.run("put", container, try folder.makeFile("g", [1]), "/d/g")
    try folder.run("ln", container, "/d/f", "/d/same")
    try folder.run("ln", "-s", container, "f\u{1b}", "/d/link")
    try folder.run("ln", "-s", container, "d", "/to-d")
    let date = #"  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  "#
    func matches(_ text: String, _ lines: [String]) throws -> Bool {
      try text.wholeMatch(of: Regex(lines.map { $0.replacing("@", with: date) + "\n" }.joined())) != nil
    }
    let long = try folder.run("ls", "-l", container, "/d").text
    #expect(
      try matches(
        long,
        [
          "-rw-------  2  2000@f", "-rw-------  1     1@g", #"lrwxrwxrwx  1     2@link -> f\\x1b"#,
          "-rw-------  2  2000@same",
        ]), "\(long)")
    let human = try folder.run("ls", "-l", "--human", container, "/d/f").text
    #expect(try matches(human, ["-rw-------  2  2.0KiB@/d/f"]), "\(human)")
    #expect(try folder.run("ls", "-lh", container, "/d/f").text == human)
    #expect(try folder.run("ls", "-h", "-l", container + ":/d/f").text == human)
    // A link to a folder is listed as the folder, but for -l, as ls(1) has it.
    #expect(try folder.run("ls", container, "/to-d").text == "f\ng\nlink\nsame\n")
    #expect(try folder.run("ls", "-l", container, "/to-d").text.hasSuffix("  /to-d -> d\n"))
    #expect(try folder.run("ls", "-l", container, "/to-d/").text == long)
    #expect(try folder.run("ls", "-d", container, "/d").text == "/d\n")
    let output = try folder.run("ls", "--json", container, "/d").output
    let files = try #require(try JSONSerialization.jsonObject(with: Data(output)) as? [[String: Any]])
    #expect(files.map { $0["linkCount"] as? Int } == [2, 1, 1, 2])
    #expect(files.map { $0["target"] as? String } == [nil, nil, "f\u{1b}", nil])
    let numbered = try folder.run("ls", "-i", container, "/d").text.split(separator: "\n")
    let numbers = numbered.map { $0.split(separator: " ")[0] }
    #expect(numbers[0] == numbers[3] && numbers[0] != numbers[1])
  }

  @Test func sortsByDateAndSize() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    for (name, count, age) in [("p", 2, 300), ("q", 3, 100), ("r", 1, 200), ("s", 3, 400)] {
      let file = try folder.makeFile(name, [UInt8](repeating: 0, count: count))
      let date = Date(timeIntervalSinceNow: -Double(age))
      try FileManager.default.setAttributes([.modificationDate: date], ofItemAtPath: file)
      try folder.run("put", container, file, "/")
    }
    #expect(try folder.run("ls", "-t", container).text == "q\nr\np\ns\n")
    #expect(try folder.run("ls", "-S", container).text == "q\ns\np\nr\n")
    #expect(try folder.run("ls", "-tr", container).text == "s\np\nr\nq\n")
    #expect(try folder.run("ls", "-ar", container).text == "s\nr\nq\np\n")
    try folder.run("ls", "-tS", container, expecting: 64)
    try folder.run("ls", "-Rt", container, expecting: 64)
  }
}
