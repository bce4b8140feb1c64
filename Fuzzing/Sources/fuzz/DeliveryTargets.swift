import EncryptedFile
import SodiumPrimitives

@testable import ContainerStore

extension Target {
  /// Records of messages that are sent and that arrive; the first byte says of which type.
  static let deliveries = Target(
    name: "deliveries", inputByteCountMax: 8192,
    seeds: {
      let entry = OutboxEntry(
        number: 1, id: Identifier(Known.bytes(16, seed: 1)), receiver: "com.example.ü", time: 1, fileCount: 2,
        byteCount: 3, storedByteCount: 85, mayBeOffered: true)
      let pinned = PinnedFile(file: 7, path: Array("/a/ü".utf8), inode: sampleFile())
      let queued = sampleQueued
      let contents = QueuedContents(
        message: Known.bytes(40, seed: 2), files: [.init(place: Array("a/b".utf8), size: 300)])
      let staged = Staging.Record(
        key: ArrivalKey(sender: sampleSender, id: Identifier(Known.bytes(16, seed: 4))), number: 9,
        fileCount: 2,
        byteCount: 300)
      let incarnation = Incarnation(generation: 2, draw: Identifier(Known.bytes(16, seed: 3)))!
      return [
        Seed("outbox", [0] + entry.encoded), Seed("pinned", [1] + pinned.encoded),
        Seed("outbox-state", [2] + OutboxState().encoded),
        Seed("sender", [3] + SenderRecord(incarnation: incarnation).encoded),
        Seed("numbered", [4] + NumberedDelivery(incarnation: incarnation, time: 1).encoded),
        Seed("receiver", [9] + OutboxReceiver(incarnation: incarnation, firstNumber: 3).encoded),
        Seed("queued", [5] + queued.encoded), Seed("contents", [6] + contents.encoded),
        Seed("staged", [7] + staged.encoded), Seed("frame", [8] + sampleFrame),
      ]
    },
    accepts: { bytes in
      let value = Array(bytes.dropFirst())
      switch bytes.first {
      case 0:
        guard let entry = try? OutboxEntry(key: .outbox(1), value: value) else { return false }
        require(entry.encoded == value, "a message of the outbox is written differently")
        require((1...255).contains(entry.receiver.utf8.count), "a receiver without a name")
      case 1:
        guard let pinned = try? PinnedFile(value) else { return false }
        require(pinned.encoded == value, "a pinned file is written differently")
      case 2:
        guard let state = try? OutboxState(value) else { return false }
        require(state.encoded == value, "the outbox's state is written differently")
      case 3:
        guard let sender = try? SenderRecord(value) else { return false }
        require(sender.encoded == value, "a sender is written differently")
        require((1...sender.floor).contains(sender.firstRemembered), "a floor below what is remembered")
      case 4:
        guard let delivery = try? NumberedDelivery(value) else { return false }
        require(delivery.encoded == value, "a delivery is written differently")
      case 5:
        guard let queued = try? QueuedRecord(value) else { return false }
        require(queued.encoded == value, "a queued message is written differently")
      case 6:
        guard let contents = try? QueuedContents(value, of: sampleQueued) else { return false }
        require(contents.encoded == value, "a queued message's contents are written differently")
        require(contents.files.count == 1, "other files than were counted")
      case 9:
        guard let receiver = try? OutboxReceiver(value) else { return false }
        require(receiver.encoded == value, "a receiver is written differently")
      case 8:
        var input = Input(Array(value))
        let contentsByteCount = Int(input.number(UInt32.self))
        let block = value.dropFirst(4)
        guard
          let frame = try? Array(block).withUnsafeBytes({
            try SegmentFrame($0, contentsByteCount: contentsByteCount)
          })
        else { return false }
        require(
          frame.runs.reduce(0) { $0 + $1.storedByteCount } == contentsByteCount
            && contentsByteCount <= SegmentFrame.contentsByteCountMax, "contents of another length")
        let segmentCount = frame.runs.reduce(0) { $0 + Int($1.count) }
        require(segmentCount <= SegmentFrame.segmentCountMax, "too many segments")
        frame.withKeys { require($0.count == 32 * segmentCount, "a key for each segment") }
        for (run, next) in zip(frame.runs, frame.runs.dropFirst()) {
          require(
            (run.file, run.start + UInt64(run.count)) <= (next.file, next.start) || run.file < next.file,
            "runs that overlap")
        }
      default:
        guard let record = try? Staging.Record(value, sender: sampleSender) else { return false }
        require(record.encoded == value, "a staging record is written differently")
      }
      return true
    })

  private static let sampleSender = FileName("com.example")!

  /// Two runs of two files.
  private static let sampleFrame: [UInt8] = {
    func bytes<T: FixedWidthInteger>(_ value: T) -> [UInt8] {
      withUnsafeBytes(of: value.littleEndian) { Array($0) }
    }
    let runs =
      bytes(UInt32(0)) + bytes(UInt64(0)) + bytes(UInt32(2)) + bytes(UInt32(9))
      + bytes(UInt32(3)) + bytes(UInt64(7)) + bytes(UInt32(1)) + bytes(UInt32(16_384))
    return bytes(UInt32(2 * 16_425 + 50)) + bytes(UInt64(50_000)) + bytes(UInt32(2)) + runs
      + Known.bytes(96, seed: 8)
  }()

  private static let sampleQueued = QueuedRecord(
    time: 1, id: Identifier(Known.bytes(16, seed: 7)), messageByteCount: 40, fileCount: 1,
    sender: sampleSender.bytes,
    directory: Array("/Inbox/com.example/20261122T083412.603Z".utf8))
}
