import Foundation
import SodiumPrimitives
import TestSupport
import Testing

@testable import AppRuntime

/// Which files are accepted one after another, and from where.
struct ManagementTests {
  private static let code =
    "$argon2id$v=19$m=8,t=1,p=1$QRYwn4X3C/QdslKgXZxRgQ$SAxaFKUZuEwwVnWXrISMYtUXBt1FtegHGMUFm7BW6Dg"

  private struct Owner {
    var state = RuntimeState()
    var accepted: ManagementFile?

    mutating func write(_ serial: Int, locked: Int? = nil, _ more: String = "") throws -> Bool {
      let lock = locked.map { #", "locked": \#($0), "unlockCode": "\#(code)""# } ?? ""
      let file = try ManagementFile(Data(#"{"version": 1, "serial": \#(serial)\#(lock)\#(more)}"#.utf8))
      let isNew = try state.accept(file, after: accepted)
      if isNew { accepted = file }
      return isNew
    }
  }

  @Test func onlyALaterDecisionIsAccepted() throws {
    var owner = Owner()
    #expect(try owner.write(5))
    #expect(try !owner.write(5))
    let refused = [{ try owner.write(4) }, { try owner.write(5, #", "appPolicy": 1"#) }]
    for write in refused {
      let error = #expect(throws: AppRuntimeError.self) { try write() }
      #expect(error?.code == .managementRefused && error?.path == "management.serial")
    }
    #expect(owner.accepted?.serial == 5)
    #expect(try owner.write(6))
    #expect(owner.state.managed == owner.accepted?.text)
  }

  @Test func theCodeEndsTheLockOfASerialForGood() throws {
    var owner = Owner()
    #expect(try owner.write(1, locked: 1))
    #expect(owner.state.remoteLock == .management(serial: 1))
    owner.state.attempts = 3
    owner.state.endRemoteLock()
    #expect(owner.state.remoteLock == nil && owner.state.attempts == 0)
    // The owner writes something else, and still names the old lock.
    #expect(try owner.write(2, locked: 1, #", "appPolicy": 2"#))
    #expect(owner.state.remoteLock == nil)
    #expect(try owner.write(3, locked: 3))
    #expect(owner.state.remoteLock == .management(serial: 3))
    #expect(try owner.write(4))
    #expect(owner.state.remoteLock == nil)
  }

  @Test func aFileEndsNoLockThatItDidNotOrder() throws {
    for lock in [RuntimeState.RemoteLock.app, .attempts] {
      var owner = Owner()
      owner.state.remoteLock = lock
      #expect(try owner.write(1))
      #expect(owner.state.remoteLock == lock)
    }
  }

  // MARK: Where a file is

  @Test func readsAFileWholeOrNotAtAll() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/managed.json"
    let source = ManagementSource(path: path)
    #expect(try source.read() == nil)
    try Data("x".utf8).write(to: URL(fileURLWithPath: path))
    #expect(try source.read() == Data("x".utf8))
    let long = Data(repeating: 32, count: ManagementFile.byteCountMax)
    try long.write(to: URL(fileURLWithPath: path))
    #expect(try source.read() == long)
    try (long + [32]).write(to: URL(fileURLWithPath: path))
    let error = #expect(throws: AppRuntimeError.self) { try source.read() }
    #expect(error?.code == .managementRefused && error?.path == path)
  }

  @Test func readsNoLinksAndNoPipes() throws {
    let directory = TemporaryDirectory()
    try Data("x".utf8).write(to: URL(fileURLWithPath: directory.path + "/file"))
    try FileManager.default.createSymbolicLink(atPath: directory.path + "/link", withDestinationPath: "file")
    #expect(mkfifo(directory.path + "/pipe", 0o600) == 0)
    for name in ["link", "pipe", ""] {
      let error = #expect(throws: AppRuntimeError.self) {
        try ManagementSource(path: directory.path + "/" + name).read()
      }
      #expect(error?.code == .managementRefused, "\(name)")
    }
  }

  @Test func aFileBindsOnlyWhenRootAloneCanReplaceIt() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/managed.json"
    #expect(ManagementSource(path: path).replaceable == path)
    try Data("x".utf8).write(to: URL(fileURLWithPath: path))
    // Directories of tests are where everybody may write.
    #expect(ManagementSource(path: path).replaceable?.isEmpty == false)
    #expect(ManagementSource(path: "/etc/passwd").replaceable == nil)
    // A link of root's counts with the directories around its target.
    try FileManager.default.createSymbolicLink(atPath: directory.path + "/etc", withDestinationPath: "/etc")
    #expect(ManagementSource(path: directory.path + "/etc/passwd").replaceable != nil)
  }
}
