import ContainerStore
import Foundation
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

/// The promises of Documentation/CLI.md, "Exit codes".
struct ExitCodeTests {
  private struct Report: Decodable {
    struct Failure: Decodable {
      var code: String
      var message: String
      var path: String?
      var detail: String?
      var remedy: String?
    }
    var error: Failure
  }

  @Test func wrongKeyIs3() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    _ = try folder.makeFile("key", Random.bytes(32))
    #expect(try folder.run("ls", container, expecting: 3).errors.hasPrefix("dynamics: the passphrase or key"))
    _ = try folder.makeFile("key", Random.bytes(33))
    #expect(try folder.run("ls", container, expecting: 3).errors.contains("exactly 32 bytes"))
    _ = try folder.makeFile("key", Random.bytes(31))
    #expect(try folder.run("ls", container, expecting: 3).errors.contains("has 31"))
  }

  @Test func lockedIs4AndNamesTheProcess() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let open = try OpenContainer(container, keyFile: folder.path("key"))
    let outcome = try folder.run("mkdir", container, "/d", expecting: 4)
    #expect(outcome.errors.contains("another process"))
    #expect(outcome.errors.contains("process \(getpid())"))
    // Those that only read work all the same.
    try folder.run("ls", container)
    try folder.run("container", "info", container)
    try folder.run("container", "verify", container)
    try open.close()
    try folder.run("mkdir", container, "/d")
  }

  @Test func damageIs2AndNamesTheFile() throws {
    let folder = try TemporaryFolder()
    let (a, b) = (try folder.makeContainer("a"), try folder.makeContainer("b"))
    try folder.run("put", a, try folder.makeFile("f", Random.bytes(100_000)), "/one")
    try folder.run("put", a, try folder.makeFile("g", [7]), "/two")
    #expect(try folder.run("container", "verify", a).text.hasSuffix("intact: 2 files, 97.7 KiB\n"))
    let slab = a + "/slab/" + (try #require(try fileNames(in: a + "/slab").first))
    var bytes = try readBytes(slab)
    bytes[50_000] ^= 1
    try writeBytes(bytes, slab)
    let verdict = try folder.run("container", "verify", a, expecting: 2)
    #expect(verdict.text.contains("damage: /one: "))
    #expect(!verdict.text.contains("/two"))
    #expect(verdict.errors.isEmpty)
    let json = try folder.run("container", "verify", a, "--json", expecting: 2).output
    let object = try #require(try JSONSerialization.jsonObject(with: Data(json)) as? [String: Any])
    #expect(object["intact"] as? Bool == false)
    let finding = try #require((object["findings"] as? [[String: Any]])?.first)
    #expect(finding["path"] as? String == "/one")
    #expect(finding["severity"] as? String == "damage")
    #expect(try folder.run("get", a, "/one", folder.path("out"), expecting: 2).errors.contains(": /one"))
    #expect(!exists(folder.path("out")))
    let sent = try folder.run(
      "send", a, b, "/", "--from", "x", "--to-key-file", folder.path("key"), expecting: 2)
    #expect(sent.errors.contains(": /one"))
    #expect(try folder.run("ls", b).text == "")
    #expect(try folder.run("cat", a, "/two").output == [7])
  }

  @Test func missingIs5() throws {
    let folder = try TemporaryFolder()
    try folder.run("ls", folder.path("nothing"), expecting: 5)
    let container = try folder.makeContainer()
    try folder.run("put", container, folder.path("nothing"), "/f", expecting: 5)
    let outcome = try folder.run("get", container, "/nothing", folder.path("f"), expecting: 5)
    #expect(outcome.errors.hasPrefix("dynamics: no such file or directory: /nothing\n  "))
    let bare = try folder.runBare("ls", container, "--key-file", folder.path("nothing"))
    #expect(bare.status == 5)
  }

  @Test func inTheWayIs6() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    try folder.run("container", "create", container, expecting: 6)
  }

  @Test(arguments: [ENOSPC, EDQUOT])
  func aFullDiskIs7OutsideOfAContainerToo(errno: Int32) {
    let report = ErrorReport(CommandError.native("symlink", "/f", errno))
    #expect(report?.status == .diskFull)
    #expect(report?.message == "the disk is full")
  }

  /// The next call of a command throws this when a write in the background has failed.
  @Test func aContainerThatAFullDiskMadeReadOnlyIs7() {
    let failure = ContainerError(.readOnly, path: "/c", cause: ContainerError(.diskFull))
    let report = ErrorReport(failure)
    #expect(report?.status == .diskFull)
    #expect(report?.message == "the disk is full")
    #expect(report?.path == "/c")
    #expect(ErrorReport(ContainerError(.readOnly, path: "/c"))?.code == "readOnly")
  }

  #if os(Linux)
    @Test func aFullOutputIs7() throws {
      let folder = try TemporaryFolder()
      let container = try folder.makeContainer()
      try folder.run("put", container, try folder.makeFile("f", [1, 2, 3]), "/f")
      let outcome = try folder.run("get", container, "/f", "/dev/full", expecting: 7)
      #expect(outcome.errors.hasPrefix("dynamics: the disk is full: /dev/full"))
    }
  #endif

  @Test(arguments: [
    ["nonsense"], ["put"], ["ls", "d", "--key-file", "k", "--passphrase-file", "p"],
    ["send", "a", "b", "/f"],
    ["put", "d", "l", "/p", "--cipher", "rot13"], ["put", "d", "l", "/p", "--quiet", "--progress"],
    ["ls", "--passphrase", "secret", "d"],
  ])
  func misuseIs64(arguments: [String]) throws {
    let folder = try TemporaryFolder()
    let outcome = try DynamicsProcess(arguments.map { Array($0.utf8) }, in: folder).finish()
    #expect(outcome.status == 64)
    #expect(outcome.errors.contains("Usage: dynamics"))
  }

  @Test func nothingToOpenItWithIs64() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let outcome = try folder.runBare("ls", container)
    #expect(outcome.status == 64)
    #expect(outcome.errors.contains("DYNAMICS_PASSPHRASE"))
  }

  @Test func reportsErrorsAsJSONWhenAsked() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let outcome = try folder.run("ls", container, "/\u{1b}", "--json", expecting: 5)
    let report = try JSONDecoder().decode(Report.self, from: Data(outcome.errors.utf8))
    #expect(report.error.code == "noSuchFile")
    #expect(report.error.path == "/\u{1b}")
    #expect(report.error.message == "no such file or directory")
    #expect(report.error.remedy != nil)
    #expect(outcome.text == "")
  }

  @Test func refusesNamesThatAreNotUTF8() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let source = try folder.makeFolder("source")
    let name = Array(source.utf8) + [UInt8(ascii: "/"), UInt8(ascii: "n"), 0xff]
    let descriptor = (name + [0]).withUnsafeBytes {
      open($0.bindMemory(to: CChar.self).baseAddress!, O_CREAT | O_WRONLY | O_CLOEXEC, 0o600)
    }
    #expect(descriptor >= 0)
    close(descriptor)
    let outcome = try folder.run("put", container, source, "/s", expecting: 1)
    #expect(outcome.errors.contains(source + "/n\u{fffd}"))
    let arguments =
      ["put", container].map { Array($0.utf8) } + [name] + (["/s"] + folder.key).map { Array($0.utf8) }
    #expect(try DynamicsProcess(arguments, in: folder).finish().status == 64)

    let links = try folder.makeFolder("links")
    #expect(symlink([CChar]([0x61, -1, 0]), links + "/link") == 0)
    let refused = try folder.run("put", container, links, "/s", expecting: 1)
    #expect(refused.errors.contains(links + "/link"))
    #expect(refused.errors.contains("symbolic link"))
    // Each is left out of its folder.
    #expect(
      try folder.run("ls", container).text == "s\n"
        && folder.run("ls", "-R", container, "/s").text == "links/\n")
    for local in [source, links] {
      try folder.run("put", "--all-or-nothing", container, local, "/t", expecting: 1)
    }
    #expect(try folder.run("ls", container).text == "s\n")
  }
}
