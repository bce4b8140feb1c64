import ContainerStore
import Foundation
import Locks
import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

/// Every native path below a directory, with contents; nil for directories.
private func nativeTree(_ directory: String) throws -> [String: [UInt8]?] {
  var tree: [String: [UInt8]?] = [:]
  for path in try FileManager.default.subpathsOfDirectory(atPath: directory) {
    var status = stat()
    try #require(lstat(directory + "/" + path, &status) == 0)
    let isDirectory = status.st_mode & S_IFMT == S_IFDIR
    tree.updateValue(isDirectory ? nil : readNative(directory + "/" + path), forKey: path)
  }
  return tree
}

private func nativeStatus(_ path: String) throws -> (permissions: UInt16, modified: Int64) {
  var status = stat()
  try #require(lstat(path, &status) == 0)
  #if canImport(Darwin)
    let modified = status.st_mtimespec
  #else
    let modified = status.st_mtim
  #endif
  return (
    UInt16(status.st_mode & 0o7777), Int64(modified.tv_sec) * 1_000_000_000 + Int64(modified.tv_nsec)
  )
}

private func setNative(_ path: String, permissions: UInt16, modified: Int64) {
  chmod(path, mode_t(permissions))
  let time = timespec(tv_sec: Int(modified / 1_000_000_000), tv_nsec: Int(modified % 1_000_000_000))
  utimensat(AT_FDCWD, path, [time, time], 0)
}

/// A container on a disk in memory, and a native directory.
private struct NativeFixture {
  let fixture: Fixture
  let directory = TemporaryDirectory()
  var container: Container { fixture.container }
  var io: RecordingIO { fixture.io }

  init() throws { fixture = try Fixture() }

  func native(_ name: String) -> String { directory.path + "/" + name }

  /// A folder with files of many sizes, an empty file and an empty directory.
  func makeFolder(_ name: String) -> [String: [UInt8]?] {
    mkdir(native(name), 0o755)
    mkdir(native(name + "/empty"), 0o755)
    mkdir(native(name + "/deep"), 0o755)
    mkdir(native(name + "/deep/deeper"), 0o755)
    var tree: [String: [UInt8]?] = ["empty": nil, "deep": nil, "deep/deeper": nil]
    for (i, size) in [0, 1, 16384, 16385, 1 << 20 + 1].enumerated() {
      let path = ["nothing", "deep/one", "deep/segment", "deep/deeper/segments", "units"][i]
      tree[path] = testBytes(size, seed: UInt64(i))
      writeNative(native(name + "/" + path), testBytes(size, seed: UInt64(i)))
    }
    return tree
  }
}

struct ImportTests {
  @Test(arguments: borderSizes)
  func aFileGoesInAndOutWithItsModeAndDate(size: Int) throws {
    let fixture = try NativeFixture()
    let bytes = testBytes(size, seed: UInt64(size))
    let source = fixture.native("source")
    let back = fixture.native("back")
    writeNative(source, bytes)
    setNative(source, permissions: 0o640, modified: 1_234_567_890_123_456_789)
    var reports: [BulkProgress] = []
    let receipt = try fixture.container.importItem(
      at: source, to: "/new/Zebra", control: BulkControl(progress: { reports.append($0) }))
    #expect(receipt.fileCount == 1 && receipt.byteCount == UInt64(size))
    #expect(try fixture.container.contents(at: "/new/Zebra") == bytes)
    let attributes = try #require(try fixture.container.attributes(at: "/new/Zebra"))
    #expect(attributes.permissions == 0o640 && attributes.modified == 1_234_567_890_123_456_789)
    #expect(attributes.created > attributes.modified)
    expectProgress(reports, fileCount: 1, byteCount: size)

    reports = []
    let exported = try fixture.container.exportItem(
      "/new/Zebra", to: back, control: BulkControl(progress: { reports.append($0) }))
    #expect(exported.fileCount == 1 && exported.byteCount == UInt64(size))
    #expect(readNative(back) == bytes)
    #expect(try nativeStatus(back) == (0o640, 1_234_567_890_123_456_789))
    expectProgress(reports, fileCount: 1, byteCount: size)
    #expect(try nativeTree(fixture.directory.path).count == 2)
    #expect(try fixture.container.verify().findings == [])
  }

  private func expectProgress(_ reports: [BulkProgress], fileCount: Int, byteCount: Int) {
    #expect(reports.last?.isFinished == true)
    #expect(reports.last?.bytesDone == UInt64(byteCount) && reports.last?.filesDone == fileCount)
    for report in reports {
      #expect(report.byteCount == UInt64(byteCount) && report.fileCount == fileCount)
    }
    for (earlier, later) in zip(reports, reports.dropFirst()) {
      #expect(earlier.bytesDone <= later.bytesDone && earlier.filesDone <= later.filesDone)
      #expect(earlier.seconds <= later.seconds)
    }
  }

  @Test func aFolderGoesInAndOut() throws {
    let fixture = try NativeFixture()
    let tree = fixture.makeFolder("folder")
    setNative(fixture.native("folder/deep/one"), permissions: 0o444, modified: 5_000_000_001)
    let receipt = try fixture.container.importItem(at: fixture.native("folder"), to: "/Zebra")
    #expect(receipt.fileCount == 5)
    let stored = try fixture.container.tree()
    #expect(stored.removingPrefix("/Zebra/") == tree)
    var reports: [BulkProgress] = []
    try fixture.container.exportItem(
      "/Zebra", to: fixture.native("back"), control: BulkControl(progress: { reports.append($0) }))
    #expect(try nativeTree(fixture.native("back")) == tree)
    #expect(try nativeStatus(fixture.native("back/deep/one")) == (0o444, 5_000_000_001))
    expectProgress(reports, fileCount: 5, byteCount: tree.values.reduce(0) { $0 + ($1?.count ?? 0) })
    let reopened = try fixture.fixture.reopened()
    #expect(try reopened.tree() == stored)
    #expect(try reopened.verify().findings == [])
  }

  @Test func aFolderKeepsItsModes() throws {
    let fixture = try NativeFixture()
    _ = fixture.makeFolder("folder")
    chmod(fixture.native("folder"), 0o750)
    chmod(fixture.native("folder/deep"), 0o711)
    try fixture.container.importItem(at: fixture.native("folder"), to: "/Zebra")
    #expect(try fixture.container.attributes(at: "/Zebra")?.permissions == 0o750)
    #expect(try fixture.container.attributes(at: "/Zebra/deep")?.permissions == 0o711)
    try fixture.container.copy("/Zebra", to: "/Yak")
    #expect(try fixture.container.attributes(at: "/Yak/deep")?.permissions == 0o711)
  }

  /// Whoever sent it decides nothing on what others may do here.
  @Test func nothingComesOutWritableForEverybody() throws {
    let fixture = try NativeFixture()
    try fixture.container.createDirectory("/Zebra", permissions: 0o7777)
    for (i, permissions) in [0o7777, 0o666, 0o4755, 0o460].enumerated() {
      try fixture.container.write([1], to: "/Zebra/f\(i)", permissions: UInt16(permissions))
    }
    try fixture.container.exportItem("/Zebra", to: fixture.native("back"))
    let mask = umask(0o22)
    umask(mask)
    for (name, permissions) in [("", 0o775), ("/f0", 0o775), ("/f1", 0o664), ("/f2", 0o755), ("/f3", 0o460)] {
      let found = try nativeStatus(fixture.native("back" + name)).permissions
      #expect(found == UInt16(permissions) & ~UInt16(mask), "\(name)")
    }
  }

  /// Of a folder everything comes out but what is damaged, when the caller takes the errors.
  @Test func whatIsDamagedIsLeftOut() throws {
    let fixture = try NativeFixture()
    try fixture.container.createDirectory("/d")
    for i in 0..<20 { try fixture.container.write(testBytes(40_000, seed: UInt64(i)), to: "/d/f\(i)") }
    try fixture.container.createSymbolicLink("/d/link", to: "f3")
    let tree = try fixture.container.tree()
    try fixture.container.close()
    // In the slab's last segment, and in one in its middle.
    let io = fixture.io.damaged().damaged(fromEnd: 400_000)
    let container = try Container.open(io: io, credential: testCredential(), options: testOptions())
    var skipped: [ContainerError] = []
    let receipt = try container.exportItem(
      "/d", to: fixture.native("back"), control: BulkControl(skipping: { skipped.append($0) }))
    let missing = Set(skipped.compactMap(\.path))
    #expect(missing.count == 2 && skipped.allSatisfy { $0.code == .fileDamaged })
    #expect(receipt.fileCount == 18 && receipt.byteCount == 18 * 40_000)
    var found = try nativeTree(fixture.native("back"))
    #expect(found.removeValue(forKey: "link") != nil)
    let whole = tree.filter { !missing.contains($0.key) && $0.key != "/d/link" && $0.key != "/d" }
    #expect(found == whole.removingPrefix("/d/"))
    // Without such a caller nothing comes out.
    expectError(.fileDamaged) { try container.exportItem("/d", to: fixture.native("nothing")) }
    #expect(readNative(fixture.native("nothing")) == nil)
    // A file by its own name is not left out, it fails.
    expectError(.fileDamaged, path: missing.min()) {
      try container.exportItem(
        try #require(missing.min()), to: fixture.native("one"),
        control: BulkControl(skipping: { _ in Issue.record("skipped") }))
    }
    #expect(try nativeTree(fixture.directory.path).keys.allSatisfy { !$0.contains(".part") })
  }

  @Test func foldersAreMergedAndFilesReplaced() throws {
    let fixture = try NativeFixture()
    let tree = fixture.makeFolder("folder")
    try fixture.container.createDirectory("/Zebra/deep", withIntermediateDirectories: true)
    try fixture.container.write([1], to: "/Zebra/deep/one")
    try fixture.container.write([2], to: "/Zebra/deep/kept")
    try fixture.container.importItem(at: fixture.native("folder"), to: "/Zebra/")
    var expected = tree
    expected["deep/kept"] = [2]
    #expect(try fixture.container.tree().removingPrefix("/Zebra/") == expected)
    // Into the root as well.
    try fixture.container.importItem(at: fixture.native("folder/deep"), to: "/")
    #expect(try fixture.container.contents(at: "/one") == testBytes(1, seed: 1))

    mkdir(fixture.native("back"), 0o755)
    mkdir(fixture.native("back/deep"), 0o755)
    writeNative(fixture.native("back/deep/one"), [9, 9, 9])
    writeNative(fixture.native("back/deep/other"), [8])
    try fixture.container.exportItem("/Zebra", to: fixture.native("back"))
    expected["deep/other"] = [8]
    #expect(try nativeTree(fixture.native("back")) == expected)
    #expect(try fixture.container.verify().findings == [])
  }

  // MARK: Refusals

  @Test func refusesWhatCannotBeStored() throws {
    let fixture = try NativeFixture()
    let tree = fixture.makeFolder("folder")
    let folder = fixture.native("folder")
    // Nothing but UTF-8 comes back out as it went in.
    symlink([CChar]([0x61, -1, 0]), folder + "/deep/Zebra")
    expectError(.cannotStore, path: folder + "/deep/Zebra") {
      try fixture.container.importItem(at: folder, to: "/Yak")
    }
    unlink(folder + "/deep/Zebra")
    mkfifo(folder + "/deep/pipe", 0o600)
    expectError(.cannotStore, path: folder + "/deep/pipe") {
      try fixture.container.importItem(at: folder, to: "/Yak")
    }
    expectError(.cannotStore, path: folder + "/deep/pipe") {
      try fixture.container.importItem(at: folder + "/deep/pipe", to: "/Yak")
    }
    unlink(folder + "/deep/pipe")
    let name: [CChar] = Array(folder.utf8CString.dropLast()) + [0x2f, 0x61, -1, 0]
    close(open(name, O_CREAT | O_WRONLY, 0o600))
    expectError(.cannotStore, path: folder + "/a\u{fffd}") {
      try fixture.container.importItem(at: folder, to: "/Yak")
    }
    unlink(name)
    expectError(.noSuchFile, path: folder + "/none") {
      try fixture.container.importItem(at: folder + "/none", to: "/Yak")
    }
    #expect(try fixture.container.tree().isEmpty)
    #expect(fixture.io.slabSizes.isEmpty)
    // A link at the very top is followed: the caller named it.
    symlink(folder, fixture.native("link"))
    try fixture.container.importItem(at: fixture.native("link"), to: "/Yak")
    #expect(try fixture.container.tree().removingPrefix("/Yak/") == tree)
  }

  @Test func linksBelowTheTopStayLinksOnBothWays() throws {
    let fixture = try NativeFixture()
    _ = fixture.makeFolder("folder")
    symlink("one", fixture.native("folder/deep/to a file"))
    symlink("/nowhere", fixture.native("folder/to nothing"))
    let links = ["deep/to a file": "one", "to nothing": "/nowhere"]
    let before = try nativeTree(fixture.native("folder"))
    // Twice: the second time they are in the way.
    for _ in 0..<2 {
      try fixture.container.importItem(at: fixture.native("folder"), to: "/Yak")
      for (link, target) in links {
        #expect(try fixture.container.destinationOfSymbolicLink("/Yak/" + link) == target)
      }
      try fixture.container.exportItem("/Yak", to: fixture.native("copy"))
      for (link, target) in links {
        var bytes = [CChar](repeating: 0, count: 100)
        #expect(readlink(fixture.native("copy/" + link), &bytes, 99) == target.utf8.count)
        #expect(bytes.prefix(target.utf8.count).elementsEqual(target.utf8.map { CChar(bitPattern: $0) }))
      }
      #expect(try nativeTree(fixture.native("copy")) == before)
    }
    expectError(.fileExists, path: fixture.native("copy/to nothing")) {
      try fixture.container.exportItem(
        "/Yak/deep/one", to: fixture.native("copy/to nothing"), replacing: false)
    }
    // At the very top it is followed.
    try fixture.container.exportItem("/Yak/deep/to a file", to: fixture.native("file"))
    #expect(readNative(fixture.native("file")) == readNative(fixture.native("folder/deep/one")))
    #expect(try fixture.container.verify().findings.isEmpty)
  }

  @Test func neverPutsAFileInThePlaceOfADirectoryNorTheOtherWayRound() throws {
    let fixture = try NativeFixture()
    _ = fixture.makeFolder("folder")
    let folder = fixture.native("folder")
    try fixture.container.write([1], to: "/Zebra")
    try fixture.container.createDirectory("/Yaks/deep/one", withIntermediateDirectories: true)
    try fixture.container.createDirectory("/Emus")
    try fixture.container.write([2], to: "/Emus/deep")
    let before = try fixture.container.tree()
    let sizes = fixture.io.slabSizes
    expectError(.fileExists, path: "/Zebra") { try fixture.container.importItem(at: folder, to: "/Zebra") }
    expectError(.isADirectory, path: "/Yaks") {
      try fixture.container.importItem(at: folder + "/nothing", to: "/Yaks")
    }
    expectError(.isADirectory, path: "/Yaks/deep/one") {
      try fixture.container.importItem(at: folder, to: "/Yaks")
    }
    expectError(.fileExists, path: "/Emus/deep") { try fixture.container.importItem(at: folder, to: "/Emus") }
    expectError(.isADirectory, path: "/new/") {
      try fixture.container.importItem(at: folder + "/nothing", to: "/new/")
    }
    expectError(.isADirectory, path: "/") {
      try fixture.container.importItem(at: folder + "/nothing", to: "/")
    }
    expectError(.notADirectory, path: "/Zebra/new") {
      try fixture.container.importItem(at: folder + "/nothing", to: "/Zebra/new")
    }
    #expect(try fixture.container.tree() == before)
    #expect(fixture.io.slabSizes == sizes)
  }

  enum Change: CaseIterable {
    case grow, shrink, rewrite, replace, remove

    func apply(to path: String) {
      switch self {
      case .grow:
        let file = fopen(path, "a")!
        fputs("more", file)
        fclose(file)
      case .shrink: truncate(path, 100)
      case .rewrite:
        let file = fopen(path, "r+")!
        fputs("other", file)
        fclose(file)
      case .replace:
        writeNative(path + ".new", testBytes(6 << 20, seed: 2))
        rename(path + ".new", path)
      case .remove: unlink(path)
      }
    }
  }

  @Test(arguments: Change.allCases)
  func storesOneStateOfASourceThatChangesWhileItIsRead(change: Change) throws {
    let fixture = try NativeFixture()
    let source = fixture.native("source")
    writeNative(source, testBytes(6 << 20, seed: 1))
    // Before the first unit is stored; with two threads, four others are read after it.
    let isDone = Guarded(false)
    fixture.io.setFault { operation, _ in
      if case .write(let path, _, _) = operation, path.hasPrefix("slab/"), !isDone.withLock({ $0 }) {
        isDone.withLock { $0 = true }
        change.apply(to: source)
      }
      return nil
    }
    if change == .remove {
      expectError(.noSuchFile, path: source) { try fixture.container.importItem(at: source, to: "/Yak") }
      #expect(try fixture.container.tree().isEmpty)
      #expect(fixture.io.slabSizes.isEmpty)
    } else {
      let receipt = try fixture.container.importItem(at: source, to: "/Yak")
      let contents = try #require(readNative(source))
      #expect(try fixture.container.contents(at: "/Yak") == contents && receipt.byteCount == contents.count)
    }
    #expect(try fixture.container.verify().findings == [])
  }

  /// Of a file that never rests, no state can be had.
  @Test func noticesThatTheSourceKeepsChanging() throws {
    let fixture = try NativeFixture()
    let source = fixture.native("source")
    writeNative(source, testBytes(6 << 20, seed: 1))
    let count = Guarded(0)
    fixture.io.setFault { operation, _ in
      guard case .write(let path, _, _) = operation, path.hasPrefix("slab/") else { return nil }
      let file = fopen(source, "r+")!
      let number = count.withLock { count in
        count += 1
        return count
      }
      fputs("other \(number)", file)
      fclose(file)
      return nil
    }
    expectError(.sourceChanged, path: source) { try fixture.container.importItem(at: source, to: "/Yak") }
    #expect(try fixture.container.tree().isEmpty)
    #expect(fixture.io.slabSizes.isEmpty)
    #expect(try fixture.container.verify().findings == [])
  }

  @Test func anEmptySourceThatHasGrownIsReadToItsEnd() throws {
    let fixture = try NativeFixture()
    let source = fixture.native("source")
    writeNative(source, [])
    try fixture.container.importItem(
      at: source, to: "/Yak", control: BulkControl(progress: { _ in Change.grow.apply(to: source) }))
    let contents = try fixture.container.contents(at: "/Yak")
    #expect(!contents.isEmpty && readNative(source)?.starts(with: contents) == true)
  }

  // MARK: Ends before the end

  @Test(arguments: [0, 1, 3])
  func aCancelledImportLeavesNothing(afterUnits units: Int) throws {
    let fixture = try NativeFixture()
    try fixture.container.write([1], to: "/Zebra")
    let sizes = fixture.io.slabSizes
    let info = try fixture.container.info()
    writeNative(fixture.native("source"), testBytes(6 << 20, seed: 1))
    let cancellation = Cancellation()
    let count = Guarded(0)
    if units == 0 { cancellation.cancel() }
    fixture.io.setFault { operation, _ in
      if case .write(let path, _, _) = operation, path.hasPrefix("slab/") {
        if count.withLock({ count in
          count += 1
          return count == units
        }) {
          cancellation.cancel()
        }
      }
      return nil
    }
    expectError(.cancelled, path: "/new/Yak") {
      try fixture.container.importItem(
        at: fixture.native("source"), to: "/new/Yak", control: BulkControl(cancellation: cancellation))
    }
    #expect(count.withLock { $0 } >= units)
    #expect(try fixture.container.tree() == ["/Zebra": [1]])
    #expect(fixture.io.slabSizes == sizes)
    #expect(try fixture.container.info().slabByteCount == info.slabByteCount)
    // And it can be done again.
    try fixture.container.importItem(at: fixture.native("source"), to: "/new/Yak")
    #expect(try fixture.container.contents(at: "/new/Yak") == testBytes(6 << 20, seed: 1))
    #expect(try fixture.container.verify().findings == [])
  }

  @Test func aCancelledImportGivesItsNativeSpaceBack() throws {
    let fixture = try NativeFixture()
    let place = fixture.native("container")
    let container = try Container.create(at: place, credential: testCredential(), options: testOptions())
    writeNative(fixture.native("source"), testBytes(6 << 20, seed: 1))
    let cancellation = Cancellation()
    expectError(.cancelled, path: "/Yak") {
      try container.importItem(
        at: fixture.native("source"), to: "/Yak",
        control: BulkControl(progress: { _ in cancellation.cancel() }, cancellation: cancellation))
    }
    #expect(try FileManager.default.contentsOfDirectory(atPath: place + "/slab") == [])
    #expect(try container.info().slabByteCount == 0)
  }
}

struct ExportTests {
  @Test func refusesImpossibleDestinations() throws {
    let fixture = try NativeFixture()
    try fixture.container.createDirectory("/Zebra/deep", withIntermediateDirectories: true)
    try fixture.container.write([1], to: "/Zebra/deep/file")
    writeNative(fixture.native("file"), [7])
    mkdir(fixture.native("directory"), 0o755)
    symlink("nowhere", fixture.native("directory/link"))
    let before = try nativeTree(fixture.directory.path)
    func export(_ path: String, to name: String, replacing: Bool = true) throws {
      try fixture.container.exportItem(path, to: fixture.native(name), replacing: replacing)
    }
    expectError(.noSuchFile, path: "/none") { try export("/none", to: "new") }
    expectError(.fileExists, path: fixture.native("file")) { try export("/Zebra", to: "file") }
    expectError(.isADirectory, path: fixture.native("directory")) {
      try export("/Zebra/deep/file", to: "directory")
    }
    expectError(.fileExists, path: fixture.native("file")) {
      try export("/Zebra/deep/file", to: "file", replacing: false)
    }
    expectError(.fileExists, path: fixture.native("directory/link")) {
      try export("/Zebra/deep/file", to: "directory/link", replacing: false)
    }
    expectError(.noSuchFile, path: fixture.native("none/file")) {
      try export("/Zebra/deep/file", to: "none/file")
    }
    expectError(.noSuchFile, path: fixture.native("none/directory")) {
      try export("/Zebra", to: "none/directory")
    }
    // The inner directory is in the way of nothing, the file inside is.
    mkdir(fixture.native("directory/deep"), 0o755)
    mkdir(fixture.native("directory/deep/file"), 0o755)
    expectError(.isADirectory, path: fixture.native("directory/deep/file")) {
      try export("/Zebra", to: "directory")
    }
    rmdir(fixture.native("directory/deep/file"))
    rmdir(fixture.native("directory/deep"))
    #expect(try nativeTree(fixture.directory.path) == before)
  }

  @Test func errorsGiveNoNameFromTheContainerAway() throws {
    let fixture = try NativeFixture()
    // Deeper than the native system takes.
    let name = String(repeating: "Zebra", count: 51)
    let path = String(repeating: "/" + name, count: 18)
    try fixture.container.createDirectory(path, withIntermediateDirectories: true)
    do {
      try fixture.container.exportItem("/", to: fixture.native("back"))
      Issue.record("nothing was thrown")
    } catch let error as ContainerError {
      #expect(error.code == .ioFailed)
      #expect(error.path?.contains(name) == true)
      #expect(!error.description.contains("Zebra"))
      #expect(!error.description.contains(fixture.directory.path))
    }
    #expect(try nativeTree(fixture.directory.path).isEmpty)
  }

  @Test func aDamagedFileLeavesNothing() throws {
    let fixture = try NativeFixture()
    try fixture.container.createDirectory("/Zebra")
    try fixture.container.write(testBytes(100, seed: 1), to: "/Zebra/good")
    try fixture.container.write(testBytes(3 << 20, seed: 2), to: "/Zebra/damaged")
    try fixture.container.close()
    let container = try Container.open(
      io: fixture.io.damaged(fromEnd: 2 << 20), credential: testCredential(), mode: .readOnly,
      options: testOptions())
    expectError(.fileDamaged, path: "/Zebra/damaged") {
      try container.exportItem("/Zebra", to: fixture.native("back"))
    }
    #expect(try nativeTree(fixture.directory.path).isEmpty)
    writeNative(fixture.native("old"), [5])
    expectError(.fileDamaged, path: "/Zebra/damaged") {
      try container.exportItem("/Zebra/damaged", to: fixture.native("old"))
    }
    #expect(try nativeTree(fixture.directory.path) == ["old": [5]])
    try container.exportItem("/Zebra/good", to: fixture.native("old"))
    #expect(readNative(fixture.native("old")) == testBytes(100, seed: 1))
  }

  @Test func aCancelledExportLeavesNothing() throws {
    let fixture = try NativeFixture()
    try fixture.container.createDirectory("/Zebra/empty", withIntermediateDirectories: true)
    try fixture.container.write(testBytes(4 << 20, seed: 2), to: "/Zebra/file")
    let cancellation = Cancellation()
    expectError(.cancelled, path: "/Zebra") {
      // By the first report, the directories and the unfinished file are there.
      try fixture.container.exportItem(
        "/Zebra", to: fixture.native("back"),
        control: BulkControl(
          progress: { _ in
            #expect((try? nativeTree(fixture.directory.path))?.count == 3)
            cancellation.cancel()
          }, cancellation: cancellation))
    }
    #expect(try nativeTree(fixture.directory.path).isEmpty)
  }

  @Test func exportsTheSnapshotThoughTheFileGoes() throws {
    let fixture = try NativeFixture()
    let bytes = testBytes(4 << 20, seed: 2)
    try fixture.container.write(bytes, to: "/Zebra")
    var isFirst = true
    try fixture.container.exportItem(
      "/Zebra", to: fixture.native("back"),
      control: BulkControl(progress: { _ in
        guard isFirst else { return }
        isFirst = false
        do { try fixture.container.remove("/Zebra") } catch { Issue.record(error) }
      }))
    #expect(readNative(fixture.native("back")) == bytes)
    #expect(try fixture.container.tree().isEmpty)
    #expect(fixture.io.slabSizes.isEmpty)
  }
}

extension [String: [UInt8]?] {
  /// The part below a path, relative to it.
  func removingPrefix(_ prefix: String) -> Self {
    reduce(into: [:]) { tree, file in
      if file.key.hasPrefix(prefix) {
        tree.updateValue(file.value, forKey: String(file.key.dropFirst(prefix.count)))
      }
    }
  }
}
