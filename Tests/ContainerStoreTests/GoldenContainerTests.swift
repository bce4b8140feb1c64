import Foundation
import SodiumPrimitives
import TestSupport
import Testing

@testable import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Containers that the format's first writers left still open: see Fixtures/Containers/README.md.
struct GoldenContainerTests {
  private static let fixtures =
    #filePath.split(separator: "/").dropLast(3).map { "/" + $0 }.joined() + "/Fixtures"
  static let versions = ["v3", "v3-deliveries"]

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
    for name in ["", "/catalog", "/copy", "/journal", "/slab"] {
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

  // MARK: Making them

  /// Where golden containers are to be made; an ordinary run makes none.
  private static let place = ProcessInfo.processInfo.environment["OPENDYNAMICS_GOLDEN"]

  @Test(.enabled(if: place != nil)) func makesThem() throws {
    for version in Self.versions {
      let directory = Self.place! + "/" + version
      let path = directory + "/container"
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
      try Data(repeating: 7, count: 32).write(to: URL(filePath: directory + "/key"))
      try Data("golden \(version)\n".utf8).write(to: URL(filePath: directory + "/passphrase"))
      if version == "v3" { try makeFiles(at: path) } else { try GoldenDeliveriesTests().make(at: path) }
      var options = testOptions()
      options.passwordHash = PasswordHash.Parameters(passes: 1, memoryKiB: 1024)
      let container = try Container.open(at: path, credential: testCredential(), options: options)
      try container.addKey(.passphrase(SecretBytes(utf8: "golden \(version)")), label: "words")
      let tree = try container.tree()
      try container.close()
      for (name, contents) in tree {
        guard let contents else { continue }
        let file = URL(filePath: directory + "/expected" + name)
        try FileManager.default.createDirectory(
          at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
        try Data(contents).write(to: file)
      }
      try? FileManager.default.removeItem(atPath: path + "/reserve")
      try Data().write(to: URL(filePath: path + "/lock"))
    }
  }

  /// Two tables, the newer one with tombstones over the older one, and a chain of journals, of which one is long.
  private func makeFiles(at path: String) throws {
    var options = testOptions()
    options.checkpointByteCounts = 1 << 13...1 << 13
    var container = try Container.create(at: path, credential: testCredential(), options: options)
    func reopen() throws {
      try container.close()
      container = try Container.open(at: path, credential: testCredential(), options: options)
    }
    try container.createDirectory("/Documents/deep", withIntermediateDirectories: true)
    for (name, count) in [("empty", 0), ("one byte", 1), ("segment", 16384), ("segment and one", 16385)] {
      try container.write(testBytes(count, seed: UInt64(count)), to: "/Documents/" + name)
    }
    try container.write(testBytes(40_000, seed: 9), to: "/Documents/deep/naïve – 名前.txt")
    for i in 0..<60 {
      try container.write(testBytes(20 + i % 50, seed: UInt64(i)), to: "/Documents/file \(i)")
    }
    let long = String(repeating: "folder ", count: 20)
    for i in 0..<150 { try container.createDirectory("/Documents/\(long)\(i)") }
    container.store.backgroundWork.wait()
    try reopen()
    for i in 0..<10 { try container.remove("/Documents/file \(2 * i)") }
    try container.write(testBytes(3000, seed: 10), to: "/replaced")
    try container.createLink("/Documents/second name", to: "/Documents/segment")
    try container.createSymbolicLink("/link", to: "Documents/one byte")
    var changes = AttributeChanges()
    changes.extended = ["user.note": Array("a note".utf8)]
    try container.setAttributes(changes, at: "/replaced")
    for i in 0..<50 {
      try container.write(testBytes(30, seed: UInt64(1000 + i)), to: "/Documents/later \(i)")
    }
    container.store.backgroundWork.wait()
    options = testOptions()
    for i in 0..<4 {
      try reopen()
      try container.write(testBytes(2000 + i, seed: UInt64(20 + i)), to: "/replaced")
    }
    try container.move("/Documents/file 1", to: "/moved")
    try container.close()
  }
}
