import Dispatch
import Foundation
import Locks
import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

@testable import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

struct ArrivalTests {
  // MARK: What arrives

  @Test(arguments: [1, 1000, 16_384, 65_536, 1 << 20, 4 << 20])
  func filesOfEverySizeArriveWhateverThePieces(pieceSize: Int) throws {
    let fixture = try Fixture()
    let sizes = borderSizes + [0, 70_000, 3, 0]
    let parcel = Parcel(sizes: sizes)
    let queued = try parcel.arrive(in: fixture.container, pieceSize: pieceSize)
    #expect(try parcel.complaint(about: queued, in: fixture.container) == nil)
    let attributes = try #require(try fixture.container.attributes(at: queued.files[1].path))
    #expect(attributes.modified == 1_000_000_007)
    #expect(attributes.permissions == 0o640)
    #expect(try fixture.container.staged() == [])
    #expect(try fixture.container.verify().findings == [])
    let reopened = try fixture.reopened()
    #expect(
      try parcel.complaint(about: try #require(try reopened.messageQueue().unhandled.first), in: reopened)
        == nil)
    #expect(try reopened.verify().findings == [])
    try reopened.close()
    #expect(try Container.verify(io: fixture.io, credential: testCredential()).findings == [])
  }

  @Test func nothingIsSeenInTheInboxBeforeTheCommit() throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [3 << 20, 5, 0])
    let arrival = try fixture.container.beginArrival(parcel.message)
    var begun = Arrival.Begun()
    #expect(arrival.takeBegunFiles(&begun).isEmpty)
    try parcel.addFiles(to: arrival, pageSize: 2)
    #expect(arrival.takeBegunFiles(&begun).isEmpty)
    try parcel.append(to: arrival)
    #expect(arrival.takeBegunFiles(&begun).map(\.path) == parcel.files.map { arrival.directory + $0.path })
    #expect(arrival.takeBegunFiles(&begun).isEmpty)
    #expect(arrival.received == parcel.message.byteCount)
    #expect(try fixture.container.attributes(at: "/Inbox") == nil)
    #expect(try fixture.container.messageQueue().unhandled.isEmpty)
    #expect(try !parcel.wasDelivered(to: fixture.container))
    let queued = try arrival.commit()
    #expect(queued.directory == arrival.directory)
    #expect(try parcel.wasDelivered(to: fixture.container))
    #expect(try parcel.complaint(about: queued, in: fixture.container) == nil)
  }

  @Test func aMessageWithoutFilesHasNoDirectory() throws {
    let fixture = try Fixture()
    let parcel = Parcel([], text: testBytes(2 << 20, seed: 1))
    let queued = try parcel.arrive(in: fixture.container)
    #expect(queued.directory == nil)
    let reopened = try fixture.reopened()
    #expect(
      try parcel.complaint(about: try #require(try reopened.messageQueue().unhandled.first), in: reopened)
        == nil)
    #expect(try reopened.tree().isEmpty)
    #expect(try parcel.wasDelivered(to: reopened))
  }

  @Test func filesWithoutBytesArrive() throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [0, 0, 0, 0])
    let queued = try parcel.arrive(in: fixture.container)
    #expect(try parcel.complaint(about: queued, in: fixture.container) == nil)
    #expect(try fixture.container.staged() == [])
  }

  @Test func thousandsOfSmallFilesArriveInFewCommits() throws {
    let fixture = try Fixture(durability: .grouped)
    let fileCount = TestEffort.count(5_000, long: 20_000)
    let parcel = Parcel(
      (0..<fileCount).map { ("/folder \($0 % 50)/a file named \($0)", testBytes($0 % 300, seed: UInt64($0))) }
    )
    let before = fixture.container.commit
    let queued = try parcel.arrive(in: fixture.container)
    #expect(queued.files.count == fileCount)
    // Not one for each file.
    #expect(fixture.container.commit - before < 40)
    for i in stride(from: 0, to: fileCount, by: 997) {
      #expect(try fixture.container.contents(at: queued.files[i].path) == parcel.files[i].contents)
    }
    let reopened = try fixture.reopened()
    #expect(try reopened.messageQueue().unhandled.first?.files.map(\.path) == queued.files.map(\.path))
    #expect(try reopened.info().fileCount == fileCount)
    #expect(try reopened.verify().findings == [])
  }

  @Test func twoArrivalsAtOnceGetDirectoriesOfTheirOwn() throws {
    let fixture = try Fixture(durability: .grouped)
    let container = fixture.container
    let parcels = (1...4).map { Parcel(sizes: [2 << 20, 100, 0, 70_000], number: UInt64($0)) }
    let arrivals = try parcels.map { try container.beginArrival($0.message) }
    #expect(Set(arrivals.map(\.directory)).count == 4)
    let complaints = inThreads(4) { i in
      try parcels[i].addFiles(to: arrivals[i])
      try parcels[i].append(to: arrivals[i])
      return try parcels[i].complaint(about: arrivals[i].commit(), in: container)
    }
    #expect(complaints == [])
    #expect(try container.staged() == [])
    #expect(try container.messageQueue().unhandled.count == 4)
    try container.close()
    #expect(try Container.verify(io: fixture.io, credential: testCredential()).findings == [])
  }

  @Test func aMessageSentInTheProcessAvoidsTheDirectoryOfOneUnderWay() throws {
    let (from, to) = (try Fixture(key: 9), try Fixture())
    try from.container.write([1], to: "/a")
    let parcels = (1...20).map { Parcel(sizes: [1], number: UInt64($0)) }
    let arrivals = try parcels.map { try to.container.beginArrival($0.message) }
    let sent = try from.container.send(["/a"], to: to.container, sender: Parcel.sender)
    #expect(!arrivals.map(\.directory).contains(sent.directory))
  }

  // MARK: Names

  @Test func namesAreMadeSafeAndNoTwoFilesGetOnePlace() throws {
    let fixture = try Fixture()
    let parcel = Parcel([
      ("/a\u{1}b", [1]), ("/a_b", [2]), ("/a\u{7f}b", [3]), ("/folder", [4]), ("/folder/\n", [5]),
      ("/folder/_", [6]), ("/Straße/ü", [7]),
    ])
    let arrival = try fixture.container.beginArrival(parcel.message)
    try parcel.addFiles(to: arrival)
    try parcel.append(to: arrival)
    var begun = Arrival.Begun()
    let names = arrival.takeBegunFiles(&begun).map { String($0.path.dropFirst(arrival.directory.count)) }
    #expect(
      names == ["/a_b", "/a_b-2", "/a_b-3", "/folder-2", "/folder/_", "/folder/_-2", "/Straße/ü"])
    let queued = try arrival.commit()
    for (file, sent) in zip(queued.files, parcel.files) {
      #expect(try fixture.container.contents(at: file.path) == sent.contents)
    }
  }

  @Test(arguments: [
    Array("relative".utf8), Array("".utf8), Array("/".utf8), Array("/a/../b".utf8), Array("/..".utf8),
    Array("/a/./b".utf8), Array("//a".utf8), Array("/a/".utf8), Array("/a\0b".utf8),
    Array(("/" + String(repeating: "x", count: 256)).utf8), [0x2f, 0xff], [0x2f, 0xc3],
  ]) func aPathThatIsNoneIsRefused(path: [UInt8]) throws {
    let fixture = try Fixture()
    let arrival = try fixture.container.beginArrival(Parcel(sizes: [1]).message)
    expectError(.invalidName) {
      try arrival.add([ArrivingFile(path: path, size: 1, modified: 0, permissions: 0o600)])
    }
    #expect(arrival.filesKnown == 0)
    // The longest that is one.
    let longest = Array(("/" + String(repeating: "x", count: 255)).utf8)
    try arrival.add([ArrivingFile(path: longest, size: 1, modified: 0, permissions: 0o600)])
    #expect(arrival.filesKnown == 1)
  }

  @Test(arguments: ["", ".", "..", "a/b", "a\nb", String(repeating: "x", count: 256)])
  func aSenderThatIsNoNameIsRefused(sender: String) throws {
    let fixture = try Fixture()
    expectError(.invalidName) {
      try fixture.container.beginArrival(Parcel(sizes: [1], sender: sender).message)
    }
    let longest = Parcel(sizes: [1], sender: String(repeating: "x", count: 255))
    #expect(try longest.complaint(about: longest.arrive(in: fixture.container), in: fixture.container) == nil)
    #expect(try longest.wasDelivered(to: fixture.container))
  }

  // MARK: What does not fit

  @Test func listsThatDoNotFitWhatWasAnnouncedAreRefused() throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [10, 20])
    func arrival() throws -> Arrival { try fixture.container.beginArrival(parcel.message) }
    func file(_ size: UInt64, _ name: String = "/a") -> ArrivingFile {
      ArrivingFile(path: Array(name.utf8), size: size, modified: 0, permissions: 0o600)
    }
    let lists = [
      [file(10), file(19, "/b")], [file(10), file(21, "/b")], [file(31)], [file(.max)],
      [file(1), file(.max, "/b")], [file(10), file(10, "/b"), file(10, "/c")], [file(10), file(20)],
    ]
    for list in lists {
      let arrival = try arrival()
      expectError(.invalidArgument) { try arrival.add(list) }
      #expect(arrival.filesKnown == 0)
      arrival.suspend()
    }
    let good = try arrival()
    try good.add([file(10), file(20, "/b")])
    expectError(.invalidArgument) { try good.add([file(0, "/c")]) }
    #expect(good.filesKnown == 2)
  }

  @Test func contentsThatDoNotFitAreRefused() throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [10, 20])
    let arrival = try fixture.container.beginArrival(parcel.message)
    expectError(.invalidArgument) { try parcel.append(to: arrival, from: 0) }
    try parcel.addFiles(to: arrival)
    #expect(throws: ContainerError.self) { try arrival.commit() }
    arrival.suspend()
    let again = try fixture.container.beginArrival(parcel.message)
    try parcel.addFiles(to: again)
    try parcel.append(to: again)
    #expect(try parcel.complaint(about: again.commit(), in: fixture.container) == nil)
    expectError(.invalidArgument) { try again.commit() }
    expectError(.invalidArgument) { try parcel.append(to: again, from: 0) }
  }

  @Test func messagesThatCannotBeAreRefused() throws {
    let fixture = try Fixture()
    func refused(_ change: (inout ArrivingMessage) -> Void) {
      var message = Parcel(sizes: [1]).message
      change(&message)
      expectError(.invalidArgument) { try fixture.container.beginArrival(message) }
    }
    refused { $0.message = [UInt8](repeating: 0, count: ArrivingMessage.byteCountMax + 1) }
    refused { $0.byteCount = ArrivingMessage.filesByteCountMax }
    refused { $0.storedByteCount = ArrivingMessage.filesByteCountMax }
    refused { $0.byteCount = 0 }
    refused { $0.fileCount = 0 }
    var message = Parcel(sizes: [1]).message
    message.message = [UInt8](repeating: 0, count: ArrivingMessage.byteCountMax)
    message.byteCount = ArrivingMessage.filesByteCountMax - 1
    #expect(try fixture.container.beginArrival(message).received == 0)
    let reader = try Container.open(
      io: fixture.io, credential: testCredential(), mode: .readOnly, options: testOptions())
    expectError(.readOnly) { try reader.beginArrival(message) }
  }

  @Test func aMessageThatArrivedBeforeIsNotCommittedAgain() throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [10])
    try parcel.arrive(in: fixture.container)
    let again = try fixture.container.beginArrival(parcel.message)
    try parcel.addFiles(to: again)
    try parcel.append(to: again)
    expectError(.invalidArgument) { try again.commit() }
    try again.discard()
    #expect(try fixture.container.staged() == [])
    #expect(try fixture.container.messageQueue().unhandled.count == 1)
  }

  // MARK: Leaving off

  @Test func discardingLeavesNothing() throws {
    let fixture = try Fixture()
    try fixture.container.write([1], to: "/kept")
    let before = try fixture.container.info()
    let parcel = Parcel(sizes: [3 << 20, 5, 0])
    let arrival = try fixture.container.beginArrival(parcel.message)
    try parcel.addFiles(to: arrival)
    try parcel.append(to: arrival, until: 2 << 20)
    try arrival.discard()
    try arrival.discard()
    #expect(try fixture.container.staged() == [])
    #expect(try fixture.container.info().liveByteCount == before.liveByteCount)
    #expect(try !parcel.wasDelivered(to: fixture.container))
    // A later one begins anew.
    #expect(try parcel.complaint(about: parcel.arrive(in: fixture.container), in: fixture.container) == nil)
  }

  @Test func oneArrivalOfAMessageAtATime() throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [2 << 20])
    let first = try fixture.container.beginArrival(parcel.message)
    #expect(throws: ArrivalUnderWay.self) { try fixture.container.beginArrival(parcel.message) }
    try parcel.addFiles(to: first)
    try parcel.append(to: first, until: 1_500_000)
    first.suspend()
    expectError(.invalidArgument) { try parcel.append(to: first, until: 1_600_000) }
    let second = try fixture.container.beginArrival(parcel.message)
    #expect(second.directory == first.directory)
    // Whole grains.
    #expect(second.received == 1_500_000 / 16_384 * 16_384)
    try parcel.addFiles(to: second)
    try parcel.append(to: second)
    #expect(try parcel.complaint(about: second.commit(), in: fixture.container) == nil)
  }

  @Test func anArrivalNobodyHoldsAnyMoreIsSuspended() throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [2 << 20])
    do {
      let arrival = try fixture.container.beginArrival(parcel.message)
      try parcel.addFiles(to: arrival)
      try parcel.append(to: arrival, until: 1 << 20)
    }
    #expect(try fixture.container.beginArrival(parcel.message).received == 1 << 20)
  }

  @Test(arguments: [0, 1, 700_000, 1 << 20, 1_048_577, 1_500_000, 3_000_000, 3_145_733])
  func anArrivalGoesOnAfterReopening(position: Int) throws {
    let fixture = try Fixture(durability: .grouped)
    let parcel = Parcel(sizes: [20, 0, 1 << 20, 2 << 20, 0, 5, 40_000])
    var arrival = try fixture.container.beginArrival(parcel.message)
    let directory = arrival.directory
    try parcel.addFiles(to: arrival)
    try parcel.append(to: arrival, until: position)
    let received = arrival.received
    // The process dies: nothing is closed.
    let io = RecordingIO(fixture.io.image)
    let container = try Container.open(
      io: io, credential: testCredential(), options: testOptions(.grouped))
    arrival = try container.beginArrival(parcel.message)
    #expect(arrival.received == received)
    #expect(position - Int(received) <= 2 << 20)
    // Before anything is stored, the directory is not either.
    if received > 0 { #expect(arrival.directory == directory) }
    try parcel.addFiles(to: arrival)
    #expect(arrival.received == received)
    try parcel.append(to: arrival, pieceSize: 100_000)
    #expect(try parcel.complaint(about: arrival.commit(), in: container) == nil)
    #expect(try container.staged() == [])
    try container.close()
    #expect(try Container.verify(io: io, credential: testCredential()).findings == [])
  }

  @Test func anotherListThanBeforeBeginsAnew() throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [1 << 20, 2 << 20])
    let first = try fixture.container.beginArrival(parcel.message)
    try parcel.addFiles(to: first)
    try parcel.append(to: first, until: 2 << 20)
    first.suspend()
    let other = Parcel(sizes: [2 << 20, 1 << 20])
    let second = try fixture.container.beginArrival(other.message)
    #expect(second.received == 2 << 20)
    try other.addFiles(to: second)
    #expect(second.received == 0)
    try other.append(to: second)
    #expect(try other.complaint(about: second.commit(), in: fixture.container) == nil)
    #expect(try fixture.container.verify().findings == [])
  }

  @Test func otherCountsAreRefusedUnlessTheyReplace() throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [1 << 20])
    let first = try fixture.container.beginArrival(parcel.message)
    try parcel.addFiles(to: first)
    try parcel.append(to: first)
    first.suspend()
    let other = Parcel(sizes: [5])
    expectError(.invalidArgument) { try fixture.container.beginArrival(other.message) }
    let second = try fixture.container.beginArrival(other.message, replacing: true)
    #expect(second.received == 0)
    try other.addFiles(to: second)
    try other.append(to: second)
    #expect(try other.complaint(about: second.commit(), in: fixture.container) == nil)
    #expect(try fixture.container.staged() == [])
  }

  @Test func stagingThatIsRemovedMakesTheArrivalBeginAnew() throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [4 << 20])
    let arrival = try fixture.container.beginArrival(parcel.message)
    try parcel.addFiles(to: arrival)
    try parcel.append(to: arrival, until: 2 << 20)
    try fixture.container.remove("/.opendynamics")
    expectError(.noSuchFile) { try parcel.append(to: arrival) }
    expectError(.noSuchFile) { try parcel.append(to: arrival) }
    try arrival.discard()
    let again = try fixture.container.beginArrival(parcel.message)
    #expect(again.received == 0)
    try parcel.addFiles(to: again)
    try parcel.append(to: again)
    try fixture.container.remove("/.opendynamics")
    expectError(.noSuchFile) { try again.commit() }
    #expect(try fixture.container.attributes(at: "/Inbox") == nil)
    again.suspend()
    #expect(try parcel.complaint(about: parcel.arrive(in: fixture.container), in: fixture.container) == nil)
    #expect(try fixture.container.verify().findings == [])
  }

  @Test func aStagedFileThatIsRemovedIsMissed() throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [2 << 20, 5])
    let arrival = try fixture.container.beginArrival(parcel.message)
    try parcel.addFiles(to: arrival)
    try parcel.append(to: arrival)
    let staged = try fixture.container.staged().first { $0.hasSuffix("/1") }
    try fixture.container.remove("/.opendynamics/staging/" + (try #require(staged)))
    expectError(.noSuchFile) { try arrival.commit() }
    arrival.suspend()
    let again = try fixture.container.beginArrival(parcel.message)
    try parcel.addFiles(to: again)
    #expect(again.received == 2 << 20)
    try parcel.append(to: again)
    #expect(try parcel.complaint(about: again.commit(), in: fixture.container) == nil)
  }

  @Test func whatNobodyCameBackForIsDiscarded() throws {
    let fixture = try Fixture()
    let (held, left) = (Parcel(sizes: [1 << 20], number: 1), Parcel(sizes: [1 << 20], number: 2))
    let arrival = try fixture.container.beginArrival(held.message)
    let other = try fixture.container.beginArrival(left.message)
    for (parcel, arrival) in [(held, arrival), (left, other)] {
      try parcel.addFiles(to: arrival)
      try parcel.append(to: arrival)
    }
    other.suspend()
    let changed = try #require(
      try fixture.container.list("/.opendynamics/staging", recursively: true).map(\.attributes.changed).max())
    let before = try fixture.container.staged().count
    try fixture.container.discardArrivals(olderThan: changed - 3_600_000_000_000)
    #expect(try fixture.container.staged().count == before)
    try fixture.container.discardArrivals(olderThan: changed + 1)
    #expect(try fixture.container.staged().count == 3)
    #expect(try fixture.container.beginArrival(left.message).received == 0)
    try fixture.container.discardArrivals(olderThan: nil)
    #expect(try held.complaint(about: arrival.commit(), in: fixture.container) == nil)
    #expect(try fixture.container.staged() == [])
  }

  /// A sender that leaves what it began takes room of its own only.
  @Test func whatIsStagedOfOneSenderIsLimited() throws {
    let fixture = try Fixture(durability: .grouped)
    let container = fixture.container
    let honest = Parcel(sizes: [1 << 20], number: 1, sender: "com.example.honest")
    let begun = try container.beginArrival(honest.message)
    try honest.addFiles(to: begun)
    try honest.append(to: begun)
    begun.suspend()
    let parcels = (1...(Staging.countMax + 6)).map { Parcel(sizes: [1], number: UInt64($0)) }
    for parcel in parcels { try container.beginArrival(parcel.message).suspend() }
    #expect(try stagedCount(of: Parcel.sender, container) == Staging.countMax)
    #expect(try container.beginArrival(honest.message).received == 1 << 20)
    // What is received into stays, and when that is all there is no room for another.
    try container.discardArrivals(olderThan: nil)
    let arrivals = try parcels.prefix(Staging.countMax).map { try container.beginArrival($0.message) }
    #expect(throws: ArrivalLimit.messages) { try container.beginArrival(parcels.last!.message) }
    arrivals[3].suspend()
    let last = try container.beginArrival(parcels.last!.message)
    for arrival in arrivals where arrival !== arrivals[3] {
      let parcel = parcels.first { $0.message.number == arrival.message.number }!
      try parcel.addFiles(to: arrival)
      try parcel.append(to: arrival)
      #expect(try parcel.complaint(about: arrival.commit(), in: container) == nil)
    }
    last.suspend()
    #expect(try stagedCount(of: Parcel.sender, container) == 1)
    try container.close()
    #expect(try Container.verify(io: fixture.io, credential: testCredential()).findings == [])
  }

  /// Of all senders together the one that has most gives way.
  @Test func whatIsStagedOfAllSendersIsLimited() throws {
    let fixture = try Fixture(durability: ContainerDurability.none)
    let container = fixture.container
    func begin(_ sender: String, _ number: Int) throws {
      try container.beginArrival(Parcel(sizes: [1], number: UInt64(number), sender: sender).message).suspend()
    }
    let senderCount = Staging.allCountMax / Staging.countMax
    for sender in 1...senderCount {
      for number in 1...Staging.countMax where sender > 1 || number < Staging.countMax {
        try begin("com.example.many\(sender)", number)
      }
    }
    for number in 1...3 { try begin("com.example.few", number) }
    #expect(try stagedCount(of: "com.example.few", container) == 3)
    #expect(try stagedCount(of: "com.example.many1", container) == Staging.countMax - 1)
    let all = try container.list("/.opendynamics/staging").map {
      try stagedCount(of: String($0.path.split(separator: "/").last!), container)
    }
    #expect(all.reduce(0, +) == Staging.allCountMax)
  }

  /// What was refused before it began takes no room from what did.
  @Test func discardingWhatNeverBeganLeavesEverythingElse() throws {
    let fixture = try Fixture(durability: .grouped)
    let container = fixture.container
    let parcels = (1...(Staging.countMax + 1)).map { Parcel(sizes: [1], number: UInt64($0)) }
    for parcel in parcels.dropLast() { try container.beginArrival(parcel.message).suspend() }
    try container.discardArrival(parcels.last!.message)
    #expect(try stagedCount(of: Parcel.sender, container) == Staging.countMax)
    try container.discardArrival(parcels[3].message)
    #expect(try stagedCount(of: Parcel.sender, container) == Staging.countMax - 1)
    // One in progress is its arrival's to discard.
    let arrival = try container.beginArrival(parcels[4].message)
    try container.discardArrival(parcels[4].message)
    #expect(try stagedCount(of: Parcel.sender, container) == Staging.countMax - 1)
    arrival.suspend()
  }

  private func stagedCount(of sender: String, _ container: Container) throws -> Int {
    let path = "/.opendynamics/staging/" + sender
    return try container.attributes(at: path) == nil ? 0 : container.list(path).count
  }

  // MARK: Full disks

  @Test func onAFullDiskWhatIsThereStays() throws {
    let fixture = try Fixture(durability: .grouped)
    let parcel = Parcel(sizes: [5 << 20])
    let arrival = try fixture.container.beginArrival(parcel.message)
    try parcel.addFiles(to: arrival)
    // The third write finds no room, which may be that of the second frame or, when a thread is late, of the first.
    let writes = Guarded(0)
    fixture.io.setFault { operation, _ in
      guard operation.takesSlabSpace, case .write = operation else { return nil }
      return writes.withLock { count in
        count += 1
        return count > 2 ? ENOSPC : nil
      }
    }
    expectError(.diskFull) { try parcel.append(to: arrival, pieceSize: 1 << 20) }
    fixture.io.setFault(nil)
    let received = arrival.received
    #expect([0, 1 << 20, 2 << 20].contains(received))
    expectError(.diskFull) { try parcel.append(to: arrival) }
    arrival.suspend()
    let again = try fixture.container.beginArrival(parcel.message)
    #expect(again.received == received)
    try parcel.addFiles(to: again)
    try parcel.append(to: again)
    #expect(try parcel.complaint(about: again.commit(), in: fixture.container) == nil)
    try fixture.container.close()
    #expect(try Container.verify(io: fixture.io, credential: testCredential()).findings == [])
  }

  /// Whatever happens while a unit is being written, what is kept is a beginning of the contents, and the arrival goes on from there.
  @Test(arguments: ["suspend", "discard", "close", "forget"])
  func endsWhileAUnitIsBeingWritten(how: String) throws {
    let fixture = try Fixture(durability: .grouped)
    let parcel = Parcel(sizes: [3 << 20, 100])
    let (began, goOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    let writes = Guarded(0)
    fixture.io.setFault { operation, _ in
      guard operation.takesSlabSpace, case .write = operation else { return nil }
      let isSecond = writes.withLock { count in
        count += 1
        return count == 2
      }
      if isSecond {
        began.signal()
        goOn.wait()
      }
      return nil
    }
    var arrival: Arrival? = try fixture.container.beginArrival(parcel.message)
    try parcel.addFiles(to: arrival!)
    try parcel.append(to: arrival!, until: 2 << 20, pieceSize: 1 << 20, waits: false)
    began.wait()
    DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(20)) { goOn.signal() }
    switch how {
    case "suspend": arrival!.suspend()
    case "discard": try arrival!.discard()
    case "close": try fixture.container.close()
    default: arrival = nil
    }
    arrival?.suspend()
    arrival = nil
    fixture.io.setFault(nil)
    try fixture.container.close()
    let container = try Container.open(fixture.io, .rawKey(7), mode: .readWrite)
    #expect(try container.verify().findings.isEmpty)
    let again = try container.beginArrival(parcel.message)
    // A container that is closed under an arrival has what was staged before.
    let kept: [UInt64] = how == "discard" ? [0] : how == "close" ? [0, 1 << 20] : [1 << 20, 2 << 20]
    #expect(kept.contains(again.received))
    try parcel.addFiles(to: again)
    try parcel.append(to: again)
    #expect(try parcel.complaint(about: again.commit(), in: container) == nil)
    try container.close()
    #expect(try Container.verify(io: fixture.io, credential: testCredential()).findings == [])
  }

  /// Only when much is to come, and as long as it is.
  @Test func givesSlabsTheirBlocksAheadForALargeMessage() throws {
    let fixture = try Fixture(durability: .grouped)
    let large = Parcel([("/large", [UInt8](repeating: 7, count: 17 << 20))], number: 1)
    let arrival = try fixture.container.beginArrival(large.message)
    try large.addFiles(to: arrival)
    #expect(fixture.io.preallocatedPaths.isEmpty)
    try large.append(to: arrival, until: 2 << 20)
    // Each thread that stores takes a slab of its own.
    let count = fixture.io.preallocatedPaths.count
    #expect(1...2 ~= count)
    // The last unit is written by a thread of the container, and meanwhile its slab is no other writer's. Both threads are free
    // when each has begun one of two pieces of work that wait for each other.
    let begun = Guarded(0)
    try fixture.container.store.workers.threads.forEach(2) { _, _ in
      begun.withLock { $0 += 1 }
      for _ in 0..<10_000 where begun.withLock({ $0 }) < 2 { usleep(1000) }
    }
    // What ends meanwhile takes nothing away.
    try Parcel(sizes: [100], number: 2).arrive(in: fixture.container)
    try large.append(to: arrival, from: 2 << 20, until: 3 << 20)
    try arrival.discard()
    #expect(fixture.io.preallocatedPaths.count <= 2)
    try fixture.container.close()
    #expect(try Container.verify(io: fixture.io, credential: testCredential()).findings == [])
  }

  @Test func aDiskThatFailsAtTheCommitLeavesAllOrNothing() throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [1 << 20, 7])
    let arrival = try fixture.container.beginArrival(parcel.message)
    try parcel.addFiles(to: arrival)
    try parcel.append(to: arrival)
    fixture.io.setFault { operation, _ in
      if case .synchronize(let path) = operation, path.hasPrefix("slab/") { EIO } else { nil }
    }
    expectError(.ioFailed) { try arrival.commit() }
    fixture.io.setFault(nil)
    // Nobody knows what the disk has.
    expectError(.readOnly) { try fixture.container.write([1], to: "/x") }
    #expect(try fixture.container.messageQueue().unhandled.isEmpty)
    #expect(try fixture.container.attributes(at: "/Inbox") == nil)
    arrival.suspend()
  }

  @Test func saysWhatThereIsRoomFor() throws {
    let native = TemporaryDirectory()
    let container = try Container.create(
      at: native.path + "/c", credential: testCredential(), options: testOptions())
    #expect(try container.availableByteCount() > 0)
    #expect(try container.availableByteCount() <= container.statistics().byteCount)
  }

  // MARK: Space

  /// What arrives is committed without syncs, which must not keep what the app removes afterwards from being given back.
  @Test func whatIsRemovedAfterAnArrivalIsGivenBack() throws {
    let fixture = try Fixture()
    let parcel = Parcel(sizes: [3 << 20])
    let queued = try parcel.arrive(in: fixture.container)
    #expect(fixture.io.slabSizes.values.reduce(0, +) > 3 << 20)
    try fixture.container.remove(try #require(queued.directory))
    #expect(fixture.io.slabSizes.values.reduce(0, +) < 1 << 20)
  }
}
