import EncryptedFile
import Foundation
import SodiumPrimitives

@testable import ContainerStore
@testable import OpenDynamicsTesting

/// A container in memory with its keys and what is in it.
struct SampleContainer: Sendable {
  let image: DiskImage
  private let rawKey: [UInt8]
  /// Every path with its contents; nil for directories.
  let contents: [String: [UInt8]?]

  /// `Fixtures/Containers/v3`, as it was committed.
  static let golden = loaded { try readGolden() }
  /// Written by this code; its newest journal has records of every kind.
  static let fresh = loaded { try makeFresh() }

  private static let fixture = URL(filePath: #filePath).deletingLastPathComponent().appending(
    path: "../../../Fixtures/Containers/v3")

  private static func loaded<T>(_ load: () throws -> T) -> T {
    do { return try load() } catch { fatalError("a sample container cannot be had: \(error)") }
  }

  private static func readGolden() throws -> SampleContainer {
    let folder = fixture.appending(path: "container")
    var image = DiskImage()
    for directory in ["", "catalog", "copy", "journal", "slab"] {
      image.directories.insert(directory)
      let names = try FileManager.default.contentsOfDirectory(atPath: folder.appending(path: directory).path)
      for name in names.sorted() where !["catalog", "copy", "journal", "slab"].contains(name) {
        let path = directory.isEmpty ? name : directory + "/" + name
        image.names[path] = image.names.count + 1
        image.contents[image.names.count] = [UInt8](
          try FileHandle(forReadingFrom: folder.appending(path: path)).readToEnd() ?? Data())
      }
    }
    return try SampleContainer(image, rawKey: [UInt8](Data(contentsOf: fixture.appending(path: "key"))))
  }

  /// Several files, a file with two runs, a second generation's worth of journals, and a clean end.
  private static func makeFresh() throws -> SampleContainer {
    let disk = RecordingIO()
    var options = Container.Options()
    options.threadCount = 1
    options.durability = .full
    let rawKey = Known.bytes(Credential.rawKeyByteCount, seed: 0)
    let first = try Container.create(io: disk, credential: credential(rawKey), options: options)
    try first.write(Known.bytes(300, seed: 1), "/old")
    try first.close()
    let second = try Container.open(io: disk, credential: credential(rawKey), options: options)
    try second.createDirectory("/Documents/deep", withIntermediateDirectories: true)
    try second.write(Known.bytes(17_000, seed: 2), "/Documents/two segments")
    try second.write(Known.bytes(10, seed: 3), "/Documents/deep/ü")
    try second.write([], "/empty")
    try second.move("/old", to: "/Documents/new")
    try second.write(Known.bytes(20, seed: 4), "/gone")
    try second.remove("/gone")
    try second.close()
    return try SampleContainer(disk.image, rawKey: rawKey)
  }

  private init(_ image: DiskImage, rawKey: [UInt8]) throws {
    self.image = image
    self.rawKey = rawKey
    let container = try Container.open(
      io: RecordingIO(image), credential: Self.credential(rawKey), mode: .readOnly)
    var contents: [String: [UInt8]?] = [:]
    for file in try container.list("/", recursively: true) {
      let path = "/" + file.path
      contents.updateValue(
        file.attributes.kind == .file ? try container.contents(at: path) : nil, forKey: path)
    }
    try container.close()
    self.contents = contents
  }

  func credential() throws -> Credential { try Self.credential(rawKey) }

  private static func credential(_ key: [UInt8]) throws -> Credential {
    var secret = try SecretBytes(count: key.count)
    secret.withUnsafeMutableBytes { $0.copyBytes(from: key) }
    return try .rawKey(secret)
  }
}

extension Container {
  fileprivate func write(_ bytes: [UInt8], _ path: String) throws {
    try bytes.withUnsafeBytes { try write($0, to: path) }
  }
}
