import EncryptedFile
import Locks
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

/// Parts of the catalog that are whole in neither copy: what older parts say of them does not count.
struct LostBlockTests {
  private static func options() -> Container.Options {
    var options = testOptions()
    options.checkpointByteCounts = 1 << 14...1 << 14
    return options
  }

  /// A container with a large table of all files, and a small one in which many of them have other names.
  private static func renamed(_ count: Int = 400) throws -> (image: DiskImage, tree: Tree) {
    let io = RecordingIO()
    let first = try Container.create(io, secret, options())
    for i in 0..<count {
      if i % 20 == 0 { try first.createDirectory("/\(i / 20)") }
      try first.write(testBytes(100 + i, seed: UInt64(i)), to: "/\(i / 20)/file\(i)")
    }
    first.store.rewriteCatalogAtClosing()
    try first.close()
    let second = try Container.open(
      io: io, credential: secret.credential(), mode: .readWrite, options: options())
    var i = 0
    while try second.store.withSuperblock({ _, body, _ in body.completeGeneration.tables.count }) == 1,
      i < count
    {
      try second.move("/\(i / 20)/file\(i)", to: "/\(i / 20)/other\(i)")
      try second.write(testBytes(7, seed: UInt64(i)), to: "/\(i / 20)/file\(i)")
      second.store.backgroundWork.wait()
      i += 3
    }
    try #require(second.store.withSuperblock { _, body, _ in body.completeGeneration.tables.count } == 2)
    let tree = try second.tree()
    try second.close()
    return (io.image, tree)
  }

  /// Every file that is brought out has the contents of the file that has this name now.
  private static func expectNoStaleNames(_ image: DiskImage, _ tree: Tree, _ what: String) throws -> Int {
    let container = try Container.open(image, secret)
    var damage: [ContainerError] = []
    guard let found = try? container.readableTree(at: "/", skipping: { damage.append($0) }) else { return 0 }
    #expect(found.count < tree.count && !damage.isEmpty, "\(what)")
    for file in found where file.attributes.kind == .file {
      let path = "/" + file.path
      let contents = try? container.contents(at: path)
      #expect(contents == nil || tree[path] == .some(contents), "\(what): \(path)")
      #expect(tree[path] != nil, "\(what): \(path) is a name of before")
    }
    let report = try container.verify()
    #expect(report.hasDamage && report.fileCount <= tree.count, "\(what)")
    try container.close()
    return found.count
  }

  /// The record of a directory is lost with its block: what is in other blocks, and below it, comes out.
  @Test func whatIsBelowADirectoryWithoutARecordComesOut() throws {
    let io = RecordingIO()
    let container = try Container.create(io, secret, Self.options())
    // Inodes come in the order of their numbers: those of the first directories stand in a block of their own.
    for i in 0..<40 { try container.createDirectory("/directory\(i)") }
    for i in 0..<3000 {
      try container.write(testBytes(3, seed: UInt64(i)), to: "/directory\(i % 40)/file\(i)")
    }
    container.store.rewriteCatalogAtClosing()
    let tree = try container.tree()
    try container.close()
    let image = io.image
    let table = try #require(image.files(in: "catalog").first)
    var wasRootLost = false
    var namelessCount = 0
    for offset in stride(from: 10, to: image[table]!.count - 2000, by: 20_000) {
      var damaged = image
      for name in [table, DiskImage.copy(of: table)] { damaged.flipBit(1, at: offset, of: name) }
      guard let opened = try? Container.open(damaged, secret) else { continue }
      var damage: [ContainerError] = []
      guard let found = try? opened.readableTree(at: "/", skipping: { damage.append($0) }) else { continue }
      wasRootLost = wasRootLost || damage.contains { $0.path == "/" }
      // By its name, too, and also the root.
      for path in damage.compactMap(\.path) where path == "/" || tree[path] == .some(nil) {
        #expect(try opened.attributes(at: path)?.kind == .directory, "\(offset): \(path)")
      }
      // With the block of the root's entries, no name is known.
      if found.isEmpty {
        namelessCount += 1
        continue
      }
      // One block of at most 64 KiB has no more than this.
      #expect(found.count > tree.count / 2, "\(offset): \(found.count)")
      let directory = TemporaryDirectory()
      let receipt = try opened.exportItem(
        "/", to: directory["out"], control: BulkControl(skipping: { damage.append($0) }))
      #expect(receipt.fileCount > tree.count / 2 - 100, "\(offset)")
      for file in found where file.attributes.kind == .file {
        guard let bytes = readNative(directory["out/" + file.path]) else { continue }
        #expect(tree["/" + file.path] == .some(bytes))
      }
      try opened.close()
    }
    #expect(wasRootLost && namelessCount <= 4)
  }

  /// A file whose extents are all in the journal is whole, whatever its keys lie in.
  @Test func aFileWithAllOfItsExtentsIsWhole() throws {
    let (io, table) = try Self.closed()
    let second = try Container.open(
      io: io, credential: secret.credential(), mode: .readWrite, options: testOptions())
    let log = try second.openFile("/log", .readWrite, create: true)
    var contents: [UInt8] = []
    for i in 0..<12 {
      let part = testBytes(5_000, seed: UInt64(i))
      _ = try part.withUnsafeBytes { try log.append($0) }
      try log.synchronize()
      contents += part
    }
    try log.close()
    let isThere = try second.tree()
    #expect(isThere["/log"] == .some(contents))
    var damaged = io.image
    for name in [table, DiskImage.copy(of: table)] { damaged.flipBit(1, at: 60, of: name) }
    let opened = try Container.open(damaged, secret)
    #expect(try opened.contents(at: "/log") == contents)
    #expect(throws: ContainerError.self) { try opened.contents(at: "/old3") }
    try opened.close()
  }

  /// What a commit that was not synced has before it is asked of the table, which may have lost that.
  @Test func aLostBlockKeepsNoCommitFromBeingChecked() throws {
    let (io, table) = try Self.closed()
    let second = try Container.open(
      io: io, credential: secret.credential(), mode: .readWrite, options: testOptions(.none))
    let late = testBytes(5_000, seed: 1)
    try second.write(late, to: "/late")
    try second.write(testBytes(9, seed: 2), to: "/old7")
    try second.store.flush(durably: false)
    var damaged = io.image
    try second.close()
    for name in [table, DiskImage.copy(of: table)] { damaged.flipBit(1, at: 60, of: name) }
    let opened = try Container.open(damaged, secret)
    #expect(try opened.contents(at: "/late") == late)
    try opened.close()
  }

  /// The other blocks tell what a footer told.
  @Test func aLostFooterCostsNothing() throws {
    let (image, tree) = try Self.renamed()
    for (table, footer) in try Anatomy(image).footers {
      var damaged = image
      for name in [table, DiskImage.copy(of: table)] { damaged.flipBit(1, at: footer + 30, of: name) }
      for mode in [Container.Mode.readOnly, .readWrite] {
        let io = RecordingIO(damaged)
        let opened = try Container.open(io, secret, mode: mode)
        #expect(try opened.tree() == tree)
        if mode == .readWrite { try opened.write([1], to: "/new") }
        try opened.close()
        if mode == .readWrite { #expect(try Container.open(io, secret).contents(at: "/new") == [1]) }
      }
      let verdict = try Container.verify(damaged, secret)
      #expect(verdict.findings.map(\.kind) == [.copyDamaged], "\(verdict.findings)")
      let io = RecordingIO(damaged)
      let report = try Container.repair(io: io, credential: secret.credential(), options: testOptions())
      #expect(report.wasWritten && !report.hasLoss)
      #expect(try Container.open(io, secret).tree() == tree)
      #expect(try Container.verify(io.image, secret).findings.isEmpty)
    }
  }

  enum Loss: CaseIterable {
    case garbage, missing, index

    fileprivate func happen(to table: String, in image: inout DiskImage) throws {
      let footer = try #require(Anatomy(image).footers[table])
      for path in [table, DiskImage.copy(of: table)] {
        switch self {
        case .garbage: image[path] = [1, 2, 3]
        case .missing: image[path] = nil
        case .index: image.flipBit(1, at: footer - 20, of: path)
        }
      }
    }
  }

  /// A table that is lost as a whole costs what no newer one and no journal has. `repair` gives it up where an older one stands in:
  /// without the oldest, it would remove the slabs of nearly everything.
  @Test(arguments: Loss.allCases) func aTableThatIsLostCostsWhatItHadAlone(loss: Loss) throws {
    let disk = RecordingIO(try Self.renamed().image)
    let writer = try Container.open(disk, secret, mode: .readWrite)
    try writer.write([1, 2], to: "/last")
    let (image, tree) = (disk.image, try writer.tree())
    try writer.close()
    let tables = image.files(in: "catalog").sorted { image[$0]!.count < image[$1]!.count }
    try #require(tables.count > 1)
    for table in tables {
      var damaged = image
      try loss.happen(to: table, in: &damaged)
      let opened = try Container.open(damaged, secret)
      var found = 0
      for file in try opened.readableTree(at: "/", skipping: { _ in }) where file.attributes.kind == .file {
        let path = "/" + file.path
        guard let bytes = try? opened.contents(at: path) else { continue }
        #expect(bytes == tree[path], "\(path)")
        found += 1
      }
      let directory = TemporaryDirectory()
      #expect(try opened.backup(to: directory["backup"]).findings.contains { $0.kind == .tableDamaged })
      try opened.close()
      #expect(found > 0 && found < tree.count, "\(found)")
      expectError(.tableDamaged) { try Container.open(damaged, secret, mode: .readWrite) }
      let findings = try Container.verify(damaged, secret).findings
      #expect(findings.contains { $0.kind == .tableDamaged })
      // A lost record may name the slab.
      #expect(!findings.contains { $0.kind == .unknownFile }, "\(findings)")
      let io = RecordingIO(damaged)
      func repair(acceptsLoss: Bool) throws -> RepairReport {
        try Container.repair(
          io: io, credential: secret.credential(), options: Self.options(), acceptsLoss: acceptsLoss)
      }
      expectError(.tableDamaged) { try repair(acceptsLoss: false) }
      #expect(io.image == damaged)
      if table == tables.last {
        expectError(.tableDamaged) { try repair(acceptsLoss: true) }
        #expect(io.image == damaged)
        continue
      }
      #expect(try repair(acceptsLoss: true).hasLoss)
      #expect(try Container.verify(io.image, secret).findings.isEmpty)
      let left = try Container.open(io, secret).tree()
      #expect(left.keys.contains { $0.hasPrefix("/\(Salvage.folderName)/") })
      #expect(left.values.compactMap { $0 }.count > found)
    }
  }

  /// A table that the system refuses to read may be whole.
  @Test func repairDoesNotGiveUpATableThatIsNotRead() throws {
    let image = try Self.renamed().image
    let oldest = try #require(image.files(in: "catalog").max { image[$0]!.count < image[$1]!.count })
    let io = RecordingIO(image)
    io.setCallFault { name, path, _ in
      name == "read" && (path == oldest || path == DiskImage.copy(of: oldest)) ? EIO : nil
    }
    for acceptsLoss in [false, true] {
      expectError(.ioFailed) {
        try Container.repair(
          io: io, credential: secret.credential(), options: Self.options(), acceptsLoss: acceptsLoss)
      }
    }
    #expect(io.image == image)
  }

  /// The table of a container's first state names no slab: journals have everything.
  @Test(arguments: Loss.allCases) func aLostFirstTableCostsNothing(loss: Loss) throws {
    let io = RecordingIO()
    let container = try Container.create(io, secret, testOptions())
    for i in 0..<10 { try container.write(testBytes(100, seed: UInt64(i)), to: "/\(i)") }
    let tree = try container.tree()
    var damaged = io.image
    try container.close()
    try loss.happen(to: try #require(damaged.files(in: "catalog").first), in: &damaged)
    let opened = try Container.open(damaged, secret)
    let found = try opened.readableTree(at: "/", skipping: { _ in })
    #expect(found.count == 10)
    for file in found { #expect(try opened.contents(at: "/" + file.path) == tree["/" + file.path]) }
    try opened.close()
    let other = RecordingIO(damaged)
    let report = try Container.repair(
      io: other, credential: secret.credential(), options: Self.options(), acceptsLoss: true)
    #expect(report.wasWritten)
    #expect(try Container.open(other, secret).tree() == tree)
    #expect(try Container.verify(other.image, secret).findings.isEmpty)
  }

  /// Inside a container a copy has the attributes of its original. One lost block does not keep every file from being copied, and no
  /// file from being copied to another container, where its contents are known.
  @Test func copiesAreMadeBesideALostBlock() throws {
    let io = RecordingIO()
    let container = try Container.create(io, secret, Self.options())
    for i in 0..<100 {
      try container.write(testBytes(10, seed: UInt64(i)), to: "/\(i)")
      try container.setExtendedAttributes(["user.a": testBytes(1500, seed: UInt64(i))], at: "/\(i)")
    }
    container.store.rewriteCatalogAtClosing()
    try container.close()
    let table = try #require(io.image.files(in: "catalog").first)
    var attributeLosses = 0
    for offset in stride(from: 100, to: io.image[table]!.count - 3000, by: 25_000) {
      var damaged = io.image
      for name in [table, DiskImage.copy(of: table)] { damaged.flipBit(1, at: offset, of: name) }
      guard let opened = try? Container.open(RecordingIO(damaged), secret, mode: .readWrite) else { continue }
      let other = try Container.create(RecordingIO(), secret, Self.options())
      try other.createDirectory("/copies")
      try opened.createDirectory("/copies")
      for i in 0..<100 where (try? opened.contents(at: "/\(i)")) != nil {
        try opened.copy("/\(i)", into: other, to: "/copies/\(i)")
        #expect(try other.contents(at: "/copies/\(i)") == testBytes(10, seed: UInt64(i)))
        let attributes = try? opened.extendedAttributes(at: "/\(i)")
        if attributes == nil { attributeLosses += 1 }
        let isCopied = (try? opened.copy("/\(i)", to: "/copies/\(i)")) != nil
        #expect(isCopied == (attributes != nil), "\(i), \(offset)")
        if isCopied { #expect(try opened.extendedAttributes(at: "/copies/\(i)") == attributes) }
      }
      try opened.close()
      try other.close()
    }
    #expect(attributeLosses > 0)
  }

  /// A bad sector of a data block near the index, in both copies, does not keep the index from being found.
  @Test func aLostFooterBesideABadSectorCostsTheSector() throws {
    let io = RecordingIO()
    let container = try Container.create(io, secret, testOptions())
    let name = String(repeating: "a long name ", count: 18)
    for i in 0..<600 { try container.write([], to: "/\(name)\(i)") }
    container.store.rewriteCatalogAtClosing()
    try container.close()
    let (table, footer) = try #require(try Anatomy(io.image).footers.first)
    try #require(footer > 100_000)
    let names = [table, DiskImage.copy(of: table)]
    var damaged = io.image
    for name in names { damaged.flipBit(1, at: footer + 30, of: name) }
    let hooked = HookedIO(RecordingIO(damaged))
    for name in names { hooked.refuseReads(of: name, at: UInt64(footer - 30_000)) }
    let opened = try Container.open(
      io: hooked, credential: secret.credential(), mode: .readOnly, options: testOptions())
    var complaints = 0
    let found = try opened.readableTree(at: "/", skipping: { _ in complaints += 1 })
    #expect(complaints > 0 && found.count > 300 && found.count < 600, "\(found.count)")
    try opened.close()
  }

  /// A new table that cannot be read back is no damage of the container: it is removed again.
  @Test func aNewTableThatCannotBeReadLeavesNoFinding() throws {
    let io = RecordingIO()
    let container = try Container.create(io, secret, testOptions())
    for i in 0..<50 { try container.write(testBytes(100, seed: UInt64(i)), to: "/file\(i)") }
    let tree = try container.tree()
    let before = Set(io.image.files(in: "catalog"))
    container.store.rewriteCatalogAtClosing()
    io.setCallFault { name, path, _ in
      name == "read" && path.count > 20 && !path.hasPrefix("journal/") && !before.contains(path) ? EIO : nil
    }
    let error = #expect(throws: ContainerError.self) { try container.close() }
    #expect((error?.cause as? IOFailure)?.errno == EIO, "\(String(describing: error))")
    #expect(container.store.log.findings.isEmpty, "\(container.store.log.findings)")
    io.setCallFault(nil)
    #expect(try Container.open(io, secret).tree() == tree)
  }

  /// A closed container with one table of fifty files.
  private static func closed() throws -> (io: RecordingIO, table: String) {
    let io = RecordingIO()
    let container = try Container.create(io, secret, options())
    for i in 0..<50 { try container.write(testBytes(100, seed: UInt64(i)), to: "/old\(i)") }
    container.store.rewriteCatalogAtClosing()
    try container.close()
    return (io, try #require(io.image.files(in: "catalog").first))
  }

  @Test func noFileComesOutUnderANameItNoLongerHas() throws {
    let (image, tree) = try Self.renamed()
    let tables = image.files(in: "catalog").sorted { image[$0]!.count < image[$1]!.count }
    #expect(tables.count == 2)
    var foundCount = 0
    for table in tables {
      for offset in stride(from: 10, to: image[table]!.count - 300, by: 4000) {
        var damaged = image
        for name in [table, DiskImage.copy(of: table)] { damaged.flipBit(1, at: offset, of: name) }
        guard let container = try? Container.open(damaged, secret) else { continue }
        try container.close()
        foundCount += try Self.expectNoStaleNames(
          damaged, tree, "\(table == tables[0] ? "newer" : "older") table at \(offset)")
      }
    }
    #expect(foundCount > 0)
  }
}

/// A commit that was not synced counts, unless a segment of it shows that it never was durable.
struct UnsyncedCommitTests {
  private static let late = ["/first", "/second", "/third"]

  /// A file that is durable and three in commits that were not synced, with the place of each of the three.
  private static func victim() throws -> (image: DiskImage, tree: Tree, places: [String: Extent]) {
    let io = RecordingIO()
    let container = try Container.create(io, secret, testOptions(.none))
    try container.write(testBytes(9_000, seed: 9), to: "/early")
    try container.store.flush(durably: true)
    for (i, path) in late.enumerated() { try container.write(testBytes(300_000, seed: UInt64(i)), to: path) }
    try container.store.flush(durably: false)
    let tree = try container.tree()
    let image = io.image
    let places = try Dictionary(uniqueKeysWithValues: late.map { ($0, try container.extents(of: $0)[0]) })
    try container.close()
    return (image, tree, places)
  }

  /// Opens the image while the system does not read one of the sectors at a place.
  private static func open(
    _ image: DiskImage, refusing place: Extent, _ mode: Container.Mode
  ) throws -> Container {
    let io = HookedIO(RecordingIO(image))
    io.refuseReads(of: SlabStore.name(place.slab), at: place.offset + 40_000)
    return try Container.open(io: io, credential: secret.credential(), mode: mode, options: testOptions())
  }

  @Test(arguments: late, [Container.Mode.readOnly, .readWrite])
  func whatIsNotReadIsNoEvidence(path: String, mode: Container.Mode) throws {
    let (image, tree, places) = try Self.victim()
    let container = try Self.open(image, refusing: places[path]!, mode)
    for (other, contents) in tree where other != path {
      #expect(try container.contents(at: other) == contents)
    }
    #expect(throws: ContainerError.self) { try container.contents(at: path) }
    try container.close()
  }

  /// Rewrites two segments of "/early", and stores "/late", in commits that are not synced.
  private static func changeWithoutSync(_ container: Container) throws {
    let file = try container.openFile("/early", .readWrite)
    try file.write([UInt8](repeating: 7, count: 20_000), at: 100_000)
    try file.close()
    try container.write([1], to: "/late")
    try container.store.flush(durably: false)
  }

  /// Segments that were durable before are no evidence against a commit that keeps it in one run with what is new.
  @Test(arguments: [Container.Mode.readOnly, .readWrite])
  func whatWasThereBeforeIsNoEvidence(mode: Container.Mode) throws {
    let io = RecordingIO()
    let container = try Container.create(io, secret, testOptions(.none))
    try container.write(testBytes(300_000, seed: 9), to: "/early")
    try container.store.flush(durably: true)
    let early = try #require(try container.extents(of: "/early").first)
    try Self.changeWithoutSync(container)
    let left = try container.extents(of: "/early")
    #expect(left.contains { $0.slab == early.slab && $0.offset == early.offset && $0.count < early.count })
    var image = io.image
    image.flipBit(0, at: Int(early.offset) + 5, of: SlabStore.name(early.slab))
    try container.close()
    let opened = try Container.open(RecordingIO(image), secret, mode: mode)
    #expect(try opened.contents(at: "/late") == [1])
    let reader = try opened.openFile("/early", .read)
    #expect(try reader.read(20_000, at: 100_000) == [UInt8](repeating: 7, count: 20_000))
    try reader.close()
    try opened.close()
  }

  /// Where the table is lost that could tell what a file had before, nobody knows which of its segments are new.
  @Test(arguments: [false, true]) func nothingIsNewBesideALostTable(isLost: Bool) throws {
    let io = RecordingIO()
    let container = try Container.create(io, secret, testOptions(.none))
    try container.write(testBytes(300_000, seed: 9), to: "/early")
    container.store.rewriteCatalogAtClosing()
    try container.close()
    let writer = try Container.open(
      io: io, credential: secret.credential(), mode: .readWrite, options: testOptions(.none))
    try Self.changeWithoutSync(writer)
    let extents = try writer.extents(of: "/early")
    var image = io.image
    try writer.close()
    let new = try #require(extents.first { $0.start == 6 })
    image.flipBit(0, at: Int(new.offset) + 5, of: SlabStore.name(new.slab))
    if isLost {
      let table = try #require(image.files(in: "catalog").first)
      for name in [table, DiskImage.copy(of: table)] { image[name] = [1, 2, 3] }
    }
    let opened = try Container.open(image, secret)
    let found = try opened.readableTree(at: "/", skipping: { _ in })
    #expect(found.contains { $0.path == "late" } == isLost)
    try opened.close()
  }

  @Test func whatIsNotThereIsEvidenceBesideWhatIsNotRead() throws {
    let (image, tree, places) = try Self.victim()
    var torn = image
    let third = places["/third"]!
    torn.flipBit(0, at: Int(third.offset) + 5, of: SlabStore.name(third.slab))
    let container = try Self.open(torn, refusing: places["/first"]!, .readOnly)
    #expect(try container.tree() == ["/early": tree["/early"]!])
    try container.close()
  }
}

/// What the system refuses to read of one copy, with any error, is read from the other.
struct RefusedReadTests {
  /// Bad sectors, and what file systems say of blocks and inodes whose checksums are wrong.
  private static let codes: [Int32] = [EIO, EUCLEAN, EBADMSG, ENODATA, EOVERFLOW, EREMOTEIO, ESTALE, EBADF]
  private static let calls = ["open for reading", "read", "fstat"]

  private static func victim(isOpen: Bool = false) throws -> (image: DiskImage, tree: Tree) {
    let io = RecordingIO()
    var options = testOptions()
    options.checkpointByteCounts = 1 << 14...1 << 14
    let container = try Container.create(io, secret, options)
    for i in 0..<100 { try container.write(testBytes(100 * (i % 9), seed: UInt64(i)), to: "/file\(i)") }
    container.store.backgroundWork.wait()
    try container.write(testBytes(5000, seed: 1), to: "/late")
    let tree = try container.tree()
    container.store.backgroundWork.wait()
    let open = io.image
    try container.close()
    return (isOpen ? open : io.image, tree)
  }

  private static func refuse(
    _ io: RecordingIO, _ code: Int32, _ calls: [String], _ concerns: @escaping @Sendable (String) -> Bool
  ) {
    io.setCallFault { name, path, _ in calls.contains(name) && concerns(path) ? code : nil }
  }

  @Test(arguments: codes, [false, true]) func ofOneCopyCostsNothing(code: Int32, isOpen: Bool) throws {
    let (image, tree) = try Self.victim(isOpen: isOpen)
    for call in Self.calls {
      for folder in ["catalog", "journal", "copy"] {
        // Behind the last record of one copy, the other could have another one.
        if isOpen, folder != "catalog", call == "read" { continue }
        let names = Set(image.files(in: folder))
        let what = "\(call) in \(folder)"
        for mode in [Container.Mode.readOnly, .readWrite] {
          let io = RecordingIO(image)
          Self.refuse(io, code, [call, "open"]) { names.contains($0) }
          let container = try Container.open(io, secret, mode: mode)
          #expect(try container.tree() == tree, "\(what)")
          if mode == .readWrite { try container.write([1], to: "/new") }
          try container.close()
        }
        let io = RecordingIO(image)
        Self.refuse(io, code, [call]) { names.contains($0) }
        let report = try Container.verify(io: io, credential: secret.credential(), options: testOptions())
        if call != "fstat" { #expect(report.hasDamage, "\(what)") }
        #expect(report.fileCount == 101, "\(what)")
        let repaired = try Container.repair(io: io, credential: secret.credential(), options: testOptions())
        if call != "fstat" { #expect(repaired.wasWritten, "\(what)") }
        io.setCallFault(nil)
        #expect(try Container.open(io, secret).tree() == tree, "\(what)")
        if repaired.wasWritten { #expect(try Container.verify(io.image, secret).findings.isEmpty, "\(what)") }
      }
    }
  }

  @Test(arguments: codes, [0, 1]) func ofOneSlotOfTheSuperblockCostsNothing(code: Int32, slot: Int) throws {
    for isOpen in [false, true] {
      let (image, tree) = try Self.victim(isOpen: isOpen)
      let io = RecordingIO(image)
      let count = Guarded(0)
      let isRefusing = Guarded(true)
      io.setCallFault { name, path, _ in
        guard name == "read", path == "superblock" else { return nil }
        // Both slots are read in turns.
        let number = count.withLock { count in
          defer { count += 1 }
          return count
        }
        return isRefusing.withLock { $0 } && number % 2 == slot ? code : nil
      }
      let reader = try Container.open(io, secret)
      #expect(try reader.tree() == tree)
      #expect(reader.findings.contains { $0.kind == .superblockSlotTorn })
      #expect(try reader.verify().hasDamage)
      try reader.close()
      let writer = try Container.open(io, secret, mode: .readWrite)
      try writer.write([1], to: "/new")
      isRefusing.withLock { $0 = false }
      try writer.close()
      io.setCallFault(nil)
      #expect(try Container.verify(io.image, secret).findings.isEmpty)
      #expect(try Container.open(io, secret).contents(at: "/new") == [1])
    }
  }

  /// `verify` and `repair` say what they tried when nothing could be read.
  @Test(arguments: codes) func ofBothCopiesIsReported(code: Int32) throws {
    let (image, _) = try Self.victim(isOpen: true)
    for names in [
      ["superblock"], image.files(in: "catalog") + image.files(in: "copy"),
      image.files(in: "journal") + image.files(in: "copy"),
    ] {
      let io = RecordingIO(image)
      Self.refuse(io, code, ["open for reading", "read"]) { names.contains($0) }
      let report = try Container.verify(io: io, credential: secret.credential(), options: testOptions())
      let finding = try #require(report.findings.first { $0.severity == .damage })
      #expect([.unreadable, .tableDamaged, .journalDamaged].contains(finding.kind))
      #expect(
        names.contains { finding.detail.contains($0) } && finding.detail.contains("\(code)"), "\(finding)")
      let error = #expect(throws: ContainerError.self) {
        try Container.repair(io: io, credential: secret.credential(), options: testOptions())
      }
      #expect(error?.findingKind == finding.kind, "\(String(describing: error))")
      #expect(io.image == image)
    }
  }

  /// A record that the second copy may not have got yet: it is not taken for one that was never written.
  @Test func behindTheLastRecordIsDamage() throws {
    let (image, tree) = try Self.victim(isOpen: true)
    let io = RecordingIO(image)
    Self.refuse(io, EIO, ["read"]) { $0.hasPrefix("journal/") }
    expectError(.journalDamaged) { try Container.open(io, secret) }
    let report = try Container.repair(
      io: io, credential: secret.credential(), options: testOptions(), acceptsLoss: true)
    #expect(report.hasLoss)
    io.setCallFault(nil)
    #expect(try Container.open(io, secret).tree() == tree)
  }

  /// A copy that left the lock file out, on a disk that takes no new one: whoever reads says that nobody would notice.
  @Test(arguments: codes + [ENOSPC, EDQUOT, EROFS, EACCES])
  func ofALockKeepsNobodyFromReading(code: Int32) throws {
    let (image, tree) = try Self.victim()
    for isThere in [false, true] {
      let io = RecordingIO(image)
      if !isThere { try io.remove("lock") }
      Self.refuse(io, code, isThere ? ["open for reading", "open"] : ["open"]) { $0 == "lock" }
      let container = try Container.open(io, secret)
      #expect(try container.tree() == tree)
      #expect(container.findings.map(\.kind) == [.notLocked] && container.findings[0].detail.contains("lock"))
      try container.close()
      #expect(throws: ContainerError.self) { try Container.open(io, secret, mode: .readWrite) }
    }
  }

  /// Between looking for the lock file and making it, another process has made it.
  @Test(arguments: [Container.Mode.readOnly, .readWrite])
  func ofALockThatAnotherHasMadeCostsNothing(mode: Container.Mode) throws {
    let (image, tree) = try Self.victim()
    let io = RecordingIO(image)
    io.hideOnce("lock")
    let container = try Container.open(io, secret, mode: mode)
    #expect(try container.tree() == tree && container.findings.isEmpty)
    try container.close()
  }

  /// Behind the last record of the other copy there may have been more: whoever opens such a container is told.
  @Test func ofACopyThatIsMissingAfterACrashIsReported() throws {
    let (image, tree) = try Self.victim(isOpen: true)
    let current = try #require(Anatomy(image).journals.first)
    for name in [current, DiskImage.copy(of: current)] {
      var damaged = image
      damaged[name] = nil
      let container = try Container.open(damaged, secret)
      #expect(try container.tree() == tree)
      let findings = container.findings.filter { $0.severity == .damage }
      #expect(findings.contains { $0.kind == .copyDamaged && $0.detail.contains(name) }, "\(findings)")
      try container.close()
    }
    #expect(try Container.open(image, secret).findings.allSatisfy { $0.severity == .note })
  }

  /// A slab that is damaged as a whole costs its files, and takes nothing more.
  @Test(arguments: codes) func ofASlabCostsItsFiles(code: Int32) throws {
    let (image, tree) = try Self.victim()
    let io = RecordingIO(image)
    Self.refuse(io, code, ["open for reading", "open", "read"]) { image.files(in: "slab").contains($0) }
    let container = try Container.open(io, secret, mode: .readWrite)
    let error = #expect(throws: ContainerError.self) { try container.contents(at: "/late") }
    #expect(error?.isDamage == true)
    try container.write([1, 2], to: "/new")
    #expect(try container.contents(at: "/new") == [1, 2])
    #expect(try container.contents(at: "/file0").isEmpty && tree["/file0"] != nil)
    try container.close()
    #expect(
      try Container.verify(io: io, credential: secret.credential(), options: testOptions()).findings
        .contains { $0.kind == .segmentDamaged })
    io.setCallFault(nil)
    #expect(try Container.verify(io.image, secret).findings.isEmpty)
  }

  @Test(arguments: codes) func ofADirectoryKeepsNobodyFromReading(code: Int32) throws {
    let (image, tree) = try Self.victim(isOpen: true)
    for directory in CatalogFiles.directories {
      let io = RecordingIO(image)
      Self.refuse(io, code, ["opendir"]) { $0 == directory }
      #expect(try Container.open(io, secret).tree() == tree, "\(directory)")
      let report = try Container.verify(io: io, credential: secret.credential(), options: testOptions())
      #expect(report.fileCount == 101, "\(directory)")
    }
  }

  /// What one copy lacks comes from the other, so that the backup is whole.
  @Test(arguments: codes) func ofOneCopyIsNotInABackup(code: Int32) throws {
    let (image, tree) = try Self.victim()
    for call in ["open for reading", "read"] {
      for folder in ["catalog", "journal", "copy"] {
        let directory = TemporaryDirectory()
        let io = RecordingIO(image)
        Self.refuse(io, code, [call]) { $0.hasPrefix(folder + "/") }
        let container = try Container.open(io, secret)
        try container.backup(to: directory["backup"])
        try container.close()
        let backup = try Container.open(
          at: directory["backup"], credential: testCredential(), mode: .readOnly, options: testOptions())
        #expect(try backup.verify().findings.isEmpty && backup.tree() == tree, "\(call) in \(folder)")
        try backup.close()
      }
    }
  }

  /// What names the slabs is lost: the backup has all of them, and says what it does not have.
  @Test func aBackupHasTheSlabsThatNoCounterNames() throws {
    let (image, tree) = try Self.victim()
    var damaged = image
    let table = try #require(image.files(in: "catalog").first)
    for name in [table, DiskImage.copy(of: table)] { damaged.flipBit(1, at: 60, of: name) }
    let directory = TemporaryDirectory()
    let container = try Container.open(damaged, secret)
    #expect(!container.findings.isEmpty)
    #expect(try container.backup(to: directory["backup"]).findings.map(\.kind) == [.tableDamaged])
    try container.close()
    // With the table from elsewhere, everything is there.
    for name in [table, DiskImage.copy(of: table)] {
      writeNative(directory["backup/" + name], image[name]!)
    }
    let backup = try Container.open(
      at: directory["backup"], credential: testCredential(), mode: .readOnly, options: testOptions())
    #expect(try backup.tree() == tree)
    try backup.close()
  }

  /// What neither copy lets be opened any more is left out of a backup, which says so. What other journals there are, a journal's header
  /// alone tells.
  @Test(arguments: codes) func aBackupSaysWhichTableOrJournalItLacks(code: Int32) throws {
    let (image, _) = try Self.victim(isOpen: true)
    for (folder, call) in [("catalog", "open for reading"), ("catalog", "fstat"), ("journal", "fstat")] {
      let names = image.files(in: folder).flatMap { [$0, DiskImage.copy(of: $0)] }
      let directory = TemporaryDirectory()
      let io = RecordingIO(image)
      let container = try Container.open(io, secret)
      Self.refuse(io, code, [call]) { names.contains($0) }
      let receipt = try container.backup(to: directory["backup"])
      #expect(!receipt.findings.isEmpty, "\(call)")
      for finding in receipt.findings {
        #expect(finding.kind == .unreadable && finding.detail.contains(folder + "/"), "\(finding)")
      }
      let backup = DiskImage(native: directory["backup"])
      #expect(backup.files(in: folder).count == image.files(in: folder).count - receipt.findings.count)
      try container.close()
    }
    let directory = TemporaryDirectory()
    let io = RecordingIO(image)
    let container = try Container.open(io, secret)
    let names = image.files(in: "journal").flatMap { [$0, DiskImage.copy(of: $0)] }
    Self.refuse(io, code, ["open for reading"]) { names.contains($0) }
    expectError(.journalDamaged) { try container.backup(to: directory["backup"]) }
    try container.close()
  }

  /// Of a disk that dies, the rest is brought to safety.
  @Test(arguments: codes) func aBackupGoesOnBesideASlabThatIsNotRead(code: Int32) throws {
    let (image, tree) = try Self.victim()
    for call in ["open for reading", "read"] {
      let directory = TemporaryDirectory()
      let io = RecordingIO(image)
      Self.refuse(io, code, [call]) { $0.hasPrefix("slab/") }
      let container = try Container.open(io, secret)
      let receipt = try container.backup(to: directory["backup"])
      #expect(receipt.findings.map(\.kind) == [.unreadable], "\(call)")
      #expect(try container.names(in: "/").count == 101 && tree.count > 100)
      try container.close()
      let backup = try Container.open(
        at: directory["backup"], credential: testCredential(), mode: .readOnly, options: testOptions())
      #expect(try backup.names(in: "/").count == 101, "\(call)")
      try backup.close()
    }
  }

  /// What concerns the process or the user is no damage.
  @Test(arguments: [EMFILE, ENFILE, ENOMEM, EACCES, EPERM]) func forLackOfSomethingIsNoDamage(code: Int32)
    throws
  {
    let (image, _) = try Self.victim()
    for folder in ["catalog", "copy"] {
      let io = RecordingIO(image)
      Self.refuse(io, code, ["open for reading", "read"]) {
        $0.hasPrefix("catalog/") || $0.hasPrefix(folder + "/")
      }
      #expect(throws: ContainerError.self) {
        try Container.verify(io: io, credential: secret.credential(), options: testOptions())
      }
    }
  }
}

/// A repair that makes the best of what is lost in both copies.
struct SalvageTests {
  private static func options() -> Container.Options {
    var options = testOptions()
    options.checkpointByteCounts = 1 << 14...1 << 14
    return options
  }

  /// A large table, and a small one over it with a file that changed, one that was renamed and a new one.
  private static func container() throws -> (image: DiskImage, tree: Tree) {
    let io = RecordingIO()
    let first = try Container.create(io, secret, options())
    for i in 0..<400 {
      if i % 40 == 0 { try first.createDirectory("/\(i / 40)") }
      try first.write(testBytes(100 + i, seed: UInt64(i)), to: "/\(i / 40)/file\(i)")
    }
    first.store.rewriteCatalogAtClosing()
    try first.close()
    let second = try Container.open(
      io: io, credential: secret.credential(), mode: .readWrite, options: options())
    try second.move("/0/file1", to: "/0/renamed")
    try second.write(testBytes(7, seed: 1), to: "/0/file2")
    var i = 0
    while try second.store.withSuperblock({ _, body, _ in body.completeGeneration.tables.count }) == 1 {
      try second.write(testBytes(50, seed: UInt64(i)), to: "/new\(i)")
      second.store.backgroundWork.wait()
      i += 1
    }
    let tree = try second.tree()
    try second.close()
    return (io.image, tree)
  }

  /// Each block of each table in turn: what comes out is authentic, the container is whole afterwards, and most is there.
  @Test func aLostBlockCostsLittleWhereOlderTablesHaveIt() throws {
    let (image, tree) = try Self.container()
    var counts: [Int] = []
    for table in image.files(in: "catalog") {
      let size = image[table]!.count
      let footerOffset = try #require(Anatomy(image).footers[table])
      for offset in stride(from: 30, to: size - 1, by: max(700, size / TestEffort.count(6, long: 60))) {
        var damaged = image
        for name in [table, DiskImage.copy(of: table)] { damaged.flipBit(2, at: offset, of: name) }
        let io = RecordingIO(damaged)
        let what = "\(table) at \(offset)"
        let report = try Container.repair(
          io: io, credential: secret.credential(), options: Self.options(), acceptsLoss: true)
        if offset > footerOffset {
          #expect(!report.hasLoss && report.wasWritten, "\(what)")
          #expect(try Container.open(io, secret).tree() == tree, "\(what)")
          continue
        }
        #expect(report.hasLoss && report.wasWritten, "\(what)")
        let verdict = try Container.verify(io.image, secret)
        #expect(verdict.findings.isEmpty, "\(what): \(verdict.findings)")
        let container = try Container.open(io, secret, mode: .readWrite)
        let contents = Set(tree.values.compactMap { $0 }.map { $0 })
        var known = 0
        for file in try container.list("/", recursively: true) where file.attributes.kind == .file {
          let bytes = try container.contents(at: "/" + file.path)
          if file.path.hasPrefix(Salvage.folderName) {
            known += contents.contains(bytes) ? 1 : 0
          } else {
            #expect(tree["/" + file.path] == .some(bytes), "\(what): \(file.path)")
            known += 1
          }
        }
        counts.append(known)
        try container.write([1], to: "/after")
        try container.close()
        #expect(try Container.verify(io.image, secret).findings.isEmpty, "\(what)")
      }
    }
    #expect(counts.count >= 8)
    #expect(counts.allSatisfy { $0 > 150 }, "\(counts)")
    #expect(counts.contains { $0 > 390 }, "\(counts)")
  }

  @Test func withoutBeingAskedNothingChanges() throws {
    let (image, _) = try Self.container()
    let table = try #require(image.files(in: "catalog").max { image[$0]!.count < image[$1]!.count })
    var damaged = image
    for name in [table, DiskImage.copy(of: table)] { damaged.flipBit(2, at: 100, of: name) }
    let before = damaged
    // Another block is whole in one copy: this much can be mended, and is.
    damaged.flipBit(2, at: image[table]!.count - 3000, of: DiskImage.copy(of: table))
    let io = RecordingIO(damaged)
    expectError(.tableDamaged) {
      try Container.repair(io: io, credential: secret.credential(), options: Self.options())
    }
    #expect(io.image == before)
  }
}

extension Container {
  fileprivate func extents(of path: String) throws -> [Extent] {
    try reader.withWrittenBackSnapshot { records in
      let found = try #require(try records.find(StorePath(path).resolved(in: records)))
      return try records.extents(found.id, found.inode)
    }
  }
}
