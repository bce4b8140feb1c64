import EncryptedFile
import SodiumPrimitives

@testable import ContainerStore

extension Target {
  /// A journal's file. The first byte says what is done to the rest: 0 nothing, 1 the first frame's checksums are set right,
  /// 2 it is number, previous tag and payload of a frame that is sealed.
  static let journalFrame = Target(
    name: "journal-frame", inputByteCountMax: 16384,
    seeds: {
      let header = sampleHeader(hasPredecessor: true).encoded
      let cipher = SecretStreamCipher()
      let (first, tag) = try JournalFrame.seal(
        header, number: 0, previous: [UInt8](repeating: 0, count: 16), at: Known.place, key: try Known.key(),
        cipher: cipher)
      let (second, _) = try JournalFrame.seal(
        sampleRecord().encoded, number: 1, previous: tag, at: Known.place, key: try Known.key(),
        cipher: cipher)
      let gap = Int(JournalFrame.alignment) - first.count
      var payload = Script()
      payload.add(UInt8(2))
      payload.add(UInt64(1))
      payload.add(tag)
      payload.add(sampleRecord().encoded)
      return [
        Seed("file", [0] + first + [UInt8](repeating: 0, count: gap) + second),
        Seed("checksums", [1] + first), Seed("payload", payload.bytes),
      ]
    },
    accepts: { bytes in
      var input = Input(bytes)
      switch input.byte() {
      case 1: return try acceptsFrames(withChecksums(input.remainder()))
      case 2:
        let number = input.number(UInt64.self)
        var previous = input.bytes(16)
        previous += [UInt8](repeating: 0, count: 16 - previous.count)
        let payload = input.remainder()
        guard !payload.isEmpty else { return false }
        let (frame, tag) = try JournalFrame.seal(
          payload, number: number, previous: previous, at: Known.place, key: try Known.key(),
          cipher: SecretStreamCipher())
        guard
          case .good(number, previous, payload, tag, UInt64(frame.count)) = try read(frame, at: 0)
        else { fatalError("a frame that was sealed does not open") }
        return true
      default: return try acceptsFrames(input.remainder())
      }
    })

  private static func read(_ file: [UInt8], at offset: UInt64) throws -> JournalFrame.Reading {
    try JournalFrame.read(
      Known.file(file), at: offset, place: Known.place, key: Known.key(), cipher: SecretStreamCipher())
  }

  private static func acceptsFrames(_ file: [UInt8]) throws -> Bool {
    var offset: UInt64 = 0
    while true {
      guard case .good(_, let previous, let payload, let tag, let end) = try read(file, at: offset)
      else { return false }
      require(end <= UInt64(file.count), "a frame ends after its file")
      require(
        JournalFrame.byteCount(payload: payload.count) == Int(end - offset), "a frame of another length")
      require(previous.count == 16 && tag.count == 16, "a tag of another length")
      offset = JournalFrame.alignedUp(end)
      if offset >= UInt64(file.count) { return true }
    }
  }

  /// The first frame with the checksums that its bytes ask for.
  private static func withChecksums(_ file: [UInt8]) -> [UInt8] {
    guard file.count >= JournalFrame.headerByteCount else { return file }
    var file = file
    let count = file[32..<36].reversed().reduce(0) { $0 << 8 | Int($1) }
    let begin = JournalFrame.headerByteCount
    let end = min(file.count, begin + count + SecretStreamCipher.overheadByteCount)
    file.replaceSubrange(64..<80, with: file[begin..<end].withUnsafeBytes { KeyedHash.checksum($0) })
    file.replaceSubrange(80..<96, with: file[0..<80].withUnsafeBytes { KeyedHash.checksum($0) })
    return file
  }

  static let journalHeader = Target(
    name: "journal-header", inputByteCountMax: JournalHeader.byteCount + 8,
    seeds: {
      [
        Seed("first", sampleHeader(hasPredecessor: false).encoded),
        Seed("later", sampleHeader(hasPredecessor: true).encoded),
      ]
    },
    accepts: { bytes in
      guard let header = try? JournalHeader(bytes) else { return false }
      require(header.encoded == bytes, "a journal header is written differently")
      return true
    })

  static let journalRecord = Target(
    name: "journal-record", inputByteCountMax: 4096,
    seeds: {
      var empty = sampleRecord()
      empty.changes = []
      empty.isLastOfCommit = false
      return [Seed("record", sampleRecord().encoded), Seed("empty", empty.encoded)]
    },
    accepts: { bytes in
      guard let record = try? JournalRecord(bytes, number: .max) else { return false }
      require(record.encoded == bytes, "a record is written differently")
      let finished = FinishedCommit(
        number: record.commit, changes: record.changes, segmentsWereDurable: record.segmentsWereDurable)
      for extent in finished.extents() {
        require(extent.isValid(inFileOfSize: 1 << 62 - 1), "an extent that cannot be was taken from a record")
      }
      return true
    })

  private static func sampleHeader(hasPredecessor: Bool) -> JournalHeader {
    let end = JournalEnd(record: 4, offset: 17000, tag: Known.bytes(16, seed: 3), commit: 12)
    return JournalHeader(
      session: Known.session, generation: 2, created: 1,
      predecessor: hasPredecessor ? .init(id: Known.table, generation: 1, end: end) : nil, commit: 12)
  }

  private static func sampleRecord() -> JournalRecord {
    JournalRecord(
      commit: 13, durableThrough: 0, time: 1, isLastOfCommit: true, segmentsWereDurable: true,
      changes: sampleRecords().map { CatalogChange(key: $0.key, value: $0.value) } + [
        CatalogChange(key: .extent(file: 9, start: 3), value: nil)
      ])
  }
}
