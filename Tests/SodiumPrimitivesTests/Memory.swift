import CSodium
import Foundation
import TestSupport

/// Memory with a fixed address, so that random cases need neither arrays nor nested closures. Somebody must hold it
/// for as long as its slices are used.
final class Memory {
  let bytes: UnsafeMutableRawBufferPointer

  init(byteCount: Int, repeating byte: UInt8 = 0) {
    bytes = .allocate(byteCount: byteCount, alignment: 64)
    _ = bytes.initializeMemory(as: UInt8.self, repeating: byte)
  }

  /// Bytes that follow from `seed`.
  convenience init(byteCount: Int, seed: UInt64) {
    self.init(byteCount: byteCount)
    var seedBytes = [UInt8](repeating: 0, count: randombytes_seedbytes())
    withUnsafeBytes(of: seed) { seedBytes.replaceSubrange(0..<8, with: $0) }
    randombytes_buf_deterministic(bytes.baseAddress!, byteCount, seedBytes)
  }

  deinit { bytes.deallocate() }

  func slice(_ offset: Int, _ count: Int) -> UnsafeMutableRawBufferPointer {
    UnsafeMutableRawBufferPointer(rebasing: bytes[offset..<offset + count])
  }

  /// `count` bytes from a random place, at any alignment.
  func anySlice(_ count: Int, _ random: inout SplitMix64) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(slice(random.below(bytes.count - count), count))
  }

  func array(_ offset: Int, _ count: Int) -> [UInt8] { [UInt8](slice(offset, count)) }

  func fill(_ byte: UInt8) { memset(bytes.baseAddress!, Int32(byte), bytes.count) }
}

func same(_ a: UnsafeRawBufferPointer, _ b: UnsafeRawBufferPointer) -> Bool {
  a.count == b.count && (a.isEmpty || memcmp(a.baseAddress!, b.baseAddress!, a.count) == 0)
}

/// What a test with random cases throws: one line that tells how to repeat the case.
struct Mismatch: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}
