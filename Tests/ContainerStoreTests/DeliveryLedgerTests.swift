import ContainerStore
import Foundation
import SodiumPrimitives
import Testing

struct DeliveryLedgerTests {
  private func arrive(_ numbers: [UInt64], in container: Container) throws {
    for number in numbers { try Parcel([], number: number).arrive(in: container) }
  }

  private func delivered(_ numbers: Range<UInt64>, in container: Container) throws -> [UInt64] {
    try numbers.filter {
      try container.wasDelivered(sender: Parcel.sender, incarnation: Parcel.incarnation, number: $0)
    }
  }

  @Test func theFloorRisesAndWhatIsBelowItCountsAsDelivered() throws {
    let fixture = try Fixture()
    let container = fixture.container
    try arrive([2, 5, 6, 9], in: container)
    #expect(try delivered(0..<11, in: container) == [2, 5, 6, 9])
    func raise(to floor: UInt64) throws {
      try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: Parcel.incarnation, to: floor)
    }
    try raise(to: 6)
    #expect(try delivered(0..<11, in: container) == [0, 1, 2, 3, 4, 5, 6, 9])
    // It never falls, and nothing is written for it.
    let commit = container.commit
    let count = fixture.io.log.count
    try raise(to: 6)
    try raise(to: 3)
    try raise(to: 0)
    #expect(container.commit == commit)
    #expect(fixture.io.log.count == count)
    #expect(try delivered(0..<11, in: container) == [0, 1, 2, 3, 4, 5, 6, 9])
    try raise(to: 10)
    #expect(try delivered(0..<11, in: container) == Array(0..<10))
    let reopened = try fixture.reopened()
    #expect(try delivered(0..<11, in: reopened) == Array(0..<10))
    #expect(try reopened.verify().findings == [])
  }

  @Test func sendersAndIncarnationsDoNotMix() throws {
    let container = try Fixture().container
    // One name is the beginning of the other.
    for sender in ["com.example.sender", "com.example.sender2"] {
      for byte in [0, 3] as [UInt8] {
        var parcel = Parcel([], number: UInt64(sender.utf8.count) + UInt64(byte), sender: sender)
        parcel.message.incarnation = Identifier(repeating: byte)
        try parcel.arrive(in: container)
      }
    }
    func numbers(_ sender: String, _ byte: UInt8) throws -> [UInt64] {
      try (0..<30).filter {
        try container.wasDelivered(
          sender: sender, incarnation: Identifier(repeating: byte), number: $0)
      }
    }
    #expect(try numbers("com.example.sender", 0) == [18])
    #expect(try numbers("com.example.sender", 3) == [21])
    #expect(try numbers("com.example.sender2", 0) == [19])
    #expect(try numbers("com.example.sender2", 3) == [22])
    try container.raiseDeliveryFloor(
      sender: "com.example.sender", incarnation: Identifier(repeating: 3), to: 22)
    #expect(try numbers("com.example.sender", 3) == Array(0..<22))
    #expect(try numbers("com.example.sender", 0) == [18])
    #expect(try numbers("com.example.sender2", 3) == [22])
    #expect(try numbers("com.example.sender2", 1) == [])
  }

  /// Nothing counts as delivered that is not there: neither another message under a number, nor one below the floor.
  @Test func knowsMessagesByTheirIDs() throws {
    let container = try Fixture().container
    try arrive([1, 2], in: container)
    func state(_ number: UInt64, id: UInt8, incarnation: Identifier = Parcel.incarnation) throws
      -> LedgerState
    {
      try container.ledgerState(
        sender: Parcel.sender, incarnation: incarnation, number: number,
        id: Identifier(repeating: id))
    }
    #expect(try state(1, id: 1) == .delivered)
    #expect(try state(2, id: 2) == .delivered)
    #expect(try state(2, id: 1) == .numberTaken)
    #expect(try state(3, id: 3) == .unknown)
    // A sender that drew another incarnation before it read that a message was committed.
    let other = Identifier(repeating: 0)
    let last = Identifier(repeating: 255)
    for incarnation in [other, last] {
      #expect(try state(2, id: 2, incarnation: incarnation) == .delivered)
      #expect(try state(7, id: 2, incarnation: incarnation) == .delivered)
      #expect(try state(2, id: 9, incarnation: incarnation) == .unknown)
    }
    try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: Parcel.incarnation, to: 3)
    #expect(try state(2, id: 2) == .numberTaken)
    #expect(try state(2, id: 9) == .numberTaken)
    #expect(try state(3, id: 9) == .unknown)
    var taken = Parcel([], number: 2)
    taken.message.id = Identifier(repeating: 9)
    #expect(throws: ContainerError.self) { try taken.arrive(in: container) }
    taken.message.incarnation = last
    try taken.arrive(in: container)
    #expect(try state(2, id: 9, incarnation: last) == .delivered)
  }

  /// The numbers go on under it, and what is in the outbox stays.
  @Test func drawsAnotherIncarnationOnce() throws {
    let fixture = try Fixture()
    let container = fixture.container
    let first = try container.outboxIncarnation()
    #expect(try container.outboxIncarnation() == first)
    let entry = try container.enqueue(
      OutgoingMessage(
        id: Identifier(repeating: 1), receiver: "com.example.b", message: [], attachments: []))
    let second = try container.outboxIncarnation(otherThan: first)
    #expect(second != first)
    #expect(try container.outboxIncarnation(otherThan: first) == second)
    let reopened = try fixture.reopened()
    #expect(try reopened.outboxIncarnation() == second)
    #expect(try reopened.outboxEntries() == [entry])
    let next = try reopened.enqueue(
      OutgoingMessage(
        id: Identifier(repeating: 2), receiver: "com.example.b", message: [], attachments: []))
    #expect(next.number == entry.number + 1)
  }

  @Test func theFloorTakesWhatIsStagedBelowIt() throws {
    let container = try Fixture().container
    let parcels = (4...6).map { Parcel(sizes: [1 << 20], number: UInt64($0)) }
    for parcel in parcels {
      let arrival = try container.beginArrival(parcel.message)
      try parcel.addFiles(to: arrival)
      try parcel.append(to: arrival)
    }
    try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: Parcel.incarnation, to: 6)
    #expect(try container.beginArrival(parcels[0].message).received == 0)
    #expect(try container.beginArrival(parcels[2].message).received == 1 << 20)
  }

  @Test func messagesQueueInTheOrderInWhichTheyArrived() throws {
    let fixture = try Fixture(durability: .grouped)
    let container = fixture.container
    try arrive([7, 3, 5], in: container)
    func ids(_ container: Container) throws -> [UInt8] {
      try container.queuedMessages().map { $0.id.bytes[0] }
    }
    #expect(try ids(container) == [7, 3, 5])
    let arrivals = try container.queuedMessages().map(\.arrival)
    #expect(arrivals == arrivals.sorted())
    try container.endQueued(arrivals[1])
    try container.endQueued(arrivals[1])
    #expect(try ids(container) == [7, 5])
    try container.endQueued(arrivals[0])
    try container.endQueued(arrivals[2])
    #expect(try ids(container) == [])
    let reopened = try fixture.reopened(durability: .grouped)
    try arrive([1], in: reopened)
    let next = try #require(try reopened.queuedMessages().first)
    // A number of the queue comes once.
    #expect(next.arrival > arrivals[2])
    #expect(try delivered(0..<9, in: reopened) == [1, 3, 5, 7])
  }
}
