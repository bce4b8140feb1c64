import ContainerStore
import Foundation
import Locks
import OpenDynamicsTesting
import TestSupport
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

struct FaultTests {
  private static let start = Result {
    let io = RecordingIO()
    let container = try Container.create(
      io: io, credential: testCredential(), options: testOptions(.full))
    try container.write(testBytes(6000, seed: 1), to: "/old")
    try container.createDirectory("/folder")
    try container.write(testBytes(40_000, seed: 2), to: "/folder/large")
    // Every second one goes, too small to be punched: something to compact.
    for i in 0..<12 { try container.write(testBytes(20_000, seed: UInt64(10 + i)), to: "/\(i)") }
    for i in stride(from: 0, to: 12, by: 2) { try container.remove("/\(i)") }
    let tree = try container.tree()
    try container.close()
    return (image: io.image, tree: tree)
  }

  /// 4 calls for each fault and policy, drawn with the seed; with more effort 12, or all of some 100.
  @Test(arguments: DiskFault.all, [Container.Durability.full, .grouped])
  func aCallThatFailsIsReportedAndLosesNothing(fault: DiskFault, durability: Container.Durability) throws {
    try check(.changes, fault, durability, count: TestEffort.count(4, long: 12))
  }

  /// One call for each fault and policy, drawn with the seed; with more effort 3, or all of some 100 to 200.
  @Test(arguments: DiskFault.all, FaultyLife.allCases.filter { $0 != .changes })
  func whereverACallFailsNothingIsLost(fault: DiskFault, life: FaultyLife) throws {
    for durability in [Container.Durability.full, .grouped] {
      try check(life, fault, durability, count: TestEffort.count(1, long: 3))
    }
  }

  private func check(
    _ life: FaultyLife, _ fault: DiskFault, _ durability: Container.Durability, count: Int
  ) throws {
    let (image, tree) = try Self.start.get()
    let whole = FaultySession(image, tree, life, durability)
    let callCount = whole.run(nil)
    try #require(whole.complaints == [])
    if life == .compaction { try #require(whole.movedByteCount > 0) }
    if life == .checkpoints { try #require(whole.log.count { $0.createsTable } > 1) }
    var random = SplitMix64(seed: SplitMix64.testSeed &+ UInt64(life.rawValue.utf8.count))
    let numbers = (0..<callCount).shuffled(using: &random).prefix(
      TestEffort.current == .all ? callCount : count)
    let complaints = numbers.flatMap { number in
      let session = FaultySession(image, tree, life, durability)
      _ = session.run(fault.at(number))
      return session.complaints.map { "\(life), \(durability), call \(number) of \(callCount): \($0)" }
    }
    #expect(
      complaints.isEmpty,
      "OPENDYNAMICS_TEST_SEED=\(SplitMix64.testSeed), \(complaints.count): \(complaints.prefix(5).joined(separator: "\n"))"
    )
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
      for change in [
        { try container.write([3], to: "/third") }, { try container.addKey(testCredential(8)) },
        // What can be read is told to nobody else.
        { try container.requireNoFailure() },
        { _ = try container.outboxFloor(receiver: "com.example.receiver") },
      ] {
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

extension RecordingIO.Operation {
  fileprivate var createsTable: Bool {
    if case .create(let path) = self { path.hasPrefix("catalog/") } else { false }
  }
}
