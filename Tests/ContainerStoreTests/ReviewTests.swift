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

/// What a reading of the whole store found, each with the moment or the failure that it takes.
struct ReviewTests {
  // MARK: Slabs

  private func slabs(_ io: HookedIO) throws -> SlabStore {
    try io.createDirectory("")
    try io.createDirectory("slab")
    return SlabStore(io: io, counters: [:], nextSlab: 0, startsWriteback: false)
  }

  /// So many bytes in a slab, as a run of one file.
  private func append(_ count: Int, to slabs: SlabStore, filledWith byte: UInt8 = 1) throws -> Extent {
    let place = try [UInt8](repeating: byte, count: count).withUnsafeBytes { try slabs.append($0) }
    let overhead = SegmentLayout.overheadByteCount
    let full = SegmentLayout.plaintextByteCountMax + overhead
    let segments = (count + full - 1) / full
    return Extent(
      start: 0, count: UInt32(segments), lastLength: UInt32(count - (segments - 1) * full - overhead),
      writeNumber: WriteNumber(session: .zero, counter: 1), slab: place.slab, offset: place.offset)
  }

  private func bytes(_ extent: Extent, in slabs: SlabStore) throws -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: extent.storedByteCount)
    let count = try bytes.withUnsafeMutableBytes { try slabs.read(extent.slab, extent.offset, into: $0) }
    return Array(bytes.prefix(count))
  }

  @Test func appendsDuringABarrierBeginASectorOfTheirOwn() throws {
    let io = HookedIO()
    let slabs = try slabs(io)
    let first = try append(5000, to: slabs)
    let meanwhile = Guarded<Extent?>(nil)
    io.setHook { operation, path in
      guard operation == "synchronize", path.hasPrefix("slab/") else { return }
      io.setHook(nil)
      do {
        let extent = try self.append(5000, to: slabs)
        meanwhile.withLock { $0 = extent }
      } catch { Issue.record(error) }
    }
    try slabs.synchronize()
    let second = try #require(meanwhile.withLock { $0 })
    #expect(second.slab != first.slab || second.offset % 4096 == 0)
  }

  @Test func nobodyAppendsToASlabThatIsBeingCut() throws {
    let io = HookedIO()
    let slabs = try slabs(io)
    let kept = try append(5000, to: slabs)
    slabs.settle([kept])
    // A compaction begins and ends while a write to its slab is under way.
    io.setHook { operation, path in
      guard operation == "write" else { return }
      io.setHook(nil)
      slabs.retire([kept.slab])
      slabs.restore([kept.slab])
    }
    let useless = try append(5000, to: slabs)
    let meanwhile = Guarded<Extent?>(nil)
    io.setHook { operation, path in
      guard operation == "truncate" else { return }
      io.setHook(nil)
      do {
        let extent = try self.append(5000, to: slabs, filledWith: 9)
        slabs.settle([extent])
        meanwhile.withLock { $0 = extent }
      } catch { Issue.record(error) }
    }
    slabs.discard([useless])
    let last = try #require(meanwhile.withLock { $0 })
    #expect(try bytes(last, in: slabs) == [UInt8](repeating: 9, count: 5000))
  }

  @Test func noHoleIsMadeWhereSomebodyHasWrittenSince() throws {
    let io = HookedIO()
    let slabs = try slabs(io)
    let kept = try append(5000, to: slabs)
    let removed = try append(1_600_000, to: slabs)
    slabs.settle([kept, removed])
    // Two runs that were never committed behind it: one is given up, which leaves a small hole's worth of dead bytes.
    let useless = try append(800_000, to: slabs)
    let outstanding = try append(5000, to: slabs)
    slabs.discard([useless])
    let meanwhile = Guarded<Extent?>(nil)
    io.setHook { operation, path in
      guard operation == "punch" else { return }
      io.setHook(nil)
      do {
        slabs.discard([outstanding])
        let extent = try self.append(600_000, to: slabs, filledWith: 9)
        slabs.settle([extent])
        meanwhile.withLock { $0 = extent }
      } catch { Issue.record(error) }
    }
    slabs.free([removed])
    let last = try #require(meanwhile.withLock { $0 })
    #expect(last.slab == kept.slab)
    #expect(try bytes(last, in: slabs) == [UInt8](repeating: 9, count: 600_000))
  }

  @Test func smallHolesWaitUntilTheyArePunchedTogether() throws {
    let io = HookedIO()
    let slabs = try slabs(io)
    let (removed, kept) = (try append(200_000, to: slabs), try append(5000, to: slabs))
    slabs.settle([removed, kept])
    let calls = Guarded(0)
    io.setHook { operation, _ in
      if operation == "punch" { calls.withLock { $0 += 1 } }
    }
    slabs.free([removed])
    #expect(calls.withLock { $0 } == 0)
    slabs.punchHoles()
    #expect(calls.withLock { $0 } == 1)
    // What is a hole already is left alone.
    slabs.punchHoles()
    #expect(calls.withLock { $0 } == 1)
    #expect(try bytes(kept, in: slabs) == [UInt8](repeating: 1, count: 5000))
  }

  @Test func runsThatAreMovedWhileExtentsAreReadAreKnownAfterwards() throws {
    let container = try Container.create(
      io: RecordingIO(), credential: testCredential(), options: testOptions())
    try container.write(testBytes(100_000, seed: 1), to: "/file")
    let file = try container.openFile("/file", .read)
    let node = try #require(container.writeBack.files.nodes.first)
    try node.loadExtents(of: container.store)
    let old = try #require(node.state.withLock { $0.map?.first })
    var place = old
    place.slab += 1
    // As a compaction does whose commit the reading did not see any more.
    node.state.withLock { state in
      state.map = nil
      state.loaderCount += 1
    }
    node.move(old, to: [place])
    try node.loadExtents(of: container.store)
    #expect(node.state.withLock { $0.map?.extents } == [place])
    try file.close()
    try container.close()
  }

  // MARK: Readers

  @Test func aReaderIsNotToldOfDamageWhileTheWriterGoesOn() throws {
    let io = HookedIO()
    let writer = try Container.create(io: io, credential: testCredential(), options: testOptions())
    try writer.write([1], to: "/first")
    // The reader has come to the end of the journal and asks how long it is; meanwhile two commits become durable.
    io.setHook { operation, path in
      guard operation == "size", path.hasPrefix("journal/") else { return }
      io.setHook(nil)
      do {
        try writer.write([2], to: "/second")
        try writer.write([3], to: "/third")
      } catch { Issue.record(error) }
    }
    let reader = try Container.open(
      io: io, credential: testCredential(), mode: .readOnly, options: testOptions())
    #expect(try reader.contents(at: "/first") == [1])
    #expect(reader.findings == [])
    try reader.close()
    try writer.close()
  }

  @Test func whatAReaderKeepsCostsNoMoreWithEachCommit() throws {
    let io = HookedIO()
    let writer = try Container.create(io: io, credential: testCredential(), options: testOptions())
    try writer.write([0], to: "/file")
    let reader = try Container.open(
      io: io, credential: testCredential(), mode: .readOnly, options: testOptions())
    let queries = Guarded(0)
    io.setHook { operation, _ in if operation == "query" { queries.withLock { $0 += 1 } } }
    for i in 1...100 { try writer.write([UInt8(i)], to: "/file") }
    #expect(queries.withLock { $0 } < 1000)
    io.setHook(nil)
    #expect(try reader.contents(at: "/file") == [0])
    try reader.close()
    try writer.close()
  }

  // MARK: Crashes

  @Test func aTornFirstCommitIsNoLaterState() throws {
    var io = RecordingIO()
    try Container.create(io: io, credential: testCredential(), options: testOptions()).close()
    // As many journals as a checkpoint takes together, less that of the crash and that of the recovery.
    for i in 0..<6 {
      let container = try Container.open(io: io, credential: testCredential(), options: testOptions())
      try container.write([UInt8(i)], to: "/file\(i)")
      try container.close()
    }
    let writer = try Container.open(io: io, credential: testCredential(), options: testOptions(.none))
    let name = String(repeating: "n", count: 200)
    for i in 0..<6000 { try writer.createDirectory("/\(name)\(i)") }
    let before = Set(io.image.names.keys)
    try writer.synchronize()
    // Of a commit of several records the first reaches the disk.
    var image = io.image
    let journal = try #require(
      image.names.keys.first { $0.hasPrefix("journal/") && !before.contains($0) })
    for copy in [journal, DiskImage.copy(of: journal)] {
      try #require(image[copy]!.count > 1_200_000)
      image[copy]!.removeSubrange(1_100_000...)
    }
    io = RecordingIO(image)
    // A recovery that ends with a checkpoint, and another crash.
    let recovered = try Container.open(io: io, credential: testCredential(), options: testOptions())
    recovered.store.backgroundWork.wait()
    io = RecordingIO(io.image)
    for _ in 0..<2 {
      let container = try Container.open(io: io, credential: testCredential(), options: testOptions())
      #expect(try container.list("/").count == 6)
      try container.close()
    }
  }

  /// What needs no room can be done, though something that was written to an open file cannot be stored.
  @Test func aFullDiskCanBeReadWhileAnOpenFileWaitsForRoom() throws {
    let fixture = try Fixture()
    let container = fixture.container
    try container.write([1], to: "/other")
    let file = try container.openFile("/file", .write, create: true)
    fixture.io.setFault { operation, _ in operation.takesSlabSpace ? ENOSPC : nil }
    try [UInt8](repeating: 1, count: 100).withUnsafeBytes { try file.write($0, at: 0) }
    #expect(try container.contents(at: "/other") == [1])
    fixture.io.setFault(nil)
    #expect(try container.contents(at: "/other") == [1])
    try file.close()
  }

  // MARK: Failures

  /// ENOSPC while the copies are written, and EIO while what is to be copied is read.
  @Test(arguments: [ENOSPC, EIO]) func aCompactionThatFailsLeavesNothingBehind(code: Int32) throws {
    let fixture = try Fixture()
    let container = fixture.container
    // Runs of several units, so that the failure comes when a part is copied; what is removed is too small for holes.
    for i in 0..<6 {
      try container.write(testBytes(2_500_000, seed: UInt64(i)), to: "/file\(i)")
      try container.write(testBytes(60_000, seed: UInt64(i)), to: "/removed\(i)")
    }
    for i in 0..<6 { try container.remove("/removed\(i)") }
    let begun = Guarded(0)
    fixture.io.setCallFault { call, path, _ in
      guard path.hasPrefix("slab/") else { return nil }
      let writes = begun.withLock { count in
        if call == "write" { count += 1 }
        return count
      }
      return call == (code == EIO ? "read" : "write") && writes >= (code == EIO ? 1 : 2) ? code : nil
    }
    if code == ENOSPC {
      expectError(.diskFull) { try container.compact() }
    } else {
      // Runs that are not read stay where they are.
      #expect(try container.compact().findings.map(\.kind).contains(.segmentDamaged))
    }
    fixture.io.setCallFault(nil)
    #expect(begun.withLock { $0 } > 0)
    // Nothing counts as being written any more: what was moved before is committed, the rest was given back.
    #expect(container.store.slabs.fills().count == fixture.io.slabSizes.count)
    #expect(try container.verify().findings == [])
    #expect(try container.compact().copiedByteCount > 0)
    #expect(try container.verify().findings == [])
  }

  @Test func aCheckpointThatFailedIsTriedAgain() throws {
    let fixture = try Fixture()
    let container = fixture.container
    fixture.io.setFault { operation, _ in
      if case .create(let path) = operation, path.hasPrefix("catalog/") { return ENOSPC }
      return nil
    }
    let name = String(repeating: "n", count: 200)
    func fill(_ begin: Int) throws {
      for i in begin..<(begin + 500) { try container.createDirectory("/\(name)\(i)") }
      for _ in 0..<8 { try container.setAttributes(at: "/", permissions: 0o700) }
    }
    // Each change takes a page of the journal: 1000 changes are 4 MB.
    try fill(0)
    try fill(500)
    container.store.backgroundWork.wait()
    #expect(container.store.commitLog.withLock { $0.frozenCommit } != nil)
    fixture.io.setFault(nil)
    try fill(1000)
    container.store.backgroundWork.wait()
    try fill(1500)
    container.store.backgroundWork.wait()
    #expect(try container.info().generation > 1)
    #expect(
      container.store.catalogState.withLock {
        $0.snapshot.tables.reduce(0) { $0 + ($1.counts?.entries ?? 0) }
      } > 1000)
  }

  @Test func sizesThatAddUpToMoreThanCanBeCountedAreToldAsTheMost() throws {
    let container = try Fixture().container
    for i in 0..<5 {
      let file = try container.openFile("/file\(i)", .write, create: true)
      try file.truncate(to: 1 << 62 - 1)
      try file.close()
    }
    #expect(try container.info().byteCount == .max)
  }

  // MARK: A full disk

  private func manySmallFiles() throws -> DiskImage {
    let io = RecordingIO()
    let container = try Container.create(io: io, credential: testCredential(), options: testOptions(.none))
    try container.createDirectory("/folder")
    for i in 0..<TestEffort.count(4_000, long: 20_000) {
      try container.write([UInt8(truncatingIfNeeded: i)], to: "/folder/file number \(i)")
    }
    try container.synchronize()
    try container.close()
    // Durably closed, with the reserve that its size calls for.
    let again = try Container.open(io: io, credential: testCredential(), options: testOptions())
    try again.write([1], to: "/last")
    try again.close()
    return io.image
  }

  @Test func everythingCanBeRemovedOnAFullDisk() throws {
    let io = LimitedDisk(try manySmallFiles()).io
    let container = try Container.open(io: io, credential: testCredential(), options: testOptions())
    try container.remove("/folder")
    #expect(try container.list("/").map(\.path) == ["last"])
    try container.close()
    #expect(try Container.verify(io: io, credential: testCredential()).findings == [])
  }

  @Test func aContainerThatWasNotClosedOpensOnAFullDisk() throws {
    let first = RecordingIO(try manySmallFiles())
    let writer = try Container.open(io: first, credential: testCredential(), options: testOptions())
    try writer.write([2], to: "/last")
    let io = LimitedDisk(first.image).io
    let container = try Container.open(io: io, credential: testCredential(), options: testOptions())
    try container.remove("/folder")
    try container.close()
    #expect(try Container.verify(io: io, credential: testCredential()).findings == [])
  }
}
