import ContainerStore
import Testing

/// Symbolic links, other names of one file, what stands in the place of another, and extended attributes.
struct LinkTests {
  private let fixture: Fixture
  private var container: Container { fixture.container }

  init() throws {
    fixture = try Fixture()
    try fixture.container.createDirectory("/a/b", withIntermediateDirectories: true)
    try fixture.container.write([1, 2, 3], to: "/a/file")
  }

  private func expect(_ code: ContainerError.Code, _ body: () throws -> Void) {
    #expect { try body() } throws: { ($0 as? ContainerError)?.code == code }
  }

  // MARK: Replacing

  private func commitCount(of body: () throws -> Void) throws -> UInt64 {
    try container.synchronize()
    let before = try container.info().commit
    try body()
    try container.synchronize()
    return try container.info().commit - before
  }

  @Test func aLinkTakesThePlaceOfAnotherInOneCommit() throws {
    try container.createSymbolicLink("/link", to: "a")
    try container.write([4], to: "/other")
    #expect(
      try commitCount {
        try container.createSymbolicLink("/new", to: "a")
        try container.move("/new", to: "/link", replacing: true)
      } == 2)
    #expect(
      try commitCount { try container.createSymbolicLink("/link", to: "a/b", replacing: true) } == 1)
    #expect(try container.destinationOfSymbolicLink("/link") == "a/b")
    #expect(try commitCount { try container.createLink("/link", to: "/a/file", replacing: true) } == 1)
    #expect(try container.contents(at: "/link") == [1, 2, 3])
    #expect(try container.attributes(at: "/a/file")?.linkCount == 2)
    // Another name of the same file stays as it is.
    #expect(try commitCount { try container.createLink("/link", to: "/a/file", replacing: true) } == 0)
    #expect(try commitCount { try container.createLink("/a/file", to: "/a/file", replacing: true) } == 0)
    try container.createLink("/link", to: "/other", replacing: true)
    #expect(try container.attributes(at: "/a/file")?.linkCount == 1)
    try container.createSymbolicLink("/free", to: "a", replacing: true)
    #expect(
      try container.list("/", recursively: true).map(\.path) == [
        "a", "free", "link", "other", "a/b", "a/file",
      ])
    #expect(try container.verify().findings == [])
  }

  @Test func aLinkDoesNotReplaceADirectory() throws {
    try container.createSymbolicLink("/link", to: "a")
    expect(.isADirectory) { try container.createSymbolicLink("/a/b", to: "c", replacing: true) }
    expect(.isADirectory) { try container.createLink("/a/b", to: "/a/file", replacing: true) }
    expect(.noSuchFile) { try container.createLink("/link", to: "/none", replacing: true) }
    expect(.fileExists) { try container.createSymbolicLink("/link", to: "c") }
    expect(.fileExists) { try container.createSymbolicLink("/", to: "c", replacing: true) }
    #expect(try container.destinationOfSymbolicLink("/link") == "a")
  }

  // MARK: Symbolic links

  /// Not what it leads to, which a slash behind a link's name would reach.
  @Test func whatALinkLeadsToIsNotRemovedOrMovedInItsPlace() throws {
    try container.createSymbolicLink("/link", to: "a")
    expect(.notADirectory) { try container.remove("/link/") }
    expect(.notADirectory) { try container.move("/link/", to: "/c") }
    expect(.notADirectory) { _ = try container.move("/link/", into: "/.Trash") }
    #expect(try container.list("/", recursively: true).map(\.path) == ["a", "link", "a/b", "a/file"])
    try container.remove("/a/b/")
    try container.remove("/link")
    #expect(try container.list("/", recursively: true).map(\.path) == ["a", "a/file"])
  }

  @Test(arguments: [
    ("file", "/a/link"), ("/a/file", "/link"), ("../file", "/a/b/link"), ("./b/../file", "/a/link"),
    ("a/file", "/link"),
  ])
  func aLinkIsFollowedFromItsDirectory(target: String, link: String) throws {
    try container.createSymbolicLink(link, to: target)
    #expect(try container.contents(at: link) == [1, 2, 3])
    #expect(try container.destinationOfSymbolicLink(link) == target)
    let attributes = try #require(try container.attributes(at: link))
    #expect(attributes.kind == .symbolicLink && attributes.size == UInt64(target.utf8.count))
    #expect(try container.attributes(at: link, followingLinks: true)?.kind == .file)
    #expect(try container.resolvedPath(link) == "/a/file")
    #expect(try container.resolvedPath(link, followingLinks: false) == link)
    // What is written through it is in the file.
    try container.write([9], to: link)
    #expect(try container.contents(at: "/a/file") == [9])
    #expect(try container.attributes(at: link)?.kind == .symbolicLink)
    #expect(try fixture.reopened().contents(at: link) == [9])
  }

  @Test func linksAreFollowedInTheMiddleAndParentsAreThoseOfWhereTheyLead() throws {
    try container.createSymbolicLink("/short", to: "a/b")
    try container.write([4], to: "/short/inner")
    #expect(try container.contents(at: "/a/b/inner") == [4])
    #expect(try container.contents(at: "/short/../file") == [1, 2, 3])
    #expect(try container.names(in: "/short") == ["inner"])
    try container.createDirectory("/short/new/deep", withIntermediateDirectories: true)
    #expect(try container.attributes(at: "/a/b/new/deep")?.kind == .directory)
    try container.createDirectory("/short", withIntermediateDirectories: true)
    expect(.fileExists) { try container.createDirectory("/short") }
    #expect(try container.attributes(at: "/short/")?.kind == .directory)
    expect(.noSuchFile) { _ = try container.contents(at: "/none/../a/file") }
    expect(.notADirectory) { _ = try container.contents(at: "/a/file/../file") }
  }

  @Test func aLinkThatLeadsNowhereIsThereAndWhatItNamesCanBeMade() throws {
    try container.createSymbolicLink("/link", to: "a/new")
    #expect(try container.attributes(at: "/link", followingLinks: true) == nil)
    #expect(try container.attributes(at: "/link") != nil)
    expect(.noSuchFile) { _ = try container.contents(at: "/link") }
    try container.write([5], to: "/link")
    #expect(try container.contents(at: "/a/new") == [5])
    let file = try container.openFile("/link", .readWrite)
    try file.truncate(to: 0)
    try file.close()
    #expect(try container.contents(at: "/a/new") == [])
  }

  @Test func linksThatLeadToOneAnotherEnd() throws {
    try container.createSymbolicLink("/x", to: "y")
    try container.createSymbolicLink("/y", to: "x")
    expect(.tooManyLinks) { _ = try container.contents(at: "/x") }
    expect(.tooManyLinks) { try container.write([1], to: "/x/deeper") }
    try container.remove("/x")
    #expect(try container.attributes(at: "/x") == nil)
  }

  @Test func removingMovingAndCopyingTakeTheLinkItself() throws {
    try container.createSymbolicLink("/a/b/link", to: "../file")
    try container.move("/a/b/link", to: "/a/b/other")
    #expect(try container.destinationOfSymbolicLink("/a/b/other") == "../file")
    try container.copy("/a/b/other", to: "/a/b/third")
    #expect(try container.destinationOfSymbolicLink("/a/b/third") == "../file")
    try container.write([5], to: "/five")
    try container.copy("/five", to: "/a/b/third", replacing: true)
    #expect(try container.contents(at: "/a/file") == [5])
    try container.write([1, 2, 3], to: "/a/file")
    try container.copy("/a", to: "/copy")
    #expect(try container.destinationOfSymbolicLink("/copy/b/other") == "../file")
    try container.write([7], to: "/copy/file")
    #expect(try container.contents(at: "/copy/b/other") == [7])
    try container.remove("/a/b/other")
    #expect(try container.contents(at: "/a/file") == [1, 2, 3])
    try container.remove("/copy")
    #expect(try container.verify().findings.isEmpty)
  }

  @Test func whatIsInTheWayOfALinkIsSaid() throws {
    expect(.fileExists) { try container.createSymbolicLink("/a", to: "x") }
    expect(.fileExists) { try container.createSymbolicLink("/", to: "x") }
    expect(.noSuchFile) { try container.createSymbolicLink("/none/link", to: "x") }
    expect(.noSuchFile) { try container.createSymbolicLink("/link", to: "") }
    expect(.invalidArgument) {
      try container.createSymbolicLink("/link", to: String(repeating: "x", count: 4097))
    }
    expect(.notASymbolicLink) { _ = try container.destinationOfSymbolicLink("/a/file") }
    expect(.noSuchFile) { _ = try container.destinationOfSymbolicLink("/none") }
  }

  // MARK: Other names

  @Test func namesOfOneFileShareEverythingUntilTheLastGoes() throws {
    try container.createLink("/other", to: "/a/file")
    let (first, second) = (try container.attributes(at: "/a/file"), try container.attributes(at: "/other"))
    #expect(first == second && first?.linkCount == 2)
    let file = try container.openFile("/other", .readWrite)
    try [UInt8](repeating: 8, count: 5).withUnsafeBytes { try file.write($0, at: 0) }
    #expect(try container.contents(at: "/a/file") == [8, 8, 8, 8, 8])
    try file.close()
    try container.remove("/a")
    #expect(try container.contents(at: "/other") == [8, 8, 8, 8, 8])
    #expect(try container.attributes(at: "/other")?.linkCount == 1)
    #expect(try fixture.reopened().verify().findings.isEmpty)
  }

  @Test func aFolderWithBothNamesGoesAtOnce() throws {
    try container.createLink("/a/other", to: "/a/file")
    try container.createSymbolicLink("/a/link", to: "file")
    try container.createLink("/a/second link", to: "/a/link")
    #expect(try container.destinationOfSymbolicLink("/a/second link") == "file")
    try container.remove("/a")
    #expect(try container.info().byteCount == 0)
    #expect(try fixture.reopened().verify().findings.isEmpty)
  }

  @Test func movedToItsOtherNameAFileHasThatOneOnly() throws {
    try container.createLink("/other", to: "/a/file")
    expect(.fileExists) { try container.move("/a/file", to: "/other") }
    try container.move("/a/file", to: "/other", replacing: true)
    #expect(try container.attributes(at: "/a/file") == nil)
    #expect(try container.attributes(at: "/other")?.linkCount == 1)
    #expect(try container.contents(at: "/other") == [1, 2, 3])
    expect(.fileExists) { try container.copy("/other", to: "/other", replacing: true) }
    #expect(try fixture.reopened().verify().findings.isEmpty)
  }

  @Test func directoriesHaveOneName() throws {
    expect(.isADirectory) { try container.createLink("/other", to: "/a") }
    expect(.fileExists) { try container.createLink("/a/b", to: "/a/file") }
    expect(.noSuchFile) { try container.createLink("/other", to: "/none") }
  }

  /// Not what a link or `..` leads to.
  @Test(arguments: ["/a/b/.", "/a/b/..", "/a/b/./", "/toB/", "/toB/."])
  func onlyWhatHasTheNameLosesItsPlace(path: String) throws {
    try container.createSymbolicLink("/toB", to: "a/b")
    try container.write([1], to: "/new")
    let before = try container.tree()
    let code = path == "/toB/" ? ContainerError.Code.notADirectory : .invalidArgument
    expect(code) { try container.remove(path) }
    expect(code) { try container.move(path, to: "/elsewhere") }
    expect(code) { _ = try container.move(path, into: "/elsewhere") }
    expect(code) { try container.replaceItem(at: path, with: "/new") }
    expect(code) { try container.replaceItem(at: "/new", with: path) }
    #expect(try container.tree() == before)
    try container.move("/a/b/", to: "/elsewhere")
    #expect(try container.names(in: "/a") == ["file"])
  }

  /// A link that leads to a file, to a folder, nowhere, and to itself.
  @Test(arguments: ["/a/file", "/a", "none", "link"])
  func aFileTakesThePlaceOfALinkWhenAsked(target: String) throws {
    try container.createSymbolicLink("/link", to: target)
    try [UInt8(9)].withUnsafeBytes { try container.write($0, to: "/link", followingLinks: false) }
    #expect(try container.attributes(at: "/link")?.kind == .file)
    #expect(try container.contents(at: "/link") == [9])
    #expect(try container.contents(at: "/a/file") == [1, 2, 3])
    #expect(try fixture.reopened().verify().findings.isEmpty)
  }

  // MARK: In the place of another

  @Test(arguments: [true, false], [nil, "backup"])
  func oneItemTakesThePlaceOfAnother(isDirectory: Bool, backup: String?) throws {
    try container.setAttributes(at: "/a/file", created: 5, permissions: 0o640)
    if isDirectory {
      try container.createDirectory("/new")
      try container.write([6], to: "/new/inner")
    } else {
      try container.write([6], to: "/new")
    }
    if backup == nil { try container.write([0], to: "/a/backup") }
    try container.replaceItem(at: "/a/file", with: "/new", backup: backup)
    #expect(try container.contents(at: isDirectory ? "/a/file/inner" : "/a/file") == [6])
    #expect(try container.attributes(at: "/new") == nil)
    #expect(try container.contents(at: "/a/backup") == (backup == nil ? [0] : [1, 2, 3]))
    let attributes = try #require(try container.attributes(at: "/a/file"))
    #expect(attributes.created == 5 && attributes.permissions == 0o640)
    #expect(try fixture.reopened().verify().findings.isEmpty)
  }

  @Test func nothingIsLostWhenItCannotTakeThePlace() throws {
    let before = try container.tree()
    expect(.noSuchFile) { try container.replaceItem(at: "/a/file", with: "/none") }
    expect(.noSuchFile) { try container.replaceItem(at: "/none", with: "/a/file") }
    expect(.moveIntoItself) { try container.replaceItem(at: "/a/b", with: "/a") }
    expect(.moveIntoItself) { try container.replaceItem(at: "/a", with: "/a/file") }
    expect(.invalidName) { try container.replaceItem(at: "/a/file", with: "/a/b", backup: "x/y") }
    for path in ["/a/file/", "/a/.", "/a/b/.."] {
      expect(path == "/a/file/" ? .notADirectory : .invalidArgument) {
        try container.replaceItem(at: path, with: "/a/b")
      }
    }
    #expect(try container.tree() == before)
  }

  /// Be it something else, the new item, what the new item is in, or the old item.
  @Test(arguments: ["other", "b", "file"], ["/new", "/a/b", "/a/b/new"])
  func nothingGoesForABackup(backup: String, new: String) throws {
    try container.write([7], to: "/a/other")
    try container.write([6], to: "/new")
    try container.write([6], to: "/a/b/new")
    let before = try container.tree()
    expect(.fileExists) { try container.replaceItem(at: "/a/file", with: new, backup: backup) }
    #expect(try container.tree() == before)
  }

  @Test(arguments: [nil, "backup"])
  func aNameOfTheSameFileTakesThePlaceOfAnother(backup: String?) throws {
    try container.createLink("/a/other", to: "/a/file")
    try container.createLink("/new", to: "/a/file")
    try container.replaceItem(at: "/a/file", with: "/new", backup: backup)
    #expect(try container.contents(at: "/a/file") == [1, 2, 3])
    let names = ["b", "file", "other"] + (backup.map { [$0] } ?? [])
    #expect(try container.names(in: "/a") == names.sorted())
    #expect(try container.attributes(at: "/a/file")?.linkCount == names.count - 1)
    #expect(try fixture.reopened().verify().findings.isEmpty)
  }

  // MARK: Extended attributes

  @Test func aCopyIsWholeThoughItsOriginalGoesMeanwhile() throws {
    try container.setExtendedAttributes(["user.one": [1]], at: "/a/file")
    try container.setExtendedAttributes(["folder": [3]], at: "/a")
    let container = container
    // Told before the copies get their names.
    let control = BulkControl(progress: { _ in try? container.remove("/a") })
    try container.copy("/a", to: "/copy", control: control)
    #expect(try container.attributes(at: "/a") == nil)
    #expect(try container.contents(at: "/copy/file") == [1, 2, 3])
    #expect(try container.extendedAttributes(at: "/copy/file") == ["user.one": [1]])
    #expect(try container.extendedAttributes(at: "/copy") == ["folder": [3]])
  }

  @Test func extendedAttributesStayWithTheirFile() throws {
    try container.setExtendedAttributes(["user.one": [1], "user.two": []], at: "/a/file")
    try container.setExtendedAttributes(["user.one": [1, 1], "folder": [3]], at: "/a")
    try container.setExtendedAttributes(["user.one": [UInt8]?.none, "user.three": [3]], at: "/a/file")
    #expect(try container.extendedAttributes(at: "/a/file") == ["user.two": [], "user.three": [3]])
    try container.copy("/a", to: "/copy")
    #expect(try container.extendedAttributes(at: "/copy/file") == ["user.two": [], "user.three": [3]])
    #expect(try container.extendedAttributes(at: "/copy") == ["user.one": [1, 1], "folder": [3]])
    try container.move("/a/file", to: "/moved")
    let reopened = try fixture.reopened()
    #expect(try reopened.extendedAttributes(at: "/moved") == ["user.two": [], "user.three": [3]])
    try reopened.remove("/copy")
    try reopened.write([1], to: "/copy")
    #expect(try reopened.extendedAttributes(at: "/copy") == [:])
    #expect(try reopened.verify().findings.isEmpty)
  }

  @Test func impossibleAttributesAreRefused() throws {
    expect(.invalidName) { try container.setExtendedAttributes(["": [1]], at: "/a/file") }
    let long = String(repeating: "x", count: 256)
    expect(.invalidName) { try container.setExtendedAttributes([long: [1]], at: "/a/file") }
    let large = [UInt8](repeating: 0, count: 32_769)
    expect(.invalidArgument) { try container.setExtendedAttributes(["x": large], at: "/a/file") }
    expect(.noSuchFile) { try container.setExtendedAttributes(["x": [1]], at: "/none") }
    try container.setExtendedAttributes(["\u{e9}": [1]], at: "/a/file")
    expect(.invalidName) { try container.setExtendedAttributes(["e\u{301}": [2]], at: "/a/file") }
    try container.setExtendedAttributes(["x": Array(large.dropLast())], at: "/a/file")
    #expect(try container.extendedAttributes(at: "/a/file")["x"]?.count == 32_768)
  }
}
