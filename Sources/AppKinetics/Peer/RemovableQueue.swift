import SodiumPrimitives

/// Elements in their order, of which any may be taken out by its id without a search: whoever takes out many, one after another, does not
/// cost the square of their number.
struct RemovableQueue<Element> {
  private struct Slot {
    let number: UInt64
    let id: Identifier
    /// Nil once it was taken out.
    var element: Element?
  }

  /// By number. Before `begin` all are empty.
  private var slots: [Slot] = []
  private var begin = 0
  private var numbers: [Identifier: UInt64] = [:]
  private var nextNumber: UInt64 = 0
  private(set) var count = 0

  /// So many empty slots are kept, and more only while there are fewer of them than elements.
  private static var emptyCountMax: Int { 32 }

  var isEmpty: Bool { count == 0 }
  var first: Element? { begin < slots.count ? slots[begin].element : nil }

  /// Of elements with one id, `remove` finds the last.
  mutating func append(_ element: Element, _ id: Identifier) {
    numbers[id] = nextNumber
    slots.append(Slot(number: nextNumber, id: id, element: element))
    nextNumber += 1
    count += 1
  }

  mutating func remove(_ id: Identifier) {
    guard let number = numbers.removeValue(forKey: id) else { return }
    var (low, high) = (begin, slots.count)
    while low < high {
      let middle = (low + high) / 2
      if slots[middle].number < number { low = middle + 1 } else { high = middle }
    }
    slots[low].element = nil
    count -= 1
    letGo()
  }

  /// The first elements, so many at most, and none from the first on that is not meant.
  mutating func takeFirst(_ countMax: Int, while isMeant: (Element) -> Bool = { _ in true }) -> [Element] {
    var taken: [Element] = []
    while begin < slots.count, taken.count < countMax {
      if let element = slots[begin].element {
        guard isMeant(element) else { break }
        taken.append(element)
        if numbers[slots[begin].id] == slots[begin].number { numbers[slots[begin].id] = nil }
        slots[begin].element = nil
        count -= 1
      }
      begin += 1
    }
    letGo()
    return taken
  }

  mutating func takeAll() -> [Element] { takeFirst(.max) }

  private mutating func letGo() {
    while begin < slots.count, slots[begin].element == nil { begin += 1 }
    guard slots.count - count > max(count, Self.emptyCountMax) else { return }
    slots.removeAll { $0.element == nil }
    begin = 0
  }
}
