import ContainerStore
import Dispatch
import EncryptedFile
import Locks
import OpenDynamicsTesting
import TestSupport
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

extension OpenFile {
  func write(_ bytes: [UInt8], at offset: Int) throws {
    try bytes.withUnsafeBytes { try write($0, at: UInt64(offset)) }
  }

  @discardableResult
  fileprivate func append(_ bytes: [UInt8]) throws -> UInt64 { try bytes.withUnsafeBytes { try append($0) } }

  func read(_ count: Int, at offset: Int = 0) throws -> [UInt8] {
    var bytes = [UInt8](repeating: 0xaa, count: count)
    let read = try bytes.withUnsafeMutableBytes { try self.read(at: UInt64(offset), into: $0) }
    return Array(bytes.prefix(read))
  }

  /// The whole file.
  fileprivate func contents() throws -> [UInt8] { try read(Int(size)) }
}

private let grain = SegmentLayout.plaintextByteCountMax

private func memoryContainer(
  _ io: RecordingIO = RecordingIO(), _ durability: Container.Durability = .grouped, cache: Int = 16 << 20
) throws -> Container {
  var options = testOptions(durability)
  options.writeCacheByteCount = cache
  return try Container.create(io: io, credential: testCredential(), options: options)
}

private func reopened(_ io: RecordingIO, mode: Container.Mode = .readWrite) throws -> Container {
  try Container.open(io: io, credential: testCredential(), mode: mode, options: testOptions())
}

private func expectSound(_ io: RecordingIO, _ comment: Comment? = nil) throws {
  let report = try Container.verify(io: io, credential: testCredential(), options: testOptions())
  // A slab whose last live byte went with the last commit is a note.
  #expect(report.findings.filter { $0.severity == .damage }.isEmpty, comment)
}

private func liveByteCount(_ container: Container) throws -> UInt64 { try container.info().liveByteCount }

struct OpenFileTests {
  // MARK: Reading and writing

  @Test func readsBackWhatWasWrittenBeforeAndAfterItIsStored() throws {
    let io = RecordingIO()
    let container = try memoryContainer(io)
    let file = try container.openFile("/f", .readWrite, create: true, permissions: 0o640)
    #expect(file.size == 0)
    #expect(try file.read(10) == [])
    let bytes = testBytes(100_000, seed: 1)
    try file.write(bytes, at: 0)
    #expect(try file.contents() == bytes)
    try file.synchronize()
    #expect(try file.contents() == bytes)
    #expect(try file.read(10, at: 99_995) == Array(bytes[99_995...]))
    #expect(try file.read(10, at: 100_000) == [])
    #expect(try file.read(10, at: Int.max) == [])
    let attributes = try file.attributes()
    #expect(attributes.size == 100_000 && attributes.permissions == 0o640 && attributes.kind == .file)
    try file.close()
    try file.close()
    try container.close()
    #expect(try reopened(io).contents(at: "/f") == bytes)
    try expectSound(io)
  }

  @Test func aWriteFarBehindTheEndLeavesAHole() throws {
    let io = RecordingIO()
    let container = try memoryContainer(io)
    let file = try container.openFile("/f", .readWrite, create: true)
    try file.write([7], at: 1 << 30)
    #expect(file.size == 1 << 30 + 1)
    #expect(try file.read(3, at: 1 << 30 - 2) == [0, 0, 7])
    try file.close()
    #expect(try liveByteCount(container) == 42)
    let again = try container.openFile("/f", .read)
    #expect(try again.read(4, at: 1 << 29) == [0, 0, 0, 0])
    #expect(try again.read(3, at: 1 << 30 - 2) == [0, 0, 7])
    try again.close()
    try container.close()
    try expectSound(io)
  }

  @Test func aPartOfAGrainIsMergedWithWhatIsStored() throws {
    let io = RecordingIO()
    let container = try memoryContainer(io)
    var model = testBytes(5 * grain + 123, seed: 2)
    try container.write(model, to: "/f")
    let file = try container.openFile("/f", .readWrite)
    for (offset, count) in [(10, 5), (grain - 3, 6), (3 * grain, grain), (5 * grain + 100, 400)] {
      let bytes = testBytes(count, seed: UInt64(offset))
      try file.write(bytes, at: offset)
      if model.count < offset + count {
        model += [UInt8](repeating: 0, count: offset + count - model.count)
      }
      model.replaceSubrange(offset..<(offset + count), with: bytes)
      #expect(try file.contents() == model)
    }
    try file.synchronize()
    #expect(try file.contents() == model)
    #expect(try container.contents(at: "/f") == model)
    // The second grain is still the old one; the rest was stored anew, and nothing twice.
    #expect(try liveByteCount(container) == UInt64(model.count + 6 * 41))
    try file.close()
    try container.close()
    try expectSound(io)
  }

  @Test func appendsGoToTheEnd() throws {
    let container = try memoryContainer()
    let one = try container.openFile("/f", .write, create: true)
    let other = try container.openFile("/f", .readWrite)
    #expect(try one.append([1, 2]) == 0)
    #expect(try other.append([3]) == 2)
    let large = testBytes(3 << 20, seed: 3)
    #expect(try one.append(large) == 3)
    #expect(try other.append([9]) == UInt64(3 + large.count))
    #expect(try other.contents() == [1, 2, 3] + large + [9])
  }

  @Test func manySmallAppendsStoreTheLastSegmentOnce() throws {
    let io = RecordingIO()
    let container = try memoryContainer(io, .full)
    let file = try container.openFile("/f", .write, create: true)
    try file.synchronize()
    let before = io.log.count
    for i in 0..<100 { try file.append([UInt8(i)]) }
    try file.synchronize()
    let writes = io.log[before...].filter {
      if case .write(let path, _, _) = $0 { path.hasPrefix("slab/") } else { false }
    }
    #expect(writes.count == 1)
    #expect(try container.contents(at: "/f") == (0..<100).map { UInt8($0) })
  }

  @Test func truncatingCutsAndBringsNothingBack() throws {
    let io = RecordingIO()
    let container = try memoryContainer(io)
    let bytes = testBytes(3 * grain + 50, seed: 4)
    try container.write(bytes, to: "/f")
    let file = try container.openFile("/f", .readWrite)
    try file.truncate(to: UInt64(grain + 100))
    #expect(try file.contents() == Array(bytes[..<(grain + 100)]))
    try file.truncate(to: UInt64(2 * grain))
    let expected = Array(bytes[..<(grain + 100)]) + [UInt8](repeating: 0, count: grain - 100)
    #expect(try file.contents() == expected)
    try file.synchronize()
    #expect(try file.contents() == expected)
    #expect(try container.contents(at: "/f") == expected)
    // Cut, stored, and made longer later: the same.
    try file.truncate(to: 10)
    try file.synchronize()
    try file.truncate(to: UInt64(grain))
    #expect(try file.contents() == Array(bytes[..<10]) + [UInt8](repeating: 0, count: grain - 10))
    #expect(try liveByteCount(container) == 51)
    try file.truncate(to: 0)
    try file.write([1], at: 2)
    #expect(try container.contents(at: "/f") == [0, 0, 1])
    try file.close()
    let emptied = try container.openFile("/f", .write, truncate: true)
    #expect(emptied.size == 0)
    #expect(try container.contents(at: "/f") == [])
    #expect(try liveByteCount(container) == 0)
    try emptied.close()
    try container.close()
    try expectSound(io)
  }

  @Test func pathsSeeWhatHandlesWrote() throws {
    let container = try memoryContainer()
    let other = try memoryContainer()
    let file = try container.openFile("/f", .write, create: true)
    try file.write([1], at: 0)
    #expect(try container.contents(at: "/f") == [1])
    try file.write([2], at: 1)
    #expect(try container.attributes(at: "/f")?.size == 2)
    try file.write([3], at: 2)
    #expect(try container.list("/")[0].attributes.size == 3)
    try file.write([4], at: 3)
    try container.copy("/f", to: "/copy")
    #expect(try container.contents(at: "/copy") == [1, 2, 3, 4])
    try file.write([5], at: 4)
    let receipt = try container.send(["/f"], to: other, sender: "a")
    #expect(try other.contents(at: receipt.files[0].path) == [1, 2, 3, 4, 5])
    try file.write([6], at: 5)
    let directory = TemporaryDirectory()
    try container.exportItem("/f", to: directory.path + "/f")
    #expect(readNative(directory.path + "/f") == [1, 2, 3, 4, 5, 6])
    try file.write([7], at: 6)
    #expect(try container.info().byteCount == 7 + 4)
  }

  @Test func onlyWhatChangesIsCommitted() throws {
    let container = try memoryContainer()
    try container.write([1, 2, 3], to: "/f", permissions: 0o600)
    let file = try container.openFile("/f", .readWrite)
    try file.write([9], at: 0)
    try container.setAttributes(at: "/f", created: 5, modified: 6, permissions: 0o644)
    #expect(try container.attributes(at: "/f")?.modified == 6)
    try file.write([8], at: 1)
    #expect(try file.attributes().modified > 6)
    try file.close()
    let attributes = try #require(try container.attributes(at: "/f"))
    #expect(attributes.permissions == 0o644 && attributes.created == 5 && attributes.modified > 6)
    #expect(try container.contents(at: "/f") == [9, 8, 3])
    #expect(try container.openFile("/f", .read).attributes() == attributes)
  }

  // MARK: What is refused

  @Test func refusesWhatAHandleIsNotFor() throws {
    let io = RecordingIO()
    let container = try memoryContainer(io)
    try container.createDirectory("/d")
    try container.write([1], to: "/f")
    #expect(throws: ContainerError.self) { try container.openFile("/none", .readWrite) }
    do { _ = try container.openFile("/d", .read) } catch ContainerError.isADirectory {}
    do { _ = try container.openFile("/none/f", .write, create: true) } catch ContainerError.noSuchFile {}
    let reading = try container.openFile("/f", .read)
    do {
      try reading.write([1], at: 0)
      Issue.record("a handle for reading was written to")
    } catch ContainerError.readOnly {}
    let writing = try container.openFile("/f", .write)
    do {
      _ = try writing.read(1)
      Issue.record("a handle for writing was read")
    } catch ContainerError.invalidArgument {}
    do {
      try writing.write([1], at: Int(1) << 61 + Int(1) << 61 - 1)
      Issue.record("a file has become too long")
    } catch ContainerError.invalidArgument {}
    try writing.write([2], at: 0)
    try writing.close()
    do {
      try writing.write([1], at: 0)
      Issue.record("a closed handle was written to")
    } catch let error as ContainerError where error.code == .closed {
      // The container is open.
      #expect(error.description == "the file was closed; open the file again")
    }
    let left = try container.openFile("/f", .readWrite)
    try left.write([3], at: 1)
    try container.close()
    do {
      try left.write([1], at: 0)
      Issue.record("a handle of a closed container was written to")
    } catch let error as ContainerError where error.code == .closed {
      #expect(error.what == error.code.what)
    }
    do {
      _ = try left.read(1)
      Issue.record("a handle of a closed container was read")
    } catch ContainerError.closed {}
    try left.close()
    let readOnly = try reopened(io, mode: .readOnly)
    #expect(try readOnly.openFile("/f", .read).contents() == [2, 3])
    do {
      _ = try readOnly.openFile("/f", .readWrite)
      Issue.record("a read-only container gave a handle for writing")
    } catch ContainerError.readOnly {}
  }

  @Test func damageIsToldWithThePathAndTheBufferIsUntouched() throws {
    let io = RecordingIO()
    var container = try memoryContainer(io)
    let bytes = testBytes(4 * grain, seed: 5)
    try container.write(bytes, to: "/f")
    try container.close()
    let slab = try io.open("slab/00000000", .readWrite)
    // In the second grain.
    try [0xff, 0xff, 0xff].withUnsafeBytes { try slab.write($0, at: UInt64(grain + 500)) }
    container = try reopened(io)
    let file = try container.openFile("/f", .readWrite)
    #expect(try file.read(grain) == Array(bytes[..<grain]))
    for count in [10, 3 * grain] {
      var buffer = [UInt8](repeating: 0x55, count: count)
      do {
        _ = try buffer.withUnsafeMutableBytes { try file.read(at: UInt64(grain), into: $0) }
        Issue.record("damage was read")
      } catch let error as ContainerError {
        #expect(error.code == .fileDamaged && error.path == "/f")
      }
      #expect(buffer == [UInt8](repeating: 0x55, count: count))
    }
    // A part of a damaged grain cannot be written, and that is no harm to other files.
    let other = try container.openFile("/g", .readWrite, create: true)
    try other.write([1], at: 0)
    try file.write([1], at: grain)
    do {
      try file.synchronize()
      Issue.record("a damaged grain was merged")
    } catch ContainerError.fileDamaged {}
    try other.synchronize()
    #expect(try container.contents(at: "/g") == [1])
    // Written as a whole, it is sound again.
    try file.write(Array(bytes[grain..<(2 * grain)]), at: grain)
    try file.synchronize()
    #expect(try file.contents() == bytes)
  }

  // MARK: Removed while open

  enum Removal: CaseIterable, Sendable { case remove, replace, moveOver, directory }

  @Test(arguments: Removal.allCases)
  func aFileThatIsRemovedGoesOnForItsHandles(removal: Removal) throws {
    let io = RecordingIO()
    let container = try memoryContainer(io, .full)
    try container.createDirectory("/d")
    var model = testBytes(3 * grain, seed: 6)
    try container.write(model, to: "/d/f")
    let file = try container.openFile("/d/f", .readWrite)
    let second = try container.openFile("/d/f", .read)
    try file.write([1, 2, 3], at: 5)
    model.replaceSubrange(5..<8, with: [1, 2, 3])
    switch removal {
    case .remove: try container.remove("/d/f")
    case .replace: try container.write([42], to: "/d/f")
    case .moveOver:
      try container.write([42], to: "/other")
      try container.move("/other", to: "/d/f", replacing: true)
    case .directory: try container.remove("/d")
    }
    // Time and again, so that what is stored of it is replaced, too; and others, that would take freed space.
    for i in 0..<20 {
      try file.write(testBytes(100, seed: UInt64(i)), at: i * 1000)
      model.replaceSubrange((i * 1000)..<(i * 1000 + 100), with: testBytes(100, seed: UInt64(i)))
      try container.write(testBytes(20_000, seed: UInt64(i)), to: "/noise")
      try container.synchronize()
      #expect(try second.contents() == model)
    }
    try file.truncate(to: 40_000)
    model = Array(model[..<40_000])
    try container.synchronize()
    #expect(try second.contents() == model)
    #expect(try second.attributes().linkCount == 0)
    let expected: [UInt8]? = removal == .replace || removal == .moveOver ? [42] : nil
    if let expected { #expect(try container.contents(at: "/d/f") == expected) }
    if expected == nil { #expect(try container.attributes(at: "/d/f") == nil) }
    try file.close()
    #expect(try second.contents() == model)
    try second.close()
    try container.remove("/noise")
    try container.close()
    let stored = io.image
    try expectSound(io)
    // Nothing of it is left behind.
    let slabs = stored.names.filter { $0.key.hasPrefix("slab/") }
    let live = try liveByteCount(reopened(io, mode: .readOnly))
    #expect(live == (expected == nil ? 0 : 42))
    if expected == nil { #expect(slabs.isEmpty) }
  }

  @Test func renamingAnOpenFileChangesNothing() throws {
    let container = try memoryContainer()
    let file = try container.openFile("/a", .readWrite, create: true)
    try file.write([1], at: 0)
    try container.move("/a", to: "/b")
    try file.write([2], at: 1)
    #expect(try container.contents(at: "/b") == [1, 2])
    let other = try container.openFile("/b", .readWrite)
    try other.write([3], at: 2)
    #expect(try file.contents() == [1, 2, 3])
  }

  // MARK: The cache

  @Test func theCacheIsEmptiedWhenItIsFull() throws {
    let io = RecordingIO()
    let container = try memoryContainer(io, cache: 4 * grain)
    let file = try container.openFile("/f", .readWrite, create: true)
    var model: [UInt8] = []
    for i in 0..<200 {
      let bytes = testBytes(5000, seed: UInt64(i))
      try file.append(bytes)
      model += bytes
    }
    // Without anything that looks at the container by path.
    let stored = io.log.contains {
      if case .write(let path, _, _) = $0 { path.hasPrefix("slab/") } else { false }
    }
    #expect(stored)
    #expect(try file.contents() == model)
    try file.close()
    #expect(try container.contents(at: "/f") == model)
  }

  @Test func whatCannotBeStoredStaysInTheCache() throws {
    let io = RecordingIO()
    let container = try memoryContainer(io, .full)
    let file = try container.openFile("/f", .readWrite, create: true)
    try file.write([1, 2], at: 0)
    try file.synchronize()
    io.setFault { operation, _ in
      if case .write(let path, _, _) = operation, path.hasPrefix("slab/") { ENOSPC } else { nil }
    }
    try file.write([3, 4], at: 1)
    do {
      try file.synchronize()
      Issue.record("a full disk took everything")
    } catch ContainerError.diskFull {}
    #expect(try file.contents() == [1, 3, 4])
    try file.truncate(to: 2)
    try file.write([5], at: 4)
    #expect(throws: ContainerError.self) { try container.contents(at: "/f") }
    io.setFault(nil)
    #expect(try container.contents(at: "/f") == [1, 3, 0, 0, 5])
    try file.synchronize()
    io.setFault { operation, _ in
      if case .write(let path, _, _) = operation, path.hasPrefix("slab/") { ENOSPC } else { nil }
    }
    try file.write([9], at: 0)
    do {
      try file.close()
      Issue.record("a full disk took everything")
    } catch ContainerError.diskFull {}
    io.setFault(nil)
    #expect(try container.contents(at: "/f") == [1, 3, 0, 0, 5])
    try container.close()
    try expectSound(io)
  }

  @Test func afterAFailedJournalTheContainerCanBeRead() throws {
    let io = RecordingIO()
    let container = try memoryContainer(io, .full)
    try container.write([1], to: "/f")
    let file = try container.openFile("/f", .readWrite)
    try file.write([2], at: 0)
    io.setFault { operation, _ in
      if case .write(let path, _, _) = operation, path.hasPrefix("journal/") { EIO } else { nil }
    }
    #expect(throws: ContainerError.self) { try file.synchronize() }
    io.setFault(nil)
    #expect(throws: ContainerError.self) { try file.synchronize() }
    #expect(try container.contents(at: "/f") == [1])
    #expect(try file.contents() == [2])
    // The loss was told by the call that was to make it durable.
    try file.close()
    #expect(throws: ContainerError.self) { try container.close() }
    #expect(try reopened(io).contents(at: "/f") == [1])
  }

  // MARK: Crashes

  @Test func aCrashShowsAGrainBeforeOrAfterAWritingBack() throws {
    let io = RecordingIO()
    let container = try memoryContainer(io, .full)
    var model = testBytes(3 * grain, seed: 7)
    try container.write(model, to: "/f")
    var states = [model]
    let begin = io.log.count
    let file = try container.openFile("/f", .readWrite)
    for i in 0..<6 {
      // Two places that change together.
      for offset in [100 * i, 2 * grain - 50 + i] {
        let bytes = testBytes(80, seed: UInt64(offset))
        try file.write(bytes, at: offset)
        model.replaceSubrange(offset..<(offset + 80), with: bytes)
      }
      if i == 3 {
        try file.truncate(to: UInt64(2 * grain + 40))
        model = Array(model[..<(2 * grain + 40)])
      }
      try file.synchronize()
      states.append(model)
    }
    try file.close()
    try container.close()
    for count in begin...io.log.count {
      var plans = [CrashPlan(operationCount: count, loss: .nothing)]
      plans.append(CrashPlan(operationCount: count, loss: .everythingUnsynchronized))
      plans.append(CrashPlan(operationCount: count, loss: .some(seed: UInt64(count))))
      plans.append(CrashPlan(operationCount: count, loss: .tornLast(seed: UInt64(count))))
      for plan in plans {
        let found = try reopened(RecordingIO(plan.replay(io.log))).contents(at: "/f")
        #expect(states.contains(found), "\(plan)")
      }
    }
  }

  // MARK: Against a plain array

  @Test(arguments: 0..<12)
  func agreesWithAPlainArray(seed: Int) throws {
    var random = SplitMix64(seed: UInt64(seed))
    func below(_ bound: Int) -> Int { Int(random.next() % UInt64(bound)) }
    let io = RecordingIO()
    var container = try memoryContainer(
      io, seed % 2 == 0 ? .grouped : .full, cache: [1, 6, 1000][seed % 3] * grain)
    let sizeMax = [3 * grain, 20 * grain, 70 * grain][seed % 3]
    var model: [UInt8] = []
    var handles = [try container.openFile("/f", .readWrite, create: true)]
    for step in 0..<300 {
      let place: Comment = "seed \(seed), step \(step)"
      let file = handles[below(handles.count)]
      let offset = below(3) == 0 ? below(sizeMax / grain) * grain : below(sizeMax)
      let count = [1 + below(40), 1 + below(grain), 1 + below(4 * grain)][below(3)]
      switch below(16) {
      case 0..<6:
        let bytes = testBytes(count, seed: UInt64(step))
        try file.write(bytes, at: offset)
        if model.count < offset + count {
          model += [UInt8](repeating: 0, count: offset + count - model.count)
        }
        model.replaceSubrange(offset..<(offset + count), with: bytes)
      case 6:
        let bytes = testBytes(min(count, 500), seed: UInt64(step))
        #expect(try file.append(bytes) == UInt64(model.count), place)
        model += bytes
      case 7:
        try file.truncate(to: UInt64(offset))
        model =
          offset <= model.count
          ? Array(model[..<offset]) : model + [UInt8](repeating: 0, count: offset - model.count)
      case 8: try file.synchronize()
      case 9: handles.append(try container.openFile("/f", .readWrite))
      case 10 where handles.count > 1: try handles.remove(at: below(handles.count)).close()
      case 11: #expect(try container.contents(at: "/f") == model, place)
      case 12 where below(5) == 0:
        try container.close()
        container = try reopened(io)
        handles = [try container.openFile("/f", .readWrite)]
      default:
        let end = min(model.count, offset + count)
        #expect(try file.read(count, at: offset) == (offset < end ? Array(model[offset..<end]) : []), place)
      }
      #expect(file.size == UInt64(model.count) || handles.isEmpty, place)
    }
    for handle in handles { try handle.close() }
    #expect(try container.contents(at: "/f") == model)
    try container.close()
    #expect(try reopened(io, mode: .readOnly).contents(at: "/f") == model)
    try expectSound(io, "seed \(seed)")
  }

  // MARK: Threads

  @Test func manyThreadsWriteAndReadOneFile() throws {
    let io = RecordingIO()
    let container = try memoryContainer(io, cache: 8 * grain)
    let file = try container.openFile("/f", .readWrite, create: true)
    let grains = 40
    // Each grain holds one byte throughout: anything else is torn.
    try file.write([UInt8](repeating: 1, count: grains * grain), at: 0)
    let torn = Guarded(0)
    DispatchQueue.concurrentPerform(iterations: 6) { thread in
      var random = SplitMix64(seed: UInt64(thread))
      for round in 0..<60 {
        let index = Int(random.next() % UInt64(grains))
        if thread < 3 {
          try? file.write([UInt8](repeating: UInt8(round), count: grain), at: index * grain)
        } else if thread == 5, round % 10 == 0 {
          try? container.synchronize()
        } else if let bytes = try? file.read(grain, at: index * grain), bytes.count == grain {
          if Set(bytes).count != 1 { torn.withLock { $0 += 1 } }
        } else {
          torn.withLock { $0 += 1000 }
        }
      }
    }
    #expect(torn.withLock { $0 } == 0)
    let last = try file.contents()
    try file.close()
    #expect(try container.contents(at: "/f") == last)
    try container.close()
    try expectSound(io)
  }

  @Test func appendsOfManyThreadsDoNotOverlap() throws {
    let container = try memoryContainer(cache: 4 * grain)
    let file = try container.openFile("/log", .readWrite, create: true)
    DispatchQueue.concurrentPerform(iterations: 4) { thread in
      for _ in 0..<100 { _ = try? file.append([UInt8](repeating: UInt8(thread), count: 300)) }
    }
    let bytes = try file.contents()
    #expect(bytes.count == 4 * 100 * 300)
    for begin in stride(from: 0, to: bytes.count, by: 300) {
      #expect(Set(bytes[begin..<(begin + 300)]).count == 1)
    }
  }
}
