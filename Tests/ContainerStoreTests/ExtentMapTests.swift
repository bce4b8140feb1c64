import EncryptedFile
import SodiumPrimitives
import TestSupport
import Testing

@testable import ContainerStore

private let full = UInt32(SegmentLayout.plaintextByteCountMax)
private let session = Identifier(Array(repeating: UInt8(5), count: 16))

/// A run whose counter and place in the slab follow from `counter`: runs with consecutive counters are neighbours.
private func run(_ start: UInt64, _ count: UInt32 = 1, counter: UInt64, last: UInt32 = full, slab: UInt32 = 0)
  -> Extent
{
  Extent(
    start: start, count: count, lastLength: last,
    writeNumber: WriteNumber(session: session, counter: counter), slab: slab,
    offset: counter * UInt64(SegmentLayout.storedByteCountMax))
}

/// What the catalog holds of a file, kept by applying changes only.
private struct Records: Equatable {
  var first: Extent?
  var others: [UInt64: Extent] = [:]

  init(_ map: ExtentMap) {
    first = map.first
    for extent in map.extents.dropFirst() { others[extent.start] = extent }
  }

  mutating func apply(_ change: ExtentMap.Change, first: Extent?) {
    for start in change.deletes {
      #expect(others.removeValue(forKey: start) != nil, "deletes a record that is not there: \(start)")
    }
    for extent in change.puts {
      #expect(others.updateValue(extent, forKey: extent.start) != extent, "puts what is there already")
    }
    self.first = first
  }
}

struct ExtentMapTests {
  @Test func aRunInTheMiddleSplitsTheOneThatCoveredIt() {
    var map = ExtentMap(checked: [run(0, 10, counter: 1, last: 100)])
    let change = map.replace(with: [run(4, 2, counter: 50)])
    #expect(
      map.extents == [
        run(0, 4, counter: 1), run(4, 2, counter: 50), run(6, 4, counter: 7, last: 100),
      ])
    #expect(change.puts == [run(4, 2, counter: 50), run(6, 4, counter: 7, last: 100)])
    #expect(change.deletes == [])
    #expect(change.removed == [run(4, 2, counter: 5)])
  }

  @Test func aRunBeforeTheFirstTakesItsPlaceInTheInode() {
    var map = ExtentMap(checked: [run(5, counter: 1), run(9, counter: 2)])
    let change = map.replace(with: [run(1, counter: 7)])
    #expect(map.first == run(1, counter: 7))
    #expect(change == ExtentMap.Change(puts: [run(5, counter: 1)], deletes: [], removed: []))
  }

  @Test func theSecondBecomesFirstWhenTheFirstIsCovered() {
    var map = ExtentMap(checked: [run(1, counter: 1), run(4, counter: 3), run(9, counter: 5)])
    let change = map.replace(with: [run(1, 4, counter: 20)])
    #expect(map.extents == [run(1, 4, counter: 20), run(9, counter: 5)])
    #expect(change.deletes == [4])
    #expect(change.puts == [])
    #expect(change.removed == [run(1, counter: 1), run(4, counter: 3)])
  }

  @Test func runsThatContinueOneAnotherAreJoined() {
    var map = ExtentMap(checked: [run(0, 3, counter: 1)])
    let change = map.replace(with: [run(3, 2, counter: 4), run(5, counter: 6, last: 9)])
    #expect(map.extents == [run(0, 6, counter: 1, last: 9)])
    #expect(change == ExtentMap.Change())
    // Not after a short segment, in another slab, or with another counter.
    _ = map.replace(with: [run(6, counter: 7)])
    _ = map.replace(with: [run(7, counter: 8, slab: 1)])
    _ = map.replace(with: [run(8, counter: 10, slab: 1)])
    #expect(map.extents.count == 4)
  }

  @Test func cuttingRemovesWhatComesAfter() {
    var map = ExtentMap(checked: [run(0, 4, counter: 1), run(6, 4, counter: 20), run(12, counter: 30)])
    let change = map.remove(from: 7)
    #expect(map.extents == [run(0, 4, counter: 1), run(6, counter: 20)])
    #expect(change.puts == [run(6, counter: 20)])
    #expect(change.deletes == [12])
    #expect(change.removed == [run(7, 3, counter: 21), run(12, counter: 30)])
    #expect(map.remove(from: 7) == ExtentMap.Change())
    let all = map.remove(from: 0)
    #expect(map.extents.isEmpty && map.first == nil)
    #expect(all.deletes == [6])
    #expect(all.removed == [run(0, 4, counter: 1), run(6, counter: 20)])
  }

  @Test func looksUpSegmentsAndSlices() {
    let map = ExtentMap(checked: [run(2, 3, counter: 1, last: 7), run(8, 2, counter: 9)])
    #expect(map.segment(1) == nil)
    #expect(map.segment(2) == run(2, counter: 1))
    #expect(map.segment(4) == run(4, counter: 3, last: 7))
    #expect(map.segment(5) == nil)
    #expect(map.segment(10) == nil)
    #expect(map.slices(3..<9) == [run(3, 2, counter: 2, last: 7), run(8, counter: 9)])
    #expect(map.slices(5..<8) == [])
  }

  /// Against a row that holds each grain's segment by itself.
  @Test(arguments: 0..<40)
  func agreesWithARowOfSingleSegments(seed: Int) {
    var random = SplitMix64(seed: UInt64(seed))
    func below(_ bound: Int) -> Int { Int(random.next() % UInt64(bound)) }
    var map = ExtentMap()
    var model: [UInt64: Extent] = [:]
    var records = Records(map)
    var counter: UInt64 = 1
    let grains = [12, 60, 400][seed % 3]
    for step in 0..<150 {
      var removed: Set<Extent> = []
      var changes: [ExtentMap.Change] = []
      if below(6) == 0 {
        let cut = UInt64(below(grains))
        for (grain, segment) in model where grain >= cut {
          removed.insert(segment)
          model[grain] = nil
        }
        changes.append(map.remove(from: cut))
      } else {
        var runs: [Extent] = []
        var grain = UInt64(below(grains / 2))
        for _ in 0..<(1 + below(8)) where grain < UInt64(grains) {
          let count = UInt32(1 + below(4))
          let last = below(3) == 0 ? UInt32(1 + below(Int(full))) : full
          // Now and then at the place that would continue another run.
          if below(3) == 0 { counter += 1 }
          runs.append(run(grain, count, counter: counter, last: last, slab: UInt32(below(2))))
          for i in 0..<Int(count) {
            let segment = runs.last!.slice(skipping: i, count: 1)
            if let old = model.updateValue(segment, forKey: segment.start) { removed.insert(old) }
          }
          counter += UInt64(count)
          grain += UInt64(count) + UInt64(below(3))
        }
        changes.append(map.replace(with: runs))
      }
      for change in changes { records.apply(change, first: map.first) }
      let singles = { (extents: [Extent]) in
        extents.flatMap { extent in
          (0..<Int(extent.count)).map { extent.slice(skipping: $0, count: 1) }
        }
      }
      #expect(
        singles(map.extents) == model.values.sorted { $0.start < $1.start }, "seed \(seed), step \(step)")
      let gone = changes.flatMap { singles($0.removed) }
      #expect(Set(gone) == removed && gone.count == removed.count, "seed \(seed), step \(step)")
      #expect(records == Records(map), "seed \(seed), step \(step)")
      for _ in 0..<5 {
        let grain = UInt64(below(grains))
        #expect(map.segment(grain) == model[grain], "seed \(seed), step \(step), grain \(grain)")
      }
    }
  }
}
