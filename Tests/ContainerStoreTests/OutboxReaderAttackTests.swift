import Dispatch
import EncryptedFile
import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

@testable import ContainerStore

private let grain = SegmentLayout.plaintextByteCountMax
private let overhead = SegmentLayout.overheadByteCount

private func message(_ attachments: [String], id: UInt8 = 1) -> OutgoingMessage {
  OutgoingMessage(
    id: Identifier(repeating: id), receiver: "com.example.receiver", message: [id], attachments: attachments)
}

/// A stored segment as a receiver gets it, with the key that came with it.
private struct KeptSegment: Sendable {
  var file: Int
  var grain: Int
  var key: [UInt8]
  var stored: [UInt8]
  /// Where the stored bytes begin in the contents of their frame.
  var place: Int
  /// FILE-FORMAT.md, "Associated data".
  var associatedData: [UInt8]

  init(file: Int, grain: Int, key: [UInt8], stored: [UInt8], place: Int) {
    self.file = file
    self.grain = grain
    self.key = key
    self.stored = stored
    self.place = place
    func bytes(_ count: Int) -> [UInt8] {
      withUnsafeBytes(of: UInt32(count).littleEndian) { Array($0) }
    }
    associatedData =
      Array("OD1-segment".utf8) + [0, 0, 0, 0, 0] + bytes(stored.count - TestFrame.overhead)
      + bytes(TestFrame.grain)
  }

  func opened(with key: [UInt8], by cipher: SecretStreamCipher) -> [UInt8]? {
    try? cipher.open(stored, key: key, ad: associatedData)
  }
}

extension TestFrame {
  fileprivate var segments: [KeptSegment] {
    var segments: [KeptSegment] = []
    var place = 0
    for run in runs {
      for index in 0..<Int(run.count) {
        let length = index + 1 == Int(run.count) ? Int(run.lastLength) : Self.grain
        let next = place + length + Self.overhead
        let key = 32 * segments.count
        segments.append(
          KeptSegment(
            file: Int(run.file), grain: Int(run.start) + index, key: Array(keys[key..<(key + 32)]),
            stored: Array(contents[place..<next]), place: place))
        place = next
      }
    }
    return segments
  }
}

extension Container {
  /// All frames of a message.
  fileprivate func frames(ofMessage number: UInt64) throws -> [TestFrame] {
    let reader = try outboxReader(number, from: 0)
    var frames: [TestFrame] = []
    while true {
      let (frame, isLast) = try reader.next()
      frames.append(frame)
      if isLast { return frames }
    }
  }

  /// Everything that the receiver of a message can keep. A frame must have nothing beside its segments and
  /// exactly their keys.
  fileprivate func segments(ofMessage number: UInt64) throws -> [KeptSegment] {
    try frames(ofMessage: number).flatMap { frame in
      let segments = frame.segments
      guard frame.keys.count == 32 * segments.count,
        frame.contents.count == segments.reduce(0, { $0 + $1.stored.count })
      else { throw TestFailure("a frame has more than its segments and their keys") }
      return segments
    }
  }

  /// Writes a few bytes to each second grain, so that each has a run of its own between two holes.
  fileprivate func writeScattered(_ path: String, runCount: Int) throws {
    let file = try openFile(path, .readWrite, create: true)
    for i in 0..<runCount {
      try testBytes(100, seed: UInt64(1000 + i)).withUnsafeBytes {
        try file.write($0, at: UInt64(2 * i * grain))
      }
    }
    try file.close()
  }

  /// Bytes that the files need, when nothing is pinned.
  fileprivate func neededByteCount() throws -> UInt64 {
    try store.withSnapshot { records in
      var sum: UInt64 = 0
      try records.scan(.all(.inode)) { key, value in
        let extents = try records.extents(key.number(at: 1)!, Inode(value))
        sum += extents.reduce(0) { $0 + UInt64($1.storedByteCount) }
      }
      return sum
    }
  }
}

/// The contents of a message, put together from its frames by the page DELIVERY-PROTOCOL.md alone.
private struct Assembly {
  let sizes: [Int]
  let begins: [Int]
  private(set) var bytes: [UInt8]
  private(set) var end = 0

  init(_ files: [OutboxFile]) {
    sizes = files.map { Int($0.size) }
    var begins: [Int] = []
    var begin = 0
    for size in sizes {
      begins.append(begin)
      begin += size
    }
    self.begins = begins
    bytes = [UInt8](repeating: 0, count: begin)
  }

  /// Of each file.
  var contents: [[UInt8]] { zip(begins, sizes).map { Array(bytes[$0..<($0 + $1)]) } }

  /// Whether a frame with this block may come next.
  func allows(_ frame: TestFrame) -> Bool {
    guard frame.end > UInt64(end), frame.end <= UInt64(bytes.count) else { return false }
    let frameEnd = Int(frame.end)
    let isBoundary = zip(begins, sizes).contains { begin, size in
      guard begin < frameEnd, frameEnd <= begin + size else { return false }
      return frameEnd == begin + size || (frameEnd - begin) % grain == 0
    }
    guard isBoundary else { return false }
    var (lastFile, nextGrain) = (0, 0)
    var (segmentCount, byteCount) = (0, 0)
    for run in frame.runs {
      guard Int(run.file) < sizes.count, run.start < 1 << 48, run.count >= 1, run.count <= 256,
        run.lastLength >= 1, run.lastLength <= UInt32(grain)
      else { return false }
      let (file, first, count) = (Int(run.file), Int(run.start), Int(run.count))
      let runBegin = first * grain
      let runEnd = runBegin + (count - 1) * grain + Int(run.lastLength)
      guard file > lastFile || (file == lastFile && first >= nextGrain) else { return false }
      guard runEnd <= sizes[file], begins[file] + runBegin >= end, begins[file] + runEnd <= frameEnd else {
        return false
      }
      (lastFile, nextGrain) = (file, first + count)
      segmentCount += count
      byteCount += runEnd - runBegin + count * overhead
    }
    return segmentCount <= 256 && byteCount == frame.contents.count && frame.keys.count == 32 * segmentCount
  }

  mutating func add(_ frame: TestFrame) throws {
    guard allows(frame) else { throw TestFailure("a frame that cannot come next, after byte \(end)") }
    for (file, begin, plaintext) in try frame.opened() {
      let place = begins[file] + begin
      bytes.withUnsafeMutableBytes { bytes in
        UnsafeMutableRawBufferPointer(rebasing: bytes[place..<(place + plaintext.count)])
          .copyBytes(from: plaintext)
      }
    }
    end = Int(frame.end)
  }
}

/// A message in an outbox that nobody has changed the files of yet, and how it is offered.
private struct Offer: Sendable {
  let entry: OutboxEntry
  let files: [OutboxFile]
  /// Of each file.
  let contents: [[UInt8]]

  init(_ entry: OutboxEntry, in container: Container) throws {
    self.entry = entry
    files = try container.outboxFiles(entry.number, from: 0, limit: .max)
    contents = try files.map { try container.contents(at: String(decoding: $0.path, as: UTF8.self)) }
  }

  /// Begins an arrival of the message under a number and an id of its own.
  func begin(
    in container: Container, as number: UInt64, stagingInterval: UInt64 = 16 << 20
  ) throws -> Arrival {
    let message = ArrivingMessage(
      id: Identifier(testBytes(Identifier.byteCount, seed: number)), sender: Parcel.sender,
      incarnation: Parcel.incarnation, number: number, message: [1], fileCount: entry.fileCount,
      byteCount: entry.byteCount, storedByteCount: entry.storedByteCount)
    let arrival = try container.beginArrival(message, replacing: false, stagingInterval: stagingInterval)
    try arrival.add(
      files.map {
        ArrivingFile(path: $0.path, size: $0.size, modified: $0.modified, permissions: $0.permissions)
      })
    return arrival
  }

  /// What is wrong with the files that arrived.
  func complaint(
    about queued: QueuedMessage, expecting contents: [[UInt8]], in container: Container
  ) throws -> String? {
    guard queued.files.count == files.count, let directory = queued.directory else {
      return "\(queued.files.count) files"
    }
    for (index, file) in queued.files.enumerated() {
      let path = String(decoding: files[index].path, as: UTF8.self)
      guard file.path == directory + path else { return "\(file.path) is not \(path)" }
      guard areSame(try container.contents(at: file.path), contents[index]) else {
        return "\(path) arrived otherwise"
      }
    }
    return nil
  }
}

/// Changes the files of a directory at random.
private struct Meddler {
  let container: Container
  var random: SplitMix64
  var paths: [String]
  /// A file that stays open whatever becomes of its name.
  var handle: OpenFile?
  var nameCount = 0

  init(_ container: Container, seed: UInt64, paths: [String]) {
    self.container = container
    random = SplitMix64(seed: seed)
    self.paths = paths
  }

  private mutating func bytes() -> [UInt8] {
    let count = 1 + random.below(5 * grain)
    return testBytes(count, seed: random.next())
  }

  private mutating func newPath() -> String {
    nameCount += 1
    return "/d/new\(nameCount)"
  }

  mutating func change() throws {
    if let handle { try bytes().withUnsafeBytes { try handle.write($0, at: UInt64(3 * grain)) } }
    guard paths.count > 1 else {
      let path = newPath()
      try container.write(bytes(), to: path)
      return paths.append(path)
    }
    let index = random.below(paths.count)
    let path = paths[index]
    switch random.below(9) {
    case 0: try container.overwrite(path, at: random.below(150 * grain), bytes())
    case 1: try container.truncate(path, to: random.below(100 * grain))
    case 2: try container.truncate(path, to: 150 * grain + random.below(50 * grain))
    case 3:
      let new = newPath()
      try container.move(path, to: new)
      paths[index] = new
    case 4:
      let other = paths[(index + 1) % paths.count]
      try container.move(path, to: other, replacing: true)
      paths.remove(at: index)
    case 5:
      try container.remove(path)
      paths.remove(at: index)
    case 6: try container.write(bytes(), to: path)
    case 7:
      try handle?.close()
      handle = try container.openFile(path, .readWrite)
    default:
      try container.synchronize()
      try container.compact()
    }
  }
}

/// What a sender's container gives away, and what its reader meets while files change: a receiver gets the
/// versions of the time of the enqueue, and can open nothing else.
struct OutboxReaderAttackTests {
  // MARK: Keys that are kept

  @Test func keysThatAReceiverKeepsOpenWhatItWasSentAndNothingElse() throws {
    let container = try Sender().container
    let contents = testBytes(73 * grain, seed: 1)
    try container.write(contents, to: "/f")
    // Another file with the same contents at the same grains: only the keys differ.
    try container.write(Array(contents[..<(5 * grain)]), to: "/same")
    try container.write([1], to: "/small")
    _ = try container.enqueue(message(["/f"], id: 1))
    try container.truncate("/f", to: 70 * grain + 5)
    try container.overwrite("/f", at: 2 * grain, testBytes(2 * grain, seed: 2))
    // The same bytes once more are another segment.
    try container.overwrite("/f", at: 7 * grain, Array(contents[(7 * grain)..<(8 * grain)]))
    _ = try container.enqueue(message(["/f"], id: 2))
    let version = try container.contents(at: "/f")
    try container.overwrite("/f", at: 3 * grain, testBytes(grain, seed: 3))
    try container.overwrite("/f", at: 40 * grain + 100, testBytes(10, seed: 4))
    try container.overwrite("/f", at: 70 * grain + 5, testBytes(2 * grain, seed: 5))
    _ = try container.enqueue(message(["/f"], id: 3))
    _ = try container.enqueue(message(["/same", "/small"], id: 4))

    // The receiver has the second message. What the others have is what lies in the sender's slabs.
    let sent = try container.segments(ofMessage: 2)
    #expect(sent.map(\.grain) == Array(0...70))
    let cipher = SecretStreamCipher()
    for segment in sent {
      let opened = try #require(segment.opened(with: segment.key, by: cipher))
      let begin = segment.grain * grain
      #expect(areSame(opened, Array(version[begin..<min(begin + grain, version.count)])))
    }
    var foreign: [KeptSegment] = []
    for (number, grainCount, rewritten) in [
      (UInt64(1), 73, [2, 3, 7, 70, 71, 72]), (3, 73, [3, 40, 70, 71, 72]),
    ] {
      let stored = try container.segments(ofMessage: number)
      #expect(stored.map(\.grain) == Array(0..<grainCount))
      // Of a grain that was not rewritten, the two versions have one segment, and it has one key.
      var others: [Int] = []
      for segment in stored {
        if segment.grain < sent.count, areSame(segment.stored, sent[segment.grain].stored) {
          #expect(segment.key == sent[segment.grain].key)
        } else {
          others.append(segment.grain)
          foreign.append(segment)
        }
      }
      #expect(others == rewritten, "message \(number)")
    }
    foreign += try container.segments(ofMessage: 4)
    #expect(foreign.count == 6 + 5 + 6)
    for segment in foreign {
      let isGood = segment.opened(with: segment.key, by: cipher) != nil
      #expect(isGood, "the key of another message does not open its own segment")
    }

    var opened: [String] = []
    for (number, kept) in sent.enumerated() {
      for segment in foreign where segment.opened(with: kept.key, by: cipher) != nil {
        opened.append("key \(number) opens grain \(segment.grain) of something else")
      }
      // A receiver that continued somewhere was not sent what came before: no key opens another segment.
      for (other, segment) in sent.enumerated()
      where other != number && segment.opened(with: kept.key, by: cipher) != nil {
        opened.append("key \(number) opens segment \(other)")
      }
    }
    #expect(opened == [])
    try expectSound(container)
  }

  @Test func aReaderThatContinuesGivesOnlyTheKeysOfWhatItReads() throws {
    let container = try Sender().container
    try container.write(testBytes(40 * grain, seed: 1), to: "/f")
    try container.write(testBytes(grain + 1, seed: 2), to: "/g")
    _ = try container.enqueue(message(["/f", "/g"]))
    let all = try container.segments(ofMessage: 1)
    for position in [13, 39, 40] {
      let (frame, isLast) = try container.outboxReader(1, from: UInt64(position * grain)).next()
      #expect(isLast)
      let rest = Array(all[position...])
      #expect(frame.segments.map(\.key) == rest.map(\.key))
      #expect(frame.segments.map(\.grain) == rest.map(\.grain))
      #expect(frame.keys.count == 32 * rest.count)
    }
  }

  // MARK: Between two frames

  private static let changes: [(name: String, change: @Sendable (Container, Int) throws -> Void)] = [
    ("nothing", { _, _ in }),
    (
      "rewritten",
      { container, round in
        try container.overwrite("/long", at: 0, testBytes(70 * grain + 7, seed: UInt64(50 + round)))
        try container.overwrite("/scattered", at: 0, testBytes(20 * grain, seed: UInt64(60 + round)))
      }
    ),
    (
      "rewritten a little before and behind the reader",
      { container, round in
        let place = 64 * (round + 1) * grain
        try container.overwrite("/long", at: 60 * grain, testBytes(8 * grain, seed: UInt64(50 + round)))
        try container.overwrite("/scattered", at: place, testBytes(30 * grain, seed: UInt64(60 + round)))
      }
    ),
    (
      "truncated and grown",
      { container, round in
        try container.truncate("/long", to: 10 * grain + round)
        try container.truncate("/scattered", to: round * grain)
        try container.overwrite("/long", at: 90 * grain, [1])
      }
    ),
    (
      "replaced",
      { container, round in
        try container.write(testBytes(grain, seed: UInt64(50 + round)), to: "/long")
        try container.write(testBytes(3 * grain, seed: UInt64(60 + round)), to: "/new")
        try container.move("/new", to: "/scattered", replacing: true)
      }
    ),
    (
      "removed",
      { container, round in
        if round == 0 { try container.remove("/long") }
        if round == 1 { try container.remove("/scattered") }
      }
    ),
  ]

  /// Leaves a slab with dead ranges behind, and dead ranges beside what is read, and has the container
  /// compacted. Returns the bytes that were moved.
  private func churn(_ container: Container, _ round: Int) throws -> UInt64 {
    let slabs = container.store.slabs
    let others = Set(slabs.fills().map(\.number))
    slabs.retire(others)
    do {
      // No slab that has something now is written to.
      defer { slabs.restore(others) }
      for i in 0..<20 { try container.write(testBytes(20_000, seed: UInt64(i)), to: "/far\(round)-\(i)") }
    }
    for i in stride(from: 0, to: 20, by: 2) { try container.remove("/far\(round)-\(i)") }
    if try container.attributes(at: "/near\(round)") != nil { try container.remove("/near\(round)") }
    try container.synchronize()
    return try container.compact().copiedByteCount
  }

  /// Removes everything; then nothing may be left in the slabs.
  private func expectSpaceGivenBack(
    by sender: Sender, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let container = sender.container
    for file in try container.list("/") { try container.remove("/" + file.path) }
    try expectSound(container, sourceLocation: sourceLocation)
    #expect(try container.info().liveByteCount == 0, sourceLocation: sourceLocation)
    try container.close()
    #expect(sender.io.slabSizes.isEmpty, sourceLocation: sourceLocation)
    let report = try Container.verify(io: sender.io, credential: testCredential(), options: testOptions())
    #expect(report.findings == [], sourceLocation: sourceLocation)
  }

  @Test(arguments: 0..<6)
  func slabsAreCompactedBetweenTwoFramesAndTheVersionStays(number: Int) throws {
    let (name, change) = Self.changes[number]
    let sender = try Sender()
    let container = sender.container
    for i in 0..<2 { try container.write(testBytes(200_000, seed: UInt64(i)), to: "/near\(i)") }
    try container.write(testBytes(70 * grain + 7, seed: 10), to: "/long")
    try container.write(testBytes(200_000, seed: 2), to: "/near2")
    // More runs than a reader looks up at once.
    try container.writeScattered("/scattered", runCount: 280)
    try container.write(testBytes(200_000, seed: 3), to: "/near3")
    let offer = try Offer(container.enqueue(message(["/long", "/scattered"])), in: container)
    let reader = try container.outboxReader(1, from: 0)
    var assembly = Assembly(offer.files)
    var storedByteCount = 0
    var moved: [UInt64] = []
    while true {
      let (frame, isLast) = try reader.next()
      try assembly.add(frame)
      storedByteCount += frame.contents.count
      if isLast { break }
      try change(container, moved.count)
      moved.append(try churn(container, moved.count))
    }
    #expect(moved.count >= 5 && moved.allSatisfy { $0 > 0 }, "\(name): \(moved)")
    let hasHoles = sender.io.log.contains { operation in
      if case .punch = operation { true } else { false }
    }
    #expect(hasHoles, "\(name)")
    for (arrived, expected) in zip(assembly.contents, offer.contents) {
      let isSame = areSame(arrived, expected)
      #expect(isSame, "\(name)")
    }
    #expect(UInt64(storedByteCount) == offer.entry.storedByteCount, "\(name)")
    try expectSound(container)
    try container.settleOutbox(1)
    try expectSound(container)
    #expect(try container.info().liveByteCount == container.neededByteCount(), "\(name)")
    try expectSpaceGivenBack(by: sender)
  }

  /// Two messages have one version of a file, and two a later one. One of the four is read while the others
  /// go.
  @Test(arguments: [UInt64(1), 2, 3, 4])
  func messagesWithTheSameFileAreSettledBetweenTwoFrames(number: UInt64) throws {
    let sender = try Sender()
    let container = sender.container
    try container.write(testBytes(200 * grain, seed: 1), to: "/f")
    for id in [UInt8(1), 2] { _ = try container.enqueue(message(["/f"], id: id)) }
    let first = try container.contents(at: "/f")
    // The last frame and the second one differ.
    try container.overwrite("/f", at: 100 * grain, testBytes(10 * grain, seed: 2))
    try container.overwrite("/f", at: 195 * grain, testBytes(5 * grain, seed: 3))
    for id in [UInt8(3), 4] { _ = try container.enqueue(message(["/f"], id: id)) }
    let second = try container.contents(at: "/f")
    var assembly = Assembly(try container.outboxFiles(number, from: 0, limit: 1))
    let reader = try container.outboxReader(number, from: 0)
    var others = ([1, 2, 3, 4] as [UInt64]).filter { $0 != number }
    var frameCount = 0
    while true {
      let (frame, isLast) = try reader.next()
      try assembly.add(frame)
      frameCount += 1
      if isLast { break }
      if frameCount == 1 { try container.remove("/f") }
      if !others.isEmpty { try container.settleOutbox(others.removeFirst()) }
      try container.synchronize()
      try container.compact()
    }
    #expect(frameCount == 4 && others == [])
    let isSame = areSame(assembly.bytes, number < 3 ? first : second)
    #expect(isSame)
    // What only the others had was given back meanwhile.
    #expect(try container.info().liveByteCount == UInt64(200 * SegmentLayout.storedByteCountMax))
    try expectSound(container)
    try container.settleOutbox(number)
    try expectSpaceGivenBack(by: sender)
  }

  // MARK: Another thread

  @Test(arguments: 0..<3)
  func whatAnotherThreadDoesToTheFilesMeanwhileDoesNotMatter(seed: Int) throws {
    let sender = try Sender(.grouped)
    let container = sender.container
    let receiver = try Fixture(durability: .grouped).container
    for number in UInt64(1)...2 {
      if try container.attributes(at: "/d") != nil { try container.remove("/d") }
      try container.createDirectory("/d")
      try container.write(testBytes(150 * grain + 11, seed: 10 + number), to: "/d/long")
      try container.write([UInt8(number)], to: "/d/small")
      try container.write(testBytes(20 * grain, seed: 20 + number), to: "/d/middle")
      try container.writeScattered("/d/scattered", runCount: 10)
      let offer = try Offer(container.enqueue(message(["/d"], id: UInt8(number))), in: container)
      #expect(offer.files.count == 4)
      let changed = DispatchSemaphore(value: 0)
      let meddling = SplitMix64.testSeed &+ 100 * UInt64(seed) &+ number
      let complaints = inThreads(2) { thread in
        guard thread == 0 else {
          // The reader goes on, even when a change fails.
          defer { for _ in 0..<1000 { changed.signal() } }
          var meddler = Meddler(
            container, seed: meddling, paths: ["/d/long", "/d/small", "/d/middle", "/d/scattered"])
          for _ in 0..<60 {
            try meddler.change()
            changed.signal()
          }
          try meddler.handle?.close()
          return nil
        }
        let reader = try container.outboxReader(number, from: 0)
        let arrival = try offer.begin(in: receiver, as: number)
        while true {
          // At least one change comes before each frame, as long as there are changes.
          changed.wait()
          let (frame, isLast) = try reader.next(contentsByteCount: 4 * SegmentLayout.storedByteCountMax)
          try arrival.append(frame)
          if isLast { break }
        }
        return try offer.complaint(about: arrival.commit(), expecting: offer.contents, in: receiver)
      }
      #expect(complaints == [], "seed \(meddling)")
      try expectSound(container)
      #expect(try container.info().liveByteCount >= offer.entry.storedByteCount)
      // The version is still there, from the first byte on.
      let isSame = areSame(try container.readOutbox(number), offer.contents.flatMap { $0 })
      #expect(isSame, "seed \(meddling)")
      try container.settleOutbox(number)
      try expectSound(container)
      #expect(try container.info().liveByteCount == container.neededByteCount(), "seed \(meddling)")
    }
    try expectSound(receiver)
    try expectSpaceGivenBack(by: sender)
  }

  // MARK: Damage on the way

  /// Two frames of a file with holes before and behind its bytes, one of a single byte, and one that does not
  /// fit into the first frame.
  private func offerToDamage() throws -> (offer: Offer, frames: [TestFrame]) {
    let container = try Sender().container
    let file = try container.openFile("/holes", .readWrite, create: true)
    try testBytes(grain, seed: 1).withUnsafeBytes { try file.write($0, at: UInt64(grain)) }
    try file.truncate(to: UInt64(4 * grain + 7))
    try file.close()
    try container.write([42], to: "/one")
    try container.write(testBytes(66 * grain + 9, seed: 2), to: "/two")
    let offer = try Offer(container.enqueue(message(["/holes", "/one", "/two"])), in: container)
    let frames = try container.frames(ofMessage: 1)
    #expect(frames.map { $0.segments.count } == [64, 5])
    #expect(frames[0].runs.map(\.file) == [0, 1, 2])
    return (offer, frames)
  }

  /// What an arrival finds in a frame, all of which is handled when this returns; nil when it is whole.
  private func damage(in frame: TestFrame, found arrival: Arrival) throws -> DamagedContents? {
    do {
      try arrival.append(frame)
      try arrival.finish()
      return nil
    } catch let error as DamagedContents {
      return error
    }
  }

  /// Where a byte of a segment is flipped: all of a short one and of its key, and of a long one each part.
  private func flips(of segment: KeptSegment, _ random: inout SplitMix64) -> (stored: [Int], key: [Int]) {
    let count = segment.stored.count
    guard count > 100 else { return (Array(0..<count), Array(0..<32)) }
    // The ends of the header, of the ciphertext and of the authenticator, the tag byte, and bytes in between.
    let authenticator = count - 16
    return (
      [
        0, 1 + random.below(22), 23, 24, 25, 26 + random.below(authenticator - 27), authenticator - 1,
        authenticator, count - 1,
      ],
      [random.below(32)]
    )
  }

  @Test(arguments: [0, 1]) func aByteThatIsFlippedOnTheWayIsNoticed(frameNumber: Int) throws {
    let (offer, frames) = try offerToDamage()
    let begins = Assembly(offer.files).begins
    let fixture = try Fixture(durability: .grouped)
    let container = fixture.container
    let frame = frames[frameNumber]
    let segments = frame.segments
    let begin = frameNumber == 0 ? 0 : frames[frameNumber - 1].end
    var random = SplitMix64(seed: SplitMix64.testSeed)
    var flipCount = 0
    // One arrival meets the damage of a few segments, and what comes undamaged after that.
    for first in stride(from: 0, to: segments.count, by: 4) {
      let arrival = try offer.begin(
        in: container, as: UInt64(first + 1), stagingInterval: first % 8 == 0 ? 1 : 16 << 20)
      for earlier in frames[..<frameNumber] { try arrival.append(earlier) }
      try arrival.finish()
      for number in first..<min(first + 4, segments.count) {
        let segment = segments[number]
        let damage = DamagedContents(position: UInt64(begins[segment.file] + segment.grain * grain))
        let places = flips(of: segment, &random)
        for offset in places.stored {
          var damaged = frame
          damaged.contents[segment.place + offset] ^= 1 << UInt8(random.below(8))
          let found = try self.damage(in: damaged, found: arrival)
          try #require(found == damage, "byte \(offset) of segment \(number)")
          try #require(arrival.received == begin, "byte \(offset) of segment \(number)")
        }
        for offset in places.key {
          var damaged = frame
          damaged.keys[32 * number + offset] ^= 1 << UInt8(random.below(8))
          let found = try self.damage(in: damaged, found: arrival)
          try #require(found == damage, "byte \(offset) of key \(number)")
          try #require(arrival.received == begin, "byte \(offset) of key \(number)")
        }
        flipCount += places.stored.count + places.key.count
      }
      for next in frames[frameNumber...] { try arrival.append(next) }
      let queued = try arrival.commit()
      #expect(try offer.complaint(about: queued, expecting: offer.contents, in: container) == nil)
      try container.synchronize()
      #expect(try container.info().liveByteCount == offer.entry.storedByteCount)
      try container.remove(try #require(queued.directory))
    }
    #expect(flipCount >= (frameNumber == 0 ? 600 : 50))
    try expectSound(container)
    #expect(try container.staged() == [])
    #expect(try container.info().liveByteCount == 0)
    try container.close()
    #expect(fixture.io.slabSizes.isEmpty)
  }

  /// A block that opens is its sender's word. What it says is checked, and nothing else happens than it says.
  @Test func aBlockThatSaysSomethingElseIsRefusedOrTakenAtItsWord() throws {
    let (offer, frames) = try offerToDamage()
    let container = try Fixture(durability: .grouped).container
    var altered: [TestFrame] = []
    func alter(_ change: (inout TestFrame) -> Void) {
      var frame = frames[0]
      change(&frame)
      altered.append(frame)
    }
    for bit in 0..<64 { alter { $0.end ^= UInt64(1) << UInt64(bit) } }
    for run in frames[0].runs.indices {
      for bit in 0..<64 { alter { $0.runs[run].start ^= UInt64(1) << UInt64(bit) } }
      for bit in 0..<32 {
        alter { $0.runs[run].file ^= UInt32(1) << UInt32(bit) }
        alter { $0.runs[run].count ^= UInt32(1) << UInt32(bit) }
        alter { $0.runs[run].lastLength ^= UInt32(1) << UInt32(bit) }
      }
    }
    var (takenCount, refusedCount) = (0, 0)
    for (number, frame) in altered.enumerated() {
      let arrival = try offer.begin(in: container, as: UInt64(number + 1))
      var assembly = Assembly(offer.files)
      var isRefused = false
      for next in [frame] + frames[1...] where !isRefused {
        let isAllowed = assembly.allows(next)
        do {
          try arrival.append(next)
        } catch let error as ContainerError {
          isRefused = true
          try #require(error.code == .invalidArgument, "frame \(number): \(error)")
        }
        try #require(isAllowed == !isRefused, "frame \(number): \(frame.end), \(frame.runs)")
        if isAllowed { try assembly.add(next) }
      }
      if isRefused {
        refusedCount += 1
        try arrival.discard()
        continue
      }
      takenCount += 1
      let queued = try arrival.commit()
      #expect(
        try offer.complaint(about: queued, expecting: assembly.contents, in: container) == nil,
        "frame \(number)")
      try container.remove(try #require(queued.directory))
    }
    // The bytes of the file with holes may stand at other grains of it.
    #expect(takenCount > 0 && takenCount < 10 && refusedCount == altered.count - takenCount)
    // Another number of runs leaves no room for the keys, or too much.
    for bit in 0..<32 {
      var block = frames[0].block
      block[8 + bit / 8] ^= 1 << UInt8(bit % 8)
      expectError(.invalidArgument) {
        try block.withUnsafeBytes { try SegmentFrame($0, contentsByteCount: frames[0].contents.count) }
      }
    }
    try expectSound(container)
    #expect(try container.staged() == [])
    #expect(try container.info().liveByteCount == 0)
  }
}
