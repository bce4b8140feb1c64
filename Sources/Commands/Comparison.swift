/// A number to compare with, as find(1) has it: `N` exactly, `+N` more, `-N` less.
struct Comparison: Equatable {
  enum Relation: Equatable { case less, equal, more }

  var relation: Relation
  var number: Int64

  init?(_ text: Substring) {
    var digits = text
    switch text.first {
    case "+": relation = .more
    case "-": relation = .less
    default: relation = .equal
    }
    if relation != .equal { digits.removeFirst() }
    // Int64 would take a sign of its own.
    guard digits.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }),
      let number = Int64(digits)
    else { return nil }
    self.number = number
  }

  func holds(for value: Int64) -> Bool {
    switch relation {
    case .less: value < number
    case .equal: value == number
    case .more: value > number
    }
  }
}
