import EncryptedFile
import SodiumPrimitives
import TestSupport
import Testing

@testable import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What is no regular file, or leads elsewhere, in the place of a container's files.
struct SpecialFileTests {
  private static let modes: [Container.Mode] = [.readOnly, .readWrite]

  /// A container with a file in a slab and changes in a journal, not closed cleanly.
  private static func makeContainer(_ path: String) throws {
    let clean = path + "-clean"
    let container = try Container.create(at: clean, credential: testCredential(), options: testOptions())
    try container.write(testBytes(100_000, seed: 1), to: "/file")
    try container.synchronize()
    try copyTree(clean, to: path)
    try container.close()
  }

  private static func copyTree(_ source: String, to target: String) throws {
    try #require(mkdir(target, 0o700) == 0)
    for name in ["superblock", "lock"] { writeNative(target + "/" + name, readNative(source + "/" + name)!) }
    for directory in CatalogFiles.directories {
      try #require(mkdir(target + "/" + directory, 0o700) == 0)
      for name in try PosixBlockIO(source).fileNames(in: directory) {
        let file = "/" + directory + "/" + name
        writeNative(target + file, readNative(source + file)!)
      }
    }
  }

  private static func paths(_ container: String) throws -> [String] {
    let io = PosixBlockIO(container)
    return try ["superblock", "lock"]
      + CatalogFiles.directories.flatMap { directory in
        try io.fileNames(in: directory).map { directory + "/" + $0 }
      }
  }

  private static func readsEverything(_ container: String, _ mode: Container.Mode) throws {
    let opened = try Container.open(
      at: container, credential: testCredential(), mode: mode, options: testOptions())
    #expect(try opened.contents(at: "/file") == testBytes(100_000, seed: 1))
    try opened.close()
  }

  @Test(arguments: modes, ["pipe", "directory", "link"])
  func isRefusedInThePlaceOfAFile(mode: Container.Mode, kind: String) throws {
    let directory = TemporaryDirectory()
    let original = directory.path + "/original"
    try Self.makeContainer(original)
    for (i, file) in try Self.paths(original).enumerated() {
      let container = directory.path + "/c\(i)"
      try Self.copyTree(original, to: container)
      try Self.readsEverything(container, .readOnly)
      let path = container + "/" + file
      try #require(unlink(path) == 0)
      switch kind {
      case "pipe": try #require(mkfifo(path, 0o600) == 0)
      case "directory": try #require(mkdir(path, 0o700) == 0)
      default: try #require(symlink(original + "/" + file, path) == 0)
      }
      // Returns, whatever it finds; nothing waits for the other end of a pipe.
      if ["catalog", "journal", "copy"].contains(where: file.hasPrefix) {
        // The other copy is whole.
        try Self.readsEverything(container, mode)
        let report = try Container.verify(
          at: container, credential: testCredential(), options: testOptions())
        // A writer may have put a checkpoint in its place.
        #expect(report.hasDamage || mode == .readWrite, "\(file)")
      } else if file == "lock", mode == .readOnly {
        // Readers can do without it, as they do where there are no locks.
        try Self.readsEverything(container, mode)
      } else {
        let error = #expect(throws: ContainerError.self, "\(file)") {
          try Self.readsEverything(container, mode)
        }
        if file == "superblock" {
          #expect(error?.code == .notAContainer)
        } else if file != "lock" {
          #expect(error?.code == .fileDamaged, "\(file)")
          let report = try Container.verify(
            at: container, credential: testCredential(), options: testOptions())
          #expect(report.findings.contains { $0.kind == .segmentDamaged && $0.path != nil }, "\(file)")
        }
      }
    }
  }

  @Test(arguments: modes, CatalogFiles.directories)
  func directoriesAreNotFollowed(mode: Container.Mode, name: String) throws {
    let directory = TemporaryDirectory()
    let (container, elsewhere) = (directory.path + "/c", directory.path + "/elsewhere")
    try Self.makeContainer(container)
    try #require(rename(container + "/" + name, elsewhere) == 0)
    try #require(symlink(elsewhere, container + "/" + name) == 0)
    let before = try PosixBlockIO(directory.path).fileNames(in: "elsewhere").sorted()
    #expect(throws: ContainerError.self) { try Self.readsEverything(container, mode) }
    #expect(try PosixBlockIO(directory.path).fileNames(in: "elsewhere").sorted() == before)
    // The directory of the container itself may be a link.
    try #require(unlink(container + "/" + name) == 0)
    try #require(rename(elsewhere, container + "/" + name) == 0)
    try #require(symlink(container, directory.path + "/link") == 0)
    try Self.readsEverything(directory.path + "/link", mode)
  }

  @Test func unknownFilesAreRemovedOnlyIfTheContainerCouldHaveMadeThem() throws {
    let path = TemporaryDirectory()
    let container = path.path + "/c"
    try Self.makeContainer(container)
    try Self.readsEverything(container, .readWrite)
    let garbage = ["catalog/" + Identifier.ofFile(namedIn: 1).hex, "slab/0000ffff"]
    let foreign = ["catalog/.DS_Store", "slab/+000ffff", "slab/0000FFFF", "journal/notes"]
    for name in garbage + foreign { writeNative(container + "/" + name, [1, 2, 3]) }
    let report = try Container.verify(at: container, credential: testCredential(), options: testOptions())
    #expect(!report.hasDamage)
    #expect(
      report.findings.filter { $0.kind == .unknownFile }.map(\.detail) == [
        "1 file(s) in catalog that the catalog does not name; opening for writing removes them",
        "1 file(s) in catalog that are not the container's; they are ignored",
        "1 file(s) in journal that are not the container's; they are ignored",
        "1 file(s) in slab that the catalog does not name; opening for writing removes them",
        "2 file(s) in slab that are not the container's; they are ignored",
      ])
    try Self.readsEverything(container, .readWrite)
    for name in garbage { #expect(readNative(container + "/" + name) == nil, "\(name)") }
    for name in foreign { #expect(readNative(container + "/" + name) == [1, 2, 3], "\(name)") }
  }
}
