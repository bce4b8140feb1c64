import ContainerStore
import Testing

struct ReplaceTests {
  /// The number of links is that of the names which are left, so that the file goes with the last one.
  @Test func replacingOneNameOfAFileByAnotherCountsItsLinks() throws {
    let container = try Fixture().container
    try container.write([1], to: "/new")
    // What goes is another name of the new item.
    try container.createLink("/file", to: "/new")
    try container.replaceItem(at: "/file", with: "/new")
    #expect(try container.attributes(at: "/file")?.linkCount == 1)
    #expect(try container.contents(at: "/file") == [1])
    #expect(try container.verify().findings == [])
    try container.remove("/file")
    #expect(try container.info().fileCount == 0)
    #expect(try container.verify().findings == [])
  }

  @Test(arguments: ["/backup", "/backup/inner", "/backup/inner/new"])
  func nothingMakesWayForABackup(source: String) throws {
    let container = try Fixture().container
    try container.createDirectory("/backup/inner/new", withIntermediateDirectories: true)
    try container.write([1], to: "/file")
    let tree = try container.tree()
    expectError(.fileExists) { try container.replaceItem(at: "/file", with: source, backup: "backup") }
    #expect(try container.tree() == tree)
  }
}
