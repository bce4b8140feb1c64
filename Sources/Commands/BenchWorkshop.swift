import CPosix
import ContainerStore
import ServiceBroker
import SodiumPrimitives

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A folder of its own with the files and containers that `dynamics bench` measures with.
final class BenchWorkshop {
  private static let file = "/large"
  private static let sender = "org.example.bench"
  private static let pieceByteCount = 1 << 20
  private static let repetitionCountMax = 5
  /// No repetition begins that would probably end later.
  private static let secondsMax = 110.0

  private let path: String
  private let byteCount: Int
  private let options: Container.Options
  private let credential: Credential

  /// Throws when no folder can be made in `directory`.
  init(in directory: String, byteCount: Int, options: Container.Options) throws {
    var name = Array(PathText.joined(directory, "dynamics-bench-XXXXXX").utf8CString)
    guard mkdtemp(&name) != nil else { throw CommandError.native("mkdtemp", directory, errno) }
    path = String(decoding: name.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    self.byteCount = byteCount
    self.options = options
    credential = try .rawKey(.random(count: Credential.rawKeyByteCount))
  }

  func remove() { try? FileManager.default.removeItem(atPath: path) }

  /// Measures every line once in each repetition: so many, or as many as fit into two minutes.
  func measure(repetitions: Int?, progress: (ProgressState) -> Void) throws -> BenchResult {
    let begin = ContinuousClock.now
    try makePlainFile()
    let source = try makeContainer("source", .full)
    defer { try? source.close() }
    try source.importItem(at: place("plain"), to: Self.file)
    let memory = BenchMemory(byteCount: byteCount, options.cipher)
    var result = describe()
    let works = BenchWork.allCases.filter { $0 != .cipherAllThreads || options.threadCount > 1 }
    result.lines = works.map { BenchResult.Line(work: $0) }
    let count = repetitions ?? Self.repetitionCountMax
    let measuring = ContinuousClock.now
    for repetition in 0..<count {
      let each = repetition == 0 ? 0 : seconds(since: measuring) / Double(repetition)
      if repetitions == nil, seconds(since: begin) + each > Self.secondsMax, repetition > 0 { break }
      for (i, work) in works.enumerated() {
        if Interruption.shared.cancellation.isCancelled { throw ContainerError(.cancelled) }
        let run = try prepare(work, source, memory)
        // What the line before has left to write is no work of this one.
        sync()
        let processor = processorSeconds()
        let start = ContinuousClock.now
        try run()
        result.lines[i].seconds.append(seconds(since: start))
        result.lines[i].processorSeconds.append(processorSeconds() - processor)
        let done = repetition * works.count + i + 1
        progress(
          ProgressState(
            bytesDone: UInt64(done * byteCount), byteCount: UInt64(count * works.count * byteCount),
            seconds: seconds(since: measuring)))
      }
    }
    return result
  }

  private func seconds(since begin: ContinuousClock.Instant) -> Double {
    begin.duration(to: .now) / .seconds(1)
  }

  private func describe() -> BenchResult {
    let (cipher, version, why) =
      switch options.cipher {
      case .libcrypto:
        ("libcrypto", CipherBackend.libcryptoVersion, "because it is installed and agrees with libsodium")
      case .libsodium where CipherBackend.preferred == .libcrypto:
        ("libsodium", CipherBackend.libsodiumVersion, "because --cipher asks for it")
      case .libsodium:
        (
          "libsodium", CipherBackend.libsodiumVersion,
          "because no libcrypto is installed, which is usually faster"
        )
      }
    var load = 0.0
    getloadavg(&load, 1)
    return BenchResult(
      cipher: cipher, cipherVersion: version ?? "", whyThisCipher: why, threadCount: options.threadCount,
      loadAverage: load, byteCount: byteCount)
  }

  // MARK: The lines

  /// Brings everything to the state before one piece of work, and returns the work.
  private func prepare(
    _ work: BenchWork, _ source: Container, _ memory: BenchMemory
  ) throws -> () throws -> Void {
    switch work {
    case .memoryCopy: return { memory.copy() }
    case .cipherOneThread: return { memory.seal(threadCount: 1) }
    case .cipherAllThreads: return { [options] in memory.seal(threadCount: options.threadCount) }
    case .cp, .cpDurable:
      try remove("copy")
      return { [self] in
        try copyWithCP()
        if work == .cpDurable { try synchronize("copy") }
      }
    case .put:
      let container = try freshContainer(.full)
      return { [self] in
        try container.importItem(at: place("plain"), to: Self.file, control: self.control)
        try container.close()
      }
    case .get:
      try remove("copy")
      return { [self] in
        try source.exportItem(Self.file, to: place("copy"), control: self.control)
        try synchronize("copy")
      }
    case .send, .sendDurable:
      let receiver = try freshContainer(work == .send ? .none : .full)
      return { [self] in
        _ = try source.send([Self.file], to: receiver, sender: Self.sender, control: control)
        try receiver.close()
      }
    }
  }

  private var control: BulkControl { BulkControl(cancellation: Interruption.shared.cancellation) }

  private func place(_ name: String) -> String { path + "/" + name }

  private func remove(_ name: String) throws {
    guard FileManager.default.fileExists(atPath: place(name)) else { return }
    try FileManager.default.removeItem(atPath: place(name))
  }

  private func makeContainer(_ name: String, _ durability: Container.Durability) throws -> Container {
    var options = options
    options.durability = durability
    return try Container.create(at: place(name), credential: credential, options: options)
  }

  private func freshContainer(_ durability: Container.Durability) throws -> Container {
    try remove("target")
    return try makeContainer("target", durability)
  }

  /// Random bytes, which no file system compresses or stores as a hole.
  private func makePlainFile() throws {
    let descriptor = cposix_open(place("plain"), O_WRONLY | O_CREAT | O_EXCL, 0o600)
    guard descriptor >= 0 else { throw CommandError.native("open", place("plain"), -descriptor) }
    defer { close(descriptor) }
    for offset in stride(from: 0, to: byteCount, by: Self.pieceByteCount) {
      if Interruption.shared.cancellation.isCancelled { throw ContainerError(.cancelled) }
      var piece = Random.bytes(min(Self.pieceByteCount, byteCount - offset))[...]
      while !piece.isEmpty {
        let count = piece.withUnsafeBytes { write(descriptor, $0.baseAddress!, $0.count) }
        guard count > 0 else {
          throw CommandError.native("write", place("plain"), count < 0 ? errno : ENOSPC)
        }
        piece = piece.dropFirst(count)
      }
    }
  }

  private func synchronize(_ name: String) throws {
    let descriptor = cposix_open(place(name), O_RDONLY, 0)
    guard descriptor >= 0 else { throw CommandError.native("open", place(name), -descriptor) }
    defer { close(descriptor) }
    let status = cposix_fdatasync(descriptor)
    guard status == 0 else { throw CommandError.native("fdatasync", place(name), -status) }
  }

  private func copyWithCP() throws {
    #if os(Linux)
      // It reads and writes, as a container has to: cp neither shares blocks nor looks for zeros.
      let options = ["--reflink=never", "--sparse=never"]
    #else
      let options: [String] = []
    #endif
    var process: pid_t = 0
    let spawned = withCStrings(["/bin/cp"] + options + [place("plain"), place("copy")]) {
      cposix_spawn_detached(&process, $0, nil)
    }
    guard spawned == 0 else { throw CommandError.native("start", "/bin/cp", -spawned) }
    var status: Int32 = 0
    while waitpid(process, &status, 0) < 0, errno == EINTR {}
    guard status == 0 else {
      throw CommandError(.nativeFailed, path: place("copy"), detail: "cp did not succeed")
    }
  }

  /// User and system time of this process, and of the children that it has waited for.
  private func processorSeconds() -> Double {
    #if os(Linux)
      let whose = [RUSAGE_SELF.rawValue, RUSAGE_CHILDREN.rawValue]
    #else
      let whose = [RUSAGE_SELF, RUSAGE_CHILDREN]
    #endif
    return whose.reduce(0) { sum, who in
      var usage = rusage()
      getrusage(numericCast(who), &usage)
      return [usage.ru_utime, usage.ru_stime].reduce(sum) {
        $0 + Double($1.tv_sec) + Double($1.tv_usec) / 1e6
      }
    }
  }
}
