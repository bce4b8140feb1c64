/// Records of several sources in the order of their keys. Of records with one key, only the newest
/// source's is returned.
struct MergedCursor {
  /// A sequence of records, read from front to back.
  final class Source {
    private enum Row {
      case map(ChangeMap, ChangeMap.Position)
      case table(TableFile, TableFile.Position)
    }
    private var row: Row
    /// The record at the front; nil at the end.
    fileprivate(set) var front: (key: CatalogKey, value: [UInt8]?)?
    /// The source's place in the order, 0 for the newest.
    fileprivate var age = 0

    init(_ map: ChangeMap, from key: CatalogKey) { row = .map(map, map.position(of: key)) }

    init(_ table: TableFile, from key: CatalogKey, _ mode: TableFile.ReadMode = .cached) throws {
      row = .table(table, try table.position(of: key, mode))
    }

    /// Returns what was lost between the record that was at the front and the one that is.
    fileprivate func advance() throws -> TableFile.LostRange? {
      switch row {
      case .map(let map, var position):
        front = map.next(&position).map { ($0.key, $0.value) }
        row = .map(map, position)
        return nil
      case .table(let table, var position):
        front = try table.next(&position)
        defer { row = .table(table, position) }
        return position.takeLost()
      }
    }
  }

  /// The sources that are not at their end, newest first.
  private var sources: [Source]
  /// What sources have lost, which hides the records of older ones.
  private var lost: [(age: Int, range: TableFile.LostRange)] = []
  /// Everything that was lost so far.
  private(set) var lostRanges: [TableFile.LostRange] = []
  /// Whether records of older sources are returned also where a newer one has lost what it had.
  var showsOlder = false

  init(_ sources: [Source]) throws {
    self.sources = sources
    for (age, source) in sources.enumerated() {
      source.age = age
      try advance(source)
    }
  }

  /// The next record; nil at the end. A nil value is a tombstone.
  mutating func next() throws -> (key: CatalogKey, value: [UInt8]?)? {
    while let (key, value, age) = try nextOfAny() {
      if lost.isEmpty || showsOlder { return (key, value) }
      lost.removeAll { $0.range.isBefore(key) }
      if !lost.contains(where: { $0.age < age && $0.range.contains(key) }) { return (key, value) }
    }
    return nil
  }

  private mutating func nextOfAny() throws -> (key: CatalogKey, value: [UInt8]?, age: Int)? {
    guard var newest = sources.first else { return nil }
    if sources.count == 1 {
      let record = newest.front!
      try advance(newest)
      return (record.key, record.value, newest.age)
    }
    for source in sources.dropFirst() where source.front!.key < newest.front!.key { newest = source }
    let record = newest.front!
    for source in sources where source !== newest && source.front!.key == record.key { try advance(source) }
    try advance(newest)
    return (record.key, record.value, newest.age)
  }

  mutating func nextLive() throws -> (key: CatalogKey, value: [UInt8])? {
    while let (key, value) = try next() {
      if let value { return (key, value) }
    }
    return nil
  }

  private mutating func advance(_ source: Source) throws {
    if let range = try source.advance() {
      lost.append((source.age, range))
      lostRanges.append(range)
    }
    if source.front == nil { sources.removeAll { $0 === source } }
  }
}
