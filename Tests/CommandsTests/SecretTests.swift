import SodiumPrimitives
import Testing

struct SecretTests {
  @Test func takesThePassphraseFromAFileOrTheEnvironment() throws {
    let folder = try TemporaryFolder()
    let container = folder.path("c")
    let file = try folder.makeFile("passphrase", Array("correct horse\r\nsecond line\n".utf8))
    #expect(try folder.runBare("container", "create", container, "--passphrase-file", file).status == 0)
    #expect(
      try folder.runBare("ls", container, environment: ["DYNAMICS_PASSPHRASE": "correct horse"]).status == 0)
    #expect(try folder.runBare("ls", container, environment: ["DYNAMICS_PASSPHRASE": "wrong"]).status == 3)
    #expect(try folder.runBare("ls", container, environment: ["DYNAMICS_PASSPHRASE": ""]).status == 3)
    let empty = try folder.makeFile("empty", Array("\r\nx".utf8))
    let outcome = try folder.runBare("ls", container, "--passphrase-file", empty)
    #expect(outcome.status == 3)
    #expect(outcome.errors.contains("empty"))
    let long = try folder.makeFile("long", [UInt8](repeating: 65, count: 4097))
    #expect(try folder.runBare("ls", container, "--passphrase-file", long).errors.contains("too long"))
  }

  /// A line's end belongs to no passphrase, wherever it comes from.
  @Test func aLineEndInTheEnvironmentDoesNotCount() throws {
    let folder = try TemporaryFolder()
    let container = folder.path("c")
    let file = try folder.makeFile("passphrase", Array("pw\n".utf8))
    for (number, value) in ["pw\n", "pw\r\n", "pw"].enumerated() {
      let place = container + "\(number)"
      let created = try folder.runBare(
        "container", "create", place, environment: ["DYNAMICS_PASSPHRASE": value])
      #expect(created.status == 0)
      #expect(try folder.runBare("ls", place, "--passphrase-file", file).status == 0)
    }
  }

  /// What follows a secret on standard input is the data, byte for byte, be it a pipe or a file.
  @Test(arguments: [false, true], [false, true]) func whatIsBehindASecretIsNotSwallowed(
    isKey: Bool, isPipe: Bool
  ) throws {
    let folder = try TemporaryFolder()
    let container = folder.path("c")
    // A key may have a line's end in it.
    let secret = isKey ? [10] + Random.bytes(31) : Array("passphrase\r\n".utf8)
    let file = try folder.makeFile("secret", secret)
    let option = isKey ? "--key-file" : "--passphrase-file"
    #expect(try folder.runBare("container", "create", container, option, file).status == 0)
    let data = Random.bytes(23_893)
    let both = try folder.makeFile("both", secret + data)
    let command = isPipe ? "cat '\(both)' |" : "<'\(both)'"
    let program = "'\(DynamicsProcess.executable)'"
    for standardInput in ["/dev/stdin", "/dev/fd/0"] {
      let name = "/x" + standardInput.split(separator: "/").joined()
      let line = "\(command) \(program) put \(option) \(standardInput) '\(container)' - \(name)"
      let shell = try DynamicsProcess(
        ["-c", line].map { Array($0.utf8) }, in: folder, executable: "/bin/sh"
      ).finish()
      #expect(shell.status == 0, "\(shell.errors)")
      #expect(try folder.runBare("cat", container, name, option, file).output == data)
    }
  }

  @Test func addsRemovesAndReplacesKeys() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let other = try folder.makeFile("other", Random.bytes(32))
    let third = try folder.makeFile("third", Random.bytes(32))
    try folder.run("container", "key", "add", container, "--new-key-file", other)
    #expect(try folder.runBare("ls", container, "--key-file", other).status == 0)
    try folder.run("container", "key", "remove", container, "--old-key-file", third, expecting: 3)
    try folder.run("container", "key", "remove", container, "--old-key-file", other)
    #expect(try folder.runBare("ls", container, "--key-file", other).status == 3)
    // The last one stays.
    try folder.run(
      "container", "key", "remove", container, "--old-key-file", folder.path("key"), expecting: 1)
    // Which one is to go is not guessed.
    try folder.run("container", "key", "remove", container, expecting: 64)
    try folder.run("container", "passwd", container, "--new-key-file", folder.path("key"), expecting: 1)
    try folder.run("container", "passwd", container, "--new-key-file", other)
    try folder.run("ls", container, expecting: 3)
    #expect(try folder.runBare("ls", container, "--key-file", other).status == 0)
  }

  /// Types lines at the prompts of a program on a terminal of its own, and prints what the terminal showed.
  static let typist = """
    import os, pty, sys
    answers = sys.argv[1].split(",")
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.argv[2], sys.argv[2:])
    shown = b""
    asked = 0
    while True:
        try:
            part = os.read(terminal, 1024)
        except OSError:
            break
        if not part:
            break
        shown += part
        while asked < len(answers) and shown.count(b": ") > asked:
            os.write(terminal, answers[asked].encode() + (b"" if answers[asked] == "\\x03" else b"\\n"))
            asked += 1
    sys.stdout.buffer.write(shown)
    sys.stdout.flush()
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """

  @Test(.enabled(if: exists("/usr/bin/python3"), "needs python3 for a terminal"))
  func asksOnTheTerminalWithoutEcho() throws {
    let folder = try TemporaryFolder()
    let container = folder.path("c")
    func type(_ answers: String, _ arguments: String...) throws -> DynamicsProcess.Outcome {
      let all = ["-c", Self.typist, answers, DynamicsProcess.executable] + arguments
      return try DynamicsProcess(all.map { Array($0.utf8) }, in: folder, executable: "/usr/bin/python3")
        .finish()
    }
    let different = try type("secret,other", "container", "create", container)
    #expect(different.status == 3)
    #expect(!exists(container))
    let created = try type("secret,secret", "container", "create", container)
    #expect(created.status == 0, "\(created.text)")
    #expect(created.text.contains("Passphrase for \(container): "))
    #expect(created.text.contains("again: "))
    #expect(!created.text.contains("secret"))
    #expect(try type("secret", "ls", container).status == 0)
    #expect(try type("wrong", "ls", container).status == 3)
    // Ctrl-C at the prompt.
    #expect(try type("\u{3}", "mkdir", container, "/d").status == 130)
    #expect(
      try folder.runBare("ls", container, environment: ["DYNAMICS_PASSPHRASE": "secret"]).text == "")
  }
}
