import ContainerStore
public import Foundation
import Locks

/// A file of a container, read in order: it can be used wherever an `InputStream` is taken.
///
/// Opening a missing file gives the status `.error`. A read of 0 bytes tells the end; seeking goes on from there. A stream that
/// is let go is closed. Threads do not get in one another's way, though Foundation does not call its streams sendable.
public final class SecureInputStream: InputStream {
  private let manager: SecureFileManager
  private let path: String
  private let state = Guarded(State())
  private let events = StreamEvents()

  private struct State {
    var status = Status.notOpen
    var error: (any Error)?
    var file: OpenFile?
    var offset: UInt64 = 0
  }

  /// Never nil: whether the file can be read is found out by ``open()``.
  public convenience init?(fileAtPath path: String, in manager: SecureFileManager) {
    self.init(path, in: manager)
  }

  /// Nil for a URL that is not of the manager's container.
  public convenience init?(url: URL, in manager: SecureFileManager) {
    guard let path = try? manager.path(for: url) else { return nil }
    self.init(path, in: manager)
  }

  init(_ path: String, in manager: SecureFileManager) {
    self.manager = manager
    self.path = path
    super.init(data: Data())
  }

  // MARK: Opening and closing

  /// Opens the file; when that fails the status is `.error` and ``streamError`` says why. A stream is opened once.
  public override func open() {
    let happened = state.withLock { state -> [Event] in
      guard state.status == .notOpen else { return [] }
      do {
        state.file = try manager.store.openFile(manager.place(path), .read)
        state.status = .open
        return [.openCompleted, .hasBytesAvailable]
      } catch {
        state.error = streamFailure(error, path: path, .reading)
        state.status = .error
        return [.errorOccurred]
      }
    }
    events.post(happened, of: self)
  }

  /// Gives the file up; what comes after finds the stream closed. Closing twice is fine.
  public override func close() {
    events.removeAll()
    let file = state.withLock { state in
      state.status = .closed
      defer { state.file = nil }
      return state.file
    }
    // Nothing was written through it.
    try? file?.close()
  }

  /// `.atEnd` once a read has found the end; `.error` after a failure, until the stream is closed.
  public override var streamStatus: Status { state.withLock { $0.status } }

  /// A `POSIXError` where there is one for it.
  public override var streamError: (any Error)? { state.withLock { $0.error } }

  // MARK: Reading

  /// True until a read has found the end.
  public override var hasBytesAvailable: Bool { state.withLock { $0.status == .open } }

  /// Fills the caller's memory; returns how many bytes there were, 0 at the end, -1 when it failed: see ``streamError``.
  public override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
    var happened: [Event] = []
    let count = state.withLock { state in
      guard let file = state.file, state.status != .error, len >= 0 else { return -1 }
      guard len > 0 else { return 0 }
      do {
        let count = try file.read(
          at: state.offset, into: UnsafeMutableRawBufferPointer(start: buffer, count: len))
        state.offset += UInt64(count)
        if count == 0 { state.status = .atEnd } else { state.status = .open }
        happened = [count == 0 ? .endEncountered : .hasBytesAvailable]
        return count
      } catch {
        state.error = streamFailure(error, path: path, .reading)
        state.status = .error
        happened = [.errorOccurred]
        return -1
      }
    }
    events.post(happened, of: self)
    return count
  }

  /// False: the bytes are in no buffer that could be lent.
  public override func getBuffer(
    _ buffer: UnsafeMutablePointer<UnsafeMutablePointer<UInt8>?>, length len: UnsafeMutablePointer<Int>
  ) -> Bool { false }

  // MARK: Seeking

  /// The next read begins at `offset`, be it past the end. Throws `CocoaError` when the stream is not open.
  public func seek(toOffset offset: UInt64) throws {
    guard move(to: offset) else { throw seekFailure(path: path, .reading) }
  }

  private func move(to offset: UInt64) -> Bool {
    let isOpen = state.withLock { state in
      guard state.file != nil, state.status != .error, offset <= UInt64(Int64.max) else { return false }
      state.offset = offset
      state.status = .open
      return true
    }
    if isOpen { events.post([.hasBytesAvailable], of: self) }
    return isOpen
  }

  /// `.fileCurrentOffsetKey` is an `NSNumber` while the stream is open; there are no others.
  public override func property(forKey key: PropertyKey) -> AnyObject? {
    guard key == .fileCurrentOffsetKey else { return nil }
    return state.withLock { $0.file == nil ? nil : NSNumber(value: $0.offset) }
  }

  /// `.fileCurrentOffsetKey` seeks; false for others, and when the stream is not open.
  public override func setProperty(_ property: AnyObject?, forKey key: PropertyKey) -> Bool {
    guard key == .fileCurrentOffsetKey, let offset = (property as? NSNumber)?.fileOffset else { return false }
    return move(to: offset)
  }

  // MARK: Run loops

  /// The delegate is told on this run loop that the stream was opened, has bytes, again after each read, and that its end was read.
  public override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
    events.schedule(self, in: aRunLoop, forMode: mode, streamStatus == .open ? .hasBytesAvailable : nil)
  }

  /// The delegate is told nothing more on this run loop.
  public override func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
    events.remove(from: aRunLoop, forMode: mode)
  }
}
