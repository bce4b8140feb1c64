import Foundation

extension SecureFileHandle {
  /// The bytes from the offset on, which moves along in pieces of 64 KiB as they are read. Reading
  /// blocks a thread of its own, never one of Swift's tasks; a cancelled task gets
  /// `CancellationError`.
  public var bytes: AsyncBytes { AsyncBytes(handle: self) }

  /// The bytes of a file, read as they are asked for.
  public struct AsyncBytes: AsyncSequence, Sendable {
    public typealias Element = UInt8
    let handle: SecureFileHandle

    public func makeAsyncIterator() -> AsyncIterator {
      AsyncIterator(chunks: AsyncChunks(handle: handle, count: 64 << 10).makeAsyncIterator())
    }

    public struct AsyncIterator: AsyncIteratorProtocol {
      @usableFromInline var chunks: AsyncChunks.AsyncIterator
      @usableFromInline var chunk: [UInt8] = []
      @usableFromInline var position = 0

      init(chunks: AsyncChunks.AsyncIterator) { self.chunks = chunks }

      @inlinable
      public mutating func next() async throws -> UInt8? {
        if position == chunk.count {
          guard try await fill() else { return nil }
        }
        defer { position += 1 }
        return chunk[position]
      }

      @usableFromInline
      mutating func fill() async throws -> Bool {
        guard let data = try await chunks.next() else { return false }
        chunk = [UInt8](data)
        position = 0
        return true
      }
    }
  }
}
