import EncryptedFile
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The session of an opening, and the counters of its write numbers.
final class WriteSession: Sendable {
  let id: Identifier
  private let next = Guarded<UInt64>(1)

  init() {
    var writer = ByteWriter()
    writer.append(Random.bytes(32))
    writer.append(Clock.wallNanoseconds())
    writer.append(Clock.monotonicNanoseconds())
    writer.append(Int64(getpid()))
    writer.append(Array(ContainerLock.bootID().utf8))
    id = Identifier(writer.bytes.withUnsafeBytes { KeyedHash.checksum($0) })
  }

  /// Reserves consecutive write numbers and returns the first; they are used up even when the write fails.
  func take(_ count: Int) -> WriteNumber {
    next.withLock { next in
      defer { next += UInt64(count) }
      return WriteNumber(session: id, counter: next)
    }
  }
}
