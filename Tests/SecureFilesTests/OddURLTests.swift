import Foundation
import SecureFiles
import Testing

/// Paths and URLs that must not be taken for others.
struct OddURLTests {
  private let fixture: FilesOfContainer
  private var files: SecureFileManager { fixture.files }

  init() throws { fixture = try FilesOfContainer() }

  private final class Permissive: SecureFileManagerDelegate {}

  @Test(arguments: ["%FF", "a%FF/b", "d%2Fa", "d%2fa", "d/%2E%2E%2Fa", "a%00"])
  func refusesNamesThatAreNone(_ encoded: String) throws {
    try files.createDirectory(atPath: "/d", withIntermediateDirectories: false)
    try fixture.make("/d/a")
    let root = files.url(forPath: "/", isDirectory: true).absoluteString
    let url = try #require(URL(string: root + encoded))
    let delegate = Permissive()
    files.delegate = delegate
    #expect(thrown { try files.removeItem(at: url) }?.code == .fileWriteInvalidFileName)
    #expect(thrown { _ = try files.contentsOfDirectory(at: url, includingPropertiesForKeys: nil) } != nil)
    #expect(thrown { try files.setAttributes([.posixPermissions: 0o111], ofItemAt: url) } != nil)
    #expect(!files.fileExists(at: url))
    #expect(try files.subpathsOfDirectory(atPath: "/") == ["d", "d/a"])
    withExtendedLifetime(delegate) {}
  }

  @Test(arguments: ["/", "/d/..", "//"]) func keepsTheRootAndWhatIsInIt(_ path: String) throws {
    try files.createDirectory(atPath: "/d", withIntermediateDirectories: false)
    try fixture.make("/d/a")
    let delegate = Permissive()
    files.delegate = delegate
    #expect(throws: (any Error).self) { try files.removeItem(atPath: path) }
    #expect(try files.subpathsOfDirectory(atPath: "/") == ["d", "d/a"])
    withExtendedLifetime(delegate) {}
  }

  private func expectsInvalidArgument(_ body: () async throws -> Void) async {
    let error = await #expect(throws: SecureFilesError.self) { try await body() }
    #expect(error?.code == .invalidArgument)
  }

  @Test func takesNoContainerURLForANativeFile() async throws {
    try fixture.make("/a", Data("secret".utf8))
    let native = fixture.directory.appendingPathComponent("plain")
    let url = files.url(forPath: native.path, isDirectory: false)
    await expectsInvalidArgument {
      try await files.exportItem(atPath: "/a", to: url)
    }
    #expect(!FileManager.default.fileExists(atPath: native.path))
    try Data("native".utf8).write(to: native)
    await expectsInvalidArgument {
      try await files.importItem(at: url, toPath: "/b")
    }
    #expect(!files.fileExists(atPath: "/b"))
  }

  @Test func importsAndExportsFromTheWorkingDirectory() async throws {
    let native = fixture.directory.appendingPathComponent("native")
    try Data("x".utf8).write(to: native)
    try files.createDirectory(atPath: "/d", withIntermediateDirectories: false)
    #expect(files.changeCurrentDirectoryPath("/d"))
    try await files.importItem(at: native, toPath: "a")
    #expect(try files.subpathsOfDirectory(atPath: "/") == ["d", "d/a"])
    let back = fixture.directory.appendingPathComponent("back")
    try await files.exportItem(atPath: "a", to: back)
    #expect(try Data(contentsOf: back) == Data("x".utf8))
  }

  /// The first character of such a path is not a slash.
  @Test func keepsNamesThatBeginWithACombiningMark() throws {
    let name = "\u{301}x"
    try fixture.make("/" + name, Data("1".utf8))
    try files.createDirectory(atPath: "/d", withIntermediateDirectories: false)
    #expect(files.changeCurrentDirectoryPath("/d"))
    #expect(files.contents(atPath: "/" + name) == Data("1".utf8))
    #expect(files.displayName(atPath: "/d/" + name) == name)
    let values = try files.resourceValues(forKeys: [.nameKey, .parentDirectoryURLKey], atPath: "/" + name)
    #expect(values.name == name)
    #expect(values.parentDirectory == files.url(forPath: "/", isDirectory: true))
  }

  @Test(arguments: [SecureFileManager.URLStyle.container, .file], [false, true])
  func listedURLsLeadToTheFiles(_ style: SecureFileManager.URLStyle, _ isRelative: Bool) throws {
    let names = [
      "~", "~root", "a:b", "a%41", "%2F", "a?b", "a#b", "a;b", " x ", "\n", "\r\nx", "a\\b", "...", "..a",
      "é",
      "e\u{301}x", "\u{301}x", "\u{FE0F}z", "[x]", "a&b", "日本", "\u{7f}",
    ]
    files.urlStyle = style
    for directory in ["/", "/d/"] {
      if directory != "/" { try files.createDirectory(atPath: directory, withIntermediateDirectories: false) }
      for name in names { try fixture.make(directory + name, Data(name.utf8)) }
      let urls = try files.contentsOfDirectory(
        at: files.url(forPath: directory, isDirectory: true), includingPropertiesForKeys: nil,
        options: isRelative ? .producesRelativePathURLs : [])
      let contents = try urls.filter { !$0.hasDirectoryPath }.map { try files.data(at: $0) }
      #expect(Set(contents) == Set(names.map { Data($0.utf8) }), "\(directory)")
    }
  }

  @Test func readsNoMoreThanThereIsMemory() throws {
    try fixture.make("/a")
    let handle = try #require(files.fileHandle(forUpdatingAtPath: "/a"))
    try handle.truncate(atOffset: 1 << 50)
    try handle.seek(toOffset: 0)
    #expect(thrown { _ = try handle.readToEnd() }?.code == .fileReadTooLarge)
    #expect(try handle.read(upToCount: 3) == Data(count: 3))
    #expect(thrown { try handle.truncate(atOffset: .max) } != nil)
    try handle.seek(toOffset: UInt64(Int64.max))
    #expect(thrown { try handle.write(contentsOf: Data([1])) } != nil)
    #expect(try handle.readToEnd() == nil)
    try handle.truncate(atOffset: 0)
    try handle.close()
  }

  @Test func refusesAnAttributeThatIsEqualToOneThatIsThere() throws {
    try fixture.make("/a")
    let key = FileAttributeKey("NSFileExtendedAttributes")
    try files.setAttributes([key: ["\u{E9}": Data([1])]], ofItemAtPath: "/a")
    #expect(
      thrown { try files.setAttributes([key: ["e\u{301}": Data([2])]], ofItemAtPath: "/a") }?.code
        == .fileWriteInvalidFileName)
    let found = try files.attributesOfItem(atPath: "/a")[key] as? [String: Data]
    #expect(found == ["\u{E9}": Data([1])])
  }

  @Test func copiesADirectoryBesideOneWithAnEqualName() throws {
    try files.createDirectory(atPath: "/\u{E9}", withIntermediateDirectories: false)
    try fixture.make("/\u{E9}/a")
    let delegate = Permissive()
    files.delegate = delegate
    try files.copyItem(atPath: "/\u{E9}", toPath: "/e\u{301}")
    #expect(files.fileExists(atPath: "/e\u{301}/a"))
    withExtendedLifetime(delegate) {}
  }
}
