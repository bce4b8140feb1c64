import ContainerStore
import SodiumPrimitives
import TestSupport
import Testing

/// What is under way in the golden container `v3-deliveries` is there, and goes on: see Fixtures/Containers/README.md.
struct GoldenDeliveriesTests {
  private static let receiver = "com.example.receiver"
  private static let otherSender = "com.example.other"
  private static let settled = Parcel(sizes: [20_000, 0, 300], number: 1)
  private static let queued = Parcel(
    [("/folder/letter", testBytes(40_000, seed: 2))], number: 2, text: testBytes(70_000, seed: 5))
  private static let bare = Parcel([], number: 9, sender: otherSender, text: [9])
  private static let staged = Parcel(sizes: [70_000, 100_000], number: 4)
  private static let stagedByteCount = 70_000 + 65_536
  private static let folder = (0..<3).map { testBytes(30_000, seed: UInt64(20 + $0)) }

  private static func outgoing(_ number: UInt8, _ attachments: [String]) -> OutgoingMessage {
    OutgoingMessage(
      id: Identifier(repeating: number), receiver: number == 3 ? otherSender : receiver,
      message: testBytes(number == 1 ? 40_000 : 100, seed: UInt64(number)), attachments: attachments)
  }

  /// One of today is checked in the same way.
  enum Origin: CaseIterable, Sendable {
    case golden, madeNow
  }

  /// Makes one as the golden one is: this is how that was made.
  func make(at path: String) throws {
    var container = try Container.create(at: path, credential: testCredential(), options: testOptions())
    func reopen() throws {
      try container.close()
      container = try Container.open(at: path, credential: testCredential())
    }
    try container.createDirectory("/d")
    for (index, bytes) in Self.folder.enumerated() { try container.write(bytes, to: "/d/\(index)") }
    _ = try container.enqueue(Self.outgoing(1, ["/d"]), mayBeOffered: true)
    // The versions of then are pinned.
    try container.write(testBytes(500, seed: 30), to: "/d/0")
    try container.remove("/d/1")
    try reopen()
    _ = try container.enqueue(Self.outgoing(2, ["/d/0"]))
    let third = try container.enqueue(Self.outgoing(3, []))
    try container.settleOutbox(third.number)

    func arrive(_ parcel: Parcel) throws -> QueuedMessage {
      let arrival = try container.beginArrival(parcel.message)
      try parcel.addFiles(to: arrival)
      try parcel.append(to: arrival)
      return try arrival.commit()
    }
    try container.endQueued(arrive(Self.settled).arrival)
    try reopen()
    _ = try arrive(Self.queued)
    _ = try arrive(Self.bare)
    try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: Parcel.incarnation, to: 2)
    let arrival = try container.beginArrival(Self.staged.message)
    try Self.staged.addFiles(to: arrival)
    try Self.staged.append(to: arrival, until: Self.stagedByteCount + 100)
    arrival.suspend()
    try container.close()
  }

  private func container(_ origin: Origin) throws -> (TemporaryDirectory, Container) {
    guard origin == .golden else {
      let directory = TemporaryDirectory()
      let path = directory.path + "/container"
      try make(at: path)
      return (directory, try Container.open(at: path, credential: testCredential(), options: testOptions()))
    }
    let directory = try GoldenContainerTests().copyOfGolden("v3-deliveries")
    let key = try GoldenContainerTests().secret("key", "v3-deliveries")
    return (directory, try Container.open(at: directory.path + "/container", credential: .rawKey(key)))
  }

  @Test(arguments: Origin.allCases) func hasTheOutbox(origin: Origin) throws {
    let (directory, container) = try container(origin)
    defer { withExtendedLifetime(directory) {} }
    let entries = try container.outboxEntries()
    #expect(entries.map(\.number) == [1, 2])
    #expect(entries.map(\.mayBeOffered) == [true, false])
    #expect(entries.map(\.receiver) == [Self.receiver, Self.receiver])
    #expect(try container.outboxMessage(1) == testBytes(40_000, seed: 1))
    #expect(
      try container.outboxFiles(1, from: 0, limit: 10).map { String(decoding: $0.path, as: UTF8.self) }
        == ["/d/0", "/d/1", "/d/2"])
    // As they were when they were sent.
    #expect(try container.readOutbox(1) == Self.folder.flatMap { $0 })
    #expect(try container.readOutbox(2) == testBytes(500, seed: 30))
    #expect(try container.enqueue(Self.outgoing(4, [])).number == 4)
    for number: UInt64 in [1, 2, 4] { try container.settleOutbox(number) }
    #expect(try container.verify().findings.isEmpty)
  }

  @Test(arguments: Origin.allCases) func knowsWhatArrived(origin: Origin) throws {
    let (directory, container) = try container(origin)
    defer { withExtendedLifetime(directory) {} }
    for (parcel, wasDelivered) in [
      (Self.settled, true), (Self.queued, true), (Self.bare, true), (Self.staged, false),
    ] {
      #expect(
        try container.wasDelivered(
          sender: parcel.message.sender, incarnation: Parcel.incarnation, number: parcel.message.number)
          == wasDelivered)
    }
    let messages = try container.messageQueue().unhandled
    #expect(messages.map(\.id) == [Self.queued.message.id, Self.bare.message.id])
    #expect(messages.map(\.message) == [testBytes(70_000, seed: 5), [9]])
    let letter = try #require(messages.first?.files.first)
    #expect(letter.path.hasSuffix("/folder/letter"))
    #expect(try container.contents(at: letter.path) == testBytes(40_000, seed: 2))
    for message in messages { try container.endQueued(message.arrival) }
    #expect(try container.messageQueue().unhandled.isEmpty)
    #expect(try container.verify().findings.isEmpty)
  }

  @Test(arguments: Origin.allCases) func goesOnWithWhatIsStaged(origin: Origin) throws {
    let (directory, container) = try container(origin)
    defer { withExtendedLifetime(directory) {} }
    let arrival = try container.beginArrival(Self.staged.message)
    try Self.staged.addFiles(to: arrival)
    #expect(arrival.received == UInt64(Self.stagedByteCount))
    try Self.staged.append(to: arrival)
    let message = try arrival.commit()
    #expect(
      try message.files.flatMap { try container.contents(at: $0.path) } == Self.staged.contents)
    #expect(try container.verify().findings.isEmpty)
  }
}
