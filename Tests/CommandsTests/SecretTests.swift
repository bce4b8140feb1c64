import Foundation
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

  private let words = "correct horse"

  @Test func takesThePassphraseFromACommand() throws {
    let folder = try TemporaryFolder()
    let container = folder.path("c")
    let file = try folder.makeFile("passphrase", Array("correct horse\nsecond line\n".utf8))
    #expect(
      try folder.runBare("container", "create", container, "--passphrase-command", "cat '\(file)'").status
        == 0)
    #expect(try folder.runBare("ls", container, "--passphrase-file", file).status == 0)
    // More than a pipe holds, no end of the line, and an output that stays open.
    for command in [
      "cat '\(file)'; head -c 900000 /dev/zero", "printf 'correct horse'", "sleep 30 & echo correct horse",
      "echo correct horse; exec >&-; sleep 0.1",
    ] {
      let outcome = try folder.runBare("ls", container, "--passphrase-command", command)
      #expect(outcome.status == 0, "\(outcome.errors)")
    }
    for (command, word) in [
      ("echo correct horse; exit 3", "exit status 3"), ("echo correct horse; kill -9 $$", "signal 9"),
      ("no-such-program", "exit status 127"), ("true", "empty"), ("head -c 2000000 /dev/zero", "1 MiB"),
      ("printf '%5000s'", "too long"), ("echo wrong", "key"),
    ] {
      let outcome = try folder.runBare("ls", container, "--passphrase-command", command)
      #expect(outcome.status == 3, "\(command)")
      #expect(outcome.errors.contains(word), "\(command): \(outcome.errors)")
    }
    // It reads nothing of the data, and sees no passphrase that is meant for somebody else.
    let data = try folder.makeFile("data", Array("data".utf8))
    let seen = folder.path("seen")
    let look = "cat; tr '\\0' '\\n' </proc/$$/environ >'\(seen)'; echo \(words)"
    let put = try DynamicsProcess(
      ["put", container, "-", "/data", "--passphrase-command", look].map { Array($0.utf8) }, in: folder,
      input: data,
      environment: [
        "DYNAMICS_TO_PASSPHRASE": "secret", "DYNAMICS_OLD_PASSPHRASE_COMMAND": "secret",
        "DYNAMICS_KEY_FILE": "secret",
        "DYNAMICS_BEYOND": "kept",
      ]
    ).finish()
    #expect(put.status == 0, "\(put.errors)")
    let environment = String(decoding: try readBytes(seen), as: UTF8.self)
    #expect(!environment.contains("secret") && environment.contains("DYNAMICS_BEYOND=kept"), "\(environment)")
    #expect(
      try folder.runBare("cat", container, "/data", "--passphrase-file", file).output == Array("data".utf8))
  }

  @Test func takesSecretsFromVariablesAndCredentials() throws {
    let folder = try TemporaryFolder()
    let container = folder.path("c")
    let file = try folder.makeFile("passphrase", Array((words + "\n").utf8))
    let key = try folder.makeFile("key-of-c", Random.bytes(32))
    #expect(try folder.runBare("container", "create", container, "--passphrase-file", file).status == 0)
    let added = try folder.runBare(
      "container", "key", "add", container,
      environment: ["DYNAMICS_PASSPHRASE_FILE": file, "DYNAMICS_NEW_KEY_FILE": key])
    #expect(added.status == 0, "\(added.errors)")
    let credentials = folder.path("credentials")
    _ = try folder.makeFolder("credentials")
    func list(_ environment: [String: String], _ options: String...) throws -> DynamicsProcess.Outcome {
      try DynamicsProcess(
        (["ls", container] + options).map { Array($0.utf8) }, in: folder, environment: environment
      )
      .finish()
    }
    // An empty directory of credentials has none, and without a terminal nobody is asked.
    #expect(try list(["CREDENTIALS_DIRECTORY": credentials]).status == 64)
    _ = try folder.makeFile("credentials/dynamics.to-passphrase", Array("no".utf8))
    #expect(try list(["CREDENTIALS_DIRECTORY": credentials]).status == 64)
    _ = try folder.makeFile("credentials/dynamics.key", readBytes(key))
    for environment in [
      ["DYNAMICS_PASSPHRASE_FILE": file], ["DYNAMICS_KEY_FILE": key],
      ["DYNAMICS_PASSPHRASE_COMMAND": "cat '\(file)'", "DYNAMICS_KEY_FILE": ""],
      ["CREDENTIALS_DIRECTORY": credentials],
      // What somebody set for this program comes first.
      ["CREDENTIALS_DIRECTORY": credentials, "DYNAMICS_PASSPHRASE": words],
    ] {
      let outcome = try list(environment)
      #expect(outcome.status == 0, "\(environment): \(outcome.errors)")
    }
    let both = ["DYNAMICS_PASSPHRASE_FILE": file, "DYNAMICS_KEY_FILE": key]
    let refused = try list(both)
    #expect(refused.status == 64 && refused.errors.contains("DYNAMICS_KEY_FILE"), "\(refused.errors)")
    #expect(try list(both, "--key-file", key).status == 0)
    #expect(try list(["DYNAMICS_KEY_FILE": folder.path("none")]).status == 5)
    #expect(try list([:], "--key-file", key, "--passphrase-command", "true").status == 64)
  }

  /// A descriptor that was passed is read where it stands; one that was not is none of the program's own.
  @Test func takesASecretFromADescriptor() throws {
    let folder = try TemporaryFolder()
    let container = folder.path("c")
    let file = try folder.makeFile("both", Array("correct horse\nanother one\n".utf8))
    #expect(try folder.runBare("container", "create", container, "--passphrase-file", file).status == 0)
    let program = "'\(DynamicsProcess.executable)'"
    func run(_ line: String) throws -> DynamicsProcess.Outcome {
      try DynamicsProcess(["-c", line].map { Array($0.utf8) }, in: folder, executable: "/bin/sh").finish()
    }
    // Two lines of one descriptor, for two secrets.
    let added = try run(
      "\(program) container key add '\(container)' --passphrase-file /dev/fd/9 --new-passphrase-file /dev/fd/9 9<'\(file)'"
    )
    #expect(added.status == 0, "\(added.errors)")
    let second = try run(
      "echo another one | \(program) ls '\(container)' --passphrase-file /dev/fd/7 7<&0 </dev/null")
    #expect(second.status == 0, "\(second.errors)")
    for number in 3...9 {
      let outcome = try run("\(program) ls '\(container)' --passphrase-file /dev/fd/\(number) \(number)<&-")
      #expect(outcome.status == 1 && outcome.errors.contains("Bad file descriptor"), "\(outcome.errors)")
    }
  }

  private struct KeyList: Decodable {
    struct Key: Decodable {
      let id, kind: String
      let label: String?
      let memoryKiB: Int?
      let isUsed: Bool
    }
    let keys: [Key]
  }

  private func keyList(of container: String, in folder: TemporaryFolder) throws -> [KeyList.Key] {
    let json = try folder.run("container", "key", "list", container, "--json").output
    return try JSONDecoder().decode(KeyList.self, from: Data(json)).keys
  }

  @Test func keysAreListedAndRemovedByLabel() throws {
    let folder = try TemporaryFolder()
    let container = folder.path("c")
    try folder.run("container", "create", container, "--label", "main key")
    let other = try folder.makeFile("other", Array("words\n".utf8))
    try folder.run(
      "container", "key", "add", container, "--new-passphrase-file", other, "--label", "old\tlaptop")
    try folder.run(
      "container", "key", "add", container, "--new-passphrase-command", "echo more", "--label", "main key",
      expecting: 1)
    try folder.run("container", "key", "add", container, "--new-passphrase-command", "echo more")
    let list = try folder.run("container", "key", "list", container).text
    #expect(list.contains("rawKey      main key  (the one in use)\n"), "\(list)")
    #expect(list.contains("passphrase  old\\tlaptop\n"), "\(list)")
    let info = try folder.run("container", "info", container).text
    #expect(info.contains("rawKey (main key), passphrase (old\\tlaptop), passphrase\n"), "\(info)")
    var keys = try keyList(of: container, in: folder)
    #expect(keys.map(\.label) == ["main key", "old\tlaptop", nil])
    #expect(keys.map(\.memoryKiB) == [nil, 65536, 65536] && keys.map(\.isUsed) == [true, false, false])
    try folder.run("container", "key", "label", container, "new laptop", "--id", keys[2].id.uppercased())
    try folder.run("container", "key", "label", container, "new laptop", "--label", "main key", expecting: 1)
    try folder.run("container", "key", "label", container, "x", expecting: 64)
    try folder.run("container", "key", "label", container, "--label", "main key")
    try folder.run("container", "key", "remove", container, "--label", "laptop", expecting: 5)
    try folder.run(
      "container", "key", "remove", container, "--label", "x", "--old-key-file", other, expecting: 64)
    try folder.run("container", "key", "remove", container, "--label", "old\tlaptop")
    #expect(try folder.runBare("ls", container, "--passphrase-file", other).status == 3)
    keys = try keyList(of: container, in: folder)
    #expect(keys.map(\.label) == [nil, "new laptop"])
    let own = try folder.runBare(
      "container", "key", "remove", container, "--id", keys[0].id, "--key-file", folder.path("key"))
    #expect(own.status == 1 && own.errors.contains("a key that stays"), "\(own.errors)")
    try folder.run("container", "key", "remove", container, "--id", keys[1].id)
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
