/// A memtable: changes of the catalog, which are new values, or nil for deletions.
typealias ChangeMap = OrderedMap<[UInt8]?>

/// Values in the order of their catalog keys, in pages of sorted keys and values.
///
/// A value type: a copy is a snapshot, and shares every page that neither side changes.
struct OrderedMap<Value: Sendable>: Sendable {
  private struct Page: Sendable {
    var keys: [CatalogKey]
    var values: [Value]

    mutating func insert(_ key: CatalogKey, _ value: Value, at position: Int) {
      keys.insert(key, at: position)
      values.insert(value, at: position)
    }
  }

  private static var recordsPerPageMax: Int { 256 }
  private var pages: [Page] = []
  private(set) var count = 0

  init() {}

  subscript(key: CatalogKey) -> Value? {
    get {
      guard let page = pageIndex(for: key) else { return nil }
      let (position, found) = Self.position(of: key, in: pages[page].keys)
      return found ? pages[page].values[position] : nil
    }
    set {
      if let newValue { put(key, newValue) } else { remove(key) }
    }
  }

  var isEmpty: Bool { pages.isEmpty }

  /// Calls `body` for all records, in order.
  func visit(_ body: (CatalogKey, Value) throws -> Void) rethrows {
    for page in pages {
      for i in page.keys.indices { try body(page.keys[i], page.values[i]) }
    }
  }

  /// A position among the records.
  struct Position {
    fileprivate var page: Int
    fileprivate var record: Int
  }

  /// The position of the first record whose key is not before `key`.
  func position(of key: CatalogKey) -> Position {
    guard let page = pageIndex(for: key) else { return Position(page: 0, record: 0) }
    return Position(page: page, record: Self.position(of: key, in: pages[page].keys).position)
  }

  /// The record at the position, which then advances to the next one; nil at the end.
  func next(_ position: inout Position) -> (key: CatalogKey, value: Value)? {
    while position.page < pages.count {
      let page = pages[position.page]
      if position.record < page.keys.count {
        defer { position.record += 1 }
        return (page.keys[position.record], page.values[position.record])
      }
      position = Position(page: position.page + 1, record: 0)
    }
    return nil
  }

  mutating func put(_ key: CatalogKey, _ value: Value) {
    guard let page = pageIndex(for: key) else {
      pages = [Page(keys: [key], values: [value])]
      count = 1
      return
    }
    let (position, found) = Self.position(of: key, in: pages[page].keys)
    if found {
      pages[page].values[position] = value
      return
    }
    count += 1
    if position == Self.recordsPerPageMax {
      // The key follows a full page. Keys often arrive in order, so a new page serves the next keys
      // better than two halves.
      if page + 1 == pages.count || pages[page + 1].keys.count == Self.recordsPerPageMax {
        pages.insert(Page(keys: [key], values: [value]), at: page + 1)
      } else {
        pages[page + 1].insert(key, value, at: 0)
      }
      return
    }
    pages[page].insert(key, value, at: position)
    if pages[page].keys.count > Self.recordsPerPageMax { split(page) }
  }

  /// Adds all records of `newer`, which replace those with the same keys. The result shares the
  /// pages of the larger map.
  mutating func merge(_ newer: OrderedMap) {
    guard newer.count > count else { return newer.visit { put($0, $1) } }
    let older = self
    self = newer
    older.visit { key, value in
      if case .none = self[key] { put(key, value) }
    }
  }

  private mutating func remove(_ key: CatalogKey) {
    guard let page = pageIndex(for: key) else { return }
    let (position, found) = Self.position(of: key, in: pages[page].keys)
    guard found else { return }
    count -= 1
    pages[page].keys.remove(at: position)
    pages[page].values.remove(at: position)
    if pages[page].keys.isEmpty { pages.remove(at: page) }
  }

  private mutating func split(_ page: Int) {
    let middle = pages[page].keys.count / 2
    let upper = Page(
      keys: Array(pages[page].keys[middle...]), values: Array(pages[page].values[middle...]))
    pages[page].keys.removeSubrange(middle...)
    pages[page].values.removeSubrange(middle...)
    pages.insert(upper, at: page + 1)
  }

  /// The last page whose first key is not after `key`, or the first page.
  private func pageIndex(for key: CatalogKey) -> Int? {
    guard !pages.isEmpty else { return nil }
    var low = 0
    var high = pages.count
    while low < high {
      let middle = (low + high) / 2
      if key < pages[middle].keys[0] { high = middle } else { low = middle + 1 }
    }
    return max(low - 1, 0)
  }

  /// The index of `key`, or the index at which it would be inserted.
  private static func position(of key: CatalogKey, in keys: [CatalogKey]) -> (position: Int, found: Bool) {
    var low = 0
    var high = keys.count
    while low < high {
      let middle = (low + high) / 2
      if keys[middle] < key { low = middle + 1 } else { high = middle }
    }
    return (low, low < keys.count && keys[low] == key)
  }
}
