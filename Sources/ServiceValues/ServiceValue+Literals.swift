extension ServiceValue: ExpressibleByStringInterpolation, ExpressibleByIntegerLiteral,
  ExpressibleByFloatLiteral,
  ExpressibleByBooleanLiteral, ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
  // No nil literal: with it, `value["to"] == nil` could mean "is not there" or "is null". Write `.null`.

  public init(stringLiteral value: String) { self = .string(value) }
  public init(integerLiteral value: Int64) { self = .integer(value) }
  public init(floatLiteral value: Double) { self = .number(value) }
  public init(booleanLiteral value: Bool) { self = .boolean(value) }
  public init(arrayLiteral elements: ServiceValue...) { self = .array(elements) }

  /// A key that comes twice ends the process, as in a literal of a dictionary.
  public init(dictionaryLiteral elements: (String, ServiceValue)...) {
    self = .object(Dictionary(uniqueKeysWithValues: elements))
  }
}

extension ServiceValue {
  /// The text; nil for every other kind.
  public var stringValue: String? {
    if case .string(let value) = self { value } else { nil }
  }

  /// The value of a number, and of an integer that a `Double` holds exactly; nil for everything else.
  public var numberValue: Double? {
    switch self {
    case .number(let value): value
    case .integer(let value): Double(exactly: value)
    default: nil
    }
  }

  /// The integer; nil for every other kind, also for a number without a fraction.
  public var integerValue: Int64? {
    if case .integer(let value) = self { value } else { nil }
  }

  /// The boolean; nil for every other kind.
  public var booleanValue: Bool? {
    if case .boolean(let value) = self { value } else { nil }
  }

  /// The bytes; nil for every other kind.
  public var bytesValue: [UInt8]? {
    if case .bytes(let value) = self { value } else { nil }
  }

  /// The elements of an array; nil for every other kind.
  public var arrayValue: [ServiceValue]? {
    if case .array(let value) = self { value } else { nil }
  }

  /// The members of an object; nil for every other kind.
  public var objectValue: [String: ServiceValue]? {
    if case .object(let value) = self { value } else { nil }
  }

  /// Whether the value is ``null``.
  public var isNull: Bool { self == .null }

  /// The member of an object; nil when there is none, or this is no object. Setting ends the process when this is no object.
  public subscript(key: String) -> ServiceValue? {
    get { objectValue?[key] }
    set {
      guard case .object(var members) = self else { preconditionFailure("\(kind.rawValue) has no members") }
      self = .null  // so that there is one reference to the members, and setting does not copy them
      members[key] = newValue
      self = .object(members)
    }
  }

  /// The element of an array; nil when there is none, or this is no array.
  public subscript(index: Int) -> ServiceValue? {
    guard case .array(let elements) = self, elements.indices.contains(index) else { return nil }
    return elements[index]
  }
}
