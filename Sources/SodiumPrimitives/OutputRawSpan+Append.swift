extension OutputRawSpan {
  /// Appends the `count` bytes that `body` writes to the memory it is passed.
  @inline(__always)
  mutating func append(_ count: Int, _ body: (UnsafeMutableRawBufferPointer) -> Void) {
    withUnsafeMutableBytes { buffer, initializedCount in
      precondition(count <= buffer.count - initializedCount, "the output has room for the bytes")
      body(UnsafeMutableRawBufferPointer(rebasing: buffer[initializedCount..<(initializedCount + count)]))
      initializedCount += count
    }
  }

  @inline(__always)
  package mutating func append(copying bytes: UnsafeRawBufferPointer) {
    append(bytes.count) { $0.copyMemory(from: bytes) }
  }
}
