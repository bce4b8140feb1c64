import EncryptedFile
import Locks
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The source of a writer's write numbers (FILE-FORMAT.md, "Sessions and counters").
///
/// A virtual machine that was resumed or cloned from a snapshot continues with the snapshot's
/// session and counter. A new session is drawn when the wall clock is set after that.
final class WriteSession: Sendable {
  /// Nanoseconds of the wall clock, and of a clock that is never set.
  typealias Clocks = @Sendable () -> (wall: Int64, boot: Int64)

  static let machineClocks: Clocks = { (Clock.wallNanoseconds(), Clock.bootNanoseconds()) }

  private struct State {
    var id: Identifier
    var next: UInt64 = 1
    /// Nanoseconds by which the wall clock was ahead of the other clock when the session was drawn.
    var lead: Int64
  }

  private static let leadChangeMax: UInt64 = 1_000_000_000
  private let clocks: Clocks
  private let state: Guarded<State>

  init(clocks: @escaping Clocks = machineClocks) {
    self.clocks = clocks
    state = Guarded(State(id: Self.draw(), lead: Self.lead(clocks)))
  }

  /// The session of the numbers that were taken last.
  var id: Identifier { state.withLock { $0.id } }

  /// Reserves consecutive write numbers of one session and returns the first; they are used up even
  /// when the write fails.
  func take(_ count: Int) -> WriteNumber {
    state.withLock { state in
      let lead = Self.lead(clocks)
      if (lead &- state.lead).magnitude > Self.leadChangeMax {
        state = State(id: Self.draw(), lead: lead)
      }
      defer { state.next += UInt64(count) }
      return WriteNumber(session: state.id, counter: state.next)
    }
  }

  private static func lead(_ clocks: Clocks) -> Int64 {
    let (wall, boot) = clocks()
    return wall &- boot
  }

  private static func draw() -> Identifier {
    var writer = ByteWriter()
    writer.append(Random.bytes(32))
    writer.append(Clock.wallNanoseconds())
    writer.append(Clock.monotonicNanoseconds())
    writer.append(Int64(getpid()))
    writer.append(Array(ContainerLock.bootID().utf8))
    return Identifier(writer.bytes.withUnsafeBytes { KeyedHash.checksum($0) })
  }
}
