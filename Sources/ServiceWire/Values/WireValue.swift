import Foundation
package import ServiceValues

extension WireValue {
  package init(_ value: ServiceValue) {
    self.init()
    switch value {
    case .string(let text): string = text
    case .number(let number): self.number = number
    case .integer(let number): integer = number
    case .boolean(let boolean): self.boolean = boolean
    case .null: null = true
    case .bytes(let bytes): self.bytes = Data(bytes)
    case .array(let elements): array.elements = elements.map { WireValue($0) }
    case .object(let members):
      // In an order of their own, so that the same value has the same bytes.
      object.members = members.sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }.map {
        name, value in
        .with {
          $0.name = name
          $0.value = WireValue(value)
        }
      }
    }
  }
}

extension ServiceValue {
  /// Throws `invalidParams` with the path of what is no value: one without a kind, an object that names a member twice, or anything that
  /// breaks the rules or the limits.
  package init(_ wire: WireValue, limits: Limits = .default) throws(ServicesError) {
    self = try ServiceValue.read(wire, path: "params", depth: 0, limits: limits)
    try validate(limits: limits)
  }

  private static func read(
    _ wire: WireValue, path: String, depth: Int, limits: Limits
  ) throws(ServicesError) -> ServiceValue {
    switch wire.kind {
    case .array, .object:
      guard depth < limits.depthMax else {
        throw ServicesError(.invalidParams, path: path, detail: "nested more than \(limits.depthMax) deep")
      }
    default: break
    }
    switch wire.kind {
    case .string(let text): return .string(text)
    case .number(let number): return .number(number)
    case .integer(let number): return .integer(number)
    case .boolean(let boolean): return .boolean(boolean)
    case .null: return .null
    case .bytes(let bytes): return .bytes(Array(bytes))
    case .array(let array):
      var elements: [ServiceValue] = []
      elements.reserveCapacity(array.elements.count)
      for (i, element) in array.elements.enumerated() {
        elements.append(try read(element, path: "\(path)[\(i)]", depth: depth + 1, limits: limits))
      }
      return .array(elements)
    case .object(let object):
      var members: [String: ServiceValue] = [:]
      for member in object.members {
        let value = try read(member.value, path: "\(path).\(member.name)", depth: depth + 1, limits: limits)
        guard members.updateValue(value, forKey: member.name) == nil else {
          throw ServicesError(
            .invalidParams, path: "\(path).\(member.name)", detail: "the member is there twice")
        }
      }
      return .object(members)
    case nil: throw ServicesError(.invalidParams, path: path, detail: "a value without a kind")
    }
  }
}
