import TestSupport
import Testing

@testable import ContainerStore

/// The same map as the plainest code that can be right: a sorted array.
private struct SortedArray: Equatable {
  var records: [(key: CatalogKey, value: Int)] = []

  static func == (a: SortedArray, b: SortedArray) -> Bool {
    a.records.elementsEqual(b.records) { $0.key == $1.key && $0.value == $1.value }
  }

  subscript(key: CatalogKey) -> Int? {
    get { records.first { $0.key == key }?.value }
    set {
      records.removeAll { $0.key == key }
      if let newValue {
        records.insert((key, newValue), at: records.firstIndex { $0.key > key } ?? records.count)
      }
    }
  }
}

extension OrderedMap<Int> {
  fileprivate var all: SortedArray {
    var all = SortedArray()
    visit { all.records.append(($0, $1)) }
    return all
  }

  /// Up to so many records from a key on.
  fileprivate func records(from key: CatalogKey, _ count: Int = .max) -> [(key: CatalogKey, value: Int)] {
    var found: [(key: CatalogKey, value: Int)] = []
    var position = position(of: key)
    while found.count < count, let record = next(&position) { found.append(record) }
    return found
  }
}

struct OrderedMapTests {
  /// Few keys collide often; short ones are prefixes of others.
  private func key(_ random: inout SplitMix64) -> CatalogKey {
    let count = Int(random.next() % 4)
    return CatalogKey(bytes: (0..<count).map { _ in UInt8(truncatingIfNeeded: random.next() % 3 * 127) })
  }

  @Test(arguments: 0..<4)
  func doesWhatASortedArrayDoes(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    var map = OrderedMap<Int>()
    var oracle = SortedArray()
    for i in 0..<1500 {
      let key = key(&random)
      if random.next() % 3 == 0 {
        map[key] = nil
        oracle[key] = nil
      } else {
        map[key] = i
        oracle[key] = i
      }
      #expect(map.count == oracle.records.count)
      let asked = self.key(&random)
      #expect(map[asked] == oracle[asked])
      #expect(
        map.records(from: asked).map(\.value)
          == oracle.records.filter { $0.key >= asked }.map(\.value))
      if i % 50 == 0 { #expect(map.all == oracle) }
    }
    #expect(map.all == oracle)
  }

  @Test(arguments: [0, 1, 255, 256, 257, 511, 512, 513, 2000])
  func keepsOrderAcrossPages(count: Int) {
    func key(_ i: Int) -> CatalogKey { .inode(UInt64(i)) }
    let ascending = Array(0..<count)
    var shuffled = ascending
    var random = SplitMix64(seed: UInt64(count))
    shuffled.shuffle(using: &random)
    for order in [ascending, ascending.reversed(), shuffled] {
      var map = OrderedMap<Int>()
      for i in order { map[key(i)] = i }
      #expect(map.count == count)
      #expect(map.all.records.map(\.value) == ascending)
      // From every place, and not from others.
      for i in stride(from: 0, to: count, by: 97) {
        #expect(map.records(from: key(i), 3).map(\.value) == Array(ascending[i...].prefix(3)))
      }
      for i in order.reversed() { map[key(i)] = nil }
      #expect(map.count == 0)
      #expect(map.all.records.isEmpty)
      #expect(map[key(0)] == nil)
    }
  }

  @Test func aSnapshotStaysAsItWas() {
    var random = SplitMix64(seed: 9)
    var map = OrderedMap<Int>()
    for i in 0..<1000 { map[.inode(random.next() % 2000)] = i }
    var snapshots: [(OrderedMap<Int>, SortedArray)] = []
    for i in 0..<300 {
      if i % 30 == 0 { snapshots.append((map, map.all)) }
      let key = CatalogKey.inode(random.next() % 2000)
      map[key] = random.next() & 1 == 0 ? nil : -i
    }
    for (snapshot, then) in snapshots {
      #expect(snapshot.all == then)
      #expect(snapshot.count == then.records.count)
    }
    // The other way round: changing a copy does not change the original.
    let last = map.all
    var copy = map
    for (key, _) in last.records { copy[key] = nil }
    #expect(copy.count == 0)
    #expect(map.all == last)
  }

  /// Rows of keys in order, up and down, between others: each begins behind a full page again and again.
  @Test(arguments: 0..<8)
  func takesRowsBetweenOtherKeys(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    var map = OrderedMap<Int>()
    var oracle: [UInt64: Int] = [:]
    for row in 0..<12 {
      let begin = random.next() % 20_000
      let goesUp = random.next() & 1 == 0
      for i in 0..<(random.next() % 1200) {
        let key = goesUp ? begin + i : begin + 1200 - i
        map[.inode(key)] = row
        oracle[key] = row
      }
      #expect(map.count == oracle.count)
      #expect(map.all.records.map(\.key) == oracle.keys.sorted().map { .inode($0) })
    }
    for (key, value) in oracle { #expect(map[.inode(key)] == value) }
  }

  @Test(arguments: [(0, 0), (0, 700), (700, 0), (3, 700), (700, 3), (700, 700), (2000, 1500)])
  func mergesWithTheNewerOneOnTop(olderCount: Int, newerCount: Int) {
    var random = SplitMix64(seed: UInt64(olderCount * 7 + newerCount))
    func map(_ count: Int, _ sign: Int) -> OrderedMap<Int?> {
      var map = OrderedMap<Int?>()
      // A deletion is a record, too.
      for i in 0..<count { map.put(.inode(random.next() % 3000), i % 5 == 0 ? nil : sign * (i + 1)) }
      return map
    }
    let older = map(olderCount, 1)
    let newer = map(newerCount, -1)
    var expected: [CatalogKey: Int?] = [:]
    older.visit { expected.updateValue($1, forKey: $0) }
    newer.visit { expected.updateValue($1, forKey: $0) }
    var merged = older
    merged.merge(newer)
    var found: [(CatalogKey, Int?)] = []
    merged.visit { found.append(($0, $1)) }
    #expect(merged.count == expected.count)
    #expect(found.map(\.0) == expected.keys.sorted())
    #expect(found.allSatisfy { expected[$0.0] == .some($0.1) })
  }
}
