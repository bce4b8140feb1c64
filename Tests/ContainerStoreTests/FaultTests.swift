import ContainerStore
import Foundation
import OpenDynamicsTesting
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What a disk does wrong from some call on.
struct DiskFault: Sendable, CustomTestStringConvertible {
  var code: Int32
  /// Else it fails once.
  var stays = false
  /// Whether the calls that only read fail too.
  var readsFail = true

  static let all = [
    DiskFault(code: ENOSPC, readsFail: false), DiskFault(code: ENOSPC, stays: true, readsFail: false),
    DiskFault(code: EIO), DiskFault(code: EIO, stays: true),
    DiskFault(code: EROFS, stays: true, readsFail: false),
    DiskFault(code: EMFILE), DiskFault(code: EMFILE, stays: true),
  ]

  private static let readingCalls: Set = ["open for reading", "read", "fstat", "lock", "opendir"]

  /// EMFILE is what opening says, and no other call.
  func fails(_ call: String) -> Bool {
    if code == EMFILE { return call.hasPrefix("open") }
    return readsFail || !Self.readingCalls.contains(call)
  }

  /// The fault itself, from the call of that number on, counted among all calls.
  func at(_ number: Int) -> RecordingIO.CallFault {
    { call, _, now in (stays ? now >= number : now == number) && fails(call) ? code : nil }
  }

  var testDescription: String {
    String(cString: strerror(code)) + (stays ? " from some call on" : " once")
  }
}

/// A session with a container, whose every call may fail, beside the models of what it may have come to.
private final class FaultySession {
  private let durability: Container.Durability
  private let start: DiskImage
  private let io: RecordingIO
  private var container: Container?
  /// What the disk may hold: all since the last state that was durable.
  private var candidates: [Tree]
  private(set) var complaints: [String] = []

  init(_ start: DiskImage, _ tree: Tree, _ durability: Container.Durability) {
    self.durability = durability
    self.start = start
    io = RecordingIO(start)
    candidates = [tree]
  }

  /// Runs everything and says how many calls that took.
  func run(_ fault: RecordingIO.CallFault?) -> Int {
    io.setCallFault(fault)
    calling("open") {
      container = try Container.open(
        io: io, credential: testCredential(), options: testOptions(durability))
    }
    step("write") {
      try $0.write(testBytes(30_000, seed: 20), to: "/new")
    } model: {
      $0["/new"] = testBytes(30_000, seed: 20)
    }
    step("replace") {
      try $0.write(testBytes(500, seed: 21), to: "/old")
    } model: {
      $0["/old"] = testBytes(500, seed: 21)
    }
    step("move") {
      try $0.move("/new", to: "/newer")
    } model: {
      if let contents = $0.removeValue(forKey: "/new") { $0["/newer"] = contents }
    }
    call("list") { _ = try $0.tree() }
    step("copy") {
      try $0.copy("/newer", to: "/copy")
    } model: {
      if let contents = $0["/newer"] { $0["/copy"] = contents }
    }
    call("addKey") { try $0.addKey(testCredential(8)) }
    synchronize()
    step("remove") {
      try $0.remove("/folder")
    } model: { tree in
      for path in tree.keys where path.hasPrefix("/folder") { tree.removeValue(forKey: path) }
    }
    call("removeKey") { try $0.removeKey(testCredential(8)) }
    step("make directory") {
      try $0.createDirectory("/made")
    } model: {
      $0.updateValue(nil, forKey: "/made")
    }
    call("verify") { _ = try $0.verify() }
    let callCount = io.callCount
    checkReading()
    if let fault {
      io.setCallFault { name, path, number in fault(name, path, number + callCount) }
    }
    if calling("close", { try container?.close() }), durability != .none { keepLast() }
    let total = callCount + io.callCount
    checkDisk()
    return total
  }

  /// What fails must be explained by an error of ours.
  @discardableResult
  private func calling(_ name: String, _ body: () throws -> Void) -> Bool {
    do {
      try body()
      return true
    } catch is ContainerError {
      return false
    } catch {
      complaints.append("\(name) throws \(type(of: error)): \(error)")
      return false
    }
  }

  private func call(_ name: String, _ body: (Container) throws -> Void) {
    if let container { calling(name) { try body(container) } }
  }

  private func step(_ name: String, _ body: (Container) throws -> Void, model: (inout Tree) -> Void) {
    guard let container else { return }
    let succeeded = calling(name) { try body(container) }
    let after = candidates.map { tree in
      var tree = tree
      model(&tree)
      return tree
    }
    if succeeded, durability == .full {
      candidates = after
    } else {
      candidates += after.filter { !candidates.contains($0) }
    }
  }

  private func synchronize() {
    guard let container else { return }
    if calling("synchronize", { try container.synchronize() }) { keepLast() }
  }

  /// After a success of all since the last sync the newest state is durable; else it is not known which one is newest.
  private func keepLast() {
    guard let tree = try? container?.tree() ?? nil else { return }
    if candidates.contains(tree) { candidates = [tree] }
  }

  /// With the faults gone, and in the same process.
  private func checkReading() {
    io.setCallFault(nil)
    guard let container else { return }
    do {
      let tree = try container.tree()
      if !candidates.contains(tree) {
        complaints.append("the process shows \(tree.mapValues { $0?.count ?? -1 })")
      }
    } catch {
      complaints.append("cannot be read any more: \(error)")
    }
  }

  /// With the faults gone, by another process, and after a crash.
  private func checkDisk() {
    io.setCallFault(nil)
    let log = io.log
    container = nil
    for (name, disk) in [("reopened", io), ("after a crash", nil)] {
      do {
        let plan = CrashPlan(operationCount: log.count, loss: .everythingUnsynchronized)
        let disk = disk ?? RecordingIO(plan.replay(log, from: start))
        let container = try Container.open(io: disk, credential: testCredential(), options: testOptions())
        let tree = try container.tree()
        if !candidates.contains(tree) {
          complaints.append(
            "\(name): shows \(tree.mapValues { $0?.count ?? -1 }), expected one of \(candidates.count) states"
          )
        }
        let findings = container.findings + (try container.verify().findings)
        if let finding = findings.first(where: { !CrashHarness.isTrace($0) }) {
          complaints.append("\(name): \(finding)")
        }
        try container.write([1], to: "/afterwards")
        try container.close()
        let report = try Container.verify(io: disk, credential: testCredential(), options: testOptions())
        if let finding = report.findings.first { complaints.append("\(name), after going on: \(finding)") }
      } catch {
        complaints.append("\(name): \(error)")
      }
    }
  }
}

struct FaultTests {
  private static let start = Result {
    let io = RecordingIO()
    let container = try Container.create(
      io: io, credential: testCredential(), options: testOptions(.full))
    try container.write(testBytes(6000, seed: 1), to: "/old")
    try container.createDirectory("/folder")
    try container.write(testBytes(40_000, seed: 2), to: "/folder/large")
    let tree = try container.tree()
    try container.close()
    return (image: io.image, tree: tree)
  }

  /// Some 12 calls for each fault and policy, drawn with the seed; with OPENDYNAMICS_LONG=1 all of some 100.
  @Test(arguments: DiskFault.all, [Container.Durability.full, .grouped])
  func aCallThatFailsIsReportedAndLosesNothing(fault: DiskFault, durability: Container.Durability) throws {
    let (image, tree) = try Self.start.get()
    let whole = FaultySession(image, tree, durability)
    let callCount = whole.run(nil)
    try #require(whole.complaints == [])
    var random = SplitMix64(seed: testSeed)
    let numbers = (0..<callCount).shuffled(using: &random).prefix(runsLong ? callCount : 12)
    let complaints = numbers.flatMap { number in
      let session = FaultySession(image, tree, durability)
      _ = session.run(fault.at(number))
      return session.complaints.map { "call \(number): \($0)" }
    }
    #expect(complaints.isEmpty, "\(complaints.count): \(complaints.prefix(5).joined(separator: "\n"))")
  }

  /// After a sync that failed nobody knows what the disk has.
  @Test func aContainerIsReadOnlyAfterASyncThatFailedUntilItIsOpenedAgain() throws {
    let (image, tree) = try Self.start.get()
    func syncsOfAWrite(failing number: Int?) throws -> (Container, RecordingIO, count: Int, ContainerError?) {
      let io = RecordingIO(image)
      let container = try Container.open(
        io: io, credential: testCredential(), options: testOptions(.full))
      try container.write([1], to: "/first")
      let count = Guarded(0)
      io.setFault { operation, _ in
        switch operation {
        case .synchronize, .synchronizeDirectory:
          count.withLock { count in
            defer { count += 1 }
            return count == number ? EIO : nil
          }
        default: nil
        }
      }
      defer { io.setFault(nil) }
      do {
        try container.write([2], to: "/second")
        return (container, io, count.withLock { $0 }, nil)
      } catch let error as ContainerError {
        return (container, io, count.withLock { $0 }, error)
      }
    }
    let syncCount = try syncsOfAWrite(failing: nil).count
    #expect(syncCount == 2)
    for number in 0..<syncCount {
      let (container, io, _, error) = try syncsOfAWrite(failing: number)
      #expect(try #require(error).code == .ioFailed)
      for change in [{ try container.write([3], to: "/third") }, { try container.addKey(testCredential(8)) }]
      {
        #expect {
          try change()
        } throws: { error in
          (error as? ContainerError)?.code == .readOnly
            && "\(error)".contains("close it and open it again")
        }
      }
      #expect(try container.contents(at: "/first") == [1])
      #expect(throws: ContainerError.self) { try container.close() }
      let again = try Container.open(io: io, credential: testCredential(), options: testOptions(.full))
      var expected = tree
      expected["/first"] = [1]
      let shown = try again.tree()
      expected["/second"] = shown["/second"]
      #expect(shown == expected)
      try again.write([3], to: "/third")
      try again.close()
      #expect(try Container.verify(io: io, credential: testCredential()).findings == [])
    }
  }
}
