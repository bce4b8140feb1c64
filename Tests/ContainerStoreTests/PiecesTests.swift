import ContainerStore
import Locks
import Testing

struct PiecesTests {
  /// Cancelled when the disk is asked for the third write: the bytes before it are stored by then.
  @Test func aCopyThatIsCancelledInTheMiddleLeavesNothing() throws {
    let fixture = try Fixture()
    let container = fixture.container
    try container.createDirectory("/from")
    for i in 0..<8 { try container.write(testBytes(1 << 20, seed: UInt64(i)), to: "/from/\(i)") }
    let cancellation = Cancellation()
    let writes = Guarded(0)
    fixture.io.setFault { operation, _ in
      guard operation.takesSlabSpace else { return nil }
      writes.withLock { count in
        count += 1
        if count == 3 { cancellation.cancel() }
      }
      return nil
    }
    let before = try container.info()
    let tree = try container.tree()
    expectError(.cancelled) {
      try container.copy("/from", to: "/to", control: BulkControl(cancellation: cancellation))
    }
    fixture.io.setFault(nil)
    #expect(writes.withLock { $0 } >= 3)
    #expect(try container.tree() == tree)
    let after = try container.info()
    #expect(after.liveByteCount == before.liveByteCount && after.slabByteCount == before.slabByteCount)
    #expect(try container.verify().findings == [])
    try container.copy("/from", to: "/to")
    #expect(try container.contents(at: "/to/7") == testBytes(1 << 20, seed: 7))
  }

  @Test(arguments: [0, 1, 1 << 20, (1 << 20) + 1, 3 << 20])
  func readsAndWritesInPiecesWithProgress(byteCount: Int) throws {
    let container = try Fixture().container
    let bytes = testBytes(byteCount, seed: 3)
    var reports: [BulkProgress] = []
    let control = BulkControl(progress: { reports.append($0) })
    try bytes.withUnsafeBytes { try container.write($0, to: "/file", permissions: 0o640, control: control) }
    #expect(try container.contents(at: "/file") == bytes)
    #expect(try container.attributes(at: "/file")?.permissions == 0o640)
    #expect(reports.first?.bytesDone == 0 && reports.last?.isFinished == true)
    #expect(reports.allSatisfy { $0.byteCount == UInt64(byteCount) && $0.fileCount == 1 })
    reports = []
    var found: [UInt8] = []
    var expected: UInt64?
    try container.read("/file", control: control) {
      expected = $0
    } _: {
      found += $0
    }
    #expect(found == bytes && expected == UInt64(byteCount))
    #expect(reports.first?.bytesDone == 0 && reports.last?.isFinished == true)
    #expect(zip(reports, reports.dropFirst()).allSatisfy { $0.bytesDone <= $1.bytesDone })
  }

  @Test func cancellingFromTheReportOfTheFirstPieceEndsReadingAndWriting() throws {
    let container = try Fixture().container
    let bytes = testBytes(4 << 20, seed: 3)
    try container.write([1], to: "/file")
    let before = try container.info().slabByteCount
    let cancellation = Cancellation()
    let control = BulkControl(
      progress: { if $0.bytesDone > 0 { cancellation.cancel() } }, cancellation: cancellation)
    expectError(.cancelled) {
      try bytes.withUnsafeBytes { try container.write($0, to: "/file", control: control) }
    }
    #expect(try container.contents(at: "/file") == [1])
    #expect(try container.info().slabByteCount == before)
    try container.write(bytes, to: "/file")
    let again = Cancellation()
    var count = 0
    expectError(.cancelled) {
      try container.read(
        "/file",
        control: BulkControl(progress: { if $0.bytesDone > 0 { again.cancel() } }, cancellation: again)
      ) { _ in
      } _: {
        count += $0.count
      }
    }
    #expect(count == 1 << 20)
  }

  // MARK: Listings

  @Test func aListingInPiecesIsTheWholeListing() throws {
    let container = try Fixture().container
    try container.createDirectory("/top/sub/empty", withIntermediateDirectories: true)
    // Borders of what is looked at in one go.
    for (directory, count) in [("/top/", 513), ("/top/sub/", 256)] {
      for i in 0..<count { try container.write([], to: directory + "f\(i)") }
    }
    let expected = try container.list("/top", recursively: true)
    for countMax in [1, 7, 256, 5000] {
      let listing = try container.listing(of: "/top", recursively: true)
      var found: [ListedFile] = []
      while case let piece = try listing.next(countMax), !piece.isEmpty {
        #expect(piece.count <= countMax)
        found += piece
      }
      #expect(found.count == expected.count)
      #expect(
        Dictionary(uniqueKeysWithValues: found.map { ($0.path, $0.attributes) })
          == Dictionary(uniqueKeysWithValues: expected.map { ($0.path, $0.attributes) }))
      #expect(try listing.next(countMax).isEmpty)
    }
    let flat = try container.listing(of: "/top")
    #expect(try flat.next(10_000).map(\.path) == container.names(in: "/top"))
    expectError(.noSuchFile) { try container.listing(of: "/none") }
    expectError(.notADirectory) { try container.listing(of: "/top/f0") }
  }

  @Test func aListingGoesOnShowingWhatWasThere() throws {
    let container = try Fixture().container
    for i in 0..<600 { try container.write([1], to: "/f\(i)") }
    let expected = try container.list("/")
    let listing = try container.listing(of: "/")
    var found = try listing.next(10)
    try container.remove("/f50")
    try container.write([1, 2], to: "/f60")
    try container.write([], to: "/g")
    try container.synchronize()
    while case let piece = try listing.next(10), !piece.isEmpty { found += piece }
    #expect(found.map(\.path) == expected.map(\.path))
    #expect(found.map(\.attributes) == expected.map(\.attributes))
    let another = try container.listing(of: "/")
    try container.close()
    expectError(.closed) { try another.next(1) }
  }
}
