import Foundation

/// Keeps free memory at hand on a virtual machine that returns it to its host.
///
/// With free page reporting the kernel gives back free blocks of 2 MiB after two seconds, and each of their pages
/// costs a fault in the host when it is needed again: `cp` of 1 GiB to memory took 0.6 or 5 seconds. Here all of the
/// memory is touched, and then all but one page of each 2 MiB is freed: these are at hand, and not returned, since no
/// block is free as a whole.
enum HeldMemory {
  private static let blockByteCount = 2 << 20

  /// In MiB; 0 where the system does not say it.
  static func halfOfAvailable() -> Int {
    ((try? kibibytes("MemAvailable:", in: "/proc/meminfo")) ?? 0) / 2 / 1024
  }

  /// Holds so much for as long as the process lives, or as much as it gets.
  static func hold(mebibytes: Int) {
    #if os(Linux)
      let pageByteCount = sysconf(Int32(_SC_PAGESIZE))
      let byteCount = (mebibytes << 20) / blockByteCount * blockByteCount
      let map = mmap(
        nil, byteCount, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
      guard let map, map != MAP_FAILED else {
        return FileHandle.standardError.write(Data("no \(mebibytes) MiB to hold at hand\n".utf8))
      }
      // A kernel without huge pages refuses this, and does not need it.
      madvise(map, byteCount, MADV_NOHUGEPAGE)
      for offset in stride(from: 0, to: byteCount, by: pageByteCount) {
        map.storeBytes(of: 1, toByteOffset: offset, as: UInt8.self)
      }
      for offset in stride(from: 0, to: byteCount, by: blockByteCount) {
        let freed = madvise(map + offset + pageByteCount, blockByteCount - pageByteCount, MADV_DONTNEED)
        precondition(freed == 0, "whole pages can be freed")
      }
    #endif
  }
}
