import ContainerStore
import SodiumPrimitives
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Another process reads while this one writes.
struct SnapshotConcurrencyTests {
  /// A pipe takes 64 KiB, so the program holds its snapshot until somebody reads on.
  @Test func aProcessThatReadsKeepsItsStateWhileEverythingIsRewritten() throws {
    let folder = try TemporaryFolder()
    let place = try folder.makeContainer()
    var options = Container.Options()
    options.durability = .full
    options.checkpointByteCounts = 16 << 10...16 << 10
    var key = try SecretBytes(count: Credential.rawKeyByteCount)
    let keyBytes = try readBytes(folder.path("key"))
    key.withUnsafeMutableBytes { $0.copyBytes(from: keyBytes) }
    let container = try Container.open(at: place, credential: .rawKey(key), options: options)
    let original = (0..<3 << 20).map { UInt8(truncatingIfNeeded: $0 ^ $0 >> 9) }
    try original.withUnsafeBytes { try container.write($0, to: "/large") }
    try original.prefix(300_000).withUnsafeBytes { try container.write($0, to: "/second") }

    var pipes: [(descriptor: Int32, process: DynamicsProcess)] = []
    for i in 0..<2 {
      let path = folder.path("pipe\(i)")
      try #require(mkfifo(path, 0o600) == 0)
      // Without waiting for the writer; what is read from it later does wait.
      let descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
      try #require(descriptor >= 0)
      let arguments = ["cat", place, "/large", "/second"] + folder.key
      let process = try DynamicsProcess(arguments.map { Array($0.utf8) }, in: folder, output: path)
      var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      try #require(waitForBytes(&waiting) == 1, "nothing arrives")
      try #require(fcntl(descriptor, F_SETFL, 0) == 0)
      pipes.append((descriptor, process))
    }
    for round in 0..<4 {
      try [UInt8](repeating: UInt8(round), count: 1 << 20).withUnsafeBytes {
        try container.write($0, to: "/large")
      }
      for i in 0..<60 { try container.createDirectory("/d\(round)-\(i)") }
      try container.compact()
    }
    try container.remove("/large")
    try container.remove("/second")
    try container.compact()
    #expect(try slabByteCount(place) > 3 << 20)
    #expect(try container.info().generation > 2)
    for (descriptor, process) in pipes {
      var read: [UInt8] = []
      var buffer = [UInt8](repeating: 0, count: 1 << 16)
      while true {
        let count = buffer.withUnsafeMutableBytes { take(descriptor, $0) }
        guard count > 0 else { break }
        read += buffer.prefix(count)
      }
      close(descriptor)
      var status: Int32 = -1
      while waitpid(process.id, &status, 0) < 0 { try #require(errno == EINTR) }
      let errors = try String(decoding: readBytes(process.errorPath), as: UTF8.self)
      #expect(status == 0, "\(errors)")
      #expect(read == original + original.prefix(300_000))
    }
    try container.createDirectory("/last")
    try container.compact()
    #expect(try slabByteCount(place) < 64 << 10)
    try container.close()
    try folder.run("container", "verify", place)
  }

  /// Bytes of blocks.
  private func slabByteCount(_ place: String) throws -> Int {
    try fileNames(in: place + "/slab").reduce(0) { sum, name in
      var status = stat()
      try #require(stat(place + "/slab/" + name, &status) == 0)
      return sum + Int(status.st_blocks) * 512
    }
  }

  private func waitForBytes(_ descriptor: inout pollfd) -> Int32 { poll(&descriptor, 1, 20_000) }

  private func take(_ descriptor: Int32, _ buffer: UnsafeMutableRawBufferPointer) -> Int {
    read(descriptor, buffer.baseAddress, buffer.count)
  }
}
