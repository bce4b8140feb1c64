import Foundation
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Moments of a delivery, and of the runtime's effects, at which a test kills the process: `OPENDYNAMICS_FAIL_AT=NAME[:N[:shortage]]` in its environment, the N-th time that
/// it comes there. With `shortage`, guarded memory is exhausted at that moment, for once, in place of that. Only in debug builds.
package enum FailPoint: String, CaseIterable, Sendable {
  // Of the sender.
  case stored, offering, streaming, settling, settled
  // Of the receiver.
  case offered, begun, listed, receiving, committing, committed, handling, handled, keeping, kept
  // The runtime has these.
  case created, enrolled, counted, unsealed, prepared, decided, saved, told, givingWay, standingIn, replaced,
    noted
  case wiping, destroyed, leaving

  #if DEBUG
    private static let chosen: (point: FailPoint, count: Int, isShortage: Bool)? = {
      let words = (ProcessInfo.processInfo.environment["OPENDYNAMICS_FAIL_AT"] ?? "").split(separator: ":")
      guard let name = words.first, let point = FailPoint(rawValue: String(name)) else { return nil }
      return (point, words.count > 1 ? Int(words[1]) ?? 1 : 1, words.count > 2 && words[2] == "shortage")
    }()
    private static let counter = Counter()

    package func pass() { try? passOrFail() }

    /// As ``pass()``, where guarded memory may be exhausted.
    func passOrFail() throws(CryptoError) {
      guard let chosen = Self.chosen, chosen.point == self, Self.counter.next() == chosen.count else {
        return
      }
      if chosen.isShortage {
        // A test sees that it came here.
        FileHandle.standardError.write(Data("shortage at \(rawValue)\n".utf8))
        throw .secretMemoryExhausted(byteCount: SecretKey.byteCount)
      }
      kill(getpid(), SIGKILL)
    }
  #else
    @inline(__always) package func pass() {}
    @inline(__always) func passOrFail() throws(CryptoError) {}
  #endif
}

#if DEBUG
  import Synchronization

  private final class Counter: Sendable {
    private let count = Atomic<Int>(0)
    func next() -> Int { count.add(1, ordering: .relaxed).newValue }
  }
#endif
