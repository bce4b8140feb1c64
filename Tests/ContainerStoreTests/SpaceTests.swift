import Foundation
import OpenDynamicsTesting
import TestSupport
import Testing

@testable import ContainerStore

/// What a full disk still allows, and what compaction gives back.
struct SpaceTests {
  private static func open(_ io: any BlockIO) throws -> Container {
    try Container.open(io: io, credential: testCredential(), options: testOptions())
  }

  /// A closed container with so many files of 3 KB.
  private static func container(_ count: Int) throws -> DiskImage {
    let io = RecordingIO()
    let container = try Container.create(io: io, credential: testCredential(), options: testOptions())
    try container.createDirectory("/folder")
    for i in 0..<count { try container.write(testBytes(3_000, seed: UInt64(i)), to: "/folder/\(i)") }
    try container.close()
    try open(io).close()  // takes the reserve
    return io.image
  }

  private static func expectIntact(_ io: RecordingIO) throws {
    #expect(try Container.verify(io: io, credential: testCredential()).findings == [])
  }

  // MARK: A full disk

  @Test func filesCanBeRemovedAgainAndAgainWhereOthersFillTheDisk() throws {
    let disk = LimitedDisk(try Self.container(40))
    for i in 0..<40 {
      disk.fill()
      let container = try Self.open(disk.io)
      try container.remove("/folder/\(i)")
      try container.close()
    }
    try Self.expectIntact(disk.io)
  }

  @Test func filesCanBeRemovedAgainAndAgainWhereOthersTakeTheInodes() throws {
    let disk = LimitedDisk(try Self.container(40))
    for i in 0..<40 {
      disk.takeAllInodes()
      let container = try Self.open(disk.io)
      try container.remove("/folder/\(i)")
      try container.close()
    }
    try Self.expectIntact(disk.io)
  }

  /// Names and folders take room and give none back: whatever their number, files can be removed after them.
  @Test func changesThatGiveNothingBackLeaveTheReserve() throws {
    let disk = LimitedDisk(try Self.container(3))
    for i in 0..<30 {
      disk.fill()
      do {
        let container = try Self.open(disk.io)
        defer { try? container.close() }
        switch i % 3 {
        case 0: try container.createDirectory("/new\(i)")
        case 1: try container.createSymbolicLink("/link\(i)", to: "folder")
        default: try container.setAttributes(at: "/folder/2", modified: Int64(i))
        }
      } catch ContainerError.diskFull {
        // Refused, or done with what the closing gives back.
      }
    }
    disk.fill()
    let container = try Self.open(disk.io)
    try container.remove("/folder/0")
    try container.close()
    try Self.expectIntact(disk.io)
  }

  @Test func whatAFullDiskRefusesIsTakenAgainWhenThereIsRoom() throws {
    let disk = LimitedDisk(try Self.container(3))
    let container = try Self.open(disk.io)
    // The first removal needs the reserve.
    try container.remove("/folder/0")
    disk.fill()
    var count = 0
    while (try? container.createDirectory("/new\(count)")) != nil { count += 1 }
    try #require(count < 1000)
    disk.fill(leaving: 1 << 20)
    try container.write([1], to: "/there")
    try container.close()
    try Self.expectIntact(disk.io)
  }

  // MARK: Compaction

  /// A large table with the files, a small one that hides some of them, and journals.
  private static func withHiddenRecords() throws -> RecordingIO {
    let io = RecordingIO(try container(400))
    for session in 0..<9 {
      let container = try open(io)
      if session == 0 { container.store.rewriteCatalogAtClosing() }
      for i in 0..<5 { try container.remove("/folder/\(session * 5 + i)") }
      try container.close()
    }
    return io
  }

  @Test func nothingOfWhatWasRemovedIsLeftInTheCatalog() throws {
    let io = try Self.withHiddenRecords()
    let container = try Self.open(io)
    let before = container.store.catalogState.withLock { $0.snapshot }
    try #require(before.tables.count > 1 || before.overlay.givesBack)
    let files = try container.list("/", recursively: true).map(\.path)
    _ = try container.compact()
    let after = container.store.catalogState.withLock { $0.snapshot }
    #expect(after.tables.count == 1)
    #expect(!after.overlay.givesBack)
    var records = try MergedCursor([MergedCursor.Source(after.tables[0], from: CatalogKey(bytes: []))])
    while let record = try records.next() { #expect(record.value != nil) }
    #expect(try container.list("/", recursively: true).map(\.path) == files)
    // A second time there is nothing to do.
    let log = io.log.count
    _ = try container.compact()
    #expect(!io.log.dropFirst(log).contains { if case .create = $0 { true } else { false } })
    try container.write([1], to: "/new")
    try container.close()
    try Self.expectIntact(io)
    // Nothing that names a removed file is there but the one table and journals that began after it.
    #expect(io.image.names.keys.count { $0.hasPrefix("catalog/") } == 1)
  }

  @Test func anEmptiedContainerBecomesSmall() throws {
    let io = RecordingIO(try Self.container(TestEffort.count(600, long: 6_000)))
    let container = try Self.open(io)
    try container.remove("/folder")
    _ = try container.compact()
    try container.close()
    #expect(io.image.contents.values.reduce(0) { $0 + $1.count } < 700_000)
    try Self.expectIntact(io)
  }

  @Test func compactsOnAFullDisk() throws {
    let disk = LimitedDisk(try Self.withHiddenRecords().image)
    let container = try Self.open(disk.io)
    try container.remove("/folder")
    _ = try container.compact()
    let after = container.store.catalogState.withLock { $0.snapshot }
    #expect(after.tables.count == 1)
    #expect(!after.overlay.givesBack)
    try container.close()
    try Self.expectIntact(disk.io)
  }

  // MARK: Slabs

  /// The loss of a slab costs few files.
  @Test func aLargeFileIsInAsFewSlabsAsItFitsInto() throws {
    let directory = TemporaryDirectory()
    let sizes = [3 << 20, 5 << 20, 70 << 20, 2 << 20, 17, 40 << 20, 5 << 20, 1 << 20]
    try FileManager.default.createDirectory(atPath: directory["files"], withIntermediateDirectories: true)
    for (i, size) in sizes.enumerated() {
      writeNative(directory["files/\(i)"], [UInt8](repeating: UInt8(i), count: size))
    }
    var options = testOptions()
    options.threadCount = 4
    let container = try Container.create(at: directory["c"], credential: testCredential(), options: options)
    try container.importItem(at: directory["files"], to: "/files")
    for (i, size) in sizes.enumerated() {
      let found = try container.store.withSnapshot { records in
        let file = try records.existing(StorePath("/files/\(i)"))
        return Set(try records.extents(file.id, file.inode).map(\.slab))
      }
      #expect(found.count == (size + (63 << 20)) / (63 << 20), "\(size) bytes")
      #expect(try container.contents(at: "/files/\(i)").count == size)
    }
    try container.close()
  }
}
