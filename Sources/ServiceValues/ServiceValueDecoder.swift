#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension ServiceValue {
  /// Params as a type of the app's own; the other way of ``init(encoding:limits:root:)``.
  ///
  /// Throws `invalidParams` with the path of what is missing or of another kind, and what the type itself throws. A `Double` is read
  /// from an integer, too, when it holds it exactly; an `Int` from an integer only.
  public func decode<T: Decodable>(as type: T.Type = T.self, root: String = "params") throws -> T {
    do {
      return try ServiceValueDecoder(value: self, codingPath: []).decode(type)
    } catch let error as DecodingError {
      let (codingPath, detail) =
        switch error {
        case .typeMismatch(_, let context), .valueNotFound(_, let context), .dataCorrupted(let context):
          (context.codingPath, context.debugDescription)
        case .keyNotFound(let key, let context): (context.codingPath + [key], "missing, and required")
        @unknown default: ([any CodingKey](), "it cannot be read")
        }
      throw Problem(path: ServicePath(root, codingPath), detail: detail).error(.invalidParams)
    }
  }
}

private struct ServiceValueDecoder: Decoder, SingleValueDecodingContainer {
  let value: ServiceValue
  let codingPath: [any CodingKey]
  var userInfo: [CodingUserInfoKey: Any] { [:] }

  func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
    guard let members = value.objectValue else { throw mismatch([String: ServiceValue].self, .object) }
    return KeyedDecodingContainer(MembersDecoder<Key>(members: members, codingPath: codingPath))
  }

  func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
    guard let elements = value.arrayValue else { throw mismatch([ServiceValue].self, .array) }
    return ElementsDecoder(elements: elements, codingPath: codingPath)
  }

  func singleValueContainer() -> any SingleValueDecodingContainer { self }

  func decodeNil() -> Bool { value.isNull }

  /// Stands for the protocol's method for each simple type, too.
  func decode<T: Decodable>(_ type: T.Type) throws -> T {
    if let simple = type as? any SimpleParameter.Type {
      guard let read = simple.init(serviceValue: value) as? T else {
        if simple.kind != value.kind { throw mismatch(type, simple.kind) }
        throw corrupted("the \(value.kind.rawValue) does not fit into \(type)")
      }
      return read
    }
    switch type {
    case is Data.Type:
      guard let bytes = value.bytesValue, let data = Data(bytes) as? T else { throw mismatch(type, .bytes) }
      return data
    case is URL.Type:
      guard let text = value.stringValue else { throw mismatch(type, .string) }
      guard let url = URL(string: text) as? T else { throw corrupted("the string is no URL") }
      return url
    case is Date.Type, is Decimal.Type: throw corrupted("\(type) is no kind of parameter")
    default: return try T(from: self)
    }
  }

  private func mismatch(_ type: Any.Type, _ expected: ServiceValue.Kind) -> DecodingError {
    let detail = "expected \(expected.rawValue), found \(value.kind.rawValue)"
    return DecodingError.typeMismatch(type, .init(codingPath: codingPath, debugDescription: detail))
  }

  private func corrupted(_ detail: String) -> DecodingError {
    DecodingError.dataCorrupted(.init(codingPath: codingPath, debugDescription: detail))
  }
}

private struct MembersDecoder<Key: CodingKey>: KeyedDecodingContainerProtocol {
  let members: [String: ServiceValue]
  let codingPath: [any CodingKey]

  var allKeys: [Key] { members.keys.sorted(by: utf8Order).compactMap { Key(stringValue: $0) } }
  func contains(_ key: Key) -> Bool { members[key.stringValue] != nil }

  private func decoder(for key: any CodingKey) throws -> ServiceValueDecoder {
    guard let value = members[key.stringValue] else {
      let context = DecodingError.Context(codingPath: codingPath, debugDescription: "missing, and required")
      throw DecodingError.keyNotFound(key, context)
    }
    return ServiceValueDecoder(value: value, codingPath: codingPath + [key])
  }

  func decodeNil(forKey key: Key) throws -> Bool { try decoder(for: key).decodeNil() }

  func decode<T: Decodable>(_ type: T.Type, forKey key: Key) throws -> T {
    try decoder(for: key).decode(type)
  }

  func nestedContainer<Nested: CodingKey>(
    keyedBy type: Nested.Type, forKey key: Key
  ) throws -> KeyedDecodingContainer<Nested> { try decoder(for: key).container(keyedBy: type) }

  func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
    try decoder(for: key).unkeyedContainer()
  }

  func superDecoder() throws -> any Decoder { try decoder(for: NameKey("super")) }
  func superDecoder(forKey key: Key) throws -> any Decoder { try decoder(for: key) }
}

private struct ElementsDecoder: UnkeyedDecodingContainer {
  let elements: [ServiceValue]
  let codingPath: [any CodingKey]
  private(set) var currentIndex = 0
  var count: Int? { elements.count }
  var isAtEnd: Bool { currentIndex >= elements.count }

  init(elements: [ServiceValue], codingPath: [any CodingKey]) {
    self.elements = elements
    self.codingPath = codingPath
  }

  /// The element is passed only when it could be read, as the protocol wants it.
  private mutating func next<T>(_ read: (ServiceValueDecoder) throws -> T) throws -> T {
    let path = codingPath + [IndexKey(currentIndex)]
    guard !isAtEnd else {
      throw DecodingError.valueNotFound(
        T.self, .init(codingPath: path, debugDescription: "the array has only \(elements.count) elements"))
    }
    let result = try read(ServiceValueDecoder(value: elements[currentIndex], codingPath: path))
    currentIndex += 1
    return result
  }

  mutating func decodeNil() throws -> Bool {
    guard !isAtEnd, elements[currentIndex].isNull else { return false }
    currentIndex += 1
    return true
  }

  mutating func decode<T: Decodable>(_ type: T.Type) throws -> T { try next { try $0.decode(type) } }

  mutating func nestedContainer<Nested: CodingKey>(
    keyedBy type: Nested.Type
  ) throws -> KeyedDecodingContainer<Nested> { try next { try $0.container(keyedBy: type) } }

  mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer {
    try next { try $0.unkeyedContainer() }
  }

  mutating func superDecoder() throws -> any Decoder { try next { $0 } }
}
