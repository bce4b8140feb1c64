import Foundation
import SecureFiles
import SodiumPrimitives
import TestSupport
import Testing

/// A container in a native directory of its own, which goes with it.
private final class Fixture: Sendable {
  private let temporary = TemporaryDirectory()
  var directory: URL { temporary.url }
  let container: SecureContainer
  var files: SecureFileManager { container.files }

  init() throws {
    var key = try SecretBytes(count: 32)
    _ = key.withUnsafeMutableBytes { $0.initializeMemory(as: UInt8.self, repeating: 7) }
    var options = Container.Options()
    options.passwordHash = PasswordHash.Parameters(passes: 1, memoryKiB: 8)
    options.threadCount = 2
    container = try SecureContainer.create(
      at: temporary.url.appendingPathComponent("container"), rawKey: key, options: options)
  }

  deinit { try? FileManager.default.removeItem(at: directory) }
}

/// Cancels itself when it is told for the first time that bytes are through, or that there are some.
private final class CancellingProgress: Progress, @unchecked Sendable {
  // Invariant: constant.
  let byteCount: Int64

  init(after byteCount: Int64) {
    self.byteCount = byteCount
    super.init(parent: nil, userInfo: nil)
  }

  override var completedUnitCount: Int64 {
    didSet { if completedUnitCount >= byteCount, totalUnitCount > 0 { cancel() } }
  }
}

struct ProgressTests {
  @Test func copiesReadsAndWritesWithProgress() async throws {
    let fixture = try Fixture()
    let files = fixture.files
    for byteCount in [0, 1, 3 << 20 | 5] {
      let contents = pattern(byteCount)
      let writing = Progress(totalUnitCount: 0)
      try await files.write(contents, toPath: "/file", progress: writing)
      #expect(writing.isFinished && writing.completedUnitCount == max(1, Int64(byteCount)))
      let reading = Progress(totalUnitCount: 0)
      #expect(try await files.contents(atPath: "/file", progress: reading) == contents)
      #expect(reading.isFinished && reading.completedUnitCount == max(1, Int64(byteCount)))
      let copying = Progress(totalUnitCount: 0)
      try await files.copyItem(atPath: "/file", toPath: "/copy\(byteCount)", progress: copying)
      #expect(copying.isFinished && copying.completedUnitCount == max(1, Int64(byteCount)))
      #expect(try await files.contents(atPath: "/copy\(byteCount)", progress: nil) == contents)
    }
    do {
      _ = try await files.contents(atPath: "/none", progress: nil)
      Issue.record("contents of nothing")
    } catch SecureFilesError.noSuchFile {}
    do {
      try await files.write(Data(), toPath: "/", progress: nil)
      Issue.record("written to the root")
    } catch SecureFilesError.isADirectory {}
    do {
      try await files.copyItem(atPath: "/file", toPath: "/copy0", progress: nil)
      Issue.record("copied over a file")
    } catch SecureFilesError.fileExists {}
  }

  /// From the progress itself, before the first byte and in the middle.
  @Test(arguments: [0, 1] as [Int64])
  func cancellingInTheMiddleLeavesNothing(byteCount: Int64) async throws {
    let fixture = try Fixture()
    let files = fixture.files
    let large = pattern(64 << 20)
    try files.write(large, toPath: "/large")
    let before = try fixture.container.store.info().slabByteCount
    for name in ["/copy", "/file", "/large"] {
      let progress = CancellingProgress(after: byteCount)
      do {
        if name == "/copy" {
          try await files.copyItem(atPath: "/large", toPath: name, progress: progress)
        } else if name == "/file" {
          try await files.write(large, toPath: name, progress: progress)
        } else {
          _ = try await files.contents(atPath: name, progress: progress)
        }
        // In the middle, and all the same done before the next report: only a fast machine gets here.
        #expect(byteCount > 0 && progress.isCancelled)
      } catch SecureFilesError.cancelled {
        #expect(!files.fileExists(atPath: name) || name == "/large")
        #expect(try fixture.container.store.info().slabByteCount == before)
      }
    }
  }

  @Test func theTaskCancels() async throws {
    let fixture = try Fixture()
    let files = fixture.files
    try files.write(pattern(1 << 20), toPath: "/large")
    for call in 0..<4 {
      let task = Task {
        // Begun only when it is cancelled already.
        withUnsafeCurrentTask { $0?.cancel() }
        switch call {
        case 0: try await files.copyItem(atPath: "/large", toPath: "/copy", progress: nil)
        case 1: try await files.write(Data([1]), toPath: "/copy", progress: nil)
        case 2: _ = try await files.contents(atPath: "/large", progress: nil)
        default: for try await _ in files.items(atPath: "/") { Issue.record("an item") }
        }
      }
      do {
        try await task.value
        Issue.record("not cancelled")
      } catch SecureFilesError.cancelled {}
    }
    #expect(try files.contentsOfDirectory(atPath: "/") == ["large"])
  }

  // MARK: Items

  @Test func itemsAreWhatWasThereInOrder() async throws {
    let fixture = try Fixture()
    let files = fixture.files
    // More than one piece, in more than one directory.
    try files.createDirectory(atPath: "/top/a/.hidden", withIntermediateDirectories: true)
    for i in 0..<700 { #expect(files.createFile(atPath: "/top/\(i)", contents: nil)) }
    for i in 0..<300 { #expect(files.createFile(atPath: "/top/a/\(i)", contents: nil)) }
    try files.write(pattern(5), toPath: "/top/a/.hidden/file")
    let expected = try files.subpathsOfDirectory(atPath: "/top")
    var found: [String] = []
    for try await item in files.items(atPath: "/top") {
      if found.isEmpty {
        // What happens now does not show any more.
        try files.removeItem(atPath: "/top/a")
        #expect(files.createFile(atPath: "/top/zzz", contents: nil))
      }
      found.append(item.path)
      #expect((item.type == .typeDirectory) == (item.path.hasSuffix("a") || item.path == "a/.hidden"))
      #expect(item.size == (item.path == "a/.hidden/file" ? 5 : 0))
      #expect(abs(item.creationDate.timeIntervalSinceNow) < 600)
    }
    #expect(found.count == 1003 && Set(found) == Set(expected))
    let parts = found.map { $0.split(separator: "/").map { Array($0.utf8) } }
    #expect(
      zip(parts, parts.dropFirst()).allSatisfy { a, b in
        a.lexicographicallyPrecedes(b) { $0.lexicographicallyPrecedes($1) }
      })
  }

  @Test func itemsTakeOptions() async throws {
    let fixture = try Fixture()
    let files = fixture.files
    try files.createDirectory(atPath: "/a/.hidden", withIntermediateDirectories: true)
    for path in ["/.x", "/a/.hidden/file", "/a/file", "/b"] {
      #expect(files.createFile(atPath: path, contents: nil))
    }
    func paths(_ options: FileManager.DirectoryEnumerationOptions) async throws -> [String] {
      try await files.items(atPath: "/", options: options).reduce(into: []) { $0.append($1.path) }
    }
    #expect(try await paths([]) == [".x", "a", "a/.hidden", "a/.hidden/file", "a/file", "b"])
    #expect(try await paths(.skipsHiddenFiles) == ["a", "a/file", "b"])
    #expect(try await paths(.skipsSubdirectoryDescendants) == [".x", "a", "b"])
    #expect(try await paths([.skipsHiddenFiles, .skipsSubdirectoryDescendants]) == ["a", "b"])
    do {
      for try await _ in files.items(atPath: "/none") { Issue.record("an item") }
      Issue.record("items of nothing")
    } catch SecureFilesError.noSuchFile {}
    do {
      for try await _ in files.items(atPath: "/b") { Issue.record("an item") }
      Issue.record("items of a file")
    } catch SecureFilesError.notADirectory {}
    let sequence = files.items(atPath: "/a")
    var iterator = sequence.makeAsyncIterator()
    _ = try await iterator.next()
    try await fixture.container.close()
    do {
      var another = sequence.makeAsyncIterator()
      _ = try await another.next()
      Issue.record("items of a closed container")
    } catch SecureFilesError.closed {}
  }

  // MARK: Changes

  @Test func changesAreObserved() async throws {
    let fixture = try Fixture()
    let changes = try fixture.files.changes(atPath: "/Documents")
    try fixture.files.createDirectory(atPath: "/Documents", withIntermediateDirectories: true)
    try await fixture.files.write(pattern(1), toPath: "/Documents/note", progress: nil)
    try await fixture.container.close()
    let told = await changes.reduce(into: [SecureFileManager.Change]()) { $0.append($1) }
    #expect(told == [.created(path: "/Documents"), .created(path: "/Documents/note")])
  }
}
