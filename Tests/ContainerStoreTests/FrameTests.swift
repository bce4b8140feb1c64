import Foundation
import SodiumPrimitives
import TestSupport
import Testing

@testable import ContainerStore

private let grain = TestFrame.grain

/// Frames of a peer that keeps to the page, or does not.
struct FrameTests {
  private func arrival(_ parcel: Parcel, in container: Container) throws -> Arrival {
    let arrival = try container.beginArrival(parcel.message)
    try parcel.addFiles(to: arrival)
    return arrival
  }

  // MARK: What is right

  @Test func holesAreHoles() throws {
    let fixture = try Fixture()
    let (zeros, ones) = ([UInt8](repeating: 0, count: 3 * grain), [UInt8](repeating: 1, count: grain))
    let parcel = Parcel([
      ("/begin", zeros + ones), ("/end", ones + zeros), ("/all", zeros + [0]),
      ("/inside", ones + zeros + ones),
      ("/small", [0]),
    ])
    let before = try fixture.container.info().liveByteCount
    let queued = try parcel.arrive(in: fixture.container)
    #expect(try parcel.complaint(about: queued, in: fixture.container) == nil)
    #expect(try fixture.container.info().liveByteCount - before == UInt64(4 * (grain + TestFrame.overhead)))
    #expect(try fixture.container.verify().findings == [])
    let reopened = try fixture.reopened()
    #expect(try parcel.complaint(about: queued, in: reopened) == nil)
  }

  /// A file that is larger than the disk.
  @Test func aHugeHoleCostsNothing() throws {
    let fixture = try Fixture()
    var parcel = Parcel([("/huge", [])])
    parcel.message.byteCount = 1 << 60
    parcel.message.storedByteCount = 42
    let arrival = try fixture.container.beginArrival(parcel.message)
    try arrival.add([ArrivingFile(path: Array("/huge".utf8), size: 1 << 60, modified: 0, permissions: 0o600)])
    var frame = TestFrame(end: 1 << 60)
    frame.add([7], file: 0, grain: 1 << 45)
    try arrival.append(frame)
    let queued = try arrival.commit()
    #expect(try fixture.container.attributes(at: queued.files[0].path)?.size == 1 << 60)
    #expect(try fixture.container.info().liveByteCount == 42)
  }

  /// In all, over frames that come again and arrivals that go on.
  @Test(arguments: [0, 1]) func noMoreIsStoredThanWasOffered(tooMuch: Int) throws {
    let fixture = try Fixture(durability: .grouped)
    let original = Parcel(sizes: [grain + 1, 0, 70_000, 3 * grain, 5])
    var parcel = original
    parcel.message.storedByteCount -= UInt64(tooMuch)
    // What is staged of the message is what it was.
    let first = try fixture.container.beginArrival(parcel.message)
    #expect(first.missingByteCount == parcel.message.storedByteCount)
    try parcel.addFiles(to: first)
    try parcel.append(to: first, until: grain + 1 + 4 * grain)
    var damaged = TestFrame(end: UInt64(grain + 1 + 70_000))
    damaged.add(Array(parcel.files[2].contents[(4 * grain)...]), file: 2, grain: 4)
    damaged.contents[100] ^= 1
    #expect(throws: DamagedContents.self) {
      try first.append(damaged)
      try first.finish()
    }
    first.suspend()
    let arrival = try fixture.container.beginArrival(parcel.message)
    let staged = TestFrame.storedByteCount(of: parcel.files[0].contents) + 4 * (grain + TestFrame.overhead)
    #expect(arrival.missingByteCount == parcel.message.storedByteCount - UInt64(staged))
    try parcel.addFiles(to: arrival)
    try parcel.append(to: arrival, until: Int(parcel.message.byteCount) - 5)
    guard tooMuch > 0 else {
      try parcel.append(to: arrival)
      #expect(try original.complaint(about: arrival.commit(), in: fixture.container) == nil)
      return
    }
    let before = try fixture.container.info().liveByteCount
    expectError(.invalidArgument) { try parcel.append(to: arrival) }
    #expect(try fixture.container.info().liveByteCount == before)
    expectError(.invalidArgument) { try arrival.commit() }
    arrival.suspend()
    // Less than is staged already.
    parcel.message.storedByteCount = UInt64(staged)
    let last = try fixture.container.beginArrival(parcel.message)
    #expect(last.missingByteCount == 0)
    expectError(.invalidArgument) { try parcel.addFiles(to: last) }
  }

  @Test func aGrainMayBeShorterThanItsPlace() throws {
    let fixture = try Fixture()
    let parcel = Parcel([("/a", [1, 2] + [UInt8](repeating: 0, count: 2 * grain))])
    let arrival = try arrival(parcel, in: fixture.container)
    var frame = TestFrame(end: parcel.message.byteCount)
    frame.add([1, 2], file: 0, grain: 0)
    try arrival.append(frame)
    #expect(try parcel.complaint(about: arrival.commit(), in: fixture.container) == nil)
  }

  @Test func oneFrameHasSegmentsOfManyLengths() throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: (0..<100).map { 1 + $0 * 5_003 % grain })
    let arrival = try arrival(parcel, in: fixture.container)
    let frame = TestFrame.next(of: parcel.files.map(\.contents), from: 0, until: 1 << 20)!
    #expect(frame.runs.count == 100)
    try arrival.append(frame)
    #expect(try parcel.complaint(about: arrival.commit(), in: fixture.container) == nil)
  }

  /// Without anything in the staging directory, however many files there are.
  @Test func aSmallMessageIsOneCommit() throws {
    let fixture = try Fixture(durability: .grouped)
    let container = fixture.container
    let parcel = Parcel((0..<1000).map { ("/d/\($0)", testBytes(100 + $0, seed: UInt64($0))) })
    let arrival = try container.beginArrival(parcel.message, replacing: false)
    try parcel.addFiles(to: arrival)
    let before = container.commit
    try parcel.append(to: arrival)
    #expect(try container.staged().count == 2)
    #expect(try parcel.complaint(about: arrival.commit(), in: container) == nil)
    #expect(container.commit - before <= 2)
  }

  /// A part is staged, the rest is not when the commit comes.
  @Test func whatIsStagedAndWhatIsNotBecomeOneFile() throws {
    let fixture = try Fixture(durability: .grouped)
    let container = fixture.container
    let parcel = Parcel(sizes: [5 << 20, 100, 0, 3 << 20])
    let arrival = try container.beginArrival(parcel.message, stagingInterval: 2 << 20)
    try parcel.addFiles(to: arrival)
    try parcel.append(to: arrival, until: 3 << 20, pieceSize: 1 << 20)
    arrival.suspend()
    let again = try container.beginArrival(parcel.message, stagingInterval: 4 << 20)
    #expect(again.received == 3 << 20)
    try parcel.addFiles(to: again)
    try parcel.append(to: again, pieceSize: 1 << 20)
    #expect(try parcel.complaint(about: again.commit(), in: container) == nil)
    #expect(try container.staged() == [])
    try container.close()
    #expect(try Container.verify(io: fixture.io, credential: testCredential()).findings == [])
  }

  // MARK: What is wrong

  @Test(arguments: [
    "nothing", "stands still", "beyond the end", "within a grain", "out of order", "twice", "outside",
    "behind its end",
    "of another file", "of no file", "before the beginning", "longer than the file",
  ])
  func aFrameThatBreaksARuleEndsTheArrival(how: String) throws {
    let fixture = try Fixture()
    let sizes = [3 * grain, 2 * grain]
    let parcel = Parcel(sizes: sizes)
    let arrival = try arrival(parcel, in: fixture.container)
    let whole = [UInt8](repeating: 1, count: grain)
    var first = TestFrame(end: UInt64(grain))
    first.add(whole, file: 0, grain: 0)
    try arrival.append(first)
    var frame = TestFrame(end: UInt64(2 * grain))
    switch how {
    case "nothing": frame.end = 0
    case "stands still": frame.end = UInt64(grain)
    case "beyond the end": frame.end = UInt64(5 * grain + 1)
    case "within a grain": frame.end = UInt64(grain + 5)
    case "out of order":
      frame.end = UInt64(3 * grain)
      frame.add(whole, file: 0, grain: 2)
      frame.add(whole, file: 0, grain: 1)
    case "twice":
      frame.add(whole, file: 0, grain: 1)
      frame.runs.append(frame.runs[0])
      frame.contents += frame.contents
      frame.keys += frame.keys
    case "outside": frame.add(whole, file: 0, grain: 3)
    case "behind its end": frame.add(whole, file: 0, grain: 2)
    case "of another file": frame.add(whole, file: 1, grain: 0)
    case "of no file": frame.add(whole, file: 2, grain: 0)
    case "before the beginning": frame.add(whole, file: 0, grain: 0)
    default:
      frame.end = UInt64(5 * grain)
      frame.add(whole, file: 1, grain: 2)
    }
    expectError(.invalidArgument) { try arrival.append(frame) }
    expectError(.invalidArgument) { try arrival.append(frame) }
    arrival.suspend()
    let again = try self.arrival(parcel, in: fixture.container)
    try parcel.append(to: again)
    try again.discard()
    #expect(try fixture.container.info().liveByteCount == 0)
  }

  @Test func bytesThatAreNoFrameAreRefused() throws {
    var frame = TestFrame(end: 100)
    frame.add([1, 2, 3], file: 0, grain: 0)
    frame.add([4], file: 1, grain: 7)
    let block = frame.block
    func isTaken(_ block: [UInt8], _ contentsByteCount: Int = 86) -> Bool {
      block.withUnsafeBytes { (try? SegmentFrame($0, contentsByteCount: contentsByteCount)) != nil }
    }
    #expect(frame.contents.count == 86 && isTaken(block))
    for count in 0..<block.count { #expect(!isTaken(Array(block[..<count]))) }
    #expect(!isTaken(block + [0]))
    for byteCount in [0, 85, 87, .max] { #expect(!isTaken(block, byteCount)) }
    // Number of runs, start, count and length of a run.
    for (offset, value) in [
      (8, 3), (11, 0x80), (22, 1), (24, 0), (24, 2), (26, 1), (28, 0), (29, 0x41), (30, 1),
    ] {
      var other = block
      other[offset] = UInt8(value)
      #expect(!isTaken(other), "byte \(offset)")
    }
    // Too many segments.
    for (count, isRight) in [(256, true), (257, false)] {
      var frame = TestFrame(end: 1)
      for i in 0..<count { frame.add([1], file: i, grain: 0) }
      #expect(isTaken(frame.block, frame.contents.count) == isRight)
    }
    // Too many bytes, of segments that are all allowed.
    for (last, isRight) in [(grain, true), (1, false)] {
      var frame = TestFrame(end: 1)
      for i in 0..<(isRight ? 63 : 64) { frame.add([UInt8](repeating: 1, count: grain), file: 0, grain: i) }
      frame.add([UInt8](repeating: 1, count: last), file: 1, grain: 0)
      #expect(isTaken(frame.block, frame.contents.count) == isRight)
    }
  }

  @Test func aFrameReachesIntoSoManyFilesAndNotOneMore() throws {
    let fixture = try Fixture()
    let parcel = Parcel((0..<514).map { ("/\($0)", [UInt8](repeating: 0, count: $0 % 2)) })
    let arrival = try arrival(parcel, in: fixture.container)
    try arrival.append(TestFrame(end: 256))
    let other = try Fixture()
    let refused = try self.arrival(parcel, in: other.container)
    expectError(.invalidArgument) { try refused.append(TestFrame(end: 257)) }
    try arrival.append(TestFrame(end: 257))
    #expect(try parcel.complaint(about: arrival.commit(), in: fixture.container) == nil)
  }

  // MARK: What does not open

  @Test(arguments: ["key", "segment", "header", "length"])
  func contentsThatDoNotOpenComeAgain(what: String) throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [5 << 20, 70_000])
    let arrival = try arrival(parcel, in: fixture.container)
    let files = parcel.files.map(\.contents)
    var position = 0
    var damage: DamagedContents?
    while damage == nil,
      var frame = TestFrame.next(of: files, from: position, until: Int(parcel.message.byteCount))
    {
      if position == 2 << 20 {
        // The fourth of its segments.
        switch what {
        case "key": frame.keys[3 * 32 + 5] ^= 1
        case "header": frame.contents[3 * (grain + 41)] ^= 1
        case "length":
          // A grain less, so that what follows is cut elsewhere.
          frame.contents.removeSubrange((3 * (grain + 41) + 9)..<(3 * (grain + 41) + 10))
          frame.contents.append(0)
        default: frame.contents[3 * (grain + 41) + 1000] ^= 1
        }
      }
      do {
        try arrival.append(frame)
        position = Int(frame.end)
      } catch let error as DamagedContents {
        damage = error
      }
    }
    do { if damage == nil { try arrival.finish() } } catch let error as DamagedContents { damage = error }
    #expect(damage == DamagedContents(position: 2 << 20 + UInt64(3 * grain)))
    #expect(arrival.received == 2 << 20)
    // From there on, all of it.
    try parcel.append(to: arrival)
    #expect(try parcel.complaint(about: arrival.commit(), in: fixture.container) == nil)
    #expect(try fixture.container.verify().findings == [])
    try fixture.container.close()
    #expect(try Container.verify(io: fixture.io, credential: testCredential()).findings == [])
  }

  @Test func contentsThatCannotBeReadEndTheArrival() throws {
    struct Gone: Error {}
    struct Contents: FrameContents {
      func read(at offset: Int, into buffer: UnsafeMutableRawBufferPointer) throws { throw Gone() }
    }
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [grain])
    let arrival = try arrival(parcel, in: fixture.container)
    let frame = TestFrame.next(of: parcel.files.map(\.contents), from: 0, until: grain)!
    let decoded = try frame.block.withUnsafeBytes { try SegmentFrame($0, contentsByteCount: frame.byteCount) }
    try arrival.append(decoded, Contents())
    #expect(throws: Gone.self) { try arrival.finish() }
    #expect(throws: Gone.self) { try arrival.append(frame) }
  }
}
