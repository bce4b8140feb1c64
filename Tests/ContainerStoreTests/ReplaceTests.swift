import ContainerStore
import Testing

struct ReplaceTests {
  /// The number of links is that of the names which are left, so that the file goes with the last one.
  @Test(arguments: [nil, "backup"])
  func replacingOneNameOfAFileByAnotherCountsItsLinks(backup: String?) throws {
    let container = try Fixture().container
    try container.write([1], to: "/new")
    // What goes is another name of the new item: in its place, or in the backup's.
    try container.createLink(backup.map { "/" + $0 } ?? "/file", to: "/new")
    if backup != nil { try container.write([2], to: "/file") }
    try container.replaceItem(at: "/file", with: "/new", backup: backup)
    #expect(try container.attributes(at: "/file")?.linkCount == 1)
    #expect(try container.contents(at: "/file") == [1])
    #expect(try container.verify().findings == [])
    try container.remove("/file")
    if let backup { try container.remove("/" + backup) }
    #expect(try container.info().fileCount == 0)
    #expect(try container.verify().findings == [])
  }

  @Test(arguments: ["/backup", "/backup/inner", "/backup/inner/new"])
  func theNewItemIsNotInWhatMakesWayForTheBackup(source: String) throws {
    let container = try Fixture().container
    try container.createDirectory("/backup/inner/new", withIntermediateDirectories: true)
    try container.write([1], to: "/file")
    let tree = try container.tree()
    expectError(.invalidArgument) { try container.replaceItem(at: "/file", with: source, backup: "backup") }
    #expect(try container.tree() == tree)
  }
}
