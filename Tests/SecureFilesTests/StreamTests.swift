import Foundation
import SecureFiles
import Testing

struct StreamTests {
  private let fixture: FilesOfContainer
  private var files: SecureFileManager { fixture.files }

  init() throws { fixture = try FilesOfContainer() }

  private func input(_ path: String) throws -> SecureInputStream {
    try #require(SecureInputStream(fileAtPath: path, in: files))
  }

  private func output(_ path: String, append: Bool = false) throws -> SecureOutputStream {
    try #require(SecureOutputStream(toFileAtPath: path, append: append, in: files))
  }

  private func read(_ stream: InputStream, _ count: Int) -> (count: Int, bytes: Data) {
    var memory = [UInt8](repeating: 0, count: count)
    let result = stream.read(&memory, maxLength: count)
    return (result, Data(memory.prefix(max(0, result))))
  }

  private func posix(_ error: (any Error)?) -> POSIXErrorCode? { (error as? POSIXError)?.code }

  // MARK: Reading

  @Test func theEndIsFoundByAReadOfNothing() throws {
    let stream = try input(fixture.make("/f", Data("hello".utf8)))
    #expect(stream.streamStatus == .notOpen && !stream.hasBytesAvailable)
    #expect(read(stream, 4).count == -1)
    stream.open()
    #expect(stream.streamStatus == .open && stream.hasBytesAvailable)
    #expect(read(stream, 4) == (4, Data("hell".utf8)))
    #expect(stream.hasBytesAvailable)
    #expect(read(stream, 4) == (1, Data("o".utf8)))
    #expect(stream.hasBytesAvailable && stream.streamStatus == .open)
    #expect(read(stream, 4).count == 0)
    #expect(!stream.hasBytesAvailable && stream.streamStatus == .atEnd)
    stream.close()
    #expect(stream.streamStatus == .closed && !stream.hasBytesAvailable)
    #expect(read(stream, 4).count == -1)
    #expect(stream.property(forKey: .fileCurrentOffsetKey) == nil)
  }

  @Test func aMissingFileIsFoundMissingWhenOpened() throws {
    let stream = try input("/none")
    stream.open()
    #expect(stream.streamStatus == .error && !stream.hasBytesAvailable)
    #expect(posix(stream.streamError) == .ENOENT)
    #expect((stream.streamError as NSError?)?.domain == NSPOSIXErrorDomain)
    #expect(read(stream, 4).count == -1)
    stream.close()
    #expect(stream.streamStatus == .closed)
  }

  @Test func aDirectoryIsNoStream() throws {
    try files.createDirectory(atPath: "/d", withIntermediateDirectories: false)
    let stream = try input("/d")
    stream.open()
    #expect(stream.streamStatus == .error && posix(stream.streamError) == .EISDIR)
    let writing = try output("/d")
    writing.open()
    #expect(writing.streamStatus == .error && posix(writing.streamError) == .EISDIR)
  }

  @Test(arguments: [1 << 12, 1 << 16, 100_001, 1 << 20])
  func worksWhereFoundationsStreamsDo(piece: Int) throws {
    let contents = pattern((2 << 20) + 5)
    let output: OutputStream = try output("/f")
    output.open()
    var rest = contents[...]
    while !rest.isEmpty {
      let count = rest.prefix(piece).withUnsafeBytes {
        output.write($0.bindMemory(to: UInt8.self).baseAddress!, maxLength: $0.count)
      }
      #expect(count == min(piece, rest.count))
      rest = rest.dropFirst(count)
    }
    output.close()
    #expect(output.streamStatus == .closed && output.streamError == nil)
    let input: InputStream = try input("/f")
    input.open()
    var all = Data()
    while input.hasBytesAvailable { all += read(input, piece).bytes }
    #expect(all == contents)
  }

  @Test func urlsOfThisContainerAreTaken() throws {
    try fixture.make("/f", pattern(3))
    let url = files.url(forPath: "/f", isDirectory: false)
    let stream = try #require(SecureInputStream(url: url, in: files))
    stream.open()
    #expect(read(stream, 9) == (3, pattern(3)))
    #expect(SecureInputStream(url: URL(fileURLWithPath: "/f"), in: files) == nil)
    #expect(SecureOutputStream(url: URL(fileURLWithPath: "/f"), append: true, in: files) == nil)
    let writing = try #require(SecureOutputStream(url: url, append: true, in: files))
    writing.open()
    #expect(writing.write([9], maxLength: 1) == 1)
    writing.close()
    #expect(files.contents(atPath: "/f") == pattern(3) + [9])
  }

  @Test func lengthsAtTheEdges() throws {
    let stream = try input(fixture.make("/f", pattern(3)))
    stream.open()
    #expect(read(stream, 0).count == 0)
    #expect(stream.streamStatus == .open)
    var byte: UInt8 = 0
    #expect(stream.read(&byte, maxLength: -1) == -1)
    var start: UnsafeMutablePointer<UInt8>?
    var count = 0
    #expect(!stream.getBuffer(&start, length: &count))
  }

  // MARK: Seeking

  @Test func readsFromWhereItSeeks() throws {
    let stream = try input(fixture.make("/f", pattern(100)))
    #expect(throws: CocoaError.self) { try stream.seek(toOffset: 5) }
    #expect(!stream.setProperty(NSNumber(value: 5), forKey: .fileCurrentOffsetKey))
    stream.open()
    try stream.seek(toOffset: 90)
    #expect(read(stream, 100) == (10, pattern(10, from: 90)))
    #expect(read(stream, 100).count == 0)
    #expect(stream.setProperty(NSNumber(value: 50), forKey: .fileCurrentOffsetKey))
    #expect(stream.hasBytesAvailable)
    #expect(read(stream, 10) == (10, pattern(10, from: 50)))
    #expect((stream.property(forKey: .fileCurrentOffsetKey) as? NSNumber)?.intValue == 60)
    try stream.seek(toOffset: 1000)
    #expect(read(stream, 10).count == 0)
    #expect(!stream.setProperty(NSNumber(value: -1), forKey: .fileCurrentOffsetKey))
    #expect(!stream.setProperty("x" as NSString, forKey: .fileCurrentOffsetKey))
    #expect(!stream.setProperty(NSNumber(value: 1), forKey: .dataWrittenToMemoryStreamKey))
    #expect(stream.property(forKey: .dataWrittenToMemoryStreamKey) == nil)
  }

  @Test func writesWhereItSeeks() throws {
    let stream = try output(fixture.make("/f", pattern(10)))
    stream.open()
    #expect(files.contents(atPath: "/f") == Data())
    #expect(stream.hasSpaceAvailable)
    #expect(stream.write([1, 2, 3], maxLength: 2) == 2)
    #expect((stream.property(forKey: .fileCurrentOffsetKey) as? NSNumber)?.intValue == 2)
    try stream.seek(toOffset: 5)
    #expect(stream.write([9], maxLength: 1) == 1)
    #expect(stream.setProperty(NSNumber(value: 0), forKey: .fileCurrentOffsetKey))
    #expect(stream.write([8], maxLength: 1) == 1)
    stream.close()
    #expect(files.contents(atPath: "/f") == Data([8, 2, 0, 0, 0, 9]))
    #expect(stream.write([1], maxLength: 1) == -1)
    #expect(!stream.hasSpaceAvailable)
    #expect(throws: CocoaError.self) { try stream.seek(toOffset: 0) }
  }

  // MARK: Writing

  @Test func appendsAtTheEndWhereverThatIs() throws {
    try fixture.make("/f", pattern(4))
    let (first, second) = (try output("/f", append: true), files.outputStream(forPath: "/f", append: true))
    first.open()
    second.open()
    #expect(first.write([1], maxLength: 1) == 1)
    #expect(second.write([2], maxLength: 1) == 1)
    #expect(first.write([3], maxLength: 1) == 1)
    #expect((first.property(forKey: .fileCurrentOffsetKey) as? NSNumber)?.intValue == 7)
    #expect(files.contents(atPath: "/f") == pattern(4) + [1, 2, 3])
  }

  @Test func aMissingDirectoryIsAnError() throws {
    let stream = try output("/none/f")
    stream.open()
    #expect(stream.streamStatus == .error && posix(stream.streamError) == .ENOENT)
    #expect(stream.write([1], maxLength: 1) == -1)
  }

  @Test func aReadOnlyContainerTakesNoStream() throws {
    try fixture.make("/f", pattern(4))
    try fixture.container.synchronize()
    let reader = try fixture.openedForReading()
    let stream = reader.files.outputStream(forPath: "/f", append: true)
    stream.open()
    #expect(stream.streamStatus == .error && posix(stream.streamError) == .EROFS)
    let input = reader.files.inputStream(forPath: "/f")
    input.open()
    #expect(read(input, 9) == (4, pattern(4)))
  }

  @Test func aStreamThatIsLetGoKeepsWhatWasWritten() throws {
    do {
      let stream = try output("/f")
      stream.open()
      #expect(stream.write([1, 2], maxLength: 2) == 2)
    }
    try fixture.container.close()
    #expect(try fixture.openedForReading().files.contents(atPath: "/f") == Data([1, 2]))
  }

  @Test func aContainerThatClosesEndsItsStreams() throws {
    let input = try input(fixture.make("/f", pattern(9)))
    let output = try output("/g")
    input.open()
    output.open()
    #expect(output.write([1], maxLength: 1) == 1)
    try fixture.container.close()
    #expect(read(input, 1).count == -1)
    #expect(input.streamStatus == .error && posix(input.streamError) == .EBADF)
    #expect(output.write([2], maxLength: 1) == -1)
    #expect(output.streamStatus == .error && posix(output.streamError) == .EBADF)
    #expect(try fixture.openedForReading().files.contents(atPath: "/g") == Data([1]))
  }

  @Test func aStreamToMemoryDoesNotOpen() {
    let stream = SecureOutputStream(toMemory: ())
    stream.open()
    #expect(stream.streamStatus == .error)
  }

  // MARK: Events

  /// Reads or writes on each event, as the guides for streams do, and stops at the end.
  private final class Recorder: NSObject, StreamDelegate {
    var events: [Stream.Event] = []
    var bytes = Data()
    var toWrite: [UInt8] = []

    func stream(_ stream: Stream, handle event: Stream.Event) {
      events.append(event)
      if event == .hasBytesAvailable, let stream = stream as? InputStream {
        var memory = [UInt8](repeating: 0, count: 4)
        let count = stream.read(&memory, maxLength: 4)
        bytes += memory.prefix(max(0, count))
      }
      if event == .hasSpaceAvailable, let stream = stream as? OutputStream, let byte = toWrite.popLast() {
        _ = stream.write([byte], maxLength: 1)
      }
    }
  }

  /// Runs the thread's run loop until `isDone`; at most a minute, so that a lost event fails the test and does not hang it.
  private func runLoop(until isDone: () -> Bool) {
    let end = Date(timeIntervalSinceNow: 60)
    while !isDone(), Date() < end {
      // A timer ends no run of the loop on every platform: look again soon.
      _ = RunLoop.current.run(mode: .default, before: Date(timeIntervalSinceNow: 0.01))
    }
  }

  @Test func theDelegateHearsOfBytesUntilTheEnd() throws {
    let stream = try input(fixture.make("/f", pattern(10)))
    let recorder = Recorder()
    stream.delegate = recorder
    stream.schedule(in: .current, forMode: .default)
    stream.open()
    runLoop { recorder.events.last == .endEncountered }
    #expect(
      recorder.events == [
        .openCompleted, .hasBytesAvailable, .hasBytesAvailable, .hasBytesAvailable, .hasBytesAvailable,
        .endEncountered,
      ])
    #expect(recorder.bytes == pattern(10))
    stream.close()
  }

  @Test func theDelegateHearsOfSpaceAndOfErrors() throws {
    let stream = try output("/f")
    let recorder = Recorder()
    recorder.toWrite = [3, 2, 1]
    stream.delegate = recorder
    stream.open()
    // Scheduled late: it still hears that there is space.
    stream.schedule(in: .current, forMode: .default)
    runLoop { recorder.toWrite.isEmpty && recorder.events.count == 4 }
    #expect(
      recorder.events == [.hasSpaceAvailable, .hasSpaceAvailable, .hasSpaceAvailable, .hasSpaceAvailable])
    stream.close()
    #expect(files.contents(atPath: "/f") == Data([1, 2, 3]))
    let missing = try input("/none")
    let other = Recorder()
    missing.delegate = other
    missing.schedule(in: .current, forMode: .default)
    missing.open()
    runLoop { !other.events.isEmpty }
    #expect(other.events == [.errorOccurred])
  }

  @Test func aRemovedStreamHearsNothing() throws {
    let stream = try input(fixture.make("/f", pattern(10)))
    let marker = try input(fixture.make("/g"))
    let (recorder, markers) = (Recorder(), Recorder())
    stream.delegate = recorder
    marker.delegate = markers
    stream.schedule(in: .current, forMode: .default)
    stream.remove(from: .current, forMode: .default)
    stream.open()
    marker.schedule(in: .current, forMode: .default)
    marker.open()
    runLoop { markers.events.last == .endEncountered }
    #expect(recorder.events == [])
  }
}
