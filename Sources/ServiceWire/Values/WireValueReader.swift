import ServiceValues

/// Reads a value of the wire. Counts as it goes, so that nothing beyond the limits is built; says
/// where something is wrong only when something is: a path for each part of a large value would
/// cost more than the value.
struct WireValueReader {
  let limits: ServiceValue.Limits
  private var elementCount = 0

  struct Wrong: Error {
    /// Innermost first.
    var steps: [String] = []
    let detail: String

    var path: String { "params" + steps.reversed().joined() }

    func within(_ step: String) -> Wrong { Wrong(steps: steps + [step], detail: detail) }
  }

  init(limits: ServiceValue.Limits) { self.limits = limits }

  /// Unicode scalars of the longest key that a path shows.
  private static let keyCountMax = 64

  private static func step(_ name: String) -> String {
    let scalars = name.unicodeScalars
    return "." + (scalars.count > keyCountMax ? String(scalars.prefix(keyCountMax)) + "…" : name)
  }

  private func requireRoom(_ count: Int, depth: Int) throws(Wrong) {
    guard depth < limits.depthMax else { throw Wrong(detail: "nested more than \(limits.depthMax) deep") }
    guard count <= limits.elementCountMax - elementCount else {
      throw Wrong(detail: "more than \(limits.elementCountMax) elements")
    }
  }

  mutating func read(_ wire: WireValue, depth: Int) throws(Wrong) -> ServiceValue {
    switch wire.kind {
    case .string(let text): return .string(text)
    case .number(let number): return .number(number)
    case .integer(let number): return .integer(number)
    case .boolean(let boolean): return .boolean(boolean)
    case .null: return .null
    case .bytes(let bytes): return .bytes(Array(bytes))
    case .array(let array):
      try requireRoom(array.elements.count, depth: depth)
      elementCount += array.elements.count
      var elements: [ServiceValue] = []
      elements.reserveCapacity(array.elements.count)
      for (i, element) in array.elements.enumerated() {
        do throws(Wrong) {
          elements.append(try read(element, depth: depth + 1))
        } catch {
          throw error.within("[\(i)]")
        }
      }
      return .array(elements)
    case .object(let object):
      try requireRoom(object.members.count, depth: depth)
      elementCount += object.members.count
      var members: [String: ServiceValue] = [:]
      for member in object.members {
        do throws(Wrong) {
          if let fault = ObjectKey.fault(in: member.name) { throw Wrong(detail: fault) }
          let value = try read(member.value, depth: depth + 1)
          guard members.updateValue(value, forKey: member.name) == nil else {
            throw Wrong(detail: "the member is there twice")
          }
        } catch {
          throw error.within(Self.step(member.name))
        }
      }
      return .object(members)
    case nil: throw Wrong(detail: "a value without a kind")
    }
  }
}
