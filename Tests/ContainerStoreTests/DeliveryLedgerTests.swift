import EncryptedFile
import Foundation
import SodiumPrimitives
import Testing

@testable import ContainerStore

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
    #expect(try delivered(1..<11, in: container) == [2, 5, 6, 9])
    func raise(to floor: UInt64) throws {
      try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: Parcel.incarnation, to: floor)
    }
    try raise(to: 6)
    #expect(try delivered(1..<11, in: container) == [1, 2, 3, 4, 5, 6, 9])
    // It never falls, and nothing is written for it.
    let commit = container.commit
    let count = fixture.io.log.count
    try raise(to: 6)
    try raise(to: 3)
    try raise(to: 0)
    #expect(container.commit == commit)
    #expect(fixture.io.log.count == count)
    #expect(try delivered(1..<11, in: container) == [1, 2, 3, 4, 5, 6, 9])
    try raise(to: 10)
    #expect(try delivered(1..<11, in: container) == Array(1..<10))
    let reopened = try fixture.reopened()
    #expect(try delivered(1..<11, in: reopened) == Array(1..<10))
    #expect(try reopened.verify().findings == [])
  }

  @Test func sendersDoNotMix() throws {
    let container = try Fixture().container
    // One name is the beginning of the other.
    let senders = ["com.example.sender", "com.example.sender2"]
    for sender in senders {
      try Parcel([], number: UInt64(sender.utf8.count), sender: sender).arrive(in: container)
    }
    func numbers(_ sender: String) throws -> [UInt64] {
      try (1..<30).filter {
        try container.wasDelivered(sender: sender, incarnation: Parcel.incarnation, number: $0)
      }
    }
    #expect(try numbers(senders[0]) == [18])
    #expect(try numbers(senders[1]) == [19])
    try container.raiseDeliveryFloor(sender: senders[0], incarnation: Parcel.incarnation, to: 22)
    #expect(try numbers(senders[0]) == Array(1..<22))
    #expect(try numbers(senders[1]) == [19])
    #expect(try numbers("com.example") == [])
  }

  private func answer(
    _ container: Container, _ number: UInt64, id: UInt8, _ incarnation: Incarnation = Parcel.incarnation
  ) throws -> LedgerAnswer {
    try container.ledger(
      sender: Parcel.sender, incarnation: incarnation, number: number, id: Identifier(repeating: id))
  }

  private func incarnation(_ generation: UInt64, _ draw: UInt8 = 3) -> Incarnation {
    Incarnation(generation: generation, draw: Identifier(repeating: draw))!
  }

  /// Nothing counts as delivered that is not there: neither another message under a number, nor one below the floor.
  @Test func knowsMessagesByTheirIDs() throws {
    let container = try Fixture().container
    try arrive([1, 2], in: container)
    func state(_ number: UInt64, id: UInt8) throws -> LedgerAnswer.State {
      try answer(container, number, id: id).state
    }
    #expect(try state(1, id: 1) == .delivered)
    #expect(try state(2, id: 2) == .delivered)
    #expect(try state(2, id: 1) == .numberTaken)
    #expect(try state(3, id: 3) == .unknown)
    try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: Parcel.incarnation, to: 3)
    // Its id is remembered for a while.
    #expect(try state(2, id: 2) == .delivered)
    #expect(try state(2, id: 9) == .numberTaken)
    #expect(try state(3, id: 9) == .unknown)
    var taken = Parcel([], number: 2)
    taken.message.id = Identifier(repeating: 9)
    #expect(throws: ArrivalNumberTaken(generation: 2)) { try taken.arrive(in: container) }
    taken.message.incarnation = incarnation(3)
    try taken.arrive(in: container)
    #expect(try answer(container, 2, id: 9, incarnation(3)).state == .delivered)
    #expect(try container.verify().findings == [])
  }

  /// A container that was put back draws a generation above the one that the receiver has seen; copies of it draw others.
  @Test func onlyTheNewestIncarnationGoesOn() throws {
    let container = try Fixture().container
    #expect(try answer(container, 1, id: 1) == LedgerAnswer(state: .unknown, generation: 0, arrivedCount: 0))
    try arrive([1, 2, 7], in: container)
    #expect(try answer(container, 8, id: 8) == LedgerAnswer(state: .unknown, generation: 2, arrivedCount: 3))
    for other in [incarnation(1), incarnation(2, 4)] {
      #expect(
        try answer(container, 8, id: 8, other)
          == LedgerAnswer(state: .numberTaken, generation: 2, arrivedCount: nil))
      // What is there is there.
      #expect(try answer(container, 7, id: 7, other).state == .delivered)
    }
    let newer = incarnation(9)
    #expect(
      try answer(container, 2, id: 20, newer) == LedgerAnswer(state: .unknown, generation: 2, arrivedCount: 0)
    )
    #expect(try answer(container, 2, id: 2, newer).state == .delivered)
    var parcel = Parcel([], number: 3)
    parcel.message.incarnation = newer
    try parcel.arrive(in: container)
    #expect(
      try answer(container, 4, id: 4, newer) == LedgerAnswer(state: .unknown, generation: 9, arrivedCount: 1))
    // Another message of then had the number.
    #expect(try answer(container, 7, id: 70, newer).state == .unknown)
    #expect(
      try answer(container, 8, id: 8) == LedgerAnswer(state: .numberTaken, generation: 9, arrivedCount: nil))
    // A floor of an incarnation that has gone is none; one of a newer one begins it.
    try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: Parcel.incarnation, to: 9)
    #expect(try answer(container, 4, id: 4, newer).state == .unknown)
    let newest = incarnation(10)
    try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: newest, to: 5)
    #expect(try answer(container, 4, id: 4, newer).state == .numberTaken)
    #expect(
      try answer(container, 4, id: 4, newest)
        == LedgerAnswer(state: .numberTaken, generation: 10, arrivedCount: 0)
    )
    #expect(try answer(container, 5, id: 5, newest).state == .unknown)
    #expect(try container.verify().findings == [])
  }

  /// Nobody takes the last generation, and leaves those that come after under this id without one.
  @Test func aGenerationIsNotFarAboveTheNewest() throws {
    let container = try Fixture().container
    try arrive([1], in: container)
    let far = incarnation(3 + 1 << 20)
    #expect(try answer(container, 2, id: 2, far).state == .numberTaken)
    try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: far, to: 2)
    #expect(try answer(container, 2, id: 2).state == .unknown)
    #expect(try answer(container, 2, id: 2, incarnation(2 + 1 << 20)).state == .unknown)
    // Nor is the first one of a sender.
    for (generation, state) in [(1 << 20, .unknown), (1 + 1 << 20, .numberTaken)]
      as [(UInt64, LedgerAnswer.State)]
    {
      let answer = try container.ledger(
        sender: "com.example.new", incarnation: incarnation(generation), number: 1,
        id: Identifier(repeating: 1))
      #expect(answer == LedgerAnswer(state: state, generation: 0, arrivedCount: 0), "\(generation)")
    }
  }

  /// Another copy of the sender's container goes on under a newer incarnation while a message arrives: what was taken is not sent
  /// again, else two copies with long messages would put each other off without end.
  @Test(arguments: [2, 4] as [UInt64], [nil, 1_000 as UInt64])
  func aNewerIncarnationEndsNoMessageThatArrives(generation: UInt64, floor: UInt64?) throws {
    let container = try Fixture().container
    let parcel = Parcel(sizes: [100_000], number: 2)
    let arrival = try container.beginArrival(parcel.message)
    try parcel.addFiles(to: arrival)
    try parcel.append(to: arrival)
    // The generation is the same when both copies draw their first incarnation.
    let other = incarnation(generation, 4)
    var newer = Parcel([], number: 2)
    newer.message.id = Identifier(repeating: 40)
    newer.message.incarnation = other
    try newer.arrive(in: container)
    if let floor {
      try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: other, to: floor)
    }
    #expect(try arrival.commit().id == parcel.message.id)
    #expect(arrival.arrivedCount == 0)
    #expect(try answer(container, 2, id: 2).state == .delivered)
    #expect(try answer(container, 3, id: 3).state == .numberTaken)
    #expect(
      try answer(container, 1_000, id: 3, other)
        == LedgerAnswer(state: .unknown, generation: generation, arrivedCount: 1))
    #expect(try container.verify().findings == [])
    try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: other, to: 2_000)
    #expect(try container.verify().findings == [])
  }

  /// Two copies that go on under one incarnation have different messages under a number: that is no failure of the container.
  @Test(arguments: [nil, 3 as UInt64])
  func aMessageThatLostItsNumberWhileItArrivedSaysSo(floor: UInt64?) throws {
    let container = try Fixture().container
    try arrive([1], in: container)
    let parcel = Parcel(sizes: [100_000], number: 2)
    let arrival = try container.beginArrival(parcel.message)
    try parcel.addFiles(to: arrival)
    try parcel.append(to: arrival)
    if let floor {
      try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: Parcel.incarnation, to: floor)
    } else {
      var other = Parcel([], number: 2)
      other.message.id = Identifier(repeating: 40)
      try other.arrive(in: container)
    }
    #expect(throws: ArrivalNumberTaken(generation: 2)) { try arrival.commit() }
    arrival.suspend()
    var again = parcel
    again.message.incarnation = incarnation(4)
    #expect(try again.complaint(about: again.arrive(in: container), in: container) == nil)
    #expect(try container.verify().findings == [])
  }

  /// 256 numbers below the floor: a message that comes once more is known as long as that.
  @Test func remembersTheLastIDs() throws {
    let container = try Fixture().container
    try arrive([1, 2, 255, 300, 301], in: container)
    func remembered(_ floor: UInt64) throws -> [UInt64] {
      try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: Parcel.incarnation, to: floor)
      #expect(try container.verify().findings == [])
      return try [1, 2, 255, 300, 301].filter {
        try answer(container, $0, id: UInt8(truncatingIfNeeded: $0)).state == .delivered
      }
    }
    #expect(try remembered(257) == [1, 2, 255, 300, 301])
    #expect(try !answer(container, 1, id: 9, incarnation(3)).mayBeForgotten)
    #expect(try remembered(258) == [2, 255, 300, 301])
    #expect(try answer(container, 1, id: 9, incarnation(3)).mayBeForgotten)
    #expect(try !answer(container, 2, id: 9, incarnation(3)).mayBeForgotten)
    #expect(try remembered(259) == [255, 300, 301])
    #expect(try remembered(557) == [301])
    #expect(try remembered(1 << 40) == [])
    try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: incarnation(3), to: 2)
    #expect(try answer(container, 1 << 40 - 257, id: 9, incarnation(4)).mayBeForgotten)
    #expect(try !answer(container, 1 << 40 - 256, id: 9, incarnation(4)).mayBeForgotten)
  }

  @Test func refusesASenderThatLetsNothingBeForgotten() throws {
    let container = try Fixture().container
    try arrive([1], in: container)
    func count(_ count: UInt64) throws {
      try container.store.transaction { transaction in
        let sender = FileName(Parcel.sender)!
        var record = try #require(try transaction.senderRecord(sender))
        record.deliveryCount = count
        transaction.put(.sender(sender), record.encoded)
      }
    }
    try count(SenderRecord.deliveryCountMax)
    #expect(throws: ArrivalLimit.deliveries) { try arrive([2], in: container) }
    try count(SenderRecord.deliveryCountMax - 1)
    try arrive([2], in: container)
  }

  // MARK: The outbox

  private func message(_ id: UInt8, to receiver: String = "com.example.b") -> OutgoingMessage {
    OutgoingMessage(id: Identifier(repeating: id), receiver: receiver, message: [], attachments: [])
  }

  /// The numbers go on under it, what is in the outbox stays, and other receivers have theirs.
  @Test func drawsAnotherIncarnationOnce() throws {
    let fixture = try Fixture()
    let container = fixture.container
    let entry = try container.enqueue(message(1))
    _ = try container.enqueue(message(2, to: "com.example.c"))
    let first = try container.outboxReceiver("com.example.b")
    #expect(first.incarnation.generation == 1 && first.firstNumber == 1 && first.delivered == 0)
    let other = try container.outboxReceiver("com.example.c")
    #expect(other.incarnation.draw != first.incarnation.draw && other.firstNumber == 2)
    func drawn(_ taken: Incarnation, _ generation: UInt64) throws -> OutboxReceiver {
      try container.outboxReceiver("com.example.b", notUnder: taken, generationAbove: generation)
    }
    let second = try drawn(first.incarnation, 1)
    #expect(second.incarnation.generation == 2 && second.firstNumber == 3)
    #expect(try drawn(first.incarnation, 1) == second)
    // Another copy of the container has drawn one of the same generation, or a greater one.
    let third = try drawn(second.incarnation, 2)
    #expect(third.incarnation.generation == 3)
    #expect(try drawn(first.incarnation, 3) == third)
    #expect(try drawn(first.incarnation, 7).incarnation.generation == 8)
    let reopened = try fixture.reopened()
    #expect(try reopened.outboxReceiver("com.example.b").incarnation.generation == 8)
    #expect(try reopened.outboxReceiver("com.example.c") == other)
    #expect(try reopened.outboxEntries().first == entry)
    #expect(try reopened.enqueue(message(3)).number == 3)
    #expect(throws: ContainerError.self) {
      try reopened.outboxReceiver("com.example.b", notUnder: first.incarnation, generationAbove: 1 << 62 - 1)
    }
    #expect(try reopened.verify().findings == [])
  }

  @Test func keepsWhatAReceiverSaysThatItHas() throws {
    let container = try Fixture().container
    for id in 1...4 as ClosedRange<UInt8> { _ = try container.enqueue(message(id)) }
    let incarnation = try container.outboxReceiver("com.example.b").incarnation
    func delivered() throws -> UInt64 { try container.outboxReceiver("com.example.b").delivered }
    func settle(_ number: UInt64, _ count: UInt64, _ incarnation: Incarnation) throws {
      try container.settleOutbox(number, has: DeliveryReceipt(incarnation: incarnation, count: count))
    }
    try settle(2, 2, incarnation)
    #expect(try delivered() == 2)
    try settle(1, 1, incarnation)
    #expect(try delivered() == 2)
    // What was never sent nobody has.
    try settle(3, 1 << 61, incarnation)
    #expect(try delivered() == 4)
    try container.setPutBack("com.example.b", has: DeliveryReceipt(incarnation: incarnation, count: 1))
    #expect(try delivered() == 1)
    try settle(4, 4, self.incarnation(1))
    #expect(try delivered() == 1)
    try container.setPutBack(
      "com.example.b", has: DeliveryReceipt(incarnation: self.incarnation(1), count: 0))
    #expect(try delivered() == 1)
    _ = try container.outboxReceiver("com.example.b", notUnder: incarnation, generationAbove: 1)
    #expect(try delivered() == 0)
    #expect(try container.verify().findings == [])
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

  /// It may be of another incarnation than the one that says so.
  @Test func theFloorLeavesWhatArrives() throws {
    let container = try Fixture().container
    let parcel = Parcel(sizes: [1 << 20], number: 5)
    let arrival = try container.beginArrival(parcel.message)
    try parcel.addFiles(to: arrival)
    try parcel.append(to: arrival, until: 1 << 19)
    let older = try #require(Incarnation(generation: 1, draw: Identifier.random()))
    try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: older, to: 6)
    try parcel.append(to: arrival)
    #expect(try parcel.complaint(about: arrival.commit(), in: container) == nil)
  }

  @Test func messagesQueueInTheOrderInWhichTheyArrived() throws {
    let fixture = try Fixture(durability: .grouped)
    let container = fixture.container
    try arrive([7, 3, 5], in: container)
    func ids(_ container: Container) throws -> [UInt8] {
      try container.messageQueue().unhandled.map { $0.id.bytes[0] }
    }
    #expect(try ids(container) == [7, 3, 5])
    let arrivals = try container.messageQueue().unhandled.map(\.arrival)
    #expect(arrivals == arrivals.sorted())
    try container.endQueued(arrivals[1])
    try container.endQueued(arrivals[1])
    #expect(try ids(container) == [7, 5])
    try container.endQueued(arrivals[0])
    try container.endQueued(arrivals[2])
    #expect(try ids(container) == [])
    let reopened = try fixture.reopened(durability: .grouped)
    try arrive([1], in: reopened)
    let next = try #require(try reopened.messageQueue().unhandled.first)
    // A number of the queue comes once.
    #expect(next.arrival > arrivals[2])
    #expect(try delivered(1..<9, in: reopened) == [1, 3, 5, 7])
  }

  @Test func whatWasHandledWaitsForItsReply() throws {
    let fixture = try Fixture(durability: .grouped)
    let container = fixture.container
    try arrive([7, 3], in: container)
    let arrivals = try container.messageQueue().unhandled.map(\.arrival)
    try container.keepForReply(arrivals[0])
    try container.keepForReply(arrivals[0])
    #expect(try container.messageQueue().unhandled.map(\.arrival) == [arrivals[1]])
    let bare = Identifier(repeating: 8)
    let kept = try container.enqueueForReply(bare, from: Parcel.sender, [1, 2], isHandled: true)
    let unhandled = try container.enqueueForReply(bare, from: Parcel.sender, [3], isHandled: false)
    expectError(.invalidName) { try container.enqueueForReply(bare, from: "a/b", [], isHandled: true) }
    expectError(.invalidArgument) {
      try container.enqueueForReply(
        bare, from: Parcel.sender, [UInt8](repeating: 0, count: 2 << 20 + 1), isHandled: true)
    }

    let reopened = try fixture.reopened(durability: .grouped)
    #expect(try reopened.messageQueue().unhandled.map(\.arrival) == [arrivals[1], unhandled])
    let answerable = try reopened.messageQueue().answerable
    #expect(answerable.map(\.arrival) == [arrivals[0], kept])
    #expect(answerable.last == AnswerableMessage(arrival: kept, id: bare, sender: Parcel.sender))
    let read = try #require(try reopened.queuedMessage(kept))
    #expect(read.message == [1, 2] && read.files.isEmpty && read.directory == nil)
    #expect(try reopened.queuedMessage(arrivals[0])?.arrival == arrivals[0])
    try reopened.endQueued(kept)
    try reopened.endQueued(arrivals[0])
    try reopened.keepForReply(kept)
    #expect(try reopened.messageQueue().answerable.isEmpty)
    #expect(try reopened.queuedMessage(kept) == nil)
    // The ledger does not know what did not come as a delivery.
    #expect(try delivered(1..<9, in: reopened) == [3, 7])
  }

  // MARK: Inside one process

  @Test func remembersOnlyARequestThatTheSenderNamed() throws {
    let (sender, receiver) = (try Fixture(key: 9).container, try Fixture().container)
    try sender.write([1, 2, 3], to: "/Zebra")
    var options = SendOptions()
    for requestID in [nil, "request"] {
      options.requestID = requestID
      let receipt = try sender.send(["/Zebra"], to: receiver, sender: "com.example.a", options: options)
      #expect(receipt.requestID == requestID && !receipt.wasDeliveredBefore)
      let remembered = try receiver.store.withSnapshot {
        try $0.records(CatalogKey(bytes: [CatalogKey.Kind.deliveryByRequest.rawValue])).count
      }
      #expect(remembered == (requestID == nil ? 0 : 1))
    }
    #expect(try receiver.arrivedMessages().count == 2)
    #expect(try receiver.verify().findings == [])
  }
}
