#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A native file, open for reading. It ends where a read finds its end, whatever size is stated.
final class NativeFile: Sendable {
  /// The most bytes that one call returns in memory.
  static let byteCountMax = 1 << 30
  private static let pieceByteCount = 256 << 10

  let path: String
  private let descriptor: Int32

  /// Takes the descriptor over.
  init(_ descriptor: Int32, path: String) { (self.descriptor, self.path) = (descriptor, path) }

  deinit { close(descriptor) }

  func status() throws -> NativeStatus {
    guard let status = NativeStatus(descriptor: descriptor) else { throw failure(errno) }
    return status
  }

  /// Fills the buffer from an offset on, and returns how many bytes there were: fewer at the end
  /// alone.
  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: UInt64) throws -> Int {
    var done = 0
    while done < buffer.count, let place = off_t(exactly: offset + UInt64(done)) {
      let count = pread(descriptor, buffer.baseAddress! + done, buffer.count - done, place)
      if count < 0, errno == EINTR { continue }
      guard count >= 0 else { throw failure(errno) }
      if count == 0 { break }
      done += count
    }
    return done
  }

  /// At most `count` bytes from an offset on. Memory grows with the bytes that were read. Throws for
  /// more than `limit`.
  func bytes(at offset: UInt64, upTo count: Int = .max, limit: Int = byteCountMax) throws -> Data {
    var bytes = Data()
    var piece = [UInt8](repeating: 0, count: min(max(count, 0), Self.pieceByteCount))
    while bytes.count < count {
      let wanted = min(piece.count, count - bytes.count)
      let found = try piece.withUnsafeMutableBytes {
        try read(
          into: UnsafeMutableRawBufferPointer(rebasing: $0[..<wanted]), at: offset + UInt64(bytes.count))
      }
      bytes.append(contentsOf: piece[..<found])
      if found < wanted { break }
      guard bytes.count <= limit else { throw failure(EFBIG) }
    }
    return bytes
  }

  /// The size in bytes that the system states.
  func end() throws -> UInt64 { UInt64(max(0, try status().size)) }

  private func failure(_ number: Int32) -> NSError { FileErrors.of(errno: number, path: path) }
}
