import EncryptedFile
import Locks
import OpenDynamicsTesting
import TestSupport
import Testing

@testable import ContainerStore

/// A clone of a virtual machine is only noticed by its clocks, so the tests move those.
struct WriteSessionTests {
  private static let second: Int64 = 1_000_000_000

  /// Clocks that stand still until they are moved.
  private final class TestClocks: Sendable {
    private let times = Guarded((wall: Int64(1_700_000_000) * second, boot: 5000 * second))

    func read() -> (wall: Int64, boot: Int64) { times.withLock { $0 } }

    func session() -> WriteSession { WriteSession(clocks: read) }

    func pass(_ nanoseconds: Int64) {
      times.withLock {
        $0.wall += nanoseconds
        $0.boot += nanoseconds
      }
    }

    func setWall(by nanoseconds: Int64) { times.withLock { $0.wall += nanoseconds } }
  }

  @Test func countersAreConsecutiveFromOneOn() {
    let session = TestClocks().session()
    let id = session.id
    #expect(session.take(1) == WriteNumber(session: id, counter: 1))
    #expect(session.take(64) == WriteNumber(session: id, counter: 2))
    #expect(session.take(3) == WriteNumber(session: id, counter: 66))
    #expect(session.take(1) == WriteNumber(session: id, counter: 69))
  }

  @Test func everyOpeningDrawsItsOwnSession() {
    let clocks = TestClocks()
    #expect(Set((0..<100).map { _ in clocks.session().id }).count == 100)
  }

  @Test func timeAloneKeepsTheSession() {
    let clocks = TestClocks()
    let session = clocks.session()
    let id = session.id
    for nanoseconds in [1, Self.second, 3600 * Self.second, 400 * 86400 * Self.second] {
      clocks.pass(nanoseconds)
      #expect(session.take(1).session == id)
    }
    #expect(session.take(1).counter == 5)
  }

  @Test(arguments: [2 * second, -2 * second, second + 1, -second - 1, 50 * 365 * 86400 * second])
  func jumpOfTheWallClockDrawsANewSession(jump: Int64) {
    let clocks = TestClocks()
    let session = clocks.session()
    let old = session.take(10)
    clocks.setWall(by: jump)
    let new = session.take(4)
    #expect(new.session != old.session)
    #expect(new.counter == 1)
    #expect(session.id == new.session)
    // The new lead is the measure from here on.
    #expect(session.take(1) == WriteNumber(session: new.session, counter: 5))
    clocks.setWall(by: -jump)
    let third = session.take(1)
    #expect(third.counter == 1)
    #expect(![old.session, new.session].contains(third.session))
  }

  @Test func jumpsOfUpToASecondKeepTheSession() {
    for jump in [Self.second, -Self.second] {
      let clocks = TestClocks()
      let session = clocks.session()
      clocks.setWall(by: jump)
      #expect(session.take(1) == WriteNumber(session: session.id, counter: 1))
    }
  }

  /// Many small steps add up: the measure is the lead at the session's start, not that of the call before.
  @Test func smallJumpsAddUp() {
    let clocks = TestClocks()
    let session = clocks.session()
    let id = session.id
    let sessions = (0..<3).map { _ in
      clocks.setWall(by: 400_000_000)
      return session.take(1).session
    }
    #expect(sessions[0] == id && sessions[1] == id && sessions[2] != id)
  }

  @Test func noWriteNumberIsGivenTwiceWhileTheClockJumps() async {
    let clocks = TestClocks()
    let session = clocks.session()
    let numbers = await withTaskGroup(of: [WriteNumber].self) { group in
      for task in 0..<8 {
        group.addTask {
          (0..<500).flatMap { round in
            if task == 0, round % 10 == 0 { clocks.setWall(by: 3 * Self.second) }
            let count = 1 + (task + round) % 5
            let first = session.take(count)
            return (0..<count).map { first.advanced(by: $0) }
          }
        }
      }
      return await group.reduce(into: []) { $0 += $1 }
    }
    #expect(numbers.allSatisfy { $0.counter >= 1 })
    #expect(Set(numbers).count == numbers.count)
    #expect(Set(numbers.map(\.session)).count > 10)
  }

  /// Each way to write, with clocks that jump at every reading, so that each unit has a session of its own.
  @Test func containerIsSoundWhateverItsSessions() throws {
    let io = RecordingIO()
    let clocks = TestClocks()
    var options = testOptions()
    options.sessionClocks = {
      clocks.setWall(by: 5 * Self.second)
      return clocks.read()
    }
    let container = try Container.create(io: io, credential: testCredential(), options: options)
    let contents = testBytes(3 << 20 + 12_345, seed: 1)
    try container.write(contents, to: "/written")
    try container.copy("/written", to: "/copied")

    let native = TemporaryDirectory()
    writeNative(native.path + "/native", contents)
    try container.importItem(at: native.path + "/native", to: "/imported")

    let file = try container.openFile("/opened", .readWrite, create: true)
    for begin in stride(from: 0, to: contents.count, by: 1 << 20) {
      let piece = contents[begin..<min(begin + 1 << 20, contents.count)]
      try piece.withUnsafeBytes { try file.write($0, at: UInt64(begin)) }
      try file.synchronize()
    }
    try file.close()

    let parcel = Parcel([("/arrived", contents)])
    let queued = try parcel.arrive(in: container, pieceSize: 100_000)
    #expect(try parcel.complaint(about: queued, in: container) == nil)

    let numbers = try container.reader.withWrittenBackSnapshot { records in
      try ["/written", "/copied", "/imported", "/opened", queued.files[0].path].map { path in
        let found = try records.existingFile(StorePath(path))
        return try records.extents(found.id, found.inode).flatMap { extent in
          (0..<Int(extent.count)).map { extent.writeNumber.advanced(by: $0) }
        }
      }
    }
    for numbers in numbers { #expect(Set(numbers.map(\.session)).count >= 4) }
    let all = numbers.flatMap { $0 }
    #expect(Set(all).count == all.count)
    try container.close()

    let report = try Container.verify(io: io, credential: testCredential(), options: testOptions())
    #expect(report.findings.filter { $0.severity == .damage }.isEmpty)
    let reopened = try Container.open(io: io, credential: testCredential(), options: testOptions())
    for path in ["/written", "/copied", "/imported", "/opened", queued.files[0].path] {
      #expect(try reopened.contents(at: path) == contents, "\(path)")
    }
    try reopened.close()
  }

  @Test func clocksOfThisMachineKeepTheSession() {
    let session = WriteSession()
    let id = session.id
    #expect((0..<1000).allSatisfy { session.take(1) == WriteNumber(session: id, counter: UInt64($0 + 1)) })
  }
}
