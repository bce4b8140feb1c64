import EncryptedFile
import SodiumPrimitives
import Testing

@testable import ContainerStore

private func utf8(_ text: String) -> [UInt8] { Array(text.utf8) }
private func zeros(_ count: Int) -> [UInt8] { [UInt8](repeating: 0, count: count) }

private let sender = FileName("com.example.sender")!
private let key = DeliveryKey(sender: sender, number: 7, id: Identifier(repeating: 0xab))
private let incarnation = Incarnation(generation: 2, draw: Identifier(repeating: 9))!
private let record = QueuedRecord(
  time: 5, id: Identifier(repeating: 4), messageByteCount: 3, fileCount: 2,
  sender: sender.bytes, directory: utf8("/Inbox/com.example.sender/20260101T000000.000Z"))
private let contents = QueuedContents(
  message: [1, 2, 3], files: [.init(place: utf8("a"), size: 300), .init(place: utf8("d/ü"), size: 0)])

private func refuses(
  _ bytes: [UInt8], sourceLocation: SourceLocation = #_sourceLocation, _ read: ([UInt8]) throws -> Void
) {
  #expect(throws: MalformedBytes.self, sourceLocation: sourceLocation) { try read(bytes) }
}

/// The records of deliveries, as strict as the page: what is read is what would be written.
struct DeliveryRecordTests {
  /// Refuses every beginning of the bytes, and more than them.
  private func refusesOtherLengths(_ bytes: [UInt8], _ read: ([UInt8]) throws -> Void) throws {
    try read(bytes)
    for count in 0..<bytes.count { refuses(Array(bytes.prefix(count)), read) }
    refuses(bytes + [0], read)
  }

  /// The numbers that may be at an offset of a value.
  private func accepts(
    _ numbers: ClosedRange<UInt64>, at offset: Int, of value: [UInt8], _ read: ([UInt8]) throws -> Void
  ) {
    for number in [0, 1, 1 << 62 - 1, 1 << 62, .max] as [UInt64] {
      var other = value
      other.replaceSubrange(
        offset..<offset + 8, with: withUnsafeBytes(of: number.littleEndian) { [UInt8]($0) })
      #expect(((try? read(other)) != nil) == numbers.contains(number), "\(number) at \(offset)")
    }
  }

  @Test func senders() throws {
    let senderKey = CatalogKey.sender(sender)
    #expect(try senderKey.sender() == sender)
    var record = SenderRecord(incarnation: incarnation)
    (record.floor, record.arrivedCount, record.deliveryCount, record.time) = (3, 9, 2, -4)
    record.forgotten = 1 << 62 - 1
    #expect(try SenderRecord(record.encoded) == record && record.encoded.count == 64)
    try refusesOtherLengths(record.encoded) { _ = try SenderRecord($0) }
    accepts(1...1 << 62 - 1, at: 0, of: record.encoded) { _ = try SenderRecord($0) }
    accepts(1...1 << 62 - 1, at: 24, of: record.encoded) { _ = try SenderRecord($0) }
    accepts(0...1 << 62 - 1, at: 32, of: record.encoded) { _ = try SenderRecord($0) }
    refuses([0x61] + senderKey.bytes.dropFirst()) { _ = try CatalogKey(bytes: $0).sender() }
  }

  @Test func deliveriesByNumber() throws {
    let deliveryKey = CatalogKey.delivery(key)
    #expect(try DeliveryKey(deliveryKey) == key)
    let value = NumberedDelivery(incarnation: incarnation, time: -4).encoded
    #expect(try NumberedDelivery(value).encoded == value)
    try refusesOtherLengths(value) { _ = try NumberedDelivery($0) }
    accepts(1...1 << 62 - 1, at: 0, of: value) { _ = try NumberedDelivery($0) }
  }

  @Test func receivers() throws {
    var receiver = OutboxReceiver(incarnation: incarnation, firstNumber: 4)
    receiver.delivered = 8
    #expect(try OutboxReceiver(receiver.encoded) == receiver)
    try refusesOtherLengths(receiver.encoded) { _ = try OutboxReceiver($0) }
    accepts(1...1 << 62 - 1, at: 0, of: receiver.encoded) { _ = try OutboxReceiver($0) }
    accepts(1...1 << 62 - 1, at: 24, of: receiver.encoded) { _ = try OutboxReceiver($0) }
    accepts(0...1 << 62 - 1, at: 32, of: receiver.encoded) { _ = try OutboxReceiver($0) }
  }

  @Test(arguments: [
    (utf8("com.example"), true), ([UInt8](repeating: 97, count: 255), true),
    ([UInt8](repeating: 97, count: 256), false), ([], false), (utf8(".."), false), (utf8("a/b"), false),
    ([97, 0, 98], false), ([97, 10], false), ([0xff], false),
  ])
  func sendersAreNames(name: [UInt8], isPossible: Bool) throws {
    func accepts(_ read: () throws -> Void) -> Bool { (try? read()) != nil }
    #expect(accepts { _ = try CatalogKey(bytes: [0x60] + name).sender() } == isPossible)
    let rest = [0] + CatalogKey.bigEndian(UInt64(7)) + key.id.bytes
    #expect(accepts { _ = try DeliveryKey(CatalogKey(bytes: [0x61] + name + rest)) } == isPossible)
    let length = [UInt8(truncatingIfNeeded: name.count)]
    #expect(
      accepts { _ = try RequestKey(CatalogKey(bytes: [0x62] + length + name + [97])) } == isPossible)
  }

  @Test func keysOfSendersHaveAllTheirParts() throws {
    let delivery = CatalogKey.delivery(key).bytes
    // The name may be as short as a byte.
    for count in 0..<delivery.count {
      refuses(Array(delivery.prefix(count))) { _ = try DeliveryKey(CatalogKey(bytes: $0)) }
    }
    refuses(delivery + [0]) { _ = try DeliveryKey(CatalogKey(bytes: $0)) }
    refuses([0x60] + delivery.dropFirst()) { _ = try DeliveryKey(CatalogKey(bytes: $0)) }
    let zero = DeliveryKey(sender: sender, number: 0, id: key.id)
    refuses(CatalogKey.delivery(zero).bytes) { _ = try DeliveryKey(CatalogKey(bytes: $0)) }
  }

  @Test func deliveriesByRequest() throws {
    let requestKey = CatalogKey.delivery(sender: sender.bytes, request: utf8("ü"))
    let read = try RequestKey(requestKey)
    #expect(read.sender == sender && read.request == utf8("ü"))
    refuses(Array(requestKey.bytes.dropLast())) { _ = try RequestKey(CatalogKey(bytes: $0)) }
    refuses(Array(requestKey.bytes.dropLast(2))) { _ = try RequestKey(CatalogKey(bytes: $0)) }
    for (count, isPossible) in [(255, true), (256, false)] {
      let long = CatalogKey.delivery(sender: sender.bytes, request: [UInt8](repeating: 97, count: count))
      #expect(((try? RequestKey(long)) != nil) == isPossible)
    }
    refuses(Delivery(time: 1, fileCount: 0, byteCount: 0, path: "Inbox").encoded) { _ = try Delivery($0) }
  }

  @Test func queuedMessages() throws {
    #expect(try QueuedRecord(record.encoded) == record)
    #expect(try QueuedRecord(record.encoded).encoded == record.encoded)
    var empty = record
    empty.fileCount = 0
    empty.directory = []
    #expect(try QueuedRecord(empty.encoded) == empty)
    for change: @Sendable (inout QueuedRecord) -> Void in [
      { $0.messageByteCount = 2 << 20 + 1 }, { $0.fileCount = 1 << 32 }, { $0.fileCount = 0 },
      { $0.directory = [] }, { $0.directory = utf8("/Inbox/com.example.other/x") },
      { $0.directory = utf8("/Inbox/com.example.sender") },
      { $0.directory = utf8("/Inbox/com.example.sender/") },
      { $0.directory += utf8("/further") }, { $0.directory += [0xff] },
      { $0.sender = [] }, { $0.sender = utf8("a/b") },
    ] {
      var wrong = record
      change(&wrong)
      refuses(wrong.encoded) { _ = try QueuedRecord($0) }
    }
    var most = record
    most.messageByteCount = 2 << 20
    most.fileCount = 1 << 32 - 1
    #expect(try QueuedRecord(most.encoded) == most)
    for state: QueuedRecord.State in [.reply, .claim, .claimAgain] {
      var other = record
      other.state = state
      #expect(other.encoded != record.encoded)
      #expect(try QueuedRecord(other.encoded) == other)
    }
    for (offset, byte) in [(28, 4), (28, 255), (29, 1), (30, 1)] as [(Int, UInt8)] {
      var wrong = record.encoded
      wrong[offset] = byte
      refuses(wrong) { _ = try QueuedRecord($0) }
    }
  }

  @Test func contentsOfQueuedMessages() throws {
    try refusesOtherLengths(contents.encoded) { bytes in
      let read = try QueuedContents(bytes, of: record)
      #expect(read == contents && read.encoded == bytes)
    }
    for (place, isPossible) in [
      (utf8("b"), true), (utf8("a"), false), ([], false), (utf8("/b"), false), (utf8("b/"), false),
      (utf8("../b"), false), ([98, 7], false), ([0xff], false),
      (utf8(String(repeating: "b/", count: 127) + "b"), true),
      (utf8(String(repeating: "b/", count: 128) + "b"), false),
    ] as [([UInt8], Bool)] {
      var other = contents
      other.files[1].place = place
      #expect(((try? QueuedContents(other.encoded, of: record)) == other) == isPossible, "\(place)")
    }
    // 2^62 bytes are too many.
    for (size, isPossible) in [(UInt64(1) << 62 - 301, true), (1 << 62 - 300, false), (.max, false)] {
      var other = contents
      other.files[1].size = size
      #expect(((try? QueuedContents(other.encoded, of: record)) == other) == isPossible, "\(size)")
    }
    // A size that is not in its shortest form.
    refuses([1, 2, 3, 0x81, 0, 1, 97, 0, 1, 98]) { _ = try QueuedContents($0, of: record) }
  }

  @Test func stagingRecordsAreReadOnlyAsTheyAreWritten() throws {
    let staged = Staging.Record(
      key: ArrivalKey(sender: sender, id: key.id), number: 7, fileCount: 2, byteCount: 30)
    func accepts(_ change: (inout Staging.Record) -> Void) -> Bool {
      var other = staged
      change(&other)
      return (try? Staging.Record(other.encoded, sender: sender)) == other
    }
    #expect(accepts { _ in } && staged.encoded.count == 40)
    for (number, isPossible) in [(UInt64(0), false), (1, true), (1 << 62 - 1, true), (1 << 62, false)] {
      #expect(accepts { $0.number = number } == isPossible, "\(number)")
    }
    for (count, isPossible) in [(UInt64(0), false), (1, true), (1 << 32 - 1, true), (1 << 32, false)] {
      #expect(accepts { $0.fileCount = count } == isPossible, "\(count) files")
    }
    for (count, isPossible) in [(UInt64(0), true), (1 << 62 - 1, true), (1 << 62, false)] {
      #expect(accepts { $0.byteCount = count } == isPossible, "\(count) bytes")
    }
    refuses(staged.encoded + [0]) { _ = try Staging.Record($0, sender: sender) }
    refuses(Array(staged.encoded.dropLast())) { _ = try Staging.Record($0, sender: sender) }
    #expect(Staging.index(FileName("10")!) == 10)
    for name in ["+1", "01", "-1", "record", " 1"] { #expect(Staging.index(FileName(name)!) == nil) }
  }

  // MARK: The outbox

  private let entry = OutboxEntry(
    number: 1, id: Identifier(repeating: 4), receiver: "com.example", time: 3, fileCount: 0,
    byteCount: 5, storedByteCount: 46, mayBeOffered: true)

  @Test func outboxEntries() throws {
    func accepts(_ entry: OutboxEntry) -> Bool {
      (try? OutboxEntry(key: .outbox(entry.number), value: entry.encoded)) == entry
    }
    #expect(accepts(entry))
    for (count, isPossible) in [(0, false), (1, true), (255, true), (256, false)] {
      var other = entry
      other.receiver = String(repeating: "r", count: count)
      #expect(accepts(other) == isPossible, "\(count) bytes")
    }
    for (number, isPossible) in [(UInt64(0), false), (1 << 62 - 1, true), (1 << 62, false)] {
      var other = entry
      other.number = number
      #expect(accepts(other) == isPossible, "\(number)")
      let pin = Pin(number: number, attachment: 0)
      #expect((CatalogKey.pinned(pin).pin(at: 1) == pin) == isPossible, "\(number)")
    }
    refuses(zeros(8)) { _ = try OutboxState($0) }
    refuses(zeros(7) + [1, 0]) { _ = try OutboxState($0) }
  }

  @Test func pinnedVersions() throws {
    let inode = Inode(kind: .file, permissions: 0o600, now: 1, epoch: 1, secret: zeros(32))
    func accepts(_ path: String, file: UInt64 = 7) -> Bool {
      let bytes = PinnedFile(file: file, path: utf8(path), inode: inode).encoded
      return (try? PinnedFile(bytes))?.encoded == bytes
    }
    #expect(accepts("/a/b"))
    for path in ["", "/", "a", "/a/", "//a", "/../a", String(repeating: "/a", count: 129)] {
      #expect(!accepts(path), "\(path)")
    }
    #expect(accepts(String(repeating: "/a", count: 128)))
    for (file, isPossible) in [(UInt64(1), false), (2, true), (1 << 62 - 1, true), (1 << 62, false)] {
      #expect(accepts("/a", file: file) == isPossible, "\(file)")
    }
  }
}
