import ContainerStore
import SodiumPrimitives

/// A container that the test process itself holds open for writing.
struct OpenContainer {
  let container: Container

  init(_ path: String, keyFile: String) throws {
    var key = try SecretBytes(count: Credential.rawKeyByteCount)
    let bytes = try readBytes(keyFile)
    key.withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
    container = try Container.open(at: path, credential: .rawKey(key))
  }

  func setExtendedAttribute(_ name: String, _ value: [UInt8], at path: String) throws {
    try container.setExtendedAttributes([name: value], at: path)
  }

  func extendedAttributes(at path: String) throws -> [String: [UInt8]] {
    try container.extendedAttributes(at: path)
  }

  func close() throws { try container.close() }
}
