import Locks

/// A native file, read in order. It is open from the beginning.
final class NativeInputStream: InputStream {
  private struct State {
    var file: NativeFile?
    var offset: UInt64 = 0
    var status = Status.open
    var error: (any Error)?
  }

  private let state: Guarded<State>

  init(_ file: NativeFile) {
    state = Guarded(State(file: file))
    super.init(data: Data())
  }

  override func open() {}
  override func close() { state.withLock { ($0.file, $0.status) = (nil, .closed) } }
  override var streamStatus: Status { state.withLock { $0.status } }
  override var streamError: (any Error)? { state.withLock { $0.error } }
  override var hasBytesAvailable: Bool { state.withLock { $0.status == .open } }

  override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
    state.withLock { state in
      guard let file = state.file, state.status != .error, len >= 0 else { return -1 }
      guard len > 0 else { return 0 }
      do {
        let count = try file.read(
          into: UnsafeMutableRawBufferPointer(start: buffer, count: len), at: state.offset)
        state.offset += UInt64(count)
        state.status = count == 0 ? .atEnd : .open
        return count
      } catch {
        (state.error, state.status) = (error, .error)
        return -1
      }
    }
  }

  override func getBuffer(
    _ buffer: UnsafeMutablePointer<UnsafeMutablePointer<UInt8>?>, length len: UnsafeMutablePointer<Int>
  ) -> Bool { false }

  override func property(forKey key: PropertyKey) -> AnyObject? {
    guard key == .fileCurrentOffsetKey else { return nil }
    return state.withLock { $0.file == nil ? nil : NSNumber(value: $0.offset) }
  }

  override func setProperty(_ property: AnyObject?, forKey key: PropertyKey) -> Bool {
    guard key == .fileCurrentOffsetKey, let number = property as? NSNumber,
      let offset = UInt64(exactly: number.int64Value)
    else { return false }
    return state.withLock { state in
      guard state.file != nil, state.status != .error else { return false }
      (state.offset, state.status) = (offset, .open)
      return true
    }
  }
}
