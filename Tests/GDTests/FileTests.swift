import BlackBerryDynamicsTesting
import Testing

@testable import BlackBerryDynamics

extension AppTests {
  struct FileTests {
    private func withFiles(_ body: (GDFileManager) throws -> Void) async throws {
      try await withGDApp { _, _ in
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        try body(GDFileManager.default())
      }
    }

    private var documents: String {
      NSSearchPathForDirectoriesInDomains(.documentDirectory, .userDomainMask, true)[0]
    }

    /// As existing code makes them.
    @Test(arguments: ["file", "gd", ""]) func urlsMayHaveASchemeOfTheirOwn(scheme: String) async throws {
      try await withFiles { files in
        #expect(files.createFile(atPath: documents + "/a b", contents: Data("abc".utf8)))
        let path = (documents + "/a b").replacingOccurrences(of: " ", with: "%20")
        let url = try #require(URL(string: scheme.isEmpty ? path : "\(scheme)://\(path)"))
        #expect(try GDFileHandle(forReadingFrom: url).readToEnd() == Data("abc".utf8))
        try files.removeItem(at: url)
      }
    }

    @Test func pathsOfTheCInterfaceBeginAtTheRoot() async throws {
      try await withFiles { _ in
        #expect(GDFileManager.pathForC(fromManagerPath: documents + "/a") == "/Documents/a")
        #expect(GDFileManager.pathForManager(fromCPath: "/Documents/a") == documents + "/a")
        #expect(GDFileManager.pathForC(fromManagerPath: "a") == nil)
        #expect(GDFileManager.pathForManager(fromCPath: "a") == nil)
        for path in ["/Documents/a b", "/Inbox/com.example.a/1/a", "/tmp/x", "/a"] {
          let native = try #require(GDFileManager.pathForManager(fromCPath: path))
          #expect(GDFileManager.pathForC(fromManagerPath: native) == path)
        }
      }
    }

    @Test func theDirectoriesThatAppsNameAreThere() async throws {
      try await withFiles { files in
        for directory in [
          FileManager.SearchPathDirectory.documentDirectory, .cachesDirectory, .applicationSupportDirectory,
        ] {
          let path = NSSearchPathForDirectoriesInDomains(directory, .userDomainMask, true)[0]
          var isDirectory: ObjCBool = false
          #expect(files.fileExists(atPath: path, isDirectory: &isDirectory) && isDirectory.boolValue)
          #expect(files.urls(for: directory, in: .userDomainMask).map(\.path) == [path])
          let made = try files.url(
            for: directory, in: .userDomainMask, appropriateFor: nil, create: true)
          #expect(made.path == path)
        }
        #expect(files.fileExists(atPath: NSTemporaryDirectory()))
      }
    }

    @Test func aFileHasSeveralPaths() async throws {
      try await withFiles { files in
        let data = Data("text".utf8)
        #expect(files.createFile(atPath: documents + "/a b", contents: data))
        let url = URL(fileURLWithPath: documents + "/a b")
        for path in [documents + "/a b", "/Documents/a b", url.absoluteString] {
          #expect(files.contents(atPath: path) == data)
        }
        // Code that forgets the slash.
        #expect(files.createFile(atPath: documents + "X", contents: data))
        #expect(files.fileExists(atPath: "/DocumentsX"))
        // Nothing of it is on the native disk.
        #expect(!FileManager.default.fileExists(atPath: documents + "/a b"))
      }
    }

    @Test func thePropertyAndTheMethodAreOneManager() async throws {
      try await withFiles { files in
        #expect(GDFileManager.default === files && GDFileManager.default() === files)
      }
    }

    @Test func pathsThatComeBackAreTakenAgain() async throws {
      try await withFiles { files in
        let directory = files.urls(for: .documentDirectory, in: .userDomainMask)[0]
        #expect(files.createFile(atPath: directory.appendingPathComponent("a").path, contents: nil))
        let list = try files.contentsOfDirectory(at: directory, includingPropertiesForKeys: nil)
        #expect(list.map(\.lastPathComponent) == ["a"])
        #expect(files.fileExists(atPath: list[0].path) && files.fileExists(atPath: list[0].absoluteString))
        let path = try #require(GDFileManager.getAbsoluteEncryptedPath(list[0].path))
        #expect(files.fileExists(atPath: path))
        try files.moveItem(at: list[0], to: directory.appendingPathComponent("b"))
        try files.copyItem(atPath: documents + "/b", toPath: documents + "/c")
        try files.removeItem(at: directory.appendingPathComponent("b"))
        #expect(try files.contentsOfDirectory(atPath: documents) == ["c"])
      }
    }

    @Test func enumeratorsAndLinksHaveNativePaths() async throws {
      try await withFiles { files in
        let directory = documents + "/d"
        try files.createDirectory(atPath: directory + "/e", withIntermediateDirectories: true)
        #expect(files.createFile(atPath: directory + "/e/f", contents: Data("f".utf8)))
        let names = try #require(files.enumerator(atPath: directory))
        #expect(names.compactMap { $0 as? String } == ["e", "e/f"])
        let urls = try #require(
          files.enumerator(at: URL(fileURLWithPath: directory), includingPropertiesForKeys: nil))
        #expect(urls.compactMap { ($0 as? URL)?.path } == [directory + "/e", directory + "/e/f"])
        try files.createSymbolicLink(atPath: directory + "/link", withDestinationPath: directory + "/e")
        #expect(try files.destinationOfSymbolicLink(atPath: directory + "/link") == directory + "/e")
        #expect(files.contents(atPath: directory + "/link/f") == Data("f".utf8))
        try files.createSymbolicLink(atPath: directory + "/near", withDestinationPath: "e/f")
        #expect(try files.destinationOfSymbolicLink(atPath: directory + "/near") == "e/f")
        #expect(files.createFile(atPath: documents + "/new", contents: Data("new".utf8)))
        var result: NSURL?
        try files.replaceItem(
          at: URL(fileURLWithPath: directory + "/e/f"), withItemAt: URL(fileURLWithPath: documents + "/new"),
          backupItemName: nil, resultingItemURL: &result)
        #expect(result?.path == directory + "/e/f" && files.contents(atPath: directory + "/near")?.count == 3)
      }
    }

    @Test func aRelativePathIsMissing() async throws {
      try await withFiles { files in
        #expect(!files.createFile(atPath: "a", contents: nil) && !files.fileExists(atPath: "Documents"))
        do {
          try files.removeItem(atPath: "a")
          Issue.record("it names nothing")
        } catch let error as NSError {
          #expect(error.domain == GDFileManagerErrorDomain && error.code == 100)
          let cause = error.userInfo[NSUnderlyingErrorKey] as? CocoaError
          #expect(cause?.code == .fileNoSuchFile)
          #expect((cause?.userInfo[NSUnderlyingErrorKey] as? POSIXError)?.code == .ENOENT)
        }
      }
    }

    @Test func anAppMayDoWithoutNativeFiles() async throws {
      let change: @Sendable (inout GDConfiguration) -> Void = { $0.readsNativeFiles = false }
      try await withGDApp(change) { _, _ in
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        let files = GDFileManager.default()
        #expect(!files.fileExists(atPath: "/etc") && files.contents(atPath: "/etc/passwd") == nil)
        #expect(GDFileHandle(forReadingAtPath: "/etc/passwd") == nil)
        #expect(throws: (any Error).self) {
          try files.copyItem(atPath: "/etc/passwd", toPath: "/Documents/a")
        }
      }
    }

    @Test func createFileIsFalseForAMissingDirectory() async throws {
      try await withFiles { files in
        #expect(!files.createFile(atPath: documents + "/no/a", contents: nil))
        try files.createDirectory(atPath: documents + "/no", withIntermediateDirectories: false)
        #expect(files.createFile(atPath: documents + "/no/a", contents: nil))
        #expect(throws: (any Error).self) {
          try files.createDirectory(atPath: documents + "/no", withIntermediateDirectories: false)
        }
      }
    }

    @Test func streamsAreOpenFromTheBeginning() async throws {
      try await withFiles { _ in
        let path = documents + "/stream"
        for text in ["one", "two"] {
          let writer: OutputStream = try GDFileManager.getWriteStream(path, appendmode: text == "two")
          #expect(writer.hasSpaceAvailable && writer.write([UInt8](text.utf8), maxLength: 3) == 3)
          writer.close()
        }
        let reader = try GDFileManager.getReadStream(path)
        var bytes = [UInt8](repeating: 0, count: 64)
        var text = ""
        while reader.hasBytesAvailable {
          let count = reader.read(&bytes, maxLength: bytes.count)
          text += String(decoding: bytes[..<max(0, count)], as: UTF8.self)
        }
        #expect(text == "onetwo" && reader.streamError == nil)
        #expect(reader.seek(toFileOffset: 3) && reader.read(&bytes, maxLength: 3) == 3)
        reader.close()
        #expect(throws: (any Error).self) { try GDFileManager.getReadStream(documents + "/nothing") }
        #expect(throws: (any Error).self) {
          try GDFileManager.getWriteStream(documents + "/no/a", appendmode: false)
        }
      }
    }

    @Test func handlesTakeURLsWithoutAScheme() async throws {
      try await withFiles { files in
        let path = documents + "/handle"
        #expect(files.createFile(atPath: path, contents: Data("0123456789".utf8)))
        let url = try #require(URL(string: path))
        let handle = try GDFileHandle(forReadingFrom: url)
        #expect(handle.readData(ofLength: 4) == Data("0123".utf8) && handle.offsetInFile == 4)
        handle.seek(toFileOffset: 8)
        #expect(handle.availableData == Data("89".utf8) && handle.seekToEndOfFile() == 10)
        handle.closeFile()
        let writer = try #require(GDFileHandle(forWritingAtPath: path))
        writer.write(Data("ab".utf8))
        writer.truncateFile(atOffset: 2)
        writer.closeFile()
        #expect(files.contents(atPath: path) == Data("ab".utf8))
        #expect(GDFileHandle(forReadingAtPath: documents + "/nothing") == nil)
        #expect(GDFileHandle(forReadingAtPath: "handle") == nil)
        // Code that makes a handle before it has a file.
        let empty = GDFileHandle()
        #expect(empty.availableData.isEmpty && empty.offsetInFile == 0)
        empty.closeFile()
      }
    }
  }
}
