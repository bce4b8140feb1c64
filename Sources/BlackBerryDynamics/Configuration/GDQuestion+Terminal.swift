import CPosix
import Locks
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

extension GDQuestion {
  /// Asks on the terminal of the process, without echo. Without a terminal nobody answers.
  public static let askOnTerminal: Answering = { question in
    // A continuation takes no noncopyable value.
    let answer = Guarded(Answer.none)
    await withCheckedContinuation { continuation in
      // Reading blocks, and the threads of the cooperative pool must not.
      Thread.detachNewThread {
        answer.withLock { $0 = question.askOnTerminalAndWait() }
        continuation.resume()
      }
    }
    var taken = Answer.none
    answer.withLock { swap(&taken, &$0) }
    return taken
  }

  private func askOnTerminalAndWait() -> Answer {
    guard let terminal = Terminal() else { return .none }
    for text in [message, failure ?? ""] where !text.isEmpty { terminal.write(text + "\n") }
    switch kind {
    case .firstPassword:
      while true {
        guard let first = terminal.secret("New password: "), let second = terminal.secret("Once more: ")
        else { return .none }
        if first.isEqual(to: second) { return .secret(first) }
        terminal.write("These are two passwords.\n")
      }
    case .password:
      guard let secret = terminal.secret("Password: ") else { return .none }
      return .secret(secret)
    case .unlockCode:
      guard let secret = terminal.secret("Unlock code: ") else { return .none }
      return .secret(secret)
    case .passwordChange:
      guard let old = terminal.secret("Old password: "), let new = terminal.secret("New password: ")
      else { return .none }
      return .change(old: old, new: new)
    }
  }
}

extension SecretBytes {
  /// Not in constant time: both texts are the same person's.
  fileprivate borrowing func isEqual(to other: borrowing SecretBytes) -> Bool {
    withUnsafeBytes { a in other.withUnsafeBytes { b in a.elementsEqual(b) } }
  }
}

/// The controlling terminal, while it is open.
private struct Terminal: ~Copyable {
  private static let lineByteCountMax = 4096
  private let descriptor: Int32

  /// Nil without a terminal.
  init?() {
    descriptor = cposix_open("/dev/tty", O_RDWR | O_NOCTTY, 0)
    if descriptor < 0 { return nil }
  }

  deinit { close(descriptor) }

  borrowing func write(_ text: String) {
    var text = text
    text.withUTF8 { bytes in _ = unsafeWrite(bytes) }
  }

  private borrowing func unsafeWrite(_ bytes: UnsafeBufferPointer<UInt8>) -> Int {
    #if canImport(Glibc)
      Glibc.write(descriptor, bytes.baseAddress, bytes.count)
    #elseif canImport(Musl)
      Musl.write(descriptor, bytes.baseAddress, bytes.count)
    #else
      Darwin.write(descriptor, bytes.baseAddress, bytes.count)
    #endif
  }

  /// One line, read into guarded memory; nil for an empty one, at the end of input, and for one
  /// that is too long.
  borrowing func secret(_ prompt: String) -> SecretBytes? {
    write(prompt)
    _ = cposix_begin_quiet(descriptor)
    defer {
      cposix_end_quiet()
      write("\n")
    }
    guard var line = try? SecretBytes(count: Self.lineByteCountMax) else { return nil }
    let descriptor = descriptor
    let count = line.withUnsafeMutableBytes { bytes -> Int in
      var count = 0
      while count < bytes.count {
        let step = read(descriptor, bytes.baseAddress! + count, 1)
        if step < 0, errno == EINTR { continue }
        guard step == 1 else { return 0 }
        if bytes[count] == UInt8(ascii: "\n") { return count }
        count += 1
      }
      return 0
    }
    guard count > 0 else { return nil }
    return line.withUnsafeBytes { try? SecretBytes(copying: UnsafeRawBufferPointer(rebasing: $0[..<count])) }
  }
}
