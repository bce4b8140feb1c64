import ContainerStore
import SodiumPrimitives
import TestSupport
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

extension ContainerChanges {
  /// What has been told so far: reads up to a change that this makes. `marker` is at or below the observed path.
  fileprivate func soFar(_ container: Container, marker: String) async throws -> [ContainerChange] {
    try container.write([], to: marker)
    var changes: [ContainerChange] = []
    for await change in self {
      if change == .created(path: marker) {
        try container.remove(marker)
        break
      }
      changes.append(change)
    }
    for await change in self where change == .removed(path: marker) { break }
    return changes
  }
}

/// A container whose changes below a folder are read after each step.
private final class Watch {
  let fixture: Fixture
  let changes: ContainerChanges
  let path: String
  var container: Container { fixture.container }

  init(_ path: String = "/", _ fixture: Fixture? = nil, prepare: (Container) throws -> Void = { _ in }) throws
  {
    self.fixture = try fixture ?? Fixture()
    self.path = path
    try prepare(self.fixture.container)
    changes = try self.fixture.container.changes(at: path)
  }

  func told() async throws -> [ContainerChange] {
    try await changes.soFar(container, marker: (path == "/" ? "" : path) + "/marker")
  }
}

struct ObservingTests {
  // MARK: Kinds

  @Test func tellsWhatIsCreatedChangedMovedAndRemoved() async throws {
    let watch = try Watch()
    let container = watch.container
    try container.createDirectory("/a/b", withIntermediateDirectories: true)
    try container.write([1], to: "/a/b/file")
    #expect(
      try await watch.told() == [.created(path: "/a"), .created(path: "/a/b"), .created(path: "/a/b/file")])
    try container.write([2], to: "/a/b/file")
    #expect(try await watch.told() == [.changed(path: "/a/b/file")])
    try container.setAttributes(at: "/a/b/file", permissions: 0o644)
    try container.setAttributes(at: "/a/b/file", modified: 5)
    try container.setAttributes(at: "/a", created: 5)
    try container.setAttributes(at: "/", permissions: 0o750)
    #expect(
      try await watch.told() == [
        .attributesChanged(path: "/a/b/file"), .attributesChanged(path: "/a/b/file"),
        .attributesChanged(path: "/a"), .attributesChanged(path: "/"),
      ])
    try container.move("/a/b/file", to: "/moved")
    #expect(try await watch.told() == [.moved(from: "/a/b/file", to: "/moved")])
    try container.remove("/a")
    try container.remove("/moved")
    #expect(try await watch.told() == [.removed(path: "/a"), .removed(path: "/moved")])
  }

  @Test func tellsNothingWhenNothingIsOtherThanBefore() async throws {
    let watch = try Watch { try $0.write([1], to: "/file", permissions: 0o600) }
    let container = watch.container
    try container.setAttributes(at: "/file", permissions: 0o600)
    try container.createDirectory("/", withIntermediateDirectories: true)
    expectError(.noSuchFile) { try container.remove("/none") }
    expectError(.cancelled) {
      try container.write(to: "/file") { throw ContainerError(.cancelled) }
    }
    #expect(try await watch.told() == [])
  }

  @Test func movingAFileOntoAnotherRemovesThatFirst() async throws {
    let watch = try Watch { container in
      try container.write([1], to: "/a")
      try container.write([2], to: "/b")
    }
    try watch.container.move("/a", to: "/b", replacing: true)
    #expect(try await watch.told() == [.removed(path: "/b"), .moved(from: "/a", to: "/b")])
  }

  @Test func tellsEverythingThatAppearsWithAFolderParentsFirst() async throws {
    let watch = try Watch("/in") { container in
      try container.createDirectory("/in")
      try container.createDirectory("/out/deep", withIntermediateDirectories: true)
      try container.write([1], to: "/out/deep/file")
    }
    let all: [ContainerChange] = [
      .created(path: "/in/x"), .created(path: "/in/x/deep"), .created(path: "/in/x/deep/file"),
    ]
    try watch.container.copy("/out", to: "/in/x")
    #expect(try await watch.told() == all)
    try watch.container.remove("/in/x")
    #expect(try await watch.told() == [.removed(path: "/in/x")])
    try watch.container.move("/out", to: "/in/x")
    #expect(try await watch.told() == all)
    try watch.container.write([2], to: "/in/x/deep/file")
    #expect(try await watch.told() == [.changed(path: "/in/x/deep/file")])
    try watch.container.move("/in/x", to: "/out")
    #expect(try await watch.told() == [.removed(path: "/in/x")])
    // Not observed any more.
    try watch.container.write([3], to: "/out/deep/file")
    try watch.container.write([3], to: "/out/deep/other")
    #expect(try await watch.told() == [])
    // And again.
    try watch.container.move("/out/deep", to: "/in/deep")
    #expect(
      try await watch.told() == [
        .created(path: "/in/deep"), .created(path: "/in/deep/file"), .created(path: "/in/deep/other"),
      ])
  }

  @Test func knowsThePathsAfterFoldersWereRenamed() async throws {
    let watch = try Watch { container in
      try container.createDirectory("/a/b/c", withIntermediateDirectories: true)
      try container.write([1], to: "/a/b/c/file")
    }
    let container = watch.container
    try container.move("/a/b", to: "/b")
    try container.move("/a", to: "/b/c/a")
    try container.move("/b", to: "/z")
    try container.write([2], to: "/z/c/file")
    try container.createDirectory("/z/c/a/new")
    try container.setAttributes(at: "/z/c/a/new", permissions: 0o711)
    #expect(
      try await watch.told() == [
        .moved(from: "/a/b", to: "/b"), .moved(from: "/a", to: "/b/c/a"), .moved(from: "/b", to: "/z"),
        .changed(path: "/z/c/file"), .created(path: "/z/c/a/new"), .attributesChanged(path: "/z/c/a/new"),
      ])
  }

  @Test func tellsLinksReplacingAndExtendedAttributes() async throws {
    let watch = try Watch { container in
      try container.write([1], to: "/file")
      try container.createDirectory("/folder/inner", withIntermediateDirectories: true)
      try container.createDirectory("/new")
    }
    let container = watch.container
    try container.createSymbolicLink("/link", to: "file")
    try container.createLink("/other", to: "/file")
    try container.write([2], to: "/link")
    #expect(
      try await watch.told() == [
        .created(path: "/link"), .created(path: "/other"), .attributesChanged(path: "/file"),
        .changed(path: "/file"), .attributesChanged(path: "/other"),
      ])
    try container.setExtendedAttributes(["name": [1]], at: "/folder")
    try container.setExtendedAttributes(["name": nil], at: "/folder")
    #expect(
      try await watch.told() == [.attributesChanged(path: "/folder"), .attributesChanged(path: "/folder")])
    try container.replaceItem(at: "/folder", with: "/new", backup: "backup", keepsMetadata: false)
    #expect(
      try await watch.told() == [
        .moved(from: "/folder", to: "/backup"), .moved(from: "/new", to: "/folder"),
      ])
    try container.replaceItem(at: "/folder", with: "/backup", keepsMetadata: false)
    #expect(
      try await watch.told() == [.removed(path: "/folder"), .moved(from: "/backup", to: "/folder")])
  }

  @Test func followsLinksInTheObservedPathWhenItBegins() async throws {
    let fixture = try Fixture()
    let container = fixture.container
    try container.createDirectory("/real")
    try container.createSymbolicLink("/link", to: "/real")
    let changes = try container.changes(at: "/link/file")
    try container.write([1], to: "/link/file")
    try container.remove("/link")
    try container.write([2], to: "/real/file")
    try container.close()
    let told = await changes.reduce(into: [ContainerChange]()) { $0.append($1) }
    #expect(told == [.created(path: "/real/file"), .changed(path: "/real/file")])
  }

  // MARK: Who changes

  @Test func tellsDeliveriesAndImports() async throws {
    let watch = try Watch("/Inbox")
    let sender = try Fixture(key: 9)
    try sender.container.createDirectory("/Yaks")
    try sender.container.write([1], to: "/Yaks/Zebra")
    let receipt = try sender.container.send(["/Yaks"], to: watch.container, sender: "app")
    let native = TemporaryDirectory()
    mkdir(native.path + "/folder", 0o700)
    writeNative(native.path + "/folder/Emu", [1, 2, 3])
    try watch.container.importItem(at: native.path + "/folder", to: "/Inbox/folder")
    try watch.container.importItem(at: native.path + "/folder", to: "/Inbox/folder")
    let below = receipt.directory
    #expect(
      try await watch.told() == [
        .created(path: "/Inbox"), .created(path: "/Inbox/app"), .created(path: below),
        .created(path: below + "/Yaks"), .created(path: below + "/Yaks/Zebra"),
        .created(path: "/Inbox/folder"), .created(path: "/Inbox/folder/Emu"),
        .changed(path: "/Inbox/folder/Emu"),
      ])
  }

  @Test func tellsWhatHandlesWroteOnceItIsStored() async throws {
    let watch = try Watch()
    let file = try watch.container.openFile("/file", .readWrite, create: true)
    try testBytes(100_000, seed: 1).withUnsafeBytes { try file.write($0, at: 0) }
    try file.synchronize()
    #expect(try await watch.told() == [.created(path: "/file"), .changed(path: "/file")])
    // In the middle, of the same length.
    try [1, 2, 3].withUnsafeBytes { try file.write($0, at: 50_000) }
    try file.close()
    #expect(try await watch.told() == [.changed(path: "/file")])
    let another = try watch.container.openFile("/file", .write)
    try another.truncate(to: 70_000)
    try another.close()
    #expect(try await watch.told() == [.changed(path: "/file")])
    // What is written to a removed file is nobody's business.
    let removed = try watch.container.openFile("/file", .write)
    try watch.container.remove("/file")
    try [1].withUnsafeBytes { try removed.write($0, at: 0) }
    try removed.close()
    #expect(try await watch.told() == [.removed(path: "/file")])
  }

  @Test func compactionTellsNothing() async throws {
    let watch = try Watch { container in
      for i in 0..<64 { try container.write(testBytes(40_000, seed: UInt64(i)), to: "/file\(i)") }
      for i in 0..<64 where i % 4 != 0 { try container.remove("/file\(i)") }
    }
    #expect(try watch.container.compact().copiedByteCount > 0)
    #expect(try await watch.told() == [])
  }

  @Test func readersOfAnotherOpeningAreNotConcerned() async throws {
    let fixture = try Fixture()
    let reader = try Container.open(
      io: fixture.io, credential: testCredential(), mode: .readOnly, options: testOptions())
    let changes = try reader.changes(at: "/")
    try fixture.container.write([1], to: "/file")
    try reader.close()
    for await change in changes { Issue.record("\(change)") }
  }

  // MARK: The observed path

  @Test func observesAPathThatComesAndGoes() async throws {
    let fixture = try Fixture()
    let container = fixture.container
    let changes = try container.changes(at: "/a/b")
    try container.createDirectory("/a")
    try container.write([1], to: "/a/c")
    try container.createDirectory("/a/b")
    try container.write([1], to: "/a/b/file")
    try container.move("/a", to: "/x")
    try container.write([2], to: "/x/b/file")
    try container.move("/x/b", to: "/x/d")
    try container.move("/x", to: "/a")
    try container.write([3], to: "/a/b")
    try container.write([4], to: "/a/b")
    try container.setAttributes(at: "/a/b", permissions: 0o640)
    try container.remove("/a")
    try container.close()
    var told: [ContainerChange] = []
    for await change in changes { told.append(change) }
    #expect(
      told == [
        .created(path: "/a/b"), .created(path: "/a/b/file"), .removed(path: "/a/b"), .created(path: "/a/b"),
        .changed(path: "/a/b"), .attributesChanged(path: "/a/b"), .removed(path: "/a/b"),
      ])
  }

  @Test func refusesWhatCannotBeObserved() async throws {
    let fixture = try Fixture()
    expectError(.invalidName) { try fixture.container.changes(at: "/\0") }
    try fixture.container.close()
    expectError(.closed) { try fixture.container.changes(at: "/") }
  }

  // MARK: Observers

  @Test func eachObserverIsToldOfItsOwnPath() async throws {
    let fixture = try Fixture()
    let container = fixture.container
    try container.createDirectory("/a/b", withIntermediateDirectories: true)
    let all = try container.changes(at: "/")
    let some = try container.changes(at: "/a/b")
    let again = try container.changes(at: "/a/b/")
    try container.write([1], to: "/a/file")
    try container.move("/a/file", to: "/a/b/file")
    try container.move("/a/b/file", to: "/file")
    try container.close()
    func told(_ changes: ContainerChanges) async -> [ContainerChange] {
      await changes.reduce(into: []) { $0.append($1) }
    }
    #expect(
      await told(all) == [
        .created(path: "/a/file"), .moved(from: "/a/file", to: "/a/b/file"),
        .moved(from: "/a/b/file", to: "/file"),
      ])
    #expect(await told(some) == [.created(path: "/a/b/file"), .removed(path: "/a/b/file")])
    #expect(await told(again) == [.created(path: "/a/b/file"), .removed(path: "/a/b/file")])
  }

  @Test func aSlowReaderIsToldToLookAnew() async throws {
    let fixture = try Fixture()
    let container = fixture.container
    let changes = try container.changes(at: "/", bufferingAtMost: 3)
    for i in 0..<3 { try container.write([1], to: "/file\(i)") }
    var reader = changes.makeAsyncIterator()
    #expect(await reader.next() == .created(path: "/file0"))
    try container.write([1], to: "/file3")
    try container.write([1], to: "/file4")
    try container.write([1], to: "/file5")
    #expect(await reader.next() == .overflowed)
    // From here on everything is told again.
    try container.write([1], to: "/file6")
    try container.move("/file5", to: "/file7")
    #expect(await reader.next() == .created(path: "/file6"))
    #expect(await reader.next() == .moved(from: "/file5", to: "/file7"))
    // One commit may be too much, too.
    try container.createDirectory("/1/2/3/4", withIntermediateDirectories: true)
    #expect(await reader.next() == .overflowed)
    try container.close()
    #expect(await reader.next() == nil)
    #expect(await reader.next() == nil)
  }

  @Test func endsForATaskThatIsCancelled() async throws {
    let fixture = try Fixture()
    let changes = try fixture.container.changes(at: "/")
    let task = Task {
      var told: [ContainerChange] = []
      for await change in changes { told.append(change) }
      return told
    }
    try fixture.container.write([1], to: "/file")
    task.cancel()
    #expect(await [[], [.created(path: "/file")]].contains(task.value))
    // It stays ended.
    try fixture.container.write([1], to: "/other")
    for await change in changes { Issue.record("\(change)") }
  }

  @Test func wakesAReaderThatWaitsWhenTheContainerIsClosed() async throws {
    let fixture = try Fixture()
    let changes = try fixture.container.changes(at: "/")
    async let told: [ContainerChange] = changes.reduce(into: []) { $0.append($1) }
    let file = try fixture.container.openFile("/file", .write, create: true)
    try [1].withUnsafeBytes { try file.write($0, at: 0) }
    // Which stores what the handle has.
    try fixture.container.close()
    #expect(await told == [.created(path: "/file"), .changed(path: "/file")])
  }

  @Test func aContainerThatIsLetGoEndsThemToo() async throws {
    var fixture: Fixture? = try Fixture()
    let changes = try fixture!.container.changes(at: "/")
    fixture = nil
    for await change in changes { Issue.record("\(change)") }
  }

  /// What the disk could not take is taken back: what was told of it is not true any more.
  @Test func aFailedWriteMakesObserversLookAnew() async throws {
    let fixture = try Fixture()
    let changes = try fixture.container.changes(at: "/")
    fixture.io.setFault { operation, _ in
      if case .synchronize = operation { EIO } else { nil }
    }
    #expect(throws: ContainerError.self) { try fixture.container.write([1], to: "/file") }
    var reader = changes.makeAsyncIterator()
    var last = await reader.next()
    if last == .created(path: "/file") { last = await reader.next() }
    #expect(last == .overflowed)
  }

  // MARK: All together

  /// A mirror that only the changes keep up has in the end what is there.
  @Test(arguments: 0..<24 as Range<UInt64>)
  func aMirrorIsWhatTheContainerIs(seed: UInt64) async throws {
    var random = SplitMix64(seed: seed)
    let fixture = try Fixture(durability: .none)
    let container = fixture.container
    let names = ["a", "b", "c"]
    func path() -> String {
      "/"
        + (0...Int.random(in: 0..<4, using: &random)).map { _ in names.randomElement(using: &random)! }
        .joined(separator: "/")
    }
    let observed = seed % 3 == 0 ? "/" : seed % 3 == 1 ? "/a" : "/b/a"
    func listed() throws -> Set<String> {
      // What a link on the way leads to is elsewhere.
      guard (try? container.resolvedPath(observed, followingLinks: false)) == observed,
        let found = try container.attributes(at: observed)
      else { return [] }
      guard found.kind == .directory else { return [observed] }
      let below = try container.list(observed, recursively: true).map {
        (observed == "/" ? "" : observed) + "/" + $0.path
      }
      return Set(below + [observed])
    }
    func step() {
      // Many of them cannot be done.
      switch Int.random(in: 0..<14, using: &random) {
      case 0, 1: try? container.createDirectory(path(), withIntermediateDirectories: true)
      case 2, 3: try? container.write([1], to: path())
      case 4, 5, 6: try? container.move(path(), to: path(), replacing: true)
      case 7: try? container.copy(path(), to: path())
      case 8: try? container.remove(path())
      case 9: try? container.createLink(path(), to: path())
      case 10: try? container.createSymbolicLink(path(), to: path())
      case 11: try? container.replaceItem(at: path(), with: path())
      case 12:
        try? container.replaceItem(at: path(), with: path(), backup: names.randomElement(using: &random)!)
      default:
        try? container.setAttributes(at: path(), permissions: UInt16.random(in: 0...0o777, using: &random))
      }
    }
    for _ in 0..<100 { step() }
    // A link there would be followed when the observing begins.
    if (try? container.resolvedPath(observed)) != observed {
      try container.remove("/" + observed.split(separator: "/")[0])
    }
    var mirror = TreeMirror(of: observed, paths: try listed())
    let changes = try container.changes(at: observed, bufferingAtMost: 1 << 20)
    for _ in 0..<400 { step() }
    let expected = try listed()
    try container.close()
    for await change in changes { mirror.apply(change) }
    #expect(mirror.paths == expected)
  }
}
