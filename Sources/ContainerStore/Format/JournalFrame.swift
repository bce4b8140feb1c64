import EncryptedFile
import SodiumPrimitives

/// One frame of a journal (CONTAINER-FORMAT.md, "Journal").
enum JournalFrame {
  static let headerByteCount = 96
  static let alignment: UInt64 = 4096
  static let payloadByteCountMax = 1_044_480
  private static let magic: [UInt8] = Array("OD1JRNL\n".utf8)

  static func alignedUp(_ offset: UInt64) -> UInt64 { (offset + alignment - 1) / alignment * alignment }

  static func byteCount(payload: Int) -> Int {
    headerByteCount + payload + SecretStreamCipher.overheadByteCount
  }

  struct Place {
    var container: Identifier
    var journal: Identifier
  }

  /// The frame's bytes and the tag that the next frame names.
  static func seal(
    _ payload: [UInt8], number: UInt64, previous: [UInt8], at place: Place, key: borrowing SecretKey,
    cipher: SecretStreamCipher
  ) throws(CryptoError) -> (bytes: [UInt8], tag: [UInt8]) {
    precondition(
      (1...payloadByteCountMax).contains(payload.count), "a record has 1 to \(payloadByteCountMax) bytes")
    let sealed = try SealedMessage.seal(
      payload, key: key, ad: ad(place, number: number, count: payload.count, previous: previous),
      cipher: cipher)
    var writer = ByteWriter()
    writer.append(magic)
    writer.append(place.journal)
    writer.append(number)
    writer.append(UInt32(payload.count))
    writer.append(UInt32(0))
    writer.append(previous)
    writer.append(UInt64(0))
    writer.append(sealed.withUnsafeBytes { KeyedHash.checksum($0) })
    writer.append(writer.bytes.withUnsafeBytes { KeyedHash.checksum($0) })
    writer.append(sealed)
    return (writer.bytes, Array(sealed.suffix(16)))
  }

  /// The payload length that the header at an offset states; 0 when there is no header.
  static func payloadByteCount(_ file: any BlockFile, at offset: UInt64) throws(IOFailure) -> Int {
    let header = try file.read(headerByteCount, at: offset)
    guard header.count == headerByteCount, header.starts(with: magic) else { return 0 }
    return Int(header[32..<36].reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) })
  }

  /// The result of reading one copy at an offset.
  enum Reading {
    /// A valid frame. `end` is the offset after it, before rounding up.
    case good(number: UInt64, previous: [UInt8], payload: [UInt8], tag: [UInt8], end: UInt64)
    /// A frame that is absent, truncated or foreign, or whose checksum fails: the trace of a crash.
    case torn(String)
    /// A frame whose checksums are correct but whose record does not open. No crash causes that.
    case altered
  }

  static func read(
    _ file: any BlockFile, at offset: UInt64, place: Place, key: borrowing SecretKey,
    cipher: SecretStreamCipher
  ) throws(IOFailure) -> Reading {
    let header = try file.read(headerByteCount, at: offset)
    guard header.count == headerByteCount else { return .torn("the file ends") }
    do {
      var reader = ByteReader(header)
      guard try reader.take(8).elementsEqual(magic), try reader.identifier() == place.journal else {
        return .torn("no frame of this journal")
      }
      let number = try reader.read(UInt64.self)
      let count = Int(try reader.read(UInt32.self))
      let reserved = try reader.read(UInt32.self)
      let previous = try reader.bytes(16)
      let moreReserved = try reader.read(UInt64.self)
      let payloadChecksum = try reader.bytes(16)
      let headerChecksum = try reader.bytes(16)
      guard header[0..<80].withUnsafeBytes({ KeyedHash.checksum($0) }) == headerChecksum else {
        return .torn("the frame's header is torn")
      }
      guard (1...payloadByteCountMax).contains(count), reserved == 0, moreReserved == 0 else {
        return .altered
      }
      let sealedCount = count + SecretStreamCipher.overheadByteCount
      let sealed = try file.read(sealedCount, at: offset + UInt64(headerByteCount))
      guard sealed.count == sealedCount, sealed.withUnsafeBytes({ KeyedHash.checksum($0) }) == payloadChecksum
      else { return .torn("the frame's payload is torn") }
      let payload: [UInt8]
      do throws(CryptoError) {
        payload = try SealedMessage.open(
          sealed, key: key, ad: ad(place, number: number, count: count, previous: previous), cipher: cipher)
      } catch {
        if let closed = IOFailure(error) { throw closed }
        return .altered
      }
      return .good(
        number: number, previous: previous, payload: payload, tag: Array(sealed.suffix(16)),
        end: offset + UInt64(byteCount(payload: count)))
    } catch let failure as IOFailure {
      throw failure
    } catch {
      return .torn("the frame's header is torn")
    }
  }

  private static func ad(_ place: Place, number: UInt64, count: Int, previous: [UInt8]) -> [UInt8] {
    var writer = ByteWriter()
    writer.append(label("OD1-record"))
    writer.append(place.container)
    writer.append(place.journal)
    writer.append(number)
    writer.append(UInt32(count))
    writer.append(UInt32(0))
    writer.append(previous)
    return writer.bytes
  }
}

/// The placeholder for the tag of a record that does not exist.
let noTag = [UInt8](repeating: 0, count: 16)
