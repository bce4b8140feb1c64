import Foundation
import SodiumPrimitives
import Testing

/// `Fixtures/Vectors/secretstream`: streams that another binding of libsodium made, one file each.
struct SecretStreamVectorTests {
  static let folder = URL(filePath: #filePath)
    .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
    .appending(path: "Fixtures/Vectors/secretstream")

  /// Names without `.json`; none when the folder is missing.
  static let names: [String] = {
    let files =
      (try? FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)) ?? []
    return files.filter { $0.pathExtension == "json" }.map { $0.deletingPathExtension().lastPathComponent }
      .sorted()
  }()

  @Test func vectorsAreThere() throws {
    #expect(
      !Self.names.isEmpty, "no vectors in \(Self.folder.path()); Fixtures/Vectors/generate.py makes them")
    let vectors = try Self.names.map { try Vector(named: $0) }
    #expect(vectors.contains { $0.failAt == nil } && vectors.contains { $0.failAt != nil })
  }

  @Test(arguments: names, CipherBackend.allCases)
  func opensOrRefusesAsTheVectorSays(name: String, backend: CipherBackend) throws {
    let vector = try Vector(named: name)
    let cipher = SecretStreamCipher(backend)
    let opening = vector.start()
    for (index, message) in vector.messages.enumerated() {
      if message.rekeyBefore == true { opening.state.rekey() }
      let stateBefore = opening.state.bytes
      guard index != vector.failAt else {
        let count = message.ciphertext.bytes.count
        #expect(throws: count < 17 ? CryptoError.tooShort(byteCount: count, minimum: 17) : .notAuthentic) {
          try opening.pull(message.ciphertext.bytes, ad: message.ad.bytes, with: cipher)
        }
        #expect(opening.state.bytes == stateBefore)
        return
      }
      let opened = try opening.pull(message.ciphertext.bytes, ad: message.ad.bytes, with: cipher)
      #expect(opened.tag?.rawValue == message.tag, "message \(index)")
      #expect(opened.message == message.plaintext.bytes, "message \(index)")
    }
    #expect(vector.failAt == nil, "the message that must fail is not in the vector")
  }

  @Test(arguments: names, CipherBackend.allCases)
  func sealsTheBytesOfTheVector(name: String, backend: CipherBackend) throws {
    let vector = try Vector(named: name)
    guard vector.failAt == nil else { return }
    let cipher = SecretStreamCipher(backend)
    let sealing = vector.start()
    for (index, message) in vector.messages.enumerated() {
      if message.rekeyBefore == true { sealing.state.rekey() }
      let tag = try #require(SecretStreamTag(rawValue: message.tag))
      let sealed = sealing.push(message.plaintext.bytes, ad: message.ad.bytes, tag: tag, with: cipher)
      #expect(sealed == message.ciphertext.bytes, "message \(index)")
    }
  }

  /// A stream of one message is what a segment is.
  @Test(arguments: names, CipherBackend.allCases)
  func opensOneMessageStreamsAsAWhole(name: String, backend: CipherBackend) throws {
    let vector = try Vector(named: name)
    guard vector.messages.count == 1, vector.initialCounter == nil else { return }
    let message = vector.messages[0]
    let cipher = SecretStreamCipher(backend)
    let stream = vector.header.bytes + message.ciphertext.bytes
    let key = vector.key.bytes
    let ad = message.ad.bytes
    if vector.failAt == nil, message.tag == SecretStreamTag.final.rawValue {
      #expect(try cipher.open(stream, key: key, ad: ad) == message.plaintext.bytes)
    } else {
      #expect(throws: CryptoError.notAuthentic) { try cipher.open(stream, key: key, ad: ad) }
    }
  }
}

/// One vector; the fields are described in `Fixtures/Vectors/generate.py`.
private struct Vector: Decodable {
  let name: String
  let key: HexBytes
  let header: HexBytes
  let messages: [Message]
  let expect: Outcome
  let failAt: Int?
  let initialCounter: UInt32?

  struct Message: Decodable {
    let tag: UInt8
    let ad: HexBytes
    let plaintext: HexBytes
    let ciphertext: HexBytes
    let rekeyBefore: Bool?
  }

  enum Outcome: String, Decodable {
    case ok
    case notAuthentic = "not-authentic"
  }

  struct HexBytes: Decodable {
    let bytes: [UInt8]
    init(from decoder: any Decoder) throws {
      bytes = hex(try decoder.singleValueContainer().decode(String.self))
    }
  }

  init(named name: String) throws {
    let decoder = JSONDecoder()
    decoder.keyDecodingStrategy = .convertFromSnakeCase
    let file = SecretStreamVectorTests.folder.appending(path: name + ".json")
    self = try decoder.decode(Vector.self, from: Data(contentsOf: file))
    guard self.name == name, (expect == .ok) == (failAt == nil) else {
      throw Mismatch("\(file.lastPathComponent) contradicts itself or its name")
    }
  }

  func start() -> BoxedState {
    let box = BoxedState(key: key.bytes, header: header.bytes)
    if let initialCounter { box.state.setCounter(initialCounter) }
    return box
  }
}
