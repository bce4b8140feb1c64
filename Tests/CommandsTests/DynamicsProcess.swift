import TestSupport
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A run of the built program in a session of its own, so that no test ever asks on the terminal it was started from.
struct DynamicsProcess {
  struct Outcome {
    /// The exit code; 128 + n when signal n killed it.
    var status: Int32
    var output: [UInt8]
    var errors: String

    var text: String { String(decoding: output, as: UTF8.self) }
  }

  let id: pid_t
  let outputPath: String
  /// Where the output goes cannot be read, such as /dev/full.
  private let isOutputLost: Bool
  let errorPath: String

  /// Beside the test bundle's executable.
  static let executable: String = {
    let this = try? readLink("/proc/self/exe")
    let directory = (this ?? CommandLine.arguments[0]).split(separator: "/").dropLast()
    return "/" + directory.joined(separator: "/") + "/dynamics"
  }()

  private static func readLink(_ path: String) throws -> String {
    try withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 1) { buffer in
      let count = readlink(path, buffer.baseAddress!, buffer.count)
      guard count > 0 else { throw TestFailure("readlink \(path)") }
      return String(decoding: buffer[0..<count], as: UTF8.self)
    }
  }

  init(
    _ arguments: [[UInt8]], in folder: TemporaryFolder, input: String = "/dev/null", output: String? = nil,
    environment: [String: String] = [:], executable: String = Self.executable
  ) throws {
    let name = folder.uniqueName()
    outputPath = output ?? folder.path(name + ".out")
    isOutputLost = output?.hasPrefix("/dev/") ?? false
    errorPath = folder.path(name + ".err")
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, 0, input, O_RDONLY, 0)
    posix_spawn_file_actions_addopen(&actions, 1, outputPath, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    posix_spawn_file_actions_addopen(&actions, 2, errorPath, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    posix_spawnattr_setflags(&attributes, Int16(0x80))  // POSIX_SPAWN_SETSID
    let all = [Array(executable.utf8)] + arguments
    var argv: [UnsafeMutablePointer<CChar>?] = all.map { bytes in
      (bytes + [0]).withUnsafeBytes { strdup($0.bindMemory(to: CChar.self).baseAddress!) }
    }
    argv.append(nil)
    let variables = environment.merging(["PATH": "/usr/local/bin:/usr/bin:/bin"]) { own, _ in own }
    var envp: [UnsafeMutablePointer<CChar>?] = variables.map { strdup("\($0)=\($1)") }
    envp.append(nil)
    defer { for pointer in argv + envp { free(pointer) } }
    var id: pid_t = 0
    let status = posix_spawn(&id, executable, &actions, &attributes, argv, envp)
    guard status == 0 else { throw TestFailure("posix_spawn \(executable): \(status)") }
    self.id = id
  }

  func signal(_ number: Int32) { kill(id, number) }

  func finish() throws -> Outcome {
    var status: Int32 = 0
    while waitpid(id, &status, 0) < 0 {
      guard errno == EINTR else { throw TestFailure("waitpid: \(errno)") }
    }
    let signal = status & 0x7f
    return Outcome(
      status: signal == 0 ? (status >> 8) & 0xff : 128 + signal,
      output: isOutputLost ? [] : try readBytes(outputPath),
      errors: String(decoding: try readBytes(errorPath), as: UTF8.self))
  }

  /// Until the program has drawn its progress bar, so that it is at work.
  func waitForProgress() throws {
    try wait("progress") { try !readBytes(errorPath).isEmpty }
  }

  func wait(_ what: String, until isReached: () throws -> Bool) throws {
    for _ in 0..<6000 {
      if try isReached() { return }
      usleep(10_000)
    }
    throw TestFailure("a minute passed without \(what)")
  }
}
