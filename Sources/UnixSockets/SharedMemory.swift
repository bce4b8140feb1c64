import CPosix

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Memory of a fixed length that this process writes and another one reads (Linux: a sealed
/// `memfd`).
///
/// The reader is given a descriptor through which nobody can write, and makes no mapping: nothing
/// that either side does to the memory can end the other's process. The system keeps the memory
/// until this value and every descriptor are gone.
public final class SharedMemory: Sendable {
  /// Whether the system has such memory.
  #if os(Linux)
    public static let isAvailable = true
  #else
    public static let isAvailable = false
  #endif

  /// All of it; zero at first. Invariant: one thread at a time writes.
  public nonisolated(unsafe) let bytes: UnsafeMutableRawBufferPointer
  private let descriptor: Descriptor

  /// Throws ``SocketError/callFailed(operation:path:errno:)``, with `ENOTSUP` where the system has
  /// no such memory and with `EINVAL` where it cannot forbid writing (Linux before 5.1).
  public init(byteCount: Int) throws(SocketError) {
    precondition(byteCount > 0, "memory of no bytes does not exist")
    descriptor = Descriptor(made: try check(cposix_shared_memory(Int64(byteCount)), "memfd_create"))
    let address = mmap(nil, byteCount, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.number, 0)
    guard let address, address != MAP_FAILED else {
      throw .callFailed(operation: "mmap", path: nil, errno: errno)
    }
    bytes = UnsafeMutableRawBufferPointer(start: address, count: byteCount)
    // The mapping stays writable; no other one can become so.
    try check(cposix_seal_shared_memory(descriptor.number), "fcntl")
  }

  deinit { munmap(bytes.baseAddress, bytes.count) }

  /// A descriptor for the reader.
  ///
  /// Throws ``SocketError/callFailed(operation:path:errno:)``, usually because too many files are
  /// open.
  public func duplicateDescriptor() throws(SocketError) -> Descriptor { try descriptor.duplicate() }
}
