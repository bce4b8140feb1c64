import SodiumPrimitives
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

struct RoundTripTests {
  static let sizes = [0, 1, 16384, 16385, 1 << 20, 1 << 20 + 1]

  @Test func returnsEveryFileOfAFolderAsItWas() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let source = try folder.makeFolder("source")
    _ = try folder.makeFolder("source/empty")
    var contents: [String: [UInt8]] = [:]
    for size in Self.sizes {
      contents["f\(size)"] = Random.bytes(size)
      _ = try folder.makeFile("source/f\(size)", contents["f\(size)"]!)
    }
    chmod(folder.path("source/f1"), 0o640)
    try folder.run("put", container, source, "/a/b/copy")
    try folder.run("get", container, "/a/b/copy", folder.path("back"))
    for (name, bytes) in contents { #expect(try readBytes(folder.path("back/" + name)) == bytes) }
    #expect(try fileNames(in: folder.path("back")).count == contents.count + 1)
    var status = stat()
    #expect(stat(folder.path("back/f1"), &status) == 0)
    #expect(status.st_mode & 0o777 == 0o640)
    try folder.run("container", "verify", container)
  }

  @Test(arguments: sizes)
  func carriesStandardInputAndOutput(size: Int) throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let bytes = Random.bytes(size)
    let input = try folder.makeFile("input", bytes)
    try folder.run("put", container, "-", "/new/folder/file", input: input)
    #expect(try folder.run("get", container, "/new/folder/file", "-").output == bytes)
    #expect(try folder.run("cat", container, "/new/folder/file", "new/folder/file").output == bytes + bytes)
  }

  @Test func putsInsideAnExistingFolderOrUnderTheName() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let file = try folder.makeFile("file", [1])
    let tree = try folder.makeFolder("tree")
    _ = try folder.makeFile("tree/leaf", [2])
    try folder.run("put", container, file, "/")
    try folder.run("put", container, file, "/made/")
    try folder.run("put", container, file, "/made")
    try folder.run("put", container, file, "/made/name")
    try folder.run("put", container, tree + "/", "/made")
    try folder.run("put", container, tree, "/other")
    try folder.run("put", container, tree + "/.", "/made")
    #expect(
      try folder.run("ls", "-R", container).text
        == "file\nmade/\nmade/file\nmade/leaf\nmade/name\nmade/tree/\nmade/tree/leaf\nother/\nother/leaf\n")
    // A file is never put where a folder is, nor a folder where a file is.
    try folder.run("put", container, tree, "/file", expecting: 6)
    try folder.run("put", container, "-", "/made", expecting: 6)
  }

  @Test func getsInsideAnExistingFolderOrUnderTheName() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let file = try folder.makeFile("file", [1])
    try folder.run("put", container, file, "/a/b/file")
    let target = try folder.makeFolder("target")
    try folder.run("get", container, "/a/b/file", target)
    try folder.run("get", container, "/a/b", target + "/")
    try folder.run("get", container, "/", target)
    try folder.run("get", container, "/a/b/file", file)
    #expect(try fileNames(in: target) == ["a", "b", "file"])
    #expect(try readBytes(target + "/b/file") == [1])
    try folder.run("get", container, "/a", file, expecting: 6)
    try folder.run("get", container, "/a/b/file", folder.path("missing/file"), expecting: 5)
    try folder.run("get", container, "/a/b/file", folder.path("missing/"), expecting: 5)
    try folder.run("get", container, "/a", "-", expecting: 6)
  }

  @Test func replacesFilesOnBothSides() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    try folder.run("put", container, try folder.makeFile("first", [1, 2, 3]), "/f")
    try folder.run("put", container, try folder.makeFile("second", [4]), "/f")
    try folder.run("get", container, "/f", folder.path("first"))
    #expect(try readBytes(folder.path("first")) == [4])
  }

  @Test func readsAndWritesPipesAndDevicesWithoutReplacingThem() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let pipe = folder.path("pipe")
    #expect(mkfifo(pipe, 0o600) == 0)
    let put = try folder.start("put", container, pipe, "/from-pipe")
    let writer = open(pipe, O_WRONLY | O_CLOEXEC)
    #expect(write(writer, "abc", 3) == 3)
    close(writer)
    #expect(try put.finish().status == 0)
    let get = try folder.start("get", container, "/from-pipe", pipe)
    #expect(try readBytes(pipe) == Array("abc".utf8))
    #expect(try get.finish().status == 0)
    var status = stat()
    #expect(lstat(pipe, &status) == 0)
    #expect(status.st_mode & S_IFMT == S_IFIFO)
    try folder.run("get", container, "/from-pipe", "/dev/null")
    #expect(lstat("/dev/null", &status) == 0)
    #expect(status.st_mode & S_IFMT == S_IFCHR)
  }

  @Test func copiesMovesAndRemoves() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let one = try folder.makeFile("one", [1])
    let two = try folder.makeFile("two", [2])
    try folder.run("mkdir", container, "/d", "/e")
    try folder.run("mkdir", container, "/d", expecting: 6)
    try folder.run("mkdir", "-p", container, "/d/x/y", "/d")
    try folder.run("mkdir", container, "/no/parent", expecting: 5)
    try folder.run("put", container, one, "/one")
    try folder.run("put", container, two, "/two")
    try folder.run("mv", container, "/one", "/two")  // replaces it
    try folder.run("mv", container, "/two", "/d")  // into it
    try folder.run("mv", container, "/d", "/d/x", expecting: 1)
    try folder.run("cp", container, "/d", "/e")
    try folder.run("cp", container, "/d/two", "/copy")
    try folder.run("cp", container, "/gone", "/copy", expecting: 5)
    #expect(
      try folder.run("ls", "-R", container, "/").text
        == "copy\nd/\nd/two\nd/x/\nd/x/y/\ne/\ne/d/\ne/d/two\ne/d/x/\ne/d/x/y/\n")
    #expect(try folder.run("cat", container, "/copy", "/e/d/two").output == [1, 1])
    try folder.run("rm", container, "/d/x/y", expecting: 6)
    try folder.run("rm", container, "/gone", expecting: 5)
    try folder.run("rm", "-f", container, "/gone")
    try folder.run("rm", "-r", container, "/d", "/e", "/copy")
    #expect(try folder.run("ls", container).text == "")
  }

  @Test(arguments: ["libsodium", "libcrypto"])
  func takesEitherCipher(name: String) throws {
    guard name == "libsodium" || CipherBackend.preferred == .libcrypto else { return }
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let bytes = Random.bytes(100_003)
    try folder.run("put", container, try folder.makeFile("f", bytes), "/f", "--cipher", name)
    #expect(try folder.run("get", container, "/f", "-").output == bytes)
  }
}
