import SodiumPrimitives
import Testing

@testable import Commands

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// `cp` where two worlds meet.
struct CopyTests {
  private func filled(_ folder: TemporaryFolder, _ name: String = "a") throws -> String {
    let container = try folder.makeContainer(name)
    let tree = try folder.makeFolder("tree-" + name)
    _ = try folder.makeFolder("tree-\(name)/sub")
    _ = try folder.makeFile("tree-\(name)/one", [1])
    _ = try folder.makeFile("tree-\(name)/sub/two", Random.bytes(40_000))
    try folder.run("cp", "-r", tree, container + ":/tree")
    return container
  }

  private func toKey(_ folder: TemporaryFolder) -> [String] { ["--to-key-file", folder.path("key")] }

  @Test func copiesNativeFilesIntoAContainer() throws {
    let folder = try TemporaryFolder()
    let container = try filled(folder)
    #expect(try folder.run("ls", "-R", container).text == "tree/\ntree/one\ntree/sub/\ntree/sub/two\n")
    let (x, y) = (try folder.makeFile("x", [7]), try folder.makeFile("y", [8]))
    try folder.run("cp", x, y, container + ":/new/folder/")
    #expect(try folder.run("cat", container, "/new/folder/x", "/new/folder/y").output == [7, 8])
    try folder.run("cp", x, container + ":/tree/one")
    #expect(try folder.run("cat", container, "/tree/one").output == [7])
    try folder.run("cp", "-", container + ":/stream", input: y)
    #expect(try folder.run("cat", container, "/stream").output == [8])
    // Several files need a folder.
    try folder.run("cp", x, y, container + ":/missing", expecting: 5)
    try folder.run("cp", x, y, container + ":/tree/one", expecting: 6)
    try folder.run("cp", folder.path("gone"), container + ":/f", expecting: 5)
    try folder.run("cp", x, folder.path("gone") + ":/f", expecting: 5)
  }

  @Test func copiesOutOfAContainer() throws {
    let folder = try TemporaryFolder()
    let container = try filled(folder)
    let target = try folder.makeFolder("target")
    try folder.run("cp", container + ":/tree/one", container + ":/tree/sub", target)
    #expect(try fileNames(in: target) == ["one", "sub"])
    try folder.run("cp", container + ":/tree", folder.path("copy"))
    #expect(try readBytes(folder.path("copy/sub/two")) == readBytes(folder.path("tree-a/sub/two")))
    #expect(try folder.run("cp", container + ":/tree/one", "-").output == [1])
    try folder.run("cp", container + ":/tree/one", container + ":/tree/sub", folder.path("new"), expecting: 5)
    try folder.run("cp", container + ":/tree/one", container + ":/tree/sub", folder.path("key"), expecting: 6)
    try folder.run("cp", container + ":/tree/gone", target, expecting: 5)
  }

  @Test func copiesBetweenContainers() throws {
    let folder = try TemporaryFolder()
    let (a, b) = (try filled(folder), try folder.makeContainer("b"))
    let bytes = Random.bytes(3 << 20 + 17)
    let large = try folder.makeFile("large", bytes)
    chmod(large, 0o640)
    try folder.run("cp", large, a + ":/tree/large")
    let key = toKey(folder)
    try folder.run("cp", a + ":/tree", b + ":/made/on/the/way", key[0], key[1])
    #expect(try folder.run("cat", b, "/made/on/the/way/large").output == bytes)
    try folder.run("cp", a + ":/tree/", b + ":/", key[0], key[1])
    #expect(
      try folder.run("ls", "-R", b, "/tree").text == (try folder.run("ls", "-R", a, "/tree").text))
    // Permissions and date of modification come along.
    func line(_ container: String) throws -> String {
      try folder.run("ls", "-l", container, "/tree/large").text
    }
    #expect(try line(b) == line(a))
    #expect(try line(b).hasPrefix("-rw-r-----  "))
    // Again: folders are merged, files replaced.
    try folder.run("put", b, try folder.makeFile("other", [9]), "/tree/one")
    try folder.run("cp", a + ":/tree", b + ":/", key[0], key[1])
    #expect(try folder.run("cat", b, "/tree/one").output == [1])
    try folder.run("container", "verify", b)
    // The receiver's secret is its own.
    #expect(
      try folder.run("cp", a + ":/tree/one", b + ":/x", expecting: 64).errors.contains(
        "DYNAMICS_TO_PASSPHRASE"))
    // A file is not put where a folder is, nor a folder where a file is.
    try folder.run("cp", a + ":/tree/sub", b + ":/tree/one", key[0], key[1], expecting: 6)
  }

  @Test func copiesInsideOneContainer() throws {
    let folder = try TemporaryFolder()
    let container = try filled(folder)
    let same = folder.path("./a")
    try folder.run("cp", container + ":/tree/one", same + ":/copy")
    try folder.run("cp", container + ":/tree", container + ":/copies/")
    try folder.run("cp", container + ":/tree", container + ":/copies/")  // merges
    #expect(try folder.run("ls", container, "/copies/tree").text == "one\nsub\n")
    try folder.run("cp", container + ":/tree", container + ":/tree/sub/", expecting: 1)
    try folder.run("cp", container + ":/tree", container + ":/tree", "-n", expecting: 1)
    // The older form goes on meaning what it meant, also for paths with a colon.
    try folder.run("mkdir", container, "/x:")
    try folder.run("cp", container, "/tree/one", "x:/one")
    #expect(try folder.run("cat", container, "/x:/one").output == [1])
    try folder.run("cp", container, "/tree/one", "/no/folder", expecting: 5)
  }

  @Test func leavesExistingFilesWhenAsked() throws {
    let folder = try TemporaryFolder()
    let (a, b) = (try filled(folder), try filled(folder, "b"))
    let key = toKey(folder)
    for (name, path) in [("p", "/tree/new"), ("q", "/tree/one")] {
      try folder.run("put", a, try folder.makeFile(name, [5]), path)
    }
    let printed = try folder.run("cp", "-n", "-v", a + ":/tree", b + ":/", key[0], key[1]).text
    #expect(printed == "/tree/new -> /tree/new\n")
    #expect(try folder.run("cat", b, "/tree/one", "/tree/new").output == [1, 5])
    try folder.run("cp", "-n", folder.path("key"), a + ":/tree/one")
    try folder.run("cp", "-n", a, "/tree/new", "/tree/sub/two")
    try folder.run("cp", "-n", folder.path("tree-a"), a + ":/not/yet/there")
    #expect(try folder.run("ls", a, "/not/yet/there").text == "one\nsub\n")
    #expect(try folder.run("cat", a, "/tree/one").output == [5])
    #expect(try folder.run("cat", a, "/tree/sub/two").output == readBytes(folder.path("tree-a/sub/two")))
    let target = try folder.makeFolder("target")
    _ = try folder.makeFolder("target/tree")
    _ = try folder.makeFile("target/tree/one", [3])
    try folder.run("cp", "-n", a + ":/tree", target)
    #expect(try readBytes(target + "/tree/one") == [3])
    #expect(try readBytes(target + "/tree/new") == [5])
    #expect(try fileNames(in: target + "/tree/sub") == ["two"])
    try folder.run("cp", "-n", "-f", a + ":/tree", target, expecting: 64)
  }

  @Test func printsWhatItCopied() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let tree = try folder.makeFolder("tree")
    _ = try folder.makeFile("tree/a\n", [1])
    #expect(
      try folder.run("cp", "-rv", tree, container + ":/").text
        == "\(tree) -> /tree\n\(tree)/a\\n -> /tree/a\\n\n")
    #expect(
      try folder.run("cp", "-v", container + ":/tree/a\n", tree + "/b").text == "/tree/a\\n -> \(tree)/b\n")
  }

  @Test func keepsFoldersDatesWhenAsked() throws {
    let folder = try TemporaryFolder()
    let (a, b) = (try filled(folder), try folder.makeContainer("b"))
    let key = toKey(folder)
    let time = timespec(tv_sec: 1_000_000_000, tv_nsec: 5)
    let tree = folder.path("tree-a")
    for path in [tree, tree + "/sub"] { #expect(utimensat(AT_FDCWD, path, [time, time], 0) == 0) }
    try folder.run("cp", "-a", tree, a + ":/dated")
    try folder.run("cp", "-p", a + ":/dated", b + ":/dated", key[0], key[1])
    for container in [a, b] {
      for path in ["/dated", "/dated/sub"] {
        let text = try folder.run("stat", container, path).text
        #expect(text.contains("modified     2001-09-09T01:46:40.000000005Z\n"))
      }
    }
    try folder.run("cp", "-p", b + ":/dated", folder.path("back"))
    for path in ["back", "back/sub"] {
      var status = stat()
      #expect(stat(folder.path(path), &status) == 0)
      #expect(status.st_mtim.tv_sec == 1_000_000_000 && status.st_mtim.tv_nsec == 5)
    }
    let created = { (container: String) in
      try folder.run("stat", container, "/dated/one").text.split(separator: "\n").first {
        $0.hasPrefix("created")
      }
    }
    #expect(try created(a) == created(b))
  }

  /// A folder with a link to a file, one to a folder, and one that leads nowhere.
  private func linked(_ folder: TemporaryFolder) throws -> String {
    let tree = try folder.makeFolder("linked")
    _ = try folder.makeFolder("linked/sub")
    _ = try folder.makeFile("linked/sub/one", [1])
    for (name, target) in [("file", "sub/one"), ("folder", "sub"), ("none", "/nothing/here")] {
      #expect(symlink(target, tree + "/" + name) == 0)
    }
    return tree
  }

  private func destination(_ path: String) -> String? { try? NativeFile.destination(ofLink: path) }

  @Test(arguments: [[], ["-n"]])
  func linksBelowAFolderStayLinksOnEveryWay(options: [String]) throws {
    let folder = try TemporaryFolder()
    let (a, b) = (try folder.makeContainer("a"), try folder.makeContainer("b"))
    let (tree, key) = (try linked(folder), toKey(folder))
    func cp(_ operands: String...) throws { try folder.run(["cp"] + options + operands) }
    for _ in 0..<2 {
      try cp(tree, a + ":/")
      try cp(a + ":/linked", a + ":/inside/")
      try cp(a + ":/inside", b + ":/", key[0], key[1])
      try cp(b + ":/inside/linked", folder.path("out"))
      try folder.run("rm", "-rf", a, "/linked/file")
    }
    let printed = try folder.run("ls", "-l", b, "/inside/linked").text.split(separator: "\n")
    #expect(
      printed.filter { $0.hasPrefix("l") }.map { $0.split(separator: "Z  ").last }
        == ["file -> sub/one", "folder -> sub", "none -> /nothing/here"])
    for name in ["file", "folder", "none"] {
      #expect(destination(folder.path("out/" + name)) == destination(tree + "/" + name))
    }
    #expect(try readBytes(folder.path("out/file")) == [1])
    for container in [a, b] { try folder.run("container", "verify", container) }
  }

  /// As cp(1) has it: with -r, -P or -a a link that is named stays one, and without what it leads to is copied.
  @Test(arguments: ["-r", "-R", "-P", "-d", "-a", "-f", "-p"])
  func followsWhatIsNamedUnlessLinksAreAskedFor(option: String) throws {
    let folder = try TemporaryFolder()
    let (a, b) = (try folder.makeContainer("a"), try folder.makeContainer("b"))
    let (tree, key) = (try linked(folder), toKey(folder))
    try folder.run("put", a, tree, "/")
    try folder.run("mkdir", b, "/linked")
    let keeps = !["-f", "-p"].contains(option)
    try folder.run("cp", option, tree + "/file", a + ":/from native")
    try folder.run("cp", option, a, "/linked/file", "/linked/sub/inside")
    try folder.run("cp", option, a + ":/linked/file", b + ":/linked/between", key[0], key[1])
    try folder.run("cp", option, a + ":/linked/file", folder.path("out"))
    let kind = keeps ? "l" : "-"
    for (container, path) in [(a, "/from native"), (a, "/linked/sub/inside"), (b, "/linked/between")] {
      #expect(try folder.run("ls", "-ld", container, path).text.hasPrefix(kind), "\(path)")
    }
    #expect(destination(folder.path("out")) == (keeps ? "sub/one" : nil))
    if !keeps { #expect(try readBytes(folder.path("out")) == [1]) }
    // One that leads nowhere can only be copied as it is.
    try folder.run("cp", option, a + ":/linked/none", b + ":/none", key[0], key[1], expecting: keeps ? 0 : 5)
    try folder.run("cp", option, tree + "/none", a + ":/none", expecting: keeps ? 0 : 5)
    try folder.run("cp", option, a + ":/linked/none", folder.path("none"), expecting: keeps ? 0 : 5)
    // A slash asks for the folder.
    try folder.run("cp", option, tree + "/folder/", a + ":/slash")
    #expect(try folder.run("ls", a, "/slash").text == "one\n")
  }

  @Test func aLinkTakesThePlaceOfAFileAndNotOfAFolder() throws {
    let folder = try TemporaryFolder()
    let (a, tree) = (try folder.makeContainer("a"), try linked(folder))
    try folder.run("put", a, tree, "/")
    let file = try folder.makeFile("file", [5])
    try folder.run("cp", "-P", a + ":/linked/none", file)
    #expect(destination(file) == "/nothing/here")
    try folder.run("cp", "-nP", a + ":/linked/folder", file)
    #expect(destination(file) == "/nothing/here")
    try folder.run("cp", "-P", tree + "/none", a + ":/linked/sub/one")
    #expect(try folder.run("ls", "-l", a, "/linked/sub").text.hasSuffix("one -> /nothing/here\n"))
    try folder.run("cp", "-P", a, "/linked/none", "/linked/none", expecting: 6)
    // A folder is not written through a link that has its name.
    let target = try folder.makeFolder("target")
    _ = try folder.makeFolder("target/linked")
    let elsewhere = try folder.makeFolder("elsewhere")
    #expect(symlink(elsewhere, target + "/linked/sub") == 0)
    for command in [["cp", a + ":/linked"], ["cp", "-n", a + ":/linked"], ["get", a, "/linked"]] {
      try folder.run(command + [target], expecting: 6)
    }
    #expect(try fileNames(in: elsewhere) == [])
  }

  @Test func aLinkTakesNoPlaceInTheContainersOwnDirectory() throws {
    let folder = try TemporaryFolder()
    let (a, tree) = (try folder.makeContainer("a"), try linked(folder))
    try folder.run("put", a, tree, "/")
    for place in ["superblock", "new", "slab/new"] {
      try folder.run("cp", "-P", a + ":/linked/none", "\(a)/\(place)", expecting: 1)
      #expect(destination("\(a)/\(place)") == nil)
    }
    try folder.run("container", "verify", a)
  }

  @Test func keepsExtendedAttributesWhenAsked() throws {
    let folder = try TemporaryFolder()
    let (a, b) = (try filled(folder), try folder.makeContainer("b"))
    let key = toKey(folder)
    let sender = try OpenContainer(a, keyFile: folder.path("key"))
    for path in ["/tree", "/tree/one"] { try sender.setExtendedAttribute("user.n\n", [1, 2], at: path) }
    try sender.close()
    #expect(try folder.run("stat", a, "/tree/one").text.hasSuffix("attribute    user.n\\n\n"))
    try folder.run("cp", "-p", a + ":/tree", b + ":/kept", key[0], key[1])
    try folder.run("cp", a + ":/tree", b + ":/bare", key[0], key[1])
    let receiver = try OpenContainer(b, keyFile: folder.path("key"))
    for path in ["/kept", "/kept/one"] {
      #expect(try receiver.extendedAttributes(at: path) == ["user.n\n": [1, 2]])
    }
    #expect(try receiver.extendedAttributes(at: "/bare/one").isEmpty)
    try receiver.close()
  }

  @Test func leavesNothingOfADamagedFile() throws {
    let folder = try TemporaryFolder()
    let (a, b) = (try filled(folder), try folder.makeContainer("b"))
    let slab = a + "/slab/" + (try #require(try fileNames(in: a + "/slab").first))
    var bytes = try readBytes(slab)
    for i in bytes.indices { bytes[i] ^= 1 }
    try writeBytes(bytes, slab)
    let key = toKey(folder)
    let outcome = try folder.run("cp", a + ":/tree/sub/two", b + ":/two", key[0], key[1], expecting: 2)
    #expect(outcome.errors.contains(": /tree/sub/two"))
    #expect(try folder.run("ls", b).text == "")
  }

  @Test func asksForWhatCouldBeMeantEitherWay() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let outcome = try folder.run("cp", "a:b", container + ":/f", expecting: 64)
    #expect(outcome.errors.contains("./a:b"))
    #expect(outcome.errors.contains("Usage: dynamics cp"))
    try folder.run("cp", "one", "two", expecting: 64)
    try folder.run("cp", container + ":/f", expecting: 64)
    try folder.run("cp", container + ":/a", "native", folder.path("target"), expecting: 64)
    try folder.run("cp", container + ":/a", folder.path("other") + ":/b", container + ":/d/", expecting: 64)
    // A native name with a colon, with its folder before it.
    let odd = try folder.makeFile("a:b", [1])
    try folder.run("cp", odd, container + ":/a:b")
    #expect(try folder.run("ls", container).text == "a:b\n")
  }

  @Test(arguments: [
    ("c:/p", "c", "/p"), ("./c:/", "./c", "/"), ("/x/c:/a:/b", "/x/c", "/a:/b"), ("c::/p", "c:", "/p"),
    ("a b:/\u{301}", "a b", "/\u{301}"), ("c:", "c", "/"), ("c::", "c:", "/"), ("/x/c:", "/x/c", "/"),
  ])
  func divides(operand: String, directory: String, path: String) throws {
    let address = try #require(ContainerAddress(operand))
    #expect(address.directory == directory)
    #expect(address.path == path)
  }

  @Test(arguments: ["", ":", ":/p", "c:p", "c/p", "/c/p:q"])
  func takesOthersForNativePaths(operand: String) { #expect(ContainerAddress(operand) == nil) }

  // MARK: Folders of which something is left out

  private func shell(_ line: String, in folder: TemporaryFolder) throws -> DynamicsProcess.Outcome {
    try DynamicsProcess(
      ["-c", line].map { Array($0.utf8) }, in: folder, environment: TaskTableTests.environment,
      executable: "/bin/sh"
    ).finish()
  }

  @Test(arguments: ["-r", "-rn", "-a", "-rv"]) func aNameThatIsNotStoredLeavesTheOthers(options: String)
    throws
  {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let tree = try folder.makeFolder("tree")
    _ = try folder.makeFolder("tree/sub")
    for name in ["a", "c", "sub/d"] { _ = try folder.makeFile("tree/" + name, [1]) }
    try #require(shell("touch \(tree)/$(printf 'b\\377')", in: folder).status == 0)
    let outcome = try folder.run("cp", options, tree, container + ":/tree", expecting: 1)
    #expect(outcome.errors.contains("1 item"), "\(outcome.errors)")
    #expect(try folder.run("ls", "-R", container, "/tree").text == "a\nc\nsub/\nsub/d\n")
    if options == "-rv" { #expect(outcome.text.split(separator: "\n").count == 5, "\(outcome.text)") }
  }

  /// The container is no part of what goes into it, however it is copied.
  @Test(arguments: ["put", "cp -r", "cp -rn", "cp -a"]) func theContainerIsNotStoredInItself(command: String)
    throws
  {
    let folder = try TemporaryFolder()
    _ = try folder.makeFolder("home")
    let container = try folder.makeContainer("home/in")
    _ = try folder.makeFile("home/note", [1])
    let operands = command == "put" ? "in . /all" : ". in:/all"
    let outcome = try shell(
      "cd \(folder.path("home")) && dynamics \(command) \(operands) --key-file ../key", in: folder)
    #expect(outcome.status == 1 && outcome.errors.contains("the container itself"), "\(outcome.errors)")
    let listed = try folder.run("ls", "-R", container).text
    #expect(listed.contains("all/note\n") && !listed.contains("slab"), "\(listed)")
  }

  @Test func whatIsThereStaysWhereThatIsWished() throws {
    let folder = try TemporaryFolder()
    let container = try filled(folder)
    for name in ["other", "other/tree", "other/tree/sub"] { _ = try folder.makeFolder(name) }
    for name in ["one", "two", "sub/two", "sub/three"] { _ = try folder.makeFile("other/tree/" + name, [9]) }
    try folder.run("cp", "-rn", folder.path("other/tree"), container + ":/")
    let shown = try folder.run("cat", container, "/tree/one", "/tree/two", "/tree/sub/three").output
    #expect(shown == [1, 9, 9])
    #expect(try folder.run("cat", container, "/tree/sub/two").output.count == 40_000)
    for name in ["out", "out/tree"] { _ = try folder.makeFolder(name) }
    _ = try folder.makeFile("out/tree/one", [5])
    try folder.run("cp", "-rn", container + ":/tree", folder.path("out"))
    #expect(try readBytes(folder.path("out/tree/one")) == [5])
    #expect(try readBytes(folder.path("out/tree/sub/three")) == [9])
  }

  // MARK: Holes and names

  @Test func holesStayHolesBothWays() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let sparse = folder.path("sparse")
    try #require(
      shell(
        "truncate -s 300M \(sparse) && printf here | dd of=\(sparse) bs=1 seek=200000000 conv=notrunc status=none"
          + " && truncate -s 40M \(folder.path("empty"))", in: folder
      ).status == 0)
    try folder.run("put", container, sparse, "/sparse")
    try folder.run("put", container, folder.path("empty"), "/empty")
    #expect(try shell("du -s \(container)/slab | cut -f 1", in: folder).text < "2000")
    for name in ["sparse", "empty"] {
      let out = folder.path("out-" + name)
      try folder.run("get", container, "/" + name, out)
      #expect(try shell("cmp \(folder.path(name)) \(out)", in: folder).status == 0)
      var status = stat()
      #expect(stat(out, &status) == 0 && status.st_blocks < 4000, "\(status.st_blocks)")
    }
    try folder.run("container", "verify", container)
    // To another container, too.
    let other = try folder.makeContainer("other")
    let key = toKey(folder)
    try folder.run("cp", container + ":/sparse", container + ":/empty", other + ":/", key[0], key[1])
    let taken = try shell("du -s \(other)/slab | cut -f 1 | tr -d '\\n'", in: folder).text
    #expect(try #require(Int(taken)) < 2000)
    try folder.run("get", other, "/sparse", folder.path("again"))
    #expect(try shell("cmp \(sparse) \(folder.path("again"))", in: folder).status == 0)
  }

  @Test func namesOfOneFileStayNamesOfOneFile() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let tree = try folder.makeFolder("tree")
    _ = try folder.makeFile("tree/a", Random.bytes(3_000_000))
    _ = try folder.makeFile("tree/z", [1])
    try #require(
      shell(
        "ln \(tree)/a \(tree)/b; ln \(tree)/a \(folder.path("elsewhere")); ln \(tree)/z \(tree)/y", in: folder
      )
      .status == 0)
    try folder.run("put", container, tree)
    try folder.run("container", "verify", container)
    #expect(try shell("du -s \(container)/slab | cut -f 1", in: folder).text < "4000")
    #expect(try folder.run("stat", container, "/tree/a").text.contains("links        2\n"))
    // A second time, each replaces itself.
    try folder.run("put", container, tree)
    try folder.run("container", "verify", container)
    try folder.run("get", container, "/tree", folder.path("out"))
    for (a, b) in [("a", "b"), ("y", "z")] {
      var (first, second) = (stat(), stat())
      #expect(stat(folder.path("out/" + a), &first) == 0 && stat(folder.path("out/" + b), &second) == 0)
      #expect(first.st_ino == second.st_ino && first.st_nlink == 2)
    }
    #expect(try shell("diff -r \(tree) \(folder.path("out"))", in: folder).status == 0)
  }
}
