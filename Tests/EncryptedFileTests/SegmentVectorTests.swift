import EncryptedFile
import SodiumPrimitives
import Testing

/// `Fixtures/Vectors/segment`: files that another binding of libsodium sealed and damaged, one way to fail each.
struct SegmentVectorTests {
  static let grain = SegmentLayout.plaintextByteCountMax

  @Test func vectorsOfEveryOutcomeAreThere() throws {
    let outcomes = try SegmentVector.names.map { try SegmentVector(named: $0).expect }
    #expect(
      Set(outcomes) == Set(SegmentVector.Outcome.allCases),
      "vectors are missing in \(SegmentVector.folder.path()); Fixtures/Vectors/generate.py makes them")
  }

  @Test(arguments: SegmentVector.names, CipherBackend.allCases)
  func readerReleasesWhatTheVectorAllowsAndThrowsWhatItSays(name: String, backend: CipherBackend) throws {
    let vector = try SegmentVector(named: name)
    let reading: Reading
    do {
      reading = try Reading(vector.file(), backend)
    } catch {
      // All extents are checked before anything is released.
      #expect(vector.expect == .damagedExtent)
      #expect(error as? SegmentError == vector.failure)
      #expect(vector.plaintextSha256 == sha256([]))
      return
    }
    #expect(vector.expect != .damagedExtent, "the reader took extents that cannot be")
    let (released, failure) = reading.readInOrder(pieces: Self.grain)
    #expect(failure as? SegmentError == vector.failure, "\(String(describing: failure))")
    #expect(sha256(released) == vector.plaintextSha256)
    #expect(UInt64(released.count) == vector.failGrain.map { $0 * UInt64(Self.grain) } ?? vector.size)
  }

  @Test(arguments: SegmentVector.names, CipherBackend.allCases)
  func readerGivesTheSameInOneRead(name: String, backend: CipherBackend) throws {
    let vector = try SegmentVector(named: name)
    guard vector.expect == .ok else { return }
    let reading = try Reading(vector.file(), backend)
    #expect(sha256(try reading.read(at: 0, count: Int(vector.size) + 1)) == vector.plaintextSha256)
  }

  /// Segment by segment, in the order of the file, with the output of each between guards of its own.
  @Test(arguments: SegmentVector.names, CipherBackend.allCases)
  func cipherOpensSegmentsUpToTheOneTheVectorNames(name: String, backend: CipherBackend) throws {
    let vector = try SegmentVector(named: name)
    guard vector.expect != .damagedExtent else { return }  // the cipher takes extents that were checked
    let file = try vector.file()
    let cipher = SegmentCipher(backend)
    var released: [UInt8] = []
    for extent in file.extents.sorted(by: { $0.start < $1.start }) {
      for number in 0..<Int(extent.count) {
        let run = extent.slice(skipping: number, count: 1)
        let begin = Int(run.start) * Self.grain
        var output = [UInt8](repeating: 0xC3, count: run.plaintextByteCount)
        do {
          try cipher.open(file.storedBytes(run), of: run.run, key: file.key, into: &output)
        } catch {
          #expect(error as? SegmentError == vector.failure)
          #expect(output.allSatisfy { $0 == 0xC3 }, "the failing segment wrote to the output")
          released += [UInt8](repeating: 0, count: begin - released.count)
          #expect(sha256(released) == vector.plaintextSha256)
          return
        }
        released += [UInt8](repeating: 0, count: begin - released.count) + output
      }
    }
    #expect(vector.failure == nil, "every segment opened")
    released += [UInt8](repeating: 0, count: Int(vector.size) - released.count)
    #expect(sha256(released) == vector.plaintextSha256)
  }
}
