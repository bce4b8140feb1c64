import ContainerStore
import Testing

struct InboxTests {
  @Test func listsMessagesByDate() throws {
    let fixture = try Fixture()
    let container = fixture.container
    #expect(try container.arrivedMessages() == [])
    // By hand, since dates are those of arrivals.
    for directory in ["/Inbox/com.b/20240229T235959.999Z", "/Inbox/com.a/20240301T000000.000Z"] {
      try container.createDirectory(directory + "/deep", withIntermediateDirectories: true)
      try container.write([1, 2, 3], to: directory + "/deep/a")
      try container.write([4], to: directory + "/b")
    }
    let queued = try Parcel(sizes: [5, 0]).arrive(in: container)
    let messages = try container.arrivedMessages()
    #expect(messages.map(\.sender) == ["com.b", "com.a", Parcel.sender])
    // 2024-02-29T23:59:59.999Z and one millisecond later.
    #expect(messages[0].date == 1_709_251_199_999_000_000)
    #expect(messages[1].date == 1_709_251_200_000_000_000)
    #expect(messages[2].directory == queued.directory)
    #expect(messages.map(\.fileCount) == [2, 2, 2])
    #expect(messages.map(\.byteCount) == [4, 4, 5])
  }

  @Test(arguments: [
    "notes", "20240229", "20230229T000000.000Z", "20241301T000000.000Z", "20240101T240000.000Z",
    "20240101T000000.000", "20240101T0000000000", "x20240101T000000.000Z", "99990101T000000.000Z",
  ]) func otherDirectoriesInTheInboxAreNoMessages(name: String) throws {
    let container = try Fixture().container
    try container.createDirectory("/Inbox/com.a/\(name)", withIntermediateDirectories: true)
    #expect(try container.arrivedMessages() == [])
    expectError(.invalidArgument) { try container.removeArrivedMessages(["/Inbox/com.a/\(name)"]) }
  }

  @Test func removesMessagesInOneCommit() throws {
    let fixture = try Fixture()
    let container = fixture.container
    let queued = try (1...3).map { try Parcel(sizes: [5, 70_000], number: UInt64($0)).arrive(in: container) }
    let directories = queued.compactMap(\.directory)
    let commit = container.commit
    for path in ["/", "/Inbox", "/Inbox/\(Parcel.sender)", directories[1] + "/d0", "/other"] {
      expectError(.invalidArgument) { try container.removeArrivedMessages([directories[0], path]) }
    }
    #expect(container.commit == commit)
    try container.removeArrivedMessages([directories[0], directories[2]])
    #expect(container.commit == commit + 1)
    try container.removeArrivedMessages([directories[0]])
    #expect(try container.arrivedMessages().map(\.directory) == [directories[1]])
    // That it has arrived is still known.
    #expect(try Parcel([], number: 1).wasDelivered(to: container))
    #expect(try container.verify().findings == [])
  }
}
