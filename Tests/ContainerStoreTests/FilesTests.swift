import ContainerStore
import Foundation
import Locks
import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

struct FilesTests {
  // MARK: Contents

  @Test(arguments: borderSizes)
  func readsBackWhatWasWritten(size: Int) throws {
    let fixture = try Fixture()
    let bytes = testBytes(size, seed: UInt64(size))
    try fixture.container.write(bytes, to: "/Zebra")
    #expect(try fixture.container.contents(at: "/Zebra") == bytes)
    let reopened = try fixture.reopened()
    #expect(try reopened.contents(at: "/Zebra") == bytes)
    #expect(try reopened.attributes(at: "/Zebra")?.size == UInt64(size))
    #expect(try reopened.verify().findings == [])
  }

  @Test func readsAnyPartOfAFile() throws {
    let container = try Fixture().container
    let bytes = testBytes(2 << 20 + 77, seed: 1)
    try container.write(bytes, to: "/Zebra")
    for (offset, count) in [
      (0, 1), (16383, 2), (1 << 20 - 1, 2), (5, 40_000), (2 << 20, 77), (2 << 20 + 76, 10), (2 << 20 + 77, 5),
      (1 << 40, 5),
    ] {
      var buffer = [UInt8](repeating: 0xee, count: count)
      let read = try buffer.withUnsafeMutableBytes {
        try container.read("/Zebra", at: UInt64(offset), into: $0)
      }
      let expected = Array(bytes.dropFirst(offset).prefix(count))
      #expect(Array(buffer.prefix(read)) == expected)
      #expect(buffer.dropFirst(read).allSatisfy { $0 == 0xee })
    }
    var pieces: [[UInt8]] = []
    try container.read("/Zebra") { pieces.append(Array($0)) }
    #expect(pieces.map(\.count) == [1 << 20, 1 << 20, 77])
    #expect(pieces.flatMap { $0 } == bytes)
  }

  @Test func replacesAFileInOneStep() throws {
    let fixture = try Fixture()
    let container = fixture.container
    try container.write(testBytes(3 << 20, seed: 1), to: "/Zebra", permissions: 0o644)
    let before = try #require(try container.attributes(at: "/Zebra"))
    #expect(before.permissions == 0o644)
    try container.write([1, 2, 3], to: "/Zebra")
    let after = try #require(try container.attributes(at: "/Zebra"))
    #expect(after.id != before.id)
    #expect(after.size == 3)
    #expect(try container.contents(at: "/Zebra") == [1, 2, 3])
    #expect(try container.list("/").count == 1)
    #expect(try container.info().byteCount == 3)
  }

  @Test func writesFromPieces() throws {
    let container = try Fixture().container
    let bytes = testBytes(2 << 20 + 5, seed: 1)
    var rest = bytes[...]
    try container.write(to: "/Zebra", permissions: 0o640) {
      guard !rest.isEmpty else { return nil }
      defer { rest = rest.dropFirst(300_001) }
      return Array(rest.prefix(300_001))
    }
    #expect(try container.contents(at: "/Zebra") == bytes)
    #expect(try container.attributes(at: "/Zebra")?.permissions == 0o640)
  }

  @Test func leavesNothingWhenThePiecesEndInAnError() throws {
    struct Interruption: Error {}
    let fixture = try Fixture()
    try fixture.container.write([9], to: "/Zebra")
    let sizes = fixture.io.slabSizes
    var count = 0
    #expect(throws: Interruption.self) {
      try fixture.container.write(to: "/Zebra") {
        count += 1
        // Some units are stored by then.
        if count == 4 { throw Interruption() }
        return testBytes(1 << 20 + 7, seed: UInt64(count))
      }
    }
    #expect(try fixture.container.contents(at: "/Zebra") == [9])
    #expect(fixture.io.slabSizes == sizes)
    #expect(try fixture.container.verify().findings == [])
  }

  // MARK: Looking

  @Test func tellsWhatIsThere() throws {
    let container = try Fixture().container
    #expect(try container.attributes(at: "/")?.kind == .directory)
    #expect(try container.attributes(at: "/Zebra") == nil)
    #expect(try container.attributes(at: "/Zebra/below") == nil)
    try container.write([1, 2], to: "/Zebra")
    let file = try #require(try container.attributes(at: "/Zebra"))
    #expect(file.kind == .file && file.size == 2 && file.permissions == 0o600 && file.linkCount == 1)
    #expect(
      file.created == file.modified
        && abs(file.created - Int64(Date().timeIntervalSince1970 * 1e9)) < 60_000_000_000)
    #expect(try container.attributes(at: "/Zebra/below") == nil)
    #expect(try container.attributes(at: "/Zebra/") == nil)
    try container.createDirectory("/Yak", permissions: 0o750)
    let directory = try #require(try container.attributes(at: "/Yak/"))
    #expect(directory.kind == .directory && directory.size == 0 && directory.permissions == 0o750)
  }

  @Test func listsInBytewiseOrderAndParentsFirst() throws {
    let container = try Fixture().container
    try container.createDirectory("/b/c", withIntermediateDirectories: true)
    for path in ["/é", "/a", "/B", "/b/z", "/b/c/x", "/b!"] { try container.write([], to: path) }
    #expect(try container.list("/").map(\.path) == ["B", "a", "b", "b!", "é"])
    #expect(try container.list("b").map(\.path) == ["c", "z"])
    let all = try container.list("/", recursively: true).map(\.path)
    #expect(Set(all) == ["B", "a", "b", "b!", "é", "b/c", "b/z", "b/c/x"] && all.count == 8)
    for path in all where path.contains("/") {
      let parent = String(path[..<path.lastIndex(of: "/")!])
      #expect(all.firstIndex(of: parent)! < all.firstIndex(of: path)!)
    }
    #expect(try container.list("/b/c/").map(\.attributes.kind) == [.file])
    expectError(.noSuchFile, path: "/Zebra") { try container.list("/Zebra") }
    expectError(.notADirectory, path: "/b/c/x") { try container.list("/b/c/x") }
  }

  // MARK: Directories

  @Test func makesDirectories() throws {
    let container = try Fixture().container
    try container.createDirectory("/Zebra")
    expectError(.fileExists, path: "/Zebra") { try container.createDirectory("/Zebra") }
    expectError(.fileExists, path: "/Zebra/") { try container.createDirectory("/Zebra/") }
    expectError(.fileExists, path: "/") { try container.createDirectory("/") }
    expectError(.noSuchFile, path: "/Yaks/Zebra") { try container.createDirectory("/Yaks/Zebra") }
    let id = try container.attributes(at: "/Zebra")?.id
    try container.createDirectory("/Zebra", withIntermediateDirectories: true)
    #expect(try container.attributes(at: "/Zebra")?.id == id)
    try container.createDirectory("/Yaks/deep/Zebra", withIntermediateDirectories: true)
    #expect(try container.list("/Yaks", recursively: true).map(\.path) == ["deep", "deep/Zebra"])
    try container.createDirectory("/", withIntermediateDirectories: true)
  }

  @Test(arguments: [false, true])
  func aDirectoryNeverTakesTheNameOfAFile(withIntermediateDirectories: Bool) throws {
    let container = try Fixture().container
    try container.write([1], to: "/Zebra")
    for path in ["/Zebra", "/Zebra/", "/Zebra//"] {
      expectError(.fileExists, path: path) {
        try container.createDirectory(path, withIntermediateDirectories: withIntermediateDirectories)
      }
    }
    expectError(.notADirectory, path: "/Zebra/below") {
      try container.createDirectory(
        "/Zebra/below", withIntermediateDirectories: withIntermediateDirectories)
    }
    #expect(try container.tree() == ["/Zebra": [1]])
    #expect(try container.verify().findings == [])
  }

  // MARK: Moving

  @Test func movesAndRenames() throws {
    let fixture = try Fixture()
    let container = fixture.container
    try container.createDirectory("/from/inner", withIntermediateDirectories: true)
    try container.createDirectory("/to")
    try container.write([1], to: "/from/Zebra")
    try container.write([2], to: "/from/inner/file")
    let id = try container.attributes(at: "/from/Zebra")?.id
    try container.move("/from/Zebra", to: "/from/Yak")
    try container.move("/from/Yak", to: "/to/Yak")
    #expect(try container.attributes(at: "/to/Yak")?.id == id)
    try container.move("/from/", to: "/to/moved/")
    try container.move("/to/Yak", to: "/to/Yak")
    #expect(
      try fixture.reopened().tree() == [
        "/to": nil, "/to/Yak": [1], "/to/moved": nil, "/to/moved/inner": nil, "/to/moved/inner/file": [2],
      ])
  }

  @Test func refusesImpossibleMoves() throws {
    let container = try Fixture().container
    try container.createDirectory("/Zebra/inner", withIntermediateDirectories: true)
    try container.createDirectory("/Yaks")
    try container.write([1], to: "/file")
    try container.write([2], to: "/other")
    let before = try container.tree()
    expectError(.moveIntoItself, path: "/Zebra/inner/deep") {
      try container.move("/Zebra", to: "/Zebra/inner/deep")
    }
    expectError(.moveIntoItself, path: "/Zebra/new") { try container.move("/Zebra", to: "/Zebra/new") }
    for replacing in [false, true] {
      expectError(.fileExists, path: "/Yaks") {
        try container.move("/Zebra", to: "/Yaks", replacing: replacing)
      }
      expectError(.fileExists, path: "/Yaks") {
        try container.move("/file", to: "/Yaks", replacing: replacing)
      }
      expectError(.fileExists, path: "/file") {
        try container.move("/Zebra", to: "/file", replacing: replacing)
      }
    }
    expectError(.fileExists, path: "/Zebra") { try container.move("/Zebra/inner", to: "/Zebra") }
    expectError(.fileExists, path: "/other") { try container.move("/file", to: "/other") }
    expectError(.noSuchFile, path: "/none") { try container.move("/none", to: "/new") }
    expectError(.noSuchFile, path: "/none/new") { try container.move("/file", to: "/none/new") }
    expectError(.notADirectory, path: "/other/new") { try container.move("/file", to: "/other/new") }
    expectError(.notADirectory, path: "/new/") { try container.move("/file", to: "/new/") }
    expectError(.notADirectory, path: "/file/") { try container.move("/file/", to: "/new") }
    expectError(.invalidArgument, path: "/") { try container.move("/", to: "/new") }
    expectError(.invalidArgument) { try container.move("/file", to: "/") }
    #expect(try container.tree() == before)
  }

  @Test func aMoveReplacesAFileIfAskedTo() throws {
    let container = try Fixture().container
    try container.write([1], to: "/Zebra")
    try container.write(testBytes(50_000, seed: 1), to: "/Yak")
    try container.move("/Zebra", to: "/Yak", replacing: true)
    #expect(try container.tree() == ["/Yak": [1]])
    #expect(try container.info().fileCount == 1)
    #expect(try container.verify().findings == [])
  }

  // MARK: Copying

  @Test(arguments: borderSizes)
  func aCopyHasAKeyOfItsOwnAndSurvivesTheOriginal(size: Int) throws {
    let fixture = try Fixture()
    let bytes = testBytes(size, seed: UInt64(size))
    try fixture.container.write(bytes, to: "/Zebra", permissions: 0o640)
    try fixture.container.setAttributes(at: "/Zebra", created: 1, modified: 1_000_000_007)
    try fixture.container.copy("/Zebra", to: "/Yak")
    let original = try #require(try fixture.container.attributes(at: "/Zebra"))
    let copy = try #require(try fixture.container.attributes(at: "/Yak"))
    #expect(copy.id != original.id && copy.permissions == 0o640 && copy.modified == 1_000_000_007)
    #expect(copy.created > 1)
    try fixture.container.remove("/Zebra")
    try fixture.container.synchronize()
    #expect(try fixture.container.contents(at: "/Yak") == bytes)
    let reopened = try fixture.reopened()
    #expect(try reopened.contents(at: "/Yak") == bytes)
    #expect(try reopened.verify().findings == [])
  }

  @Test func copiesATree() throws {
    let container = try Fixture().container
    try container.createDirectory("/Zebra/empty", withIntermediateDirectories: true)
    try container.createDirectory("/Zebra/deep", withIntermediateDirectories: true)
    try container.write([], to: "/Zebra/nothing")
    try container.write(testBytes(20_000, seed: 1), to: "/Zebra/deep/file")
    try container.copy("/Zebra", to: "/Yak")
    try container.remove("/Zebra")
    #expect(
      try container.tree() == [
        "/Yak": nil, "/Yak/empty": nil, "/Yak/deep": nil, "/Yak/nothing": [],
        "/Yak/deep/file": testBytes(20_000, seed: 1),
      ])
    #expect(try container.verify().findings == [])
  }

  @Test func refusesImpossibleCopies() throws {
    let container = try Fixture().container
    try container.createDirectory("/Zebra/inner", withIntermediateDirectories: true)
    try container.write([1], to: "/file")
    try container.write([2], to: "/other")
    let before = try container.tree()
    expectError(.moveIntoItself, path: "/Zebra/inner/deep") {
      try container.copy("/Zebra", to: "/Zebra/inner/deep")
    }
    expectError(.moveIntoItself, path: "/new") { try container.copy("/", to: "/new") }
    for replacing in [false, true] {
      expectError(.fileExists, path: "/Zebra") {
        try container.copy("/Zebra", to: "/Zebra", replacing: replacing)
      }
      expectError(.fileExists, path: "/file") {
        try container.copy("/file", to: "/file", replacing: replacing)
      }
      expectError(.fileExists, path: "/file") {
        try container.copy("/Zebra", to: "/file", replacing: replacing)
      }
      expectError(.fileExists, path: "/Zebra") {
        try container.copy("/file", to: "/Zebra", replacing: replacing)
      }
      expectError(.fileExists, path: "/") { try container.copy("/Zebra", to: "/", replacing: replacing) }
    }
    expectError(.fileExists, path: "/other") { try container.copy("/file", to: "/other") }
    expectError(.noSuchFile, path: "/none") { try container.copy("/none", to: "/new") }
    expectError(.noSuchFile, path: "/none/new") { try container.copy("/file", to: "/none/new") }
    expectError(.isADirectory, path: "/new/") { try container.copy("/file", to: "/new/") }
    #expect(try container.tree() == before)
    try container.copy("/file", to: "/other", replacing: true)
    #expect(try container.contents(at: "/other") == [1])
    #expect(try container.contents(at: "/file") == [1])
  }

  @Test func aCopyOfADamagedFileLeavesNothing() throws {
    let fixture = try Fixture()
    try fixture.container.write(testBytes(3 << 20, seed: 1), to: "/Zebra")
    try fixture.container.close()
    let io = fixture.io.damaged()
    let container = try Container.open(io: io, credential: testCredential(), options: testOptions())
    let sizes = io.slabSizes
    expectError(.fileDamaged, path: "/Zebra") { try container.copy("/Zebra", to: "/Yak") }
    #expect(try container.list("/").map(\.path) == ["Zebra"])
    #expect(io.slabSizes == sizes)
  }

  // MARK: Removing

  @Test func removes() throws {
    let fixture = try Fixture()
    let container = fixture.container
    try container.createDirectory("/Zebra/inner", withIntermediateDirectories: true)
    try container.createDirectory("/Yak")
    try container.write(testBytes(100_000, seed: 1), to: "/Zebra/inner/file")
    try container.write([1], to: "/file")
    expectError(.directoryNotEmpty, path: "/Zebra") { try container.remove("/Zebra", recursively: false) }
    expectError(.noSuchFile, path: "/none") { try container.remove("/none") }
    expectError(.notADirectory, path: "/file/") { try container.remove("/file/") }
    expectError(.notADirectory, path: "/file/none") { try container.remove("/file/none") }
    expectError(.invalidArgument, path: "/") { try container.remove("/") }
    expectError(.invalidArgument, path: "/Zebra/..") { try container.remove("/Zebra/..") }
    try container.remove("/Yak", recursively: false)
    try container.remove("/file", recursively: false)
    try container.remove("/Zebra")
    #expect(try container.tree().isEmpty)
    let info = try container.info()
    #expect(info.fileCount == 0 && info.directoryCount == 1 && info.byteCount == 0 && info.liveByteCount == 0)
    #expect(fixture.io.slabSizes.isEmpty)
    #expect(try fixture.reopened().tree().isEmpty)
  }

  // MARK: Attributes

  @Test func setsDatesAndPermissions() throws {
    let fixture = try Fixture()
    try fixture.container.write([1], to: "/Zebra")
    try fixture.container.setAttributes(
      at: "/Zebra", created: -5, modified: .max, permissions: 0o177_777)
    try fixture.container.setAttributes(at: "/", modified: 12, permissions: 0o711)
    try fixture.container.setAttributes(at: "/Zebra")
    expectError(.noSuchFile, path: "/none") { try fixture.container.setAttributes(at: "/none") }
    let reopened = try fixture.reopened()
    let file = try #require(try reopened.attributes(at: "/Zebra"))
    #expect(file.created == -5 && file.modified == .max && file.permissions == 0o7777)
    #expect(file.changed > 0)
    let root = try #require(try reopened.attributes(at: "/"))
    #expect(root.modified == 12 && root.permissions == 0o711)
  }

  @Test func aDirectoryChangesWhenANameInItDoes() throws {
    let container = try Fixture().container
    try container.createDirectory("/Zebra")
    let changes: [(Container) throws -> Void] = [
      { try $0.write([1], to: "/Zebra/a") }, { try $0.move("/Zebra/a", to: "/Zebra/b") },
      { try $0.createDirectory("/Zebra/c") }, { try $0.remove("/Zebra/b") },
    ]
    for change in changes {
      try container.setAttributes(at: "/Zebra", modified: 1)
      try change(container)
      #expect(try #require(try container.attributes(at: "/Zebra")).modified > 1)
    }
  }

  // MARK: Paths

  @Test(arguments: [
    "Yak/Zebra", "./Yak/./Zebra", "//Yak///Zebra", "/Yak/../Yak/Zebra", "/../../Yak/Zebra",
    "/Yak/./Zebra",
  ])
  func everyWayToWriteAPathLeadsToTheSameFile(path: String) throws {
    let container = try Fixture().container
    try container.createDirectory("Yak")
    try container.write([1, 2, 3], to: path)
    #expect(try container.tree() == ["/Yak": nil, "/Yak/Zebra": [1, 2, 3]])
    #expect(try container.contents(at: path) == [1, 2, 3])
    try container.remove(path)
    #expect(try container.tree() == ["/Yak": nil])
  }

  @Test func refusesWhatIsNoPath() throws {
    let container = try Fixture().container
    try container.write([1], to: "/Zebra")
    expectError(.noSuchFile, path: "") { try container.contents(at: "") }
    expectError(.noSuchFile, path: "") { try container.write([1], to: "") }
    expectError(.isADirectory, path: "/") { try container.write([1], to: "/") }
    expectError(.isADirectory, path: "/Yaks/") { try container.write([1], to: "/Yaks/") }
    expectError(.isADirectory, path: "/Zebra/") { try container.write([1], to: "/Zebra/") }
    expectError(.isADirectory, path: ".") { try container.contents(at: ".") }
    expectError(.notADirectory, path: "/Zebra/") { try container.contents(at: "/Zebra/") }
    expectError(.notADirectory, path: "/Zebra/x") { try container.contents(at: "/Zebra/x") }
    expectError(.notADirectory, path: "/Zebra/x") { try container.write([1], to: "/Zebra/x") }
    expectError(.noSuchFile, path: "/Yaks/Zebra") { try container.write([1], to: "/Yaks/Zebra") }
    for name in ["Ze\0bra", "\0", String(repeating: "x", count: 256), String(repeating: "é", count: 128)] {
      let path = "/" + name
      expectError(.invalidName, path: path) { try container.write([1], to: path) }
      expectError(.invalidName, path: path) { try container.contents(at: path) }
      expectError(.invalidName, path: path) { try container.attributes(at: path) }
      expectError(.invalidName, path: path) { try container.list(path) }
      expectError(.invalidName, path: path) { try container.createDirectory(path) }
      expectError(.invalidName, path: path) { try container.remove(path) }
      expectError(.invalidName, path: path) { try container.move("/Zebra", to: path) }
      expectError(.invalidName, path: path) { try container.copy("/Zebra", to: path) }
      expectError(.invalidName, path: path) { try container.setAttributes(at: path) }
    }
    #expect(try container.tree() == ["/Zebra": [1]])
  }

  @Test func takesEveryNameOfUpTo255Bytes() throws {
    let fixture = try Fixture()
    let names = [
      String(repeating: "x", count: 255), String(repeating: "é", count: 127) + "x", "two\nlines", "...", " ",
      "\u{1}",
      "~", "-", "a b", "\\", "\u{202e}txt", "🦓",
    ]
    for (i, name) in names.enumerated() { try fixture.container.write([UInt8(i)], to: "/" + name) }
    let reopened = try fixture.reopened()
    for (i, name) in names.enumerated() {
      #expect(try reopened.contents(at: "/" + name) == [UInt8(i)])
    }
    let listed = try reopened.list("/").map { Array($0.path.utf8) }
    #expect(Set(listed) == Set(names.map { Array($0.utf8) }))
  }

  @Test func namesThatUnicodeTakesForEqualAreDifferent() throws {
    let composed = "/caf\u{e9}"
    let decomposed = "/cafe\u{301}"
    try #require(composed == decomposed)
    let container = try Fixture().container
    try container.write([1], to: composed)
    expectError(.noSuchFile, path: decomposed) { try container.contents(at: decomposed) }
    try container.write([2], to: decomposed)
    #expect(try container.contents(at: composed) == [1])
    #expect(try container.contents(at: decomposed) == [2])
    #expect(try container.list("/").count == 2)
    try container.remove(composed)
    #expect(try container.contents(at: decomposed) == [2])
  }

  // MARK: Errors

  private func changes(_ container: Container) -> [(String, () throws -> Void)] {
    [
      ("write", { try container.write([1], to: "/new") }),
      ("write pieces", { try container.write(to: "/new") { nil } }),
      ("createDirectory", { try container.createDirectory("/new") }),
      ("move", { try container.move("/Zebra", to: "/new") }),
      ("copy", { try container.copy("/Zebra", to: "/new") }),
      ("remove", { try container.remove("/Zebra") }),
      ("setAttributes", { try container.setAttributes(at: "/Zebra", permissions: 0) }),
      ("import", { try container.importItem(at: "/dev/null", to: "/new") }),
      ("addKey", { try container.addKey(testCredential(1)) }),
    ]
  }

  @Test func aClosedContainerRefusesEverything() throws {
    let container = try Fixture().container
    try container.write([1], to: "/Zebra")
    try container.close()
    try container.close()
    let looks: [(String, () throws -> Void)] = [
      ("contents", { _ = try container.contents(at: "/Zebra") }),
      ("read", { try container.read("/Zebra") { _ in } }),
      ("list", { _ = try container.list("/") }),
      ("attributes", { _ = try container.attributes(at: "/") }),
      ("info", { _ = try container.info() }),
      ("verify", { _ = try container.verify() }),
      ("export", { _ = try container.exportItem("/Zebra", to: "/tmp/never") }),
      ("synchronize", { try container.synchronize() }),
    ]
    for (name, body) in changes(container) + looks {
      expectError(.closed, of: name, body)
    }
  }

  @Test func aWriteDuringWhichTheContainerIsClosedStoresNothing() throws {
    let fixture = try Fixture()
    var operationCount = 0
    expectError(.closed, path: "/Zebra") {
      try fixture.container.write(to: "/Zebra") {
        if operationCount == 0 {
          try fixture.container.close()
          operationCount = fixture.io.log.count
        }
        return testBytes(1 << 20, seed: 1)
      }
    }
    #expect(fixture.io.log.count == operationCount)
  }

  @Test func aContainerOpenForReadingRefusesChanges() throws {
    let fixture = try Fixture()
    try fixture.container.write([1], to: "/Zebra")
    let reader = try fixture.reopened(mode: .readOnly)
    let log = fixture.io.log.count
    for (name, body) in changes(reader) {
      expectError(.readOnly, of: name, body)
    }
    try reader.synchronize()
    #expect(try reader.tree() == ["/Zebra": [1]])
    try reader.close()
    #expect(fixture.io.log.count == log)
  }

  @Test func everyErrorSaysWhatFailedAndWhatToDoAndKeepsThePathOut() {
    for code in ContainerError.Code.allCases {
      let text = ContainerError(code, path: "/Zebra", detail: "some detail").description
      #expect(text.contains(code.what) && text.contains(code.remedy) && text.contains("some detail"))
      #expect(!text.contains("Zebra"))
    }
  }

  @Test func aDumpOfAContainerShowsNeitherKeysNorNames() throws {
    let container = try Fixture().container
    try container.write(Array("Contents".utf8), to: "/Zebra")
    var text = ""
    dump(container, to: &text)
    #expect(text.contains("mode"))
    #expect(Mirror(reflecting: container).children.compactMap(\.label) == ["id", "mode"])
    #expect(!text.contains("Zebra") && !text.contains("key"))
  }

  @Test func aDumpOfWhatHasAContainerShowsNeitherKeysNorNames() throws {
    let container = try Fixture().container
    try container.write(Array("Contents".utf8), to: "/Zebra")
    let snapshot = try container.snapshot()
    let file = try container.openFile("/Zebra", .read)
    var text = ""
    dump(snapshot, to: &text)
    dump(container.reader, to: &text)
    dump(try container.listing(of: "/"), to: &text, maxDepth: 3)
    #expect(!text.contains("Zebra") && !text.contains("overlay") && !text.contains("rootKey"))
    text = ""
    dump(file, to: &text)
    #expect(!text.contains("overlay") && !text.contains("rootKey"))
    try file.close()
    try snapshot.close()
  }

  // MARK: Durability

  @Test func whatWasGroupedIsThereAfterClosing() throws {
    let fixture = try Fixture(durability: .grouped)
    try fixture.container.write(testBytes(20_000, seed: 1), to: "/Zebra")
    try fixture.container.createDirectory("/Yak")
    let operations = fixture.io.log.count
    try fixture.container.close()
    #expect(fixture.io.log.count > operations)
    // Even of a disk that keeps only what was synchronized.
    let image = CrashPlan(operationCount: fixture.io.log.count, loss: .everythingUnsynchronized)
      .replay(fixture.io.log)
    let reopened = try Container.open(
      io: RecordingIO(image), credential: testCredential(), options: testOptions())
    #expect(try reopened.tree() == ["/Zebra": testBytes(20_000, seed: 1), "/Yak": nil])
    #expect(reopened.findings == [])
  }

  /// A slab is closed when it is full, and must be synchronized all the same if somebody was about to write to it.
  @Test func theLastWriteToAFullSlabIsSynchronized() throws {
    let io = HookedIO()
    let container = try Container.create(io: io, credential: testCredential(), options: testOptions(.none))
    let unit = testBytes(1 << 20, seed: 1)
    var count = 0
    try container.write(to: "/large") {
      count += 1
      return count <= 62 ? unit : nil
    }
    try container.synchronize()
    try container.write([1], to: "/small")
    io.setHook { operation, path in
      guard operation == "write", path == "slab/00000000" else { return }
      io.setHook(nil)
      do { try container.synchronize() } catch { Issue.record(error) }
    }
    try container.write(Array(unit.prefix(900_000)), to: "/last")
    try container.synchronize()
    #expect(io.disk.slabSizes.count == 1)
    let log = io.disk.log
    let lastSync = log.lastIndex(of: .synchronize("slab/00000000"))
    let lastWrite = log.lastIndex { if case .write("slab/00000000", _, _) = $0 { true } else { false } }
    #expect(try #require(lastSync) > #require(lastWrite))
  }

  @Test func synchronizingMakesGroupedChangesDurable() throws {
    let fixture = try Fixture(durability: .grouped)
    try fixture.container.write([1], to: "/Zebra")
    try fixture.container.synchronize()
    let image = CrashPlan(operationCount: fixture.io.log.count, loss: .everythingUnsynchronized)
      .replay(fixture.io.log)
    let found = try Container.open(
      io: RecordingIO(image), credential: testCredential(), options: testOptions())
    #expect(try found.tree() == ["/Zebra": [1]])
  }

  // MARK: Many at once

  @Test(arguments: [Container.Durability.grouped, .full])
  func readersSeeWholeFilesWhileOthersWrite(durability: Container.Durability) throws {
    let fixture = try Fixture(durability: durability)
    let container = fixture.container
    let writerCount = 3
    let versionCount = 30
    // Every version of a file is one byte, repeated a number of times that follows from the byte.
    @Sendable func contents(_ version: Int) -> [UInt8] {
      [UInt8](repeating: UInt8(version), count: 1 + (version * 7919) % 40_000)
    }
    for i in 0..<writerCount { try container.write(contents(0), to: "/file\(i)") }
    let writersLeft = Guarded(writerCount)
    let complaints = inThreads(writerCount + 3) { i in
      if i < writerCount {
        defer { writersLeft.withLock { $0 -= 1 } }
        for version in 1...versionCount {
          try container.write(contents(version), to: "/file\(i)")
          if version % 5 == 0 {
            try container.copy("/file\(i)", to: "/copy\(i)-\(version)")
            try container.remove("/copy\(i)-\(version)")
          }
        }
        return nil
      }
      var newest = [Int](repeating: 0, count: writerCount)
      while writersLeft.withLock({ $0 > 0 }) {
        for file in 0..<writerCount {
          let bytes = try container.contents(at: "/file\(file)")
          let version = Int(bytes[0])
          guard bytes == contents(version) else { return "a mixture of versions" }
          guard version >= newest[file] else { return "version \(version) after \(newest[file])" }
          newest[file] = version
        }
      }
      return nil
    }
    #expect(complaints == [])
    #expect(try container.verify().findings == [])
    let reopened = try fixture.reopened()
    for i in 0..<writerCount { #expect(try reopened.contents(at: "/file\(i)") == contents(versionCount)) }
    #expect(try reopened.list("/").count == writerCount)
    #expect(try reopened.verify().findings == [])
  }

  /// What one writer gives back, another one may take at once: giving back must be over by then.
  @Test(arguments: ["truncate", "punch"])
  func aFailedWriteDoesNotTouchWhatOthersWriteMeanwhile(operation: String) throws {
    struct Interruption: Error {}
    let io = HookedIO()
    let container = try Container.create(io: io, credential: testCredential(), options: testOptions())
    try container.write(testBytes(10_000, seed: 1), to: "/first")
    let written = Guarded<[String: [UInt8]]>([:])
    io.setHook { called, path in
      guard called == operation, path.hasPrefix("slab/") else { return }
      io.setHook(nil)
      let bytes = testBytes(100_000, seed: 2)
      do {
        try container.write(bytes, to: "/meanwhile")
        written.withLock { $0["/meanwhile"] = bytes }
      } catch {
        Issue.record(error)
      }
    }
    #expect(throws: Interruption.self) {
      var count = 0
      try container.write(to: "/failing") {
        count += 1
        if count > 2 { throw Interruption() }
        return testBytes(1 << 20, seed: 3)
      }
    }
    #expect(written.withLock { $0.count } == 1, "the hook was never called")
    for (path, bytes) in written.withLock({ $0 }) { #expect(try container.contents(at: path) == bytes) }
    #expect(try container.contents(at: "/first") == testBytes(10_000, seed: 1))
    #expect(try container.verify().findings == [])
  }

  @Test(arguments: 0..<6)
  func closingWhileOthersWriteKeepsWhatWasAcknowledged(round: Int) throws {
    let fixture = try Fixture(durability: .grouped)
    let container = fixture.container
    let acknowledged = Guarded<[String: [UInt8]?]>([:])
    let complaints = inThreads(4) { i in
      if i == 0 {
        while acknowledged.withLock({ $0.count }) < 3 + round * 4 { sched_yield() }
        try container.close()
        return nil
      }
      for number in 0..<10_000 {
        let path = "/file\(i)-\(number)"
        let bytes = testBytes(i * 9000, seed: UInt64(number))
        do {
          try container.write(bytes, to: path)
        } catch let error as ContainerError where error.code == .closed {
          return nil
        }
        acknowledged.withLock { $0[path] = bytes }
      }
      return "never closed"
    }
    #expect(complaints == [])
    let reopened = try fixture.reopened()
    let tree = try reopened.tree()
    let missing = acknowledged.withLock { $0.filter { tree[$0.key] != $0.value }.map(\.key) }
    #expect(missing == [])
    #expect(reopened.findings == [])
    #expect(try reopened.verify().findings == [])
  }

  @Test func failingWritersLeaveTheOthersAlone() throws {
    struct Interruption: Error {}
    let fixture = try Fixture(durability: .grouped)
    let container = fixture.container
    try container.write(testBytes(100, seed: 9), to: "/first")
    let complaints = inThreads(4) { i in
      for round in 0..<12 {
        if i < 2 {
          do {
            var count = 0
            try container.write(to: "/failing\(i)") {
              count += 1
              if count > 1 { throw Interruption() }
              return testBytes(1 << 20, seed: 3)
            }
            return "a write that had to fail did not"
          } catch is Interruption {}
        } else {
          try container.write(testBytes(30_000, seed: UInt64(round)), to: "/file\(i)-\(round)")
        }
      }
      return nil
    }
    #expect(complaints == [])
    #expect(try container.list("/").count == 25)
    #expect(try container.verify().findings == [])
  }
}

// MARK: - Several openings

struct OpeningTests {
  @Test func aReaderKeepsItsSnapshotWhileTheWriterGoesOn() throws {
    let directory = TemporaryDirectory()
    let place = directory.path + "/container"
    let writer = try Container.create(at: place, credential: testCredential(), options: testOptions())
    let old = testBytes(300_000, seed: 1)
    try writer.createDirectory("/Yak")
    try writer.write(old, to: "/Yak/removed")
    try writer.write(old.reversed(), to: "/replaced")
    let before = try writer.tree()
    let reader = try Container.open(
      at: place, credential: testCredential(), mode: .readOnly, options: testOptions())
    try writer.remove("/Yak")
    try writer.write([1], to: "/replaced")
    for i in 0..<20 { try writer.write(testBytes(50_000, seed: UInt64(i)), to: "/new\(i)") }
    for i in 0..<20 { try writer.remove("/new\(i)") }
    try writer.synchronize()
    #expect(try reader.tree() == before)
    #expect(try reader.verify().hasDamage == false)
    // Another one sees what is there by now.
    let second = try Container.open(
      at: place, credential: testCredential(), mode: .readOnly, options: testOptions())
    #expect(try second.tree() == ["/replaced": [1]])
    try writer.close()
    #expect(try reader.tree() == before)
    let next = try Container.open(at: place, credential: testCredential(), options: testOptions())
    try next.write([2], to: "/replaced")
    #expect(try reader.tree() == before)
    try reader.close()
    try second.close()
    #expect(try next.tree() == ["/replaced": [2]])
    try next.close()
    #expect(try Container.verify(at: place, credential: testCredential()).findings == [])
  }

  @Test func whatAReaderHeldIsFreedWhenItIsGone() throws {
    let directory = TemporaryDirectory()
    let place = directory.path + "/container"
    let writer = try Container.create(at: place, credential: testCredential(), options: testOptions())
    try writer.write(testBytes(2 << 20, seed: 1), to: "/Zebra")
    let full = allocatedByteCount(place + "/slab")
    let reader = try Container.open(
      at: place, credential: testCredential(), mode: .readOnly, options: testOptions())
    try writer.remove("/Zebra")
    #expect(try reader.contents(at: "/Zebra") == testBytes(2 << 20, seed: 1))
    #expect(allocatedByteCount(place + "/slab") >= full)
    try reader.close()
    try writer.createDirectory("/Yak")
    #expect(allocatedByteCount(place + "/slab") < full / 2)
  }

  private func allocatedByteCount(_ directory: String) -> Int {
    (try? FileManager.default.contentsOfDirectory(atPath: directory))?.reduce(0) { sum, name in
      var status = stat()
      return lstat(directory + "/" + name, &status) == 0 ? sum + Int(status.st_blocks) * 512 : sum
    } ?? 0
  }

  @Test func aSecondWriterIsToldWhoHasIt() throws {
    let directory = TemporaryDirectory()
    let place = directory.path + "/container"
    let first = try Container.create(at: place, credential: testCredential(), options: testOptions())
    do {
      _ = try Container.open(at: place, credential: testCredential(), options: testOptions())
      Issue.record("two writers")
    } catch let error as ContainerError {
      #expect(error.code == .locked && error.path == place)
      #expect(try #require(error.detail).contains("process \(getpid())"))
      #expect(error.what.contains("this process") && error.description.contains(error.what))
      #expect(!error.remedy.contains("end that process"))
    }
    try first.write([1], to: "/Zebra")
    try first.close()
    let second = try Container.open(at: place, credential: testCredential(), options: testOptions())
    #expect(try second.tree() == ["/Zebra": [1]])
  }
}
