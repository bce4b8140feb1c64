#if os(Linux)
  import EncryptedFile
  import Foundation
  import Locks
  import OpenDynamicsTesting
  import SodiumPrimitives
  import TestSupport
  import Testing

  @testable import ContainerStore

  /// Closing takes the keys, whatever is still referenced.
  struct SealTests {
    // MARK: What is in memory

    private func search(_ key: borrowing SecretKey) throws -> MemorySearch {
      let search = MemorySearch(count: SecretKey.byteCount) { _ in }
      try key.withUnsafeBytes { key in
        UnsafeMutableRawBufferPointer(mutating: search.bytes).copyMemory(from: key)
      }
      return search
    }

    private func rootKey(of container: Container) throws -> MemorySearch {
      try container.store.withSuperblock { _, _, rootKey in try search(rootKey) }
    }

    private func epochKey(of container: Container) throws -> MemorySearch {
      let search = MemorySearch(count: SecretKey.byteCount) { _ in }
      try container.store.withSuperblock { _, body, _ in
        try body.epochs[0].key.key.withUnsafeBytes {
          UnsafeMutableRawBufferPointer(mutating: search.bytes).copyMemory(from: $0)
        }
      }
      return search
    }

    /// The key of a file's first segment.
    private func segmentKey(of path: String, in container: Container) throws -> MemorySearch {
      let store = container.store
      let (found, extents) = try store.withSnapshot { records in
        let found = try records.existingFile(StorePath(path))
        return (found, try records.extents(found.id, found.inode))
      }
      let key = try store.fileKey(found.id, found.inode)
      let segment = extents[0].slice(skipping: 0, count: 1).run
      return try MemorySearch(count: SecretKey.byteCount) {
        try key.writeSegmentKeys(of: segment, to: $0)
      }
    }

    private func counts(_ searches: MemorySearch...) -> [Int] {
      MemorySearch.places(of: searches).map(\.count)
    }

    /// Opened data goes some moments after a seal.
    private func expectGone(_ search: MemorySearch) {
      for _ in 0..<100 {
        if search.places() == [] { return }
        usleep(10_000)
      }
      Issue.record("it is still in memory")
    }

    /// As the page says: the keys, and nothing of them elsewhere.
    @Test(.enabled(if: MemorySearch.isPossible), arguments: CipherBackend.allCases)
    func keysAreInGuardedMemoryAlone(backend: CipherBackend) throws {
      var options = testOptions()
      options.cipher = backend
      let io = RecordingIO()
      let created = try Container.create(io: io, credential: testCredential(), options: options)
      try created.write([UInt8](repeating: 1, count: 100_000), to: "/a")
      try created.close()
      let container = try Container.open(io: io, credential: testCredential(), options: options)
      try container.write([UInt8](repeating: 2, count: 100_000), to: "/b")
      #expect(try container.contents(at: "/a").count == 100_000)
      try container.addKey(testCredential(2))
      let (root, epoch) = (try rootKey(of: container), try epochKey(of: container))
      #expect(counts(root, epoch) == [1, 1])
      let snapshot = try container.snapshot()
      #expect(counts(root, epoch) == [2, 2])
      try snapshot.close()
      #expect(counts(root, epoch) == [1, 1])
      try container.close()
    }

    /// The name says what ends it.
    enum End: CaseIterable, Sendable {
      case close, now, snapshotNow
    }

    @Test(.enabled(if: MemorySearch.isPossible), arguments: End.allCases, CipherBackend.allCases)
    func nothingIsLeftThoughEverythingIsReferenced(end: End, backend: CipherBackend) throws {
      var options = testOptions()
      options.cipher = backend
      let io = RecordingIO()
      let container = try Container.create(io: io, credential: testCredential(), options: options)
      let marked = MemorySearch(randomCount: 64)
      let file = try container.openFile("/marked", .readWrite, create: true)
      for i in 0..<512 { try file.write(marked.bytes, at: UInt64(i * 64)) }
      try container.synchronize()
      var buffer = [UInt8](repeating: 0, count: 64)
      _ = try buffer.withUnsafeMutableBytes { try file.read(at: 64, into: $0) }
      for i in buffer.indices { buffer[i] = 0 }
      let snapshot = try container.snapshot()
      let other = try Container.open(io: io, credential: testCredential(), mode: .readOnly, options: options)
      let changes = try container.changes(at: "/")
      let names = try container.list("/")
      let searches = [
        try rootKey(of: container), try epochKey(of: container), try segmentKey(of: "/marked", in: container),
      ]
      #expect(searches[0].places().count == 3)
      // One more that is not stored.
      try file.write(marked.bytes, at: 1 << 20)
      switch end {
      case .close:
        try snapshot.close()
        try other.close()
        try container.close()
      case .now: #expect(try container.close(.now, because: "a test") == ["/marked"])
      case .snapshotNow:
        // Whichever of the openings it is.
        try other.close(.now, because: "a test")
      }
      #expect(MemorySearch.places(of: searches) == [[], [], []])
      // Some moments later.
      expectGone(marked)
      try waitForQuiet(io)
      withExtendedLifetime((file, snapshot, other, changes, names)) {}
      #expect(throws: ContainerError.self) {
        try buffer.withUnsafeMutableBytes { try file.read(at: 0, into: $0) }
      }
    }

    /// Nothing of the earlier openings of this process has the lock any more.
    private func waitForQuiet(_ io: RecordingIO) throws {
      try Container.open(io: io, credential: testCredential(), options: testOptions()).close()
    }

    // MARK: What throws

    @Test func everythingThrowsWithTheReason() throws {
      let fixture = try Fixture()
      let container = fixture.container
      try container.write([1, 2, 3], to: "/a")
      let file = try container.openFile("/a", .readWrite)
      let snapshot = try container.snapshot()
      try container.close(.now, because: "locked by a test")
      func expectClosed(_ body: () throws -> Void) {
        let error = #expect(throws: ContainerError.self, performing: body)
        #expect(error?.code == .closed && error?.detail == "locked by a test")
      }
      var byte: UInt8 = 0
      expectClosed { _ = try withUnsafeMutableBytes(of: &byte) { try file.read(at: 0, into: $0) } }
      expectClosed { try withUnsafeBytes(of: byte) { try file.write($0, at: 0) } }
      expectClosed { try file.synchronize() }
      expectClosed { _ = try file.attributes() }
      expectClosed { _ = try container.contents(at: "/a") }
      expectClosed { _ = try container.list("/") }
      expectClosed { _ = try container.attributes(at: "/a") }
      expectClosed { try container.write([1], to: "/b") }
      expectClosed { try container.remove("/a") }
      expectClosed { try container.addKey(testCredential(2)) }
      expectClosed { _ = try container.snapshot() }
      expectClosed { _ = try container.verify() }
      expectClosed { try container.synchronize() }
      expectClosed { _ = try container.openFile("/a", .read) }
      expectClosed { _ = try container.outboxEntries() }
      expectClosed { _ = try snapshot.contents(at: "/a") }
      // These do nothing.
      try container.close()
      try container.close(.now)
      try snapshot.close()
      let again = try Container.open(io: fixture.io, credential: testCredential())
      #expect(try again.contents(at: "/a") == [1, 2, 3])
      #expect(try again.verify().findings.allSatisfy { $0.severity != .damage })
      try again.close()
    }

    // MARK: What reaches the disk

    /// A sync of the superblock hangs: the container is sealed all the same, and what the sync was before is never written.
    @Test func nothingIsWrittenAfterASyncThatHung() throws {
      let io = RecordingIO()
      let container = try Container.create(io: io, credential: testCredential(1), options: testOptions())
      let sync = HeldCall(io, syncOf: "superblock")
      let changing = inBackground { try container.replaceKey(testCredential(1), with: testCredential(2)) }
      sync.wait()
      let begin = ContinuousClock.now
      try container.close(.now, because: "a test")
      #expect(begin.duration(to: .now) < .seconds(5))
      sync.release()
      expectError(.closed) { try changing() }
      // The sync itself, and nothing else.
      #expect(io.log[sync.number...] == [.synchronize("superblock")])
      // The copy that was written before the sync has the new key.
      let again = try Container.open(io: io, credential: testCredential(2))
      try again.close()
    }

    /// The copy of the superblock that was to be written after the sync never comes over the zeros.
    @Test func aDestructionWaitsForASyncThatHung() throws {
      let io = RecordingIO()
      let container = try Container.create(io: io, credential: testCredential(1), options: testOptions())
      let id = container.id
      let sync = HeldCall(io, syncOf: "superblock")
      let changing = inBackground { try container.replaceKey(testCredential(1), with: testCredential(2)) }
      sync.wait()
      try container.close(.now, because: "a test")
      let destroying = inBackground { try Container.destroy(io: io, id: id) }
      usleep(50_000)
      #expect(io.log.count == sync.number)
      sync.release()
      expectError(.closed) { try changing() }
      try destroying()
      let superblocks = io.log[sync.number...].filter { operation in
        if case .write("superblock", _, _) = operation { true } else { false }
      }
      #expect(!superblocks.isEmpty)
      for case .write(_, _, let bytes) in superblocks { #expect(bytes.allSatisfy { $0 == 0 }) }
      for byte: UInt8 in [1, 2] {
        expectError(.notAContainer) { try Container.open(io: io, credential: testCredential(byte)) }
      }
    }

    /// Holds the first call of its kind up, and says when it is there.
    private final class HeldCall: Sendable {
      private let isThere = DispatchSemaphore(value: 0)
      private let goesOn = DispatchSemaphore(value: 0)
      private let taken = Guarded<Int?>(nil)

      /// The operations before a sync, or the calls before a call.
      var number: Int { taken.withLock { $0! } }

      init(_ io: RecordingIO, syncOf synced: String) {
        io.setSyncObserver { [self] path in
          if path == synced { hold(io.log.count) }
        }
      }

      init(_ io: RecordingIO, _ name: String, _ folder: String) {
        io.setCallFault { [self] call, path, number in
          if call == name, path.hasPrefix(folder) { hold(number) }
          return nil
        }
      }

      private func hold(_ number: Int) {
        let isFirst = taken.withLock { taken in
          guard taken == nil else { return false }
          taken = number
          return true
        }
        guard isFirst else { return }
        isThere.signal()
        goesOn.wait()
      }

      func wait() { isThere.wait() }
      func release() { goesOn.signal() }
    }

    private func inBackground<R: Sendable>(_ body: @escaping @Sendable () throws -> R) -> () throws -> R {
      let result = Guarded<Result<R, any Error>?>(nil)
      let ended = DispatchSemaphore(value: 0)
      Thread.detachNewThread {
        let outcome = Result { try body() }
        result.withLock { $0 = outcome }
        ended.signal()
      }
      return {
        ended.wait()
        return try result.withLock { try $0!.get() }
      }
    }

    /// A snapshot or opening has its key, and reads its tables, while the container is sealed.
    @Test(.enabled(if: MemorySearch.isPossible), arguments: [false, true]) func anOpeningUnderWayIsSealedToo(
      isSnapshot: Bool
    ) throws {
      let io = RecordingIO()
      let container = try Container.create(io: io, credential: testCredential(), options: testOptions())
      try container.write([1, 2, 3], to: "/a")
      try container.synchronize()
      let call = HeldCall(io, "read", "journal/")
      let opening = inBackground {
        if isSnapshot { return try container.snapshot().contents(at: "/a") }
        return try Container.open(io: io, credential: testCredential(), mode: .readOnly).contents(at: "/a")
      }
      call.wait()
      let key = try rootKey(of: container)
      #expect(key.places().count == 2)
      try container.close(.now, because: "a test")
      #expect(key.places() == [])
      call.release()
      let error = #expect(throws: ContainerError.self) { try opening() }
      #expect(error?.code == .closed && error?.detail == "a test")
      io.setCallFault(nil)
      // None of them is waited for.
      let begin = ContinuousClock.now
      let again = try Container.open(io: io, credential: testCredential(), options: testOptions())
      #expect(begin.duration(to: .now) < .seconds(5))
      #expect(try again.contents(at: "/a") == [1, 2, 3])
      try again.close()
    }

    @Test func aLaterOpeningIsNotSealed() throws {
      let io = RecordingIO()
      let first = try Container.create(io: io, credential: testCredential(), options: testOptions())
      try first.close(.now)
      let second = try Container.open(io: io, credential: testCredential(), options: testOptions())
      try first.close(.now, because: "late")
      try first.close()
      try second.write([1], to: "/a")
      try second.close()
      let third = try Container.open(io: io, credential: testCredential(), options: testOptions())
      try second.close(.now, because: "late")
      #expect(try third.contents(at: "/a") == [1])
      try third.close()
    }

    /// One that has begun while the container was being closed, and a pool that hangs on one that was.
    @Test func aSealTakesWhatAClosingHasLeft() throws {
      let io = RecordingIO()
      let container = try Container.create(io: io, credential: testCredential(), options: testOptions())
      try container.write([1, 2, 3], to: "/a")
      let dependent = KeyPool()
      container.addDependent(dependent)
      Openings.shared.begins(toEnd: container.store.opening)
      let reader = try Container.open(io: io, credential: testCredential(), mode: .readOnly)
      #expect(try reader.contents(at: "/a") == [1, 2, 3])
      try container.close(.now, because: "a test")
      expectError(.closed) { _ = try reader.contents(at: "/a") }
      #expect(dependent.isShut)
      let again = try Container.open(io: io, credential: testCredential(), options: testOptions())
      let late = KeyPool()
      again.addDependent(late)
      try again.close()
      #expect(!late.isShut)
      try again.close(.now)
      #expect(late.isShut)
    }

    /// Snapshots go without being closed, while the container is sealed: nobody waits for them afterwards.
    @Test func whatGoesDuringASealIsNotWaitedFor() throws {
      for _ in 0..<20 {
        let io = RecordingIO()
        let container = try Container.create(io: io, credential: testCredential(), options: testOptions())
        let stops = Guarded(false)
        let coming = inBackground {
          while !stops.withLock({ $0 }) { _ = try? container.snapshot().list("/") }
        }
        usleep(UInt32.random(in: 0...3000))
        try container.close(.now)
        stops.withLock { $0 = true }
        try coming()
        let begin = ContinuousClock.now
        try Container.open(io: io, credential: testCredential(), options: testOptions()).close()
        #expect(begin.duration(to: .now) < .seconds(8))
      }
    }

    /// Bytes that are being stored come back to nobody, and are said to be lost by whichever opening was sealed.
    @Test(.enabled(if: MemorySearch.isPossible)) func whatCouldNotBeStoredIsForgotten() throws {
      let io = RecordingIO()
      let container = try Container.create(io: io, credential: testCredential(), options: testOptions())
      let marked = MemorySearch(randomCount: 64)
      let file = try container.openFile("/marked", .readWrite, create: true)
      try file.write(marked.bytes, at: 0)
      let reader = try Container.open(io: io, credential: testCredential(), mode: .readOnly)
      let call = HeldCall(io, "write", "slab/")
      let storing = inBackground { try container.synchronize() }
      call.wait()
      #expect(try reader.close(.now, because: "a test") == ["/marked"])
      call.release()
      expectError(.closed) { try storing() }
      try container.close()
      expectGone(marked)
      withExtendedLifetime(file) {}
    }

    /// Contents are opened with the cipher of the receiver, whose keys go in the middle.
    @Test func aReceiverThatIsSealedDamagesNothing() throws {
      let source = try Container.create(
        io: RecordingIO(), credential: testCredential(), options: testOptions())
      try source.write(testBytes(2 << 20, seed: 1), to: "/a")
      for _ in 0..<TestEffort.count(8, long: 300) {
        let target = try Container.create(
          io: RecordingIO(), credential: testCredential(), options: testOptions())
        let sending = inBackground {
          try source.send(["/a"], to: target, sender: "com.example.a", control: BulkControl())
        }
        usleep(UInt32.random(in: 0...10_000))
        try target.close(.now, because: "a test")
        do { _ = try sending() } catch let error as ContainerError {
          #expect(error.code == .closed && error.detail == "a test", "\(error)")
        }
      }
      #expect(try source.verify().findings.isEmpty)
      try source.close()
    }

    /// Many threads are in the middle of everything, again and again.
    @Test func isSealedUnderLoad() throws {
      for round in 0..<TestEffort.count(20, long: 300) {
        let io = RecordingIO()
        let container = try Container.create(
          io: io, credential: testCredential(), options: testOptions(.grouped))
        let contents = [UInt8](repeating: UInt8(truncatingIfNeeded: round), count: 200_000)
        for i in 0..<4 { try container.write(contents, to: "/old\(i)") }
        try container.synchronize()
        let stopped = DispatchGroup()
        for i in 0..<6 {
          stopped.enter()
          Thread.detachNewThread {
            defer { stopped.leave() }
            do {
              for number in 0... {
                switch i {
                case 0, 1: try container.write(contents, to: "/new\(i)-\(number)")
                case 2: #expect(try container.contents(at: "/old\(number % 4)") == contents)
                case 3:
                  let file = try container.openFile("/open", .readWrite, create: true)
                  _ = try contents.withUnsafeBytes { try file.append($0) }
                  try file.close()
                case 4: try container.synchronize()
                default: _ = try container.list("/", recursively: true)
                }
              }
            } catch let error as ContainerError where error.code == .closed {
              #expect(
                error.detail == "a test",
                "\(i): \(error), \(String(describing: error.cause)), \(error.path ?? "")")
            } catch {
              Issue.record(error)
            }
          }
        }
        usleep(UInt32.random(in: 0...30_000))
        try container.close(.now, because: "a test")
        stopped.wait()
        let again = try Container.open(io: io, credential: testCredential(), options: testOptions())
        for i in 0..<4 { #expect(try again.contents(at: "/old\(i)") == contents) }
        #expect(try again.verify().findings.allSatisfy { $0.severity != .damage })
        try again.close()
      }
    }
  }
#endif
