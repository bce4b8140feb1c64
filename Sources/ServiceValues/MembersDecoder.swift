/// The members of an object, which a type that decodes itself asks for by name.
struct MembersDecoder<Key: CodingKey>: KeyedDecodingContainerProtocol {
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
