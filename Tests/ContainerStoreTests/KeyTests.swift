import Foundation
import Locks
import OpenDynamicsTesting
import SodiumPrimitives
import Testing

@testable import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

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

  private func passphrase(_ text: String) -> Credential { .passphrase(try! SecretBytes(utf8: text)) }

  /// A container with a raw key, and two passphrases that cost little.
  private func makeContainer(_ io: RecordingIO) throws -> Container {
    var options = testOptions()
    options.passwordHash = PasswordHash.Parameters(passes: 1, memoryKiB: 8)
    let container = try Container.create(
      io: io, credential: testCredential(1), label: "file", options: options)
    try container.addKey(passphrase("one"), label: "Ünïcode 名前")
    try container.addKey(passphrase("two"))
    return container
  }

  @Test func labelsAndIdsNameKeys() throws {
    let io = RecordingIO()
    let container = try makeContainer(io)
    let keys = try container.keys()
    #expect(keys.map(\.label) == ["file", "Ünïcode 名前", nil])
    #expect(keys.map(\.kind) == [.rawKey, .passphrase, .passphrase])
    #expect(keys.map(\.passwordHash?.memoryKiB) == [nil, 8, 8])
    #expect(Set(keys.map(\.id)).count == 3)
    #expect(container.openingKey == keys[0].id)
    #expect(try container.info().keys == keys)
    let superblock = try #require(io.image.names["superblock"].flatMap { io.image.contents[$0] })
    #expect(!superblock.contains(Array("名前".utf8)))
    for wrong in ["", String(repeating: "a", count: 64), String(repeating: "ä", count: 32), "file"] {
      expectError(.invalidArgument) { try container.addKey(testCredential(2), label: wrong) }
      expectError(.invalidArgument) { try container.setLabel(wrong, ofKey: keys[2].id) }
    }
    let longest = String(repeating: "ä", count: 31) + "b"
    try container.setLabel(longest, ofKey: keys[2].id)
    try container.setLabel(nil, ofKey: keys[1].id)
    try container.setLabel("file", ofKey: keys[0].id)
    expectError(.invalidArgument) { try container.setLabel("x", ofKey: .random()) }
    try container.replaceKey(passphrase("two"), with: passphrase("three"))
    try container.removeKey(id: keys[0].id)
    expectError(.invalidArgument) { try container.removeKey(id: keys[0].id) }
    try container.close()
    expectError(.closed) { _ = try container.keys() }

    let again = try Container.open(io: io, credential: passphrase("three"))
    defer { try? again.close() }
    let left = try again.keys()
    #expect(left.map(\.label) == [nil, longest])
    #expect(left[0].id == keys[1].id && left[1].id != keys[2].id)
    #expect(again.openingKey == left[1].id)
    try again.removeKey(id: left[0].id)
    expectError(.invalidArgument) { try again.removeKey(id: left[1].id) }
    #expect(try again.keys() == [left[1]])
  }

  @Test func aCredentialIsTriedOnOneKeyOrOnAll() throws {
    let io = RecordingIO()
    let container = try makeContainer(io)
    let keys = try container.keys().map(\.id)
    for (i, key) in keys.enumerated() {
      #expect(try container.holds(testCredential(1), key: key) == (i == 0))
      #expect(try container.holds(passphrase("one"), key: key) == (i == 1))
      #expect(try container.holds(passphrase("two"), key: key) == (i == 2))
      #expect(try !container.holds(passphrase("three"), key: key))
    }
    #expect(try container.holds(testCredential(1)) && container.holds(passphrase("two")))
    #expect(try !container.holds(passphrase("three")))
    expectError(.invalidArgument) { _ = try container.holds(passphrase("two"), key: .random()) }
    try container.removeKey(id: keys[2])
    expectError(.invalidArgument) { _ = try container.holds(passphrase("two"), key: keys[2]) }
    #expect(try !container.holds(passphrase("two")))
    let reader = try Container.open(io: io, credential: passphrase("one"), mode: .readOnly)
    #expect(try reader.holds(testCredential(1)))
    try reader.close()
    expectError(.closed) { _ = try reader.holds(testCredential(1)) }
    try container.close()
  }

  /// The person's key is asked for after it was changed, too.
  @Test func theOpeningKeyFollowsItsReplacement() throws {
    let io = RecordingIO()
    try makeContainer(io).close()
    let container = try Container.open(io: io, credential: passphrase("two"), options: testOptions())
    let before = container.openingKey
    try container.replaceKey(passphrase("one"), with: passphrase("three"))
    #expect(container.openingKey == before)
    try container.replaceKey(passphrase("two"), with: passphrase("four"))
    #expect(container.openingKey != before)
    #expect(try container.holds(passphrase("four"), key: container.openingKey))
    #expect(try !container.holds(passphrase("three"), key: container.openingKey))
    try container.close()
  }

  /// As names of files, labels are bytes.
  @Test func labelsAreComparedByteByByte() throws {
    let io = RecordingIO()
    let container = try makeContainer(io)
    let (composed, decomposed) = ("\u{e9}", "e\u{301}")
    let keys = try container.keys().map(\.id)
    try container.setLabel(composed, ofKey: keys[0])
    expectError(.invalidArgument) { try container.setLabel(composed, ofKey: keys[1]) }
    try container.setLabel(decomposed, ofKey: keys[1])
    try container.setLabel("\u{0}", ofKey: keys[2])
    #expect(try container.keys().map { Array($0.label!.utf8) } == [[0xc3, 0xa9], [0x65, 0xcc, 0x81], [0]])
    try container.setLabel(nil, ofKey: keys[1])
    try container.setLabel(decomposed, ofKey: keys[0])
    #expect(try container.keys()[0].label.map { Array($0.utf8) } == [0x65, 0xcc, 0x81])
    try container.close()
  }

  /// An opening that fails late says why.
  @Test func anOpeningThatFailsSaysWhy() throws {
    let io = RecordingIO()
    let container = try makeContainer(io)
    try container.write([1, 2, 3], to: "/a")
    try container.synchronize()
    let image = io.image
    try container.close()
    for (error, code) in [(ENOSPC, ContainerError.Code.diskFull), (EIO, .ioFailed)] {
      let disk = RecordingIO(image)
      disk.setFault { operation, _ in
        if case .create(let path) = operation, path.hasPrefix("journal/") { error } else { nil }
      }
      expectError(code) {
        try Container.open(io: disk, credential: testCredential(1), options: testOptions())
      }
    }
  }

  /// A slot that asks for more memory than the options allow is refused, and is not asked when another is meant.
  @Test func costsAreCheckedBeforeAHash() throws {
    let io = RecordingIO()
    var container = try makeContainer(io)
    try container.close()
    var options = testOptions()
    options.passwordHashMemoryKiBMax = 7
    container = try Container.open(io: io, credential: testCredential(1), options: options)
    let keys = try container.keys().map(\.id)
    expectError(.invalidArgument) { _ = try container.holds(passphrase("one")) }
    expectError(.invalidArgument) { _ = try container.holds(passphrase("one"), key: keys[1]) }
    #expect(try !container.holds(passphrase("one"), key: keys[0]))
    try container.close()
    var calls = 0
    expectError(.invalidArgument) {
      _ = try openCounting(io, passphrase("one"), options, before: { _ in calls += 1 })
    }
    #expect(calls == 0)
  }

  private struct Refused: Error {}

  private func openCounting(
    _ io: RecordingIO, _ credential: borrowing Credential, _ options: Container.Options = testOptions(),
    before: (Identifier) throws -> Void, after: () throws -> Void = {}
  ) throws -> Container {
    try Container.open(io: io, credential: credential, options: options, beforeHash: before, afterHash: after)
  }

  /// Attempts are counted with the lock held, before each hash; a raw key has none.
  @Test func anOpeningTellsOfEachHash() throws {
    let io = RecordingIO()
    let container = try makeContainer(io)
    let keys = try container.keys().map(\.id)
    try container.close()
    var calls: [String] = []
    func open(_ credential: borrowing Credential) throws {
      calls = []
      try openCounting(
        io, credential,
        before: { id in
          #expect(throws: ContainerError.self) {
            try Container.open(io: io, credential: testCredential(1)).close()
          }
          calls.append("before \(keys.firstIndex(of: id)!)")
        }, after: { calls.append("after") }
      ).close()
    }
    try open(testCredential(1))
    #expect(calls == [])
    try open(passphrase("two"))
    #expect(calls == ["before 1", "after", "before 2", "after"])
    expectError(.wrongKey) { try open(passphrase("three")) }
    #expect(calls == ["before 1", "after", "before 2", "after"])

    for refusesAfter in [false, true] {
      let begin = io.log.count
      #expect(throws: Refused.self) {
        _ = try openCounting(
          io, passphrase("one"), before: { _ in if !refusesAfter { throw Refused() } },
          after: { if refusesAfter { throw Refused() } })
      }
      #expect(io.log.count == begin, "nothing is written")
    }
    // The lock is free again.
    try open(passphrase("one"))
  }

  @Test func aSealedContainerHoldsNothing() throws {
    let io = RecordingIO()
    let container = try makeContainer(io)
    try container.close(.now, because: "locked")
    expectError(.closed) { _ = try container.holds(passphrase("one")) }
    expectError(.closed) { try container.setLabel("x", ofKey: container.openingKey) }
    expectError(.closed) { try container.removeKey(id: container.openingKey) }
  }

  /// What was hashed while the container went is no answer.
  @Test func aSealDuringAHashIsNoAnswer() throws {
    let io = RecordingIO()
    var options = testOptions()
    options.passwordHash = PasswordHash.Parameters(passes: 4, memoryKiB: 128 * 1024)
    let container = try Container.create(io: io, credential: passphrase("one"), options: options)
    let sealed = Guarded<ContinuousClock.Instant?>(nil)
    Thread.detachNewThread {
      usleep(20_000)
      _ = try? container.close(.now, because: "locked")
      sealed.withLock { $0 = .now }
    }
    // It is sealed in the middle of one of them, on a busy machine not of the first.
    expectError(.closed) {
      while true {
        _ = try container.holds(passphrase("one"))
        let answered = ContinuousClock.now
        if let sealed = sealed.withLock({ $0 }) { #expect(sealed.duration(to: answered) < .milliseconds(50)) }
      }
    }
  }
}
