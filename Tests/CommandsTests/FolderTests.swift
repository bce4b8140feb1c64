import Foundation
import Testing

/// `du` and `tree`: folders as a whole; `stat`, `ln` and `append`: single files.
struct FolderTests {
  /// /a (1 byte), /d/b (1500), /d/e/c (600), /d-x (0)
  private func filled() throws -> (TemporaryFolder, String) {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    for (i, (path, count)) in [("/a", 1), ("/d/b", 1500), ("/d/e/c", 600), ("/d-x", 0)].enumerated() {
      try folder.run(
        "put", container, try folder.makeFile("file\(i)", [UInt8](repeating: 1, count: count)), path)
    }
    return (folder, container)
  }

  @Test func sumsUpFolders() throws {
    let (folder, container) = try filled()
    #expect(try folder.run("du", container).text == "600\t/d/e\n2100\t/d\n2101\t/\n")
    #expect(try folder.run("du", container, "d").text == "600\td/e\n2100\td\n")
    #expect(
      try folder.run("du", "-a", container).text
        == "1\t/a\n1500\t/d/b\n600\t/d/e/c\n600\t/d/e\n2100\t/d\n0\t/d-x\n2101\t/\n")
    #expect(try folder.run("du", "-s", container).text == "2101\t/\n")
    #expect(try folder.run("du", "-s", container + ":/d", container + ":/a").text == "2100\t/d\n1\t/a\n")
    #expect(try folder.run("du", "--max-depth", "1", container).text == "2100\t/d\n2101\t/\n")
    #expect(try folder.run("du", "-d", "0", "-k", container).text == "3\t/\n")
    #expect(try folder.run("du", "-s", "--human", container).text == "2.1KiB\t/\n")
    #expect(try folder.run("du", "-sh", container).text == "2.1KiB\t/\n")
    #expect(try folder.run("du", "-h", container, "/d/e").text == "600B\t/d/e\n")
    #expect(try folder.run("du", "-sc", container, "/d", "/a").text == "2100\t/d\n1\t/a\n2101\ttotal\n")
    let output = try folder.run("du", "--json", container, "/d").output
    let sums = try #require(try JSONSerialization.jsonObject(with: Data(output)) as? [[String: Any]])
    #expect(sums.map { $0["path"] as? String } == ["/d/e", "/d"])
    #expect(sums.map { $0["size"] as? Int } == [600, 2100])
    #expect(sums.map { $0["fileCount"] as? Int } == [1, 2])
    try folder.run("du", container, "/gone", expecting: 5)
    try folder.run("du", "-s", "-a", container, expecting: 64)
  }

  @Test func countsAFileWithTwoNamesOnce() throws {
    let (folder, container) = try filled()
    try folder.run("ln", container, "/d/b", "/d/e/again")
    #expect(try folder.run("du", "-s", container).text == "2101\t/\n")
    // Two spellings of one character are two names.
    try folder.run("put", container, folder.path("file0"), "/n/\u{e9}/f")
    try folder.run("put", container, folder.path("file1"), "/n/e\u{301}/f")
    let lines = try folder.run("du", "-0", container, "/n").output.split(separator: 0)
    #expect(lines == ["1500\t/n/e\u{301}", "1\t/n/\u{e9}", "1501\t/n"].map { Array($0.utf8)[...] })
  }

  @Test func drawsATree() throws {
    let (folder, container) = try filled()
    #expect(
      try folder.run("tree", container).text == """
        /
        ├── a
        ├── d
        │   ├── b
        │   └── e
        │       └── c
        └── d-x

        2 folders, 4 files

        """)
    #expect(try folder.run("tree", container, "-d").text == "/\n└── d\n    └── e\n\n2 folders\n")
    #expect(
      try folder.run("tree", container + ":/d", "-L", "1").text == "/d\n├── b\n└── e\n\n1 folder, 1 file\n")
    #expect(
      try folder.run("tree", container, "/d/e", "--human").text
        == "/d/e\n└── [600B]  c\n\n0 folders, 1 file\n")
    try folder.run("ln", "-s", container, "../b", "/d/e/link")
    #expect(try folder.run("tree", container, "/d/e").text.contains("└── link -> ../b\n"))
    try folder.run("tree", container, "/a", expecting: 6)
    try folder.run("tree", container, "/gone", expecting: 5)
    try folder.run("tree", container, "-L", "0", expecting: 64)
  }

  @Test func takesPlacesInsteadOfTwoWords() throws {
    let (folder, container) = try filled()
    #expect(try folder.run("ls", container + ":/d").text == "b\ne\n")
    #expect(try folder.run("cat", container + ":/a", container + ":/a").output == [1, 1])
    try folder.run("mkdir", container + ":/new")
    try folder.run("rm", "-r", container + ":/new", container + ":/d")
    #expect(try folder.run("ls", container).text == "a\nd-x\n")
    try folder.run("cat", container + ":/a", "/a", expecting: 64)
    try folder.run("cat", container + ":/a", folder.path("other") + ":/a", expecting: 64)
    try folder.run("cat", container, expecting: 64)
    try folder.run("ls", container + ":/a", container + ":/d-x", expecting: 64)
    // The directory of a container is DIR, whatever its name.
    _ = try folder.makeFolder("odd:")
    let odd = try folder.makeContainer("odd:/c")
    try folder.run("put", odd, folder.path("file0"), "/f")
    #expect(try folder.run("ls", odd, "/").text == "f\n")
  }

  @Test func saysWhatIsKnownOfAFile() throws {
    let (folder, container) = try filled()
    try folder.run("ln", "-s", container, "/d/b", "/link")
    try folder.run("ln", container, "/d/b", "/again")
    let text = try folder.run("stat", container, "/d/b").text
    let date = #/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z/#
    let names = text.split(separator: "\n").map { $0.prefix { $0 != " " } }
    #expect(
      names == ["path", "kind", "size", "permissions", "links", "number", "created", "modified", "changed"])
    #expect(text.hasPrefix("path         /d/b\nkind         file\nsize         1500 (1.5 KiB)\n"))
    #expect(text.contains("permissions  0600 (-rw-------)\nlinks        2\n"))
    #expect(text.matches(of: date).count == 3)
    let link = try folder.run("stat", container, "/link", "/d").text
    #expect(link.contains("kind         symbolic link\ntarget       /d/b\n"))
    #expect(link.contains("\n\npath         /d\nkind         folder\n"))
    let output = try folder.run("stat", "-L", "--json", container, "/link").output
    let files = try #require(try JSONSerialization.jsonObject(with: Data(output)) as? [[String: Any]])
    #expect(files.count == 1)
    #expect(files[0]["kind"] as? String == "file")
    #expect(files[0]["size"] as? Int == 1500)
    #expect(files[0]["linkCount"] as? Int == 2)
    #expect((files[0]["changed"] as? String)?.wholeMatch(of: date) != nil)
    #expect(files[0]["extendedAttributes"] as? [String] == [])
    #expect(files[0]["target"] == nil)
    try folder.run("stat", container, "/gone", expecting: 5)
    try folder.run("stat", container, expecting: 64)
  }

  @Test func makesLinks() throws {
    let (folder, container) = try filled()
    try folder.run("ln", container, "/a", "/hard")
    try folder.run("append", container, "/hard", folder.path("file0"))
    #expect(try folder.run("cat", container, "/a").output == [1, 1])
    try folder.run("ln", "-s", container, "../a", "/d")
    #expect(try folder.run("cat", container, "/d/a").output == [1, 1])
    try folder.run("ln", "-s", container, "anything", "/d/a", expecting: 6)
    try folder.run("ln", "-sf", container, "b", "/d/a")
    #expect(try folder.run("cat", container, "/d/a").output.count == 1500)
    try folder.run("ln", "-f", container, "/d-x", "/hard")
    try folder.run("ln", "-f", container, "/d-x", "/hard")
    #expect(try folder.run("cat", container, "/hard").output == [])
    try folder.run("ln", container, "/d", "/d2", expecting: 6)
    try folder.run("ln", container, "/gone", "/d2", expecting: 5)
    try folder.run("ln", "-f", container, "/gone", "/a", expecting: 5)
    #expect(try folder.run("ls", container).text == "a\nd\nd-x\nhard\n")
    // A link that leads to itself ends.
    try folder.run("ln", "-s", container, "loop", "/loop")
    try folder.run("cat", container, "/loop", expecting: 1)
    try folder.run("container", "verify", container)
  }

  @Test func appendsFilesAndStreams() throws {
    let (folder, container) = try filled()
    let piece = try folder.makeFile("piece", Array("abc".utf8))
    try folder.run("append", container, "/log", piece)
    try folder.run("append", container, "/log", input: piece)
    try folder.run("append", container + ":/log", "-", input: piece)
    try folder.run("append", container + ":/log", piece)
    #expect(try folder.run("cat", container, "/log").text == "abcabcabcabc")
    let large = try folder.makeFile("large", [UInt8](repeating: 7, count: 3 << 20))
    try folder.run("append", container, "/log", large)
    #expect(try folder.run("cat", container, "/log").output.count == 3 << 20 + 12)
    try folder.run("append", container, "/no/folder", piece, expecting: 5)
    try folder.run("append", container, "/d", piece, expecting: 6)
    try folder.run("append", container, "/log", folder.path("gone"), expecting: 5)
    try folder.run("append", container, "/log", folder.root, expecting: 6)
    try folder.run("append", container, expecting: 64)
    try folder.run("append", container, "/log", piece, piece, expecting: 64)
    try folder.run("container", "verify", container)
  }

  @Test func keepsWhatArrivedBeforeASignal() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let pipe = folder.path("pipe")
    #expect(mkfifo(pipe, 0o600) == 0)
    let append = try folder.start("append", container, "/log", pipe, "--progress")
    let writer = open(pipe, O_WRONLY | O_CLOEXEC)
    #expect(write(writer, "abc", 3) == 3)
    try append.waitForProgress()
    append.signal(SIGINT)
    #expect(try append.finish().status == 130)
    close(writer)
    #expect(try folder.run("cat", container, "/log").text == "abc")
    try folder.run("container", "verify", container)
  }
}
