import CSodium

/// Random bytes from the operating system through libsodium (`randombytes_buf`).
public enum Random {
  public static func fill(_ buffer: UnsafeMutableRawBufferPointer) {
    requireSodium()
    guard let base = buffer.baseAddress else { return }
    randombytes_buf(base, buffer.count)
  }

  public static func bytes(_ count: Int) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
      fill(UnsafeMutableRawBufferPointer(buffer))
      initialized = count
    }
  }
}
