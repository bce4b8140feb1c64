import EncryptedFile
import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

@testable import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

private let secret = TestSecret.rawKey(7)

/// Everything but contents is stored twice: damage to one copy costs nothing, and is reported.
@Suite struct SecondCopyTests {
  private static func options() -> Container.Options {
    var options = testOptions()
    options.checkpointByteCounts = 1 << 14...1 << 14
    return options
  }

  /// A container with tables and journals, and what is in it; closed, unless `isOpen`.
  private static func victim(isOpen: Bool = false, fileCount: Int = 200) throws -> (
    image: DiskImage, tree: Tree
  ) {
    let io = RecordingIO()
    let container = try Container.create(io, secret, options())
    for i in 0..<fileCount { try container.write(testBytes(100 * (i % 9), seed: UInt64(i)), to: "/file\(i)") }
    container.store.backgroundWork.wait()
    try container.createDirectory("/late")
    try container.write(testBytes(5000, seed: 1), to: "/late/file")
    let tree = try container.tree()
    // On a slow machine the last checkpoint may be so late that another one begins only now.
    container.store.backgroundWork.wait()
    let open = io.image
    try container.close()
    return (isOpen ? open : io.image, tree)
  }

  private static func catalogFiles(_ image: DiskImage) -> [String] {
    ["catalog", "journal", "copy"].flatMap(image.files(in:))
  }

  /// One byte anywhere in the catalog costs nothing, whatever it was, and `verify` tells.
  @Test(arguments: [false, true]) func aDamagedByteCostsNothing(isOpen: Bool) throws {
    let (image, tree) = try Self.victim(isOpen: isOpen)
    let anatomy = try Anatomy(image)
    var random = SplitMix64(seed: 3)
    for path in Self.catalogFiles(image) {
      for _ in 0..<TestEffort.count(8, long: 40) {
        let offset = Int(random.next() % UInt64(image[path]!.count))
        guard anatomy.isLive(offset, of: path) else { continue }
        var damaged = image
        damaged.flipBit(Int(random.next() % 8), at: offset, of: path)
        let verdict = Verdict(damaged, secret, states: [tree])
        #expect(verdict.error == nil && verdict.complaints.isEmpty, "\(path) at \(offset): \(verdict)")
        let findings = verdict.findings.filter { $0.severity == .damage }
        // After a crash, one copy of a record that nothing proves may be torn.
        #expect(
          findings.map(\.kind) == [.copyDamaged]
            || (isOpen && findings.isEmpty && !path.hasPrefix("catalog/")),
          "\(path) at \(offset): \(findings)")
      }
    }
  }

  @Test func aMissingFileCostsNothing() throws {
    let (image, tree) = try Self.victim()
    for path in Self.catalogFiles(image) {
      var damaged = image
      damaged[path] = nil
      let verdict = Verdict(damaged, secret, states: [tree])
      #expect(verdict.error == nil && verdict.complaints.isEmpty && verdict.isDetected, "\(path): \(verdict)")
    }
  }

  @Test func aContainerWithoutItsSecondCopiesIsRepaired() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/container"
    let container = try Container.create(at: path, credential: testCredential(), options: testOptions())
    try container.write([1, 2], to: "/file")
    try container.close()
    removeTree(path + "/copy")
    #expect(try Container.verify(at: path, credential: testCredential()).hasDamage)
    let report = try Container.repair(at: path, credential: testCredential())
    #expect(report.wasWritten)
    #expect(try Container.verify(at: path, credential: testCredential()).findings == [])
    let opened = try Container.open(at: path, credential: testCredential(), mode: .readOnly)
    #expect(try opened.contents(at: "/file") == [1, 2])
  }

  @Test func repairWritesBothCopiesAnew() throws {
    let (image, tree) = try Self.victim()
    for path in Self.catalogFiles(image) {
      var damaged = image
      damaged.flipBit(3, at: 150, of: path)
      let io = RecordingIO(damaged)
      let report = try Container.repair(io: io, credential: secret.credential(), options: Self.options())
      #expect(report.wasWritten && !report.hasLoss && report.findings.map(\.kind) == [.copyDamaged])
      let verdict = Verdict(io.image, secret, states: [tree])
      #expect(verdict.findings.isEmpty && verdict.complaints.isEmpty, "\(path): \(verdict)")
    }
    let io = RecordingIO(image)
    let report = try Container.repair(io: io, credential: secret.credential(), options: Self.options())
    #expect(!report.wasWritten && report.findings.isEmpty)
  }

  /// Giving up what is damaged is not accepting an older state.
  @Test func repairThatAcceptsLossKeepsALaterState() throws {
    let io = RecordingIO()
    try Container.create(io, secret).close()
    let earlier = io.image
    let container = try Container.open(io, secret, mode: .readWrite)
    try container.write([1], to: "/later")
    try container.close()
    var image = io.image
    image["superblock"] = earlier["superblock"]
    let back = RecordingIO(image)
    #expect(throws: ContainerError.self) {
      try Container.repair(
        io: back, credential: secret.credential(), options: Self.options(), acceptsLoss: true)
    }
    #expect(back.image == image)
  }

  /// A sector of a second copy that cannot be read keeps nobody from opening.
  @Test(arguments: [Container.Mode.readOnly, .readWrite])
  func aSecondCopyThatCannotBeReadCostsNothing(mode: Container.Mode) throws {
    let (image, tree) = try Self.victim()
    let io = RecordingIO(image)
    io.setCallFault { name, path, _ in name == "read" && path.hasPrefix("copy/") ? EIO : nil }
    let container = try Container.open(io, secret, mode: mode)
    #expect(try container.tree() == tree)
    try container.close()
  }

  /// After a crash one copy may lack the last records; a backup ends behind them.
  @Test func aBackupOfWhatACrashLeftIsWhole() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/container"
    let container = try Container.create(at: path, credential: testCredential(), options: testOptions())
    for i in 0..<3 { try container.createDirectory("/\(i)") }
    let copy = try container.store.withSuperblock { _, body, _ in
      CopiedFile.names(body.journal!.id, in: .journal)[1]
    }
    let crashed = directory.path + "/crashed"
    for folder in [""] + CatalogFiles.directories { mkdir(crashed + "/" + folder, 0o700) }
    let image = DiskImage(native: path)
    for (name, inode) in image.names { writeNative(crashed + "/" + name, image.contents[inode]!) }
    try container.close()
    let last = try #require(Anatomy.frames(of: image[copy]!).last)
    try #require(truncate(crashed + "/" + copy, last.lowerBound + 10) == 0)
    let opened = try Container.open(
      at: crashed, credential: testCredential(), mode: .readOnly, options: testOptions())
    try opened.backup(to: directory.path + "/backup")
    try opened.close()
    #expect(try Container.verify(at: directory.path + "/backup", credential: testCredential()).findings == [])
    let backup = try Container.open(
      at: directory.path + "/backup", credential: testCredential(), mode: .readOnly)
    #expect(try backup.names(in: "/").count == 3)
  }

  /// The evidence stays: only a repair, or a checkpoint that needs the table, writes it anew.
  @Test func anOrdinaryOpeningReportsAndMendsNothing() throws {
    let (image, _) = try Self.victim()
    let table = try #require(image.files(in: "catalog").max { image[$0]!.count < image[$1]!.count })
    var damaged = image
    damaged.flipBit(3, at: 150, of: table)
    let io = RecordingIO(damaged)
    for _ in 0..<2 {
      let container = try Container.open(io, secret, mode: .readWrite)
      #expect(try container.names(in: "/").count == 201)
      #expect(container.findings.map(\.kind) == [.copyDamaged])
      try container.createDirectory("/late/\(Identifier.random().hex)")
      try container.close()
    }
    #expect(io.image[table] == damaged[table])
  }

  /// With a block whole in neither copy, what stands in other blocks is read, the damage is reported once, and a repair changes nothing.
  @Test func aLostBlockCostsItsRecords() throws {
    let (image, tree) = try Self.victim(fileCount: 2000)
    let table = try #require(image.files(in: "catalog").max { image[$0]!.count < image[$1]!.count })
    let copy = "copy/" + table.dropFirst("catalog/".count)
    // In a block that is none of the first.
    let offset = image[table]!.count / 2
    var damaged = image
    damaged.flipBit(3, at: offset, of: table)
    damaged.flipBit(5, at: offset + 7, of: copy)
    let report = try Container.verify(damaged, secret)
    #expect(report.findings.allSatisfy { $0.kind == .tableDamaged }, "\(report.findings)")
    #expect(report.findings.count { $0.path == nil } == 1)
    let container = try Container.open(damaged, secret)
    let readable = tree.keys.filter { (try? container.attributes(at: $0)) != nil }
    #expect(readable.count > tree.count / 4 && readable.count < tree.count)
    let io = RecordingIO(damaged)
    #expect(throws: ContainerError.self) {
      try Container.repair(io: io, credential: secret.credential(), options: Self.options())
    }
    #expect(io.image[table] == damaged[table] && io.image[copy] == damaged[copy])
  }

  /// Rule 2: a record that a later one proves durable is damage when it is whole in neither copy, also behind a torn one.
  @Test func commitsThatWereProvenDurableAreNotDropped() throws {
    let io = RecordingIO()
    let container = try Container.create(io, secret, testOptions(.full))
    for i in 0..<6 { try container.createDirectory("/\(i)") }
    let names = try container.store.withSuperblock { _, body, _ in
      CopiedFile.names(body.journal!.id, in: .journal)
    }
    let frames = Anatomy.frames(of: io.image[names[0]]!)
    for record in 1..<frames.count {
      var damaged = io.image
      for name in names { damaged.flipBit(0, at: frames[record].lowerBound + 100, of: name) }
      let isProven = record < frames.count - 1
      #expect(
        try Container.openingError(damaged, secret)?.code == (isProven ? .journalDamaged : nil), "\(record)")
      // A repair that is told to gives up that commit and all after it.
      guard isProven else { continue }
      let other = RecordingIO(damaged)
      #expect(throws: ContainerError.self) {
        try Container.repair(io: other, credential: secret.credential(), options: Self.options())
      }
      let report = try Container.repair(
        io: other, credential: secret.credential(), options: Self.options(), acceptsLoss: true)
      #expect(report.hasLoss)
      #expect(try Container.verify(other.image, secret).findings.isEmpty)
      #expect(try Container.open(other.image, secret).names(in: "/").count == record - 1)
    }
    try container.close()
  }

  /// What the superblock says is durable must be there, though the journal was cut where a record ends.
  @Test func aJournalCutBelowTheKnownEndIsDamage() throws {
    let io = RecordingIO()
    let written = try Container.create(io, secret)
    for i in 0..<3 { try written.createDirectory("/\(i)") }
    try written.close()
    let image = io.image
    let container = try Container.open(image, secret)
    let journal = try container.store.withSuperblock { _, body, _ in body.journal }
    let known = try #require(journal)
    try #require(known.knownEnd.record > 0)
    var cut = image
    for name in CopiedFile.names(known.id, in: .journal) {
      let frame = Anatomy.frames(of: image[name]!).last!
      cut[name]!.removeSubrange(frame.lowerBound...)
    }
    #expect(try Container.openingError(cut, secret)?.code == .journalDamaged)
  }

  @Test func openingAfterAnUncleanEndSaysSo() throws {
    let (image, tree) = try Self.victim(isOpen: true)
    let verdict = Verdict(image, secret, states: [tree])
    #expect(verdict.findings.map(\.kind) == [.notClosed] && verdict.complaints.isEmpty, "\(verdict)")
  }

  /// A journal that was made longer without bytes, as by a crash, is not searched through.
  @Test func aSparseTailCostsNoTime() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/container"
    let container = try Container.create(at: path, credential: testCredential(), options: testOptions())
    try container.write([1], to: "/file")
    let names = try container.store.withSuperblock { _, body, _ in
      CopiedFile.names(body.journal!.id, in: .journal)
    }
    let copy = directory.path + "/copy"
    for folder in [""] + CatalogFiles.directories { mkdir(copy + "/" + folder, 0o700) }
    let image = DiskImage(native: path)
    for (name, inode) in image.names { writeNative(copy + "/" + name, image.contents[inode]!) }
    for name in names { try #require(truncate(copy + "/" + name, 1 << 40) == 0) }
    let opened = try Container.open(at: copy, credential: testCredential(), options: testOptions())
    #expect(try opened.contents(at: "/file") == [1])
    #expect(opened.findings.map(\.kind) == [.tornTail, .notClosed])
    try opened.close()
    try container.close()
  }
}
