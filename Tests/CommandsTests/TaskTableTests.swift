import Testing

/// The table "I want → I type" of Documentation/CLI.md, line by line in a shell.
struct TaskTableTests {
  /// What stands between backquotes in the second column.
  static func commands(_ page: String, _ heading: String = "## I want → I type") -> [String] {
    let begin = heading + "\n"
    let lines = page.split(separator: "\n", omittingEmptySubsequences: false)
    let section = lines.drop { $0 + "\n" != begin }.dropFirst().prefix { !$0.hasPrefix("## ") }
    return section.compactMap { line in
      line.firstMatch(of: /\| `(.*)` \|$/).map { String($0.1).replacing(#"\|"#, with: "|") }
    }
  }

  static func page() throws -> String {
    let package = #filePath.split(separator: "/").dropLast(3).joined(separator: "/")
    return String(decoding: try readBytes("/" + package + "/Documentation/CLI.md"), as: UTF8.self)
  }

  /// The program by its name, and one passphrase for all containers.
  static let environment = [
    "PATH": "/" + DynamicsProcess.executable.split(separator: "/").dropLast().joined(separator: "/")
      + ":/usr/local/bin:/usr/bin:/bin",
    "DYNAMICS_PASSPHRASE": "correct horse", "DYNAMICS_NEW_PASSPHRASE": "battery staple",
  ]

  @Test func everyLineWorks() throws {
    let commands = Self.commands(try Self.page())
    #expect((15...20).contains(commands.count))
    let folder = try TemporaryFolder()
    _ = try folder.makeFile("report.pdf", [1, 2, 3])
    _ = try folder.makeFolder("photos")
    _ = try folder.makeFile("photos/one.jpg", [4])
    var outputs: [String: String] = [:]
    for command in commands {
      // A debug build takes a minute to copy the 256 MiB of the default.
      let size = command == "dynamics bench" ? " --size 1" : ""
      let arguments = ["-ec", "cd \(folder.root); \(command)\(size)"].map { Array($0.utf8) }
      let outcome = try DynamicsProcess(
        arguments, in: folder, environment: Self.environment, executable: "/bin/sh"
      ).finish()
      #expect(outcome.status == 0, "\(command): \(outcome.errors)")
      outputs[command] = outcome.text
    }
    #expect(outputs["dynamics find notes -name '*.pdf'"] == "/Documents/report.pdf\n")
    #expect(try readBytes(folder.path("older.pdf")) == [1, 2, 3])
    #expect(try fileNames(in: folder.path("everything")) == ["Documents"])
  }

  @Test func readsTheSecondColumn() {
    let page = "# A\n| x | `no` |\n## I want → I type\n\n| a | `b \\| c` |\n\n## B\n| x | `no` |\n"
    #expect(Self.commands(page) == ["b | c"])
  }
}
