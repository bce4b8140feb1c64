import Foundation
import TestSupport
import Testing

/// `manage`, and `app run --managed` with a broker and a person at standard input.
struct ManageCommandTests {
  /// An app in a process of its own, and who types its passwords.
  private final class Person {
    let broker: BrokerProcess
    let process: DynamicsProcess
    private let input: Int32

    init(_ broker: BrokerProcess, _ options: [String] = ["--managed", "managed.json"]) throws {
      self.broker = broker
      let folder = broker.folder
      let pipe = folder.path(folder.uniqueName())
      guard mkfifo(pipe, 0o600) == 0 else { throw TestFailure("mkfifo: \(errno)") }
      // Open for both, so that neither side waits for the other.
      input = open(pipe, O_RDWR | O_CLOEXEC)
      let options = options.map { $0 == "managed.json" ? folder.path($0) : $0 }
      let words =
        [
          "app", "run", folder.path("notes"), "--id", "com.example.notes", "--passphrase-file",
          folder.path("pass"),
        ]
        + options
      process = try DynamicsProcess(
        words.map { Array($0.utf8) }, in: folder, input: pipe, environment: broker.environment)
    }

    deinit {
      close(input)
      process.signal(SIGKILL)
    }

    func type(_ line: String) { _ = (line + "\n").withCString { Foundation.write(input, $0, strlen($0)) } }

    /// Until the output ends so.
    func expect(_ lines: String...) throws {
      let end = lines.map { $0 + "\n" }.joined()
      try process.wait(end) { try text().hasSuffix(end) }
    }

    private func text() throws -> String {
      String(decoding: try Data(contentsOf: URL(filePath: process.outputPath)), as: UTF8.self)
    }

    func finish() throws -> DynamicsProcess.Outcome {
      try withExtendedLifetime(self) { try process.finish() }
    }

    func end() throws -> DynamicsProcess.Outcome {
      process.signal(SIGTERM)
      return try process.finish()
    }
  }

  private func world() throws -> BrokerProcess {
    let broker = try BrokerProcess()
    let folder = broker.folder
    try Data("correct horse\n".utf8).write(to: URL(filePath: folder.path("pass")))
    try Data("4711\n".utf8).write(to: URL(filePath: folder.path("code")))
    _ = try folder.runBare(
      "container", "create", folder.path("notes"), "--passphrase-file", folder.path("pass"))
    return broker
  }

  private func manage(_ world: BrokerProcess, _ words: String..., status: Int32 = 0) throws -> String {
    let file = world.folder.path("managed.json")
    let outcome = try world.run(["manage", words[0], file] + words.dropFirst(), expecting: status)
    return status == 0 ? outcome.text : outcome.errors.replacing(file, with: "FILE")
  }

  @Test func anAppIsLockedUnlockedBlockedAndWiped() throws {
    let world = try world()
    #expect(try manage(world, "code", "--code-file", world.folder.path("code")) == "serial 1\n")
    #expect(try manage(world, "set", "passwordRules", #"{"idleSeconds": 2}"#) == "serial 2\n")
    let person = try Person(world)
    try person.expect("authorized", "not authorized idleLockout", "asks for the password")
    person.type("wrong")
    try person.expect("refused wrongPassword")
    #expect(try manage(world, "unset", "passwordRules") == "serial 3\n")
    person.type("correct horse")
    try person.expect("authorized")

    _ = try manage(world, "set", "blocked", #"{"title": "No", "text": "Call us."}"#)
    try person.expect("not authorized blocked No: Call us.")
    _ = try manage(world, "unset", "blocked")
    try person.expect("asks for the password")
    person.type("correct horse")
    try person.expect("authorized")

    #expect(try manage(world, "lock") == "serial 6\n")
    try person.expect("not authorized remoteLockout", "asks for the unlock code")
    person.type("4711")
    try person.expect("asks for the password")
    person.type("correct horse")
    try person.expect("authorized")

    // Another container's id destroys nothing.
    _ = try manage(world, "wipe", String(repeating: "a", count: 32), "--yes")
    #expect(try manage(world, "wipe", world.folder.path("notes"), status: 64).contains("not confirmed"))
    _ = try manage(world, "wipe", world.folder.path("notes"), "--yes")
    let outcome = try person.finish()
    #expect(outcome.status == 1 && outcome.text.hasSuffix("not authorized wiped\n"), "\(outcome.errors)")
    #expect(!FileManager.default.fileExists(atPath: world.folder.path("notes")))
  }

  @Test func whatWasManagedStaysManaged() throws {
    let world = try world()
    _ = try manage(world, "code", "--code-file", world.folder.path("code"))
    var person = try Person(world)
    try person.expect("authorized")
    #expect(try person.end().status == 0)
    // A second process, and one without the option.
    person = try Person(world, [])
    try person.expect("authorized")
    let second = try Person(world).finish()
    #expect(
      second.status == 4 && second.errors.contains("another process of this app runs"), "\(second.errors)")
    _ = try person.end()
    _ = try manage(world, "lock")
    person = try Person(world)
    try person.expect("not authorized remoteLockout", "asks for the unlock code")
    _ = try person.end()
    person = try Person(world, [])
    try person.expect("not authorized remoteLockout", "asks for the unlock code")
    _ = try person.end()
    // Who removes the state unlocks nothing.
    try FileManager.default.removeItem(atPath: world.folder.path("notes.runtime/state"))
    let refused = try Person(world, []).finish()
    #expect(
      refused.status == 1 && refused.errors.contains("the state beside it is missing"), "\(refused.errors)")
    person = try Person(world)
    try person.expect("not authorized remoteLockout", "asks for the unlock code")
    _ = try person.end()
  }

  @Test func theFirstPasswordMayBeWrong() throws {
    let world = try world()
    _ = try manage(world, "set", "appPolicy", "1")
    try Data("wrong\n".utf8).write(to: URL(filePath: world.folder.path("pass")))
    let outcome = try Person(world).finish()
    #expect(outcome.status == 3 && outcome.errors.contains("the password is wrong"), "\(outcome.errors)")
  }

  @Test func showsWhatAFileDecides() throws {
    let world = try world()
    _ = try manage(world, "set", "entitlements", #"{"com.example.notes": ["1.0.0.0"]}"#)
    _ = try manage(world, "set", "passwordRules", #"{"minimumLength": 8, "attempts": 10}"#)
    let text = try manage(world, "show")
    #expect(text.hasPrefix("serial 2\nadvice: somebody other than root can replace "))
    #expect(
      text.hasSuffix(
        """
        entitled: com.example.notes 1.0.0.0
        password: at least 8 characters
        password: 10 wrong ones lock the app

        """), "\(text)")
    #expect(try manage(world, "show", "--json").contains(#""serial":2"#))
  }

  @Test func refusesWhatNoAppWouldTake() throws {
    let world = try world()
    #expect(try manage(world, "show", status: 5).contains("no such file"))
    #expect(
      try manage(world, "set", "lockd", "1", status: 1) == """
        dynamics: the management file was refused: management.lockd (there is no such member)
          the accepted file still holds; correct this one, and check it with `dynamics manage`

        """)
    #expect(try manage(world, "set", "blocked", "{", status: 1).contains("management.blocked"))
    #expect(try manage(world, "lock", status: 64).contains("dynamics manage code FILE"))
    #expect(try manage(world, "unset", "lockd", status: 64).contains("no member lockd"))
    #expect(!FileManager.default.fileExists(atPath: world.folder.path("managed.json")))
    // What no app takes can be mended, and what is no JSON is left as it is.
    try Data(#"{"version": 1, "serial": 3, "lockd": 1}"#.utf8)
      .write(to: URL(filePath: world.folder.path("managed.json")))
    #expect(try manage(world, "show", status: 1).contains("management.lockd"))
    #expect(try manage(world, "unset", "lockd") == "serial 4\n")
    #expect(try manage(world, "set", "appPolicy", "1", "--after", "30") == "serial 31\n")
    try Data("{".utf8).write(to: URL(filePath: world.folder.path("managed.json")))
    #expect(try manage(world, "set", "appPolicy", "1", status: 1).contains("management"))
    #expect(try Data(contentsOf: URL(filePath: world.folder.path("managed.json"))) == Data("{".utf8))
  }
}
