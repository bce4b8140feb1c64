import BlackBerryDynamicsTesting
import Testing

@testable import BlackBerryDynamics

/// Calls `body` with a native directory of its own, below that for temporary files.
func withNativeDirectory<R>(_ body: (String) async throws -> R) async throws -> R {
  let path = URL(fileURLWithPath: NSTemporaryDirectory()).path + "/gd-" + UUID().uuidString
  try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
  defer { try? FileManager.default.removeItem(atPath: path) }
  return try await body(path)
}

/// What is visible of the native system, and how it is read. No app is needed.
struct NativeFilesTests {
  private let native = NativeFiles(hidden: [])

  private func write(_ text: String, _ path: String) throws {
    try Data(text.utf8).write(to: URL(fileURLWithPath: path))
  }

  private func code(_ body: () throws -> Void) -> Int? {
    do { try body() } catch { return (error as NSError).code }
    return nil
  }

  @Test func filesAndDirectoriesAreVisible() async throws {
    try await withNativeDirectory { directory in
      try write("text", directory + "/a")
      #expect(native.item(at: directory + "/a")?.kind == .file)
      #expect(native.item(at: directory)?.kind == .directory)
      #expect(native.item(at: directory + "///")?.kind == .directory)
      #expect(native.item(at: directory + "/.")?.kind == .directory)
      #expect(native.item(at: directory + "/../")?.kind == .directory)
      #expect(native.item(at: "/")?.kind == .directory)
      #expect(try native.item(at: directory + "/./a")?.open().bytes(at: 0) == Data("text".utf8))
    }
  }

  @Test func othersAreNot() async throws {
    try await withNativeDirectory { directory in
      try write("text", directory + "/a")
      mkfifo(directory + "/pipe", 0o600)
      for (link, target) in [("link", "a"), ("loop", "loop"), ("none", "nothing")] {
        try FileManager.default.createSymbolicLink(
          atPath: directory + "/" + link, withDestinationPath: target)
      }
      for name in ["pipe", "link", "loop", "none", "nothing", "a/", "a/b", "a\0", "a\0b"] {
        #expect(native.item(at: directory + "/" + name) == nil, "\(name)")
      }
      // Neither waits for anything, nor is anything opened.
      for path in ["/dev/null", "/dev/zero", "/dev/tty", "", "a", "./a", "~/a"] {
        #expect(native.item(at: path) == nil, "\(path)")
      }
    }
  }

  @Test func theAppsOwnDirectoriesAreHidden() async throws {
    try await withNativeDirectory { directory in
      let own = directory + "/container"
      try FileManager.default.createDirectory(atPath: own + "/data/deep", withIntermediateDirectories: true)
      try write("sealed", own + "/data/deep/block")
      try write("plain", directory + "/beside")
      try FileManager.default.createSymbolicLink(
        atPath: directory + "/other", withDestinationPath: own + "/data")
      let native = NativeFiles(hidden: [own, directory + "/nothing"])
      for path in ["", "/", "/.", "/data", "/data/deep/block", "/data/../data/deep/block", "/data/.."] {
        #expect(native.item(at: own + path) == nil, "\(path)")
      }
      // Through a link in the middle, and by a way out and in.
      #expect(native.item(at: directory + "/other/deep/block") == nil)
      #expect(native.item(at: directory + "/beside/../container/data") == nil)
      #expect(native.item(at: directory + "/beside") != nil)
      #expect(native.item(at: own + "/../beside") != nil)
    }
  }

  /// Else somebody could give the app a file that it takes for one of its container.
  @Test(.enabled(if: geteuid() == 0))
  func filesOfOthersAreHiddenWhereEverybodyMayWrite() async throws {
    try await withNativeDirectory { directory in
      let (shared, own) = (directory + "/shared", directory + "/own")
      for path in [shared, own] {
        try FileManager.default.createDirectory(atPath: path + "/d", withIntermediateDirectories: true)
        try write("text", path + "/a")
        try write("text", path + "/d/a")
      }
      chmod(shared, 0o1777)
      #expect(native.item(at: shared + "/a") != nil && native.item(at: shared + "/d/a") != nil)
      for path in [shared, own] {
        for name in ["/a", "/d"] { chown(path + name, 12345, 12345) }
      }
      #expect(native.item(at: shared + "/a") == nil && native.item(at: shared + "/d/a") == nil)
      #expect(native.item(at: shared + "/d") == nil && native.item(at: shared) != nil)
      #expect(native.item(at: own + "/a") != nil && native.item(at: own + "/d/a") != nil)
    }
  }

  /// A file whose stated size is 0, and one whose size is more than memory has.
  @Test func noStatedSizeIsBelieved() async throws {
    let status = try #require(native.item(at: "/proc/self/status"))
    let file = try status.open()
    #expect(try file.end() == 0)
    #expect(try String(decoding: file.bytes(at: 0), as: UTF8.self).contains("Pid:"))
    try await withNativeDirectory { directory in
      let path = directory + "/sparse"
      try write("begin", path)
      #expect(truncate(path, 1 << 40) == 0)
      let file = try #require(native.item(at: path)).open()
      #expect(try file.end() == 1 << 40 && file.bytes(at: 0, upTo: 5) == Data("begin".utf8))
      let tooMuch = code { _ = try file.bytes(at: 0, limit: 1 << 20) }
      #expect(tooMuch == GDFileManagerErrorType.ioError.rawValue)
      // A large count alone takes no memory.
      #expect(try file.bytes(at: 1 << 40, upTo: .max).isEmpty)
    }
  }

  @Test func whatTakesThePlaceOfAnItemIsNotOpened() async throws {
    try await withNativeDirectory { directory in
      let path = directory + "/a"
      try write("one", path)
      let item = try #require(native.item(at: path))
      try FileManager.default.moveItem(atPath: path, toPath: directory + "/b")
      #expect(code { _ = try item.open() } == GDFileManagerErrorType.pathDoesNotExist.rawValue)
      try write("two", path)
      #expect(code { _ = try item.open() } == GDFileManagerErrorType.pathDoesNotExist.rawValue)
      try FileManager.default.removeItem(atPath: path)
      mkfifo(path, 0o600)
      #expect(code { _ = try item.open() } != nil)
      try FileManager.default.removeItem(atPath: path)
      try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: "b")
      #expect(code { _ = try item.open() } != nil)
    }
  }

  @Test func aFileThatWasChangedIsNotRemoved() async throws {
    try await withNativeDirectory { directory in
      let path = directory + "/a"
      try write("one", path)
      let item = try #require(native.item(at: path))
      let file = try item.open()
      let before = try file.status()
      try await Task.sleep(for: .milliseconds(20))
      let handle = try #require(FileHandle(forWritingAtPath: path))
      try handle.write(contentsOf: Data("two".utf8))
      try handle.close()
      #expect(code { try item.remove(ifStill: before) } == GDFileManagerErrorType.ioError.rawValue)
      #expect(FileManager.default.contents(atPath: path) == Data("two".utf8))
      try item.remove(ifStill: file.status())
      #expect(!FileManager.default.fileExists(atPath: path))
    }
  }

  @Test func streamsAndHandlesReadInPiecesAndSeek() async throws {
    try await withNativeDirectory { directory in
      try write("0123456789", directory + "/a")
      let item = try #require(native.item(at: directory + "/a"))
      let stream = NativeInputStream(try item.open())
      var bytes = [UInt8](repeating: 0, count: 8)
      #expect(stream.hasBytesAvailable && stream.read(&bytes, maxLength: 8) == 8 && bytes[7] == 0x37)
      #expect(stream.read(&bytes, maxLength: 8) == 2 && stream.read(&bytes, maxLength: 8) == 0)
      #expect(stream.streamStatus == .atEnd && !stream.hasBytesAvailable)
      #expect(stream.setProperty(NSNumber(value: 4), forKey: .fileCurrentOffsetKey))
      #expect(stream.read(&bytes, maxLength: 2) == 2 && bytes[0] == 0x34)
      #expect(!stream.setProperty(NSNumber(value: -1), forKey: .fileCurrentOffsetKey))
      stream.close()
      #expect(stream.read(&bytes, maxLength: 1) == -1 && stream.streamStatus == .closed)

      let handle = NativeFileHandle(try item.open())
      #expect(try handle.read(upToCount: 4) == Data("0123".utf8) && handle.offset() == 4)
      #expect(try handle.readToEnd() == Data("456789".utf8) && handle.readToEnd() == nil)
      #expect(try handle.seekToEnd() == 10)
      try handle.seek(toOffset: 8)
      #expect(try handle.read(upToCount: .max) == Data("89".utf8))
      #expect(code { try handle.write(contentsOf: Data("a".utf8)) } != nil)
      #expect(code { try handle.truncate(atOffset: 0) } != nil)
      #expect(code { _ = try handle.read(upToCount: -1) } == GDFileManagerErrorType.pathError.rawValue)
      #expect(code { try handle.seek(toOffset: .max) } != nil)
      try handle.close()
      #expect(code { _ = try handle.readToEnd() } != nil)
      #expect(FileManager.default.contents(atPath: item.path) == Data("0123456789".utf8))
    }
  }

  @Test(arguments: [
    ("/a", "/a"), ("file:///a%20b", "/a b"), ("a", nil), ("", nil), ("https://example.com/a", nil),
    ("file:", nil), ("file:a", nil),
  ])
  func aNativePathIsThePathAsItIsWritten(path: String, written: String?) {
    #expect(NativePaths.written(path) == written)
  }
}
