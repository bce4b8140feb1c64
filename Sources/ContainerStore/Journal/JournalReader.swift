import EncryptedFile
import SodiumPrimitives

/// A journal, read record by record from either of its two files (CONTAINER-FORMAT.md, "Reading a
/// frame").
struct JournalReader {
  let id: Identifier
  let file: CopiedFile
  private let place: JournalFrame.Place
  private let key: SharedKey
  private let cipher: SecretStreamCipher

  /// The maximum number of bytes that are hashed after a torn record: several times the length of a
  /// journal.
  private static let hashedByteCountMax = 256 << 20

  /// The result of reading one record.
  enum Reading {
    /// The commit of `end` is not set yet. `damagedCopies` are the copies that were read and are
    /// not whole.
    case good(payload: [UInt8], end: JournalEnd, damagedCopies: [Int])
    case torn(String)
    /// What one copy does not have, and the system does not read in the other: nobody knows whether it was written.
    case refused(String)
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

  /// Reads the record after `last`, or record 0 when `last` is nil. `readsBoth` reads the second
  /// copy even when the first is whole.
  func read(after last: JournalEnd?, readsBoth: Bool = false) throws(IOFailure) -> Reading {
    let offset = last.map { JournalFrame.alignedUp($0.offset) } ?? 0
    let expected = (number: last.map { $0.record + 1 } ?? 0, previous: last?.tag ?? noTag)
    var good: (payload: [UInt8], end: JournalEnd)?
    var damagedCopies: [Int] = []
    var isAltered = false
    var reason = "the journal is missing"
    var refusals: [String] = []
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
        guard error.isOfFile else { throw error }
        // A file that is damaged as a whole is as good as missing.
        if error.operation == "read" {
          refusals.append(error.description)
        } else {
          reason = error.description
        }
      }
      damagedCopies.append(copy)
    }
    if let good { return .good(payload: good.payload, end: good.end, damagedCopies: damagedCopies) }
    if !refusals.isEmpty { return .refused(refusals.joined(separator: "; ")) }
    return isAltered ? .altered : .torn(reason)
  }

  /// Whether a record follows the header, of whatever generation: its checksums need no key. What cannot be read is no evidence.
  var hasCommit: Bool {
    get throws(IOFailure) {
      let headerByteCount = JournalFrame.byteCount(payload: JournalHeader.byteCount)
      let header = JournalEnd(record: 0, offset: UInt64(headerByteCount), tag: noTag, commit: 0)
      return switch try read(after: header) {
      case .good, .altered: true
      case .torn, .refused: false
      }
    }
  }

  /// The greatest *durable through* of the authentic records after `last`, in either copy; 0 when
  /// there are none. Throws `journalDamaged` when the system does not read where one might be.
  func provenRecord(after last: JournalEnd) throws -> UInt64 {
    var proven: UInt64 = 0
    var refusal: IOFailure?
    for copy in 0..<CopiedFile.count {
      do throws(IOFailure) { proven = max(proven, try provenRecord(after: last, in: file.copy(copy))) } catch
      {
        guard error.isOfFile else { throw error }
        if error.operation == "read" { refusal = error }
      }
    }
    if let refusal, proven <= last.record {
      throw ContainerError(.journalDamaged, detail: "record \(last.record + 1): \(refusal)")
    }
    return proven
  }

  private func provenRecord(after last: JournalEnd, in file: any BlockFile) throws(IOFailure) -> UInt64 {
    var proven: UInt64 = 0
    var offset = JournalFrame.alignedUp(last.offset)
    // The loop skips holes: a file may have been extended beyond its journal.
    var hashedByteCount = 0
    // The payload of every frame counts, which bounds the cost of forged frames.
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
    return proven
  }

  /// Why the system does not open a copy, for each that it does not.
  func absentCopies() throws(IOFailure) -> [IOFailure] {
    var failures: [IOFailure] = []
    for copy in 0..<CopiedFile.count {
      do throws(IOFailure) { _ = try file.copy(copy) } catch {
        guard error.isOfFile else { throw error }
        failures.append(error)
      }
    }
    return failures
  }

  /// Whether either file has bytes after the record, as far as the system tells.
  func hasBytes(after last: JournalEnd) -> Bool {
    (0..<CopiedFile.count).contains {
      (try? file.copy($0).size()).map { $0 > JournalFrame.alignedUp(last.offset) } ?? false
    }
  }
}
