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
    #expect(line.wholeMatch(of: /-rw-------  3  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  f\n/) != nil)
    try folder.run("ls", container, "/gone", expecting: 5)
  }
}
