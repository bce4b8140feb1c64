import EncryptedFile
import SodiumPrimitives
import Testing

@testable import ContainerStore

/// A container in which everything that is kept of deliveries stands, and nothing is wrong.
struct DeliveredFixture {
  let fixture: Fixture
  var container: Container { fixture.container }
  /// In the queue: one without files, and one whose contents take two records.
  let arrivals: [UInt64]

  static let key = DeliveryKey(
    sender: FileName(Parcel.sender)!, number: 6, id: Identifier(repeating: 6))

  init(_ given: Fixture? = nil) throws {
    fixture = try given ?? Fixture()
    let container = fixture.container
    for number in [2, 5] as [UInt64] {
      let queued = try Parcel([], number: number).arrive(in: container)
      try container.endQueued(queued.arrival)
    }
    try container.raiseDeliveryFloor(sender: Parcel.sender, incarnation: Parcel.incarnation, to: 5)
    let large = Parcel(
      [("/d/file", [7]), ("/empty", []), ("/other", [8, 9])], number: 6, text: testBytes(40_000, seed: 1))
    arrivals = try [Parcel([], number: 5_000), large].map { try $0.arrive(in: container).arrival }
    let sender = try Fixture(key: 9).container
    try sender.write([1], to: "/letter")
    _ = try sender.send(["/letter"], to: container, sender: Parcel.sender)
    let staged = Parcel(sizes: [1 << 20], number: 7)
    let arrival = try container.beginArrival(staged.message)
    try staged.addFiles(to: arrival)
    try staged.append(to: arrival)
    arrival.suspend()
  }
}

typealias Mistake = (name: String, change: @Sendable (Transaction, [UInt64]) throws -> Void)

extension Transaction {
  func edit(_ key: CatalogKey, _ change: (inout [UInt8]) throws -> Void) throws {
    var value = try value(key)!
    try change(&value)
    put(key, value)
  }

  fileprivate func editSender(_ change: (inout SenderRecord) -> Void) throws {
    try edit(.sender(key.sender)) { value in
      var record = try SenderRecord(value)
      change(&record)
      value = record.encoded
    }
  }

  fileprivate func editQueued(_ arrival: UInt64, _ change: (inout QueuedRecord) -> Void) throws {
    try edit(.queued(arrival)) { value in
      var record = try QueuedRecord(value)
      change(&record)
      value = record.encoded
    }
  }
}

private let key = DeliveredFixture.key
private func bytes(_ kind: CatalogKey.Kind, _ rest: [UInt8]) -> CatalogKey {
  CatalogKey(bytes: [kind.rawValue] + rest)
}

/// Each makes something of the fixture false; both readers have to find it.
let deliveryMistakes: [Mistake] = [
  ("a sender that is too short", { t, _ in t.put(.sender(key.sender), [1]) }),
  ("a floor of 0", { t, _ in try t.editSender { $0.floor = 0 } }),
  ("a sender that cannot be", { t, _ in t.put(bytes(.sender, [0x2f]), try t.value(.sender(key.sender))!) }),
  ("a sender without a name", { t, _ in t.put(bytes(.sender, []), try t.value(.sender(key.sender))!) }),
  ("a floor far above a delivery", { t, _ in try t.editSender { ($0.floor, $0.forgotten) = (6 + 257, 7) } }),
  ("a sender that has forgotten too little", { t, _ in try t.editSender { $0.floor = 259 } }),
  ("more deliveries than have arrived", { t, _ in try t.editSender { $0.arrivedCount = 3 } }),
  ("a delivery of a newer generation", { t, _ in try t.edit(.delivery(key)) { $0[0] = 3 } }),
  ("a delivery of generation 0", { t, _ in try t.edit(.delivery(key)) { $0[0] = 0 } }),
  ("another count of deliveries", { t, _ in try t.editSender { $0.deliveryCount += 1 } }),
  ("deliveries of nobody", { t, _ in t.delete(.sender(key.sender)) }),
  ("a delivery with more", { t, _ in try t.edit(.delivery(key)) { $0 += [0] } }),
  (
    "a delivery without a number",
    { t, _ in
      t.put(
        CatalogKey.deliveries(of: key.sender),
        NumberedDelivery(incarnation: Parcel.incarnation, time: 1).encoded)
    }
  ),
  (
    "a delivery with number 0",
    { t, _ in
      t.put(
        .delivery(DeliveryKey(sender: key.sender, number: 0, id: key.id)),
        NumberedDelivery(incarnation: Parcel.incarnation, time: 1).encoded)
    }
  ),
  ("a request without an id", { t, _ in t.put(bytes(.deliveryByRequest, [1, 97]), []) }),
  (
    "a request of another sender than its directory",
    { t, _ in
      let delivery = Delivery(time: 1, fileCount: 0, byteCount: 0, path: "/Inbox/com.example.other/x")
      t.put(.delivery(sender: key.sender.bytes, request: [97]), delivery.encoded)
    }
  ),
  (
    "a request that ends early",
    { t, _ in t.put(.delivery(sender: key.sender.bytes, request: [97]), [1, 2]) }
  ),
  ("a queued message of one byte", { t, arrivals in t.put(.queued(arrivals[0]), [1]) }),
  (
    "a queued message without a number",
    { t, arrivals in t.put(bytes(.queued, [1, 2]), try t.value(.queued(arrivals[0]))!) }
  ),
  (
    "a queued message that was never numbered",
    { t, arrivals in t.put(.queued(1 << 40), try t.value(.queued(arrivals[0]))!) }
  ),
  (
    "a queued message with the number of a file",
    { t, arrivals in t.put(.queued(rootFileID), try t.value(.queued(arrivals[0]))!) }
  ),
  (
    "a queued message with reserved bytes", { t, arrivals in try t.edit(.queued(arrivals[0])) { $0[29] = 1 } }
  ),
  (
    "a queued message in a state that cannot be",
    { t, arrivals in try t.edit(.queued(arrivals[0])) { $0[28] = 4 } }
  ),
  (
    "a longer message than there is",
    { t, arrivals in try t.editQueued(arrivals[1]) { $0.messageByteCount += 100 } }
  ),
  (
    "a shorter message than there is",
    { t, arrivals in try t.editQueued(arrivals[0]) { $0.messageByteCount -= 1 } }
  ),
  ("more files than there are", { t, arrivals in try t.editQueued(arrivals[1]) { $0.fileCount += 1 } }),
  ("fewer files than there are", { t, arrivals in try t.editQueued(arrivals[1]) { $0.fileCount -= 1 } }),
  (
    "files in another sender's directory",
    { t, arrivals in try t.editQueued(arrivals[1]) { $0.directory = Array("/Inbox/a/b".utf8) } }
  ),
  ("no contents", { t, arrivals in t.delete(.queuedMessage(arrivals[0], chunk: 0)) }),
  ("contents without their beginning", { t, arrivals in t.delete(.queuedMessage(arrivals[1], chunk: 0)) }),
  ("contents without their end", { t, arrivals in t.delete(.queuedMessage(arrivals[1], chunk: 1)) }),
  ("contents with an empty part", { t, arrivals in t.put(.queuedMessage(arrivals[0], chunk: 1), []) }),
  (
    "contents in parts of other lengths",
    { t, arrivals in
      let last = try t.value(.queuedMessage(arrivals[1], chunk: 1))!
      try t.edit(.queuedMessage(arrivals[1], chunk: 0)) { $0.removeLast() }
      t.put(.queuedMessage(arrivals[1], chunk: 1), [0] + last)
    }
  ),
  ("contents of nothing", { t, arrivals in t.delete(.queued(arrivals[1])) }),
  ("contents without a number", { t, _ in t.put(bytes(.queuedMessage, [1]), [1]) }),
  ("contents without a part", { t, arrivals in t.put(.queuedMessages(arrivals[0]), [1]) }),
]

struct DeliveryCheckTests {
  @Test func findsNothingWhereNothingIsWrong() throws {
    let delivered = try DeliveredFixture()
    #expect(try delivered.container.messageQueue().unhandled.map(\.arrival) == delivered.arrivals)
    let reopened = try delivered.fixture.reopened(mode: .readOnly)
    #expect(try reopened.verify().findings == [])
    #expect(try !reopened.staged().isEmpty)
  }

  @Test(arguments: deliveryMistakes.indices)
  func verifyTellsWhatCannotBe(mistake: Int) throws {
    let delivered = try DeliveredFixture()
    let container = delivered.container
    try container.store.transaction { try deliveryMistakes[mistake].change($0, delivered.arrivals) }
    let findings = try container.verify().findings
    #expect(findings.contains { $0.severity == .damage }, "\(deliveryMistakes[mistake].name)")
    #expect(findings.allSatisfy { $0.kind == .catalogInconsistent }, "\(findings)")
  }

  @Test func theRestOfTheQueueIsThereBesideADamagedMessage() throws {
    let delivered = try DeliveredFixture()
    let container = delivered.container
    let (small, large) = (delivered.arrivals[0], delivered.arrivals[1])
    try container.store.transaction { transaction in
      transaction.delete(.queuedMessage(large, chunk: 1))
      transaction.put(bytes(.queued, [1]), [])
    }
    expectError(.catalogDamaged) { try container.messageQueue().unhandled }
    var skipped: [ContainerError] = []
    #expect(try container.messageQueue(skipping: { skipped.append($0) }).unhandled.map(\.arrival) == [small])
    #expect(skipped.count == 2 && skipped.allSatisfy { $0.code == .catalogDamaged })
    #expect(skipped.contains { $0.detail?.contains("message \(large)") == true }, "\(skipped)")
    // It stays where it is.
    #expect(try container.verify().hasDamage)
  }

  @Test func theRestOfTheOutboxIsThereBesideADamagedMessage() throws {
    let fixture = try Fixture()
    func message(_ id: UInt8) -> OutgoingMessage {
      OutgoingMessage(
        id: Identifier(repeating: id), receiver: "com.example", message: [id], attachments: [])
    }
    for id in 1...3 as ClosedRange<UInt8> { _ = try fixture.container.enqueue(message(id)) }
    try fixture.container.store.transaction { try $0.edit(.outbox(2)) { $0[0] = 9 } }
    let container = try fixture.reopened()
    expectError(.catalogDamaged) { try container.outboxEntries() }
    var skipped: [ContainerError] = []
    #expect(try container.outboxEntries(skipping: { skipped.append($0) }).map(\.number) == [1, 3])
    #expect(skipped.count == 1 && skipped[0].detail?.contains("message 2") == true, "\(skipped)")
    #expect(try container.enqueue(message(4)).number == 4)
    // What may be for this receiver is not given up.
    try container.settleOutbox(1)
    for receiver in ["com.example", "com.example.other"] {
      #expect(try container.outboxFloor(receiver: receiver) == 2)
    }
    try container.settleOutbox(2)
    #expect(try container.outboxFloor(receiver: "com.example") == 3)
    #expect(try container.outboxFloor(receiver: "com.example.other") == nil)
    #expect(try container.verify().findings == [])
  }

  @Test func verifyFindsFilesOfAnUnknownEpoch() throws {
    for contents in [[], [1]] as [[UInt8]] {
      for isPinned in [false, true] {
        let container = try Fixture().container
        try container.write(contents, to: "/file")
        if isPinned {
          _ = try container.enqueue(
            OutgoingMessage(
              id: Identifier(repeating: 1), receiver: "com.example", message: [],
              attachments: ["/file"]))
          try container.remove("/file")
        }
        #expect(try container.verify().findings == [])
        try container.store.transaction { transaction in
          if isPinned {
            let pin = Pin(number: 1, attachment: 0)
            var pinned = try transaction.pinnedFile(pin)
            pinned.inode.epoch = 9
            transaction.put(.pinned(pin), pinned.encoded)
          } else {
            var found = try transaction.existing(StorePath("/file"))
            found.inode.epoch = 9
            transaction.put(found.id, found.inode)
          }
        }
        let findings = try container.verify().findings
        #expect(
          findings.count == 1 && findings[0].severity == .damage && findings[0].path == "/file", "\(findings)"
        )
      }
    }
  }
}
