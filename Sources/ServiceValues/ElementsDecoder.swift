/// The elements of an array, which a type that decodes itself takes one after the other.
struct ElementsDecoder: UnkeyedDecodingContainer {
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
