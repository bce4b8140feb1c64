import ContainerStore
import Locks
import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Lives of a container, each of which goes through other parts of it.
enum Workload: String, CaseIterable {
  case changes, bulk, keys, openings, compaction, links, outbox

  func run(_ life: RecordedLife) throws {
    switch self {
    case .changes: try Self.changes(life)
    case .bulk: try Self.bulk(life)
    case .keys: try Self.keys(life)
    case .openings: try Self.openings(life)
    case .compaction: try Self.compaction(life)
    case .links: try Self.links(life)
    case .outbox: try Self.outbox(life)
    }
  }

  private static func changes(_ life: RecordedLife) throws {
    // A file that had its slab to itself, so that the slab goes with it.
    try life.change { try $0.write(testBytes(700, seed: 30), to: "/alone") }
    try life.change { try $0.remove("/alone") }
    try life.change { try $0.createDirectory("/Documents/deep", withIntermediateDirectories: true) }
    try life.change { try $0.write(testBytes(10, seed: 1), to: "/Documents/small") }
    try life.synchronize()
    try life.change { try $0.write(testBytes(40_000, seed: 2), to: "/Documents/deep/large") }
    try life.change { try $0.write([], to: "/empty") }
    try life.change { try $0.write(testBytes(5000, seed: 3), to: "/Documents/small") }
    try life.change { try $0.move("/Documents/small", to: "/Documents/deep/moved") }
    try life.synchronize()
    try life.change { try $0.remove("/Documents/deep/large") }
    try life.change { try $0.move("/empty", to: "/Documents/deep/moved", replacing: true) }
    try life.change { try $0.write(testBytes(9000, seed: 6), to: "/last") }
  }

  /// Every second file goes, too small to be punched, so that the others are moved.
  private static func compaction(_ life: RecordedLife) throws {
    for i in 0..<12 {
      try life.change { try $0.write(testBytes(20_000, seed: UInt64(i)), to: "/\(i)") }
    }
    for i in stride(from: 0, to: 12, by: 2) { try life.change { try $0.remove("/\(i)") } }
    try life.synchronize()
    try life.change { try $0.compact() }
    try life.change { try $0.write(testBytes(30_000, seed: 20), to: "/1") }
    try life.change { try $0.remove("/3") }
    try life.synchronize()
    try life.change { try $0.compact() }
    try life.change { try $0.write(testBytes(100, seed: 21), to: "/after") }
  }

  private static func bulk(_ life: RecordedLife) throws {
    let native = TemporaryDirectory()
    for i in 0..<3 { writeNative(native.path + "/file\(i)", testBytes(9000 * i, seed: UInt64(i))) }
    try life.change { try $0.importItem(at: native.path, to: "/Imported") }
    try life.change { try $0.copy("/Imported", to: "/Copied") }
    let sender = try Container.create(
      io: RecordingIO(), credential: testCredential(9), options: testOptions())
    try sender.write(testBytes(20_000, seed: 4), to: "/letter")
    try sender.write(testBytes(3, seed: 5), to: "/note")
    try life.change { _ = try sender.send(["/letter", "/note"], to: $0, sender: "com.example.sender") }
    // An arrival is durable in both, and everything before it.
    if life.durability != .none { try life.synchronize() }
    try life.change { try $0.remove("/Copied") }
    // More than one unit of the file format, so that two threads write.
    try life.change { try $0.write(testBytes(1_200_000, seed: 6), to: "/large") }
    try life.change { try $0.copy("/large", to: "/larger") }
    try life.change { try $0.remove("/large") }
  }

  private static func links(_ life: RecordedLife) throws {
    try life.change { try $0.createDirectory("/d/e", withIntermediateDirectories: true) }
    try life.change { try $0.write(testBytes(20_000, seed: 1), to: "/d/file") }
    try life.change { try $0.createLink("/d/e/other", to: "/d/file") }
    try life.change { try $0.createSymbolicLink("/link", to: "d/e") }
    try life.change { try $0.createLink("/link/second", to: "/link") }
    try life.change { try $0.setExtendedAttributes(["user.a": [1], "user.b": [2, 2]], at: "/d/file") }
    try life.change {
      let file = try $0.openFile("/d/e/other", .readWrite)
      _ = try testBytes(700, seed: 2).withUnsafeBytes { try file.append($0) }
      try file.close()
    }
    try life.synchronize()
    try life.change { try $0.write(testBytes(300, seed: 3), to: "/new") }
    try life.change { try $0.setExtendedAttributes(["user.new": [3]], at: "/new") }
    // The old item gets a name beside it.
    try life.change { try $0.replaceItem(at: "/d/file", with: "/new", backup: "backup") }
    try life.change { try $0.copy("/d", to: "/copy") }
    try life.synchronize()
    try life.change {
      try $0.setExtendedAttributes(["user.a": [UInt8]?.none, "user.c": []], at: "/d/backup")
    }
    try life.change { try $0.move("/d/file", to: "/d/e/other", replacing: true) }
    try life.change { try $0.write([], to: "/through") }
    try life.change { try $0.replaceItem(at: "/copy", with: "/d/e", keepsMetadata: false) }
    try life.change { try $0.remove("/d") }
    try life.change { try $0.remove("/link") }
    try life.change { try $0.write(testBytes(9000, seed: 5), to: "/last") }
  }

  private static func outbox(_ life: RecordedLife) throws {
    func enqueue(_ attachments: [String], _ id: UInt8) throws {
      try life.change {
        _ = try $0.enqueue(
          OutgoingMessage(
            id: Identifier(repeating: id), receiver: "com.example.receiver", message: [id],
            attachments: attachments))
      }
      // As a whole on the disk, and everything before it.
      if life.durability != .none { try life.synchronize() }
    }
    for i in 0..<4 { try life.change { try $0.write(testBytes(40_000, seed: UInt64(i)), to: "/\(i)") } }
    try enqueue(["/0", "/1"], 1)
    try life.change { try $0.write(testBytes(300, seed: 10), to: "/0") }
    try life.change {
      let file = try $0.openFile("/1", .readWrite)
      try testBytes(700, seed: 11).withUnsafeBytes { _ = try file.write($0, at: 17_000) }
      try file.close()
    }
    try enqueue(["/1", "/2"], 2)
    try life.change { try $0.remove("/1") }
    try life.change { try $0.settleOutbox(1) }
    try life.synchronize()
    try life.change { try $0.compact() }
    try life.change { try $0.write(testBytes(50_000, seed: 12), to: "/2") }
    try life.change { try $0.settleOutbox(2) }
    try life.change { try $0.compact() }
    try enqueue(["/3"], 3)
    try life.change { try $0.write(testBytes(9000, seed: 13), to: "/last") }
  }

  private static func keys(_ life: RecordedLife) throws {
    try life.change { try $0.write([1], to: "/one") }
    try life.addKey(8)
    try life.change { try $0.write([2], to: "/two") }
    try life.addKey(9)
    try life.removeKey(8)
    try life.change { try $0.write([3], to: "/one") }
    try life.reopen()
    try life.removeKey(9)
    try life.addKey(8)
  }

  /// Enough openings that one of them writes a checkpoint.
  private static func openings(_ life: RecordedLife) throws {
    try life.change { try $0.write(testBytes(6000, seed: 1), to: "/kept") }
    for i in 0..<11 {
      try life.reopen()
      try life.change { try $0.write(testBytes(100 + i, seed: UInt64(10 + i)), to: "/counter\(i % 3)") }
    }
  }
}

/// Each recording is made once and shared by the tests.
private enum Recordings {
  static let lives = Guarded<[String: RecordedLife]>([:])

  static func life(_ workload: Workload, _ durability: Container.Durability) throws -> RecordedLife {
    let name = workload.rawValue + durability.rawValue
    if let life = lives.withLock({ $0[name] }) { return life }
    let life = try RecordedLife(durability, workload.run)
    lives.withLock { $0[name] = life }
    return life
  }
}

/// Disks tried for each workload and policy: 16 after one crash and 6 after two, with more effort (`TestEffort`) 80 and 30, or
/// every place with every way to lose, some 5000, and 800.
struct CrashTests {
  @Test(arguments: Workload.allCases, [Container.Durability.full, .grouped, .none])
  func showsAStateThatExistedAfterACrash(workload: Workload, durability: Container.Durability) throws {
    let result = CrashHarness(life: try Recordings.life(workload, durability)).crash(
      limit: TestEffort.count(16, long: 80, all: .max))
    #expect(
      result.complaints.isEmpty,
      "\(result.complaints.count) of \(result.count): \(result.complaints.prefix(5).joined(separator: "\n"))")
  }

  @Test(arguments: Workload.allCases, [Container.Durability.full, .grouped, .none])
  func showsAStateThatExistedAfterACrashDuringRecovery(
    workload: Workload, durability: Container.Durability
  ) throws {
    let result = CrashHarness(life: try Recordings.life(workload, durability)).crashTwice(
      limit: TestEffort.count(6, long: 30, all: 800))
    #expect(
      result.complaints.isEmpty,
      "\(result.complaints.count) of \(result.count): \(result.complaints.prefix(5).joined(separator: "\n"))")
  }

  /// More names than one record of the journal holds: all of them, or none. 40 disks.
  @Test(.enabled(if: TestEffort.current == .all))
  func aCommitOfSeveralRecordsIsThereAsAWholeOrNotAtAll() throws {
    let native = TemporaryDirectory()
    for i in 0..<2600 { writeNative(native.path + "/\(i)" + String(repeating: "x", count: 240), []) }
    let life = try RecordedLife(.full) { life in
      try life.change { try $0.write([1], to: "/before") }
      try life.change { try $0.importItem(at: native.path, to: "/many") }
    }
    let result = CrashHarness(life: life).crash(limit: 40)
    #expect(
      result.complaints.isEmpty,
      "\(result.complaints.count) of \(result.count): \(result.complaints.prefix(5).joined(separator: "\n"))")
  }

  /// A copy of the superblock is torn, and then the first that the recovery writes.
  @Test func recoveringFromATornSuperblockNeverTearsTheOnlyWholeOne() throws {
    let life = try Recordings.life(.keys, .full)
    var complaints: [String] = []
    var count = 0
    for (i, operation) in life.log.enumerated().dropFirst(life.creation) {
      guard case .write("superblock", _, _) = operation else { continue }
      let found = CrashPlan(operationCount: i + 1, loss: .tornLast(seed: UInt64(i))).replay(life.log)
      let io = RecordingIO(found)
      _ = try Container.open(io: io, credential: testCredential(), options: testOptions())
      for (j, operation) in io.log.enumerated() {
        guard case .write("superblock", _, _) = operation else { continue }
        let plan = CrashPlan(operationCount: j + 1, loss: .tornLast(seed: UInt64(j)))
        do {
          let again = RecordingIO(plan.replay(io.log, from: found))
          _ = try Container.open(io: again, credential: testCredential(), options: testOptions()).tree()
        } catch {
          complaints.append("torn at \(i), again at \(j): \(error)")
        }
        count += 1
      }
    }
    #expect(complaints == [])
    #expect(count > 0)
  }

  /// Fails every sync of a file whose path begins so, once it is switched on.
  private func container(failingSyncsOf prefix: String, _ durability: Container.Durability) throws -> (
    Container, RecordingIO
  ) {
    let io = RecordingIO()
    let container = try Container.create(
      io: io, credential: testCredential(), options: testOptions(durability))
    try container.write([1], to: "/first")
    try container.synchronize()
    io.setFault { operation, _ in
      if case .synchronize(let path) = operation, path.hasPrefix(prefix) { EIO } else { nil }
    }
    return (container, io)
  }

  @Test func nothingIsCalledDurableAfterASyncThatFailed() throws {
    let (container, io) = try container(failingSyncsOf: "journal/", .full)
    #expect(throws: ContainerError.self) { try container.write([2], to: "/second") }
    io.setFault(nil)
    #expect(throws: ContainerError.self) { try container.synchronize() }
    #expect(throws: ContainerError.self) { try container.write([3], to: "/third") }
    #expect(throws: ContainerError.self) { try container.addKey(testCredential(8)) }
    #expect(try container.contents(at: "/first") == [1])
  }

  @Test(arguments: ["journal/", "slab/"])
  func closingReportsGroupedChangesThatWereLost(prefix: String) throws {
    let (container, io) = try container(failingSyncsOf: prefix, .grouped)
    try container.createDirectory("/d")
    try container.write([2], to: "/d/x")
    #expect(throws: ContainerError.self) { try container.synchronize() }
    // What builds on the lost change is not written either.
    #expect(throws: ContainerError.self) { try container.write([3], to: "/d/f") }
    #expect(throws: ContainerError.self) { try container.close() }
    io.setFault(nil)
    let reopened = try Container.open(
      io: RecordingIO(io.image), credential: testCredential(), options: testOptions())
    #expect(try reopened.contents(at: "/first") == [1])
    #expect(try !reopened.verify().hasDamage)
  }

  @Test func aSuperblockThatWasPutBackAloneIsNoticed() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/c"
    let created = try Container.create(at: path, credential: testCredential(), options: testOptions())
    try created.write([1], to: "/file")
    try created.close()
    let superblock = try #require(readNative(path + "/superblock"))
    let again = try Container.open(at: path, credential: testCredential(), options: testOptions())
    try again.write([2], to: "/file")
    try again.close()
    writeNative(path + "/superblock", superblock)
    for mode in [Container.Mode.readOnly, .readWrite] {
      #expect {
        try Container.open(at: path, credential: testCredential(), mode: mode, options: testOptions())
      } throws: { error in
        (error as? ContainerError)?.code == .rolledBack
      }
    }
    let report = try Container.verify(at: path, credential: testCredential())
    #expect(report.findings.map(\.kind) == [.rolledBack])
    // Nothing was lost: the older state can be accepted, or the newer superblock put in place again.
    var options = testOptions()
    options.acceptsOlderState = true
    let older = try Container.open(at: path, credential: testCredential(), mode: .readOnly, options: options)
    #expect(try older.contents(at: "/file") == [1])
  }

  @Test func strangersInTheDirectoryDoNotKeepItFromOpening() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/c"
    try Container.create(at: path, credential: testCredential(), options: testOptions()).close()
    #expect(mkdir(path + "/slab/deadbeef", 0o700) == 0)
    writeNative(path + "/journal/note.txt", [1])
    let container = try Container.open(at: path, credential: testCredential(), options: testOptions())
    try container.write([1], to: "/file")
    try container.close()
  }
}
