import Dispatch
public import Foundation

extension SecureFileHandle {
  /// The bytes from the offset on in pieces of `count`, of which only the last is shorter.
  public func chunks(ofCount count: Int) -> AsyncChunks {
    precondition(count > 0, "a chunk has at least one byte")
    return AsyncChunks(handle: self, count: count)
  }

  /// The bytes of a file in pieces, read as they are asked for.
  public struct AsyncChunks: AsyncSequence, Sendable {
    public typealias Element = Data
    let handle: SecureFileHandle
    let count: Int

    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(handle: handle, count: count) }

    public struct AsyncIterator: AsyncIteratorProtocol {
      let handle: SecureFileHandle
      let count: Int
      // Not a global queue: those share their threads with Swift's tasks.
      let queue = DispatchQueue(label: "reading a file")
      var isAtEnd = false

      init(handle: SecureFileHandle, count: Int) {
        self.handle = handle
        self.count = count
      }

      public mutating func next() async throws -> Data? {
        guard !isAtEnd else { return nil }
        try Task.checkCancellation()
        let (handle, count) = (handle, count)
        let chunk: Data? = try await withCheckedThrowingContinuation { continuation in
          queue.async { continuation.resume(with: Result { try handle.read(upToCount: count) }) }
        }
        isAtEnd = chunk == nil
        return chunk
      }
    }
  }
}
