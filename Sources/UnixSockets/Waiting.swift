#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// What a descriptor is waited for.
enum Readiness {
  case reading, writing

  var events: Int16 { Int16(self == .reading ? POLLIN : POLLOUT) }
}

/// Whole units until the deadline, rounded up; 0 when it has passed.
func remaining(until deadline: ContinuousClock.Instant, unit: Duration) -> Int64 {
  let left = deadline - .now
  guard left > .zero else { return 0 }
  return Int64(min((left / unit).rounded(.up), 1e15))
}

/// The timeout of poll(2) until the deadline, in milliseconds; -1, which waits without limit, when there is none.
func pollTimeout(until deadline: ContinuousClock.Instant?) -> Int32 {
  deadline.map { Int32(min(remaining(until: $0, unit: .milliseconds(1)), Int64(Int32.max))) } ?? -1
}

/// Waits until the descriptor is ready, has ended or has failed: the call that follows finds out which.
///
/// Throws `timedOut` when the deadline, if there is one, has passed.
func wait(
  for readiness: Readiness, of descriptor: Int32, until deadline: ContinuousClock.Instant?,
  _ operation: String
) throws(SocketError) {
  while true {
    let milliseconds = pollTimeout(until: deadline)
    var entry = pollfd(fd: descriptor, events: readiness.events, revents: 0)
    let count = poll(&entry, 1, milliseconds)
    if count > 0 { return }
    if count < 0 {
      if errno == EINTR { continue }
      throw .callFailed(operation: "poll", path: nil, errno: errno)
    }
    if milliseconds == 0 { throw .timedOut(operation: operation) }
  }
}
