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
    // One byte more, to notice a longer file.
    var buffer = try SecretBytes(count: Credential.rawKeyByteCount + 1)
    let count = try readFile(path, into: &buffer) { _ in false }
    guard count == Credential.rawKeyByteCount else {
      let seen = count > Credential.rawKeyByteCount ? "more" : "\(count)"
      throw CommandError(.keyFileSize, path: path, detail: "this one has \(seen)")
    }
    return Secret(.rawKey, try buffer.prefix(count))
  }

  /// The first line without its end.
  static func passphraseFile(_ path: String) throws -> Secret {
    var buffer = try lineBuffer()
    let count = try readFile(path, into: &buffer) { $0.contains(UInt8(ascii: "\n")) }
    return try passphrase(in: buffer, count: count, path: path)
  }

  /// The value of an environment variable, which is wiped and removed; nil when there is none.
  static func environment(_ name: String) throws -> Secret? {
    guard let value = getenv(name) else { return nil }
    let memory = UnsafeMutableRawBufferPointer(start: value, count: strlen(value))
    defer {
      wipe(memory)
      unsetenv(name)
    }
    guard !memory.isEmpty else { throw CommandError(.emptyPassphrase, detail: "the variable \(name)") }
    return Secret(.passphrase, try SecretBytes(copying: UnsafeRawBufferPointer(memory)))
  }

  /// Asks on the terminal, without echo; nil when there is no terminal. With `twice`, both answers must agree.
  static func terminal(_ prompt: String, twice: Bool) throws -> Secret? {
    let descriptor = cposix_open("/dev/tty", O_RDWR | O_NOCTTY, 0)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    let secret = try ask(prompt + ": ", descriptor)
    guard twice else { return secret }
    guard secret.isSame(as: try ask(prompt + ", again: ", descriptor)) else {
      throw CommandError(.passphrasesDiffer)
    }
    return secret
  }

  private static func ask(_ prompt: String, _ terminal: Int32) throws -> Secret {
    let hadEcho = cposix_set_echo(terminal, 0)
    defer {
      if hadEcho == 1 { _ = cposix_set_echo(terminal, 1) }
      write("\n", to: terminal)
    }
    write(prompt, to: terminal)
    var buffer = try lineBuffer()
    let count = try read(terminal, "/dev/tty", into: &buffer) { $0.contains(UInt8(ascii: "\n")) }
    return try passphrase(in: buffer, count: count, path: nil)
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

  private static func readFile(
    _ path: String, into buffer: inout SecretBytes, until isEnough: (UnsafeRawBufferPointer) -> Bool
  ) throws -> Int {
    let descriptor = cposix_open(path, O_RDONLY, 0)
    guard descriptor >= 0 else { throw CommandError.native("open", path, -descriptor) }
    defer { close(descriptor) }
    return try read(descriptor, path, into: &buffer, until: isEnough)
  }

  /// Until the end, the buffer is full, or `isEnough` of what came last.
  private static func read(
    _ descriptor: Int32, _ path: String, into buffer: inout SecretBytes,
    until isEnough: (UnsafeRawBufferPointer) -> Bool
  ) throws -> Int {
    try buffer.withUnsafeMutableBytes { memory in
      var done = 0
      while done < memory.count {
        let count = try readSome(
          descriptor, into: UnsafeMutableRawBufferPointer(rebasing: memory[done...]), name: path)
        if count == 0 { break }
        done += count
        if isEnough(UnsafeRawBufferPointer(rebasing: memory[(done - count)..<done])) { break }
      }
      return done
    }
  }
}
