import CPosix
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A command of the shell, run for what it prints.
enum ShellCommand {
  /// A password manager prints notes behind the password; nobody prints as much as this.
  private static let outputByteCountMax = 1 << 20

  /// Fills the buffer with the begin of the output, the first line or more, and returns how much there was. Throws
  /// `passphraseCommandFailed` when the command does not end with 0, and `cancelled` when a signal comes.
  static func firstLine(of command: String, into buffer: inout SecretBytes) throws -> Int {
    var ends: [Int32] = [-1, -1]
    guard pipe(&ends) == 0 else { throw CommandError.native("pipe", "/bin/sh", errno) }
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    defer { close(ends[0]) }
    var process: pid_t = 0
    let spawned = withArguments(["/bin/sh", "-c", command]) { cposix_spawn_printing(&process, ends[1], $0) }
    close(ends[1])
    guard spawned == 0 else { throw CommandError.native("posix_spawn", "/bin/sh", -spawned) }
    let count: Int
    do {
      count = try read(ends[0], into: &buffer)
    } catch {
      // It may wait for a person, and ends with whoever asked for it.
      kill(process, SIGTERM)
      throw error
    }
    var status: Int32 = 0
    while waitpid(process, &status, 0) < 0, errno == EINTR {}
    let signal = status & 0x7f
    let code = (status >> 8) & 0xff
    guard signal == 0, code == 0 else {
      throw CommandError(
        .passphraseCommandFailed,
        detail: signal == 0 ? "it ended with exit status \(code)" : "it ended on signal \(signal)")
    }
    return count
  }

  /// Reads to the end: a command that cannot print fails.
  private static func read(_ descriptor: Int32, into buffer: inout SecretBytes) throws -> Int {
    var rest = try SecretBytes(count: 4096)
    return try buffer.withUnsafeMutableBytes { memory in
      var count = 0
      var skippedCount = 0
      while true {
        let more: Int
        if count < memory.count {
          more = try readSome(
            descriptor, into: UnsafeMutableRawBufferPointer(rebasing: memory[count...]), name: "/bin/sh")
          count += more
        } else {
          more = try rest.withUnsafeMutableBytes { try readSome(descriptor, into: $0, name: "/bin/sh") }
          skippedCount += more
        }
        if more == 0 { return count }
        guard skippedCount <= outputByteCountMax else {
          throw CommandError(.passphraseCommandFailed, detail: "it prints more than 1 MiB")
        }
      }
    }
  }

  private static func withArguments<R>(
    _ arguments: [String], _ body: (UnsafePointer<UnsafeMutablePointer<CChar>?>) -> R
  ) -> R {
    var words: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) }
    words.append(nil)
    defer { for word in words { free(word) } }
    return body(words)
  }
}
