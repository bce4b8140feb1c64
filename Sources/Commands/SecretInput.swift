import CPosix
import ContainerStore
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Where secrets come from: read(2) straight into guarded memory, never through a String or a buffer that outlives its use.
enum SecretInput {
  static let passphraseByteCountMax = 4096

  /// Exactly 32 bytes.
  static func keyFile(_ path: String) throws -> Secret {
    // One byte more, to notice a longer file; behind a key on a pipe is what somebody else reads.
    var buffer = try SecretBytes(count: Credential.rawKeyByteCount + 1)
    let count = try readFile(path, into: &buffer) { count, _ in count == Credential.rawKeyByteCount }
    guard count == Credential.rawKeyByteCount else {
      let seen = count > Credential.rawKeyByteCount ? "more" : "\(count)"
      throw CommandError(.keyFileSize, path: path, detail: "this one has \(seen)")
    }
    return Secret(.rawKey, try buffer.prefix(count))
  }

  /// The first line without its end. What follows it on a pipe stays there.
  static func passphraseFile(_ path: String) throws -> Secret {
    var buffer = try lineBuffer()
    let count = try readFile(path, into: &buffer) { $1 == UInt8(ascii: "\n") }
    return try passphrase(in: buffer, count: count, path: path)
  }

  static func hasVariable(_ name: String) -> Bool { getenv(name) != nil }

  /// The value of an environment variable, read as the file would be, wiped and removed.
  static func variable(_ name: String) throws -> Secret {
    guard let value = getenv(name) else { throw CommandError(.noPassphrase, detail: name) }
    let memory = UnsafeMutableRawBufferPointer(start: value, count: strlen(value))
    defer {
      wipe(memory)
      unsetenv(name)
    }
    guard !memory.isEmpty else { throw CommandError(.emptyPassphrase, detail: "the variable \(name)") }
    var buffer = try lineBuffer()
    let count = min(memory.count, buffer.count)
    buffer.withUnsafeMutableBytes { $0.copyMemory(from: UnsafeRawBufferPointer(rebasing: memory[..<count])) }
    return try passphrase(in: buffer, count: count, path: nil)
  }

  /// The first line that a command of the shell prints. Throws `passphraseCommandFailed` unless it ends with 0.
  static func passphrase(printedBy command: String) throws -> Secret {
    var buffer = try lineBuffer()
    let count = try ShellCommand(command).firstLine(into: &buffer)
    return try passphrase(in: buffer, count: count, path: nil)
  }

  /// Asks on the terminal, without echo; nil when there is no terminal. With `twice`, both answers must agree.
  static func terminal(_ prompt: String, twice: Bool) throws -> Secret? {
    try withTerminal { terminal in
      let secret = try ask(prompt + ": ", terminal)
      guard twice else { return secret }
      guard secret.isSame(as: try ask(prompt + ", again: ", terminal)) else {
        throw CommandError(.passphrasesDiffer)
      }
      return secret
    }
  }

  /// Nil when there is none.
  private static func withTerminal<R: ~Copyable>(_ body: (Int32) throws -> R) rethrows -> R? {
    let terminal = cposix_open("/dev/tty", O_RDWR | O_NOCTTY, 0)
    guard terminal >= 0 else { return nil }
    defer { close(terminal) }
    return try body(terminal)
  }

  /// Asks on the terminal for something that is no secret; nil when there is no terminal.
  static func line(_ prompt: String) throws -> String? {
    try withTerminal { terminal in
      write(prompt, to: terminal)
      var buffer = try lineBuffer()
      let count = try line(of: terminal, into: &buffer)
      return buffer.withUnsafeBytes { bytes in
        String(decoding: bytes[..<count].prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
      }
    }
  }

  private static func ask(_ prompt: String, _ terminal: Int32) throws -> Secret {
    _ = cposix_begin_quiet(terminal)
    defer {
      cposix_end_quiet()
      write("\n", to: terminal)
    }
    write(prompt, to: terminal)
    var buffer = try lineBuffer()
    let count = try line(of: terminal, into: &buffer)
    return try passphrase(in: buffer, count: count, path: nil)
  }

  private static func line(of terminal: Int32, into buffer: inout SecretBytes) throws -> Int {
    try read(terminal, "/dev/tty", into: &buffer, byteByByte: true) { $1 == UInt8(ascii: "\n") }
  }

  private static func write(_ text: String, to terminal: Int32) {
    var text = text
    text.withUTF8 { try? writeFully(terminal, UnsafeRawBufferPointer($0), name: "/dev/tty") }
  }

  /// Room for the longest line and what ends it.
  private static func lineBuffer() throws -> SecretBytes {
    try SecretBytes(count: passphraseByteCountMax + 2)
  }

  private static func passphrase(in buffer: borrowing SecretBytes, count: Int, path: String?) throws -> Secret
  {
    let (lineCount, isWhole) = buffer.withUnsafeBytes { bytes in
      let line = bytes[0..<count].prefix { $0 != UInt8(ascii: "\n") }
      let ending = line.last == UInt8(ascii: "\r") ? 1 : 0
      return (line.count - ending, line.count < bytes.count)
    }
    guard isWhole, lineCount <= passphraseByteCountMax else {
      throw CommandError(.passphraseTooLong, path: path)
    }
    guard lineCount > 0 else { throw CommandError(.emptyPassphrase, path: path) }
    return Secret(.passphrase, try buffer.prefix(lineCount))
  }

  /// Of a pipe, a terminal or standard input, reads no byte behind what is enough: the data may follow.
  private static func readFile(
    _ path: String, into buffer: inout SecretBytes, until isEnough: (_ count: Int, _ last: UInt8) -> Bool
  ) throws -> Int {
    let passed = try passedDescriptor(path)
    let descriptor = passed ?? cposix_open(path, O_RDONLY, 0)
    guard descriptor >= 0 else { throw CommandError.native("open", path, -descriptor) }
    defer { if passed == nil { close(descriptor) } }
    let isShared = passed != nil || lseek(descriptor, 0, SEEK_CUR) < 0
    return try read(descriptor, path, into: &buffer, byteByByte: isShared, until: isEnough)
  }

  /// The descriptor that a path names, which whoever starts this program has passed; nil for another path. Opened by that name, a file would
  /// begin anew, and a socket is not opened at all.
  private static func passedDescriptor(_ path: String) throws -> Int32? {
    if path == "/dev/stdin" { return STDIN_FILENO }
    let folders = ["/dev/fd/", "/proc/self/fd/"]
    guard let folder = folders.first(where: path.hasPrefix), let number = Int32(path.dropFirst(folder.count))
    else { return nil }
    let flags = fcntl(number, F_GETFD)
    // This program's own descriptors are closed by exec, so what is not was passed.
    guard number >= 0, flags >= 0, flags & FD_CLOEXEC == 0 else {
      throw CommandError.native("open", path, EBADF)
    }
    return number
  }

  /// Until the end, the buffer is full, or, byte by byte, it is enough.
  private static func read(
    _ descriptor: Int32, _ path: String, into buffer: inout SecretBytes, byteByByte: Bool,
    until isEnough: (_ count: Int, _ last: UInt8) -> Bool
  ) throws -> Int {
    try buffer.withUnsafeMutableBytes { memory in
      var done = 0
      while done < memory.count {
        let end = byteByByte ? done + 1 : memory.count
        let count = try readSome(
          descriptor, into: UnsafeMutableRawBufferPointer(rebasing: memory[done..<end]), name: path)
        if count == 0 { break }
        done += count
        if byteByByte, isEnough(done, memory[done - 1]) { break }
      }
      return done
    }
  }
}
