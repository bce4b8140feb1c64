import EncryptedFile
import Foundation
import SodiumPrimitives
import TestSupport
import Testing

/// Files sealed here, read by `Fixtures/read_file.py`, which was written from FILE-FORMAT.md and shares no code with us.
@Suite(
  .enabled(
    if: Python.readsVectors || Python.isRequired,
    "/usr/bin/python3 with PyNaCl is missing (Debian: python3-nacl); set CI to make this a failure"))
struct IndependentReaderTests {
  static let sizes = [0, 1, 16383, 16384, 16385, 1 << 20, (1 << 20) + 1, 3 << 20 | 12345]

  @Test func pythonWithPyNaClIsThere() {
    #expect(Python.readsVectors, "/usr/bin/python3 cannot import nacl; install python3-nacl")
  }

  @Test(arguments: CipherBackend.allCases)
  func readsWhatTheWriterSealed(backend: CipherBackend) throws {
    try withTemporaryFolder { folder in
      let vectors = try Self.sizes.map { size in
        let file = try StoredFile(byteCount: size, seed: UInt64(size), backend: backend)
        return try SegmentVector(file, name: "size_\(size)").write(to: folder)
      }
      let (status, output) = try Python.readFile(vectors)
      #expect(status == 0, "\(output)")
      #expect(output.split(separator: "\n").count == vectors.count, "\(output)")
    }
  }

  @Test(arguments: CipherBackend.allCases)
  func readsFilesWithHolesOfSeveralSessions(backend: CipherBackend) throws {
    try withTemporaryFolder { folder in
      let vectors = try (0..<3 as Range<UInt64>).map { number in
        let file = try Patchwork.make(
          seed: SplitMix64.testSeed &+ number, grainCount: 90, slabCount: 1, backend: backend)
        // That reader wants them in the order of their starts.
        file.extents.sort { $0.start < $1.start }
        return try SegmentVector(file, name: "patchwork_\(number)").write(to: folder)
      }
      let (status, output) = try Python.readFile(vectors)
      #expect(status == 0, "\(output)")
    }
  }

  /// Without it, the tests above could not fail.
  @Test func saysWhenAFileIsNotAsExpected() throws {
    try withTemporaryFolder { folder in
      let file = try StoredFile(byteCount: 40_000)
      file.slabs[0]![2 * SegmentLayout.storedByteCountMax + 30] ^= 1
      var vector = SegmentVector(file, name: "damaged")
      let mismatch = try Python.readFile([vector.write(to: folder)])
      #expect(mismatch.status == 1 && mismatch.output.contains("MISMATCH"), "\(mismatch.output)")

      vector.expect = .notAuthentic
      vector.failGrain = 2
      vector.plaintextSha256 = sha256(Array(file.contents[0..<32768]))
      let match = try Python.readFile([vector.write(to: folder)])
      #expect(match.status == 0 && match.output.contains("not-authentic at grain 2"), "\(match.output)")
    }
  }

  private func withTemporaryFolder(_ body: (URL) throws -> Void) throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: "vectors-\(UUID())")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    try body(folder)
  }
}

private enum Python {
  /// In CI a missing reader is a failure, and not a reason to skip.
  static let isRequired = ProcessInfo.processInfo.environment["CI"].map { !$0.isEmpty } ?? false
  static let readsVectors = (try? run(["-c", "import nacl"]).status) == 0

  static func readFile(_ vectors: [URL]) throws -> (status: Int32, output: String) {
    try run(
      [SegmentVector.repository.appending(path: "Fixtures/read_file.py").path()] + vectors.map { $0.path() })
  }

  private static func run(_ arguments: [String]) throws -> (status: Int32, output: String) {
    let process = Process()
    let text = FileManager.default.temporaryDirectory.appending(path: "python-\(UUID())")
    try Data().write(to: text)
    defer { try? FileManager.default.removeItem(at: text) }
    let output = try FileHandle(forWritingTo: text)
    process.executableURL = URL(filePath: "/usr/bin/python3")
    process.arguments = ["-B"] + arguments  // no __pycache__ in the checkout
    process.standardOutput = output
    process.standardError = output
    try process.run()
    process.waitUntilExit()
    return (process.terminationStatus, try String(contentsOf: text, encoding: .utf8))
  }
}
