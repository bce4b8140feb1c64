import ContainerStore
import Foundation
import TestSupport
import Testing

/// What errors of the native file system say: the native path, and nothing of the container.
struct NativeErrorTests {
  let fixture: Fixture
  let directory = TemporaryDirectory()

  init() throws { fixture = try Fixture() }

  private func error(_ body: () throws -> Void) throws -> ContainerError {
    try #require(#expect(throws: ContainerError.self, performing: body))
  }

  @Test func aMissingSourceIsNotLookedForInTheContainer() throws {
    let none = directory.path + "/none"
    let imported = try error { try fixture.container.importItem(at: none, to: "/new") }
    #expect(imported.code == .noSuchFile && imported.path == none)
    #expect(imported.remedy == "check the path")
    let missing = try error { _ = try fixture.container.contents(at: "/new") }
    #expect(missing.remedy == ContainerError.Code.noSuchFile.remedy)
  }

  @Test func exportsNameTheirTargets() throws {
    try fixture.container.write([1], to: "/file")
    writeNative(directory.path + "/file", [2])
    for (name, code) in [
      ("none/new", ContainerError.Code.noSuchFile), ("file/new", .notADirectory), ("", .isADirectory),
    ] {
      let target = directory.path + "/" + name
      let refused = try error { try fixture.container.exportItem("/file", to: target) }
      #expect(refused.code == code && refused.path == target)
      #expect(!refused.remedy.contains("list") && !refused.remedy.contains("recursively"))
    }
    #expect(readNative(directory.path + "/file") == [2])
  }

  /// Only what is missing is free: else the failure would come when everything has been decrypted.
  @Test func whatCannotBeLookedAtIsNotFree() throws {
    try fixture.container.write([1], to: "/file")
    let target = directory.path + "/" + String(repeating: "n", count: 256)
    let refused = try error { try fixture.container.exportItem("/file", to: target) }
    #expect(refused.code == .ioFailed && refused.path == target)
    let cause = try #require(refused.cause as? IOFailure)
    #expect(cause.operation == "lstat" && cause.errno == ENAMETOOLONG)
    #expect(!refused.remedy.contains("durable"))
  }

  /// A file of 4096 bytes that can be opened, and fails when it is read.
  private static let unreadable = "/sys/class/net/lo/speed"

  @Test(.enabled(if: access(unreadable, R_OK) == 0))
  func aSourceThatCannotBeReadIsNamed() throws {
    let failed = try error { try fixture.container.importItem(at: Self.unreadable, to: "/new") }
    #expect(failed.code == .ioFailed && failed.path == Self.unreadable)
    #expect(!failed.remedy.contains("durable"))
    #expect(try fixture.container.attributes(at: "/new") == nil)
  }

  @Test func aLinkThatLeadsNowhereIsReplaced() throws {
    try fixture.container.write([1], to: "/file")
    let target = directory.path + "/link"
    try #require(symlink("none", target) == 0)
    try fixture.container.exportItem("/file", to: target)
    #expect(readNative(target) == [1])
  }
}
