import SodiumPrimitives

/// Elements in their order, of which any may be taken out by its id without a search: whoever takes out many, one after another, does not
/// cost the square of their number.
struct RemovableQueue<Element> {
  private var slots: [(id: Identifier, number: UInt64, element: Element)] = []
  /// Those that are there: what else is in `slots` was taken out.
  private var numbers: [Identifier: UInt64] = [:]
  private var nextNumber: UInt64 = 0

  /// Slots of elements that were taken out, from which on they are let go of when they are the most.
  private static var emptyCountMin: Int { 32 }

  var count: Int { numbers.count }
  var isEmpty: Bool { numbers.isEmpty }
  var elements: [Element] { slots.filter(isThere).map(\.element) }
  var first: Element? { slots.first(where: isThere)?.element }

  private func isThere(_ slot: (id: Identifier, number: UInt64, element: Element)) -> Bool {
    numbers[slot.id] == slot.number
  }

  /// In the place of one with this id, if there is one.
  mutating func append(_ element: Element, _ id: Identifier) {
    numbers[id] = nextNumber
    slots.append((id, nextNumber, element))
    nextNumber += 1
    letGo()
  }

  mutating func remove(_ id: Identifier) {
    guard numbers.removeValue(forKey: id) != nil else { return }
    letGo()
  }

  /// The first elements, so many at most.
  mutating func takeFirst(_ countMax: Int) -> [Element] {
    var taken: [Element] = []
    var end = 0
    while end < slots.count, taken.count < countMax {
      if isThere(slots[end]) {
        numbers[slots[end].id] = nil
        taken.append(slots[end].element)
      }
      end += 1
    }
    slots.removeFirst(end)
    return taken
  }

  mutating func takeAll() -> [Element] { takeFirst(.max) }

  private mutating func letGo() {
    let emptyCount = slots.count - numbers.count
    if emptyCount > max(numbers.count, Self.emptyCountMin) { slots = slots.filter(isThere) }
  }
}
