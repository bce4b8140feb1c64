#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Why a socket, or a descriptor, cannot be used as asked.
public enum SocketError: Error, Equatable, Sendable {
  /// A system call failed in a way that this module gives no meaning; `path` is the one it was given, if any.
  case callFailed(operation: String, path: String?, errno: Int32)
  /// Somebody answers at the path, or is about to: a listener lives there.
  case addressInUse(path: String)
  /// Nothing is at the path, or the listener that made the socket there has ended.
  case nobodyAnswers(path: String)
  /// The path has more bytes than a socket's address takes.
  case pathTooLong(path: String, byteCountMax: Int)
  /// A file of another kind is at the path (nil: is behind the descriptor).
  case notASocket(path: String?)
  /// The directory of a socket does not keep other users out.
  case unsafeDirectory(path: String, fault: SocketDirectory.Fault)
  /// The other side, or `shutdown` on this one, has ended the stream.
  case closed
  /// The deadline passed before the operation was complete.
  case timedOut(operation: String)
  /// Descriptors of a message were lost on the way, because this process had no room for them. Those that came are closed.
  case messageTruncated
  /// A message had more descriptors than may be; all that came are closed. `atLeast` is how many were seen.
  case tooManyDescriptors(atLeast: Int, countMax: Int)
}

extension SocketError {
  /// What failed.
  public var what: String {
    switch self {
    case .callFailed(let operation, let path, let errno):
      "\(operation)\(path.map { " of \($0)" } ?? "") failed: \(String(cString: strerror(errno))) (errno \(errno))"
    case .addressInUse(let path): "another process listens at \(path)"
    case .nobodyAnswers(let path): "nobody answers at \(path)"
    case .pathTooLong(let path, let byteCountMax):
      "a socket's path has at most \(byteCountMax) bytes, this one has \(path.utf8.count): \(path)"
    case .notASocket(let path): "\(path ?? "what the descriptor names") is not a Unix stream socket"
    case .unsafeDirectory(let path, let fault): "the directory \(path) \(fault.what)"
    case .closed: "the connection has ended"
    case .timedOut(let operation): "the deadline passed during \(operation)"
    case .messageTruncated: "descriptors that came with a message were lost"
    case .tooManyDescriptors(let atLeast, let countMax):
      "a message has at least \(atLeast) descriptor\(atLeast == 1 ? "" : "s"), but may have \(countMax)"
    }
  }

  /// What to do.
  public var remedy: String {
    switch self {
    case .callFailed(_, _, EMFILE), .callFailed(_, _, ENFILE):
      "close what is not needed, or raise the limit of open files (ulimit -n)"
    case .callFailed(_, _, EACCES), .callFailed(_, _, EPERM): "check owner and permissions"
    case .callFailed: "see the system's error"
    case .addressInUse: "use the process that is there, end it, or choose another path"
    case .nobodyAnswers: "start the process that listens there, or check the path"
    case .pathTooLong: "choose a shorter directory"
    case .notASocket(let path):
      path == nil ? "check what the other side sent" : "choose another path, or remove what is there"
    case .unsafeDirectory(_, let fault): fault.remedy
    case .closed: "connect again, if the other side still runs"
    case .timedOut: "close the connection, for it may stand within a message; then try again with more time"
    case .messageTruncated: "close the connection, and raise the limit of open files (ulimit -n)"
    case .tooManyDescriptors: "close the connection: the other side breaks the protocol"
    }
  }
}

extension SocketError: CustomStringConvertible {
  public var description: String { what + "; " + remedy }
}

/// Errors of a connection that mean no more than that it has ended.
private let endOfConnection: Set<Int32> = [EPIPE, ECONNRESET, ENOTCONN, ESHUTDOWN]

/// The value of a call that returns `-errno` when it fails.
@discardableResult
func check<Value: SignedInteger>(
  _ value: Value, _ operation: String, path: String? = nil
) throws(SocketError) -> Value {
  guard value < 0 else { return value }
  let code = Int32(-value)
  if endOfConnection.contains(code), path == nil { throw .closed }
  throw .callFailed(operation: operation, path: path, errno: code)
}
