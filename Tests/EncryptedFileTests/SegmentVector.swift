import EncryptedFile
import Foundation
import SodiumPrimitives

/// One file of `Fixtures/Vectors/segment`; `Fixtures/README.md` describes the fields.
struct SegmentVector: Codable {
  var name: String
  var comment: String
  var fileKey: String
  var size: UInt64
  var extents: [Run]
  var stored: String
  var expect: Outcome
  var failGrain: UInt64?
  var plaintextSha256: String

  struct Run: Codable {
    var start: UInt64
    var count: UInt32
    var lastLength: UInt32
    var session: String
    var counter: UInt64
    var offset: UInt64
  }

  enum Outcome: String, Codable, CaseIterable {
    case ok
    case notAuthentic = "not-authentic"
    case damagedExtent = "damaged-extent"
    case missingBytes = "missing-bytes"
  }

  static let repository = URL(filePath: #filePath)
    .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
  static let folder = repository.appending(path: "Fixtures/Vectors/segment")

  /// Names without `.json`; none when the folder is missing.
  static let names: [String] = {
    let files =
      (try? FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)) ?? []
    return files.filter { $0.pathExtension == "json" }.map { $0.deletingPathExtension().lastPathComponent }
      .sorted()
  }()

  init(named name: String) throws {
    let decoder = JSONDecoder()
    decoder.keyDecodingStrategy = .convertFromSnakeCase
    self = try decoder.decode(
      SegmentVector.self, from: Data(contentsOf: Self.folder.appending(path: name + ".json")))
    guard self.name == name, (expect == .ok) == (failGrain == nil) else {
      throw Mismatch("\(name).json contradicts itself or its name")
    }
  }

  /// The vector of a file whose runs lie in slab 0 and that can be read whole.
  init(_ file: StoredFile, name: String) {
    self.name = name
    comment = "Sealed by the library."
    fileKey = hex(file.key)
    size = file.size
    extents = file.extents.map {
      Run(
        start: $0.start, count: $0.count, lastLength: $0.lastLength,
        session: hex($0.writeNumber.session.bytes),
        counter: $0.writeNumber.counter, offset: $0.offset)
    }
    stored = hex(file.slabs[0, default: []])
    expect = .ok
    plaintextSha256 = sha256(file.contents)
  }

  func write(to folder: URL) throws -> URL {
    let encoder = JSONEncoder()
    encoder.keyEncodingStrategy = .convertToSnakeCase
    let file = folder.appending(path: name + ".json")
    try encoder.encode(self).write(to: file)
    return file
  }

  func file() throws -> StoredFile {
    let file = StoredFile(key: try bytes(hex: fileKey))
    file.size = size
    file.extents = try extents.map {
      Extent(
        start: $0.start, count: $0.count, lastLength: $0.lastLength,
        writeNumber: WriteNumber(session: Identifier(try bytes(hex: $0.session)), counter: $0.counter),
        slab: 0,
        offset: $0.offset)
    }
    file.slabs = [0: try bytes(hex: stored)]
    return file
  }

  /// What a reader throws; nil when it reads the whole file.
  var failure: SegmentError? {
    guard let failGrain else { return nil }
    return switch expect {
    case .ok: nil
    case .notAuthentic: .notAuthentic(grain: failGrain)
    case .damagedExtent: .damagedExtent(grain: failGrain)
    case .missingBytes: .missingBytes(grain: failGrain)
    }
  }
}
