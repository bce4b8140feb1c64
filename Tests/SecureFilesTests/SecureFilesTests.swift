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
    container = try SecureContainer.create(
      at: temporary.url.appendingPathComponent("container"), rawKey: Self.key(), options: Self.options)
  }

  static func key(_ byte: UInt8 = 7) throws -> SecretBytes {
    var key = try SecretBytes(count: 32)
    _ = key.withUnsafeMutableBytes { $0.initializeMemory(as: UInt8.self, repeating: byte) }
    return key
  }

  /// Cheap where it does not matter.
  static var options: Container.Options {
    var options = Container.Options()
    options.passwordHash = PasswordHash.Parameters(passes: 1, memoryKiB: 8)
    options.threadCount = 2
    return options
  }

  func native(_ name: String) -> URL { directory.appendingPathComponent(name) }

  func another(_ name: String) throws -> SecureContainer {
    try SecureContainer.create(at: native(name), rawKey: Self.key(8), options: Self.options)
  }
}

struct SecureContainerTests {
  @Test func opensWithThePassphraseAndNoOther() throws {
    let fixture = try Fixture()
    let url = fixture.native("passphrase")
    let container = try SecureContainer.create(
      at: url, passphrase: SecretBytes(utf8: "correct horse"), options: Fixture.options)
    #expect(container.files.createFile(atPath: "/Zebra", contents: pattern(5)))
    try container.synchronize()
    do {
      _ = try SecureContainer.open(at: url, passphrase: SecretBytes(utf8: "correct horse"))
      Issue.record("two writers")
    } catch SecureFilesError.locked {}
    let reader = try SecureContainer.open(
      at: url, passphrase: SecretBytes(utf8: "correct horse"), mode: .readOnly)
    #expect(reader.files.contents(atPath: "/Zebra") == pattern(5))
    #expect(!reader.files.createFile(atPath: "/Yak", contents: nil))
    try reader.close()
    try container.close()
    #expect(container.files.contents(atPath: "/Zebra") == nil)
    do {
      _ = try container.files.data(atPath: "/Zebra")
      Issue.record("a closed container gives contents")
    } catch SecureFilesError.closed {}
    do {
      _ = try SecureContainer.open(at: url, passphrase: SecretBytes(utf8: "wrong horse"))
      Issue.record("opens with another passphrase")
    } catch SecureFilesError.wrongKey {}
    do {
      _ = try SecureContainer.open(at: url, rawKey: Fixture.key())
      Issue.record("opens with a key")
    } catch SecureFilesError.wrongKey {}
    let again = try SecureContainer.open(at: url, passphrase: SecretBytes(utf8: "correct horse"))
    #expect(again.files.contents(atPath: "/Zebra") == pattern(5))
  }

  @Test func refusesWhatIsNoContainer() throws {
    let fixture = try Fixture()
    do {
      _ = try fixture.another("container")
      Issue.record("a container in the place of another")
    } catch SecureFilesError.alreadyExists {}
    do {
      _ = try SecureContainer.open(at: fixture.directory, rawKey: Fixture.key())
      Issue.record("a directory is no container")
    } catch SecureFilesError.notAContainer {}
    do {
      _ = try SecureContainer.create(at: URL(string: "https://example.com/c")!, rawKey: Fixture.key())
      Issue.record("a container on the web")
    } catch let error as SecureFilesError {
      #expect(error.code == .invalidArgument)
    }
  }

  // MARK: Sending

  @Test func sendsWithProgress() async throws {
    let fixture = try Fixture()
    let receiver = try fixture.another("receiver")
    try fixture.files.createDirectory(atPath: "/Documents", withIntermediateDirectories: false)
    try fixture.files.write(pattern(3 << 20), toPath: "/Documents/large")
    try fixture.files.write(Data(), toPath: "/Documents/empty")
    let progress = Progress(totalUnitCount: 0)
    let receipt = try await fixture.container.send(
      ["/Documents"], to: receiver, sender: "com.example.app", progress: progress)
    #expect(receipt.files.count == 2)
    for file in receipt.files {
      #expect(try receiver.files.data(atPath: file.path) == fixture.files.data(atPath: file.originalPath))
    }
    #expect(progress.fractionCompleted == 1 && progress.isFinished)
    #expect(progress.totalUnitCount == 3 << 20 && progress.completedUnitCount == 3 << 20)
    #expect(progress.userInfo[.fileTotalCountKey] as? Int == 2)
    #expect(progress.userInfo[.fileCompletedCountKey] as? Int == 2)
  }

  @Test func theProgressOfAnEmptyFileEndsAsWell() async throws {
    let fixture = try Fixture()
    let receiver = try fixture.another("receiver")
    try fixture.files.write(Data(), toPath: "/empty")
    let progress = Progress(totalUnitCount: 0)
    _ = try await fixture.container.send(
      ["/empty"], to: receiver, sender: "com.example.app", progress: progress)
    #expect(progress.fractionCompleted == 1 && progress.isFinished)
  }

  @Test func theProgressCancels() async throws {
    let fixture = try Fixture()
    let receiver = try fixture.another("receiver")
    try fixture.files.write(pattern(8 << 20), toPath: "/large")
    // Once before it begins, and once from its first report.
    let cancelled = Progress(totalUnitCount: 0)
    cancelled.cancel()
    for progress in [cancelled, CancellingProgress(totalUnitCount: 0)] {
      do {
        _ = try await fixture.container.send(
          ["/large"], to: receiver, sender: "com.example.app", progress: progress)
        Issue.record("not cancelled")
      } catch SecureFilesError.cancelled {}
      #expect(try receiver.files.contentsOfDirectory(atPath: "/") == [])
      #expect(try receiver.store.info().slabByteCount == 0)
    }
  }

  /// Cancels itself as soon as it is told how much there is to do.
  private final class CancellingProgress: Progress, @unchecked Sendable {
    override var totalUnitCount: Int64 {
      didSet { cancel() }
    }
  }

  @Test func theTaskCancels() async throws {
    let fixture = try Fixture()
    let receiver = try fixture.another("receiver")
    try fixture.files.write(pattern(8 << 20), toPath: "/large")
    let progress = Progress(totalUnitCount: 0)
    let task = Task {
      try await fixture.container.send(
        ["/large"], to: receiver, sender: "com.example.app", progress: progress)
    }
    task.cancel()
    do {
      _ = try await task.value
      Issue.record("not cancelled")
    } catch SecureFilesError.cancelled {}
    #expect(try receiver.files.contentsOfDirectory(atPath: "/") == [])
    #expect(try receiver.store.info().slabByteCount == 0)
    #expect(
      try await !fixture.container.send(["/large"], to: receiver, sender: "com.example.app").files.isEmpty)
  }

  @Test func manyAsyncCallsAtOnceDoNotStarveThePool() async throws {
    let fixture = try Fixture()
    let receiver = try fixture.another("receiver")
    try fixture.files.write(pattern(100_000), toPath: "/file")
    // More than the cooperative pool has threads, by far.
    let receipts = try await withThrowingTaskGroup(of: Receipt.self) { group in
      for i in 0..<16 {
        group.addTask { try await fixture.container.send(["/file"], to: receiver, sender: "app\(i)") }
      }
      return try await group.reduce(into: []) { $0.append($1) }
    }
    #expect(Set(receipts.map(\.directory)).count == 16)
    for receipt in receipts {
      #expect(try receiver.files.data(atPath: receipt.files[0].path) == pattern(100_000))
    }
  }
}

struct SecureFileManagerTests {
  // MARK: Contents

  @Test func createsReplacesAndReadsFiles() throws {
    let fixture = try Fixture()
    let files = fixture.files
    #expect(files.createFile(atPath: "/Zebra", contents: pattern(20_000)))
    #expect(files.contents(atPath: "/Zebra") == pattern(20_000))
    #expect(files.createFile(atPath: "/Zebra", contents: pattern(3)))
    #expect(try files.data(atPath: "Zebra") == pattern(3))
    #expect(files.createFile(atPath: "/Zebra", contents: nil))
    #expect(files.contents(atPath: "/Zebra") == Data())
    // A slice begins elsewhere than at 0.
    #expect(files.createFile(atPath: "/Zebra", contents: pattern(100)[10..<20]))
    #expect(files.contents(atPath: "/Zebra") == Data(pattern(100)[10..<20]))
  }

  @Test func sayNoWithoutAnErrorAsFoundationDoes() throws {
    let fixture = try Fixture()
    let files = fixture.files
    try files.createDirectory(atPath: "/Yaks", withIntermediateDirectories: false)
    #expect(!files.createFile(atPath: "/none/Zebra", contents: pattern(1)))
    #expect(!files.createFile(atPath: "/Yaks", contents: pattern(1)))
    #expect(!files.createFile(atPath: "", contents: pattern(1)))
    #expect(files.contents(atPath: "/none") == nil)
    #expect(files.contents(atPath: "/Yaks") == nil)
    #expect(
      !files.fileExists(atPath: "/none") && !files.fileExists(atPath: "") && !files.fileExists(atPath: "/\0"))
    var isDirectory = true
    #expect(!files.fileExists(atPath: "/none", isDirectory: &isDirectory))
    #expect(isDirectory)
  }

  @Test func errorsAreMatchedByTheirCode() throws {
    let fixture = try Fixture()
    let files = fixture.files
    try files.createDirectory(atPath: "/Yaks", withIntermediateDirectories: false)
    try files.write(pattern(1), toPath: "/Zebra")
    do {
      _ = try files.data(atPath: "/none")
      Issue.record("contents of nothing")
    } catch SecureFilesError.noSuchFile {}
    do {
      try files.write(pattern(1), toPath: "/Yaks")
      Issue.record("a file over a directory")
    } catch SecureFilesError.isADirectory {}
    do {
      try files.moveItem(atPath: "/Zebra", toPath: "/Yaks")
      Issue.record("moved over a directory")
    } catch SecureFilesError.fileExists {}
    do {
      try files.moveItem(atPath: "/Yaks", toPath: "/Yaks/inner")
      Issue.record("moved into itself")
    } catch SecureFilesError.moveIntoItself {}
    do {
      _ = try files.attributesOfItem(atPath: "/Zebra/inner")
      Issue.record("attributes of nothing")
    } catch SecureFilesError.notADirectory {
    } catch {
      Issue.record(error)
    }
    let error = #expect(throws: CocoaError.self) { try files.removeItem(atPath: "/none") }
    #expect(error?.code == .fileNoSuchFile && error?.containerError?.path == "/none")
  }

  // MARK: Looking

  @Test func tellsFilesFromDirectories() throws {
    let fixture = try Fixture()
    let files = fixture.files
    try files.createDirectory(atPath: "/Yaks/inner", withIntermediateDirectories: true)
    try files.write(pattern(1), toPath: "/Yaks/Zebra")
    var isDirectory = false
    #expect(files.fileExists(atPath: "/Yaks", isDirectory: &isDirectory) && isDirectory)
    #expect(files.fileExists(atPath: "/Yaks/Zebra", isDirectory: &isDirectory) && !isDirectory)
    #expect(files.fileExists(atPath: "/"))
    #expect(try files.contentsOfDirectory(atPath: "/Yaks") == ["Zebra", "inner"])
    #expect(try Set(files.subpathsOfDirectory(atPath: "/")) == ["Yaks", "Yaks/Zebra", "Yaks/inner"])
    do {
      _ = try files.contentsOfDirectory(atPath: "/Yaks/Zebra")
      Issue.record("a file has contents")
    } catch SecureFilesError.notADirectory {}
  }

  @Test func attributesHaveFoundationsKeysAndTypes() throws {
    let fixture = try Fixture()
    let files = fixture.files
    #expect(
      files.createFile(
        atPath: "/Zebra", contents: pattern(20_000),
        attributes: [
          .posixPermissions: 0o640, .modificationDate: Date(timeIntervalSince1970: 1_000_000_000.5),
          .type: FileAttributeType.typeDirectory,
        ]))
    let attributes = try files.attributesOfItem(atPath: "/Zebra")
    #expect(attributes[.type] as? FileAttributeType == .typeRegular)
    #expect((attributes[.size] as? NSNumber)?.intValue == 20_000)
    #expect((attributes[.posixPermissions] as? NSNumber)?.intValue == 0o640)
    #expect((attributes[.referenceCount] as? NSNumber)?.intValue == 1)
    #expect((attributes[.systemFileNumber] as? NSNumber)?.uint64Value ?? 0 > 1)
    #expect(attributes[.modificationDate] as? Date == Date(timeIntervalSince1970: 1_000_000_000.5))
    #expect(abs(try #require(attributes[.creationDate] as? Date).timeIntervalSinceNow) < 60)
    try files.createDirectory(
      atPath: "/Yaks", withIntermediateDirectories: false,
      attributes: [.posixPermissions: NSNumber(value: 0o711)])
    let directory = try files.attributesOfItem(atPath: "/Yaks")
    #expect(directory[.type] as? FileAttributeType == .typeDirectory)
    #expect((directory[.posixPermissions] as? NSNumber)?.intValue == 0o711)
  }

  @Test(arguments: [
    Date.distantPast, .distantFuture, Date(timeIntervalSince1970: -1.5), Date(timeIntervalSince1970: 0),
  ])
  func takesEveryDate(date: Date) throws {
    let fixture = try Fixture()
    let files = fixture.files
    try files.write(Data(), toPath: "/Zebra")
    try files.setAttributes([.creationDate: date, .modificationDate: date], ofItemAtPath: "/Zebra")
    let attributes = try files.attributesOfItem(atPath: "/Zebra")
    for key in [FileAttributeKey.creationDate, .modificationDate] {
      let found = try #require(attributes[key] as? Date)
      // Nanoseconds in 64 bits reach from 1677 to 2262: what lies beyond is moved to the border.
      let border = Double(Int64.max) / 1e9
      let expected = max(-border, min(border, date.timeIntervalSince1970))
      #expect(abs(found.timeIntervalSince1970 - expected) < 0.001)
    }
  }

  // MARK: Changing

  @Test func movesCopiesAndRemoves() throws {
    let fixture = try Fixture()
    let files = fixture.files
    try files.createDirectory(atPath: "/Yaks/inner", withIntermediateDirectories: true)
    try files.createDirectory(atPath: "/Yaks/inner", withIntermediateDirectories: true)
    do {
      try files.createDirectory(atPath: "/Yaks", withIntermediateDirectories: false)
      Issue.record("made twice")
    } catch SecureFilesError.fileExists {}
    try files.write(pattern(5), toPath: "/Yaks/inner/Zebra")
    try files.copyItem(atPath: "/Yaks", toPath: "/Emus")
    try files.moveItem(atPath: "/Emus/inner/Zebra", toPath: "/Emus/moved")
    try files.removeItem(atPath: "/Yaks")
    #expect(try Set(files.subpathsOfDirectory(atPath: "/")) == ["Emus", "Emus/inner", "Emus/moved"])
    #expect(files.contents(atPath: "/Emus/moved") == pattern(5))
    do {
      try files.copyItem(atPath: "/Emus/moved", toPath: "/Emus/inner")
      Issue.record("copied over a directory")
    } catch SecureFilesError.fileExists {}
  }

  // MARK: Native files

  @Test func importsAndExportsWithProgress() async throws {
    let fixture = try Fixture()
    let folder = fixture.native("fol der%20é")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    try pattern(2 << 20).write(to: folder.appendingPathComponent("large"))
    try Data().write(to: folder.appendingPathComponent("empty"))
    let importing = Progress(totalUnitCount: 0)
    let receipt = try await fixture.files.importItem(at: folder, toPath: "/Zebra", progress: importing)
    #expect(receipt.fileCount == 2 && receipt.byteCount == 2 << 20)
    #expect(importing.fractionCompleted == 1 && importing.isFinished)
    #expect(fixture.files.contents(atPath: "/Zebra/large") == pattern(2 << 20))
    let exporting = Progress(totalUnitCount: 0)
    let back = fixture.native("back")
    try await fixture.files.exportItem(atPath: "/Zebra", to: back, progress: exporting)
    #expect(exporting.fractionCompleted == 1 && exporting.isFinished)
    #expect(try Data(contentsOf: back.appendingPathComponent("large")) == pattern(2 << 20))
    #expect(try Data(contentsOf: back.appendingPathComponent("empty")) == Data())
    do {
      try await fixture.files.importItem(at: fixture.native("none"), toPath: "/Yak")
      Issue.record("imported nothing")
    } catch SecureFilesError.noSuchFile {}
  }

  @Test func aCancelledImportOrExportLeavesNothing() async throws {
    let fixture = try Fixture()
    let source = fixture.native("source")
    try pattern(4 << 20).write(to: source)
    let cancelled = Progress(totalUnitCount: 0)
    cancelled.cancel()
    do {
      try await fixture.files.importItem(at: source, toPath: "/Yak", progress: cancelled)
      Issue.record("imported")
    } catch SecureFilesError.cancelled {}
    #expect(!fixture.files.fileExists(atPath: "/Yak"))
    try await fixture.files.importItem(at: source, toPath: "/Zebra")
    do {
      try await fixture.files.exportItem(atPath: "/Zebra", to: fixture.native("back"), progress: cancelled)
      Issue.record("exported")
    } catch SecureFilesError.cancelled {}
    #expect(
      try Set(FileManager.default.contentsOfDirectory(atPath: fixture.directory.path)) == [
        "container", "source",
      ])
  }
}
