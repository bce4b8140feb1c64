import ContainerStore
import Locks
import OpenDynamicsTesting
import TestSupport
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What a change costs, in syncs of files and of directories, once the opening's journal is there.
struct SyncCountTests {
  struct Cost: Equatable, CustomStringConvertible {
    var files: Int
    var directories: Int

    static let nothing = Cost(files: 0, directories: 0)
    /// The slab, then the journal.
    static let contents = Cost(files: 2, directories: 0)
    /// The journal.
    static let names = Cost(files: 1, directories: 0)

    init(files: Int, directories: Int) {
      self.files = files
      self.directories = directories
    }

    init(_ operations: ArraySlice<RecordingIO.Operation>) {
      files = operations.count { if case .synchronize = $0 { true } else { false } }
      directories = operations.count { if case .synchronizeDirectory = $0 { true } else { false } }
    }

    var description: String { "\(files) of files, \(directories) of directories" }
  }

  private func steady(_ durability: Container.Durability) throws -> Fixture {
    let fixture = try Fixture(durability: durability)
    try fixture.container.write([1], to: "/first")
    try fixture.container.synchronize()
    return fixture
  }

  private func cost(_ fixture: Fixture, _ change: (Container) throws -> Void) throws -> Cost {
    let begun = fixture.io.log.count
    try change(fixture.container)
    return Cost(fixture.io.log[begun...])
  }

  @Test func aDurableChangeSyncsTheSlabAndTheJournal() throws {
    let fixture = try steady(.full)
    #expect(try cost(fixture) { try $0.write([2], to: "/second") } == .contents)
    #expect(try cost(fixture) { try $0.write([3], to: "/second") } == .contents)
    #expect(try cost(fixture) { try $0.copy("/second", to: "/third") } == .contents)
    #expect(try cost(fixture) { try $0.move("/second", to: "/moved") } == .names)
    #expect(try cost(fixture) { try $0.remove("/moved") } == .names)
    #expect(try cost(fixture) { try $0.createDirectory("/folder") } == .names)
    #expect(try cost(fixture) { try $0.write([], to: "/empty") } == .names)
    #expect(try cost(fixture) { try $0.setAttributes(at: "/empty", permissions: 0o400) } == .names)
    #expect(try cost(fixture) { try $0.synchronize() } == .nothing)
  }

  /// One more for the directory, as often as a slab is new.
  @Test func aNewSlabCostsASyncOfItsDirectory() throws {
    let fixture = try Fixture(durability: .full)
    try fixture.container.createDirectory("/folder")
    #expect(
      try cost(fixture) { try $0.write([2], to: "/second") } == Cost(files: 2, directories: 1))
  }

  @Test func aThousandFilesInOneCommitCostAsMuchAsOneForEachSlab() throws {
    let native = TemporaryDirectory()
    for i in 0..<1000 { writeNative(native.path + "/file\(i)", [UInt8(truncatingIfNeeded: i)]) }
    let fixture = try steady(.full)
    let slabs = fixture.io.slabSizes.count
    let cost = try cost(fixture) { try $0.importItem(at: native.path, to: "/imported") }
    // Each of the two threads may have begun a slab of its own.
    let new = fixture.io.slabSizes.count - slabs
    #expect((0...1).contains(new))
    #expect((2...3).contains(cost.files) && cost.directories == new, "\(cost)")
    #expect(try self.cost(fixture) { try $0.remove("/imported") } == .names)
  }

  @Test func changesThatAreNotYetDurableCostNothing() throws {
    let fixture = try steady(.none)
    let cost = try cost(fixture) { container in
      for i in 0..<20 {
        try container.write([UInt8(i)], to: "/file\(i)")
        try container.move("/file\(i)", to: "/moved\(i)")
      }
    }
    #expect(cost == .nothing)
    #expect(try self.cost(fixture) { try $0.synchronize() } == .contents)
  }

  /// However many changes, they share a barrier; a slow machine may see the 50 ms pass more than once.
  @Test func groupedChangesShareTheirSyncs() throws {
    let fixture = try steady(.grouped)
    let cost = try cost(fixture) { container in
      for i in 0..<50 { try container.write([UInt8(i)], to: "/file\(i)") }
      try container.synchronize()
    }
    #expect(cost.files < 50 && cost.files >= 2 && cost.directories == 0, "\(cost)")
  }

  /// While the first commit is being written, all others arrive; the next barrier is for all of them.
  @Test(arguments: [false, true])
  func whoWaitsForTheBarrierSharesTheNextOne(withContents: Bool) throws {
    let disk = HookedIO()
    let container = try Container.create(
      io: disk, credential: testCredential(), options: testOptions(.full))
    try container.write([1], to: "/first")
    let begun = disk.disk.log.count
    let threadCount = 12
    let isFirst = Guarded(true)
    disk.setHook { operation, path in
      let waits = isFirst.withLock { isFirst in
        defer { if path.hasPrefix("journal/") { isFirst = false } }
        return isFirst && operation == "write" && path.hasPrefix("journal/")
      }
      guard waits else { return }
      // 10 s at most, so that a change that nobody sees before its barrier fails the test and does not hang it.
      for _ in 0..<10_000 where (try? container.list("/").count) ?? 0 < threadCount + 1 { usleep(1000) }
    }
    let complaints = inThreads(threadCount) { i in
      // The others change something only when the first commit is being written: else its barrier might be for them, too.
      for _ in 0..<10_000 where i > 0 && isFirst.withLock({ $0 }) { usleep(1000) }
      if withContents {
        try container.write([UInt8(i)], to: "/new\(i)")
      } else {
        try container.createDirectory("/new\(i)")
      }
      return nil
    }
    disk.setHook(nil)
    #expect(complaints == [])
    let cost = Cost(disk.disk.log[begun...])
    if withContents {
      // Each writer may have a slab of its own, so for each a slab and for all two times the journal.
      #expect(cost.files <= threadCount + 2 && cost.directories <= 2, "\(cost)")
    } else {
      #expect(cost == Cost(files: 2, directories: 0))
    }
  }
}
