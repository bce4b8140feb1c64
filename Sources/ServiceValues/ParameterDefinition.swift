/// What a value must look like. Without a type, and with one that the language does not have, every value is right.
public struct ParameterDefinition: Sendable, Hashable {
  public enum ValueType: Sendable, Hashable {
    case kind(ServiceValue.Kind)
    /// Allowed, and without meaning.
    case unknown(String)

    public init(name: String) { self = ServiceValue.Kind(rawValue: name).map { .kind($0) } ?? .unknown(name) }

    public var name: String {
      switch self {
      case .kind(let kind): kind.rawValue
      case .unknown(let name): name
      }
    }
  }

  public var type: ValueType?
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

  public init(_ kind: ServiceValue.Kind, isRequired: Bool = false) {
    self.init(type: .kind(kind), isRequired: isRequired)
  }
}
