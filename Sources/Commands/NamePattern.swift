/// A pattern of names as shells have it: `*`, `?`, `[a-z]`, `[!a]`, and `\` in front of what is meant literally.
///
/// A character is a Unicode scalar. An opening bracket that is never closed stands for itself, and so does a backslash at the end.
struct NamePattern {
  private enum Element {
    case scalar(Unicode.Scalar)
    case one
    case many
    case set([ClosedRange<Unicode.Scalar>], isNegated: Bool)

    func matches(_ scalar: Unicode.Scalar) -> Bool {
      switch self {
      case .scalar(let own): own == scalar
      case .one: true
      case .many: false
      case .set(let ranges, let isNegated): ranges.contains { $0.contains(scalar) } != isNegated
      }
    }

    var isMany: Bool {
      if case .many = self { true } else { false }
    }
  }

  private let ignoresCase: Bool
  private var elements: [Element] = []

  init(_ text: String, ignoringCase: Bool = false) {
    ignoresCase = ignoringCase
    var rest = Self.scalars(text, ignoringCase: ignoringCase)[...]
    while let scalar = rest.popFirst() {
      switch scalar {
      case "*": if elements.last?.isMany != true { elements.append(.many) }
      case "?": elements.append(.one)
      case "\\": elements.append(.scalar(rest.popFirst() ?? scalar))
      case "[": elements.append(Self.takeSet(&rest) ?? .scalar(scalar))
      default: elements.append(.scalar(scalar))
      }
    }
  }

  /// What follows an opening bracket; nil, and nothing is taken, when no closing one comes.
  private static func takeSet(_ text: inout ArraySlice<Unicode.Scalar>) -> Element? {
    var rest = text
    let isNegated = rest.first == "!" || rest.first == "^"
    if isNegated { rest.removeFirst() }
    var ranges: [ClosedRange<Unicode.Scalar>] = []
    var isFirst = true
    while let scalar = rest.popFirst() {
      if scalar == "]", !isFirst {
        text = rest
        return .set(ranges, isNegated: isNegated)
      }
      isFirst = false
      guard let low = scalar == "\\" ? rest.popFirst() : scalar else { return nil }
      var high = low
      if rest.first == "-", let end = rest.dropFirst().first, end != "]" {
        rest.removeFirst(2)
        guard let last = end == "\\" ? rest.popFirst() : end else { return nil }
        high = last
      }
      // A range from high to low has nothing in it.
      if low <= high { ranges.append(low...high) }
    }
    return nil
  }

  private static func scalars(_ text: String, ignoringCase: Bool) -> [Unicode.Scalar] {
    ignoringCase
      ? text.unicodeScalars.flatMap { $0.properties.lowercaseMapping.unicodeScalars }
      : Array(text.unicodeScalars)
  }

  /// Whether the whole name matches. Time grows with the product of both lengths at worst.
  func matches(_ name: String) -> Bool {
    let name = Self.scalars(name, ignoringCase: ignoresCase)
    var (position, next) = (0, 0)
    // Where the last star stood, and how far it reaches: when what follows fails, it takes one more.
    var star: (element: Int, end: Int)?
    while position < name.count {
      if next < elements.count, elements[next].isMany {
        star = (next, position)
        next += 1
      } else if next < elements.count, elements[next].matches(name[position]) {
        next += 1
        position += 1
      } else if let (element, end) = star {
        star = (element, end + 1)
        (position, next) = (end + 1, element + 1)
      } else {
        return false
      }
    }
    return elements[next...].allSatisfy(\.isMany)
  }
}
