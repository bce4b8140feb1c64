#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The reason why a broker does not start. Errors of its socket are thrown unchanged.
public enum ServiceBrokerError: Error, Equatable, Sendable, CustomStringConvertible {
  /// A key of the state directory is missing or cannot be read; `path` is its file.
  case stateDamaged(path: String)
  /// The state directory holds something that is not a broker's, which is at `path`.
  case noState(path: String)
  /// Another broker works with the state directory at `path`: its process, as far as it could say.
  case stateInUse(path: String, process: Int32?)
  /// A system call failed on a file or a directory of the broker: its name, the path and the error number.
  case callFailed(operation: String, path: String, errno: Int32)

  /// What failed, with the path.
  public var what: String {
    switch self {
    case .noState(let path): "the state directory holds something that is not a broker's: \(path)"
    case .stateDamaged(let path): "a file of the broker's state is missing or damaged: \(path)"
    case .stateInUse(let path, let process):
      "another broker\(process.map { " (process \($0))" } ?? "") works with the state directory \(path)"
    case .callFailed(let operation, let path, let errno):
      "\(operation) of \(path) failed: \(String(cString: strerror(errno))) (errno \(errno))"
    }
  }

  /// What to do.
  public var remedy: String {
    switch self {
    case .noState: "name a directory of the broker's own, with --state or OPENDYNAMICS_BROKER_STATE"
    case .stateDamaged:
      "restore it from a backup; with a new key every app would have to decide anew whom it trusts"
    case .stateInUse:
      "use the broker that is there, or name another directory; if nobody answers at its socket, that was removed: "
        + "end the process, and start a broker again"
    case .callFailed: "check the path and its permissions"
    }
  }

  /// What failed and what to do.
  public var description: String { what + "; " + remedy }
}
