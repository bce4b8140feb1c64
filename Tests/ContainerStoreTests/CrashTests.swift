import ContainerStore
import OpenDynamicsTesting
import SodiumPrimitives
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// A scripted life of a container on the recording I/O, and what was true after each step.
private struct RecordedLife {
  var log: [RecordingIO.Operation] = []
  /// The tree after each step, and how many operations had happened when the step was acknowledged as durable.
  var states: [(operationCount: Int, tree: [String: [UInt8]?])] = []

  init(durability: Container.Durability = .full, openings: Int = 11) throws {
    let io = RecordingIO()
    var container = try Container.create(
      io: io, credential: testCredential(), options: testOptions(durability))
    states.append((io.log.count, [:]))
    func step(_ body: (Container) throws -> Void) throws {
      try body(container)
      if durability != .full { try container.synchronize() }
      states.append((io.log.count, try container.tree()))
    }
    // A file that had its slab to itself, so that the slab goes with it.
    try step { try $0.write(testBytes(700, seed: 30), to: "/alone") }
    try step { try $0.remove("/alone") }
    try step { try $0.createDirectory("/Documents/deep", withIntermediateDirectories: true) }
    try step { try $0.write(testBytes(10, seed: 1), to: "/Documents/small") }
    try step { try $0.write(testBytes(40_000, seed: 2), to: "/Documents/deep/large") }
    try step { try $0.write([], to: "/empty") }
    try step { try $0.write(testBytes(5000, seed: 3), to: "/Documents/small") }
    try step { try $0.move("/Documents/small", to: "/Documents/deep/moved") }
    try step { try $0.copy("/Documents", to: "/copy") }
    try step { try $0.remove("/Documents/deep/large") }
    let sender = try Container.create(
      io: RecordingIO(), credential: testCredential(9), options: testOptions())
    try sender.write(testBytes(20_000, seed: 4), to: "/letter")
    try sender.write(testBytes(3, seed: 5), to: "/note")
    try step { _ = try sender.send(["/letter", "/note"], to: $0, sender: "com.example.sender") }
    // Enough openings that one of them writes a checkpoint.
    for i in 0..<openings {
      try container.close()
      states.append((io.log.count, states.last!.tree))
      container = try Container.open(io: io, credential: testCredential(), options: testOptions(durability))
      try step { try $0.write(testBytes(100 + i, seed: UInt64(10 + i)), to: "/counter") }
    }
    try step { try $0.remove("/copy") }
    try container.close()
    states.append((io.log.count, states.last!.tree))
    log = io.log
  }

  /// The states that a disk found after a crash may show: from the last acknowledged one to the one under way.
  func acceptable(after operationCount: Int) -> [[String: [UInt8]?]] {
    guard let acknowledged = states.lastIndex(where: { $0.operationCount <= operationCount }) else {
      return [states[0].tree]
    }
    return states[acknowledged...min(acknowledged + 1, states.count - 1)].map(\.tree)
  }

  /// Opens what a crash left and checks everything that must hold. Returns a complaint, or nil.
  func check(_ plan: CrashPlan, recoveringWith durability: Container.Durability = .full) -> String? {
    let io = RecordingIO(plan.replay(log))
    do {
      let container = try Container.open(
        io: io, credential: testCredential(), options: testOptions(durability))
      let tree = try container.tree()
      guard acceptable(after: plan.operationCount).contains(where: { $0 == tree }) else {
        return "\(plan): shows a state that never was, or lost one: \(tree.keys.sorted())"
      }
      let tolerated: Set<Finding.Kind> = [.superblockSlotTorn, .superblockSlotOutdated, .tornTail]
      if let finding = container.findings.first(where: { !tolerated.contains($0.kind) }) {
        return "\(plan): reports \(finding)"
      }
      // It goes on from there, and is whole.
      try container.write([1, 2, 3], to: "/after")
      try container.close()
      let report = try Container.verify(io: io, credential: testCredential(), options: testOptions())
      if let finding = report.findings.first { return "\(plan): verify reports \(finding)" }
      return nil
    } catch {
      // Before its superblock is there, a container is none.
      if error as? ContainerError != nil, ContainerError.notAContainer ~= error,
        plan.operationCount < states[0].operationCount
      {
        return nil
      }
      return "\(plan): \(error)"
    }
  }
}

struct CrashTests {
  private static let life = Result { try RecordedLife() }
  private static let shardCount = 4

  @Test(arguments: 0..<shardCount)
  func opensInAStateThatExistedAfterACrashAtEveryOperation(shard: Int) throws {
    let life = try Self.life.get()
    var plans: [CrashPlan] = []
    for count in stride(from: shard, through: life.log.count, by: Self.shardCount) {
      plans.append(CrashPlan(operationCount: count, loss: .nothing))
      plans.append(CrashPlan(operationCount: count, loss: .everythingUnsynchronized))
      for seed in 0..<2 {
        plans.append(CrashPlan(operationCount: count, loss: .some(seed: UInt64(count * 100 + seed))))
      }
      if count > 0, case .write = life.log[count - 1] {
        for seed in 0..<2 {
          plans.append(CrashPlan(operationCount: count, loss: .tornLast(seed: UInt64(count * 100 + seed))))
        }
      }
    }
    let complaints = plans.compactMap { life.check($0) }
    #expect(
      complaints.isEmpty,
      "\(complaints.count) of \(plans.count): \(complaints.prefix(5).joined(separator: "\n"))")
  }

  @Test func opensAfterACrashDuringRecovery() throws {
    let life = try RecordedLife(openings: 2)
    var complaints: [String] = []
    // Crashes at every third operation, and then again at every operation of the recovery.
    for count in stride(from: life.states[0].operationCount, through: life.log.count, by: 3) {
      let first = CrashPlan(operationCount: count, loss: .everythingUnsynchronized).replay(life.log)
      let io = RecordingIO(first)
      _ = try Container.open(io: io, credential: testCredential(), options: testOptions())
      let recovery = io.log
      for again in 0...recovery.count {
        let second = CrashPlan(operationCount: again, loss: .some(seed: UInt64(again))).replay(
          recovery, from: first)
        do {
          let container = try Container.open(
            io: RecordingIO(second), credential: testCredential(), options: testOptions())
          let tree = try container.tree()
          if !life.acceptable(after: count).contains(where: { $0 == tree }) {
            complaints.append("crash at \(count), again at \(again): shows another state")
          }
        } catch {
          complaints.append("crash at \(count), again at \(again): \(error)")
        }
      }
    }
    #expect(complaints.isEmpty, "\(complaints.count): \(complaints.prefix(5).joined(separator: "\n"))")
  }

  @Test func aWriterThatWasToldNotToSyncLosesWholeCommitsOnly() throws {
    let io = RecordingIO()
    let container = try Container.create(io: io, credential: testCredential(), options: testOptions(.none))
    try container.synchronize()
    let durable = io.log.count
    var trees = [try container.tree()]
    for i in 0..<6 {
      try container.write(testBytes(20_000 + i, seed: UInt64(i)), to: "/file\(i)")
      trees.append(try container.tree())
    }
    try container.close()
    var complaints: [String] = []
    for count in durable...io.log.count {
      for seed in 0..<8 {
        let plan = CrashPlan(operationCount: count, loss: .some(seed: UInt64(count * 1000 + seed)))
        do {
          let opened = try Container.open(
            io: RecordingIO(plan.replay(io.log)), credential: testCredential(), options: testOptions())
          let tree = try opened.tree()
          if !trees.contains(where: { $0 == tree }) { complaints.append("\(plan): \(tree.keys.sorted())") }
          let report = try opened.verify()
          if report.findings.contains(where: { $0.severity == .damage && $0.kind != .superblockSlotTorn }) {
            complaints.append("\(plan): \(report.findings)")
          }
        } catch {
          complaints.append("\(plan): \(error)")
        }
      }
    }
    #expect(complaints.isEmpty, "\(complaints.count): \(complaints.prefix(5).joined(separator: "\n"))")
  }

  @Test(arguments: [ENOSPC, EIO])
  func aFailedOperationIsReportedAndLosesNothing(code: Int32) throws {
    let life = try RecordedLife(openings: 1)
    let start = CrashPlan(operationCount: life.states[3].operationCount, loss: .nothing).replay(life.log)
    // How many operations the workload below takes when nothing fails.
    func workload(_ io: RecordingIO) throws {
      let container = try Container.open(io: io, credential: testCredential(), options: testOptions())
      try container.write(testBytes(30_000, seed: 20), to: "/new")
      try container.move("/new", to: "/newer")
      try container.remove("/Documents")
      try container.close()
    }
    let whole = RecordingIO(start)
    try workload(whole)
    var trees: [[String: [UInt8]?]] = []
    for count in 0...whole.log.count {
      let io = RecordingIO(CrashPlan(operationCount: count, loss: .nothing).replay(whole.log, from: start))
      let tree = try Container.open(io: io, credential: testCredential(), mode: .readOnly).tree()
      if trees.last != tree { trees.append(tree) }
    }
    var complaints: [String] = []
    for number in 0..<whole.log.count {
      let io = RecordingIO(start)
      io.setFault { _, at in at == number ? code : nil }
      var failed: (any Error)?
      do { try workload(io) } catch { failed = error }
      io.setFault(nil)
      if let failed, !(failed is ContainerError) { complaints.append("\(number): throws \(failed)") }
      if let failed, code == ENOSPC, !(ContainerError.diskFull ~= failed),
        !(ContainerError.readOnly ~= failed)
      {
        complaints.append("\(number): \(failed)")
      }
      do {
        let reopened = try Container.open(
          io: RecordingIO(io.image), credential: testCredential(), options: testOptions())
        let tree = try reopened.tree()
        if !trees.contains(where: { $0 == tree }) { complaints.append("\(number): \(tree.keys.sorted())") }
        let report = try reopened.verify()
        if report.hasDamage { complaints.append("\(number): \(report.findings)") }
      } catch {
        complaints.append("\(number): does not open: \(error)")
      }
    }
    #expect(complaints.isEmpty, "\(complaints.count): \(complaints.prefix(5).joined(separator: "\n"))")
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

  @Test func oneDurableCommitTakesTwoSyncs() throws {
    let io = RecordingIO()
    let container = try Container.create(io: io, credential: testCredential(), options: testOptions(.full))
    try container.write([1], to: "/first")
    let before = io.log.count
    try container.write([2], to: "/second")
    let syncs = io.log[before...].filter { if case .synchronize = $0 { true } else { false } }
    #expect(syncs.count == 2)
  }
}
