extension ServiceValue {
  /// Goes through a value and everything inside it, and stops at the first thing that breaks a
  /// rule or a limit.
  struct ValidationWalk {
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
