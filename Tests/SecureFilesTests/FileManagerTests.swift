import Foundation
import SecureFiles
import SodiumPrimitives
import TestSupport
import Testing

/// A manager on a container in a native directory of its own, which goes with it.
private final class Place: Sendable {
  private let directory = TemporaryDirectory()
  let container: SecureContainer
  let files: SecureFileManager

  init(urlStyle: SecureFileManager.URLStyle = .container) throws {
    container = try SecureContainer.create(at: directory.url, rawKey: SecretBytes.random(count: 32))
    files = SecureFileManager(container, urlStyle: urlStyle)
  }

  func write(_ text: String, _ path: String) throws { try files.write(Data(text.utf8), toPath: path) }

  func text(_ path: String) -> String? {
    files.contents(atPath: path).map { String(decoding: $0, as: UTF8.self) }
  }

  func makeDirectory(_ path: String) throws {
    try files.createDirectory(atPath: path, withIntermediateDirectories: true)
  }
}

/// Notes what it is asked, and refuses names.
private final class Witness: SecureFileManagerDelegate {
  var asked: [String] = []
  var refused: Set<String> = []
  var proceeds = false

  private func answer(_ text: String, _ path: String) -> Bool {
    asked.append(text)
    return !refused.contains(URL(filePath: path).lastPathComponent)
  }

  private func goOn(_ error: any Error, _ text: String) -> Bool {
    asked.append("\((error as? CocoaError)?.code.rawValue ?? 0) " + text)
    return proceeds
  }

  func fileManager(_: SecureFileManager, shouldCopyItemAtPath source: String, toPath destination: String)
    -> Bool
  {
    answer("copy \(source) \(destination)", source)
  }
  func fileManager(
    _: SecureFileManager, shouldProceedAfterError error: any Error, copyingItemAtPath source: String,
    toPath destination: String
  ) -> Bool { goOn(error, "\(source) \(destination)") }
  func fileManager(_: SecureFileManager, shouldMoveItemAtPath source: String, toPath destination: String)
    -> Bool
  {
    answer("move \(source) \(destination)", source)
  }
  func fileManager(
    _: SecureFileManager, shouldProceedAfterError error: any Error, movingItemAtPath source: String,
    toPath destination: String
  ) -> Bool { goOn(error, "\(source) \(destination)") }
  func fileManager(_: SecureFileManager, shouldLinkItemAtPath source: String, toPath destination: String)
    -> Bool
  {
    answer("link \(source) \(destination)", source)
  }
  func fileManager(_: SecureFileManager, shouldRemoveItemAtPath path: String) -> Bool {
    answer("remove \(path)", path)
  }
  func fileManager(
    _: SecureFileManager, shouldProceedAfterError error: any Error, removingItemAtPath path: String
  ) -> Bool { goOn(error, path) }
}

private func code(_ body: () throws -> Void) -> CocoaError.Code? {
  do {
    try body()
    return nil
  } catch {
    return (error as? CocoaError)?.code
  }
}

struct FileManagerContentsTests {
  @Test func createsAFileWithItsAttributes() throws {
    let place = try Place()
    let date = Date(timeIntervalSince1970: 100)
    #expect(
      place.files.createFile(
        atPath: "/a", contents: Data("1".utf8),
        attributes: [
          .posixPermissions: UInt16(0o753), .modificationDate: date,
          FileAttributeKey("NSFileExtendedAttributes"): ["user.x": Data("y".utf8)],
        ]))
    let attributes = try place.files.attributesOfItem(atPath: "/a")
    #expect(attributes[.posixPermissions] as? UInt == 0o753)
    #expect(attributes[.modificationDate] as? Date == date)
    #expect(
      attributes[FileAttributeKey("NSFileExtendedAttributes")] as? [String: Data] == [
        "user.x": Data("y".utf8)
      ])
    #expect(!place.files.createFile(atPath: "", contents: nil))
  }

  @Test(arguments: [
    Double.infinity, -.infinity, .nan,
  ])
  func datesThatAreNotFiniteArePassedOver(seconds: Double) throws {
    let place = try Place()
    try place.write("1", "/a")
    let old = try place.files.attributesOfItem(atPath: "/a")[.modificationDate] as? Date
    try place.files.setAttributes(
      [.modificationDate: Date(timeIntervalSinceReferenceDate: seconds)], ofItemAtPath: "/a")
    #expect(try place.files.attributesOfItem(atPath: "/a")[.modificationDate] as? Date == old)
  }

  @Test func everyDateOfTodayComesBackExactly() throws {
    let place = try Place()
    try place.write("1", "/a")
    for i in 0..<50 {
      let date = Date(timeIntervalSinceReferenceDate: 820_000_000.123 + Double(i) * 0.7654321)
      try place.files.setAttributes([.creationDate: date], ofItemAtPath: "/a")
      #expect(try place.files.attributesOfItem(atPath: "/a")[.creationDate] as? Date == date)
    }
  }

  @Test func whatAttributesAnswerCanBeSet() throws {
    let place = try Place()
    try place.write("1", "/a")
    try place.files.setAttributes(place.files.attributesOfItem(atPath: "/a"), ofItemAtPath: "/a")
    #expect(
      code { try place.files.setAttributes([.posixPermissions: 0o600], ofItemAtPath: "/b") }
        == .fileNoSuchFile)
  }

  @Test func comparesContentsAndNotTargets() throws {
    let place = try Place()
    let files = place.files
    for directory in ["/one", "/two"] {
      try place.makeDirectory(directory + "/inner")
      try files.write(Data(repeating: 7, count: 2_500_000), toPath: directory + "/inner/large")
      try files.createSymbolicLink(atPath: directory + "/self", withDestinationPath: ".")
    }
    #expect(files.contentsEqual(atPath: "/one", andPath: "/two"))
    #expect(!files.contentsEqual(atPath: "/one/self", andPath: "/one"))
    #expect(!files.contentsEqual(atPath: "/one/inner", andPath: "/one/inner/large"))
    #expect(!files.contentsEqual(atPath: "/none", andPath: "/none"))
    #expect(!files.contentsEqual(atPath: "", andPath: ""))
    var other = Data(repeating: 7, count: 2_500_000)
    other[2_499_999] = 8
    try files.write(other, toPath: "/two/inner/large")
    #expect(!files.contentsEqual(atPath: "/one", andPath: "/two"))
    #expect(files.contentsEqual(atPath: "/two", andPath: "/two"))
  }

  @Test func answersAccessByTheOwnersBits() throws {
    let place = try Place()
    let files = place.files
    for permissions in [0o000, 0o400, 0o200, 0o100, 0o077, 0o700] {
      #expect(files.createFile(atPath: "/a", contents: nil, attributes: [.posixPermissions: permissions]))
      #expect(files.isReadableFile(atPath: "/a") == (permissions & 0o400 != 0))
      #expect(files.isWritableFile(atPath: "/a") == (permissions & 0o200 != 0))
      #expect(files.isExecutableFile(atPath: "/a") == (permissions & 0o100 != 0))
      #expect(files.isDeletableFile(atPath: "/a"))
    }
    #expect(files.isDeletableFile(atPath: "") && !files.isDeletableFile(atPath: "/"))
    #expect(!files.isDeletableFile(atPath: "/none/a"))
  }
}

struct FileManagerListingTests {
  private func tree() throws -> Place {
    let place = try Place()
    try place.makeDirectory("/d/inner/deep")
    try place.makeDirectory("/d/.hidden")
    for path in ["/d/a", "/d/.hidden/b", "/d/inner/c", "/d/inner/deep/e"] { try place.write("1", path) }
    try place.files.createSymbolicLink(atPath: "/d/link", withDestinationPath: "inner")
    return place
  }

  @Test func enumeratesByPathWithLevelsAndSkipping() throws {
    let files = try tree().files
    let enumerator = try #require(files.enumerator(atPath: "/d"))
    #expect(enumerator.directoryAttributes?[.type] as? FileAttributeType == .typeDirectory)
    var found: [String] = []
    while let path = enumerator.nextObject() as? String {
      found.append("\(enumerator.level) \(path)")
      if path == "inner/deep" {
        enumerator.skipDescendants()
        #expect(
          enumerator.level == 2 && enumerator.fileAttributes?[.type] as? FileAttributeType == .typeDirectory)
      }
    }
    #expect(
      found == ["1 .hidden", "2 .hidden/b", "1 a", "1 inner", "2 inner/c", "2 inner/deep", "1 link"])
    #expect(files.enumerator(atPath: "") == nil)
    #expect(files.enumerator(atPath: "/none")?.allObjects.isEmpty == true)
    #expect(files.enumerator(atPath: "/d/link")?.allObjects.isEmpty == true)
  }

  @Test func readsADirectoryOnlyWhenItComesToIt() throws {
    let place = try tree()
    let enumerator = try #require(place.files.enumerator(atPath: "/d"))
    var found: [String] = []
    for case let path as String in enumerator {
      found.append(path)
      if path == "a" { try place.write("2", "/d/inner/deep/late") }
    }
    #expect(found.contains("inner/deep/late"))
  }

  @Test func enumeratesByURLWithOptions() throws {
    let files = try tree().files
    let root = files.url(forPath: "/d", isDirectory: true)
    func names(_ options: SecureFileManager.DirectoryEnumerationOptions) throws -> [String] {
      try #require(files.enumerator(at: root, includingPropertiesForKeys: nil, options: options))
        .compactMap { ($0 as? URL)?.lastPathComponent }
    }
    #expect(try names(.skipsHiddenFiles) == ["a", "inner", "c", "deep", "e", "link"])
    #expect(try names(.skipsSubdirectoryDescendants) == [".hidden", "a", "inner", "link"])
    #expect(
      try names([.includesDirectoriesPostOrder, .skipsHiddenFiles])
        == ["a", "inner", "c", "deep", "e", "deep", "inner", "link"])
    var failed: [URL] = []
    let missing = files.url(forPath: "/none", isDirectory: true)
    let enumerator = try #require(
      files.enumerator(at: missing, includingPropertiesForKeys: nil) { url, _ in
        failed.append(url)
        return true
      })
    #expect(enumerator.nextObject() == nil && failed == [missing])
  }

  @Test(arguments: [SecureFileManager.URLStyle.container, .file])
  func listsURLsBelowTheOneThatWasGiven(style: SecureFileManager.URLStyle) throws {
    let files = try tree().files
    files.urlStyle = style
    let root = files.url(forPath: "/d", isDirectory: true)
    let found = try files.contentsOfDirectory(
      at: root, includingPropertiesForKeys: [.fileSizeKey], options: [.skipsHiddenFiles])
    #expect(
      found == [
        root.appendingPathComponent("a"), root.appendingPathComponent("inner", isDirectory: true),
        root.appendingPathComponent("link"),
      ])
    let values = try files.resourceValues(forKeys: [.fileSizeKey, .isDirectoryKey, .nameKey], at: found[0])
    #expect(values.fileSize == 1 && values.isDirectory == false && values.name == "a")
    #expect(values.allValues.count == 3)
    #expect(
      code { try files.removeItem(at: URL(string: "https://example.com/d")!) } == .fileWriteUnsupportedScheme)
  }

  @Test func entriesTellWhatAttributesTell() throws {
    let files = try tree().files
    let entries = try files.entries(atPath: "/d")
    #expect(entries.map(\.name) == [".hidden", "a", "inner", "link"])
    for entry in entries {
      let attributes = try files.attributesOfItem(atPath: "/d/" + entry.name)
      #expect(attributes[.size] as? UInt64 == entry.size)
      #expect(attributes[.modificationDate] as? Date == entry.modificationDate)
    }
  }

  @Test func givesFoundationsCodes() throws {
    let files = try tree().files
    #expect(code { _ = try files.contentsOfDirectory(atPath: "/none") } == .fileReadNoSuchFile)
    #expect(code { _ = try files.contentsOfDirectory(atPath: "") } == .fileReadNoSuchFile)
    #expect(code { _ = try files.contentsOfDirectory(atPath: "/d/a") } == .fileReadUnknown)
    #expect(code { _ = try files.destinationOfSymbolicLink(atPath: "/d/a") } == .fileReadUnknown)
    #expect(
      code { try files.createDirectory(atPath: "/d", withIntermediateDirectories: false) }
        == .fileWriteFileExists)
    #expect(
      code { try files.createDirectory(atPath: "/x/y", withIntermediateDirectories: false) }
        == .fileNoSuchFile)
    #expect(
      code { try files.createDirectory(atPath: "", withIntermediateDirectories: true) } == .fileNoSuchFile)
    #expect(code { try files.createSymbolicLink(atPath: "/x", withDestinationPath: "") } == .fileNoSuchFile)
    #expect(code { try files.removeItem(atPath: "/none") } == .fileNoSuchFile)
    #expect(code { try files.copyItem(atPath: "/none", toPath: "/x") } == .fileReadNoSuchFile)
    #expect(code { try files.linkItem(atPath: "", toPath: "") } == .fileReadNoSuchFile)
    #expect(code { try files.copyItem(atPath: "/d/a", toPath: "/none/x") } == .fileNoSuchFile)
    #expect(code { try files.moveItem(atPath: "/none", toPath: "/x") } == .fileNoSuchFile)
    #expect(code { try files.moveItem(atPath: "/none", toPath: "") } == .fileWriteFileExists)
    #expect(code { try files.moveItem(atPath: "/d/a", toPath: "/d/inner") } == .fileWriteFileExists)
    #expect(files.subpaths(atPath: "/none") == nil && files.subpaths(atPath: "/d/a") == [])
  }
}

struct FileManagerCopyingTests {
  @Test func aDelegateIsAskedAboutEachItem() throws {
    let place = try Place()
    let (files, witness) = (place.files, Witness())
    files.delegate = witness
    try place.makeDirectory("/w/d/inner")
    try place.write("1", "/w/d/a")
    try place.write("2", "/w/d/inner/b")
    #expect(files.changeCurrentDirectoryPath("/w"))
    witness.refused = ["inner"]
    try files.copyItem(atPath: "d", toPath: "e")
    #expect(witness.asked == ["copy d e", "copy d/a e/a", "copy d/inner e/inner"])
    #expect(try files.subpathsOfDirectory(atPath: "e") == ["a"])
    witness.asked = []
    try files.moveItem(atPath: "e", toPath: "f")
    #expect(witness.asked == ["move /w/e /w/f"])
    witness.asked = []
    witness.refused = []
    try files.removeItem(atPath: "d")
    #expect(witness.asked == ["remove /w/d", "remove /w/d/a", "remove /w/d/inner", "remove /w/d/inner/b"])
    #expect(try files.contentsOfDirectory(atPath: ".") == ["f"])
  }

  @Test func aDelegateDecidesAboutErrors() throws {
    let place = try Place()
    let (files, witness) = (place.files, Witness())
    files.delegate = witness
    try place.write("1", "/a")
    try place.write("2", "/b")
    #expect(code { try files.copyItem(atPath: "/a", toPath: "/b") } == .fileWriteFileExists)
    #expect(witness.asked == ["copy /a /b", "516 /a /b"])
    witness.proceeds = true
    witness.asked = []
    try files.removeItem(atPath: "none")
    try files.moveItem(atPath: "/none", toPath: "/c")
    #expect(witness.asked == ["remove none", "4 none", "move /none /c", "4 /none /c"])
    // What is to be copied has to be there, whatever the delegate says.
    #expect(code { try files.copyItem(atPath: "/none", toPath: "/c") } == .fileReadNoSuchFile)
    #expect(place.text("/b") == "2")
  }

  @Test func whatADelegateKeepsStays() throws {
    let place = try Place()
    let (files, witness) = (place.files, Witness())
    files.delegate = witness
    witness.refused = ["kept"]
    witness.proceeds = true
    try place.makeDirectory("/d")
    try place.write("1", "/d/kept")
    try place.write("1", "/d/other")
    try files.removeItem(atPath: "/d")
    #expect(try files.subpathsOfDirectory(atPath: "/d") == ["kept"])
    // Two directories are merged when it goes on after the error.
    try place.makeDirectory("/e")
    try place.write("2", "/e/more")
    try files.copyItem(atPath: "/e", toPath: "/d")
    #expect(try files.subpathsOfDirectory(atPath: "/d") == ["kept", "more"])
  }

  @Test func neverCopiesADirectoryIntoItself() throws {
    let place = try Place()
    try place.makeDirectory("/d/inner")
    #expect(code { try place.files.copyItem(atPath: "/d", toPath: "/d/inner/d") } == .fileWriteUnknown)
    let witness = Witness()
    place.files.delegate = witness
    #expect(code { try place.files.copyItem(atPath: "/d", toPath: "/d/inner/d") } == .fileWriteUnknown)
    #expect(try place.files.subpathsOfDirectory(atPath: "/d") == ["inner"])
  }

  @Test(arguments: [false, true])
  func linksATreeFileByFile(hasDelegate: Bool) throws {
    let place = try Place()
    let (files, witness) = (place.files, Witness())
    if hasDelegate { files.delegate = witness }
    try files.createDirectory(
      atPath: "/d", withIntermediateDirectories: false, attributes: [.posixPermissions: 0o711])
    try place.makeDirectory("/d/inner")
    try place.write("1", "/d/inner/a")
    try files.createSymbolicLink(atPath: "/d/link", withDestinationPath: "nowhere")
    try files.linkItem(atPath: "/d", toPath: "/e")
    #expect(try files.subpathsOfDirectory(atPath: "/e").sorted() == ["inner", "inner/a", "link"])
    let (one, other) = (
      try files.attributesOfItem(atPath: "/d/inner/a"), try files.attributesOfItem(atPath: "/e/inner/a")
    )
    #expect(one[.systemFileNumber] as? UInt64 == other[.systemFileNumber] as? UInt64)
    #expect(other[.referenceCount] as? Int == 2)
    #expect(try files.attributesOfItem(atPath: "/e")[.posixPermissions] as? Int == 0o711)
    #expect(try files.destinationOfSymbolicLink(atPath: "/e/link") == "nowhere")
    #expect(witness.asked.count == (hasDelegate ? 4 : 0))
  }

  @Test func neverRemovesOrMovesWhatALinkWithASlashLeadsTo() throws {
    let place = try Place()
    try place.makeDirectory("/d/inner")
    try place.files.createSymbolicLink(atPath: "/link", withDestinationPath: "d")
    for path in ["/link/", "/d/inner/..", "/d/.", "/.."] {
      #expect(code { try place.files.removeItem(atPath: path) } == .fileWriteUnknown)
      #expect(code { try place.files.moveItem(atPath: path, toPath: "/x") } == .fileWriteUnknown)
      #expect(code { try place.files.trashItem(atPath: path) } == .fileWriteUnknown)
    }
    #expect(place.files.fileExists(atPath: "/d/inner"))
  }

  @Test(arguments: [false, true], [false, true])
  func replacesItems(keepsBackup: Bool, newMetadata: Bool) throws {
    let place = try Place()
    let files = place.files
    try place.makeDirectory("/w/a")
    try place.write("old", "/w/a/x")
    try files.setAttributes([.posixPermissions: 0o750], ofItemAtPath: "/w/a")
    #expect(
      files.createFile(atPath: "/b", contents: Data("new".utf8), attributes: [.posixPermissions: 0o604]))
    var options: SecureFileManager.ItemReplacementOptions = []
    if keepsBackup { options.insert(.withoutDeletingBackupItem) }
    if newMetadata { options.insert(.usingNewMetadataOnly) }
    let result = try files.replaceItemAt(
      files.url(forPath: "/w/a", isDirectory: true), withItemAt: files.url(forPath: "/b", isDirectory: false),
      backupItemName: "c", options: options)
    #expect(result == files.url(forPath: "/w/a", isDirectory: false))
    #expect(place.text("/w/a") == "new" && !files.fileExists(atPath: "/b"))
    #expect(place.text("/w/c/x") == (keepsBackup ? "old" : nil))
    #expect(
      try files.attributesOfItem(atPath: "/w/a")[.posixPermissions] as? Int == (newMetadata ? 0o604 : 0o750))
    // What has the backup's name already is not lost.
    try place.write("newer", "/b")
    try place.write("other", "/w/backup")
    #expect(
      code {
        try files.replaceItem(
          atPath: "/w/a", withItemAtPath: "/b", backupItemName: "backup", options: .withoutDeletingBackupItem)
      } == .fileWriteFileExists)
    #expect(place.text("/w/backup") == "other" && place.text("/w/a") == "new")
  }

  @Test func numbersWhatGoesToTheTrash() throws {
    let place = try Place()
    for expected in ["/.Trash/note.txt", "/.Trash/note 2.txt", "/.Trash/note 3.txt"] {
      try place.write(expected, "/note.txt")
      #expect(try place.files.trashItem(atPath: "/note.txt") == expected)
      #expect(place.text(expected) == expected)
    }
    let long = String(repeating: "é", count: 127)
    for _ in 0..<2 {
      try place.write("1", "/" + long)
      let path = try place.files.trashItem(atPath: long)
      #expect(place.files.fileExists(atPath: path))
    }
    #expect(try place.files.trashItem(atPath: "/.Trash/note.txt") == "/.Trash/note.txt")
    #expect(code { try place.files.trashItem(atPath: "/.Trash") } == .fileWriteUnknown)
    var result: NSURL?
    try place.write("1", "/b")
    try place.files.trashItem(
      at: place.files.url(forPath: "/b", isDirectory: false), resultingItemURL: &result)
    #expect(result as URL? == place.files.url(forPath: "/.Trash/b", isDirectory: false))
  }
}

struct FileManagerLocationTests {
  @Test func makesPlacesOnDemand() throws {
    let place = try Place()
    let files = place.files
    let documents = try #require(files.urls(for: .documentDirectory, in: .allDomainsMask).first)
    #expect(try files.path(for: documents) == "/Documents" && !files.fileExists(at: documents))
    let made = try files.url(for: .documentDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
    #expect(made == documents && files.fileExists(at: documents))
    let one = try files.url(
      for: .itemReplacementDirectory, in: .userDomainMask, appropriateFor: made, create: false)
    let two = try files.url(
      for: .itemReplacementDirectory, in: .userDomainMask, appropriateFor: made, create: false)
    #expect(one != two && files.fileExists(at: one) && files.fileExists(at: two))
    #expect(files.urls(for: .applicationDirectory, in: .allDomainsMask).isEmpty)
    #expect(files.createFile(at: files.temporaryDirectory.appendingPathComponent("x"), contents: nil))
    #expect(files.homeDirectory(forUser: "") == nil && files.homeDirectory(forUser: "nobody at all") == nil)
    #expect(files.displayName(atPath: "/x/y/") == "y" && files.displayName(atPath: "/") == "/")
  }

  @Test func tellsHowItemsRelate() throws {
    let place = try Place()
    let files = place.files
    try place.makeDirectory("/a/b")
    try place.makeDirectory("/a/bb")
    try files.createSymbolicLink(atPath: "/link", withDestinationPath: "a/b")
    #expect(try files.relationship(ofDirectoryAtPath: "/a", toItemAtPath: "/link") == .contains)
    #expect(try files.relationship(ofDirectoryAtPath: "/link", toItemAtPath: "/a/b") == .same)
    #expect(try files.relationship(ofDirectoryAtPath: "/a/b", toItemAtPath: "/a/bb") == .other)
    var relationship = SecureFileManager.URLRelationship.other
    #expect(
      code {
        try files.getRelationship(
          &relationship, ofDirectoryAt: files.url(forPath: "/a", isDirectory: true),
          toItemAt: files.url(forPath: "/none", isDirectory: false))
      } == .fileReadNoSuchFile)
  }

  @Test func theContainerIsTheOnlyVolume() throws {
    let place = try Place()
    // The native directory has to be there to the end.
    defer { withExtendedLifetime(place) {} }
    let files = place.files
    let root = files.homeDirectoryForCurrentUser
    #expect(files.mountedVolumeURLs(includingResourceValuesForKeys: nil) == [root])
    let statistics = try files.attributesOfFileSystem(forPath: "/")
    #expect(statistics[.systemSize] as? UInt64 ?? 0 > statistics[.systemFreeSize] as? UInt64 ?? .max)
    #expect(code { _ = try files.attributesOfFileSystem(forPath: "/none") } == .fileReadNoSuchFile)
  }

  @Test func spellsPathsAsTheSystemDoes() throws {
    let files = try Place().files
    let bytes = files.fileSystemRepresentation(withPath: "☃")
    defer { bytes.deallocate() }
    #expect(strlen(bytes) == 3 && files.string(withFileSystemRepresentation: bytes, length: 3) == "☃")
  }
}
