import ContainerStore
public import Foundation
import Locks

/// A file of a container, written in order: it can be used wherever an `OutputStream` is taken.
///
/// ``open()`` makes the file if need be and empties it, or with `append` writes at its end, wherever that is when it writes. What is
/// written stands in a bounded cache; ``close()`` commits it, and has the status `.error` instead of `.closed` when that failed. A
/// stream that is let go is closed. Threads do not get in one another's way, though Foundation does not call its streams sendable.
public final class SecureOutputStream: OutputStream {
  private let manager: SecureFileManager?
  private let path: String
  private let appends: Bool
  private let state = Guarded(State())
  private let events = StreamEvents()

  private struct State {
    var status = Status.notOpen
    var error: (any Error)?
    var file: OpenFile?
    var offset: UInt64 = 0
  }

  /// Never nil: whether the file can be written is found out by ``open()``.
  public convenience init?(
    toFileAtPath path: String, append shouldAppend: Bool, in manager: SecureFileManager
  ) {
    self.init(path, append: shouldAppend, in: manager)
  }

  /// Nil for a URL that is not of the manager's container.
  public convenience init?(url: URL, append shouldAppend: Bool, in manager: SecureFileManager) {
    guard let path = try? manager.path(for: url, .writing) else { return nil }
    self.init(path, append: shouldAppend, in: manager)
  }

  init(_ path: String, append: Bool, in manager: SecureFileManager) {
    self.manager = manager
    self.path = path
    appends = append
    super.init(toMemory: ())
  }

  /// Foundation requires it. The stream has no file, and cannot be opened.
  public required init(toMemory: ()) {
    manager = nil
    path = ""
    appends = false
    super.init(toMemory: ())
  }

  // MARK: Opening and closing

  /// Makes the file if need be, and empties it unless the stream appends; when that fails the status is `.error` and ``streamError``
  /// says why. A stream is opened once.
  public override func open() {
    let happened = state.withLock { state -> [Event] in
      guard state.status == .notOpen else { return [] }
      do {
        guard let manager else {
          throw ContainerError(.notSupported, detail: "a stream to memory is Foundation's OutputStream")
        }
        let file = try manager.store.openFile(
          manager.place(path), .write, create: true, truncate: !appends)
        state.offset = appends ? file.size : 0
        state.file = file
        state.status = .open
        return [.openCompleted, .hasSpaceAvailable]
      } catch {
        state.error = streamFailure(error, path: path, .writing)
        state.status = .error
        return [.errorOccurred]
      }
    }
    events.post(happened, of: self)
  }

  /// Commits what was written, as durably as the container does.
  public override func close() {
    events.removeAll()
    state.withLock { state in
      do {
        try state.file?.close()
        state.status = .closed
      } catch {
        state.error = streamFailure(error, path: path, .writing)
        state.status = .error
      }
      state.file = nil
    }
  }

  /// `.error` after a failure; ``streamError`` says which.
  public override var streamStatus: Status { state.withLock { $0.status } }

  /// A `POSIXError` where there is one for it.
  public override var streamError: (any Error)? { state.withLock { $0.error } }

  // MARK: Writing

  /// True while the stream is open: a file always takes more, until the disk is full.
  public override var hasSpaceAvailable: Bool { state.withLock { $0.status == .open } }

  /// Writes everything and returns `len`, or -1 when it failed: see ``streamError``.
  public override func write(_ buffer: UnsafePointer<UInt8>, maxLength len: Int) -> Int {
    var happened: [Event] = []
    let count = state.withLock { state in
      guard let file = state.file, state.status == .open, len >= 0 else { return -1 }
      guard len > 0 else { return 0 }
      let bytes = UnsafeRawBufferPointer(start: buffer, count: len)
      do {
        if appends {
          state.offset = try file.append(bytes)
        } else {
          try file.write(bytes, at: state.offset)
        }
        state.offset += UInt64(len)
        happened = [.hasSpaceAvailable]
        return len
      } catch {
        state.error = streamFailure(error, path: path, .writing)
        state.status = .error
        happened = [.errorOccurred]
        return -1
      }
    }
    events.post(happened, of: self)
    return count
  }

  // MARK: Seeking

  /// The next write begins at `offset`, be it past the end, which leaves zeros; a stream that appends goes on appending. Throws
  /// `CocoaError` when the stream is not open.
  public func seek(toOffset offset: UInt64) throws {
    guard move(to: offset) else { throw seekFailure(path: path, .writing) }
  }

  private func move(to offset: UInt64) -> Bool {
    state.withLock { state in
      guard state.status == .open, offset <= UInt64(Int64.max) else { return false }
      state.offset = offset
      return true
    }
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

  /// The delegate is told on this run loop that the stream was opened and has space, again after each write.
  public override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
    events.schedule(self, in: aRunLoop, forMode: mode, streamStatus == .open ? .hasSpaceAvailable : nil)
  }

  /// The delegate is told nothing more on this run loop.
  public override func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
    events.remove(from: aRunLoop, forMode: mode)
  }
}
