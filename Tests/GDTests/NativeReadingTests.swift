import BlackBerryDynamicsTesting
import Testing

@testable import BlackBerryDynamics

extension AppTests {
  /// Native files where the container has nothing, through the vendor's classes.
  struct NativeReadingTests {
    private let native = FileManager.default

    private func withFiles(_ body: (GDFileManager, String) async throws -> Void) async throws {
      try await withGDApp { _, _ in
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        try await withNativeDirectory { try await body(GDFileManager.default(), $0) }
      }
    }

    private func write(_ text: String, _ path: String) {
      #expect(native.createFile(atPath: path, contents: Data(text.utf8)))
    }

    /// Whether something of that path is in the container itself.
    private func isInContainer(_ path: String) throws -> Bool {
      let files = try HostedApp.current.files("test")
      return files.fileExists(atPath: GDFileManager.default().container(path))
    }

    private func code(_ body: () throws -> Void) -> Int? {
      do { try body() } catch let error as NSError where error.domain == GDFileManagerErrorDomain {
        return error.code
      } catch {
        return -1
      }
      return nil
    }

    @Test func aNativeFileIsReadAndNeverWritten() async throws {
      try await withFiles { files, directory in
        let (path, data) = (directory + "/a b", Data("native".utf8))
        write("native", path)
        var isDirectory: ObjCBool = true
        #expect(files.fileExists(atPath: path, isDirectory: &isDirectory) && !isDirectory.boolValue)
        #expect(files.isReadableFile(atPath: path) && files.contents(atPath: path) == data)
        #expect(files.contents(atPath: URL(fileURLWithPath: path).absoluteString) == data)
        #expect(try files.attributesOfItem(atPath: path)[.size] as? Int == 6)
        #expect(try files.contentsOfDirectory(atPath: directory) == ["a b"])
        let urls = try files.contentsOfDirectory(
          at: URL(fileURLWithPath: directory), includingPropertiesForKeys: nil)
        #expect(urls.map(\.lastPathComponent) == ["a b"] && files.contents(atPath: urls[0].path) == data)
        let stream = try GDFileManager.getReadStream(path)
        var bytes = [UInt8](repeating: 0, count: 16)
        #expect(stream.seek(toFileOffset: 2) && stream.read(&bytes, maxLength: 16) == 4)
        stream.close()
        #expect(GDFileHandle(forReadingAtPath: path)?.readDataToEndOfFile() == data)
        #expect(try GDFileHandle(forReadingFrom: URL(fileURLWithPath: path)).readToEnd() == data)
        // Nothing changes it.
        #expect(!files.isWritableFile(atPath: path) && !files.isDeletableFile(atPath: path))
        #expect(GDFileHandle(forWritingAtPath: path) == nil && GDFileHandle(forUpdatingAtPath: path) == nil)
        #expect(throws: (any Error).self) { try files.removeItem(atPath: path) }
        #expect(throws: (any Error).self) {
          try files.setAttributes([.posixPermissions: 0o777], ofItemAtPath: path)
        }
        #expect(throws: (any Error).self) { try files.removeItem(at: URL(fileURLWithPath: directory)) }
        #expect(native.contents(atPath: path) == data)
      }
    }

    @Test func aDirectoryAboveTheContainerIsNotCopied() async throws {
      try await withFiles { files, directory in
        let container = try #require(HostedApp.current.state.withLock { $0.runtime }).url
        let above = container.deletingLastPathComponent().path
        #expect(code { try files.copyItem(atPath: above, toPath: "/above") } == 110)
        for suffix in ["", ".runtime"] { #expect(!files.fileExists(atPath: container.path + suffix)) }
        try native.createDirectory(atPath: directory + "/d", withIntermediateDirectories: false)
        write("a", directory + "/d/a")
        try native.setAttributes([.posixPermissions: 0o777], ofItemAtPath: directory + "/d")
        #expect(code { try files.copyItem(atPath: directory + "/d", toPath: "/d") } == 110)
        try native.setAttributes([.posixPermissions: 0o755], ofItemAtPath: directory + "/d")
        try files.copyItem(atPath: directory + "/d", toPath: "/d")
        #expect(try isInContainer("/d/a"))
      }
    }

    @Test func whatTheContainerHasComesFirst() async throws {
      try await withFiles { files, directory in
        let path = directory + "/a"
        write("native", path)
        try files.createDirectory(atPath: directory, withIntermediateDirectories: true)
        #expect(files.createFile(atPath: path, contents: Data("mine".utf8)))
        #expect(files.contents(atPath: path) == Data("mine".utf8))
        write("other", directory + "/b")
        // Two directories of one path are not put together.
        #expect(try files.contentsOfDirectory(atPath: directory) == ["a"])
        try files.removeItem(atPath: path)
        #expect(files.contents(atPath: path) == Data("native".utf8))
        // A link of the container that leads to nothing is there.
        try files.createSymbolicLink(atPath: path, withDestinationPath: "nothing")
        #expect(files.contents(atPath: path) == nil && !files.fileExists(atPath: path))
      }
    }

    @Test func pipesDevicesAndLinksAreNotRead() async throws {
      try await withFiles { files, directory in
        mkfifo(directory + "/pipe", 0o600)
        write("a", directory + "/a")
        try native.createSymbolicLink(atPath: directory + "/link", withDestinationPath: "a")
        for path in [directory + "/pipe", directory + "/link", "/dev/zero", "/dev/null"] {
          #expect(!files.fileExists(atPath: path) && files.contents(atPath: path) == nil)
          #expect(GDFileHandle(forReadingAtPath: path) == nil)
          #expect(code { _ = try GDFileManager.getReadStream(path) } == 100)
          #expect(code { try files.copyItem(atPath: path, toPath: "/Documents/a") } == 100)
          #expect(code { try files.moveItem(atPath: path, toPath: "/Documents/a") } == 100)
        }
        #expect(try files.contentsOfDirectory(atPath: "/Documents").isEmpty)
      }
    }

    @Test func theContainersOwnDirectoryIsHidden() async throws {
      try await withFiles { files, _ in
        let own = GDConfiguration.current.container.path
        let names = try native.contentsOfDirectory(atPath: own)
        #expect(!names.isEmpty)
        for path in [own, own + ".runtime"] + names.map({ own + "/" + $0 }) {
          #expect(!files.fileExists(atPath: path), "\(path)")
          #expect(throws: (any Error).self) { try files.moveItem(atPath: path, toPath: "/Documents/a") }
          #expect(throws: (any Error).self) { try files.copyItem(atPath: path, toPath: "/Documents/a") }
        }
        // A directory above it is copied only without it.
        let above = URL(fileURLWithPath: own).deletingLastPathComponent().path
        #expect(throws: (any Error).self) { try files.copyItem(atPath: above, toPath: "/Documents/above") }
        #expect(files.createFile(atPath: "/Documents/b", contents: Data("b".utf8)))
        #expect(try files.contentsOfDirectory(atPath: "/Documents") == ["b"])
      }
    }

    @Test func copyingKeepsTheOriginal() async throws {
      try await withFiles { files, directory in
        try native.createDirectory(atPath: directory + "/d/e", withIntermediateDirectories: true)
        write("1", directory + "/d/e/f")
        write("2", directory + "/a")
        try files.copyItem(atPath: directory + "/a", toPath: "/Documents/a")
        try files.copyItem(
          at: URL(fileURLWithPath: directory + "/d"), to: URL(fileURLWithPath: "/Documents/d"))
        #expect(files.contents(atPath: "/Documents/d/e/f") == Data("1".utf8))
        #expect(try isInContainer("/Documents/a") && native.fileExists(atPath: directory + "/d/e/f"))
        // What is there is neither replaced nor merged, and the directory of a file has to be there.
        write("3", directory + "/a")
        #expect(code { try files.copyItem(atPath: directory + "/a", toPath: "/Documents/a") } == 106)
        #expect(code { try files.copyItem(atPath: directory + "/d", toPath: "/Documents/d") } == 106)
        #expect(code { try files.copyItem(atPath: directory + "/a", toPath: "/no/a") } == 100)
        #expect(code { try files.copyItem(atPath: directory + "/a", toPath: "/Documents/a/b") } == 104)
        #expect(code { try files.copyItem(atPath: directory + "/a", toPath: "a") } == 100)
        #expect(files.contents(atPath: "/Documents/a") == Data("2".utf8))
      }
    }

    @Test func movingTakesTheOriginalAway() async throws {
      try await withFiles { files, directory in
        let documents = NSSearchPathForDirectoriesInDomains(.documentDirectory, .userDomainMask, true)[0]
        write("received", directory + "/a")
        try files.moveItem(atPath: directory + "/a", toPath: documents + "/a")
        #expect(files.contents(atPath: documents + "/a") == Data("received".utf8))
        #expect(!native.fileExists(atPath: directory + "/a") && !files.fileExists(atPath: directory + "/a"))
        #expect(!native.fileExists(atPath: documents + "/a"))
        // The source of a move that fails stays.
        write("again", directory + "/a")
        let source = URL(fileURLWithPath: directory + "/a")
        let destination = URL(fileURLWithPath: documents + "/a")
        #expect(code { try files.moveItem(at: source, to: destination) } == 106)
        #expect(code { try files.moveItem(atPath: directory + "/a", toPath: "/no/a") } == 100)
        #expect(code { try files.moveItem(atPath: directory, toPath: "/Documents/d") } == 110)
        #expect(native.contents(atPath: directory + "/a") == Data("again".utf8))
        #expect(files.contents(atPath: documents + "/a") == Data("received".utf8))
        // To the same path: out of the native system, into the container.
        try files.createDirectory(atPath: directory, withIntermediateDirectories: true)
        try files.moveItem(atPath: directory + "/a", toPath: directory + "/a")
        #expect(try isInContainer(directory + "/a") && !native.fileExists(atPath: directory + "/a"))
      }
    }

    @Test(.enabled(if: geteuid() != 0))
    func aFileThatCannotBeRemovedIsNotMoved() async throws {
      try await withFiles { files, directory in
        write("a", directory + "/a")
        chmod(directory, 0o500)
        defer { chmod(directory, 0o700) }
        #expect(code { try files.moveItem(atPath: directory + "/a", toPath: "/Documents/a") } == 102)
        let isMoved = try isInContainer("/Documents/a")
        #expect(!isMoved && native.fileExists(atPath: directory + "/a"))
        chmod(directory + "/a", 0)
        #expect(!files.isReadableFile(atPath: directory + "/a") && files.fileExists(atPath: directory + "/a"))
        #expect(code { try files.copyItem(atPath: directory + "/a", toPath: "/Documents/a") } == 102)
      }
    }

    @Test func contentsAreComparedAcrossTheBorder() async throws {
      try await withFiles { files, directory in
        let long = String(repeating: "0123456789abcdef", count: 20_000)
        for (name, text) in [("a", long), ("b", long), ("c", long + "x"), ("d", "")] {
          write(text, directory + "/" + name)
        }
        #expect(files.createFile(atPath: "/Documents/a", contents: Data(long.utf8)))
        #expect(files.createFile(atPath: "/Documents/d", contents: nil))
        let equal = { files.contentsEqual(atPath: $0, andPath: $1) }
        #expect(equal(directory + "/a", "/Documents/a") && equal("/Documents/a", directory + "/b"))
        #expect(equal(directory + "/a", directory + "/b") && equal(directory + "/d", "/Documents/d"))
        #expect(!equal(directory + "/c", "/Documents/a") && !equal(directory + "/a", directory + "/c"))
        #expect(!equal(directory + "/d", "/Documents/a") && !equal(directory, "/Documents"))
        #expect(!equal(directory + "/a", directory + "/nothing") && !equal(directory, directory))
      }
    }

    @Test func nothingIsReadWhileTheAppIsLocked() async throws {
      try await withGDApp { _, app in
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        try await withNativeDirectory { directory in
          write("a", directory + "/a")
          let files = GDFileManager.default()
          #expect(files.fileExists(atPath: directory + "/a"))
          try await app.manage(["blocked": ["text": "Blocked."]])
          #expect(!files.fileExists(atPath: directory + "/a"))
          #expect(files.contents(atPath: directory + "/a") == nil)
          #expect(throws: AppRuntimeError.self) {
            try files.moveItem(atPath: directory + "/a", toPath: "/Documents/a")
          }
          #expect(native.fileExists(atPath: directory + "/a"))
        }
      }
    }
  }
}
