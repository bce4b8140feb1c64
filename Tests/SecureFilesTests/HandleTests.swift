import Foundation
import Locks
import SecureFiles
import Testing

struct HandleTests {
  private let fixture: FilesOfContainer
  private var files: SecureFileManager { fixture.files }

  init() throws { fixture = try FilesOfContainer() }

  private func handle(reading path: String) throws -> SecureFileHandle {
    try #require(SecureFileHandle(forReadingAtPath: path, in: files))
  }

  private func handle(writing path: String) throws -> SecureFileHandle {
    try #require(SecureFileHandle(forWritingAtPath: path, in: files))
  }

  private func handle(updating path: String) throws -> SecureFileHandle {
    try #require(SecureFileHandle(forUpdatingAtPath: path, in: files))
  }

  // MARK: Opening

  @Test func aMissingFileIsNotOpened() throws {
    #expect(SecureFileHandle(forReadingAtPath: "/none", in: files) == nil)
    #expect(SecureFileHandle(forWritingAtPath: "/none", in: files) == nil)
    #expect(files.fileHandle(forUpdatingAtPath: "") == nil)
    let url = files.url(forPath: "/none", isDirectory: false)
    let reading = thrown { _ = try SecureFileHandle(forReadingFrom: url, in: files) }
    #expect(reading?.code == .fileReadNoSuchFile && reading?.posix == .ENOENT)
    let writing = thrown { _ = try SecureFileHandle(forWritingTo: url, in: files) }
    #expect(writing?.code == .fileNoSuchFile && writing?.posix == .ENOENT)
    let updating = thrown { _ = try files.fileHandle(forUpdating: url) }
    #expect(updating?.code == .fileNoSuchFile)
    #expect(!files.fileExists(atPath: "/none"))
  }

  @Test func aURLOfAnotherPlaceIsRefused() throws {
    let native = URL(fileURLWithPath: "/etc/hostname")
    #expect(
      thrown { _ = try SecureFileHandle(forReadingFrom: native, in: files) }?.code
        == .fileReadUnsupportedScheme)
    #expect(
      thrown { _ = try SecureFileHandle(forUpdating: native, in: files) }?.code
        == .fileWriteUnsupportedScheme)
  }

  @Test func aDirectoryIsOpenedForReadingOnlyAndNotRead() throws {
    try files.createDirectory(atPath: "/d", withIntermediateDirectories: false)
    let handle = try handle(reading: "/d")
    for result in [
      thrown { _ = try handle.read(upToCount: 1) }, thrown { _ = try handle.readToEnd() },
    ] {
      #expect(result?.code == .fileReadUnknown && result?.posix == .EISDIR)
    }
    #expect(try handle.offset() == 0)
    try handle.close()
    let url = files.url(forPath: "/d", isDirectory: true)
    let writing = thrown { _ = try SecureFileHandle(forWritingTo: url, in: files) }
    #expect(writing?.code == .fileWriteUnknown && writing?.posix == .EISDIR)
  }

  @Test func relativePathsAndLinksAreFollowed() throws {
    try files.createDirectory(atPath: "/d", withIntermediateDirectories: false)
    try fixture.make("/d/f", pattern(5))
    try fixture.container.store.createSymbolicLink("/link", to: "d/f")
    #expect(files.changeCurrentDirectoryPath("/d"))
    #expect(try files.fileHandle(forReadingAtPath: "f")?.readToEnd() == pattern(5))
    #expect(try files.fileHandle(forReadingAtPath: "../link")?.readToEnd() == pattern(5))
  }

  @Test func aReadOnlyContainerIsNotWritten() throws {
    let url = files.url(forPath: try fixture.make("/f", pattern(3)), isDirectory: false)
    try fixture.container.synchronize()
    let reader = try fixture.openedForReading()
    let result = thrown { _ = try SecureFileHandle(forUpdating: url, in: reader.files) }
    #expect(result?.code == .fileWriteVolumeReadOnly && result?.posix == .EROFS)
    let handle = try SecureFileHandle(forReadingFrom: url, in: reader.files)
    #expect(try handle.readToEnd() == pattern(3))
    try handle.synchronize()
    try reader.close()
    #expect(thrown { _ = try handle.read(upToCount: 1) }?.posix == .EBADF)
  }

  // MARK: Reading

  @Test(arguments: [0, 1, 16_383, 16_384, 16_385, 1 << 20, (3 << 20) + 17])
  func readsEverythingOnce(count: Int) throws {
    let contents = pattern(count)
    let handle = try handle(reading: fixture.make("/f", contents))
    #expect(try handle.readToEnd() == (count == 0 ? nil : contents))
    #expect(try handle.offset() == UInt64(count))
    #expect(try handle.readToEnd() == nil)
    #expect(try handle.read(upToCount: 1) == nil)
    try handle.seek(toOffset: 0)
    #expect(try handle.readToEnd() == (count == 0 ? nil : contents))
  }

  @Test(arguments: [1, 1000, 16_384, 65_536, 100_001, 1 << 20, (1 << 20) + 1])
  func piecesMakeUpTheWhole(piece: Int) throws {
    let contents = pattern(piece == 1 ? 3000 : (2 << 20) + 333)
    let handle = try handle(reading: fixture.make("/f", contents))
    var all = Data()
    while let data = try handle.read(upToCount: piece) {
      #expect(data.count == min(piece, contents.count - all.count))
      all += data
      #expect(try handle.offset() == UInt64(all.count))
    }
    #expect(all == contents)
  }

  @Test func countsAtTheEdges() throws {
    let handle = try handle(reading: fixture.make("/f", pattern(100)))
    #expect(try handle.read(upToCount: 0) == nil)
    let negative = thrown { _ = try handle.read(upToCount: -1) }
    #expect(negative?.code == .fileReadUnknown && negative?.posix == .EINVAL)
    #expect(try handle.offset() == 0)
    #expect(try handle.read(upToCount: .max) == pattern(100))
    try handle.seek(toOffset: 40)
    #expect(try handle.read(upToCount: 1000) == pattern(60, from: 40))
  }

  @Test func readsIntoTheCallersMemory() throws {
    let handle = try handle(reading: fixture.make("/f", pattern(100)))
    var memory = [UInt8](repeating: 0xee, count: 64)
    #expect(try memory.withUnsafeMutableBytes { try handle.read(into: $0) } == 64)
    #expect(Data(memory) == pattern(64))
    #expect(try memory.withUnsafeMutableBytes { try handle.read(into: $0) } == 36)
    #expect(Data(memory[..<36]) == pattern(36, from: 64))
    #expect(try memory.withUnsafeMutableBytes { try handle.read(into: $0) } == 0)
  }

  @Test func moreThanMemoryTakesIsRefused() throws {
    let handle = try handle(updating: fixture.make("/f"))
    try handle.truncate(atOffset: 1 << 61)
    try handle.seek(toOffset: 0)
    #expect(thrown { _ = try handle.readToEnd() }?.code == .fileReadTooLarge)
    #expect(try handle.offset() == 0)
    #expect(try handle.read(upToCount: 3) == Data(count: 3))
  }

  // MARK: Offsets

  @Test func seeksPastTheEnd() throws {
    let handle = try handle(updating: fixture.make("/f", pattern(5)))
    try handle.seek(toOffset: 100)
    #expect(try handle.offset() == 100)
    #expect(try handle.readToEnd() == nil)
    #expect(try handle.read(upToCount: 5) == nil)
    #expect(try handle.seekToEnd() == 5)
    try handle.seek(toOffset: 8)
    try handle.write(contentsOf: [1])
    #expect(files.contents(atPath: "/f") == pattern(5) + [0, 0, 0, 1])
    #expect(try handle.offset() == 9)
    #expect(try handle.seekToEnd() == 9)
    let tooFar = thrown { try handle.seek(toOffset: .max) }
    #expect(tooFar?.posix == .EINVAL)
    #expect(try handle.offset() == 9)
  }

  @Test func truncatingMovesTheOffset() throws {
    let handle = try handle(updating: fixture.make("/f", pattern(50)))
    try handle.truncate(atOffset: 10)
    #expect(try handle.offset() == 10)
    #expect(try handle.seekToEnd() == 10)
    try handle.truncate(atOffset: 100)
    #expect(try handle.offset() == 100)
    try handle.write(contentsOf: [7, 8])
    try handle.seek(toOffset: 0)
    #expect(try handle.readToEnd() == pattern(10) + Data(count: 90) + [7, 8])
    try handle.truncate(atOffset: 0)
    #expect(files.contents(atPath: "/f") == Data())
  }

  @Test func holesTakeNoSpaceAndReadAsZeros() throws {
    let handle = try handle(updating: fixture.make("/f"))
    let far: UInt64 = 1 << 40
    try handle.seek(toOffset: far)
    try handle.write(contentsOf: pattern(10))
    try handle.synchronize()
    #expect(try handle.seekToEnd() == far + 10)
    try handle.seek(toOffset: far - 5)
    #expect(try handle.read(upToCount: 100) == Data(count: 5) + pattern(10))
    try handle.seek(toOffset: far / 2)
    #expect(try handle.read(upToCount: 3 << 20) == Data(count: 3 << 20))
    // The container beneath is small.
    let stored = try FileManager.default.subpathsOfDirectory(atPath: fixture.directory.path).reduce(0) {
      let place = fixture.directory.appendingPathComponent($1).path
      return try $0 + ((FileManager.default.attributesOfItem(atPath: place)[.size] as? Int) ?? 0)
    }
    #expect(stored < 256 << 20)
  }

  @Test func nothingIsWrittenAtImpossibleOffsets() throws {
    let handle = try handle(updating: fixture.make("/f", pattern(5)))
    #expect(thrown { try handle.truncate(atOffset: .max) }?.posix == .EINVAL)
    try handle.seek(toOffset: UInt64(Int64.max))
    #expect(thrown { try handle.write(contentsOf: [1]) }?.code == .fileWriteUnknown)
    #expect(try handle.offset() == UInt64(Int64.max))
    #expect(files.contents(atPath: "/f") == pattern(5))
  }

  // MARK: Writing

  @Test func writesAtTheBeginningWithoutEmptying() throws {
    let handle = try handle(writing: fixture.make("/f", pattern(10)))
    try handle.write(contentsOf: Data([1, 2]))
    try handle.close()
    #expect(files.contents(atPath: "/f") == Data([1, 2]) + pattern(8, from: 2))
  }

  @Test func writesEveryKindOfBytes() throws {
    let handle = try handle(updating: fixture.make("/f"))
    try handle.write(contentsOf: pattern(3))
    try handle.write(contentsOf: [3, 4])
    try handle.write(contentsOf: [UInt8](5..<7)[...])
    try pattern(2, from: 7).withUnsafeBytes { try handle.write(contentsOf: $0) }
    var regions = DispatchData.empty
    for i in 0..<100 { pattern(700, from: 9 + i * 700).withUnsafeBytes { regions.append($0) } }
    try handle.write(contentsOf: regions)
    try handle.write(contentsOf: Data())
    #expect(try handle.offset() == 70_009)
    #expect(files.contents(atPath: "/f") == pattern(70_009))
  }

  @Test(arguments: [1 << 20, 8 << 20])
  func manyWritesGoThroughASmallCache(cache: Int) throws {
    let fixture = try FilesOfContainer(writeCacheByteCount: cache)
    let contents = pattern(12 << 20)
    let handle = try #require(
      SecureFileHandle(forWritingAtPath: fixture.make("/f"), in: fixture.files))
    var rest = contents[...]
    while !rest.isEmpty {
      try handle.write(contentsOf: rest.prefix(70_001))
      rest = rest.dropFirst(70_001)
    }
    try handle.close()
    #expect(fixture.files.contents(atPath: "/f") == contents)
    try fixture.container.close()
    #expect(try fixture.openedForReading().files.contents(atPath: "/f") == contents)
  }

  @Test func eachDirectionNeedsItsHandle() throws {
    try fixture.make("/f", pattern(5))
    let reading = try handle(reading: "/f")
    for result in [
      thrown { try reading.write(contentsOf: [1]) }, thrown { try reading.truncate(atOffset: 0) },
    ] {
      #expect(result?.code == .fileWriteUnknown && result?.posix == .EBADF)
    }
    let writing = try handle(writing: "/f")
    for result in [
      thrown { _ = try writing.read(upToCount: 1) }, thrown { _ = try writing.readToEnd() },
    ] {
      #expect(result?.code == .fileReadUnknown && result?.posix == .EBADF)
    }
    // Nothing is read or written, as with Foundation's.
    #expect(try writing.read(upToCount: 0) == nil)
    try reading.write(contentsOf: [])
    try reading.close()
    try writing.close()
    #expect(thrown { _ = try writing.read(upToCount: 0) }?.code == .fileReadUnknown)
    #expect(thrown { try reading.write(contentsOf: []) }?.code == .fileWriteUnknown)
    #expect(files.contents(atPath: "/f") == pattern(5))
  }

  // MARK: Closing

  @Test func aClosedHandleDoesNothingMore() throws {
    let handle = try handle(updating: fixture.make("/f", pattern(5)))
    try handle.close()
    try handle.close()
    let reading = [
      thrown { _ = try handle.read(upToCount: 1) }, thrown { _ = try handle.readToEnd() },
      thrown { _ = try handle.offset() }, thrown { try handle.seek(toOffset: 0) },
      thrown { try handle.seekToEnd() },
    ]
    #expect(reading.allSatisfy { $0?.code == .fileReadUnknown && $0?.posix == .EBADF })
    let writing = [
      thrown { try handle.write(contentsOf: [1]) }, thrown { try handle.synchronize() },
      thrown { try handle.truncate(atOffset: 0) },
    ]
    #expect(writing.allSatisfy { $0?.code == .fileWriteUnknown && $0?.posix == .EBADF })
  }

  @Test func errorsTellWhatTheContainerSaid() throws {
    let handle = try handle(reading: fixture.make("/f"))
    try handle.close()
    do {
      _ = try handle.read(upToCount: 1)
      Issue.record("read from a closed handle")
    } catch let error as CocoaError where error.containerError?.code == .closed {
      #expect(error.userInfo[NSLocalizedFailureReasonErrorKey] as? String == "the file was closed")
      #expect(error.containerError?.description == "the file was closed; open the file again")
    }
  }

  @Test func aHandleThatIsLetGoIsClosedAndItsBytesAreThere() throws {
    try fixture.make("/f")
    do { try handle(writing: "/f").write(contentsOf: pattern(5)) }
    #expect(files.contents(atPath: "/f") == pattern(5))
    try fixture.container.close()
    #expect(try fixture.openedForReading().files.contents(atPath: "/f") == pattern(5))
  }

  @Test func aContainerThatClosesTakesItsHandlesAlong() throws {
    let handle = try handle(updating: fixture.make("/f"))
    try handle.write(contentsOf: pattern(5))
    try fixture.container.close()
    #expect(thrown { _ = try handle.readToEnd() }?.posix == .EBADF)
    let writing = thrown { try handle.write(contentsOf: [1]) }
    #expect(writing?.code == .fileWriteUnknown && writing?.posix == .EBADF)
    try handle.close()
    #expect(try fixture.openedForReading().files.contents(atPath: "/f") == pattern(5))
  }

  // MARK: Several handles

  @Test func handlesSeeOneAnothersWrites() throws {
    try fixture.make("/f", pattern(100))
    let (first, second) = (try handle(updating: "/f"), try handle(updating: "/f"))
    try first.write(contentsOf: [9, 9])
    #expect(try second.read(upToCount: 3) == Data([9, 9, 2]))
    try second.truncate(atOffset: 4)
    #expect(try first.offset() == 2)
    #expect(try first.readToEnd() == Data([2, 3]))
    try second.write(contentsOf: [5])
    #expect(try first.readToEnd() == Data([5]))
    #expect(files.contents(atPath: "/f") == Data([9, 9, 2, 3, 5]))
    #expect(try files.attributesOfItem(atPath: "/f")[.size] as? Int == 5)
  }

  @Test func aRemovedFileLivesOnBehindItsHandles() throws {
    let contents = pattern(100_000)
    let handle = try handle(updating: fixture.make("/f", contents))
    try files.removeItem(atPath: "/f")
    #expect(!files.fileExists(atPath: "/f"))
    #expect(try handle.readToEnd() == contents)
    try handle.write(contentsOf: [1, 2, 3])
    try handle.synchronize()
    try handle.seek(toOffset: 99_999)
    #expect(try handle.readToEnd() == contents.suffix(1) + [1, 2, 3])
    // Another of that name has nothing to do with it.
    try fixture.make("/f", Data([7]))
    try handle.truncate(atOffset: 0)
    try handle.close()
    #expect(files.contents(atPath: "/f") == Data([7]))
  }

  @Test func aReplacedFileLivesOnBehindItsHandles() throws {
    let handle = try handle(updating: fixture.make("/f", pattern(10)))
    try fixture.make("/f", Data([7, 7]))
    try handle.write(contentsOf: [1])
    #expect(try handle.readToEnd() == pattern(9, from: 1))
    #expect(files.contents(atPath: "/f") == Data([7, 7]))
  }

  @Test func aMovedFileIsTheSame() throws {
    let handle = try handle(updating: fixture.make("/f", pattern(4)))
    try files.moveItem(atPath: "/f", toPath: "/g")
    try handle.write(contentsOf: [9])
    #expect(files.contents(atPath: "/g") == Data([9]) + pattern(3, from: 1))
  }

  // MARK: Threads

  @Test func noTwoThreadsReadTheSameBytesOfAHandle() throws {
    let count = 200_000
    var contents = Data()
    for i in 0..<(count / 4) { withUnsafeBytes(of: UInt32(i)) { contents += $0 } }
    let handle = try handle(reading: fixture.make("/f", contents))
    let seen = Guarded(Set<UInt32>())
    DispatchQueue.concurrentPerform(iterations: 4) { _ in
      while let data = (try? handle.read(upToCount: 4)) ?? nil {
        let number = data.withUnsafeBytes { $0.loadUnaligned(as: UInt32.self) }
        seen.withLock { _ = $0.insert(number) }
      }
    }
    #expect(seen.withLock(\.count) == count / 4)
  }

  @Test func writesOfSeveralThreadsThroughOneHandleDoNotMix() throws {
    let handle = try handle(writing: fixture.make("/f"))
    let block = 3000
    DispatchQueue.concurrentPerform(iterations: 4) { thread in
      for _ in 0..<100 {
        do {
          try handle.write(contentsOf: Data(repeating: UInt8(thread), count: block))
        } catch {
          Issue.record(error)
        }
      }
    }
    let contents = try #require(files.contents(atPath: "/f"))
    #expect(contents.count == 400 * block)
    var counts = [Int](repeating: 0, count: 4)
    for start in stride(from: 0, to: contents.count, by: block) {
      let part = contents[start..<(start + block)]
      #expect(part.allSatisfy { $0 == part.first })
      counts[Int(part[start])] += 1
    }
    #expect(counts == [100, 100, 100, 100])
  }

  /// A writer replaces blocks of one value by blocks of the next; whoever reads meanwhile sees whole blocks, and never goes back.
  @Test func readingWhileAnotherWrites() throws {
    let (block, count) = (4096, 64)
    try fixture.make("/f", Data(count: block * count))
    let writing = try handle(updating: "/f")
    DispatchQueue.concurrentPerform(iterations: 3) { thread in
      do {
        if thread == 0 {
          for value in 1...40 {
            try writing.seek(toOffset: 0)
            for _ in 0..<count {
              try writing.write(contentsOf: Data(repeating: UInt8(value), count: block))
            }
            if value % 8 == 0 { try writing.synchronize() }
          }
        } else {
          let reading = try SecureFileHandle(
            forReadingFrom: files.url(forPath: "/f", isDirectory: false), in: files)
          var newest = 0
          while newest < 40 {
            try reading.seek(toOffset: UInt64(block * (count - 1)))
            let data = try #require(try reading.read(upToCount: block))
            #expect(data.allSatisfy { $0 == data[0] } && Int(data[0]) >= newest)
            newest = Int(data[0])
            try reading.seek(toOffset: 0)
            let all = try #require(try reading.readToEnd())
            #expect(all.count == block * count)
          }
        }
      } catch {
        Issue.record(error)
      }
    }
  }

  @Test func closingWhileOthersReadEndsThemInOrder() throws {
    let handle = try handle(reading: fixture.make("/f", pattern(1 << 20)))
    DispatchQueue.concurrentPerform(iterations: 3) { thread in
      if thread == 0 {
        _ = try? handle.read(upToCount: 1000)
        try? handle.close()
      } else {
        while true {
          let result = thrown { if try handle.read(upToCount: 100) == nil { try handle.seek(toOffset: 0) } }
          guard let result else { continue }
          #expect(result.posix == .EBADF)
          break
        }
      }
    }
  }
}

struct FileBytesTests {
  @Test func bytesComeInOrderAndOnce() async throws {
    let fixture = try FilesOfContainer()
    let contents = pattern(150_001)
    let handle = try #require(
      SecureFileHandle(forReadingAtPath: fixture.make("/f", contents), in: fixture.files))
    try handle.seek(toOffset: 5)
    var all: [UInt8] = []
    for try await byte in handle.bytes { all.append(byte) }
    #expect(Data(all) == contents.dropFirst(5))
    #expect(try handle.offset() == 150_001)
    for try await _ in handle.bytes { Issue.record("a byte after the end") }
  }

  @Test(arguments: [1000, 65_536, 1 << 20])
  func chunksAreFullExceptTheLast(count: Int) async throws {
    let fixture = try FilesOfContainer()
    let contents = pattern((2 << 20) + 7)
    let handle = try #require(
      SecureFileHandle(forReadingAtPath: fixture.make("/f", contents), in: fixture.files))
    var all = Data()
    for try await chunk in handle.chunks(ofCount: count) {
      #expect(chunk.count == min(count, contents.count - all.count))
      all += chunk
    }
    #expect(all == contents)
  }

  @Test func errorsReachTheLoop() async throws {
    let fixture = try FilesOfContainer()
    let handle = try #require(
      SecureFileHandle(forReadingAtPath: fixture.make("/f", pattern(200_000)), in: fixture.files))
    var count = 0
    await #expect(throws: CocoaError.self) {
      for try await _ in handle.bytes {
        count += 1
        if count == 1 { try handle.close() }
      }
    }
    // What had been read before the handle was closed still came.
    #expect(count == 65_536)
  }

  @Test func aCancelledTaskStops() async throws {
    let fixture = try FilesOfContainer()
    let handle = try #require(
      SecureFileHandle(forReadingAtPath: fixture.make("/f", pattern(1000)), in: fixture.files))
    let task = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      for try await _ in handle.chunks(ofCount: 10) { Issue.record("a chunk for a cancelled task") }
    }
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(try handle.offset() == 0)
  }
}
