import Foundation
import ServiceValues
import SodiumPrimitives
import Testing

@testable import ServiceBroker

/// Whose programs the broker starts.
@Suite(.timeLimit(.minutes(1)))
struct ProgramFileTests {
  private let world = World()

  private func file(_ name: String, _ mode: mode_t) throws -> String {
    let path = world.path + "/" + name
    try Data("#!/bin/sh\n".utf8).write(to: URL(filePath: path))
    #expect(chmod(path, mode) == 0)
    return path
  }

  private func folder(_ name: String, _ mode: mode_t) throws -> String {
    let path = world.path + "/" + name
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    #expect(chmod(path, mode) == 0)
    return path
  }

  private func link(_ name: String, to target: String) throws -> String {
    let path = world.path + "/" + name
    try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: target)
    return path
  }

  @Test func takesProgramsOfTheUserAndOfRoot() throws {
    for path in ["/bin/sh", "/usr/bin/env", "/bin/../bin/./sh"] {
      #expect(ProgramFile.fault(at: path) == nil)
    }
    let own = try file("own", 0o700)
    #expect(ProgramFile.fault(at: own) == nil)
    #expect(ProgramFile.fault(at: try link("a", to: "own")) == nil)
    #expect(ProgramFile.fault(at: try link("b", to: "a")) == nil)
    #expect(ProgramFile.fault(at: try link("c", to: own)) == nil)
  }

  @Test func refusesWhatOthersCanWrite() throws {
    let everybodys = try file("everybodys", 0o707)
    #expect(ProgramFile.fault(at: everybodys)?.contains("everybody: chmod o-w") == true)
    let open = try folder("open", 0o777)
    let inside = try file("open/program", 0o700)
    #expect(ProgramFile.fault(at: inside)?.hasPrefix("\(open) can be written") == true)
    // By whatever way it is reached.
    for (i, path) in [try link("around", to: "open/program"), try link("in", to: "open") + "/program"]
      .enumerated()
    {
      #expect(ProgramFile.fault(at: path)?.hasPrefix("\(open) can be written") == true, "\(i)")
    }
    _ = try link("open/back", to: "../everybodys")
    #expect(ProgramFile.fault(at: open + "/back")?.hasPrefix("\(open) ") == true)
    // Everybody changes only what is theirs there.
    #expect(chmod(open, 0o1777) == 0)
    #expect(ProgramFile.fault(at: inside) == nil)
  }

  @Test func refusesWhatBelongsToOthers() throws {
    guard geteuid() == 0 else { return }
    let path = try file("foreign", 0o700)
    #expect(chown(path, 12_345, 12_345) == 0)
    #expect(ProgramFile.fault(at: path) == "\(path) belongs to another user")
    #expect(lchown(try link("foreign-link", to: "/bin/sh"), 12_345, 12_345) == 0)
    #expect(ProgramFile.fault(at: world.path + "/foreign-link")?.hasSuffix("belongs to another user") == true)
  }

  @Test func refusesWhatIsNoProgram() throws {
    #expect(ProgramFile.fault(at: world.path)?.hasSuffix("is no program") == true)
    #expect(ProgramFile.fault(at: "/") == "/ is no program")
    #expect(ProgramFile.fault(at: "/dev/null") != nil)
    #expect(ProgramFile.fault(at: try file("data", 0o600))?.hasSuffix("Permission denied") == true)
    #expect(ProgramFile.fault(at: "/bin/sh/more")?.contains("no program") == true)
    #expect(ProgramFile.fault(at: world.path + "/none")?.hasSuffix("No such file or directory") == true)
    #expect(ProgramFile.fault(at: try link("loop", to: "loop"))?.hasSuffix("too many links") == true)
  }

  @Test func theBrokerLooksWhenItIsInstalledAndWhenItIsStarted() async throws {
    let broker = try await world.broker()
    let path = try file("program", 0o707)
    let error = await #expect(throws: ServicesError.self) { try await world.install("com.example.b", [path]) }
    #expect(error?.code == .invalidParams && error?.detail?.contains("chmod o-w") == true)
    #expect(chmod(path, 0o700) == 0)
    let two = try await TestApp(world, "com.example.b", key: KeyPair())
    try await two.register()
    try await world.install("com.example.b", [path])
    two.client.close()
    _ = await two.end()
    #expect(chmod(path, 0o707) == 0)
    let one = try await TestApp(world, "com.example.a", key: KeyPair())
    await #expect(throws: ServicesError(.applicationNotFound)) { try await one.connect(to: "com.example.b") }
    await broker.stop()
  }
}
