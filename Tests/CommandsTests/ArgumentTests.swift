import Testing

/// What the words behind a command mean.
struct ArgumentTests {
  /// To be asked for nothing is no success: whoever forgot a word, or lost all of them, notices.
  @Test func noCommandIsAnError() throws {
    let folder = try TemporaryFolder()
    for arguments in [[], ["container"], ["container", "key"], ["services"], ["apps"]] {
      let outcome = try DynamicsProcess(arguments.map { Array($0.utf8) }, in: folder).finish()
      #expect(outcome.status == 64 && outcome.text.isEmpty, "\(arguments)")
      #expect(outcome.errors.contains("dynamics help"), "\(arguments): \(outcome.errors)")
    }
  }

  /// Arguments do not come from /proc. Making it invisible needs a namespace, which not every machine permits.
  @Test func worksWithoutProc() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let file = try folder.makeFile("file", [1, 2, 3])
    let line =
      "mount -t tmpfs none /proc && exec '\(DynamicsProcess.executable)' put --key-file '\(folder.path("key"))'"
      + " '\(container)' '\(file)' /x"
    let unshare = "/usr/bin/unshare"
    let probe = try? DynamicsProcess(
      ["-mr", "/bin/sh", "-c", "mount -t tmpfs none /proc"].map { Array($0.utf8) }, in: folder,
      executable: unshare
    ).finish()
    guard probe?.status == 0 else { return }
    let outcome = try DynamicsProcess(
      ["-mr", "/bin/sh", "-c", line].map { Array($0.utf8) }, in: folder, executable: unshare
    ).finish()
    #expect(outcome.status == 0, "\(outcome.errors)")
    #expect(try folder.run("cat", container, "/x").output == [1, 2, 3])
  }

  /// A missing standard input or output is an error for who uses it, and never a file or pipe of the program.
  @Test func closedDescriptorsAreErrors() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let file = try folder.makeFile("file", [UInt8](repeating: 7, count: 100_000))
    try folder.run("put", container, file, "/x")
    let program = "'\(DynamicsProcess.executable)'"
    let options = "--key-file '\(folder.path("key"))' '\(container)'"
    for (line, status): (String, Int32) in [
      ("put \(options) - /y <&-", 1), ("cat \(options) /x >&-", 1),
      ("cat \(options) /x <&- 2>&- | cmp - '\(file)'", 0),
      ("put \(options) '\(file)' /z <&- >&- 2>&-", 0),
    ] {
      let outcome = try DynamicsProcess(
        ["-c", "\(program) \(line)"].map { Array($0.utf8) }, in: folder, executable: "/bin/sh"
      ).finish()
      #expect(outcome.status == status, "\(line): \(outcome.errors)")
    }
    #expect(try folder.run("ls", container).text == "x\nz\n")
  }

  /// Names of which ArgumentParser takes letters for options, `h` among them.
  @Test func aLeadingDashIsNoRequestForHelp() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    for name in ["-hello.txt", "-help", "-h.txt", "--hello", "-th"] {
      _ = try folder.makeFile(name, [1])
      for arguments in [
        ["put", container, name, "/"], ["put", name, container + ":/"], ["cp", name, container + ":/"],
        ["rm", container, name], ["get", container, name], ["cat", container, name],
        ["stat", container, name], ["mkdir", container, name], ["ln", container, name, "/x"],
        ["mv", container, name, "/x"], ["append", container, name], ["find", container, name],
        ["container", "verify", name], ["container", "key", "add", name], ["apps", "forget", name],
        ["send", container, container, name], ["outbox", "list", name], ["container", name], [name],
      ] {
        let outcome = try folder.run(arguments, expecting: 64)
        #expect(outcome.text == "", "\(arguments)")
        #expect(outcome.errors.contains("stands behind --"), "\(arguments): \(outcome.errors)")
      }
    }
    #expect(try folder.run("ls", container).text == "")
    // The word, before --, is help.
    for arguments in [["put", "-h"], ["container", "key", "add", "-h"], ["-h"], ["rm", container, "-h"]] {
      #expect(try folder.run(arguments).text.contains("USAGE: "))
    }
    // Behind -- it is a name; letters of options still go together.
    try folder.run("mkdir", container, "/d")
    let name = try folder.makeFile("plain", [2])
    try folder.run("put", container, name, "/d/-h")
    #expect(try folder.run("find", container, "-name", "-h").text == "/d/-h\n")
    #expect(try folder.run("find", container, "-h").text.contains("USAGE: "))
    let bare = try DynamicsProcess(
      (["rm", "-rf"] + folder.key + [container, "--", "-h", "d"]).map { Array($0.utf8) }, in: folder
    ).finish()
    #expect(bare.status == 0)
    #expect(try folder.run("ls", container).text == "")
    #expect(try folder.run("ls", "-lh", container).status == 0)
  }

  @Test func aHintComesOnlyWhereADashMayBeTheReason() throws {
    let folder = try TemporaryFolder()
    for arguments in [["mkdir"], ["du", "-s", "-a", "x"], ["ls", "--json", "--long", "x"]] {
      #expect(!(try folder.run(arguments, expecting: 64).errors.contains("stands behind --")))
    }
  }

  @Test func putAndGetTakePlaces() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer("notes")
    let note = try folder.makeFile("note.md", [1, 2])
    for arguments in [
      ["put", container, note], ["put", container, note, container + ":/"], ["put", note, container + ":/"],
      ["put", note, container + ":"], ["put", container, note, container + ":"],
      ["put", container, note, "/"],
    ] {
      try folder.run(arguments)
      #expect(try folder.run("ls", container + ":", "-R").text == "note.md\n", "\(arguments)")
      try folder.run("rm", container, "/note.md")
    }
    try folder.run("put", note, container + ":/a/b")
    #expect(try folder.run("ls", container, "-R").text == "a/\na/b\n")
    // Never a folder of the name of a container.
    let other = try folder.makeContainer("other")
    try folder.run("put", container, note, other + ":/", expecting: 64)
    try folder.run("put", container, note, "none:/x", expecting: 64)
    try folder.run("mkdir", container, container + ":/m")
    try folder.run("mv", container, container + ":/m", container + ":/n")
    try folder.run("cp", container, container + ":/a", container + ":/n/a")
    try folder.run("rm", "-r", container, container + ":/n")
    try folder.run("put", container, note, "/none:/x")
    #expect(try folder.run("ls", container, "-R").text == "a/\na/b\nnone:/\nnone:/x\n")

    let out = try folder.makeFolder("out")
    try folder.run("get", container + ":/a/b", out)
    try folder.run("get", container, "/a", out)
    try folder.run("get", container, container + ":/a/b", out + "/c")
    #expect(try fileNames(in: out) == ["a", "b", "c"])
    let shell = { (line: String) in
      try DynamicsProcess(
        [
          "-ec",
          "mkdir \(out)/\(line.count); cd \(out)/\(line.count); \(line) --key-file \(folder.path("key"))",
        ].map {
          Array($0.utf8)
        }, in: folder, environment: TaskTableTests.environment, executable: "/bin/sh"
      ).finish()
    }
    // Everything goes where that was said, and not over whatever is in the current folder.
    for line in ["dynamics get \(container)", "dynamics get \(container):", "dynamics get \(container) /"] {
      #expect(try shell(line).status == 64)
      #expect(try fileNames(in: "\(out)/\(line.count)").isEmpty)
    }
    #expect(try shell("dynamics get \(container) / .").status == 0)
    // What means the current folder is no path in a container.
    #expect(try shell("dynamics cp    \(container) /a .").status == 64)
    #expect(try shell("dynamics cp     \(container) /a ../x").status == 64)
    try folder.run("get", container, "/a", out, out, expecting: 64)
    try folder.run("put", note, expecting: 64)
  }

  @Test func lnTakesPlaces() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    try folder.run("put", container, try folder.makeFile("f", [7]), "/d/f")
    try folder.run("ln", container + ":/d/f", container + ":/g")
    try folder.run("ln", container, "/d/f")
    try folder.run("ln", "-s", "f", container + ":/d/s")
    try folder.run("ln", "-s", container + ":/g", container + ":/d/t")
    #expect(try folder.run("ls", container, "-R").text == "d/\nd/f\nd/s\nd/t\nf\ng\n")
    for path in ["/g", "/f", "/d/s", "/d/t"] { #expect(try folder.run("cat", container, path).output == [7]) }
    _ = try folder.makeContainer("other")
    try folder.run("ln", folder.path("other") + ":/f", container + ":/x", expecting: 64)
    try folder.run("ln", "f", container + ":/x", expecting: 64)
    try folder.run("ln", container, expecting: 64)
  }
}
