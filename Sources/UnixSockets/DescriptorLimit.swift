import CPosix

/// How many descriptors this process may have open (`RLIMIT_NOFILE`).
public struct DescriptorLimit: Equatable, Sendable {
  /// The limit in force; a descriptor's number is below it. `UInt64.max` means none.
  public let soft: UInt64
  /// How far the process may raise the soft limit by itself. `UInt64.max` means without end.
  public let hard: UInt64

  /// Throws ``SocketError/callFailed(operation:path:errno:)``.
  public static func current() throws(SocketError) -> DescriptorLimit {
    var (soft, hard): (UInt64, UInt64) = (0, 0)
    try check(cposix_descriptor_limit(&soft, &hard), "getrlimit")
    return DescriptorLimit(soft: soft, hard: hard)
  }

  /// Raises the soft limit to the hard one, for the whole process and those it starts, and returns what holds then. Not for
  /// processes that call select(2), which knows no number above 1023.
  ///
  /// Throws ``SocketError/callFailed(operation:path:errno:)``.
  @discardableResult
  public static func raiseSoftToHard() throws(SocketError) -> DescriptorLimit {
    let limit = try current()
    if limit.soft < limit.hard { try check(cposix_set_soft_descriptor_limit(limit.hard), "setrlimit") }
    return try current()
  }
}
