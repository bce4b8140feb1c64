import CPosix

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Memory of a fixed length that this process writes and another one reads (Linux: a sealed `memfd`).
///
/// The reader is given a descriptor, and never a mapping of its own making: nothing that either side does to the memory can end the
/// other's process.
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

  /// Throws ``SocketError/callFailed(operation:path:errno:)``, with `ENOTSUP` where the system has no such memory.
  public init(byteCount: Int) throws(SocketError) {
    precondition(byteCount > 0, "memory of no bytes does not exist")
    descriptor = Descriptor(made: try check(cposix_shared_memory(Int64(byteCount)), "memfd_create"))
    let address = mmap(nil, byteCount, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.number, 0)
    guard let address, address != MAP_FAILED else {
      throw .callFailed(operation: "mmap", path: nil, errno: errno)
    }
    bytes = UnsafeMutableRawBufferPointer(start: address, count: byteCount)
  }

  /// Also where the other process keeps the descriptor, its pages are given back.
  deinit {
    munmap(bytes.baseAddress, bytes.count)
    // With the rest of the last page.
    _ = cposix_punch_hole(descriptor.number, 0, Int64(bytes.count + 65_535) & ~65_535)
  }

  /// For the reader.
  ///
  /// Throws ``SocketError/callFailed(operation:path:errno:)``, usually because too many files are open.
  public func duplicateDescriptor() throws(SocketError) -> Descriptor { try descriptor.duplicate() }
}
