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
private let segment = SegmentLayout.storedByteCountMax

typealias Tree = [String: [UInt8]?]

/// What every byte of a cleanly closed container is for.
struct Anatomy {
  /// The bytes that some state of the container needs, per file; all others may be anything.
  var live: [String: [Range<Int>]] = [:]
  /// Of each file in the container.
  var runs: [String: [Extent]] = [:]
  /// Newest first.
  var tables: [String] = []
  /// Where the footer of each table begins.
  var footers: [String: Int] = [:]
  /// The current one first, then its predecessors.
  var journals: [String] = []

  init(_ image: DiskImage) throws {
    let container = try Container.open(image, secret)
    for offset in SuperblockSlot.offsets {
      live["superblock", default: []].append(Int(offset)..<(Int(offset) + SuperblockSlot.byteCount))
    }
    try container.store.withSuperblock { _, body, _ in
      for table in body.generations.flatMap(\.tables) {
        let name = CopiedFile.names(table.id, in: .catalog)[0]
        tables.append(name)
        footers[name] = Int(table.byteCount) - Int(table.footerLength) - SecretStreamCipher.overheadByteCount
      }
      journals = try container.store.catalogFiles.loader(body).journals().map {
        CopiedFile.names($0, in: .journal)[0]
      }
    }
    for table in tables { live[table] = [0..<image[table]!.count] }
    for journal in journals { live[journal] = Self.frames(of: image[journal]!) }
    for path in tables + journals { live[DiskImage.copy(of: path)] = live[path] }
    try container.reader.withWrittenBackSnapshot { records in
      for (names, file) in try records.subtree(rootFileID) where file.inode.kind == .file {
        let extents = try records.extents(file.id, file.inode)
        runs["/" + names.map(\.description).joined(separator: "/")] = extents
        for extent in extents {
          live[SlabStore.name(extent.slab), default: []].append(
            Int(extent.offset)..<(Int(extent.offset) + extent.storedByteCount))
        }
      }
    }
  }

  /// The frames of a journal, whose lengths stand at byte 32 of each.
  static func frames(of journal: [UInt8]) -> [Range<Int>] {
    var frames: [Range<Int>] = []
    var offset = 0
    while offset + JournalFrame.headerByteCount < journal.count {
      let count = journal[(offset + 32)..<(offset + 36)].reversed().reduce(0) { $0 << 8 | Int($1) }
      guard count > 0 else { break }
      frames.append(offset..<(offset + JournalFrame.byteCount(payload: count)))
      offset = Int(JournalFrame.alignedUp(UInt64(frames.last!.upperBound)))
    }
    return frames
  }

  func isLive(_ offset: Int, of path: String) -> Bool {
    live[path]?.contains { $0.contains(offset) } ?? false
  }

  /// Whether an image differs from the container in a byte that counts.
  func differs(_ changed: DiskImage, from image: DiskImage) -> Bool {
    live.contains { path, ranges in
      guard let old = image[path], let new = changed[path] else { return true }
      return old != new && ranges.contains { $0.upperBound > new.count || old[$0] != new[$0] }
    }
  }
}

/// A small container with everything in it that can be attacked, copies of it from earlier moments, and another one.
struct Victim {
  /// After each clean close.
  var moments: [(image: DiskImage, tree: Tree)] = []
  /// Continued from an earlier copy of the directory, so with the same id and keys.
  var diverged: DiskImage
  /// Another container with the same key, whose files have the same contents.
  var foreign: DiskImage
  var anatomy: Anatomy

  var image: DiskImage { moments.last!.image }
  var tree: Tree { moments.last!.tree }

  static let shared = Result { try Victim() }

  init() throws {
    moments = try Self.live()
    foreign = try Self.live().last!.image
    let io = RecordingIO(moments[moments.count - 3].image)
    let container = try Container.open(io, secret, mode: .readWrite)
    for i in 8..<10 { try Self.write(round: i, to: container) }
    try container.close()
    diverged = io.image
    anatomy = try Anatomy(moments.last!.image)
  }

  private static func live() throws -> [(image: DiskImage, tree: Tree)] {
    let io = RecordingIO()
    var container = try Container.create(io, secret)
    try container.createDirectory("/tree/a/b", withIntermediateDirectories: true)
    try container.createDirectory("/tree/none")
    try container.write([], to: "/empty")
    try container.write([42], to: "/one")
    try container.write(testBytes(16385, seed: 1), to: "/grain")
    try container.write(testBytes(40_000, seed: 2), to: "/long")
    try container.write(testBytes(5000, seed: 3), to: "/tree/a/b/deep")
    try container.write(testBytes(300, seed: 4), to: "/tree/a/second")
    try container.write(testBytes(120_000, seed: 5), to: "/doomed")
    try fillSlab(of: container) { try $0.write(testBytes(20_000, seed: 6), to: "/elsewhere") }
    var moments: [(image: DiskImage, tree: Tree)] = []
    // As many openings as make a journal chain long enough for a checkpoint, and some more.
    for i in 0...10 {
      let tree = try container.tree()
      try container.close()
      moments.append((io.image, tree))
      guard i < 10 else { break }
      container = try Container.open(io, secret, mode: .readWrite)
      try write(round: i, to: container)
      if i == 9 { try container.remove("/doomed") }
    }
    return moments
  }

  private static func write(round: Int, to container: Container) throws {
    try container.write(testBytes(100 + round, seed: UInt64(100 + round)), to: "/counter")
    try container.write(testBytes(50, seed: UInt64(200 + round)), to: "/round\(round)")
  }

  /// Writes something while the first slab has no room, so that it goes to another one.
  private static func fillSlab(of container: Container, _ body: (Container) throws -> Void) throws {
    let end = try container.reader.withWrittenBackSnapshot { try $0.slabCounters()[0]!.end }
    let count = Int(SlabStore.byteCountMax - SlabStore.alignedUp(end)) / segment
    let junk = [UInt8](repeating: 0, count: count * segment)
    let place = try junk.withUnsafeBytes { try container.store.slabs.append($0) }
    try body(container)
    // A run that was never committed: its space is given back.
    container.store.slabs.discard(
      [
        Extent(
          start: 0, count: UInt32(count), lastLength: UInt32(SegmentLayout.plaintextByteCountMax),
          writeNumber: WriteNumber(session: .zero, counter: 1), slab: place.slab, offset: place.offset)
      ])
  }
}

/// An image after an attack.
private struct Attack {
  var name: String
  var image: DiskImage

  init(_ name: String, _ image: DiskImage, _ change: (inout DiskImage) throws -> Void) rethrows {
    self.name = name
    self.image = image
    try change(&self.image)
  }
}

private func flipBits(in victim: Victim, shard: Int, of shardCount: Int) -> [String] {
  let triesAll = TestEffort.current == .all
  var complaints: [String] = []
  var random = SplitMix64(seed: UInt64(shard))
  for path in victim.image.names.keys.sorted() {
    let bytes = victim.image[path]!
    var marked = [Bool](repeating: false, count: bytes.count)
    for range in victim.anatomy.live[path] ?? [] { for i in range { marked[i] = true } }
    let kind = String(path.prefix { $0 != "/" })
    let sampleCounts = [
      "superblock": (160, 30), "catalog": (80, 1), "journal": (30, 6), "copy": (30, 6), "slab": (120, 50),
    ]
    let (liveCount, deadCount) = sampleCounts[kind] ?? (1, 20)
    for (expectsDamage, sampleCount) in [(true, liveCount), (false, deadCount)] {
      let offsets = bytes.indices.filter { marked[$0] == expectsDamage }
      guard !offsets.isEmpty else { continue }
      let step =
        triesAll
        ? shardCount : max(1, offsets.count / sampleCount * shardCount * TestEffort.count(4, long: 1))
      let begin = triesAll ? shard : Int(random.next() % UInt64(step))
      for i in stride(from: begin, to: offsets.count, by: step) {
        let bit = Int(random.next() & 7)
        var image = victim.image
        image.flipBit(bit, at: offsets[i], of: path)
        let verdict = Verdict(image, secret, states: [victim.tree])
        let place = "bit \(bit) of byte \(offsets[i]) of \(kind) (\(bytes.count) bytes)"
        complaints += verdict.complaints.map { "\(place): \($0)" }
        if expectsDamage, !verdict.isDetected { complaints.append("\(place): not detected") }
        if !expectsDamage, verdict.isDetected || !verdict.findings.isEmpty {
          complaints.append(
            "\(place): a dead byte: \(verdict.error.map { "\($0)" } ?? "\(verdict.findings)")")
        }
      }
    }
  }
  return complaints
}

struct AttackTests {
  private static let shardCount = 4

  @Test func theVictimIsWholeAndHasEverythingThatCanBeAttacked() throws {
    let victim = try Victim.shared.get()
    let verdict = Verdict(victim.image, secret, states: [victim.tree])
    #expect(verdict.error == nil && verdict.findings.isEmpty && verdict.complaints.isEmpty)
    #expect(victim.anatomy.tables.count >= 1)
    #expect(victim.anatomy.journals.count >= 3)
    #expect(victim.image.files(in: "slab").count == 2)
    #expect(
      Set(victim.image.names.keys) == Set(victim.anatomy.live.keys).union(Reserve.names + ["lock"]),
      "every file is accounted for")
    #expect(victim.anatomy.runs["/long"]?.map(\.count) == [3])
    #expect(victim.anatomy.runs["/long"]?[0].slab != victim.anatomy.runs["/elsewhere"]?[0].slab)
  }

  @Test(arguments: 0..<shardCount)
  func aFlippedBitIsDetectedWhereItCountsAndNeverReadAsData(shard: Int) throws {
    let complaints = flipBits(in: try Victim.shared.get(), shard: shard, of: Self.shardCount)
    #expect(complaints.isEmpty, "\(complaints.count): \(complaints.prefix(5).joined(separator: "\n"))")
  }

  // MARK: Attacks on a whole container

  /// Every attack is detected, and nothing wrong is read.
  private func expectDetection(_ attacks: [Attack], in victim: Victim) {
    for attack in attacks {
      #expect(victim.anatomy.differs(attack.image, from: victim.image), "\(attack.name): changes nothing")
      for (image, copies) in [(attack.image, "one copy"), (attack.image.withEqualCopies, "both copies")]
      where victim.anatomy.differs(image, from: victim.image) {
        let verdict = Verdict(image, secret, states: [victim.tree])
        #expect(verdict.isDetected, "\(attack.name), \(copies)")
        #expect(verdict.complaints == [], "\(attack.name), \(copies)")
      }
    }
  }

  @Test func truncatedFilesAreDetected() throws {
    let victim = try Victim.shared.get()
    var attacks: [Attack] = []
    for (path, ranges) in victim.anatomy.live {
      let end = ranges.map(\.upperBound).max()!
      let ends = ranges.flatMap { [$0.lowerBound, $0.upperBound] }.filter { $0 < end }
      for count in Set([0, 1, end / 2, end - 1] + ends.prefix(6) + ends.suffix(6)) {
        attacks.append(
          Attack("\(path) of \(end) bytes cut to \(count)", victim.image) { image in
            image[path]!.removeSubrange(count...)
          })
      }
    }
    expectDetection(attacks, in: victim)
  }

  @Test func zeroedRegionsAreDetected() throws {
    let victim = try Victim.shared.get()
    var attacks: [Attack] = []
    for (path, ranges) in victim.anatomy.live {
      for range in ranges {
        for zeroed in [range, range.prefix(4096), range.suffix(100), range.prefix(16)] {
          attacks.append(
            Attack("bytes \(zeroed) of \(path)", victim.image) { image in
              image[path]!.replaceSubrange(zeroed, with: repeatElement(0, count: zeroed.count))
            })
        }
      }
    }
    expectDetection(attacks, in: victim)
  }

  @Test func deletedFilesAreDetected() throws {
    let victim = try Victim.shared.get()
    var attacks: [Attack] = []
    for path in victim.anatomy.live.keys {
      attacks.append(Attack("\(path) deleted", victim.image) { $0[path] = nil })
      attacks.append(Attack("\(path) emptied", victim.image) { $0[path] = [] })
    }
    expectDetection(attacks, in: victim)
    // The lock file is the one that may go.
    let verdict = Verdict(
      Attack("", victim.image) { $0["lock"] = nil }.image, secret, states: [victim.tree])
    #expect(!verdict.isDetected && verdict.complaints == [])
  }

  @Test func segmentsInAnotherPlaceDoNotOpen() throws {
    let victim = try Victim.shared.get()
    let runs = victim.anatomy.runs
    func place(_ file: String, _ index: Int, in runs: [String: [Extent]]) -> (String, Range<Int>) {
      let extent = runs[file]![0]
      let begin = Int(extent.offset) + index * segment
      return (SlabStore.name(extent.slab), begin..<(begin + segment))
    }
    func attack(
      _ name: String, _ to: (String, Range<Int>), _ from: (String, Range<Int>), of source: DiskImage
    ) -> Attack {
      Attack(name, victim.image) { image in
        image[to.0]!.replaceSubrange(to.1, with: source[from.0]![from.1])
      }
    }
    let first = place("/long", 0, in: runs)
    let second = place("/long", 1, in: runs)
    let foreign = try Anatomy(victim.foreign).runs
    let swapped = Attack("two segments of one file swapped", victim.image) { image in
      image[first.0]!.replaceSubrange(first.1, with: victim.image[second.0]![second.1])
      image[second.0]!.replaceSubrange(second.1, with: victim.image[first.0]![first.1])
    }
    var attacks = [
      swapped,
      attack("a segment repeated", second, first, of: victim.image),
      attack("a segment of another file", first, place("/grain", 0, in: runs), of: victim.image),
      attack("a segment of another slab", first, place("/elsewhere", 0, in: runs), of: victim.image),
      attack(
        "the same segment of another container", first, place("/long", 0, in: foreign), of: victim.foreign),
    ]
    // The same file, with the same id, name and length, in a copy of the container that went its own way.
    let small = Int(runs["/round9"]![0].offset)..<(Int(runs["/round9"]![0].offset) + 91)
    let diverged = try Anatomy(victim.diverged).runs["/round9"]![0]
    attacks.append(
      attack(
        "the segment of a diverged copy", (SlabStore.name(runs["/round9"]![0].slab), small),
        (SlabStore.name(diverged.slab), Int(diverged.offset)..<(Int(diverged.offset) + 91)),
        of: victim.diverged))
    // What the file had before.
    let old = try Anatomy(victim.moments[8].image).runs["/counter"]![0]
    let new = runs["/counter"]![0]
    attacks.append(
      attack(
        "an older version of a segment",
        (SlabStore.name(new.slab), Int(new.offset)..<(Int(new.offset) + old.storedByteCount)),
        (SlabStore.name(old.slab), Int(old.offset)..<(Int(old.offset) + old.storedByteCount)),
        of: victim.moments[8].image))
    expectDetection(attacks, in: victim)
  }

  @Test func filesThatTradePlacesAreDetected() throws {
    let victim = try Victim.shared.get()
    func swap(_ name: String, _ a: String, _ b: String) -> Attack {
      Attack(name, victim.image) { image in
        image[a] = victim.image[b]
        image[b] = victim.image[a]
      }
    }
    let slabs = victim.image.files(in: "slab")
    let journals = victim.anatomy.journals
    let tables = victim.anatomy.tables
    var attacks = [
      swap("the slabs swapped", slabs[0], slabs[1]),
      swap("a table and a journal swapped", tables[0], journals[0]),
      swap("the newest journals swapped", journals[0], journals[1]),
      swap("the newest and the oldest journal swapped", journals[0], journals.last!),
    ]
    let foreign = try Anatomy(victim.foreign)
    attacks += [
      Attack("another container's slab", victim.image) { $0[slabs[0]] = victim.foreign[slabs[0]] },
      Attack("another container's table", victim.image) { image in
        image[tables[0]] = victim.foreign[foreign.tables[0]]
      },
      Attack("another container's journal", victim.image) { image in
        image[journals[0]] = victim.foreign[foreign.journals[0]]
      },
      Attack("an older journal under the newest one's name", victim.image) { image in
        image[journals[0]] = victim.image[journals[2]]
      },
    ]
    let diverged = try Anatomy(victim.diverged)
    attacks += [
      Attack("a diverged copy's journal", victim.image) { image in
        image[journals[0]] = victim.diverged[diverged.journals[0]]
      },
      Attack("a diverged copy's superblock", victim.image) { image in
        image["superblock"] = victim.diverged["superblock"]
      },
      Attack("one slot of a diverged copy's superblock", victim.image) { image in
        image.setSlot(1, victim.diverged.slot(1))
      },
      Attack("another container's superblock", victim.image) { image in
        image["superblock"] = victim.foreign["superblock"]
      },
      Attack("one slot of another container's superblock", victim.image) { image in
        image.setSlot(0, victim.foreign.slot(0))
      },
    ]
    expectDetection(attacks, in: victim)
  }

  @Test func oldVersionsOfSingleFilesAreDetected() throws {
    let victim = try Victim.shared.get()
    var attacks: [Attack] = []
    for (i, moment) in victim.moments.dropLast().enumerated() {
      for (path, inode) in moment.image.names {
        let old = moment.image.contents[inode]!
        guard path != "superblock", let new = victim.image[path], old != new else { continue }
        let attack = Attack("\(path) of moment \(i)", victim.image) { $0[path] = old }
        // An old slab may lack nothing but bytes that nobody needs any more.
        if victim.anatomy.differs(attack.image, from: victim.image) { attacks.append(attack) }
      }
      guard i < victim.moments.count - 2 else { continue }
      for slot in 0..<2 {
        attacks.append(
          Attack("slot \(slot) of moment \(i)", victim.image) { $0.setSlot(slot, moment.image.slot(slot)) })
      }
    }
    #expect(attacks.contains { $0.name.hasPrefix("slab") })
    expectDetection(attacks, in: victim)
  }

  @Test func theNewestJournalCannotBeRolledBackAfterACleanClose() throws {
    let victim = try Victim.shared.get()
    let journal = victim.anatomy.journals[0]
    let frames = victim.anatomy.live[journal]!
    #expect(frames.count == 4, "the header, and a record for each change of the last opening")
    var attacks: [Attack] = []
    for frame in frames {
      attacks.append(
        Attack("cut to \(frame.upperBound - frame.count)", victim.image) { image in
          image[journal]!.removeSubrange(frame.lowerBound...)
        })
      attacks.append(
        Attack("zeros from \(frame.lowerBound) on", victim.image) { image in
          let count = image[journal]!.count - frame.lowerBound
          image[journal]!.replaceSubrange(frame.lowerBound..., with: repeatElement(0, count: count))
        })
    }
    // The journal that the last but one opening left is a prefix of nothing: each opening has its own.
    expectDetection(attacks, in: victim)
  }

  @Test func recordsThatAreRepeatedLeftOutOrReorderedAreDetected() throws {
    let victim = try Victim.shared.get()
    var attacks: [Attack] = []
    // A checkpoint's first journal may have nothing but its header.
    let journals = victim.anatomy.journals.filter { victim.anatomy.live[$0]!.count >= 3 }
    for journal in [journals[0], journals[1], journals.last!] {
      let bytes = victim.image[journal]!
      let frames = victim.anatomy.live[journal]!
      func frame(_ i: Int) -> [UInt8] {
        let end = i + 1 < frames.count ? frames[i + 1].lowerBound : bytes.count
        let frame = Array(bytes[frames[i].lowerBound..<end])
        return frame + [UInt8](repeating: 0, count: (4096 - frame.count % 4096) % 4096)
      }
      func attack(_ name: String, _ order: [Int]) {
        attacks.append(
          Attack("\(name) in \(journal)", victim.image) { $0[journal] = order.flatMap(frame) })
      }
      let all = Array(frames.indices)
      attack("a record repeated", [0, 1, 1] + all.dropFirst(2))
      attack("the header repeated", [0] + all)
      attack("a record left out", [0] + all.dropFirst(2))
      attack("the header left out", Array(all.dropFirst()))
      attack("the header last", Array(all.dropFirst()) + [0])
      attack("records reversed", [0] + all.dropFirst().reversed())
    }
    expectDetection(attacks, in: victim)
  }

  // MARK: Earlier states

  @Test func aWholeContainerPutBackOpensInItsEarlierState() throws {
    // The limit that the format page names: only an anchor kept elsewhere tells.
    let victim = try Victim.shared.get()
    for moment in victim.moments {
      let verdict = Verdict(moment.image, secret, states: [moment.tree])
      #expect(!verdict.isDetected && verdict.findings == [] && verdict.complaints == [])
    }
  }

  @Test func anEarlierCatalogWithNewerSlabsShowsTheEarlierStateOrDamage() throws {
    let victim = try Victim.shared.get()
    for moment in victim.moments.dropLast() {
      var image = moment.image
      for slab in moment.image.files(in: "slab") { image[slab] = nil }
      for slab in victim.image.files(in: "slab") { image[slab] = victim.image[slab] }
      let verdict = Verdict(image, secret, states: [moment.tree])
      // A file that was removed since was punched out of the slab.
      #expect(verdict.findings.contains { $0.kind == .segmentDamaged && $0.path == "/doomed" })
      #expect(verdict.complaints == [])
    }
  }

  @Test func anEarlierSuperblockShowsTheEarlierStateOrDamage() throws {
    let victim = try Victim.shared.get()
    for moment in victim.moments.dropLast() {
      let attack = Attack("", victim.image) { $0["superblock"] = moment.image["superblock"] }
      let verdict = Verdict(attack.image, secret, states: [moment.tree])
      #expect(verdict.isDetected)
      #expect(verdict.complaints == [])
    }
  }

  // MARK: After an unclean end

  /// Commits that only add, each with the tree after it, in a container that was not closed.
  private struct Unclean {
    var image: DiskImage
    var trees: [Tree] = []
    /// The same bytes, twice.
    var journals: [String]
    var frames: [Range<Int>]

    /// The image with the same done to both copies of the journal.
    func changed(_ change: (inout [UInt8]) -> Void) -> DiskImage {
      var image = image
      for journal in journals { change(&image[journal]!) }
      return image
    }

    init() throws {
      let io = RecordingIO(try Victim.shared.get().moments[4].image)
      let container = try Container.open(io, secret, mode: .readWrite)
      trees.append(try container.tree())
      for i in 0..<5 {
        try container.write(testBytes(1000 * i, seed: UInt64(i)), to: "/added\(i)")
        trees.append(try container.tree())
      }
      image = io.image
      journals = try container.store.withSuperblock { _, body, _ in
        CopiedFile.names(body.journal!.id, in: .journal)
      }
      frames = Anatomy.frames(of: image[journals[0]]!)
    }
  }

  @Test func aCutTailIsATornTailAndNeverTampering() throws {
    let unclean = try Unclean()
    #expect(unclean.frames.count == 6)
    for (i, frame) in unclean.frames.enumerated().dropFirst() {
      // At a record's end, or before the next one begins, nothing shows that more was there.
      let whole: [(Int, Int)] = [(frame.lowerBound, i - 1), (frame.upperBound, i)]
      let inside = [1, 8, 95, 96, 97, frame.count / 2, frame.count - 1].map { (frame.lowerBound + $0, i - 1) }
      for (count, state) in whole + inside {
        let image = unclean.changed { $0.removeSubrange(count...) }
        let verdict = Verdict(image, secret, states: [unclean.trees[state]])
        #expect(verdict.error == nil && verdict.complaints == [], "cut to \(count)")
        let isTorn = inside.contains { $0.0 == count }
        #expect(
          verdict.findings.map(\.kind) == (isTorn ? [.tornTail, .notClosed] : [.notClosed]), "cut to \(count)"
        )
        #expect(!verdict.isDetected)
        // A writer goes on from there.
        let io = RecordingIO(image)
        let writer = try Container.open(io, secret, mode: .readWrite)
        try writer.write([1], to: "/after")
        try writer.close()
        var expected = unclean.trees[state]
        expected["/after"] = [1]
        let recovered = Verdict(io.image, secret, states: [expected])
        #expect(recovered.findings == [] && recovered.complaints == [], "cut to \(count)")
      }
    }
  }

  @Test func aRecordThatALaterOneKnowsToBeDurableMayNotBeMissing() throws {
    let unclean = try Unclean()
    for (i, frame) in unclean.frames.enumerated() {
      for offset in [0, 8, 24, 40, 64, 80, 96, frame.count - 1] {
        let image = unclean.changed { $0[frame.lowerBound + offset] ^= 8 }
        for mode in [Container.Mode.readOnly, .readWrite] {
          let code = try Container.openingError(image, secret, mode: mode)?.code
          // The last record is one that a crash can tear.
          #expect(
            code == (i == unclean.frames.count - 1 ? nil : .journalDamaged), "record \(i), byte \(offset)")
        }
        let verdict = Verdict(image, secret, states: [unclean.trees[max(i - 1, 0)]])
        #expect(verdict.complaints == [])
        if verdict.error == nil { #expect(verdict.findings.map(\.kind) == [.tornTail, .notClosed]) }
      }
    }
  }

  @Test func aRecordWithGoodChecksumsThatDoesNotFitIsAltered() throws {
    let unclean = try Unclean()
    let last = unclean.frames.last!
    func code(_ change: (inout [UInt8]) -> Void) throws -> ContainerError.Code? {
      var frame = Array(unclean.image[unclean.journals[0]]![last])
      change(&frame)
      frame.replaceSubrange(64..<80, with: frame[96...].withUnsafeBytes { KeyedHash.checksum($0) })
      frame.replaceSubrange(80..<96, with: frame[..<80].withUnsafeBytes { KeyedHash.checksum($0) })
      let image = unclean.changed { $0.replaceSubrange(last, with: frame) }
      return try Container.openingError(image, secret)?.code
    }
    #expect(try code { _ in } == nil)
    #expect(try code { $0[24] ^= 1 } == .journalAltered)  // number
    #expect(try code { $0.replaceSubrange(32..<36, with: [0, 0, 0, 0]) } == .journalAltered)
    #expect(
      try code { $0.replaceSubrange(32..<36, with: littleEndian(UInt32(1_044_481))) } == .journalAltered)
    #expect(try code { $0[36] ^= 1 } == .journalAltered)
    #expect(try code { $0[40] ^= 1 } == .journalAltered)  // previous tag
    #expect(try code { $0[63] ^= 1 } == .journalAltered)
    #expect(try code { $0[120] ^= 1 } == .journalAltered)  // sealed payload
    #expect(try code { $0[8] ^= 1 } == nil)  // another journal's frame is a torn tail
    // An authentic record of this journal in another one's place.
    let other = unclean.frames[2]
    let image = unclean.changed { $0.replaceSubrange(last.lowerBound..., with: $0[other]) }
    #expect(try Container.openingError(image, secret)?.code == .journalAltered)
  }

  // MARK: Clear text

  @Test func nothingStandsInClear() throws {
    let directory = TemporaryDirectory()
    let name = "canary-of-a-name"
    let folder = "canary-of-a-folder"
    let content = "canary-of-contents"
    let sender = "com.canary.sender"
    func open(_ container: String) throws -> Container {
      try Container.open(at: directory.path + container, credential: testCredential(), options: testOptions())
    }
    func create(_ container: String) throws -> Container {
      try Container.create(
        at: directory.path + container, credential: testCredential(), options: testOptions())
    }
    func search(_ moment: String) {
      for container in ["/a", "/b"] {
        let image = DiskImage(native: directory.path + container)
        #expect(image.names.count >= 3)
        for (path, inode) in image.names {
          for needle in ["canary", "Inbox", "CANARY-PATTERN", "request-7"] {
            #expect(!path.contains(needle), "\(moment)")
            #expect(!contains(image.contents[inode]!, needle), "\(needle) in \(path), \(moment)")
          }
        }
        #expect(contains(image["superblock"]!, "ODCONT1\n"), "the search finds what is there")
      }
    }
    let a = try create("/a")
    let b = try create("/b")
    search("new")
    let repeated = [UInt8](Array(repeating: "CANARY-PATTERN!!", count: 5000).joined().utf8)
    try a.createDirectory("/\(folder)/\(folder)2", withIntermediateDirectories: true)
    try a.write(Array(content.utf8), to: "/\(folder)/\(name)")
    try a.write(repeated, to: "/\(folder)/\(folder)2/\(name)-repeated")
    search("written")
    var options = SendOptions()
    options.requestID = "request-7"
    let receipt = try a.send(["/\(folder)"], to: b, sender: sender, options: options)
    #expect(try b.contents(at: receipt.files[1].path).count > 0)
    search("sent")
    try a.move("/\(folder)/\(name)", to: "/\(name)-moved")
    try a.copy("/\(folder)", to: "/\(folder)-copy")
    search("moved and copied")
    try a.remove("/\(folder)")
    try b.remove("/Inbox")
    search("removed")
    try a.close()
    try b.close()
    search("closed")
    // Until the catalog was written anew, too.
    for _ in 0..<9 {
      let container = try open("/a")
      try container.write(Array(content.utf8), to: "/\(name)-moved")
      try container.close()
    }
    search("after a checkpoint")
  }

  @Test func equalContentsAreNotEqualWhenTheyAreStored() throws {
    let io = RecordingIO()
    let container = try Container.create(io, secret)
    let repeated = [UInt8](repeating: 0x41, count: 3 * 16384)
    try container.write(repeated, to: "/a")
    try container.write(repeated, to: "/b")
    try container.copy("/a", to: "/c")
    var blocks: Set<[UInt8]> = []
    let runs = try Anatomy(io.image).runs
    #expect(runs.count == 3)
    for extent in runs.values.flatMap({ $0 }) {
      let slab = io.image[SlabStore.name(extent.slab)]!
      for i in 0..<3 {
        let begin = Int(extent.offset) + i * segment
        for block in stride(from: begin, to: begin + segment - 16, by: 16) {
          #expect(blocks.insert(Array(slab[block..<(block + 16)])).inserted)
        }
      }
    }
  }

  // MARK: Deleted files

  @Test func aDeletedFilesBytesAreGone() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/container"
    let container = try Container.create(at: path, credential: testCredential(), options: testOptions())
    try container.write(testBytes(30_000, seed: 1), to: "/kept")
    try container.write(testBytes(100_000, seed: 2), to: "/deleted")
    try container.write(testBytes(30_000, seed: 3), to: "/kept too")
    let before = DiskImage(native: path)
    let runs = try Anatomy(before).runs
    let deleted = runs["/deleted"]![0]
    let slab = SlabStore.name(deleted.slab)
    try container.remove("/deleted")
    try container.close()
    // Beside others: every whole page of it reads as zeros.
    let after = DiskImage(native: path)
    let begin = (Int(deleted.offset) + 4095) / 4096 * 4096
    let end = (Int(deleted.offset) + deleted.storedByteCount) / 4096 * 4096
    #expect(end - begin > 90_000)
    #expect(before[slab]![begin..<end].contains { $0 != 0 })
    #expect(after[slab]![begin..<end].allSatisfy { $0 == 0 })
    let reopened = try Container.open(at: path, credential: testCredential(), options: testOptions())
    #expect(try reopened.contents(at: "/kept") == testBytes(30_000, seed: 1))
    #expect(try reopened.contents(at: "/kept too") == testBytes(30_000, seed: 3))
    // Alone: the slab goes.
    try reopened.remove("/kept")
    try reopened.remove("/kept too")
    try reopened.close()
    #expect(DiskImage(native: path).files(in: "slab") == [])
    #expect(try Container.verify(at: path, credential: testCredential()).findings == [])
  }
}

extension DiskImage {
  /// The second file of a journal or table.
  static func copy(of path: String) -> String { "copy/" + path.split(separator: "/").last! }

  /// What was done to the first copies is done to the second ones as well.
  fileprivate var withEqualCopies: DiskImage {
    var image = self
    let firsts = ["catalog", "journal"].flatMap(files(in:))
    for path in files(in: "copy") where !firsts.map(Self.copy).contains(path) { image[path] = nil }
    for path in firsts { image[Self.copy(of: path)] = self[path] }
    return image
  }

  /// A container's files in a directory of the native file system.
  init(native path: String) {
    self.init()
    for directory in ["", "journal", "catalog", "copy", "slab"] {
      directories.insert(directory)
      let names = (try? PosixBlockIO(path).fileNames(in: directory)) ?? []
      for name in names where !["journal", "catalog", "copy", "slab"].contains(name) {
        let file = directory.isEmpty ? name : directory + "/" + name
        self[file] = readNative(path + "/" + file)
      }
    }
  }
}

private func contains(_ bytes: [UInt8], _ needle: String) -> Bool {
  let needle = Array(needle.utf8)
  return bytes.withUnsafeBytes { bytes in
    var rest = bytes[...]
    while rest.count >= needle.count,
      let found = memchr(bytes.baseAddress! + rest.startIndex, Int32(needle[0]), rest.count)
    {
      let begin = bytes.baseAddress!.distance(to: found)
      if begin + needle.count <= bytes.count, memcmp(found, needle, needle.count) == 0 { return true }
      rest = bytes[(begin + 1)...]
    }
    return false
  }
}
