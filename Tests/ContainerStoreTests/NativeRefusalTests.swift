import Foundation
import Locks
import TestSupport
import Testing

@testable import ContainerStore

/// What a native file system says of its files is not believed, and what it refuses costs no other file.
struct NativeRefusalTests {
  private let directory = TemporaryDirectory()
  private let files = FileManager.default

  private func container() throws -> Container {
    try Container.create(at: directory["c"], credential: testCredential(), options: testOptions())
  }

  private func text(_ path: String) -> String? {
    readNative(directory[path]).map { String(decoding: $0, as: UTF8.self) }
  }

  /// A control that does something when the work begins, after everything was looked at.
  private func control(
    _ left: Guarded<[ContainerError]>? = nil, whenBegun body: @escaping @Sendable () -> Void
  ) -> BulkControl {
    let hasBegun = Guarded(false)
    return BulkControl(
      progress: { _ in
        if hasBegun.withLock({ begun in
          defer { begun = true }
          return !begun
        }) {
          body()
        }
      },
      skipping: left.map { left in { error in left.withLock { $0.append(error) } } })
  }

  // MARK: Out

  /// As on a file system that takes two names for one: the other file is there when the export comes to it.
  @Test(arguments: [false, true]) func nothingTakesThePlaceOfWhatCameMeanwhile(isThere: Bool) throws {
    let container = try container()
    try container.createDirectory("/tree")
    for name in ["a", "b", "c"] { try container.write(Array(name.utf8), to: "/tree/\(name)") }
    try container.createSymbolicLink("/tree/l", to: "a")
    if isThere {
      try files.createDirectory(atPath: directory["out"], withIntermediateDirectories: false)
      writeNative(directory["out/b"], Array("before".utf8))
      writeNative(directory["out/l"], Array("before".utf8))
    }
    let left = Guarded<[ContainerError]>([])
    let directory = directory
    let receipt = try container.exportItem(
      "/tree", to: directory["out"], replacing: true,
      control: control(left) {
        for name in ["b", "l"] {
          writeNative(directory["out/new"], Array("other".utf8))
          _ = rename(directory["out/new"], directory["out/" + name])
        }
      })
    #expect(
      text("out/a") == "a" && text("out/c") == "c" && text("out/b") == "other" && text("out/l") == "other")
    #expect(left.withLock { $0.map(\.code) } == [.fileExists, .fileExists])
    #expect(receipt.fileCount == 2)
    #expect(try files.contentsOfDirectory(atPath: directory["out"]).sorted() == ["a", "b", "c", "l"])
    // Nobody leaves anything out: then nothing comes.
    let other = directory["other"]
    expectError(.fileExists) {
      try container.exportItem(
        "/tree", to: other, control: control { writeNative(other + "/b", Array("other".utf8)) })
    }
    #expect(readNative(other + "/b") == Array("other".utf8))
    try container.close()
  }

  @Test func whatHasNoPlaceThereIsLeftOut() throws {
    let container = try container()
    for name in ["/tree", "/tree/way"] { try container.createDirectory(name) }
    try container.write([1], to: "/tree/before")
    try container.write([2], to: "/tree/way/in")
    writeNative(directory["file"], [3])
    try files.createDirectory(atPath: directory["out"], withIntermediateDirectories: false)
    // A file where a folder, and a folder where a file should be.
    writeNative(directory["out/way"], [4])
    try files.createDirectory(atPath: directory["out/before"], withIntermediateDirectories: false)
    try container.write([5], to: "/tree/whole")
    var left: [ContainerError] = []
    let receipt = try container.exportItem(
      "/tree", to: directory["out"], replacing: true, control: BulkControl(skipping: { left.append($0) }))
    #expect(
      receipt.fileCount == 1 && readNative(directory["out/whole"]) == [5]
        && readNative(directory["out/way"]) == [4])
    #expect(Set(left.map(\.code)) == [.fileExists, .isADirectory] && left.count == 2)
    try container.close()
  }

  @Test func noContainerIsExportedIntoItself() throws {
    let container = try container()
    try container.write([1], to: "/superblock")
    let before = readNative(directory["c/superblock"])
    try files.createSymbolicLink(atPath: directory["link"], withDestinationPath: "c/slab")
    for place in ["c", "c/superblock", "c/slab/new", "c/journal/../lock", "link", "link/new", "c/new/deep"] {
      for source in ["/", "/superblock"] {
        #expect(throws: ContainerError.self, "\(source) to \(place)") {
          try container.exportItem(source, to: directory[place], replacing: true)
        }
      }
    }
    #expect(readNative(directory["c/superblock"]) == before)
    try container.exportItem("/superblock", to: directory["c2"])
    try container.close()
    #expect(try Container.verify(at: directory["c"], credential: testCredential()).findings.isEmpty)
  }

  /// Only other writers make such names: each comes out under one of its own.
  @Test func namesThatAreNotUTF8AreEscaped() throws {
    let container = try container()
    let names: [[UInt8]] = [
      [0x61, 0xf0], [0x61, 0xf1], [0x25, 0x80], Array("a\u{fffd}".utf8), Array("%F0".utf8),
    ]
    for name in names {
      let file = container.store.newFile()
      try container.store.transaction { transaction in
        let inode = Inode(
          kind: .file, permissions: 0o600, now: transaction.now, epoch: container.store.epoch,
          secret: file.secret)
        transaction.putFile(file.id, inode, extents: [])
        try transaction.replace(rootFileID, try #require(FileName(bytes: name)), with: file.id, kind: .file)
      }
    }
    let receipt = try container.exportItem("/", to: directory["out"])
    #expect(receipt.fileCount == 5 && receipt.escapedNameCount == 3)
    let found = try files.contentsOfDirectory(atPath: directory["out"])
    #expect(Set(found) == ["a%F0", "a%F1", "%25%80", "a\u{fffd}", "%F0"])
    try container.close()
  }

  // MARK: In

  #if os(Linux)
    @Test func aFileOfUnstatedSizeIsReadToItsEnd() throws {
      let container = try container()
      try container.importItem(at: "/proc/version", to: "/version")
      #expect(try container.contents(at: "/version") == readAll("/proc/version"))
      try files.createDirectory(atPath: directory["tree"], withIntermediateDirectories: false)
      writeNative(directory["tree/empty"], [])
      try container.importItem(at: directory["tree"], to: "/tree")
      #expect(try container.contents(at: "/tree/empty").isEmpty)
      try container.close()
    }

    private func readAll(_ path: String) -> [UInt8] {
      let handle = FileHandle(forReadingAtPath: path)
      return (try? handle?.readToEnd()).flatMap { $0 }.map { [UInt8]($0) } ?? []
    }
  #endif

  @Test(arguments: [false, true]) func aFileThatGrowsIsStored(isLarge: Bool) throws {
    let container = try container()
    try files.createDirectory(atPath: directory["tree"], withIntermediateDirectories: false)
    let contents = testBytes(isLarge ? 3 << 20 : 100, seed: 1)
    let more = testBytes(isLarge ? 2 << 20 : 50, seed: 2)
    writeNative(directory["tree/log"], contents)
    writeNative(directory["tree/empty"], [])
    writeNative(directory["tree/other"], [7])
    let directory = directory
    let receipt = try container.importItem(
      at: directory["tree"], to: "/tree",
      control: control {
        for name in ["log", "empty"] {
          let handle = FileHandle(forWritingAtPath: directory["tree/" + name])
          _ = try? handle?.seekToEnd()
          try? handle?.write(contentsOf: more)
        }
      })
    #expect(try container.contents(at: "/tree/log") == contents + more)
    #expect(try container.contents(at: "/tree/empty") == more && container.contents(at: "/tree/other") == [7])
    #expect(receipt.byteCount == UInt64(contents.count + 2 * more.count + 1))
    #expect(try container.verify().findings.isEmpty)
    try container.close()
  }

  @Test func whatCannotBeReadIsNamedAndTheRestIsStored() throws {
    let container = try container()
    try files.createDirectory(atPath: directory["tree/folder"], withIntermediateDirectories: true)
    for i in 0..<300 {
      writeNative(directory["tree/folder/\(i)"], [UInt8](repeating: UInt8(i % 256), count: i))
    }
    try #require(mkfifo(directory["tree/pipe"], 0o600) == 0)
    let left = Guarded<[ContainerError]>([])
    let directory = directory
    let gone = ["0", "1", "17", "299"]
    let vanishing: @Sendable () -> Void = { for name in gone { unlink(directory["tree/folder/" + name]) } }
    let receipt = try container.importItem(
      at: directory["tree"], to: "/tree", control: control(left, whenBegun: vanishing))
    #expect(receipt.fileCount == 296)
    #expect(
      left.withLock { Set($0.map(\.path)) }
        == Set((gone.map { "folder/" + $0 } + ["pipe"]).map { directory["tree/" + $0] }))
    #expect(
      try container.names(in: "/tree") == ["folder"] && container.names(in: "/tree/folder").count == 296)
    #expect(try container.contents(at: "/tree/folder/18").count == 18)
    for name in gone { writeNative(directory["tree/folder/" + name], [1]) }
    unlink(directory["tree/pipe"])
    expectError(.noSuchFile) {
      try container.importItem(at: directory["tree"], to: "/again", control: control(whenBegun: vanishing))
    }
    #expect(try container.attributes(at: "/again") == nil && container.verify().findings.isEmpty)
    try container.close()
  }

  @Test func aContainerIsNotStoredInItself() throws {
    let container = try container()
    writeNative(directory["file"], [1])
    var left: [ContainerError] = []
    try container.importItem(
      at: directory.path, to: "/all", control: BulkControl(skipping: { left.append($0) }))
    #expect(try container.names(in: "/all") == ["file"] && left.map(\.path) == [directory["c"]])
    expectError(.cannotStore) { try container.importItem(at: directory.path, to: "/again") }
    expectError(.cannotStore) { try container.importItem(at: directory["c"], to: "/itself") }
    try container.close()
  }
}
