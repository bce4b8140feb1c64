import Foundation
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

struct HelpTests {
  @Test func saysItsVersion() throws {
    let outcome = try TemporaryFolder().runBare("--version")
    #expect(outcome.status == 0)
    #expect(outcome.text.wholeMatch(of: /dynamics \d+\.\d+\.\d+-dev\n/) != nil)
  }

  @Test func mentionsEveryCommand() throws {
    let folder = try TemporaryFolder()
    let root = try folder.runBare("--help")
    #expect(root.status == 0)
    for command in [
      "container", "put", "get", "ls", "stat", "du", "find", "tree", "cat", "append", "mkdir", "cp", "ln",
      "mv", "rm", "send", "inbox", "broker", "app", "peers", "apps", "front", "services", "doctor",
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

  @Test(arguments: [
    (["backup", "a", "b"], "'dynamics container backup'"),
    (["list"], "'dynamics outbox list', 'dynamics peers list'"),
    (["lss", "a"], "'dynamics help' lists them"), (["help", "lss"], "'dynamics help' lists them"),
    (["container", "ls", "a"], "'dynamics help container' lists them"),
  ])
  func namesTheCommandThatIsNone(words: [String], advice: String) throws {
    let folder = try TemporaryFolder()
    let outcome = try DynamicsProcess(words.map { Array($0.utf8) }, in: folder, environment: [:]).finish()
    #expect(outcome.status == 64)
    #expect(outcome.errors.contains("no command 'dynamics "), "\(outcome.errors)")
    #expect(outcome.errors.contains(advice), "\(outcome.errors)")
  }

  /// `dynamics-push` in PATH gets every word as it is, also those that are options of `dynamics`.
  @Test func handsOverToPush() throws {
    let folder = try TemporaryFolder()
    // Beside the program itself may be the real one.
    let built = URL(filePath: DynamicsProcess.executable)
    let alone = built.deletingLastPathComponent().appending(path: "alone-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: alone, withIntermediateDirectories: false)
    defer { try? FileManager.default.removeItem(at: alone) }
    let dynamics = alone.appending(path: "dynamics")
    try FileManager.default.linkItem(at: built, to: dynamics)
    let program = folder.path("dynamics-push")
    try writeBytes(Array("#!/bin/sh\nfor word; do echo \"<$word>\"; done\nexit 9\n".utf8), program)
    #expect(chmod(program, 0o755) == 0)
    let words = ["push", "relay", "--help", "-h", "--", "a b"].map { Array($0.utf8) }
    let found = try DynamicsProcess(
      words, in: folder, environment: ["PATH": folder.root + ":/bin"], executable: dynamics.path
    ).finish()
    #expect(found.status == 9 && found.text == "<relay>\n<--help>\n<-h>\n<-->\n<a b>\n")
    let missing = try DynamicsProcess(
      words, in: folder, environment: ["PATH": "/bin"], executable: dynamics.path
    ).finish()
    #expect(missing.status == 5 && missing.errors.contains("dynamics-push is not installed"))
  }
}
