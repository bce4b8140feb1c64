import CPosix
import ContainerStore
import Locks
import Synchronization

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Turns SIGINT, SIGTERM and SIGHUP into a cancellation, so that a command can leave nothing half done; a second one ends the
/// process at once.
///
/// A thread waits for the signals, which are blocked everywhere else: nothing runs in a signal handler.
final class Interruption: Sendable {
  /// Signals belong to the process, so there is one.
  static let shared = Interruption()

  let cancellation = Cancellation()
  /// Becomes readable with the first signal: whoever waits for input polls it too.
  let wakeDescriptor: Int32
  private let wakeInput: Int32
  private let firstSignal = Atomic<Int32>(0)
  /// A process that ends with this one; 0: none.
  let child = Atomic<pid_t>(0)
  private let endsAtOnce = Atomic<Bool>(false)
  private let signals = Guarded<[Int32]>([])

  private init() {
    var ends: [Int32] = [-1, -1]
    // Without a pipe (no descriptors left) input is waited for all the same, only not interruptibly.
    if pipe(&ends) == 0 { for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) } }
    (wakeDescriptor, wakeInput) = (ends[0], ends[1])
  }

  /// The signal that came; SIGINT before any has.
  var signal: Int32 {
    let signal = firstSignal.load(ordering: .relaxed)
    return signal == 0 ? SIGINT : signal
  }

  /// From here on there is nothing to undo: the next signal ends the process. For commands that only read and print, which
  /// may hang in a write to a pipe.
  func endAtOnce() {
    endsAtOnce.store(true, ordering: .relaxed)
    if firstSignal.load(ordering: .relaxed) != 0 { exit(128 + signal) }
  }

  /// Call before any other thread exists: threads inherit the mask.
  func begin() {
    // A closed pipe is an error of write(2), so that a command can still remove what it has not finished.
    _ = Self.setDisposition(of: SIGPIPE, to: SIG_IGN)
    // So is a file that would become longer than the system allows (ulimit -f).
    _ = Self.setDisposition(of: SIGXFSZ, to: SIG_IGN)
    var signals = [SIGINT, SIGTERM]
    // Whoever starts us with nohup means it. SIGINT is taken even when a shell's `&` has it ignored: sent to such a process
    // it is meant for it.
    let hangUp = Self.setDisposition(of: SIGHUP, to: SIG_DFL)
    if Self.isIgnore(hangUp) {
      _ = Self.setDisposition(of: SIGHUP, to: SIG_IGN)
    } else {
      signals.append(SIGHUP)
    }
    self.signals.withLock { $0 = signals }
    var set = signalSet()
    pthread_sigmask(SIG_BLOCK, &set, nil)
    #if canImport(Darwin)
      var thread: pthread_t?
    #else
      var thread = pthread_t()
    #endif
    let started = pthread_create(
      &thread, nil,
      { _ in
        Interruption.shared.wait()
        return nil
      }, nil)
    guard started == 0 else {
      // Signals then do what they do by default; the container survives that.
      pthread_sigmask(SIG_UNBLOCK, &set, nil)
      return
    }
  }

  /// Not all signals that are blocked: whoever starts us may have blocked others, such as SIGCHLD.
  private func signalSet() -> sigset_t {
    var set = sigset_t()
    sigemptyset(&set)
    signals.withLock { for signal in $0 { sigaddset(&set, signal) } }
    return set
  }

  private func wait() {
    var set = signalSet()
    while true {
      var number: Int32 = 0
      guard sigwait(&set, &number) == 0 else { continue }
      let (isFirst, _) = firstSignal.compareExchange(expected: 0, desired: number, ordering: .relaxed)
      if !isFirst || endsAtOnce.load(ordering: .relaxed) {
        cposix_restore_echo()
        let child = child.load(ordering: .sequentiallyConsistent)
        if child > 0 { kill(child, SIGTERM) }
        _exit(128 + number)
      }
      cancellation.cancel()
      var byte: UInt8 = 1
      _ = write(wakeInput, &byte, 1)
    }
  }

  private typealias Disposition = (@convention(c) (Int32) -> Void)?

  private static func setDisposition(of number: Int32, to disposition: Disposition) -> Disposition {
    #if canImport(Glibc)
      Glibc.signal(number, disposition)
    #elseif canImport(Musl)
      Musl.signal(number, disposition)
    #elseif canImport(Darwin)
      Darwin.signal(number, disposition)
    #endif
  }

  private static func isIgnore(_ disposition: Disposition) -> Bool {
    unsafeBitCast(disposition, to: Int.self) == unsafeBitCast(SIG_IGN as Disposition, to: Int.self)
  }
}

/// Waits until the descriptor can be read, for so many milliseconds at most where that is not negative: then returns false. Throws
/// `cancelled` when a signal comes first.
@discardableResult
func waitForInput(_ descriptor: Int32, atMost milliseconds: Int32 = -1) throws -> Bool {
  let interruption = Interruption.shared
  while true {
    if interruption.cancellation.isCancelled { throw ContainerError(.cancelled) }
    var polled = [
      pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0),
      pollfd(fd: interruption.wakeDescriptor, events: Int16(POLLIN), revents: 0),
    ]
    // Where poll cannot wait for this kind of descriptor, read(2) will.
    let count = poll(&polled, 2, milliseconds)
    if count == 0 { return false }
    guard count > 0 || errno == EINTR else { return true }
    if polled[0].revents != 0, !interruption.cancellation.isCancelled { return true }
  }
}
