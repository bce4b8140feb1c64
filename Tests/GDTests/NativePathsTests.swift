import Testing

@testable import BlackBerryDynamics

struct NativePathsTests {
  private let paths = NativePaths(
    home: "/home/user",
    directories: [
      ("/home/user/Documents", "/Documents"), ("/home/user/.cache", "/Library/Caches"),
      ("/home/user/.local/share", "/Library/Application Support"), ("/tmp/", "/tmp"),
    ])

  @Test(arguments: [
    ("/home/user/Documents/a", "/Documents/a"), ("/home/user/Documents", "/Documents"),
    ("/home/user/Documents/", "/Documents/"), ("/home/user/DocumentsX", "/DocumentsX"),
    ("/Documents/a", "/Documents/a"), ("/home/user/.cache/a", "/Library/Caches/a"),
    ("/home/user/Library/Caches/a", "/Library/Caches/a"), ("/home/user", "/"), ("/home/user/", "/"),
    ("/home/username/a", "/home/username/a"), ("/tmp/a", "/tmp/a"), ("/var/a", "/var/a"),
    ("file:///home/user/Documents/a%20b", "/Documents/a b"), ("/", "/"),
    ("//home/user/a", "/a"),
  ])
  func takesTheNativeDirectoryOff(path: String, place: String) {
    #expect(paths.container(path) == place)
  }

  @Test(arguments: ["a", "Documents/a", "", "./a", "~/a", "https://example.com/a"])
  func aRelativePathNamesNothing(path: String) { #expect(paths.container(path) == "") }

  @Test(arguments: [
    "/Documents/a", "/Library/Caches/a", "/Library/Application Support/a b", "/tmp/x",
    "/Inbox/com.example.a/1/Documents/a", "/a", "/DocumentsX", "/",
  ])
  func whatIsGivenBackIsTakenAgain(place: String) {
    #expect(paths.container(paths.native(place)) == place)
  }

  @Test func aHomeOfTheRootHasNoPrefix() {
    let paths = NativePaths(home: "/", directories: [("/Documents", "/Documents")])
    #expect(paths.container("/a/b") == "/a/b" && paths.native("/a/b") == "/a/b")
    #expect(paths.native("/") == "/")
  }

  /// As in a build service.
  @Test(arguments: ["/Inbox/a", "/tmp/a", "/Documents/a", "/"])
  func aHomeMayLieInATemporaryDirectory(place: String) {
    for home in ["/tmp/ci", "/tmp"] {
      let paths = NativePaths(
        home: home, directories: [("/tmp/ci/Documents", "/Documents"), ("/tmp", "/tmp")])
      // The home directory wins where two are the same: then nothing is below the temporary one.
      if home == "/tmp", place == "/tmp/a" { continue }
      #expect(paths.container(paths.native(place)) == place)
    }
  }

  @Test func aLinkIsTheDirectoryThatItLeadsTo() throws {
    let directory = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
    defer { try? FileManager.default.removeItem(at: directory) }
    let home = directory.appendingPathComponent("home")
    try FileManager.default.createDirectory(at: home, withIntermediateDirectories: true)
    let link = directory.appendingPathComponent("link")
    try FileManager.default.createSymbolicLink(at: link, withDestinationURL: home)
    let paths = NativePaths(home: link.path, directories: [])
    #expect(paths.container(home.path + "/a") == "/a" && paths.native("/a") == link.path + "/a")
  }

  /// A name may begin with a combining mark, which is one character with the slash before it.
  @Test func prefixesAreBytes() {
    #expect(paths.container("/home/user/Documents/\u{301}a") == "/Documents/\u{301}a")
  }
}
