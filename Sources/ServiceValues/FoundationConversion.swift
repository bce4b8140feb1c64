import Foundation

/// Keeps the limits while converting, so that what is too large is not converted first. An
/// `NSArray` that holds itself is beyond help: on Linux the cast to a Swift array does not end.
struct FoundationConversion {
  let limits: ServiceValue.Limits
  var path: ServicePath
  var elementCount = 0

  mutating func value(of any: Any) throws(Problem) -> ServiceValue {
    // Objects first: `NSNumber(value: 1)` can be cast to each of the types below.
    if type(of: any) is AnyClass, let number = any as? NSNumber { return try value(of: number) }
    switch any {
    case let value as String: return .string(value)
    case let value as Bool: return .boolean(value)
    case let value as Double: return .number(value)
    case let value as Float: return .number(Double(value))
    case let value as any BinaryInteger: return try integer(value)
    case is NSNull: return .null
    case let value as Data: return .bytes([UInt8](value))
    case let value as any OptionalValue:
      return try value.wrapped.map { any throws(Problem) in try self.value(of: any) } ?? .null
    case let value as [Any]: return try array(value)
    case let value as [String: Any]: return try object(value)
    default: throw Problem(path: path, detail: "\(type(of: any)) is no kind of parameter")
    }
  }

  private func value(of number: NSNumber) throws(Problem) -> ServiceValue {
    // Booleans are two objects, on Linux as on Apple platforms; their type code is that of a small
    // integer.
    if number === NSNumber(value: true) { return .boolean(true) }
    if number === NSNumber(value: false) { return .boolean(false) }
    switch UInt8(bitPattern: number.objCType[0]) {
    case UInt8(ascii: "d"), UInt8(ascii: "f"): return .number(number.doubleValue)
    case UInt8(ascii: "Q"): return try integer(number.uint64Value)
    default: return .integer(number.int64Value)
    }
  }

  private func integer(_ value: some BinaryInteger) throws(Problem) -> ServiceValue {
    guard let value = Int64(exactly: value) else {
      throw Problem(path: path, detail: "an integer has 64 bits and a sign; this one needs more")
    }
    return .integer(value)
  }

  private mutating func array(_ elements: [Any]) throws(Problem) -> ServiceValue {
    try enter(elements.count)
    var values: [ServiceValue] = []
    for (i, element) in elements.enumerated() {
      path.steps.append(.index(i))
      values.append(try value(of: element))
      path.steps.removeLast()
    }
    return .array(values)
  }

  private mutating func object(_ members: [String: Any]) throws(Problem) -> ServiceValue {
    try enter(members.count)
    var values: [String: ServiceValue] = [:]
    for key in members.keys.sorted(by: utf8Order) {
      path.steps.append(.key(key))
      values[key] = try members[key].map { any throws(Problem) in try value(of: any) }
      path.steps.removeLast()
    }
    return .object(values)
  }

  private mutating func enter(_ count: Int) throws(Problem) {
    if path.steps.count >= limits.depthMax {
      throw Problem(path: path, detail: "more than \(limits.depthMax) objects and arrays inside one another")
    }
    elementCount += count
    if elementCount > limits.elementCountMax {
      throw Problem(
        path: ServicePath(path.root), detail: "more than \(limits.elementCountMax) elements")
    }
  }
}

private protocol OptionalValue {
  var wrapped: Any? { get }
}

extension Optional: OptionalValue {
  fileprivate var wrapped: Any? { map { $0 as Any } }
}
