import EncryptedFile
import SodiumPrimitives

/// One journal, read record by record from either of its two files (CONTAINER-FORMAT.md, "Reading a frame").
struct JournalReader {
  let id: Identifier
  let file: CopiedFile
  private let place: JournalFrame.Place
  private let key: SharedKey
  private let cipher: SecretStreamCipher

  /// So much is read of what stands behind a torn record: several times as much as a journal has.
  private static let hashedByteCountMax = 256 << 20

  /// A record as it stands at the place of one.
  enum Reading {
    /// The commit of `end` is still to be set. `damagedCopies` are those that were read and are not whole.
    case good(payload: [UInt8], end: JournalEnd, damagedCopies: [Int])
    case torn(String)
    case altered
  }

  init(
    _ io: any BlockIO, _ id: Identifier, generation: UInt64, container: Identifier, keys: Keyring,
    cipher: SecretStreamCipher
  ) throws {
    self.id = id
    self.cipher = cipher
    file = CopiedFile(io, id, in: .journal)
    place = JournalFrame.Place(container: container, journal: id)
    key = SharedKey(try keys.journalKey(id, generation: generation))
  }

  /// The record after `last`, or record 0 when that is nil. `readsBoth` reads the second copy also where the first is whole.
  func read(after last: JournalEnd?, readsBoth: Bool = false) throws(IOFailure) -> Reading {
    let offset = last.map { JournalFrame.alignedUp($0.offset) } ?? 0
    let expected = (number: last.map { $0.record + 1 } ?? 0, previous: last?.tag ?? noTag)
    var good: (payload: [UInt8], end: JournalEnd)?
    var damagedCopies: [Int] = []
    var isAltered = false
    var reason = "the journal is missing"
    var failure: IOFailure?
    for copy in 0..<CopiedFile.count where readsBoth || good == nil {
      do throws(IOFailure) {
        switch try JournalFrame.read(
          file.copy(copy), at: offset, place: place, key: key.key, cipher: cipher)
        {
        case .good(expected.number, expected.previous, let payload, let tag, let end):
          if good == nil {
            good = (payload, JournalEnd(record: expected.number, offset: end, tag: tag, commit: 0))
          }
          continue
        case .good, .altered: isAltered = true
        case .torn(let what): reason = what
        }
      } catch {
        guard fileFault.contains(error.errno) else { throw error }
        if !absentFile.contains(error.errno) { failure = error }
      }
      damagedCopies.append(copy)
    }
    if let good { return .good(payload: good.payload, end: good.end, damagedCopies: damagedCopies) }
    if let failure { throw failure }
    return isAltered ? .altered : .torn(reason)
  }

  /// The greatest *durable through* of the authentic records behind `last`, in either copy; 0 when there are none.
  func provenRecord(after last: JournalEnd) throws(IOFailure) -> UInt64 {
    var proven: UInt64 = 0
    for copy in 0..<CopiedFile.count {
      guard let file = try? file.copy(copy) else { continue }
      var offset = JournalFrame.alignedUp(last.offset)
      // Past holes at once: a file may have been made longer than its journal.
      var hashedByteCount = 0
      // Whoever appends frames that only look like some pays for what they cost.
      while hashedByteCount < Self.hashedByteCountMax, let data = try file.nextData(from: offset) {
        offset = max(offset, data / JournalFrame.alignment * JournalFrame.alignment)
        hashedByteCount += try JournalFrame.payloadByteCount(file, at: offset)
        if case .good(let number, _, let payload, _, _) = try JournalFrame.read(
          file, at: offset, place: place, key: key.key, cipher: cipher),
          number > last.record, let record = try? JournalRecord(payload, number: number)
        {
          proven = max(proven, record.durableThrough)
        }
        offset += JournalFrame.alignment
      }
    }
    return proven
  }

  /// Whether either file goes on behind the record.
  func hasBytes(after last: JournalEnd) throws(IOFailure) -> Bool {
    for copy in 0..<CopiedFile.count {
      if let file = try? file.copy(copy), try file.size() > JournalFrame.alignedUp(last.offset) {
        return true
      }
    }
    return false
  }
}
