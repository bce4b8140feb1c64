extension ServiceValue {
  /// How large params may be. Both sides hold them to the same limits, so that what one sends the other takes.
  public struct Limits: Sendable, Hashable {
    /// Greatest ``ServiceValue/byteCount``.
    public var byteCountMax: Int
    /// Most objects and arrays inside one another. A simple value has depth 0, an empty object 1.
    public var depthMax: Int
    /// Most values inside of objects and arrays, at all depths together. The outermost value is not counted.
    public var elementCountMax: Int

    public init(byteCountMax: Int = 1_048_576, depthMax: Int = 32, elementCountMax: Int = 100_000) {
      self.byteCountMax = byteCountMax
      self.depthMax = depthMax
      self.elementCountMax = elementCountMax
    }

    public static let `default` = Limits()
  }

  /// The size that counts for the limit, in bytes: 4 for null and boolean, 14 for number and integer, 8 and the contents for string, bytes, array and
  /// object, and 8 and the UTF-8 for each key. It is an upper bound of the encoded size, and the same everywhere.
  public var byteCount: Int {
    switch self {
    case .array(let elements): elements.reduce(Self.frameByteCount) { $0 + $1.byteCount }
    case .object(let members):
      members.reduce(Self.frameByteCount) {
        $0 + Self.frameByteCount + $1.key.utf8.count + $1.value.byteCount
      }
    default: ownByteCount
    }
  }

  /// A length and what names the field, twice.
  private static let frameByteCount = 8

  /// Without what is inside.
  private var ownByteCount: Int {
    switch self {
    case .null, .boolean: 4
    case .number, .integer: 14
    case .string(let text): Self.frameByteCount + text.utf8.count
    case .bytes(let bytes): Self.frameByteCount + bytes.count
    case .array, .object: Self.frameByteCount
    }
  }

  /// Checks the rules of the definition language and the limits.
  ///
  /// Throws `invalidParams` with the path of what is wrong; of several things, always the same one.
  /// - Parameter root: how the path begins.
  public func validate(limits: Limits = .default, root: String = "params") throws(ServicesError) {
    do throws(Problem) {
      try check(limits: limits, root: root, ordered: false)
    } catch {
      throw error.error(.invalidParams)
    }
  }

  private func check(limits: Limits, root: String, ordered: Bool) throws(Problem) {
    var walk = ValidationWalk(limits: limits, root: root, isOrdered: ordered)
    do throws(Problem) {
      try walk.visit(self)
    } catch {
      // A dictionary's order changes from process to process. Sorting is paid for only when something is wrong.
      if !ordered { try check(limits: limits, root: root, ordered: true) }
      throw error
    }
  }

  private struct ValidationWalk {
    let limits: Limits
    let isOrdered: Bool
    var path: ServicePath
    var byteCount = 0
    var elementCount = 0

    init(limits: Limits, root: String, isOrdered: Bool) {
      self.limits = limits
      self.isOrdered = isOrdered
      path = ServicePath(root)
    }

    mutating func visit(_ value: ServiceValue) throws(Problem) {
      try count(bytes: value.ownByteCount)
      switch value {
      case .number(let number) where !number.isFinite: throw problem("a number must be finite")
      case .array(let elements):
        try enter(elements.count)
        for (i, element) in elements.enumerated() {
          path.steps.append(.index(i))
          if !element.kind.isSimple {
            throw problem("an array holds simple values only, found \(element.kind.rawValue)")
          }
          if element.kind != elements[0].kind {
            throw problem(
              "an array holds one kind only: the first is \(elements[0].kind.rawValue), found \(element.kind.rawValue)"
            )
          }
          try visit(element)
          path.steps.removeLast()
        }
      case .object(let members):
        try enter(members.count)
        if isOrdered {
          for key in members.keys.sorted(by: utf8Order) { try visit(key, members[key] ?? .null) }
        } else {
          for (key, member) in members { try visit(key, member) }
        }
      default: break
      }
    }

    private mutating func visit(_ key: String, _ member: ServiceValue) throws(Problem) {
      path.steps.append(.key(key))
      if let fault = ObjectKey.fault(in: key) { throw problem(fault) }
      try count(bytes: ServiceValue.frameByteCount + key.utf8.count)
      try visit(member)
      path.steps.removeLast()
    }

    /// Each step of the path is an object or array around the present one.
    private mutating func enter(_ count: Int) throws(Problem) {
      if path.steps.count >= limits.depthMax {
        throw problem("more than \(limits.depthMax) objects and arrays inside one another")
      }
      elementCount += count
      if elementCount > limits.elementCountMax {
        throw problem("more than \(limits.elementCountMax) elements", at: ServicePath(path.root))
      }
    }

    private mutating func count(bytes: Int) throws(Problem) {
      byteCount += bytes
      if byteCount > limits.byteCountMax {
        throw problem("more than \(limits.byteCountMax) bytes", at: ServicePath(path.root))
      }
    }

    private func problem(_ detail: String, at place: ServicePath? = nil) -> Problem {
      Problem(path: place ?? path, detail: detail)
    }
  }
}

/// The order of canonical JSON and of everything that is reported.
func utf8Order(_ a: String, _ b: String) -> Bool { a.utf8.lexicographicallyPrecedes(b.utf8) }
