/// What a value must look like. Without a type, and with one that the language does not have, every value is right.
public struct ParameterDefinition: Sendable, Hashable {
  /// What a definition gives as the type of a value.
  public enum ValueType: Sendable, Hashable {
    /// The value is of this kind; a number may also be an integer.
    case kind(ServiceValue.Kind)
    /// A name that the language does not have, which is allowed and without meaning.
    case unknown(String)

    /// The type of that name in a definition: `string`, `UInt8Array`, or one without meaning.
    public init(name: String) { self = ServiceValue.Kind(rawValue: name).map { .kind($0) } ?? .unknown(name) }

    /// The name of the type in a definition.
    public var name: String {
      switch self {
      case .kind(let kind): kind.rawValue
      case .unknown(let name): name
      }
    }
  }

  /// The kind of the value; nil: every kind is right.
  public var type: ValueType?
  /// What the value is for, in words for people.
  public var description: String?
  /// Whether the value must be there.
  public var isRequired: Bool
  /// The members of an object; others may be there besides.
  public var properties: [String: ParameterDefinition]
  /// The only values that are right; nil: all.
  public var allowedValues: [ServiceValue]?

  /// One element at most: a value cannot hold itself in any other way.
  private var itemsBox: [ParameterDefinition]

  /// What each element of an array must look like.
  public var items: ParameterDefinition? {
    get { itemsBox.first }
    set { itemsBox = newValue.map { [$0] } ?? [] }
  }

  /// Describes a value. Without arguments every value is right, and none as well.
  public init(
    type: ValueType? = nil, description: String? = nil, isRequired: Bool = false,
    items: ParameterDefinition? = nil, properties: [String: ParameterDefinition] = [:],
    allowedValues: [ServiceValue]? = nil
  ) {
    self.type = type
    self.description = description
    self.isRequired = isRequired
    self.properties = properties
    self.allowedValues = allowedValues
    itemsBox = items.map { [$0] } ?? []
  }

  /// Describes a value of one kind.
  public init(_ kind: ServiceValue.Kind, isRequired: Bool = false) {
    self.init(type: .kind(kind), isRequired: isRequired)
  }
}
