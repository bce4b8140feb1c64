import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

struct SignalTests {
  /// Takes seconds, so that the signal comes in the middle.
  static let largeByteCount = 2 << 30

  @Test(arguments: [(SIGINT, 130), (SIGTERM, 143), (SIGHUP, 129)] as [(Int32, Int32)])
  func leavesNothingBehindWhenAPutIsEnded(signal: Int32, status: Int32) throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let file = try folder.makeLargeFile("large", byteCount: Self.largeByteCount)
    let put = try folder.start("put", container, file, "/new/large", "--progress")
    try put.waitForProgress()
    put.signal(signal)
    #expect(try put.finish().status == status)
    try folder.run("container", "verify", container)
    #expect(try folder.run("ls", container).text == "")
  }

  @Test func leavesNothingBehindWhenAPutFromAPipeIsEnded() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let pipe = folder.path("pipe")
    #expect(mkfifo(pipe, 0o600) == 0)
    // Nobody ever writes to it.
    let put = try folder.start("put", container, pipe, "/new/folder/file")
    try put.wait("the container being open") {
      try String(decoding: readBytes(container + "/lock"), as: UTF8.self).contains("pid \(put.id)\n")
    }
    put.signal(SIGINT)
    #expect(try put.finish().status == 130)
    #expect(try folder.run("ls", "-R", container).text == "")
  }

  @Test func leavesNothingBehindWhenAGetIsEnded() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let file = try folder.makeLargeFile("large", byteCount: 256 << 20)
    try folder.run("put", container, file, "/large")
    let target = try folder.makeFolder("target")
    let get = try folder.start("get", container, "/large", target, "--progress")
    try get.waitForProgress()
    get.signal(SIGINT)
    #expect(try get.finish().status == 130)
    #expect(try fileNames(in: target) == [])
  }

  @Test func endsQuietlyWhenNobodyReadsTheOutput() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let file = try folder.makeLargeFile("file", byteCount: 4 << 20)
    try folder.run("put", container, file, "/file")
    let pipe = folder.path("pipe")
    #expect(mkfifo(pipe, 0o600) == 0)
    let reader = open(pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
    let cat = try DynamicsProcess(
      (["cat", container, "/file"] + folder.key).map { Array($0.utf8) }, in: folder, output: pipe)
    var byte: UInt8 = 0
    try cat.wait("output") { read(reader, &byte, 1) == 1 }
    close(reader)
    var status: Int32 = 0
    #expect(waitpid(cat.id, &status, 0) == cat.id)
    #expect(status >> 8 & 0xff == 141)
    #expect(try readBytes(cat.errorPath).isEmpty)
  }
}
