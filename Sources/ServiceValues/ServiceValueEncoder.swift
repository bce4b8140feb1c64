#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension ServiceValue {
  /// Makes a value from one of a type of the app's own. `Data` is bytes, `[UInt8]` an array of integers,
  /// `URL` its text; a property that is nil is left out.
  ///
  /// Throws `invalidParams` with the path of what has no kind (`Date`: how it is written is the definition's choice, as text or number;
  /// `Decimal`; an unsigned integer beyond 63 bits) or breaks a rule, and what the type itself throws.
  public init(
    encoding value: some Encodable, limits: Limits = .default, root: String = "params"
  ) throws {
    let slot = EncodedSlot()
    do {
      try ServiceValueEncoder(slot: slot, codingPath: []).encode(value)
    } catch EncodingError.invalidValue(_, let context) {
      throw Problem(path: ServicePath(root, context.codingPath), detail: context.debugDescription)
        .error(.invalidParams)
    }
    self = slot.value
    try validate(limits: limits, root: root)
  }
}

extension ServicePath {
  init(_ root: String, _ codingPath: [any CodingKey]) {
    self.init(root)
    steps = codingPath.map { key in
      (key as? IndexKey)?.intValue.map(Step.index) ?? .key(key.stringValue)
    }
  }
}

/// The place of an element in an array.
struct IndexKey: CodingKey {
  let intValue: Int?
  var stringValue: String { String(intValue ?? 0) }

  init(_ index: Int) { intValue = index }
  init?(intValue: Int) { self.intValue = intValue }
  init?(stringValue: String) { nil }
}

struct NameKey: CodingKey {
  let stringValue: String
  var intValue: Int? { nil }

  init(_ name: String) { stringValue = name }
  init?(stringValue: String) { self.stringValue = stringValue }
  init?(intValue: Int) { nil }
}

/// A value that comes into being: containers of Swift's encoding are handed out before they are filled.
private final class EncodedSlot {
  var simple: ServiceValue?
  var elements: [EncodedSlot]?
  var members: [String: EncodedSlot]?

  /// What encoded nothing is an empty object.
  var value: ServiceValue {
    if let simple { return simple }
    if let elements { return .array(elements.map(\.value)) }
    return .object(members?.mapValues(\.value) ?? [:])
  }
}

private struct ServiceValueEncoder: Encoder, SingleValueEncodingContainer {
  let slot: EncodedSlot
  let codingPath: [any CodingKey]
  var userInfo: [CodingUserInfoKey: Any] { [:] }

  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
    slot.members = slot.members ?? [:]
    return KeyedEncodingContainer(MembersEncoder<Key>(slot: slot, codingPath: codingPath))
  }

  func unkeyedContainer() -> any UnkeyedEncodingContainer {
    slot.elements = slot.elements ?? []
    return ElementsEncoder(slot: slot, codingPath: codingPath)
  }

  func singleValueContainer() -> any SingleValueEncodingContainer { self }

  func encodeNil() { slot.simple = .null }

  /// Stands for the protocol's method for each simple type, too.
  func encode<T: Encodable>(_ value: T) throws {
    switch value {
    case let value as any SimpleParameter:
      guard let encoded = value.serviceValue else { throw error(value, "an integer has 64 bits and a sign") }
      slot.simple = encoded
    case let value as Data: slot.simple = ServiceValue.bytes([UInt8](value))
    case let value as URL: slot.simple = .string(value.absoluteString)
    case is Date, is Decimal: throw error(value, "\(T.self) is no kind of parameter")
    default: try value.encode(to: self)
    }
  }

  private func error(_ value: Any, _ detail: String) -> EncodingError {
    EncodingError.invalidValue(value, .init(codingPath: codingPath, debugDescription: detail))
  }
}

private struct MembersEncoder<Key: CodingKey>: KeyedEncodingContainerProtocol {
  let slot: EncodedSlot
  let codingPath: [any CodingKey]

  private func encoder(for key: any CodingKey) -> ServiceValueEncoder {
    let member = EncodedSlot()
    slot.members?[key.stringValue] = member
    return ServiceValueEncoder(slot: member, codingPath: codingPath + [key])
  }

  func encodeNil(forKey key: Key) { encoder(for: key).encodeNil() }
  func encode<T: Encodable>(_ value: T, forKey key: Key) throws { try encoder(for: key).encode(value) }

  func nestedContainer<Nested: CodingKey>(
    keyedBy type: Nested.Type, forKey key: Key
  ) -> KeyedEncodingContainer<Nested> { encoder(for: key).container(keyedBy: type) }

  func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
    encoder(for: key).unkeyedContainer()
  }

  func superEncoder() -> any Encoder { encoder(for: NameKey("super")) }
  func superEncoder(forKey key: Key) -> any Encoder { encoder(for: key) }
}

private struct ElementsEncoder: UnkeyedEncodingContainer {
  let slot: EncodedSlot
  let codingPath: [any CodingKey]
  var count: Int { slot.elements?.count ?? 0 }

  private func next() -> ServiceValueEncoder {
    let element = EncodedSlot()
    let path = codingPath + [IndexKey(count)]
    slot.elements?.append(element)
    return ServiceValueEncoder(slot: element, codingPath: path)
  }

  func encodeNil() { next().encodeNil() }
  func encode<T: Encodable>(_ value: T) throws { try next().encode(value) }

  func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type) -> KeyedEncodingContainer<Nested> {
    next().container(keyedBy: type)
  }

  func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer { next().unkeyedContainer() }
  func superEncoder() -> any Encoder { next() }
}
