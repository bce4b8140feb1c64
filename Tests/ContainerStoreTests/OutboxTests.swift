import EncryptedFile
import Locks
import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

@testable import ContainerStore

private let grain = SegmentLayout.plaintextByteCountMax

private func message(_ attachments: [String], id: UInt8 = 1, count: Int = 40) -> OutgoingMessage {
  OutgoingMessage(
    id: Identifier(repeating: id), receiver: "com.example.receiver",
    message: testBytes(count, seed: UInt64(id)), attachments: attachments)
}

extension Container {
  /// Every file of a message, by its path.
  fileprivate func outboxTree(_ number: UInt64) throws -> [String: [UInt8]] {
    let files = try outboxFiles(number, from: 0, limit: .max)
    let all = try readOutbox(number)
    var tree: [String: [UInt8]] = [:]
    var position = 0
    for file in files {
      tree[String(decoding: file.path, as: UTF8.self)] = Array(all[position..<(position + Int(file.size))])
      position += Int(file.size)
    }
    #expect(position == all.count)
    return tree
  }
}

private func expectSound(_ io: RecordingIO, sourceLocation: SourceLocation = #_sourceLocation) throws {
  let report = try Container.verify(io: io, credential: testCredential(), options: testOptions())
  #expect(report.findings.filter { $0.severity == .damage } == [], sourceLocation: sourceLocation)
}

struct OutboxTests {
  // MARK: Records

  @Test func keepsWhatItWasGivenInOrder() throws {
    let sender = try Sender()
    #expect(try sender.container.outboxEntries() == [])
    try sender.container.createDirectory("/d/e", withIntermediateDirectories: true)
    try sender.container.write(testBytes(70_000, seed: 1), to: "/d/large", permissions: 0o640)
    try sender.container.setAttributes(at: "/d/large", modified: 12_345)
    try sender.container.write([], to: "/d/empty")
    try sender.container.write([7], to: "/d/e/small")
    try sender.container.write([8], to: "/alone")
    let first = try sender.container.enqueue(message(["/alone", "/d"], id: 1, count: 100_000))
    let second = try sender.container.enqueue(message([], id: 2, count: 0))
    #expect(first.number == 1 && second.number == 2)
    #expect(first.fileCount == 4 && first.byteCount == 70_002 && second.fileCount == 0)
    for reopens in [false, true] {
      let container = reopens ? try sender.reopened() : sender.container
      #expect(try container.outboxEntries() == [first, second])
      #expect(try container.outboxMessage(1) == testBytes(100_000, seed: 1))
      #expect(try container.outboxMessage(2) == [])
      let files = try container.outboxFiles(1, from: 0, limit: 10)
      #expect(files[0].path == Array("/alone".utf8))
      let large = try #require(files.first { $0.path == Array("/d/large".utf8) })
      #expect(large.size == 70_000 && large.modified == 12_345 && large.permissions == 0o640)
      #expect(try container.outboxFiles(1, from: 1, limit: 2).map(\.path) == files[1...2].map(\.path))
      #expect(try container.outboxFiles(1, from: 4, limit: 2).isEmpty)
      #expect(try container.outboxFiles(2, from: 0, limit: 2).isEmpty)
      #expect(
        try container.outboxTree(1) == [
          "/alone": [8], "/d/large": testBytes(70_000, seed: 1), "/d/empty": [], "/d/e/small": [7],
        ])
      #expect(try container.readOutbox(2) == [])
      try expectSound(container)
    }
  }

  @Test func numbersAndTheIncarnationGoOn() throws {
    let sender = try Sender()
    let receiver = message([]).receiver
    #expect(try sender.container.enqueue(message([])).number == 1)
    let incarnation = try sender.container.outboxReceiver(receiver).incarnation
    try sender.container.settleOutbox(1)
    let reopened = try sender.reopened()
    #expect(try reopened.outboxReceiver(receiver).incarnation == incarnation)
    #expect(try reopened.enqueue(message([])).number == 2)
    #expect(try reopened.outboxEntries().map(\.number) == [2])
    let other = try Sender().container
    _ = try other.enqueue(message([]))
    #expect(try other.outboxReceiver(receiver).incarnation != incarnation)
  }

  @Test(arguments: [Container.Durability.full, .none])
  func remembersWhatWasOffered(durability: Container.Durability) throws {
    let sender = try Sender(durability)
    for id in 1...3 { _ = try sender.container.enqueue(message([], id: UInt8(id)), mayBeOffered: id == 3) }
    #expect(try sender.container.outboxEntries().map(\.mayBeOffered) == [false, false, true])
    try sender.container.markOffered(2)
    expectError(.noSuchFile) { try sender.container.markOffered(4) }
    // The process ends here; with `full` the machine, too.
    let log = sender.io.log
    let plan = CrashPlan(
      operationCount: log.count, loss: durability == .full ? .everythingUnsynchronized : .nothing)
    let after = try Container.open(
      io: RecordingIO(plan.replay(log)), credential: testCredential(), options: testOptions())
    #expect(try after.outboxEntries().map(\.mayBeOffered) == [false, true, true])
  }

  /// In memory it is what the records say, also after a message that was refused.
  @Test func knowsTheFirstMessageOfEachReceiver() throws {
    var random = SplitMix64(seed: SplitMix64.testSeed)
    let sender = try Sender(.none)
    var container = sender.container
    let receivers = (0..<4).map { "com.example.receiver\($0)" }
    func outgoing(_ id: Int, _ attachments: [String] = []) -> OutgoingMessage {
      OutgoingMessage(
        id: Identifier(repeating: UInt8(id)), receiver: receivers[random.below(4)], message: [],
        attachments: attachments)
    }
    for step in 0..<200 {
      let waiting = try container.outboxEntries()
      switch random.below(8) {
      case 0...3: _ = try container.enqueue(outgoing(step))
      case 4...6:
        if let entry = waiting.randomElement(using: &random) { try container.settleOutbox(entry.number) }
      default:
        expectError(.noSuchFile) { try container.enqueue(outgoing(step, ["/none"])) }
        guard random.oneIn(4) else { break }
        try container.close()
        container = try Container.open(
          io: sender.io, credential: testCredential(), options: testOptions(.none))
      }
      let now = try container.outboxEntries()
      for receiver in receivers {
        #expect(
          try container.outboxFloor(receiver: receiver) == now.first { $0.receiver == receiver }?.number)
      }
      for entry in now.prefix(1) {
        let again = OutgoingMessage(
          id: entry.id, receiver: receivers[0], message: [], attachments: [])
        expectError(.invalidArgument) { try container.enqueue(again) }
      }
    }
  }

  @Test func refusesWhatCannotBeSent() throws {
    let sender = try Sender()
    let container = sender.container
    try container.createDirectory("/d")
    try container.write([1], to: "/d/file")
    try container.createSymbolicLink("/link", to: "d/file")
    expectError(.noSuchFile, path: "/missing") { try container.enqueue(message(["/d", "/missing"])) }
    for (receiver, isGood) in [
      ("", false), (String(repeating: "r", count: 256), false),
      (String(repeating: "r", count: 255), true),
    ] {
      var other = message([], id: 9)
      other.receiver = receiver
      if isGood {
        _ = try container.enqueue(other)
      } else {
        expectError(.invalidArgument) { try container.enqueue(other) }
      }
    }
    let limit = OutgoingMessage.byteCountMax
    expectError(.invalidArgument) { try container.enqueue(message([], count: limit + 1)) }
    _ = try container.enqueue(message([], count: limit))
    #expect(try container.outboxMessage(2).count == limit)
    expectError(.invalidArgument) { try container.enqueue(message(["/d"])) }
    // A link is followed when it is named itself, and cannot be sent as part of a folder.
    #expect(try container.enqueue(message(["/link"], id: 3)).fileCount == 1)
    #expect(try container.outboxTree(3) == ["/link": [1]])
    try container.createSymbolicLink("/d/inside", to: "file")
    expectError(.cannotStore, path: "/d/inside") { try container.enqueue(message(["/d"], id: 4)) }
    expectError(.noSuchFile) { try container.outboxMessage(4) }
    expectError(.noSuchFile) { try container.outboxFiles(4, from: 0, limit: 1) }
    expectError(.noSuchFile) { try container.outboxReader(4, from: 0) }
    expectError(.invalidArgument) { try container.outboxReader(3, from: 2) }
    #expect(try container.outboxEntries().count == 3)
    try expectSound(container)
  }

  @Test func aPathCanBeSoLongAndNoLonger() throws {
    let container = try Sender().container
    let name = String(repeating: "n", count: 254)
    // 125 directories of 255 bytes each with their slashes.
    let deep = (0..<125).map { _ in "/" + name }.joined()
    try container.createDirectory(deep, withIntermediateDirectories: true)
    let fitting =
      deep + "/" + String(repeating: "f", count: PinnedFile.pathByteCountMax - deep.utf8.count - 1)
    try container.write([1], to: fitting)
    #expect(try container.enqueue(message([fitting])).fileCount == 1)
    #expect(try container.outboxTree(1) == [fitting: [1]])
    try container.write([1], to: fitting + "f")
    expectError(.cannotStore, path: fitting + "f") { try container.enqueue(message([fitting + "f"], id: 2)) }
  }

  @Test func aMessageOfTheQueueEndsInTheSameCommit() throws {
    let sender = try Sender()
    try sender.container.store.transaction { transaction in
      for arrival in [UInt64(4), 5] {
        transaction.put(.queued(arrival), [1])
        for chunk in [UInt8(0), 1] {
          transaction.put(
            CatalogKey(bytes: CatalogKey.queuedMessages(arrival).bytes + [0, 0, 0, chunk]), [2])
        }
      }
    }
    _ = try sender.container.enqueue(message([]), endingQueued: 4)
    let (queued, chunks) = try sender.container.store.withSnapshot { records in
      (try records.records(.all(.queued)).map(\.key), try records.records(.all(.queuedMessage)).count)
    }
    #expect(queued == [.queued(5)])
    #expect(chunks == 2)
    // It has one answer.
    expectError(.invalidArgument) { try sender.container.enqueue(message([], id: 2), endingQueued: 4) }
    #expect(try sender.container.outboxEntries().map(\.id) == [Identifier(repeating: 1)])
  }

  // MARK: Versions

  private static let changes: [(name: String, change: @Sendable (Container) throws -> Void)] = [
    ("written in place", { try $0.overwrite("/f", at: 20_000, testBytes(30_000, seed: 9)) }),
    ("written all over", { try $0.overwrite("/f", at: 0, testBytes(200_000, seed: 9)) }),
    ("truncated", { try $0.truncate("/f", to: 40_000) }),
    ("truncated to nothing", { try $0.truncate("/f", to: 0) }),
    ("replaced", { try $0.write(testBytes(10, seed: 9), to: "/f") }),
    ("removed", { try $0.remove("/f") }),
    ("renamed", { try $0.move("/f", to: "/g") }),
    (
      "renamed over",
      {
        try $0.write([1], to: "/g")
        try $0.move("/g", to: "/f", replacing: true)
      }
    ),
    (
      "truncated and grown",
      {
        try $0.truncate("/f", to: 10)
        try $0.overwrite("/f", at: 120_000, [1])
      }
    ),
    (
      "changed twice",
      {
        try $0.overwrite("/f", at: 3, [1])
        try $0.synchronize()
        try $0.overwrite("/f", at: 2, [1])
        try $0.synchronize()
        try $0.remove("/f")
      }
    ),
  ]

  @Test(arguments: 0..<10)
  func aVersionStaysWhateverBecomesOfTheFile(change: Int) throws {
    let sender = try Sender()
    let container = sender.container
    let contents = testBytes(100_000, seed: 1)
    try container.write(testBytes(5000, seed: 2), to: "/neighbour")
    try container.write(contents, to: "/f")
    _ = try container.enqueue(message(["/f"]))
    try Self.changes[change].change(container)
    let tree = try container.tree()
    for reopens in [false, true] {
      let container = reopens ? try sender.reopened() : container
      #expect(try container.outboxTree(1) == ["/f": contents])
      #expect(try container.tree() == tree)
      try expectSound(container)
      try container.compact()
      #expect(try container.outboxTree(1) == ["/f": contents])
      try expectSound(container)
      if reopens {
        try container.settleOutbox(1)
        try expectSound(container)
        #expect(try container.info().liveByteCount == Self.liveByteCount(of: container))
        try container.compact()
        try expectSound(container)
        #expect(try container.tree() == tree)
        try container.close()
      }
    }
    try expectSound(sender.io)
  }

  /// Bytes that the files need, when nothing is pinned.
  private static func liveByteCount(of container: Container) throws -> UInt64 {
    try container.store.withSnapshot { records in
      var sum: UInt64 = 0
      try records.scan(.all(.inode)) { key, value in
        let extents = try records.extents(key.number(at: 1)!, Inode(value))
        sum += extents.reduce(0) { $0 + UInt64($1.storedByteCount) }
      }
      return sum
    }
  }

  @Test func whatWasWrittenThroughAnOpenFileIsInTheVersion() throws {
    let sender = try Sender(.grouped)
    let container = sender.container
    let file = try container.openFile("/f", .readWrite, create: true)
    try testBytes(50_000, seed: 1).withUnsafeBytes { _ = try file.write($0, at: 0) }
    _ = try container.enqueue(message(["/f"]))
    try testBytes(50_000, seed: 2).withUnsafeBytes { _ = try file.write($0, at: 100) }
    #expect(try container.outboxTree(1) == ["/f": testBytes(50_000, seed: 1)])
    // And so it stays when the file goes while it is open, and is written to after that.
    try container.remove("/f")
    try ([9] as [UInt8]).withUnsafeBytes { _ = try file.write($0, at: 40_000) }
    try container.synchronize()
    #expect(try container.outboxTree(1) == ["/f": testBytes(50_000, seed: 1)])
    try expectSound(container)
    try file.close()
    #expect(try container.outboxTree(1) == ["/f": testBytes(50_000, seed: 1)])
    try container.settleOutbox(1)
    try container.synchronize()
    #expect(try container.info().liveByteCount == 0)
    #expect(sender.io.slabSizes.isEmpty)
    try expectSound(container)
  }

  @Test(arguments: [true, false])
  func aRemovedFileThatIsOpenOutlivesItsPin(writes: Bool) throws {
    let sender = try Sender(.grouped)
    let container = sender.container
    var contents = testBytes(80_000, seed: 1)
    try container.write(contents, to: "/f")
    let file = try container.openFile("/f", .readWrite)
    _ = try container.enqueue(message(["/f"]))
    try container.remove("/f")
    if writes {
      try ([1, 2, 3] as [UInt8]).withUnsafeBytes { _ = try file.write($0, at: 30_000) }
      contents.replaceSubrange(30_000..<30_003, with: [1, 2, 3])
      try container.synchronize()
    }
    try container.settleOutbox(1)
    try container.synchronize()
    // The file system's part of it: nothing may be given back that the handle reads.
    try container.write(testBytes(90_000, seed: 5), to: "/other")
    var read = [UInt8](repeating: 0, count: contents.count)
    #expect(try read.withUnsafeMutableBytes { try file.read(at: 0, into: $0) } == contents.count)
    #expect(read.elementsEqual(contents))
    try file.close()
    try container.remove("/other")
    try container.synchronize()
    #expect(sender.io.slabSizes.isEmpty)
    try expectSound(container)
  }

  @Test func twoPinsOfOneFileShareWhatTheyHaveInCommon() throws {
    let sender = try Sender()
    let container = sender.container
    let first = testBytes(10 * grain, seed: 1)
    try container.write(first, to: "/f")
    _ = try container.enqueue(message(["/f"], id: 1))
    try container.overwrite("/f", at: 2 * grain, testBytes(grain, seed: 2))
    let second = try container.contents(at: "/f")
    _ = try container.enqueue(message(["/f"], id: 2))
    _ = try container.enqueue(message(["/f"], id: 3))
    try container.overwrite("/f", at: 5 * grain, testBytes(grain, seed: 3))
    let segment = UInt64(SegmentLayout.storedByteCountMax)
    #expect(try container.info().liveByteCount == 12 * segment)
    try expectSound(container)
    try container.remove("/f")
    #expect(try container.info().liveByteCount == 11 * segment)
    for (number, contents, left) in [(UInt64(2), second, UInt64(11)), (1, first, 10), (3, second, 0)] {
      #expect(try container.outboxTree(number) == ["/f": contents])
      try container.settleOutbox(number)
      try container.settleOutbox(number)
      #expect(try container.info().liveByteCount == left * segment)
      try expectSound(container)
    }
    #expect(sender.io.slabSizes.isEmpty)
    try container.close()
    try expectSound(sender.io)
  }

  @Test func aFileThatIsNamedTwiceIsSentOnceAndOneWithTwoNamesTwice() throws {
    let sender = try Sender()
    let container = sender.container
    try container.createDirectory("/d")
    try container.write(testBytes(40_000, seed: 1), to: "/d/a")
    try container.createLink("/d/b", to: "/d/a")
    let entry = try container.enqueue(message(["/d/a", "/d", "/d/a"]))
    #expect(entry.fileCount == 2 && entry.byteCount == 80_000)
    try container.remove("/d")
    #expect(
      try container.outboxTree(1) == ["/d/a": testBytes(40_000, seed: 1), "/d/b": testBytes(40_000, seed: 1)])
    #expect(
      try container.info().liveByteCount == UInt64(SegmentLayout.storedByteCount(40_000)))
    try expectSound(container)
    try container.settleOutbox(1)
    #expect(try container.info().liveByteCount == 0)
    try expectSound(container)
  }

  // MARK: Reading

  @Test func readsFromAnyGrainOfAnyFile() throws {
    let container = try Sender().container
    var all: [UInt8] = []
    var starts: [(offset: UInt64, index: UInt64)] = []
    try container.createDirectory("/d")
    for (i, count) in [0, 1, grain, 0, 3 * grain + 5, 70 * grain + 1, 9, 0].enumerated() {
      let bytes = testBytes(count, seed: UInt64(i))
      try container.write(bytes, to: "/d/\(i)")
      if count > 0 { starts.append((UInt64(all.count), UInt64(i))) }
      all += bytes
    }
    // One with a hole, which stands behind the others.
    let file = try container.openFile("/d/8", .readWrite, create: true)
    _ = try ([1] as [UInt8]).withUnsafeBytes { try file.write($0, at: UInt64(4 * grain)) }
    try file.truncate(to: UInt64(6 * grain + 7))
    try file.close()
    starts.append((UInt64(all.count), 8))
    all += [UInt8](repeating: 0, count: 4 * grain) + [1] + [UInt8](repeating: 0, count: 2 * grain + 6)
    _ = try container.enqueue(message(["/d"]))
    for (offset, index) in starts {
      #expect(try container.outboxReader(1, from: offset).place.fileIndex == index)
      for position in [Int(offset), Int(offset) + grain, Int(offset) + 70 * grain] where position <= all.count
      {
        let file = starts.last { Int($0.offset) <= position }!
        guard (position - Int(file.offset)) % grain == 0 else {
          expectError(.invalidArgument) { try container.outboxReader(1, from: UInt64(position)) }
          continue
        }
        #expect(
          try container.readOutbox(1, from: UInt64(position)) == Array(all[position...]), "from \(position)")
      }
      guard offset > 0 else { continue }
      expectError(.invalidArgument) { try container.outboxReader(1, from: offset + 1) }
    }
    let end = try container.outboxReader(1, from: UInt64(all.count))
    #expect(end.place.fileIndex == 9)
    #expect(try end.next().isLast)
    expectError(.invalidArgument) { try container.outboxReader(1, from: UInt64(all.count) + 1) }
  }

  @Test func framesHaveStoredSegmentsAsTheyAreAndNoHoles() throws {
    let container = try Sender().container
    try container.write(testBytes(100 * grain + 5, seed: 1), to: "/a")
    let file = try container.openFile("/hole", .readWrite, create: true)
    try file.truncate(to: 1 << 50)
    _ = try testBytes(10, seed: 2).withUnsafeBytes { try file.write($0, at: 1 << 49) }
    try file.close()
    let entry = try container.enqueue(message(["/a", "/hole"]))
    #expect(entry.byteCount == UInt64(100 * grain + 5) + 1 << 50)
    #expect(entry.storedByteCount == UInt64(101 * grain + 5 + 102 * TestFrame.overhead))
    #expect(try container.outboxEntries() == [entry])
    let reader = try container.outboxReader(1, from: 0)
    typealias Run = TestFrame.Run
    var frames: [TestFrame] = []
    while true {
      let (frame, isLast) = try reader.next()
      frames.append(frame)
      if isLast { break }
    }
    #expect(frames.count == 2)
    #expect(frames[0].end == UInt64(64 * grain))
    #expect(frames[0].runs == [Run(file: 0, start: 0, count: 64, lastLength: UInt32(grain))])
    #expect(frames[1].end == UInt64(100 * grain + 5) + 1 << 50)
    #expect(
      frames[1].runs == [
        Run(file: 0, start: 64, count: 37, lastLength: 5),
        Run(file: 1, start: 1 << 49 / UInt64(grain), count: 1, lastLength: UInt32(grain)),
      ])
    // What lies in the slab is what is sent.
    let stored = try container.store.withSnapshot { records in
      let found = try records.existing(StorePath("/a"))
      let extents = try records.checkedExtents(of: found, at: "/a")
      return try extents.flatMap { extent in
        var bytes = [UInt8](repeating: 0, count: extent.storedByteCount)
        _ = try bytes.withUnsafeMutableBytes {
          try container.store.slabs.read(extent.slab, extent.offset, into: $0)
        }
        return bytes
      }
    }
    let isStored = frames[0].contents + frames[1].contents.dropLast(grain + TestFrame.overhead) == stored
    #expect(isStored)
  }

  @Test func aFrameHasSoManyFilesAndSegmentsAndNotOneMore() throws {
    let container = try Sender().container
    try container.createDirectory("/d")
    for i in 0..<600 { try container.write(testBytes(i % 7, seed: UInt64(i)), to: "/d/\(i)") }
    _ = try container.enqueue(message(["/d"]))
    let reader = try container.outboxReader(1, from: 0)
    var counts: [Int] = []
    while true {
      let (frame, isLast) = try reader.next()
      counts.append(frame.runs.count)
      if isLast { break }
    }
    // Each file but the empty ones has a segment.
    #expect(counts == [256, 256, 514 - 512])
    #expect(try container.readOutbox(1).count == (0..<600).reduce(0) { $0 + $1 % 7 })
  }

  @Test func aReaderMeetsTheEndOfItsMessage() throws {
    let container = try Sender().container
    try container.write(testBytes(3 << 20, seed: 1), to: "/f")
    _ = try container.enqueue(message(["/f"]))
    let reader = try container.outboxReader(1, from: 0)
    #expect(try reader.next().frame.end == 1 << 20)
    try reader.check(at: 1 << 20)
    try container.settleOutbox(1)
    expectError(.noSuchFile) { try reader.next() }
    expectError(.noSuchFile) { try reader.check(at: 1 << 20) }
  }

  @Test func aFileWhoseLastBytesCannotBeStoredIsNotSent() throws {
    let sender = try Sender()
    try sender.container.write(testBytes(60_000, seed: 1), to: "/f")
    try sender.container.write([1], to: "/whole")
    try sender.container.close()
    let slab = try sender.io.open("slab/00000000", .readWrite)
    try [UInt8](repeating: 0xff, count: 3).withUnsafeBytes { try slab.write($0, at: 20_000) }
    let container = try Container.open(io: sender.io, credential: testCredential(), options: testOptions())
    let file = try container.openFile("/f", .readWrite)
    // Part of the damaged grain: what is left of it cannot be kept.
    try [UInt8](repeating: 9, count: 10).withUnsafeBytes { try file.write($0, at: 17_000) }
    expectError(.fileDamaged, path: "/f") { try container.enqueue(message(["/f"])) }
    #expect(try container.enqueue(message(["/whole"])).fileCount == 1)
    try? file.close()
    try container.close()
  }

  @Test func damageNamesTheOriginal() throws {
    let sender = try Sender()
    try sender.container.write(testBytes(10, seed: 1), to: "/whole")
    try sender.container.write(testBytes(30_000, seed: 1), to: "/Documents")
    _ = try sender.container.enqueue(message(["/whole", "/Documents"]))
    try sender.container.move("/Documents", to: "/elsewhere")
    try sender.container.remove("/elsewhere")
    try sender.container.close()
    let container = try Container.open(
      io: sender.io.damaged(), credential: testCredential(), mode: .readOnly, options: testOptions())
    let reader = try container.outboxReader(1, from: 0)
    // The reader opens nothing; it is asked to when the receiver could not.
    #expect(throws: (any Error).self) { try container.readOutbox(1) }
    try reader.check(at: 0)
    try reader.check(at: 10)
    expectError(.fileDamaged, path: "/Documents") { try reader.check(at: 10 + UInt64(grain)) }
    let findings = try container.verify().findings
    #expect(findings.map(\.kind) == [.segmentDamaged] && findings.first?.path == "/Documents", "\(findings)")
  }

  // MARK: Space

  @Test func compactionLeavesSlabsWithPinnedRunsAloneAndTakesThemAfterwards() throws {
    let sender = try Sender()
    let container = sender.container
    for i in 0..<40 { try container.write(testBytes(20_000, seed: UInt64(i)), to: "/\(i)") }
    _ = try container.enqueue(message(["/1"]))
    for i in 0..<38 { try container.remove("/\(i)") }
    try container.synchronize()
    #expect(try container.compact().copiedByteCount == 0)
    #expect(try container.outboxTree(1) == ["/1": testBytes(20_000, seed: 1)])
    try expectSound(container)
    try container.settleOutbox(1)
    #expect(try container.compact().copiedByteCount > 0)
    #expect(try container.contents(at: "/39") == testBytes(20_000, seed: 39))
    try expectSound(container)
  }

  /// A run that is pinned while a compaction is under way stays where it is.
  @Test func aVersionThatIsPinnedDuringACompactionIsNotMoved() throws {
    let sender = try Sender()
    let container = sender.container
    for i in 0..<200 { try container.write(testBytes(30_000, seed: UInt64(i)), to: "/\(i)") }
    for i in 0..<200 where i % 2 == 0 { try container.remove("/\(i)") }
    try container.synchronize()
    let pinned = Guarded(false)
    try container.compact(
      control: BulkControl(progress: { _ in
        guard !pinned.withLock({ $0 }) else { return }
        pinned.withLock { $0 = true }
        _ = try? container.enqueue(message(["/1", "/199"]))
      }))
    #expect(try container.outboxEntries().count == 1)
    try expectSound(container)
    for i in [1, 199] { try container.write([1], to: "/\(i)") }
    #expect(
      try container.outboxTree(1) == ["/1": testBytes(30_000, seed: 1), "/199": testBytes(30_000, seed: 199)])
    try expectSound(container)
    try container.settleOutbox(1)
    #expect(try container.info().liveByteCount == Self.liveByteCount(of: container))
    try expectSound(container)
  }

  @Test func verifyTellsWhatDoesNotAddUp() throws {
    let mistakes: [(String, @Sendable (Transaction) throws -> Void)] = [
      ("no message", { $0.delete(.outbox(1)) }),
      ("no attachment", { $0.delete(.pinned(Pin(number: 1, attachment: 0))) }),
      (
        "no pin of the file",
        { transaction in
          for (key, _) in try transaction.records(.all(.pinOfFile)) { transaction.delete(key) }
        }
      ),
      (
        "an extent too few",
        { transaction in
          for (key, _) in try transaction.records(.all(.pinnedExtent)) { transaction.delete(key) }
        }
      ),
      (
        "a chunk in the wrong place",
        { transaction in
          transaction.delete(.outboxMessage(1, chunk: 0))
          transaction.put(.outboxMessage(1, chunk: 1), [1])
        }
      ),
      (
        "a number that is used again",
        { transaction in
          transaction.put(.outboxState, OutboxState().encoded)
        }
      ),
      (
        "a run of another file",
        { transaction in
          let pin = Pin(number: 1, attachment: 0)
          var pinned = try transaction.pinnedFile(pin)
          pinned.inode.firstExtent = try transaction.existing(StorePath("/other")).inode.firstExtent
          transaction.put(.pinned(pin), pinned.encoded)
        }
      ),
      ("other stored bytes", { try $0.edit(.outbox(1)) { $0[48] ^= 1 } }),
      ("no receiver", { try $0.edit(.outbox(1)) { $0.removeLast($0.count - 56) } }),
      (
        "a receiver that is too long",
        { try $0.edit(.outbox(1)) { $0 += testBytes(256, seed: 1).map { $0 % 26 + 97 } } }
      ),
      ("a message with number 0", { $0.put(.outbox(0), try $0.value(.outbox(1))!) }),
      (
        "a version of message 0",
        {
          $0.put(
            .pinned(Pin(number: 0, attachment: 0)), try $0.value(.pinned(Pin(number: 1, attachment: 0)))!)
        }
      ),
      ("an empty part", { $0.put(.outboxMessage(1, chunk: 1), []) }),
      ("a part that is too short", { $0.put(.outboxMessage(1, chunk: 1), [1]) }),
      (
        "a message that is too long",
        { transaction in
          for chunk in 0..<65 as Range<UInt32> {
            transaction.put(.outboxMessage(1, chunk: chunk), testBytes(32_768, seed: 1))
          }
        }
      ),
      (
        "a pin with a value",
        { transaction in
          for (key, _) in try transaction.records(.all(.pinOfFile)) { transaction.put(key, [1]) }
        }
      ),
      ("a state that is too short", { $0.put(.outboxState, [1]) }),
      (
        "nothing of a receiver",
        { transaction in
          for (key, _) in try transaction.records(.all(.outboxReceiver)) { transaction.delete(key) }
        }
      ),
      (
        "a receiver that has what was never sent",
        { transaction in
          for (key, _) in try transaction.records(.all(.outboxReceiver)) {
            try transaction.edit(key) { $0[32] = 200 }
          }
        }
      ),
      (
        "a receiver without a name",
        { transaction in
          for (_, value) in try transaction.records(.all(.outboxReceiver)) {
            transaction.put(.all(.outboxReceiver), value)
          }
        }
      ),
      (
        "a second state",
        { $0.put(CatalogKey(bytes: CatalogKey.outboxState.bytes + [0]), try $0.value(.outboxState)!) }
      ),
      (
        "a next number of 0",
        { try $0.edit(.outboxState) { $0.replaceSubrange(0..., with: [UInt8](repeating: 0, count: 8)) } }
      ),
      (
        "a file that was never there",
        { transaction in
          let pin = Pin(number: 1, attachment: 0)
          var pinned = try transaction.pinnedFile(pin)
          transaction.delete(.pin(ofFile: pinned.file, pin))
          pinned.file = 1 << 40
          transaction.put(.pinned(pin), pinned.encoded)
          transaction.put(.pin(ofFile: pinned.file, pin), [])
        }
      ),
    ]
    for (name, mistake) in mistakes {
      let sender = try Sender()
      let container = sender.container
      try container.write(testBytes(1000, seed: 3), to: "/other")
      try container.write(testBytes(60_000, seed: 1), to: "/f")
      try container.overwrite("/f", at: grain, [1])
      _ = try container.enqueue(message(["/f"]))
      try container.remove("/f")
      try expectSound(container)
      try container.store.transaction(mistake)
      #expect(try container.verify().hasDamage, "\(name)")
    }
  }

  @Test func manySmallFilesTakeLittleTimeAndSpace() throws {
    let sender = try Sender(.grouped)
    let container = sender.container
    let fileCount = TestEffort.count(4_000, long: 20_000)
    let native = TemporaryDirectory()
    for i in 0..<fileCount { writeNative(native.path + "/\(i)", [UInt8(truncatingIfNeeded: i)]) }
    try container.importItem(at: native.path, to: "/many")
    try container.synchronize()
    let before = sender.io.log.count
    let entry = try container.enqueue(message(["/many"]))
    #expect(entry.fileCount == UInt64(fileCount) && entry.byteCount == UInt64(fileCount))
    let written = sender.io.log[before...].reduce(0) { sum, operation in
      // A checkpoint may be under way beside it.
      if case .write(let file, _, let bytes) = operation, file.hasPrefix("journal") {
        sum + bytes.count
      } else {
        sum
      }
    }
    #expect(written < fileCount * 250, "\(written) bytes")
    #expect(try container.readOutbox(1).count == fileCount)
    try container.remove("/many")
    #expect(try container.readOutbox(1).count == fileCount)
    try expectSound(container)
    try container.settleOutbox(1)
    try container.synchronize()
    #expect(try container.info().liveByteCount == 0)
    try expectSound(container)
    try container.close()
    #expect(sender.io.slabSizes.isEmpty)
  }
}
