import CPosix
import ContainerStore
import ServiceBroker
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A command of the shell, run for what it prints.
///
/// It has the terminal and the error output of this process, and no standard input. Of the environment it has everything but the
/// variables of secrets, so that one that runs this program asks nobody else.
struct ShellCommand: ~Copyable {
  private let process: pid_t
  private let output: Int32
  /// As waitpid(2) has it; nil while it runs.
  private var status: Int32?

  /// A password manager prints notes behind the password; nobody prints as much as this.
  private static let outputByteCountMax = 1 << 20
  /// The time between two looks whether the command has ended: programs that it has started may keep its output open.
  private static let lookMilliseconds: Int32 = 20

  /// Starts it.
  init(_ command: String) throws {
    var ends: [Int32] = [-1, -1]
    guard pipe(&ends) == 0 else { throw CommandError.native("pipe", "/bin/sh", errno) }
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    defer { close(ends[1]) }
    // The parent of this program may ignore the signal, and then nobody hears how a child ended.
    signal(SIGCHLD, SIG_DFL)
    var process: pid_t = 0
    let spawned = withCStrings(["/bin/sh", "-c", command]) {
      cposix_spawn_printing(&process, ends[1], $0, Self.environment())
    }
    guard spawned == 0 else {
      close(ends[0])
      throw CommandError.native("posix_spawn", "/bin/sh", -spawned)
    }
    (self.process, output) = (process, ends[0])
    Interruption.shared.child.store(process, ordering: .sequentiallyConsistent)
  }

  /// One that still runs ends with whoever asked for it.
  deinit {
    Interruption.shared.child.store(0, ordering: .sequentiallyConsistent)
    close(output)
    if status == nil { kill(process, SIGTERM) }
  }

  private static func environment() -> [UnsafeMutablePointer<CChar>?] {
    var kept: [UnsafeMutablePointer<CChar>?] = []
    var next = cposix_environment()
    while let place = next, let variable = place.pointee {
      if !SecretPlaces.isOfSecret(variable) { kept.append(variable) }
      next = place + 1
    }
    return kept + [nil]
  }

  /// Fills the buffer with the begin of the output, the first line or more, and returns how much there was. Throws
  /// `passphraseCommandFailed` when the command does not end with 0, and `cancelled` when a signal comes.
  consuming func firstLine(into buffer: inout SecretBytes) throws -> Int {
    let count = try read(into: &buffer)
    while status == nil { try wait(Self.lookMilliseconds) }
    let signal = status! & 0x7f
    let code = (status! >> 8) & 0xff
    guard signal == 0, code == 0 else {
      throw CommandError(
        .passphraseCommandFailed,
        detail: signal == 0 ? "it ended with exit status \(code)" : "it ended on signal \(signal)")
    }
    return count
  }

  /// Reads to the end, for a command that cannot print fails; or until the command has ended and nothing is there.
  private mutating func read(into buffer: inout SecretBytes) throws -> Int {
    var rest = try SecretBytes(count: 4096)
    var (count, restCount) = (0, 0)
    while true {
      let hasEnded = status != nil
      guard try waitForInput(output, atMost: hasEnded ? 0 : Self.lookMilliseconds) else {
        if hasEnded { return count }
        try wait(0)
        continue
      }
      let isFull = count == buffer.count
      let output = output
      let more =
        if isFull {
          try rest.withUnsafeMutableBytes { try readSome(output, into: $0, name: "/bin/sh") }
        } else {
          try buffer.withUnsafeMutableBytes { memory in
            try readSome(
              output, into: UnsafeMutableRawBufferPointer(rebasing: memory[count...]), name: "/bin/sh")
          }
        }
      if more == 0 { return count }
      if isFull { restCount += more } else { count += more }
      guard restCount <= Self.outputByteCountMax else {
        throw CommandError(.passphraseCommandFailed, detail: "it prints more than 1 MiB")
      }
    }
  }

  /// Asks whether it has ended, after so long at most.
  private mutating func wait(_ milliseconds: Int32) throws {
    if Interruption.shared.cancellation.isCancelled { throw ContainerError(.cancelled) }
    var status: Int32 = 0
    let waited = waitpid(process, &status, WNOHANG)
    if waited == process {
      self.status = status
      Interruption.shared.child.store(0, ordering: .sequentiallyConsistent)
    } else if waited < 0, errno != EINTR {
      self.status = 0
      throw CommandError(.passphraseCommandFailed, detail: "how it ended is not known")
    } else if milliseconds > 0 {
      poll(nil, 0, milliseconds)
    }
  }
}
