import SodiumPrimitives
import Testing

@testable import AppKinetics

struct RemovableQueueTests {
  private func id(_ number: Int) -> Identifier { Identifier(high: 0, low: UInt64(number)) }

  @Test func givesWhatIsLeftInItsOrder() {
    var queue = RemovableQueue<Int>()
    #expect(queue.isEmpty && queue.first == nil && queue.takeAll() == [])
    for i in 0..<200 { queue.append(i, id(i)) }
    for i in stride(from: 0, to: 200, by: 2) { queue.remove(id(i)) }
    queue.remove(id(0))
    queue.remove(id(1000))
    #expect(queue.count == 100 && queue.first == 1)
    #expect(queue.takeFirst(3) == [1, 3, 5])
    queue.append(-2, id(2))
    // Of two with one id the last is removed.
    queue.append(-9, id(9))
    queue.append(-11, id(11))
    queue.remove(id(9))
    queue.remove(id(9))
    #expect(queue.count == 99)
    #expect(queue.takeAll() == Array(stride(from: 7, to: 200, by: 2)) + [-2, -11])
    #expect(queue.isEmpty && queue.count == 0)
  }

  /// What was taken out is let go of, also when nobody takes from the front.
  @Test func keepsNothingThatWasTakenOut() {
    final class Element: Sendable {}
    var queue = RemovableQueue<Element>()
    weak var last: Element?
    queue.append(Element(), id(5000))
    for i in 0..<1000 {
      let element = Element()
      if i == 500 { last = element }
      queue.append(element, id(i))
      queue.remove(id(i))
    }
    #expect(last == nil && queue.count == 1)
  }
}
