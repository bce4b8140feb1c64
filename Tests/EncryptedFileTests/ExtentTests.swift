import EncryptedFile
import Testing

struct ExtentTests {
  static let grain = UInt64(SegmentLayout.plaintextByteCountMax)
  static let sizeMax: UInt64 = (1 << 62) - 1

  private func extent(_ change: (inout Extent) -> Void = { _ in }) -> Extent {
    var extent = Extent(
      start: 100, count: 10, lastLength: 77, writeNumber: WriteNumber(session: .random(), counter: 50),
      slab: 3,
      offset: 4096)
    change(&extent)
    return extent
  }

  // MARK: Sizes

  /// The table "Worked examples" of FILE-FORMAT.md.
  @Test(arguments: [
    (0, 0, 0), (1, 1, 42), (16384, 1, 16425), (16385, 2, 16467), (1_048_576, 64, 1_051_200),
    (1 << 30, 65536, 1_076_428_800),
  ])
  func byteCountsAreThoseOfTheFormatPage(size: Int, segments: Int, stored: Int) throws {
    #expect(SegmentLayout.segmentCount(UInt64(size)) == UInt64(segments))
    #expect(SegmentLayout.storedByteCount(size) == stored)
    guard size <= 1 << 20 else { return }
    let file = try StoredFile(byteCount: size)
    #expect(file.slabs[0]!.count == stored)
    #expect(file.extents.reduce(0) { $0 + Int($1.count) } == segments)
    #expect(file.extents.reduce(0) { $0 + $1.storedByteCount } == stored)
  }

  @Test func countsTheBytesOfARun() {
    let extent = extent()
    #expect(extent.plaintextByteCount == 9 * 16384 + 77)
    #expect(extent.storedByteCount == 9 * 16425 + 77 + 41)
    #expect(extent.end == 110)
  }

  // MARK: Slices

  @Test func sliceOfTheWholeIsTheWhole() {
    let extent = extent()
    #expect(extent.slice(skipping: 0, count: 10) == extent)
  }

  @Test func sliceMovesEveryNumberAlong() {
    let extent = extent()
    let middle = extent.slice(skipping: 3, count: 4)
    #expect(
      middle
        == Extent(
          start: 103, count: 4, lastLength: 16384,
          writeNumber: WriteNumber(session: extent.writeNumber.session, counter: 53), slab: 3,
          offset: 4096 + 3 * 16425))
    #expect(extent.slice(skipping: 9, count: 1).lastLength == 77)
    #expect(extent.slice(skipping: 8, count: 1).lastLength == 16384)
  }

  @Test func slicesOfARunLieBackToBack() {
    let extent = extent()
    for cut in 1..<10 {
      let (left, right) = (
        extent.slice(skipping: 0, count: cut), extent.slice(skipping: cut, count: 10 - cut)
      )
      #expect(right.start == left.end && right.end == extent.end)
      #expect(right.offset == left.offset + UInt64(left.storedByteCount))
      #expect(left.storedByteCount + right.storedByteCount == extent.storedByteCount)
      #expect(left.plaintextByteCount + right.plaintextByteCount == extent.plaintextByteCount)
    }
  }

  @Test(arguments: [(0, 0), (0, 11), (10, 1), (-1, 1)])
  func sliceOutsideTheRunEndsTheProcess(skipped: Int, count: Int) async {
    await #expect(processExitsWith: .failure) { [skipped, count] in
      _ = Extent(
        start: 100, count: 10, lastLength: 77, writeNumber: WriteNumber(session: .zero, counter: 50), slab: 3,
        offset: 0
      ).slice(skipping: skipped, count: count)
    }
  }

  // MARK: Limits

  @Test func countIsAtLeastOne() {
    #expect(!extent { $0.count = 0 }.isValid(inFileOfSize: Self.sizeMax))
    #expect(extent { $0.count = 1 }.isValid(inFileOfSize: Self.sizeMax))
    #expect(extent { $0.count = .max }.isValid(inFileOfSize: Self.sizeMax))
  }

  @Test(arguments: [(0, false), (1, true), (16384, true), (16385, false), (.max, false)] as [(UInt32, Bool)])
  func lastLengthIsThatOfOneGrain(lastLength: UInt32, isValid: Bool) {
    #expect(extent { $0.lastLength = lastLength }.isValid(inFileOfSize: Self.sizeMax) == isValid)
  }

  @Test func reachesUpToTheSizeAndNotPastIt() {
    let end = 109 * Self.grain + 77
    #expect(extent().isValid(inFileOfSize: end))
    #expect(!extent().isValid(inFileOfSize: end - 1))
    #expect(!extent().isValid(inFileOfSize: 0))
  }

  @Test func startStaysBelowTwoToThe48() {
    func last(_ start: UInt64, _ count: UInt32, _ lastLength: UInt32) -> Extent {
      extent { ($0.start, $0.count, $0.lastLength) = (start, count, lastLength) }
    }
    #expect(last((1 << 48) - 1, 1, 16383).isValid(inFileOfSize: Self.sizeMax))
    #expect(!last((1 << 48) - 1, 1, 16384).isValid(inFileOfSize: Self.sizeMax))
    #expect(!last((1 << 48) - 1, 2, 1).isValid(inFileOfSize: Self.sizeMax))
    for start: UInt64 in [1 << 48, .max / Self.grain, .max - 1, .max] {
      for count: UInt32 in [1, .max] { #expect(!last(start, count, 1).isValid(inFileOfSize: Self.sizeMax)) }
    }
  }

  @Test(arguments: [(0, true), ((1 << 48) - 1, true), (1 << 48, false), (.max, false)] as [(UInt64, Bool)])
  func offsetStaysBelowTwoToThe48(offset: UInt64, isValid: Bool) {
    #expect(extent { $0.offset = offset }.isValid(inFileOfSize: Self.sizeMax) == isValid)
  }

  @Test func sizeStaysBelowTwoToThe62() {
    #expect(extent().isValid(inFileOfSize: Self.sizeMax))
    #expect(!extent().isValid(inFileOfSize: Self.sizeMax + 1))
    #expect(!extent().isValid(inFileOfSize: .max))
  }

  /// Counters are 1 … 2⁶⁴ − 2, also that of the last segment.
  @Test(arguments: [1, 10, UInt32.max])
  func countersStayBelowTheGreatest(count: UInt32) {
    func isValid(_ counter: UInt64) -> Bool {
      extent { ($0.count, $0.writeNumber.counter) = (count, counter) }.isValid(inFileOfSize: Self.sizeMax)
    }
    let last = UInt64.max - UInt64(count)
    #expect(!isValid(0) && isValid(1))
    #expect(isValid(last - 1) && isValid(last))
    #expect(!isValid(last + 1) && !isValid(.max))
  }

  // MARK: Errors

  @Test func errorsNameTheByteAndDoNotFailOnImpossiblePlaces() {
    #expect("\(SegmentError.notAuthentic(grain: 2))".contains("byte 32768 "))
    for grain in [0, UInt64.max] {
      for error: SegmentError in [
        .notAuthentic(grain: grain), .missingBytes(grain: grain), .damagedExtent(grain: grain),
        .sealedWrongly(grain: grain), .crypto(.notAuthentic),
      ] { #expect(!"\(error)".isEmpty) }
    }
  }
}
