import OpenDynamicsTesting
import SodiumPrimitives
import Testing

@testable import ContainerStore

/// Keys of a container: each change is one update of the superblock.
struct KeyTests {
  private func keys(_ io: RecordingIO) -> [UInt8] {
    (1...20).filter {
      (try? Container.open(io: io, credential: testCredential($0), mode: .readOnly)) != nil
    }
  }

  @Test func replacingNeedsNoFreeSlot() throws {
    let io = RecordingIO()
    let container = try Container.create(io: io, credential: testCredential(1), options: testOptions())
    for key: UInt8 in 2...8 { try container.addKey(testCredential(key)) }
    expectError(.noFreeKeySlot) { try container.addKey(testCredential(9)) }
    try container.replaceKey(testCredential(3), with: testCredential(9))
    try container.close()
    #expect(keys(io) == [1, 2, 4, 5, 6, 7, 8, 9])
  }

  @Test func aKeyThatIsThereIsNotAddedAgain() throws {
    let io = RecordingIO()
    let container = try Container.create(io: io, credential: testCredential(1), options: testOptions())
    try container.addKey(testCredential(2))
    let sequence = try container.store.withSuperblock { slot, _, _ in slot.sequence }
    for key: UInt8 in 1...2 {
      expectError(.invalidArgument) { try container.addKey(testCredential(key)) }
      expectError(.invalidArgument) { try container.replaceKey(testCredential(1), with: testCredential(key)) }
    }
    expectError(.wrongKey) { try container.replaceKey(testCredential(5), with: testCredential(6)) }
    #expect(try container.store.withSuperblock { slot, _, _ in slot.sequence } == sequence)
    try container.close()
    #expect(keys(io) == [1, 2])
  }

  /// Whatever a crash leaves of the change, one of the two opens the container, and one alone.
  @Test func anInterruptedChangeLeavesOneOfTheTwo() throws {
    let io = RecordingIO()
    try Container.create(io: io, credential: testCredential(1), options: testOptions()).close()
    let before = io.image
    let container = try Container.open(io: io, credential: testCredential(1), options: testOptions())
    let begin = io.log.count
    try container.replaceKey(testCredential(1), with: testCredential(2))
    let changes = io.log[begin...]
    try container.close()
    #expect(changes.count >= 4)
    var seen: Set<[UInt8]> = []
    for count in 0...changes.count {
      let plan = CrashPlan(operationCount: count, loss: .nothing)
      let found = keys(RecordingIO(plan.replay(Array(changes), from: before)))
      #expect(found.count == 1)
      seen.insert(found)
    }
    #expect(seen == [[1], [2]])
    #expect(keys(io) == [2])
  }
}
