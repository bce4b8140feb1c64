import Testing

struct HelpTests {
  @Test func saysItsVersion() throws {
    let outcome = try TemporaryFolder().runBare("--version")
    #expect(outcome.status == 0)
    #expect(outcome.text.wholeMatch(of: /dynamics \d+\.\d+\.\d+\n/) != nil)
  }

  @Test func mentionsEveryCommand() throws {
    let folder = try TemporaryFolder()
    let root = try folder.runBare("--help")
    #expect(root.status == 0)
    for command in [
      "container", "put", "get", "ls", "stat", "du", "find", "tree", "cat", "append", "mkdir", "cp", "ln",
      "mv", "rm", "send", "inbox", "broker", "app", "apps", "front", "services", "doctor",
    ] {
      #expect(root.text.contains("  \(command) "))
      #expect(try folder.runBare(command, "--help").status == 0)
    }
    // Of the others: -h says how large things are.
    #expect(try folder.runBare("cp", "-h").text == folder.runBare("help", "cp").text)
    for command in ["ls", "du"] {
      let help = try folder.runBare(command, "--help").text
      #expect(help.contains("-h, --human ") && help.contains("  --help "))
      #expect(try folder.runBare(command, "-h").status == 64)
    }
    let container = try folder.runBare("container", "--help").text
    for command in ["create", "info", "verify", "key", "passwd"] {
      #expect(container.contains("  \(command) "))
    }
  }
}
