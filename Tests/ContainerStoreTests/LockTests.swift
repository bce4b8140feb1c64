import ContainerStore
import Foundation
import Locks
import SodiumPrimitives
import TestSupport
import Testing

/// Locks belong to open file descriptions: a child has its parent's until it calls exec.
struct LockTests {
  /// The lock of a process that was killed while it started a program.
  @Test func anOpeningBearsALockThatGoesSoon() throws {
    let io = HookedIO()
    try Container.create(io: io, credential: testCredential(), options: testOptions()).close()
    let other = try io.disk.open("lock", .readWrite)
    try other.truncate(to: 0)
    try Array("pid 1\nhost elsewhere\nboot none\n".utf8).withUnsafeBytes { try other.write($0, at: 0) }
    #expect(try other.tryLock(.writer, exclusive: true))
    let attempts = Guarded(0)
    io.setHook { operation, path in
      guard operation == "lock", path == "lock" else { return }
      let count = attempts.withLock { count in
        count += 1
        return count
      }
      if count == 3 { other.unlock(.writer) }
    }
    try Container.open(io: io, credential: testCredential(), options: testOptions()).close()
    #expect(attempts.withLock { $0 } == 3)
  }

  /// What else is in its place keeps nobody from reading.
  @Test(arguments: ["directory", "link", "dangling link", "pipe"])
  func somethingElseInItsPlaceCostsNothing(_ kind: String) throws {
    let directory = TemporaryDirectory()
    let path = directory["c"]
    let container = try Container.create(at: path, credential: testCredential(), options: testOptions())
    try container.write([1, 2, 3], to: "/file")
    try container.close()
    let lock = path + "/lock"
    try FileManager.default.removeItem(atPath: lock)
    switch kind {
    case "directory":
      try FileManager.default.createDirectory(atPath: lock, withIntermediateDirectories: false)
    case "link": try FileManager.default.createSymbolicLink(atPath: lock, withDestinationPath: "superblock")
    case "dangling link":
      try FileManager.default.createSymbolicLink(atPath: lock, withDestinationPath: "none")
    default: try #require(mkfifo(lock, 0o600) == 0)
    }
    let reader = try Container.open(
      at: path, credential: testCredential(), mode: .readOnly, options: testOptions())
    #expect(try reader.contents(at: "/file") == [1, 2, 3])
    try reader.close()
    // Who writes needs one that excludes others.
    #expect(throws: ContainerError.self) {
      try Container.open(at: path, credential: testCredential(), mode: .readWrite, options: testOptions())
    }
  }

  /// An opening in this process cannot end while it is waited for.
  @Test func anOpeningDoesNotWaitForItsOwnProcess() throws {
    let io = HookedIO()
    let container = try Container.create(io: io, credential: testCredential(), options: testOptions())
    let attempts = Guarded(0)
    io.setHook { operation, path in if operation == "lock" { attempts.withLock { $0 += 1 } } }
    expectError(.locked) {
      try Container.open(io: io, credential: testCredential(), options: testOptions())
    }
    // Twice: what holds it may be closing just now.
    #expect(attempts.withLock { $0 } == 2)
    io.setHook(nil)
    try container.close()
  }

  /// Also when it fails, an opening leaves no lock to a child that another thread has just forked.
  @Test func programsThatStartMeanwhileHoldNoLocks() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/c"
    try Container.create(at: path, credential: testCredential(), options: testOptions()).close()
    let isOver = Guarded(false)
    let complaints = inThreads(3) { thread in
      if thread > 0 {
        while !isOver.withLock({ $0 }) {
          let program = try Process.run(URL(filePath: "/bin/true"), arguments: [])
          program.waitUntilExit()
        }
        return nil
      }
      defer { isOver.withLock { $0 = true } }
      for _ in 0..<200 {
        do {
          try Container.open(at: path, credential: testCredential(8), options: testOptions()).close()
          return "another key opens it"
        } catch ContainerError.wrongKey {}
        try Container.open(at: path, credential: testCredential(), options: testOptions()).close()
      }
      return nil
    }
    #expect(complaints == [])
  }
}
