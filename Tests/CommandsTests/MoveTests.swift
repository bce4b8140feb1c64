import Testing

/// `mv` with places.
struct MoveTests {
  /// /a (1), /b (2), /d/
  private func filled() throws -> (TemporaryFolder, String) {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    for (name, byte) in [("a", 1), ("b", 2)] as [(String, UInt8)] {
      try folder.run("put", container, try folder.makeFile(name, [byte]), "/" + name)
    }
    try folder.run("mkdir", container, "/d")
    return (folder, container)
  }

  @Test func takesPlacesOnBothSides() throws {
    let (folder, container) = try filled()
    try folder.run("mv", container + ":/a", container + ":/c")
    #expect(try folder.run("ls", container).text == "b\nc\nd\n")
    try folder.run("mv", container + ":/c", container + ":/b")  // replaces it
    #expect(try folder.run("cat", container, "/b").output == [1])
    try folder.run("mv", container + ":/b", folder.root + "/./c:/d")  // into it
    #expect(try folder.run("ls", container, "-R").text == "d/\nd/b\n")
  }

  @Test func movesSeveralIntoAFolder() throws {
    let (folder, container) = try filled()
    let places = ["/a", "/b", "/d"].map { container + ":" + $0 }
    try folder.run(["mv"] + places)
    #expect(try folder.run("ls", container, "-R").text == "d/\nd/a\nd/b\n")
    let below = ["/d/a", "/d/b", "/d/a"].map { container + ":" + $0 }
    try folder.run(["mv"] + below, expecting: 6)
    try folder.run("mv", container + ":/gone", container + ":/x", expecting: 5)
    try folder.run("mv", below[0], below[1], container + ":/gone", expecting: 5)
    #expect(try folder.run("ls", container, "-R").text == "d/\nd/a\nd/b\n")
  }

  @Test func saysWhatToDoWhereItCannotMove() throws {
    let (folder, container) = try filled()
    let other = try folder.makeContainer("other")
    for target in [other + ":/a", folder.path("native")] {
      let refused = try folder.run("mv", container + ":/a", target, expecting: 64).errors
      #expect(refused.contains("copy it with cp, then remove it with rm"))
    }
    try folder.run("mv", container, "/a", expecting: 64)
    try folder.run("mv", container, "/a", "/b", "/d", expecting: 64)
    #expect(try folder.run("ls", container).text == "a\nb\nd\n")
    #expect(try folder.run("ls", other).text == "")
  }
}
