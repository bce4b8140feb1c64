import ContainerStore
import Dispatch
import EncryptedFile
import Locks
import OpenDynamicsTesting
import SodiumPrimitives
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Moments at which one thread waited for itself, or two got in each other's way; see "Locks" in Documentation/DESIGN.md.
struct LockConcurrencyTests {
  /// Enough waste for a compaction, in pieces too small to be punched.
  private func wasteful(_ container: Container) throws {
    for i in 0..<80 { try container.write(testBytes(3000, seed: UInt64(i)), to: "/small\(i)") }
    for i in 0..<80 where i % 2 == 0 { try container.remove("/small\(i)") }
  }

  @Test func theProgressReportOfACompactionMayCloseTheContainer() throws {
    let fixture = try Fixture()
    try wasteful(fixture.container)
    var reportCount = 0
    expectError(.closed) {
      try fixture.container.compact(
        control: BulkControl(progress: { _ in
          reportCount += 1
          do { try fixture.container.close() } catch { Issue.record(error) }
        }))
    }
    #expect(reportCount == 1)
    let reopened = try Container.open(io: fixture.io, credential: testCredential(), options: testOptions())
    #expect(try reopened.list("/").count == 40)
    #expect(try reopened.verify().findings == [])
  }

  /// A slab that is being cut when a compaction lets go of it has one writer at a time afterwards.
  @Test func aSlabThatIsCutWhileACompactionEndsHasOneWriter() throws {
    struct Interruption: Error {}
    let io = HookedIO()
    let container = try Container.create(io: io, credential: testCredential(), options: testOptions())
    try wasteful(container)
    let hookCount = Guarded(0)
    func failingWrite(meanwhile: @escaping @Sendable () throws -> Void) {
      io.setHook { called, path in
        guard called == "truncate", path.hasPrefix("slab/") else { return }
        io.setHook(nil)
        hookCount.withLock { $0 += 1 }
        do { try meanwhile() } catch { Issue.record(error) }
      }
      var count = 0
      #expect(throws: Interruption.self) {
        try container.write(to: "/failing") {
          count += 1
          if count > 2 { throw Interruption() }
          return testBytes(1 << 20, seed: 3)
        }
      }
      io.setHook(nil)
    }
    failingWrite {
      let cancellation = Cancellation()
      cancellation.cancel()
      expectError(.cancelled) { try container.compact(control: BulkControl(cancellation: cancellation)) }
    }
    let bytes = testBytes(100_000, seed: 2)
    failingWrite { try container.write(bytes, to: "/meanwhile") }
    #expect(hookCount.withLock { $0 } == 2)
    #expect(try container.contents(at: "/meanwhile") == bytes)
    #expect(try container.verify().findings == [])
  }

  /// What was written through a handle reaches the catalog when somebody looks, and the slabs' counters with it.
  @Test func verifyingCountsWhatAHandleWrote() throws {
    let fixture = try Fixture(durability: .grouped)
    let file = try fixture.container.openFile("/f", .readWrite, create: true)
    try testBytes(100_000, seed: 1).withUnsafeBytes { try file.write($0, at: 0) }
    #expect(try fixture.container.verify().findings == [])
  }

  @Test func aCheckpointThatHadNoRoomIsTakenLater() throws {
    let io = RecordingIO()
    var options = testOptions()
    options.checkpointByteCounts = 32 << 10...32 << 10
    let container = try Container.create(io: io, credential: testCredential(), options: options)
    let refusals = Guarded(0)
    io.setFault { operation, _ in
      guard case .create(let path) = operation, path.hasPrefix("catalog/") else { return nil }
      refusals.withLock { $0 += 1 }
      return ENOSPC
    }
    var number = 0
    func change() throws {
      number += 1
      try container.createDirectory("/directory\(number)")
    }
    while refusals.withLock({ $0 == 0 }) {
      try change()
      try #require(number < 2000)
    }
    let tables = io.image.names.keys.filter { $0.hasPrefix("catalog/") }
    io.setFault(nil)
    while io.image.names.keys.filter({ $0.hasPrefix("catalog/") }).count <= tables.count {
      try change()
      try #require(number < 4000, "no table was written")
    }
    let count = try container.list("/").count
    try container.close()
    let reopened = try Container.open(io: io, credential: testCredential(), options: testOptions())
    #expect(try reopened.list("/").count == count)
    #expect(try reopened.verify().findings == [])
  }

  /// The last reference may be the one that a checkpoint or a timer in the background has.
  @Test(arguments: 0..<12)
  func aContainerThatIsLetGoOfCloses(round: Int) throws {
    let io = RecordingIO()
    var options = testOptions(.grouped)
    options.checkpointByteCounts = 16 << 10...16 << 10
    options.backgroundWasteByteCountMin = 16 << 10
    do {
      let container = try Container.create(io: io, credential: testCredential(), options: options)
      for i in 0..<(40 + round * 3) {
        try container.write(testBytes(3000, seed: UInt64(i)), to: "/f\(i % 30)")
        if i % 9 == 0 { try container.synchronize() }
      }
      let file = try container.openFile("/handle", .readWrite, create: true)
      try testBytes(70_000, seed: 1).withUnsafeBytes { try file.write($0, at: 0) }
    }
    for attempt in 0... {
      do {
        let reopened = try Container.open(io: io, credential: testCredential(), options: testOptions())
        #expect(try reopened.contents(at: "/handle") == testBytes(70_000, seed: 1))
        #expect(try reopened.verify().findings == [])
        return
      } catch let error as ContainerError where error.code == .locked {
        // The background has it still.
        try #require(attempt < 5000, "it was never closed")
        usleep(2000)
      }
    }
  }

  @Test func whoClosesAsWellWaitsForTheOther() throws {
    let io = HookedIO()
    let container = try Container.create(
      io: io, credential: testCredential(), options: testOptions(.grouped))
    try container.write([1], to: "/f")
    let second = DispatchGroup()
    io.setHook { called, path in
      guard called == "write", path == "superblock" else { return }
      io.setHook(nil)
      let begun = DispatchSemaphore(value: 0)
      DispatchQueue(label: "second").async(group: second) {
        begun.signal()
        do {
          try container.close()
          // It is told that the container is closed: then it is.
          let next = try Container.open(io: io, credential: testCredential(), options: testOptions())
          #expect(try next.tree() == ["/f": [1]])
        } catch {
          Issue.record(error)
        }
      }
      begun.wait()
      // Time for the other to return if it does not wait.
      usleep(50_000)
    }
    try container.close()
    second.wait()
  }
}
