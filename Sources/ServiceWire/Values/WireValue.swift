import Foundation
package import ServiceValues

extension WireValue {
  /// What it takes in memory, about: 64 bytes for each value, and the bytes of texts and names.
  var keptByteCount: Int {
    let contents =
      switch kind {
      case .string(let text): text.utf8.count
      case .bytes(let bytes): bytes.count
      case .array(let array): array.elements.reduce(0) { $0 + $1.keptByteCount }
      case .object(let object):
        object.members.reduce(0) { $0 + $1.name.utf8.count + $1.value.keptByteCount }
      default: 0
      }
    return 64 + contents
  }

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
    var reader = WireValueReader(limits: limits)
    do {
      self = try reader.read(wire, depth: 0)
    } catch {
      throw ServicesError(.invalidParams, path: error.path, detail: error.detail)
    }
    try validate(limits: limits)
  }
}
