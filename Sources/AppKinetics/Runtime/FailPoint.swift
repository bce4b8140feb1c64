import Foundation

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Moments of a delivery at which a test kills the process: `OPENDYNAMICS_FAIL_AT=NAME[:N]` in its environment, the N-th time that it comes there. Only in
/// debug builds.
enum FailPoint: String, CaseIterable {
  // Of the sender.
  case stored, offering, streaming, settling, settled
  // Of the receiver.
  case offered, begun, listed, receiving, committing, committed, handling, handled, keeping, kept

  #if DEBUG
    private static let chosen: (point: FailPoint, count: Int)? = {
      let words = (ProcessInfo.processInfo.environment["OPENDYNAMICS_FAIL_AT"] ?? "").split(separator: ":")
      guard let name = words.first, let point = FailPoint(rawValue: String(name)) else { return nil }
      return (point, words.count > 1 ? Int(words[1]) ?? 1 : 1)
    }()
    private static let counter = Counter()

    func pass() {
      guard let chosen = Self.chosen, chosen.point == self, Self.counter.next() == chosen.count else {
        return
      }
      kill(getpid(), SIGKILL)
    }
  #else
    @inline(__always) func pass() {}
  #endif
}

#if DEBUG
  import Synchronization

  private final class Counter: Sendable {
    private let count = Atomic<Int>(0)
    func next() -> Int { count.add(1, ordering: .relaxed).newValue }
  }
#endif
