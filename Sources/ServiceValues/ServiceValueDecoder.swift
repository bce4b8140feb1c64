#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension ServiceValue {
  /// Reads the value as a type of the app's own, as ``init(encoding:limits:root:)`` makes it.
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

/// One value, from which a type decodes itself.
struct ServiceValueDecoder: Decoder, SingleValueDecodingContainer {
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
