import ContainerStore
import SodiumPrimitives
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Containers of every state of the format still open: see Fixtures/Containers/README.md.
struct GoldenContainerTests {
  private static let fixtures =
    #filePath.split(separator: "/").dropLast(3).map { "/" + $0 }.joined() + "/Fixtures"
  static let versions = ["v1", "v2", "v2-deliveries"]

  private func golden(_ version: String) -> String { Self.fixtures + "/Containers/" + version }

  func secret(_ name: String, _ version: String) throws -> SecretBytes {
    var bytes = try #require(readNative(golden(version) + "/" + name))
    if bytes.last == UInt8(ascii: "\n") { bytes.removeLast() }
    var secret = try SecretBytes(count: bytes.count)
    secret.withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
    return secret
  }

  /// A private copy: the golden one is never opened for writing.
  func copyOfGolden(_ version: String) throws -> TemporaryDirectory {
    let directory = TemporaryDirectory()
    for name in ["", "/catalog", "/journal", "/slab"] {
      try #require(mkdir(directory.path + "/container" + name, 0o700) == 0)
      let source = golden(version) + "/container" + name
      let stream = try #require(opendir(source))
      defer { closedir(stream) }
      while let entry = readdir(stream) {
        let file = withUnsafeBytes(of: &entry.pointee.d_name) {
          String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
        }
        guard entry.pointee.d_type == UInt8(DT_REG) else { continue }
        writeNative(
          directory.path + "/container" + name + "/" + file, try #require(readNative(source + "/" + file)))
      }
    }
    return directory
  }

  /// Every file of `expected` by its path.
  private func expected(_ version: String) throws -> [String: [UInt8]] {
    var files: [String: [UInt8]] = [:]
    func add(_ path: String) throws {
      let stream = try #require(opendir(golden(version) + "/expected" + path))
      defer { closedir(stream) }
      while let entry = readdir(stream) {
        let name = withUnsafeBytes(of: &entry.pointee.d_name) {
          String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
        }
        if name == "." || name == ".." { continue }
        if entry.pointee.d_type == UInt8(DT_DIR) {
          try add(path + "/" + name)
        } else {
          files[path + "/" + name] = readNative(golden(version) + "/expected" + path + "/" + name)
        }
      }
    }
    try add("")
    return files
  }

  @Test(arguments: ["key", "passphrase"], versions)
  func opensWithEverythingThatWasInIt(secretName: String, version: String) throws {
    let directory = try copyOfGolden(version)
    let secret = try secret(secretName, version)
    let credential = secretName == "key" ? try Credential.rawKey(secret) : .passphrase(secret)
    let container = try Container.open(
      at: directory.path + "/container", credential: credential, mode: .readOnly)
    #expect(container.findings.isEmpty)
    #expect(try container.tree().compactMapValues { $0 } == expected(version))
    #expect(try container.verify().findings.isEmpty)
  }

  @Test(arguments: versions)
  func goesOnFromThere(version: String) throws {
    let directory = try copyOfGolden(version)
    let path = directory.path + "/container"
    let container = try Container.open(at: path, credential: .rawKey(secret("key", version)))
    var files = try expected(version)
    let removed = files["/replaced"] == nil ? "/d/2" : "/replaced"
    try container.write(testBytes(20_000, seed: 1), to: "/new")
    try container.remove(removed)
    try container.close()
    files["/new"] = testBytes(20_000, seed: 1)
    files[removed] = nil
    let again = try Container.open(at: path, credential: .rawKey(secret("key", version)))
    #expect(try again.tree().compactMapValues { $0 } == files)
    #expect(try again.verify().findings.isEmpty)
  }
}
