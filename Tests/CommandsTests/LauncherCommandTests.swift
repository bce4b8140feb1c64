import Foundation
import Testing

/// `dynamics launcher`, the page of all apps.
struct LauncherCommandTests {
  /// Runs it until `body` returns; the file that leads to the page.
  private func withLauncher(_ broker: BrokerProcess, _ body: (String) throws -> Void) throws {
    let words = ["launcher"]
    let environment = broker.environment.merging(["XDG_RUNTIME_DIR": broker.folder.root]) { $1 }
    let process = try DynamicsProcess(
      words.map { Array($0.utf8) }, in: broker.folder, environment: environment)
    var line = ""
    try process.wait("launcher") {
      line = String(decoding: try readBytes(process.outputPath), as: UTF8.self)
      return line.hasSuffix("\n")
    }
    #expect(line.hasPrefix("launcher "))
    let link = String(line.dropFirst("launcher ".count).dropLast())
    try body(link)
    process.signal(SIGTERM)
    let outcome = try process.finish()
    #expect(outcome.status == 0 && outcome.errors.isEmpty, "\(outcome.status) \(outcome.errors)")
    #expect(!FileManager.default.fileExists(atPath: link))
  }

  private func modes(_ path: String) throws -> Int? {
    try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
  }

  @Test func isInstalledOnceAndShown() throws {
    let broker = try BrokerProcess()
    let key = broker.folder.path("state/launcher.key")
    let missing = try broker.run("launcher", expecting: 5)
    #expect(missing.errors.contains("dynamics launcher --install"))
    #expect(try broker.run("launcher", "--install").text.isEmpty)
    #expect(try modes(key) == 0o600)
    try withLauncher(broker) { link in
      #expect(try modes(link) == 0o600)
      #expect(String(decoding: try readBytes(link), as: UTF8.self).contains("http://127."))
      // Another one has no place beside it.
      #expect(try broker.run("launcher", expecting: 4).text.isEmpty)
      // It is an app of the user, which others do not see.
      let list = try broker.run("apps", "list").text
      #expect(list.contains("opendynamics.launcher"))
      #expect(!(try broker.run("services", "list").text.contains("launcher")))
    }
    // Again, it has the same key.
    let before = try readBytes(key)
    _ = try broker.run("launcher", "--install")
    #expect(try readBytes(key) == before)
    try withLauncher(broker) { _ in }
    _ = try broker.run("launcher", "--install", "--user", "somebody", expecting: 64)
    // Forgotten while it runs, it ends; later it is no launcher, and says what to do.
    let running = try DynamicsProcess(
      [Array("launcher".utf8)], in: broker.folder,
      environment: broker.environment.merging(["XDG_RUNTIME_DIR": broker.folder.root]) { $1 })
    try running.wait("launcher") { try !readBytes(running.outputPath).isEmpty }
    _ = try broker.run("apps", "forget", "opendynamics.launcher")
    let ended = try running.finish()
    #expect(ended.status == 5 && ended.errors.contains("forgot"), "\(ended.status) \(ended.errors)")
    #expect(try broker.run("launcher", expecting: 1).errors.contains("dynamics launcher --install"))
    _ = try broker.run("launcher", "--install")
    try withLauncher(broker) { _ in }
    // Without its key the container is of no use.
    try FileManager.default.removeItem(atPath: key)
    for words in [["launcher"], ["launcher", "--install"]] {
      #expect(try broker.run(words, expecting: 5).errors.contains("remove it first"))
    }
    try FileManager.default.removeItem(atPath: broker.folder.path("state/launcher"))
    _ = try broker.run("apps", "forget", "opendynamics.launcher")
    _ = try broker.run("launcher", "--install")
    try withLauncher(broker) { _ in }
  }

  @Test func withoutABrokerNothingIsMade() throws {
    let folder = try TemporaryFolder()
    let words = [
      "launcher", "--install", "--socket", folder.path("run/broker"), "--state", folder.path("state"),
    ]
    let outcome = try DynamicsProcess(words.map { Array($0.utf8) }, in: folder).finish()
    #expect(outcome.status == 5 && outcome.errors.contains("dynamics broker"))
    #expect(!FileManager.default.fileExists(atPath: folder.path("state")))
  }
}
