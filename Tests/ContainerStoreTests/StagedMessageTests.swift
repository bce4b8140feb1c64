import OpenDynamicsTesting
import Testing

@testable import ContainerStore

/// What is staged of messages makes room for others.
struct StagedMessageTests {
  /// Of "a", which has staged most, two messages; of "b" one, the oldest; one more is under way.
  @Test func theLongestIdleOfWhoStagesMostGoesFirst() throws {
    let container = try Container.create(RecordingIO(), .rawKey(1))
    func stage(_ number: UInt64, of sender: String, _ size: Int) throws -> Arrival {
      let parcel = Parcel(sizes: [size], number: number, sender: sender)
      let arrival = try container.beginArrival(parcel.message)
      try parcel.addFiles(to: arrival)
      try parcel.append(to: arrival, until: size / 2)
      return arrival
    }
    try stage(1, of: "com.example.b", 400_000).suspend()
    try stage(2, of: "com.example.a", 2_000_000).suspend()
    try stage(3, of: "com.example.a", 2_000_000).suspend()
    let underWay = try stage(4, of: "com.example.c", 8_000_000)
    defer { underWay.suspend() }
    func senders() throws -> [String] { try container.stagedMessages().map(\.sender).sorted() }
    let all = try container.stagedMessages()
    #expect(all.map(\.isUnderWay).count { $0 } == 1)
    #expect(all.allSatisfy { $0.storedByteCount > 0 })
    let ofA = all.filter { $0.sender == "com.example.a" }.sorted { $0.changed < $1.changed }
    // Two messages' directories and a file in each.
    let stored = try container.storedByteCount(of: ["com.example.a"])
    #expect(stored == ofA.reduce(4 * 512) { $0 + $1.storedByteCount })

    try container.discardIdleArrivals(toFree: 1)
    let left = try container.stagedMessages()
    #expect(left.count == 3 && !left.map(\.staging.directory).contains(ofA[0].staging.directory))
    try container.discardIdleArrivals(toFree: 1, of: ["com.example.b"])
    #expect(try senders() == ["com.example.a", "com.example.c"])
    try container.discardIdleArrivals(toFree: .max)
    #expect(try senders() == ["com.example.a", "com.example.c"])
    try container.discardIdleArrivals(toFree: 1, keeping: ofA[1].key?.id)
    #expect(try senders() == ["com.example.a", "com.example.c"])
    try container.discardIdleArrivals(toFree: 1)
    #expect(try senders() == ["com.example.c"])
    #expect(try container.verify().findings == [])
  }

  @Test func whatHasArrivedCountsToo() throws {
    let container = try Container.create(RecordingIO(), .rawKey(1))
    let parcel = Parcel(sizes: [100_000, 0, 5])
    #expect(try container.storedByteCount(of: [Parcel.sender]) == 0)
    try parcel.arrive(in: container)
    let count = try container.storedByteCount(of: [Parcel.sender])
    #expect(count >= 100_005 && count <= parcel.message.storedByteCount + 10 * 512)
    #expect(try container.storedByteCount(of: ["com.example.other"]) == 0)
  }
}
