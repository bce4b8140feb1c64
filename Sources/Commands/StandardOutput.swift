#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Results. Throws `outputClosed` when nobody reads them any more.
enum StandardOutput {
  static func write(_ text: String) throws(CommandError) {
    var text = text
    var failure: CommandError?
    text.withUTF8 { bytes in
      do throws(CommandError) {
        try write(UnsafeRawBufferPointer(bytes))
      } catch {
        failure = error
      }
    }
    if let failure { throw failure }
  }

  static func write(_ bytes: UnsafeRawBufferPointer) throws(CommandError) {
    try writeFully(STDOUT_FILENO, bytes, name: "standard output")
  }
}

/// Errors and progress; when it cannot be written there is nobody left to tell.
enum StandardError {
  static func write(_ text: String) {
    var text = text
    text.withUTF8 { try? writeFully(STDERR_FILENO, UnsafeRawBufferPointer($0), name: "standard error") }
  }

  static var isTerminal: Bool { isatty(STDERR_FILENO) == 1 }
}

/// write(2) until everything is written.
func writeFully(
  _ descriptor: Int32, _ bytes: UnsafeRawBufferPointer, name: String
) throws(CommandError) {
  var done = 0
  while done < bytes.count {
    let count = write(descriptor, bytes.baseAddress! + done, bytes.count - done)
    if count >= 0 {
      done += count
      continue
    }
    switch errno {
    case EINTR: continue
    case EAGAIN:
      // Whoever shares the descriptor made it non-blocking.
      var polled = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
      _ = poll(&polled, 1, -1)
    case EPIPE: throw CommandError(.outputClosed)
    default: throw CommandError.native("write", name, errno)
    }
  }
}
