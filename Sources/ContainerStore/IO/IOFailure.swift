/// The error of a failed system call. It names only the container's own files, never the files that
/// are stored in them.
public struct IOFailure: Error, Sendable, Equatable, CustomStringConvertible {
  public let operation: String
  public let file: String
  public let errno: Int32

  public init(_ operation: String, _ file: String, errno: Int32) {
    self.operation = operation
    self.file = file
    self.errno = errno
  }

  public var description: String { "\(operation) of \(file) failed: \(errorText(errno)) (errno \(errno))" }
}
