import SodiumPrimitives
import TestSupport
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A folder of one test, removed with it; and the program run in it with the key file that every container there has.
final class TemporaryFolder {
  private let directory = TemporaryDirectory()
  private var nextName = 0

  init() throws { try writeBytes(Random.bytes(32), path("key")) }

  var root: String { directory.path }

  func path(_ name: String) -> String { directory[name] }

  func uniqueName() -> String {
    nextName += 1
    return ".run-\(nextName)"
  }

  var key: [String] { ["--key-file", path("key")] }

  /// `dynamics` with a key that opens the containers of this folder.
  @discardableResult
  func run(
    _ arguments: String..., input: String = "/dev/null", output: String? = nil,
    sourceLocation: SourceLocation = #_sourceLocation, expecting status: Int32 = 0
  ) throws -> DynamicsProcess.Outcome {
    try run(arguments, input: input, output: output, sourceLocation: sourceLocation, expecting: status)
  }

  @discardableResult
  func run(
    _ arguments: [String], input: String = "/dev/null", output: String? = nil,
    sourceLocation: SourceLocation = #_sourceLocation, expecting status: Int32 = 0
  ) throws -> DynamicsProcess.Outcome {
    let outcome = try DynamicsProcess(
      (arguments + key).map { Array($0.utf8) }, in: self, input: input, output: output
    ).finish()
    #expect(
      outcome.status == status, "\(arguments): \(outcome.errors)", sourceLocation: sourceLocation)
    return outcome
  }

  /// `dynamics` with exactly these arguments.
  func runBare(_ arguments: String..., environment: [String: String] = [:]) throws -> DynamicsProcess.Outcome
  {
    try DynamicsProcess(arguments.map { Array($0.utf8) }, in: self, environment: environment).finish()
  }

  func start(_ arguments: String..., input: String = "/dev/null") throws -> DynamicsProcess {
    try DynamicsProcess((arguments + key).map { Array($0.utf8) }, in: self, input: input)
  }

  func makeContainer(_ name: String = "c") throws -> String {
    try run("container", "create", path(name))
    return path(name)
  }

  func makeFile(_ name: String, _ bytes: [UInt8]) throws -> String {
    try writeBytes(bytes, path(name))
    return path(name)
  }

  func makeFolder(_ name: String) throws -> String {
    guard mkdir(path(name), 0o700) == 0 else { throw TestFailure("mkdir \(name): \(errno)") }
    return path(name)
  }

  /// As long as asked for, and taking a quarter of the space: each segment has a page that is no hole.
  func makeLargeFile(_ name: String, byteCount: Int) throws -> String {
    let path = try makeFile(name, [])
    let file = open(path, O_WRONLY)
    defer { close(file) }
    var byte: UInt8 = 1
    guard ftruncate(file, byteCount) == 0 else { throw TestFailure("ftruncate: \(errno)") }
    for offset in stride(from: 0, to: byteCount, by: 16_384) where pwrite(file, &byte, 1, offset) != 1 {
      throw TestFailure("pwrite: \(errno)")
    }
    return path
  }
}

func readBytes(_ path: String) throws -> [UInt8] {
  let descriptor = open(path, O_RDONLY | O_CLOEXEC)
  guard descriptor >= 0 else { throw TestFailure("open \(path): \(errno)") }
  defer { close(descriptor) }
  var bytes: [UInt8] = []
  var buffer = [UInt8](repeating: 0, count: 1 << 16)
  while true {
    let count = read(descriptor, &buffer, buffer.count)
    guard count >= 0 else { throw TestFailure("read \(path): \(errno)") }
    if count == 0 { return bytes }
    bytes += buffer[0..<count]
  }
}

func writeBytes(_ bytes: [UInt8], _ path: String) throws {
  let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
  guard descriptor >= 0 else { throw TestFailure("open \(path): \(errno)") }
  defer { close(descriptor) }
  var done = 0
  while done < bytes.count {
    let count = bytes[done...].withUnsafeBytes { write(descriptor, $0.baseAddress!, $0.count) }
    guard count > 0 else { throw TestFailure("write \(path): \(errno)") }
    done += count
  }
}

func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

func fileNames(in directory: String) throws -> [String] {
  guard let stream = opendir(directory) else { throw TestFailure("opendir \(directory): \(errno)") }
  defer { closedir(stream) }
  var names: [String] = []
  while let entry = readdir(stream) {
    let bytes = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
    let name = String(decoding: bytes, as: UTF8.self)
    if name != ".", name != ".." { names.append(name) }
  }
  return names.sorted()
}
