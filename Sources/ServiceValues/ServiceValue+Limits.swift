extension ServiceValue {
  /// How large params may be. Both sides hold them to the same limits, so that what one sends the other takes.
  public struct Limits: Sendable, Hashable {
    /// The greatest ``ServiceValue/byteCount``.
    public var byteCountMax: Int
    /// The most objects and arrays inside one another. A simple value has depth 0, an empty object 1.
    public var depthMax: Int
    /// The most values inside of objects and arrays, at all depths together. The outermost value is not counted.
    public var elementCountMax: Int

    /// Makes limits. Those that are not given are the defaults of SERVICE-DEFINITIONS.md: 1 MiB, 32 levels,
    /// 100,000 elements.
    public init(byteCountMax: Int = 1_048_576, depthMax: Int = 32, elementCountMax: Int = 100_000) {
      self.byteCountMax = byteCountMax
      self.depthMax = depthMax
      self.elementCountMax = elementCountMax
    }

    /// The limits that both sides of a request keep.
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
  static let frameByteCount = 8

  /// Without what is inside.
  var ownByteCount: Int {
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
  /// - Parameters:
  ///   - limits: The limits that are checked, beside the rules.
  ///   - root: The first word of the path.
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
}

/// The order of canonical JSON and of everything that is reported.
func utf8Order(_ a: String, _ b: String) -> Bool { a.utf8.lexicographicallyPrecedes(b.utf8) }
