import EncryptedFile
import SodiumPrimitives

/// Appends commits to the journal of this opening.
final class JournalWriter {
  let id: Identifier
  let generation: UInt64
  private let file: CopiedFile
  private let place: JournalFrame.Place
  private let key: SecretKey
  private let cipher: SecretStreamCipher
  private(set) var end: JournalEnd
  /// The last record that is durable in the first copy.
  private(set) var durableThrough: UInt64 = 0
  /// The last record up to which every record is durable in both copies.
  private(set) var knownEnd: JournalEnd

  /// Creates both files and writes the header; the caller names the journal in the superblock.
  init(
    io: any BlockIO, container: Identifier, namedIn update: UInt64, header: JournalHeader, keys: Keyring,
    cipher: SecretStreamCipher
  ) throws {
    id = .ofFile(namedIn: update)
    generation = header.generation
    self.cipher = cipher
    place = JournalFrame.Place(container: container, journal: id)
    key = try keys.journalKey(id, generation: generation)
    let (bytes, tag) = try JournalFrame.seal(
      header.encoded, number: 0, previous: noTag, at: place, key: key, cipher: cipher)
    file = try CopiedFile.create(io, id, in: .journal)
    end = JournalEnd(record: 0, offset: UInt64(bytes.count), tag: tag, commit: header.commit)
    knownEnd = end
    do {
      try file.write(bytes, at: 0)
      // Synced regardless of the durability setting: the superblock may name only a journal that
      // exists.
      try file.synchronizeNew()
    } catch {
      CopiedFile.remove(io, id, in: .journal)  // on a full disk its room is needed
      throw error
    }
  }

  var byteCount: UInt64 { end.offset }

  /// The sealed records of a commit, ready to be written after the end.
  struct Frames {
    fileprivate var bytes: [UInt8]
    fileprivate var end: JournalEnd
  }

  /// Seals one commit in as many records as it needs.
  func seal(_ changes: [CatalogChange], commit: UInt64, segmentsWereDurable: Bool) throws(CryptoError)
    -> Frames
  {
    var frames: [UInt8] = []
    // A commit of many files is large, and an array that grows by doubling would take up to twice
    // its size.
    let byteCount = changes.reduce(0) { $0 + $1.encodedByteCount }
    frames.reserveCapacity(byteCount + byteCount / 64 + 2 * Int(JournalFrame.alignment))
    let begin = JournalFrame.alignedUp(end.offset)
    var next = end
    var rest = changes[...]
    repeat {
      var byteCount = JournalRecord.prefixByteCount
      var count = 0
      for change in rest {
        guard byteCount + change.encodedByteCount <= JournalFrame.payloadByteCountMax else { break }
        byteCount += change.encodedByteCount
        count += 1
      }
      let taken = Array(rest.prefix(count))
      rest = rest.dropFirst(count)
      let record = JournalRecord(
        commit: commit, durableThrough: durableThrough, time: Clock.wallNanoseconds(),
        isLastOfCommit: rest.isEmpty, segmentsWereDurable: segmentsWereDurable, changes: taken)
      let (bytes, tag) = try JournalFrame.seal(
        record.encoded, number: next.record + 1, previous: next.tag, at: place, key: key,
        cipher: cipher)
      let offset = JournalFrame.alignedUp(next.offset)
      frames.append(contentsOf: repeatElement(0, count: Int(offset - begin) - frames.count))
      frames.append(contentsOf: bytes)
      next = JournalEnd(
        record: next.record + 1, offset: offset + UInt64(bytes.count), tag: tag,
        commit: commit)
    } while !rest.isEmpty
    return Frames(bytes: frames, end: next)
  }

  /// Appends the records with one write to each copy.
  func append(_ frames: Frames) throws(IOFailure) {
    try file.write(frames.bytes, at: JournalFrame.alignedUp(end.offset))
    end = frames.end
  }

  /// Cuts off the bytes that a failed write left after the end.
  func cut() {
    for i in 0..<CopiedFile.count { try? file.copy(i).truncate(to: end.offset) }
  }

  /// Makes the records durable. The second copy follows with ``synchronizeBoth()``.
  func synchronize() throws(IOFailure) {
    try file.copy(0).synchronize()
    durableThrough = end.record
  }

  /// Makes both copies durable, so that the superblock or another journal can name the end.
  func synchronizeBoth() throws(IOFailure) {
    if durableThrough < end.record { try synchronize() }
    if knownEnd.record < end.record { try file.copy(1).synchronize() }
    knownEnd = end
  }
}
