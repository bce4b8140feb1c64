import EncryptedFile
import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

@testable import ContainerStore

private let secret = TestSecret.rawKey(7)

/// Bytes at and around what a decoder accepts: some random, some a valid encoding with a few bytes changed.
private struct FuzzedBytes: Sequence, IteratorProtocol {
  var random: SplitMix64
  var left: Int
  let valid: [[UInt8]]
  let byteCounts: ClosedRange<Int>
  /// Makes checksums right again.
  var repair: ([UInt8]) -> [UInt8] = { $0 }

  init(_ valid: [[UInt8]], byteCounts: ClosedRange<Int>, count: Int = 10_000, seed: UInt64 = 1) {
    self.valid = valid
    self.byteCounts = byteCounts
    left = count
    random = SplitMix64(seed: seed)
  }

  mutating func next() -> [UInt8]? {
    guard left > 0 else { return nil }
    left -= 1
    if left % 4 == 0 {
      let count = byteCounts.lowerBound + Int(random.next() % UInt64(byteCounts.count))
      return testBytes(count, seed: random.next())
    }
    var bytes = valid[Int(random.next() % UInt64(valid.count))]
    for _ in 0...(random.next() % 3) where !bytes.isEmpty {
      let i = Int(random.next() % UInt64(bytes.count))
      bytes[i] = [0, 1, 2, 3, 0xff, bytes[i] ^ 1, UInt8(truncatingIfNeeded: random.next())].randomElement(
        using: &random)!
    }
    // Cut or longer, where lengths may vary.
    if byteCounts.count > 1, random.next() % 8 == 0 {
      if random.next() & 1 == 0 {
        bytes.removeLast(Int(random.next() % UInt64(bytes.count + 1)))
      } else {
        bytes += testBytes(Int(random.next() % 5), seed: random.next())
      }
    }
    return repair(bytes)
  }
}

/// Feeds a decoder; what it accepts has to be what it would write. Returns how many were accepted.
private func fuzz(
  _ cases: FuzzedBytes, _ reencode: ([UInt8]) throws -> [UInt8]?,
  sourceLocation: SourceLocation = #_sourceLocation
) -> Int {
  var accepted = 0
  for bytes in cases {
    do {
      guard let again = try reencode(bytes) else { continue }
      accepted += 1
      if again != bytes {
        Issue.record("accepted, and would be written otherwise: \(bytes)", sourceLocation: sourceLocation)
        return accepted
      }
    } catch is MalformedBytes {
    } catch {
      Issue.record("threw \(error)", sourceLocation: sourceLocation)
    }
  }
  return accepted
}

private func isMalformed(_ decode: () throws -> Void) -> Bool {
  do {
    try decode()
    return false
  } catch {
    return error is MalformedBytes
  }
}

struct FormatTests {
  private let cipher = SecretStreamCipher()

  // MARK: Samples

  private static let session = Identifier(testBytes(16, seed: 3))

  private static func extent(
    start: UInt64 = 0, count: UInt32 = 1, lastLength: UInt32 = 1, counter: UInt64 = 1, offset: UInt64 = 0
  ) -> Extent {
    Extent(
      start: start, count: count, lastLength: lastLength,
      writeNumber: WriteNumber(session: session, counter: counter), slab: 7, offset: offset)
  }

  private static func inode(_ kind: FileKind, target: Int = 0, extent: Extent? = nil) -> Inode {
    let secret = kind == .file ? testBytes(32, seed: 4) : [UInt8](repeating: 0, count: 32)
    var inode = Inode(kind: kind, permissions: 0o644, now: -5, epoch: 1, secret: secret)
    inode.firstExtent = extent
    inode.target = testBytes(target, seed: 5).map { $0 | 1 }
    inode.size = kind == .file ? 20_000 : UInt64(target)
    return inode
  }

  private static func generation(_ number: UInt64, tables: Int = 1, state: Generation.State = .complete)
    -> Generation
  {
    Generation(
      number: number, epoch: 1, state: state, secret: testBytes(32, seed: number),
      commit: state == .complete ? 9 : 0,
      tables: (0..<tables).map {
        Generation.Table(
          id: Identifier(testBytes(16, seed: UInt64($0 + 1))), byteCount: 321, footerLength: 39,
          footerTag: testBytes(16, seed: 6), keying: .init(epoch: 1, secret: testBytes(32, seed: 7)))
      })
  }

  private static func body(generations: [Generation]) -> SuperblockBody {
    var body = SuperblockBody(
      created: 1, epoch: SuperblockBody.Epoch(number: 1, key: testKey(testBytes(32, seed: 1))),
      generation: generations[0])
    body.generations = generations
    return body
  }

  private static func cleanBody() -> SuperblockBody {
    var body = body(generations: [generation(3, tables: 0, state: .pending), generation(2)])
    body.journal = SuperblockBody.Journal(
      id: session, generation: 2,
      knownEnd: JournalEnd(record: 3, offset: 9000, tag: testBytes(16, seed: 8), commit: 12))
    return body
  }

  private static func record(_ changes: [CatalogChange]) -> JournalRecord {
    JournalRecord(
      commit: 5, durableThrough: 3, time: -1, isLastOfCommit: true, segmentsWereDurable: false,
      changes: changes)
  }

  private static func change(key: Int, value: Int?) -> CatalogChange {
    CatalogChange(
      key: CatalogKey(bytes: testBytes(key, seed: 1)), value: value.map { testBytes($0, seed: 2) })
  }

  // MARK: Values of the catalog

  @Test func inodesComeBackAsTheyWere() throws {
    for inode in [
      Self.inode(.file), Self.inode(.file, extent: Self.extent(start: 1, lastLength: 16384)),
      Self.inode(.directory), Self.inode(.symbolicLink, target: 1), Self.inode(.symbolicLink, target: 4096),
    ] {
      #expect(try Inode(inode.encoded) == inode)
      #expect(isMalformed { _ = try Inode(inode.encoded + [0]) })
      #expect(isMalformed { _ = try Inode(inode.encoded.dropLast()) })
    }
  }

  @Test func anInodeHasTheSizeOfThePage() throws {
    var inode = Inode(kind: .file, permissions: 0o600, now: 5, epoch: 1, secret: testBytes(32, seed: 1))
    // Layout, kind, flags, permissions, date; six numbers; the secret.
    #expect(inode.encoded.count == 13 + 6 + 32)
    inode.size = 4096
    inode.firstExtent = Extent(
      start: 0, count: 1, lastLength: 4096, writeNumber: WriteNumber(session: Self.session, counter: 300),
      slab: 1,
      offset: 1 << 20)
    #expect(inode.encoded.count == 13 + 7 + 32 + (1 + 1 + 1 + 3 + 2 + 16 + 2))
    inode.modified = 4  // before its creation: a short number all the same
    #expect(inode.encoded.count == 13 + 7 + 32 + 26)
    inode.changed = .min
    #expect(try Inode(inode.encoded) == inode)
  }

  @Test func compactInodesThatCannotBeAreRefused() throws {
    func isRefused(_ inode: Inode, _ change: (inout [UInt8]) -> Void = { _ in }) -> Bool {
      var bytes = inode.encoded
      change(&bytes)
      return isMalformed { _ = try Inode(bytes) }
    }
    let file = Self.inode(.file, extent: Self.extent())
    #expect(!isRefused(file))
    for layout in [0, 3] { #expect(isRefused(file) { $0[0] = UInt8(layout) }) }
    for kind in [0, 4] { #expect(isRefused(file) { $0[1] = UInt8(kind) }) }
    for flags in [2, 0x80] { #expect(isRefused(file) { $0[2] |= UInt8(flags) }) }
    #expect(isRefused(file) { $0[2] = 0 }, "an extent that no flag announces")
    #expect(isRefused(Self.inode(.file)) { $0[2] = 1 }, "a flag without an extent")
    #expect(isRefused(Self.inode(.directory)) { $0[2] = 1 })
    // After layout, kind, flags, permissions and date: a number in more bytes than it needs, and one without end.
    for number in [
      [0x80, 0], [0xff, 0x80, 0], [UInt8](repeating: 0x80, count: 9) + [2],
      [UInt8](repeating: 0xff, count: 11),
    ] {
      #expect(isRefused(file) { $0.replaceSubrange(13..<14, with: number) })
    }
    for kind in [FileKind.directory, .symbolicLink] {
      #expect(isRefused(Self.inode(kind, target: kind == .directory ? 0 : 5, extent: Self.extent())))
    }
    #expect(isRefused(Self.inode(.symbolicLink, target: 0)))
    #expect(isRefused(Self.inode(.symbolicLink, target: 4097)))
    var large = file
    large.size = 1 << 62 - 1
    #expect(!isRefused(large))
    large.size = 1 << 62
    #expect(isRefused(large))
    var full = Self.inode(.directory)
    full.size = 1
    #expect(isRefused(full))
  }

  @Test(arguments: [UInt64(0), 1, 127, 128, 16383, 16384, 1 << 32, 1 << 63, .max])
  func numbersComeBack(value: UInt64) throws {
    var writer = ByteWriter()
    writer.append(varint: value)
    #expect(writer.bytes.count == max(1, (64 - value.leadingZeroBitCount + 6) / 7))
    var reader = ByteReader(writer.bytes)
    #expect(try reader.varint() == value)
    try reader.end()
    for base in [Int64.min, -1, 0, 7, .max] {
      var writer = ByteWriter()
      writer.append(difference: Int64(bitPattern: value), from: base)
      var reader = ByteReader(writer.bytes)
      #expect(try reader.difference(from: base) == Int64(bitPattern: value))
    }
  }

  @Test func extentsEndAtTheirLimits() throws {
    func isAccepted(_ extent: Extent) -> Bool {
      var reader = ByteReader(extent.encodedValue)
      return (try? Extent(start: extent.start, value: &reader)) == extent
    }
    let highest: UInt64 = 1 << 48
    #expect(isAccepted(Self.extent()))
    #expect(!isAccepted(Self.extent(count: 0)))
    #expect(!isAccepted(Self.extent(lastLength: 0)))
    #expect(isAccepted(Self.extent(lastLength: 16384)))
    #expect(!isAccepted(Self.extent(lastLength: 16385)))
    #expect(isAccepted(Self.extent(start: highest - 1, lastLength: 16383)))
    #expect(!isAccepted(Self.extent(start: highest - 1, lastLength: 16384)), "a file of 2^62 bytes")
    #expect(!isAccepted(Self.extent(start: highest)))
    // The whole run lies in a slab of 64 MiB: 4085 full segments do, and no 4086.
    #expect(isAccepted(Self.extent(offset: 67_108_864 - 42)))
    #expect(!isAccepted(Self.extent(offset: 67_108_864 - 41)))
    #expect(!isAccepted(Self.extent(offset: .max)))
    #expect(isAccepted(Self.extent(count: 4085, lastLength: 16384, offset: 67_108_864 - 4085 * 16425)))
    #expect(!isAccepted(Self.extent(count: 4085, lastLength: 16384, offset: 67_108_864 - 4085 * 16425 + 1)))
    #expect(!isAccepted(Self.extent(count: .max)))
    #expect(!isAccepted(Self.extent(counter: 0)))
    #expect(isAccepted(Self.extent(counter: .max - 1)))
    #expect(!isAccepted(Self.extent(counter: .max)))
    #expect(isAccepted(Self.extent(count: 100, counter: .max - 100)))
    #expect(!isAccepted(Self.extent(count: 100, counter: .max - 99)))
    var value = Self.extent().encodedValue
    value[20] = 1
    #expect(
      isMalformed {
        var reader = ByteReader(value)
        _ = try Extent(start: 0, value: &reader)
      })
  }

  @Test func entriesCountersAndNamesEndAtTheirLimits() throws {
    for kind in [FileKind.file, .directory, .symbolicLink] {
      let entry = DirectoryEntry(kind: kind, file: .max)
      #expect(try DirectoryEntry(entry.encoded) == entry)
      #expect(entry.encoded.count == 16)
    }
    let entry = DirectoryEntry(kind: .file, file: 2).encoded
    for (offset, value) in [(0, 0), (0, 4), (1, 1), (7, 1)] {
      var bytes = entry
      bytes[offset] = UInt8(value)
      #expect(isMalformed { _ = try DirectoryEntry(bytes) })
    }
    for count in [0, 15, 17] {
      #expect(isMalformed { _ = try DirectoryEntry(Array((entry + [0]).prefix(count))) })
    }
    for (file, slab) in [(UInt64(1) << 62, UInt32(0)), (2, 1 << 31)] {
      #expect(
        isMalformed { _ = try CatalogCounters(CatalogCounters(nextFile: file, nextSlab: slab).encoded) })
    }
    let counters = CatalogCounters(nextFile: 1 << 62 - 1, nextSlab: 1 << 31 - 1)
    #expect(try CatalogCounters(counters.encoded) == counters)
    #expect(isMalformed { _ = try CatalogCounters(counters.encoded.dropLast() + [1]) })
    #expect(isMalformed { _ = try CatalogCounters(counters.encoded + [0]) })
    var slab = SlabCounter()
    slab.liveByteCount = 1
    slab.end = 67_108_864
    #expect(try SlabCounter(slab.encoded) == slab)
    #expect(isMalformed { _ = try SlabCounter(slab.encoded.dropLast()) })
    #expect(isMalformed { _ = try SlabCounter(slab.encoded + [0]) })
    for name in ["a", "...", String(repeating: "x", count: 255), "\u{1}", "é"] {
      #expect(FileName(name) != nil)
    }
    for name in ["", ".", "..", String(repeating: "x", count: 256), "a/b", "/", "a\0"] {
      #expect(FileName(name) == nil)
    }
    #expect(FileName(bytes: [0xff, 0xfe]) != nil, "names are bytes")
  }

  @Test func keysSortByTypeAndNumber() {
    let name = FileName("x")!
    let keys: [CatalogKey] = [
      .state, .entry(parent: 1, name: name), .entry(parent: 256, name: name), .inode(1), .inode(255),
      .inode(256), .inode(.max), .extent(file: 1, start: 255), .extent(file: 1, start: 256),
      .extent(file: 2, start: 0), .attributes(file: 1), .slab(1), .slab(256),
      .delivery(sender: [65], request: [66]),
    ]
    #expect(keys.sorted() == keys)
    #expect(CatalogKey.entry(parent: 0x0102, name: name).bytes == [0x10, 0, 0, 0, 0, 0, 0, 1, 2, 0x78])
  }

  // MARK: Records and frames

  @Test func recordsComeBackAndEndAtTheirLimits() throws {
    for changes in [
      [], [Self.change(key: 1, value: nil)], [Self.change(key: 600, value: 32768)],
      [Self.change(key: 1, value: 0), Self.change(key: 2, value: nil), Self.change(key: 3, value: 5)],
    ] {
      let record = Self.record(changes)
      #expect(try JournalRecord(record.encoded, number: 9) == record)
      #expect(
        record.encoded.count == JournalRecord.prefixByteCount + changes.reduce(0) { $0 + $1.encodedByteCount }
      )
      #expect(isMalformed { _ = try JournalRecord(record.encoded + [0], number: 9) })
      #expect(isMalformed { _ = try JournalRecord(record.encoded.dropLast(), number: 9) })
    }
    #expect(
      isMalformed { _ = try JournalRecord(Self.record([Self.change(key: 0, value: 1)]).encoded, number: 9) })
    #expect(
      isMalformed { _ = try JournalRecord(Self.record([Self.change(key: 601, value: 1)]).encoded, number: 9) }
    )
    #expect(
      isMalformed {
        _ = try JournalRecord(Self.record([Self.change(key: 1, value: 32769)]).encoded, number: 9)
      })
    // Durable through record 3.
    #expect(isMalformed { _ = try JournalRecord(Self.record([]).encoded, number: 3) })
    #expect(!isMalformed { _ = try JournalRecord(Self.record([]).encoded, number: 4) })
    let record = Self.record([Self.change(key: 1, value: 1)]).encoded
    for (offset, value, isAccepted) in [
      (24, 3, true), (24, 4, false), (27, 0x80, false), (28, 0, false), (28, 2, false), (31, 0x80, false),
      (32, 0, false), (32, 3, false),
    ] {
      var bytes = record
      bytes[offset] = UInt8(value)
      #expect(
        isMalformed { _ = try JournalRecord(bytes, number: 9) } != isAccepted, "byte \(offset): \(value)")
    }
  }

  @Test func journalHeadersComeBack() throws {
    let end = JournalEnd(record: 4, offset: 8192, tag: testBytes(16, seed: 1), commit: 7)
    for predecessor in [nil, JournalHeader.Predecessor(id: Self.session, generation: 2, end: end)] {
      let header = JournalHeader(
        session: Self.session, generation: 3, created: -1, predecessor: predecessor, commit: 7)
      #expect(header.encoded.count == 128)
      #expect(try JournalHeader(header.encoded) == header)
      #expect(isMalformed { _ = try JournalHeader(header.encoded + [0]) })
      for (offset, value) in [(0, 0), (0, 2), (4, 1), (104, 1), (127, 1)] {
        var bytes = header.encoded
        bytes[offset] = UInt8(value)
        #expect(isMalformed { _ = try JournalHeader(bytes) })
      }
    }
  }

  @Test(arguments: [1, 2, 4000, 1_044_479, 1_044_480])
  func framesHoldPayloadsUpToTheirLimit(count: Int) throws {
    let place = JournalFrame.Place(container: Self.session, journal: .random())
    let key = try SecretKey.random()
    let previous = testBytes(16, seed: 1)
    let payload = testBytes(count, seed: 2)
    let (bytes, authenticator) = try JournalFrame.seal(
      payload, number: .max, previous: previous, at: place, key: key, cipher: cipher)
    #expect(bytes.count == JournalFrame.byteCount(payload: count))
    let file = try file(holding: [UInt8](repeating: 0xee, count: 4096) + bytes)
    guard
      case .good(let number, let readPrevious, let read, let readAuthenticator, let end) =
        try JournalFrame.read(file, at: 4096, place: place, key: key, cipher: cipher)
    else {
      Issue.record("the frame does not open")
      return
    }
    #expect(number == .max && readPrevious == previous && readAuthenticator == authenticator)
    #expect(read == payload)
    #expect(end == UInt64(4096 + bytes.count))
    // Nor does it open for anybody else.
    let other = JournalFrame.Place(container: .random(), journal: place.journal)
    guard case .altered = try JournalFrame.read(file, at: 4096, place: other, key: key, cipher: cipher) else {
      Issue.record("a frame of another container")
      return
    }
  }

  // MARK: Key slots and superblock

  @Test func keySlotsEndAtTheirLimits() throws {
    let image = try Self.newContainer(.passphrase("x")).image
    let bytes = Array(image.slot(0)[64..<224])
    #expect(try KeySlot.decode(bytes)?.encoded == bytes)
    #expect(try KeySlot.decode([UInt8](repeating: 0, count: 160)) == nil)
    func isAccepted(_ kind: UInt8, _ passes: UInt32, _ memoryKiB: UInt32) -> Bool {
      var bytes = bytes
      bytes[0] = kind
      bytes.replaceSubrange(4..<12, with: littleEndian(passes) + littleEndian(memoryKiB))
      return !isMalformed { _ = try KeySlot.decode(bytes) }
    }
    for kind: UInt8 in [1, 3] {
      #expect(isAccepted(kind, 1, 8) && isAccepted(kind, 16, 1 << 20))
      for (passes, memory) in [(0, 8), (17, 8), (1, 7), (1, 1 << 20 + 1), (1, 0), (0, 0)] {
        #expect(!isAccepted(kind, UInt32(passes), UInt32(memory)))
      }
    }
    #expect(isAccepted(2, 0, 0) && !isAccepted(2, 1, 0) && !isAccepted(2, 0, 8))
    for kind: UInt8 in [0, 4, 255] { #expect(!isAccepted(kind, 1, 8)) }
    for offset in [1, 3, 12, 15, 137, 159] {
      var altered = bytes
      altered[offset] ^= 1
      #expect(isMalformed { _ = try KeySlot.decode(altered) })
    }
  }

  @Test func bodiesComeBackAndEndAtTheirLimits() throws {
    func isAccepted(_ body: SuperblockBody) -> Bool { (try? SuperblockBody(body.encoded)) == body }
    let clean = Self.cleanBody()
    #expect(try isAccepted(clean) && clean.encoded.count == 2560)
    var open = clean
    open.isClean = false
    #expect(isAccepted(open))
    open.journal = nil
    #expect(!isAccepted(open), "open, and no journal")
    open.isClean = true
    #expect(isAccepted(open))
    for count in [1, 16] {
      var body = clean
      body.epochs = (1...count).map {
        .init(number: UInt32($0), key: testKey(testBytes(32, seed: UInt64($0))))
      }
      #expect(isAccepted(body))
    }
    #expect(isAccepted(Self.body(generations: [Self.generation(1, tables: 0)])))
    #expect(isAccepted(Self.body(generations: [Self.generation(1, tables: 5)])))
    #expect(
      isAccepted(
        Self.body(generations: [Self.generation(4, tables: 0, state: .pending), Self.generation(3)])))
    // What only a forger could write.
    let encoded = try clean.encoded
    func isRefused(_ change: (inout [UInt8]) -> Void) -> Bool {
      var bytes = encoded
      change(&bytes)
      return isMalformed { _ = try SuperblockBody(bytes) }
    }
    #expect(!isRefused { _ in })
    for count in [0, 17] { #expect(isRefused { $0[12] = UInt8(count) }, "\(count) epochs") }
    for count in [0, 1, 3, 4] { #expect(isRefused { $0[656] = UInt8(count) }, "\(count) generations") }
    for state in [0, 3] { #expect(isRefused { $0[660] = UInt8(state) }, "state \(state)") }
    let complete = 664 + 472
    for state in [0, 3] { #expect(isRefused { $0[complete + 12] = UInt8(state) }, "a generation's state") }
    for count in [0, 6] { #expect(isRefused { $0[complete + 14] = UInt8(count) }, "\(count) tables") }
    for offset in [20, 56, 655, 664 + 56, 664 + 100, 664 + 471, complete + 471, 1672, 2559] {
      #expect(isRefused { $0[offset] ^= 1 }, "byte \(offset)")
    }
    #expect(isRefused { $0[16] = 0 }, "epoch 0")
    #expect(isRefused { $0[8] = 2 }, "the current epoch is not there")
    #expect(isRefused { $0[complete + 8] = 2 }, "a generation's epoch is not there")
    #expect(isRefused { $0[664] = 2 }, "a generation twice")
    #expect(isRefused { $0[664] = 1 }, "generations out of order")
    #expect(isRefused { $0[1624] = 9 }, "the journal's generation is not there")
    #expect(isRefused { $0[1664] = 8 }, "a known end before the tables")
    #expect(isRefused { $0.replaceSubrange(1608..<1624, with: repeatElement(0, count: 16)) }, "no journal")
    #expect(
      isRefused {
        $0.replaceSubrange(1608..<1672, with: repeatElement(0, count: 64))
        $0[1624] = 2
      }, "no journal, and its generation")
    // A pending generation is the newest and empty, and there is one.
    let pending = Self.generation(4, tables: 0, state: .pending)
    #expect(!isAccepted(Self.body(generations: [Self.generation(5), pending])))
    #expect(!isAccepted(Self.body(generations: [pending])))
    #expect(!isAccepted(Self.body(generations: [Self.generation(5, tables: 0, state: .pending), pending])))
    #expect(!isAccepted(Self.body(generations: [Self.generation(5), Self.generation(4)])))
    #expect(
      !isAccepted(
        Self.body(generations: [Self.generation(4, tables: 1, state: .pending), Self.generation(1)])))
    var based = pending
    based.commit = 1
    #expect(!isAccepted(Self.body(generations: [based, Self.generation(1)])))
    for count in [0, 2559, 2561] {
      #expect(isMalformed { _ = try SuperblockBody(Array((encoded + [0]).prefix(count))) })
    }
  }

  // MARK: Tables

  private func file(holding bytes: [UInt8]) throws -> any BlockFile {
    var image = DiskImage()
    image["table"] = bytes
    return try RecordingIO(image).open("table", .read)
  }

  private struct WrittenTable {
    var bytes: [UInt8]
    var table: Generation.Table
  }

  private static let place = Table.Place(container: session, table: Identifier(testBytes(16, seed: 1)))
  private static func key() throws -> SecretKey {
    try SecretKey { $0.copyBytes(from: testBytes(32, seed: 2)) }
  }

  private func write(_ records: ChangeMap) throws -> WrittenTable {
    let io = RecordingIO()
    try io.createDirectory("")
    for folder in ["catalog", "copy"] { try io.createDirectory(folder) }
    let file = try CopiedFile.create(io, Self.place.table, in: .catalog)
    var position = records.position(of: CatalogKey(bytes: []))
    let table = try Table.write(
      to: file, place: Self.place, key: Self.key(), keying: .init(epoch: 1, secret: testBytes(32, seed: 3)),
      cipher: cipher
    ) { records.next(&position).map { ($0.key, $0.value) } }
    #expect(io.image[file.names[0]] == io.image[file.names[1]])
    return WrittenTable(bytes: io.image[file.names[0]]!, table: table)
  }

  /// Both copies have the same bytes.
  private func open(_ written: WrittenTable) throws -> TableFile {
    let io = RecordingIO()
    for folder in ["", "catalog", "copy"] { try io.createDirectory(folder) }
    try CopiedFile.create(io, Self.place.table, in: .catalog).write(written.bytes, at: 0)
    do {
      return try TableFile(
        written.table, io: io, container: Self.place.container, key: SharedKey(try Self.key()),
        ciphers: CipherPool(.preferred, in: .shared), cache: BlockCache(byteCountMax: 100_000),
        log: FindingLog())
    } catch ContainerError.tableDamaged {
      throw MalformedBytes(what: "its footer")
    }
  }

  private func read(_ written: WrittenTable) throws -> [(CatalogKey, [UInt8]?)] {
    let table = try open(written)
    guard try table.check(isOldest: false).isWhole else { throw MalformedBytes(what: "a table") }
    var entries: [(CatalogKey, [UInt8]?)] = []
    var position = try table.position(of: CatalogKey(bytes: []))
    while let entry = try table.next(&position) { entries.append((entry.key, entry.value)) }
    return entries
  }

  @Test func aRemovalInTheOldestTableIsFound() throws {
    var records = ChangeMap()
    records.put(CatalogKey(bytes: [1]), [2])
    records.put(CatalogKey(bytes: [2]), nil)
    let table = try open(try write(records))
    #expect(try table.check(isOldest: false).isWhole)
    #expect(try !table.check(isOldest: true).isWhole)
  }

  @Test(arguments: [(0, 9, 0), (1, 1, 0), (1, 600, 32768), (5000, 9, 20), (4000, 600, 9), (40, 300, 32768)])
  func tablesComeBack(count: Int, keyByteCount: Int, valueByteCount: Int) throws {
    var records = ChangeMap()
    for i in 0..<count {
      let number = withUnsafeBytes(of: UInt32(i).bigEndian) { Array($0) }
      let key = (number + testBytes(600, seed: UInt64(i))).prefix(keyByteCount)
      records.put(
        CatalogKey(bytes: Array(key)), i % 7 == 3 ? nil : testBytes(valueByteCount, seed: UInt64(i)))
    }
    let written = try write(records)
    #expect(written.table.byteCount == UInt64(written.bytes.count))
    var read = try read(written)[...]
    #expect(read.count == records.count)
    var footerless = written
    footerless.bytes[written.bytes.count - 1] ^= 1
    var rest = read
    let found = try open(footerless)
    #expect(found.counts == nil)
    var position = try found.position(of: CatalogKey(bytes: []))
    while let entry = try found.next(&position) {
      let expected = rest.popFirst()
      try #require(entry.key == expected?.0 && entry.value == expected?.1)
    }
    #expect(rest.isEmpty)
    let table = try open(written)
    var isFound = true
    var finder = TableFile.Finder(table)
    records.visit { key, value in
      // In a row with the others.
      switch try? finder.find(key) {
      case .value(let found): isFound = isFound && found == value
      case .deleted: isFound = isFound && value == nil
      case .absent, nil: isFound = false
      }
      if key.bytes.count < CatalogKey.byteCountMax {
        if case .absent? = try? finder.find(CatalogKey(bytes: key.bytes + [0])) {} else { isFound = false }
      }
      let entry = read.popFirst()
      #expect(entry?.0 == key && entry?.1 == value)
      // And by its key alone.
      switch try? table.find(key) {
      case .value(let found): isFound = isFound && found == value
      case .deleted: isFound = isFound && value == nil
      case .absent, nil: isFound = false
      }
      if case .absent? = try? table.find(CatalogKey(bytes: key.bytes + [0])) { return }
      isFound = isFound && key.bytes.count == CatalogKey.byteCountMax
    }
    #expect(isFound)
  }

  @Test func aTableIsReadFromAnyKeyOn() throws {
    var records = ChangeMap()
    for i in 0..<3000 { records.put(.inode(UInt64(2 * i)), testBytes(40, seed: UInt64(i))) }
    let table = try open(try write(records))
    for i in stride(from: 0, through: 6001, by: 7) {
      var position = try table.position(of: .inode(UInt64(i)))
      let next = UInt64((i + 1) / 2 * 2)
      #expect(try table.next(&position)?.key == (next < 6000 ? .inode(next) : nil))
    }
    var position = try table.position(of: .all(.entry))
    #expect(try table.next(&position)?.key == .inode(0))
    position = try table.position(of: .all(.extent))
    #expect(try table.next(&position) == nil)
  }

  @Test func aTableIsReadOnlyAsTheOneThatWasWritten() throws {
    var records = ChangeMap()
    for i in 0..<3000 { records.put(.inode(UInt64(i)), testBytes(40, seed: UInt64(i))) }
    let written = try write(records)
    func isRefused(_ change: (inout WrittenTable) -> Void) -> Bool {
      var changed = written
      change(&changed)
      return isMalformed { _ = try read(changed) }
    }
    #expect(!isRefused { _ in })
    #expect(isRefused { $0.bytes.append(0) })
    #expect(isRefused { $0.bytes.removeLast() })
    #expect(isRefused { $0.table.byteCount += 1 })
    #expect(isRefused { $0.table.footerLength += 1 })
    #expect(isRefused { $0.table.footerLength = .max })
    #expect(isRefused { $0.table.footerLength = 0 })
    #expect(isRefused { $0.table.footerTag[0] ^= 1 })
    for i in stride(from: 0, to: written.bytes.count, by: written.bytes.count / 40) {
      #expect(isRefused { $0.bytes[i] ^= 0x10 })
    }
  }

  @Test func authenticTablesThatCannotBeAreRefused() throws {
    typealias Entry = (operation: UInt8, key: [UInt8], value: [UInt8])
    func blocks(_ change: (inout ForgedTable) -> Void = { _ in }) throws -> Bool {
      var forged = ForgedTable()
      change(&forged)
      let written = try forged.sealed(Self.place, try Self.key(), cipher)
      return isMalformed { _ = try read(WrittenTable(bytes: written.bytes, table: written.table)) }
    }
    #expect(try !blocks())
    #expect(
      try !blocks {
        $0.data[0][0].operation = 2
        $0.data[0][0].value = []
      }, "a tombstone")
    #expect(try blocks { $0.data[0][0].operation = 2 }, "a tombstone with a value")
    for operation in [UInt8(0), 3] { #expect(try blocks { $0.data[0][0].operation = operation }) }
    #expect(try blocks { $0.data[0].swapAt(1, 2) }, "out of order in a block")
    #expect(try blocks { $0.data.swapAt(0, 1) }, "out of order from block to block")
    #expect(try blocks { $0.data[1][0].key = $0.data[0][2].key }, "a key twice")
    #expect(try blocks { $0.data[0] = [] }, "a block without entries")
    #expect(try blocks { $0.data[0][0].key = [] }, "an empty key")
    #expect(try !blocks { $0.data[2][2].key = testBytes(600, seed: 1).map { $0 | 0x80 } })
    #expect(try blocks { $0.data[2][2].key = testBytes(601, seed: 1).map { $0 | 0x80 } })
    #expect(try !blocks { $0.data[2][2].value = testBytes(32768, seed: 1) })
    #expect(try blocks { $0.data[2][2].value = testBytes(32769, seed: 1) })
    #expect(try blocks { $0.entryCountOffset = 1 }, "a wrong count of entries")
    #expect(try blocks { $0.blockCountOffset = 1 }, "a wrong count of blocks")
    #expect(try blocks { $0.dataCountOffset = 1 }, "more entries than there are")
    #expect(try blocks { $0.dataCountOffset = -1 }, "bytes too many in a block")
    #expect(try blocks { $0.firstKeyChange = 1 }, "an index that names another first key")
    #expect(try blocks { $0.gap = 50 }, "a gap between blocks")
    #expect(try blocks { $0.reserved = 1 }, "reserved bytes")
    #expect(try blocks { $0.trailing = [0] }, "bytes too many in the footer")
  }

  // MARK: Worked examples

  private static func newContainer(_ secret: TestSecret = secret) throws -> RecordingIO {
    let io = RecordingIO()
    try Container.create(io, secret).close()
    return io
  }

  @Test func aNewContainerHasTheSizesOfThePage() throws {
    let io = try Self.newContainer()
    #expect(io.image["superblock"]?.count == 69632)
    #expect(io.image.slot(0) == io.image.slot(1))
    let tables = io.image.files(in: "catalog")
    #expect(tables.map { io.image[$0]!.count } == [244])
    #expect(io.image.files(in: "journal") == [] && io.image.files(in: "slab") == [])
    let container = try Container.open(io, secret)
    try container.store.withSuperblock { _, body, _ in
      #expect(body.generations.map(\.tables.count) == [1])
      #expect(body.generations[0].tables[0].byteCount == 244)
      #expect(body.generations[0].tables[0].footerLength == 39)
      #expect("catalog/" + body.generations[0].tables[0].id.hex == tables[0])
    }
  }

  @Test func aFileOfOneByteAddsOneRecordAndOneSegment() throws {
    let io = try Self.newContainer()
    let container = try Container.open(io, secret, mode: .readWrite)
    try container.write([1], to: "/x")
    #expect(io.image.files(in: "slab").map { io.image[$0]!.count } == [42])
    let journal = io.image[io.image.files(in: "journal")[0]]!
    let second = Int(JournalFrame.alignedUp(UInt64(JournalFrame.byteCount(payload: JournalHeader.byteCount))))
    #expect(second == 4096)
    let payload = journal[(second + 32)..<(second + 36)].reversed().reduce(0) { $0 << 8 | Int($1) }
    #expect(journal.count == second + JournalFrame.byteCount(payload: payload))
  }

  // MARK: Any bytes

  @Test func anyBytesInAnInode() {
    let valid = [
      Self.inode(.file), Self.inode(.file, extent: Self.extent(count: 2, lastLength: 99)),
      Self.inode(.directory),
      Self.inode(.symbolicLink, target: 9),
    ].map(\.encoded)
    // A run tag is skipped, and so is no part of what would be written.
    let accepted = fuzz(FuzzedBytes(valid, byteCounts: 0...200)) { bytes in
      let inode = try Inode(bytes)
      return bytes[2] == 3 ? nil : inode.encoded
    }
    #expect(accepted > 1000)
  }

  @Test func anyBytesInADirectoryEntry() {
    let valid = [DirectoryEntry(kind: .file, file: 77).encoded]
    let accepted = fuzz(FuzzedBytes(valid, byteCounts: 0...20)) { try DirectoryEntry($0).encoded }
    #expect(accepted > 1000)
  }

  @Test func anyBytesInACounter() {
    let valid = [
      CatalogCounters(nextFile: 5, nextSlab: 6).encoded, littleEndian(UInt64(70)) + littleEndian(UInt64(300)),
    ]
    #expect(fuzz(FuzzedBytes(valid, byteCounts: 0...20)) { try CatalogCounters($0).encoded } > 1000)
    #expect(fuzz(FuzzedBytes(valid, byteCounts: 0...20)) { try SlabCounter($0).encoded } > 1000)
  }

  @Test func anyBytesInAJournalHeader() {
    let end = JournalEnd(record: 4, offset: 8192, tag: testBytes(16, seed: 1), commit: 7)
    let valid = [
      JournalHeader(
        session: Self.session, generation: 3, created: 4,
        predecessor: .init(id: Self.session, generation: 2, end: end),
        commit: 7
      ).encoded
    ]
    let accepted = fuzz(FuzzedBytes(valid, byteCounts: 120...136)) { try JournalHeader($0).encoded }
    #expect(accepted > 1000)
  }

  @Test func anyBytesInAJournalRecord() {
    let valid = [
      Self.record([]).encoded, Self.record([Self.change(key: 3, value: 4)]).encoded,
      Self.record([Self.change(key: 9, value: nil), Self.change(key: 1, value: 0)]).encoded,
    ]
    let accepted = fuzz(FuzzedBytes(valid, byteCounts: 0...100)) {
      try JournalRecord($0, number: .max).encoded
    }
    #expect(accepted > 1000)
  }

  @Test func anyBytesInAGeneration() {
    let valid = [0, 1, 5].map { count in
      var writer = ByteWriter()
      Self.generation(3, tables: count).append(to: &writer)
      return writer.bytes
    }
    let accepted = fuzz(FuzzedBytes(valid, byteCounts: 460...485)) { bytes in
      var reader = ByteReader(bytes)
      let generation = try Generation(&reader)
      try reader.end()
      var writer = ByteWriter()
      generation.append(to: &writer)
      return writer.bytes
    }
    #expect(accepted > 1000)
  }

  @Test func anyBytesInABody() throws {
    let valid = try [Self.cleanBody().encoded, Self.body(generations: [Self.generation(1)]).encoded]
    let accepted = fuzz(FuzzedBytes(valid, byteCounts: 2550...2570)) { try SuperblockBody($0).encoded }
    #expect(accepted > 100)
  }

  @Test func anyBytesInAKeySlot() throws {
    let valid = try [TestSecret.rawKey(1), .passphrase("x")].map {
      Array(try Self.newContainer($0).image.slot(0)[64..<224])
    }
    let accepted = fuzz(FuzzedBytes(valid, byteCounts: 160...160)) { try KeySlot.decode($0)?.encoded }
    #expect(accepted > 1000)
  }

  @Test func anyBytesInASuperblockSlot() throws {
    var cases = FuzzedBytes([try Self.newContainer().image.slot(0)], byteCounts: 4090...4100)
    cases.repair = { $0.count == 4096 ? withChecksum($0) : $0 }
    let accepted = fuzz(cases) { bytes in
      guard case .good(let slot) = SuperblockSlot.read(bytes) else { return nil }
      var again = slot.bytes
      again.replaceSubrange(16..<32, with: slot.containerID.bytes)
      again.replaceSubrange(32..<40, with: littleEndian(slot.sequence))
      let keySlots = slot.keySlots.flatMap { $0?.encoded ?? [UInt8](repeating: 0, count: 160) }
      again.replaceSubrange(64..<1344, with: keySlots)
      return again
    }
    #expect(accepted > 1000)
  }

  @Test func anyBytesInATable() throws {
    var random = SplitMix64(seed: 1)
    var accepted = 0
    for i in 0..<10_000 {
      // Random files, and authentic ones with blocks of which some bytes are wrong.
      if i % 4 == 0 {
        let bytes = testBytes(Int(random.next() % 400), seed: random.next())
        let table = Generation.Table(
          id: Self.place.table, byteCount: UInt64(bytes.count), footerLength: UInt32(random.next() % 300),
          footerTag: Array(bytes.suffix(16)), keying: .init(epoch: 1, secret: testBytes(32, seed: 3)))
        #expect(isMalformed { _ = try read(WrittenTable(bytes: bytes, table: table)) })
        continue
      }
      var forged = ForgedTable()
      forged.mutation = random.next()
      let written = try forged.sealed(Self.place, try Self.key(), cipher)
      do {
        let entries = try read(WrittenTable(bytes: written.bytes, table: written.table))
        accepted += 1
        #expect(forged.holds(entries, in: written.plaintexts))
      } catch is MalformedBytes {
      }
    }
    #expect(accepted > 100)
  }
}

/// A table made by hand after CONTAINER-FORMAT.md, "Tables", with blocks that no writer would seal.
private struct ForgedTable {
  typealias Entry = (operation: UInt8, key: [UInt8], value: [UInt8])

  var data: [[Entry]] = (0..<3).map { block in
    (0..<3).map { (1, [UInt8(block), UInt8($0)], [UInt8](repeating: 9, count: 3)) }
  }
  var entryCountOffset = 0
  var blockCountOffset = 0
  var dataCountOffset = 0
  var firstKeyChange: UInt8 = 0
  var gap = 0
  var reserved: UInt32 = 0
  var trailing: [UInt8] = []
  /// Changes a byte of one block before it is sealed.
  var mutation: UInt64?

  func sealed(_ place: Table.Place, _ key: borrowing SecretKey, _ cipher: SecretStreamCipher) throws -> (
    bytes: [UInt8], table: Generation.Table, plaintexts: [[UInt8]]
  ) {
    var bytes: [UInt8] = []
    var plaintexts: [[UInt8]] = []
    func seal(_ plaintext: [UInt8], _ kind: UInt8, key: borrowing SecretKey) throws -> UInt64 {
      var plaintext = plaintext
      if let mutation, mutation % 5 == UInt64(plaintexts.count) {
        let i = Int(mutation / 5 % UInt64(plaintext.count))
        plaintext[i] = UInt8(truncatingIfNeeded: mutation >> 40)
      }
      plaintexts.append(plaintext)
      var ad = ByteWriter()
      ad.append(label("OD1-block"))
      ad.append(place.container)
      ad.append(place.table)
      ad.append(UInt64(bytes.count))
      ad.append(UInt32(plaintext.count))
      ad.append(kind)
      ad.appendZeros(3)
      let offset = UInt64(bytes.count)
      bytes += try SealedMessage.seal(plaintext, key: key, ad: ad.bytes, cipher: cipher)
      return offset
    }
    var index = ByteWriter()
    index.append(UInt32(data.count))
    for (i, entries) in data.enumerated() {
      var block = ByteWriter()
      block.append(UInt32(entries.count + (i == 0 ? dataCountOffset : 0)))
      for entry in entries {
        block.append(entry.operation)
        block.append(UInt16(entry.key.count))
        block.append(entry.key)
        block.append(UInt32(entry.value.count))
        block.append(entry.value)
      }
      if i == 1 { bytes += [UInt8](repeating: 0, count: gap) }
      let offset = try seal(block.bytes, 1, key: key)
      var firstKey = entries.first?.key ?? [1]
      if i == 1, !firstKey.isEmpty { firstKey[0] += firstKeyChange }
      index.append(offset)
      index.append(UInt32(block.bytes.count))
      index.append(UInt16(firstKey.count))
      index.append(firstKey)
    }
    let indexOffset = try seal(index.bytes, 2, key: key)
    var footer = ByteWriter()
    footer.append(UInt64(data.joined().count + entryCountOffset))
    footer.append(UInt64(data.count + blockCountOffset))
    footer.append(UInt32(1))
    footer.append(reserved)
    footer.append(indexOffset)
    footer.append(UInt32(index.bytes.count))
    let first = data[0].first?.key ?? [1]
    footer.append(UInt16(first.count))
    footer.append(first)
    footer.append(trailing)
    _ = try seal(footer.bytes, 3, key: key)
    let table = Generation.Table(
      id: place.table, byteCount: UInt64(bytes.count), footerLength: UInt32(footer.bytes.count),
      footerTag: Array(bytes.suffix(16)), keying: .init(epoch: 1, secret: testBytes(32, seed: 3)))
    return (bytes, table, plaintexts)
  }

  /// Whether the entries that were read are those of the data blocks, byte by byte.
  func holds(_ entries: [(CatalogKey, [UInt8]?)], in plaintexts: [[UInt8]]) -> Bool {
    var rest = entries[...]
    return plaintexts.prefix(data.count).allSatisfy { plaintext in
      var block = ByteWriter()
      var count: UInt32 = 0
      while block.bytes.count + 4 < plaintext.count, let (key, value) = rest.popFirst() {
        block.append(UInt8(value == nil ? 2 : 1))
        block.append(UInt16(key.bytes.count))
        block.append(key.bytes)
        block.append(UInt32(value?.count ?? 0))
        block.append(value ?? [])
        count += 1
      }
      return littleEndian(count) + block.bytes == plaintext
    } && rest.isEmpty
  }
}

/// A key of these 32 bytes.
func testKey(_ bytes: [UInt8]) -> SharedKey {
  do { return try SharedKey(copying: bytes) } catch { fatalError("\(error)") }
}
