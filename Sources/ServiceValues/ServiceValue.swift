/// What a request or a reply carries as its parameters, in the kinds of the service definition language.
///
/// `.integer(1)`, `.number(1)` and `.boolean(true)` are three different values, in the process and across it. Texts and keys are compared
/// by their bytes, so `é` in its composed and its decomposed form are two texts. One exception: in an object, whose keys a
/// dictionary holds, they cannot stand side by side.
///
/// Bytes are an array of `UInt8` and no `Data`: it needs no Foundation, is indexed from 0 always, and is what the wire reads.
///
/// A value of this type may break the rules of the language (an array of two kinds, an infinite number): whoever sends or receives one
/// calls ``validate(limits:root:)``. Source: Documentation/SERVICE-DEFINITIONS.md.
public enum ServiceValue: Sendable {
  /// A Unicode text, also an empty one.
  case string(String)
  /// A double. It must be finite when it is sent.
  case number(Double)
  /// An integer of 64 bits with a sign.
  case integer(Int64)
  /// True or false.
  case boolean(Bool)
  /// The value that stands for none.
  case null
  /// Any bytes; `UInt8Array` in a definition.
  case bytes([UInt8])
  /// Simple values of one kind. An array holds neither arrays nor objects.
  case array([ServiceValue])
  /// A value of any kind for each key.
  case object([String: ServiceValue])

  /// The kinds, by their names in a service definition.
  public enum Kind: String, Sendable, CaseIterable {
    /// A simple kind, whose name here is its name in a definition.
    case string, number, integer, boolean, null
    /// The kind of ``ServiceValue/bytes(_:)``.
    case bytes = "UInt8Array"
    /// A kind that holds other values.
    case array, object

    /// Whether values of this kind hold no others. An array holds simple kinds only.
    public var isSimple: Bool { self != .array && self != .object }
  }

  /// The kind of the value.
  public var kind: Kind {
    switch self {
    case .string: .string
    case .number: .number
    case .integer: .integer
    case .boolean: .boolean
    case .null: .null
    case .bytes: .bytes
    case .array: .array
    case .object: .object
    }
  }
}

extension ServiceValue: Hashable {
  public static func == (a: ServiceValue, b: ServiceValue) -> Bool {
    switch (a, b) {
    case (.string(let a), .string(let b)): a.utf8.elementsEqual(b.utf8)
    case (.number(let a), .number(let b)): a == b
    case (.integer(let a), .integer(let b)): a == b
    case (.boolean(let a), .boolean(let b)): a == b
    case (.null, .null): true
    case (.bytes(let a), .bytes(let b)): a == b
    case (.array(let a), .array(let b)): a == b
    case (.object(let a), .object(let b)):
      a.count == b.count
        && a.allSatisfy { key, value in
          guard let i = b.index(forKey: key) else { return false }
          return b[i].key.utf8.elementsEqual(key.utf8) && b[i].value == value
        }
    default: false
    }
  }

  /// Keys that are equivalent and not equal have one hash, which is allowed.
  public func hash(into hasher: inout Hasher) {
    hasher.combine(kind)
    switch self {
    case .string(var value): value.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    case .number(let value): hasher.combine(value)
    case .integer(let value): hasher.combine(value)
    case .boolean(let value): hasher.combine(value)
    case .null: break
    case .bytes(let value): hasher.combine(value)
    case .array(let value): hasher.combine(value)
    case .object(let value): hasher.combine(value)
    }
  }
}

/// Parameters are an app's data: what is printed by accident shows their kind and size. ``jsonText()`` shows all.
extension ServiceValue: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  /// The kind and the size of the value, and nothing of its contents.
  public var description: String {
    switch self {
    case .string(let text): "string of \(Self.quantity(text.utf8.count, "byte"))"
    case .number, .integer, .boolean, .null: kind.rawValue
    case .bytes(let bytes): "UInt8Array of \(Self.quantity(bytes.count, "byte"))"
    case .array(let elements):
      elements.isEmpty ? "empty array" : "array of \(elements.count) \(elements[0].kind.rawValue)"
    case .object(let members): "object of \(Self.quantity(members.count, "member"))"
    }
  }

  /// The same as ``description``.
  public var debugDescription: String { description }
  /// A mirror without children, so that `dump` prints no contents.
  public var customMirror: Mirror { Mirror(self, children: []) }

  private static func quantity(_ count: Int, _ unit: String) -> String {
    "\(count) \(unit)\(count == 1 ? "" : "s")"
  }
}
