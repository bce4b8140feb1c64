import CPosix
import Synchronization

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A socket that listens at a path, which is removed at its end.
///
/// Whoever starts holds an advisory lock on `<path>.lock` for as long as the listener lives, so that of two starters one wins, and
/// a socket is removed only by whoever holds the lock and found that nobody answers. The lock's file stays: removing it would
/// let two processes hold a lock on two files of that name.
///
/// A service manager may have made the socket: then it stays when this one ends, and goes on listening for the next.
///
/// A starter that finds a path in use tries again for 255 ms before it throws `addressInUse`.
public struct UnixListener: ~Copyable, Sendable {
  /// How many connections may wait to be accepted (chosen by us; Linux cuts it at `net.core.somaxconn`).
  public static let backlogDefault: Int32 = 1024
  /// Appended to the path.
  public static let lockSuffix = ".lock"

  public let path: String
  private let descriptor: Descriptor
  private let lock: PathLock
  /// Of the socket in the file system; nil for one that somebody else has made.
  private let identity: FileIdentity?
  private let isShutDown = Atomic(false)
  private let wakeup: Wakeup

  /// Listens at a path, with access for this user only (mode 0600). A socket that is there already is dialled, and removed when nobody answers.
  ///
  /// Throws ``SocketError/addressInUse(path:)`` when somebody answers or another starter was first, ``SocketError/notASocket(path:)`` when
  /// a file of another kind is there, which stays, ``SocketError/unsafeDirectory(path:fault:)``,
  /// ``SocketError/pathTooLong(path:byteCountMax:)``, or ``SocketError/callFailed(operation:path:errno:)``.
  public init(
    path: String, directory requirement: SocketDirectory.Requirement = .notWritableForOthers,
    backlog: Int32 = UnixListener.backlogDefault
  ) throws(SocketError) {
    try SocketPath.check(path)
    try SocketDirectory.check(SocketDirectory.directory(of: path), requirement)
    let lock = try Self.lock(path)
    let wakeup = try Wakeup()
    try Self.removeStaleSocket(at: path)
    let descriptor = Descriptor(made: try check(cposix_unix_socket(), "socket"))
    let identity = try Self.listen(descriptor, at: path, backlog: backlog)
    self.path = path
    self.identity = identity
    self.descriptor = descriptor
    self.lock = lock
    self.wakeup = wakeup
  }

  /// Accepts at a socket that listens already, as a service manager hands it over, and takes the descriptor over. From then on `backlog`
  /// connections may wait.
  ///
  /// Throws ``SocketError/notASocket(path:)`` when it is something else or listens at no path, ``SocketError/addressInUse(path:)`` when
  /// another process accepts there, ``SocketError/unsafeDirectory(path:fault:)``, or ``SocketError/callFailed(operation:path:errno:)``.
  public init(
    adopting number: Int32, directory requirement: SocketDirectory.Requirement = .notWritableForOthers,
    backlog: Int32 = UnixListener.backlogDefault
  ) throws(SocketError) {
    let descriptor = try Descriptor(adopting: number)
    guard let path = try Self.path(ofListening: number) else { throw .notASocket(path: nil) }
    try SocketDirectory.check(SocketDirectory.directory(of: path), requirement)
    let lock = try Self.lock(path)
    let wakeup = try Wakeup()
    try check(cposix_set_blocking(number, 0), "fcntl")
    try check(systemListen(number, backlog) == 0 ? 0 : -errno, "listen", path: path)
    self.path = path
    self.identity = nil
    self.descriptor = descriptor
    self.lock = lock
    self.wakeup = wakeup
  }

  /// The path at which a descriptor's socket listens; nil when it is something else, or listens at no path.
  ///
  /// Throws ``SocketError/callFailed(operation:path:errno:)`` when the number is no open descriptor.
  public static func path(ofListening number: Int32) throws(SocketError) -> String? {
    var bytes = [CChar](repeating: 0, count: SocketPath.byteCountMax + 1)
    let status = cposix_listening_path(number, &bytes, bytes.count)
    guard try check(status, "getsockname") == 1 else { return nil }
    return String(decoding: bytes.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
  }

  deinit {
    // Before the lock goes, and only if nobody has put something else there.
    if let identity, (try? FileIdentity(path)) == identity { unlink(path) }
  }

  /// Ends listening: waiting connections are refused, and the path is removed, unless somebody else has made the socket.
  public consuming func close() {}

  /// The number of the descriptor, which is in nonblocking mode, for an event loop that waits for connections.
  public var descriptorNumber: Int32 { descriptor.number }

  private static func lock(_ path: String) throws(SocketError) -> PathLock {
    let path = path + lockSuffix
    let file = Descriptor(
      made: try check(cposix_open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0o600), "open", path: path))
    var patience = Patience()
    while true {
      let status = cposix_lock(file.number, 1, 0, 0)
      guard status == -EAGAIN else {
        try check(status, "lock", path: path)
        return PathLock(file: file)
      }
      guard patience.wait() else { throw .addressInUse(path: String(path.dropLast(lockSuffix.count))) }
    }
  }

  private static func listen(
    _ descriptor: borrowing Descriptor, at path: String, backlog: Int32
  ) throws(SocketError) -> FileIdentity {
    try check(cposix_set_blocking(descriptor.number, 0), "fcntl")
    let status = cposix_unix_bind(descriptor.number, path)
    if status == -EADDRINUSE { throw .addressInUse(path: path) }
    try check(status, "bind", path: path)
    do throws(SocketError) {
      // Nobody can connect before listen(2), so nobody meets the mode that the process's umask gave.
      try check(chmod(path, 0o600) == 0 ? 0 : -errno, "chmod", path: path)
      let identity = try FileIdentity(path)
      let number = descriptor.number
      try check(systemListen(number, backlog) == 0 ? 0 : -errno, "listen", path: path)
      return identity
    } catch {
      unlink(path)
      throw error
    }
  }

  private static func removeStaleSocket(at path: String) throws(SocketError) {
    switch SocketPath.kind(of: path) {
    case .nothing: return
    case .other: throw .notASocket(path: path)
    case .unknown(let errno): throw .callFailed(operation: "lstat", path: path, errno: errno)
    case .socket: break
    }
    do throws(SocketError) {
      var patience = Patience()
      repeat { _ = try UnixConnection.dial(path: path, deadline: .now) } while patience.wait()
      throw .addressInUse(path: path)
    } catch .nobodyAnswers {
      guard unlink(path) == 0 || errno == ENOENT else {
        throw .callFailed(operation: "unlink", path: path, errno: errno)
      }
    } catch .timedOut, .notASocket {
      throw .addressInUse(path: path)  // its queue is full, or it is a socket of another kind with an owner
    }
  }
}

extension UnixListener {
  /// The first connection that waits, or nil.
  ///
  /// Throws ``SocketError/closed`` after ``shutdown()``, or ``SocketError/callFailed(operation:path:errno:)``: when that is because too many
  /// files are open, the connection goes on waiting, and the listener stays ready for reading.
  public func acceptIfWaiting() throws(SocketError) -> UnixConnection? {
    while true {
      if isShutDown.load(ordering: .acquiring) { throw .closed }
      let number = cposix_accept(descriptor.number)
      switch -number {
      case EINTR, ECONNABORTED: continue
      case EAGAIN: return nil
      case EINVAL: throw .closed
      default: return UnixConnection(made: try check(number, "accept"))
      }
    }
  }

  /// The next connection; waits until the deadline, or without limit when it is nil.
  ///
  /// Throws as ``acceptIfWaiting()``, and ``SocketError/timedOut(operation:)``.
  public func accept(deadline: ContinuousClock.Instant?) throws(SocketError) -> UnixConnection {
    while true {
      if let connection = try acceptIfWaiting() { return connection }
      let bits = cposix_wait(
        descriptor.number, 0, wakeup.descriptorNumber, pollTimeout(until: deadline))
      guard try check(bits, "poll") != 0 else { throw .timedOut(operation: "accept") }
    }
  }

  /// Ends accepting, from any thread: calls that wait throw ``SocketError/closed``.
  public func shutdown() {
    isShutDown.store(true, ordering: .releasing)
    wakeup.wake()
  }
}

/// A lock that is held, on a file's whole range.
private struct PathLock: ~Copyable {
  private let file: Descriptor

  init(file: consuming Descriptor) { self.file = file }

  /// Not by closing alone: a child that was forked a moment ago and has not called exec yet has the file open, too.
  deinit { _ = cposix_unlock(file.number, 0, 0) }
}

/// listen(2), whose name the type's own function hides.
private func systemListen(_ descriptor: Int32, _ backlog: Int32) -> Int32 { listen(descriptor, backlog) }

/// Which file is at a path.
private struct FileIdentity: Equatable {
  private let device: dev_t
  private let inode: ino_t

  init(_ path: String) throws(SocketError) {
    var status = stat()
    guard lstat(path, &status) == 0 else {
      throw .callFailed(operation: "lstat", path: path, errno: errno)
    }
    (device, inode) = (status.st_dev, status.st_ino)
  }
}
