import Foundation
import ServiceWire
import SodiumPrimitives
import UnixSockets

extension BulkLane {
  /// The receiving thread: reads what has come, and opens its frames one after another.
  func receiveStreams() {
    let reader = BulkReader()
    do throws(BulkFault) {
      if let fault = state.withLock({ $0.fault }) { throw fault }
      while let end = state.withLock({ $0.end }) {
        switch try read(reader, from: end) {
        case nil: if reader.isEmpty, endReceiving() { return }
        case 0?: throw endOfStream(isWithinFrame: !reader.isEmpty)
        default: try takeFrames(reader)
        }
      }
    } catch {
      fail(error)
    }
  }

  /// Nil when nothing came for the idle time, 0 at the end.
  private func read(_ reader: BulkReader, from end: End) throws(BulkFault) -> Int? {
    do throws(SocketError) {
      return try reader.read(end.connection, deadline: .now + idleTime)
    } catch .timedOut {
      return nil
    } catch .tooManyDescriptors {
      throw BulkFault(.unexpectedDescriptors, "descriptors on the bulk lane")
    } catch {
      throw BulkFault(.connectionLost, error.what)
    }
  }

  /// Lets the thread end, unless a stream is awaited.
  private func endReceiving() -> Bool {
    state.withLock { state in
      guard state.reception.isIdle else { return false }
      state.isReceiving = false
      return true
    }
  }

  private func endOfStream(isWithinFrame: Bool) -> BulkFault {
    let isIdle = state.withLock { $0.reception.isIdle && $0.outgoing.isEmpty }
    return isWithinFrame || !isIdle
      ? BulkFault(.connectionLost, "the peer closed the bulk lane while streams were under way")
      : BulkFault(.noError, "the peer closed the bulk lane")
  }

  private func takeFrames(_ reader: BulkReader) throws(BulkFault) {
    while true {
      if reader.frame == nil {
        guard let header = reader.takeHeader() else { return }
        let body = try state.withLock { state throws(BulkFault) in
          try state.reception.begin(stream: header.stream, length: header.length)
        }
        reader.frame = BulkReader.Frame(stream: header.stream, byteCount: Int(header.length), body: body)
      }
      guard let (frame, bytes) = reader.takeBody() else { return }
      try take(frame, bytes, reader)
    }
  }

  private func take(
    _ frame: BulkReader.Frame, _ bytes: UnsafeRawBufferPointer, _ reader: BulkReader
  ) throws(BulkFault) {
    let stream = frame.stream
    // Asked for only now: it may have been stopped since the frame began.
    guard frame.body != .skipped, let incoming = state.withLock({ $0.incoming[stream] }) else {
      reader.forget(stream)
      return
    }
    guard case .message(let isLast) = frame.body else {
      reader.begin(stream, key: incoming.key, header: bytes)
      return
    }
    let plaintext = try reader.open(bytes, of: stream, isLast: isLast)
    do {
      try incoming.sink.receive(plaintext)
      if isLast { finish(stream, nil, reader) }
    } catch {
      finish(stream, error, reader)
    }
  }

  private func finish(_ stream: UInt32, _ error: (any Error)?, _ reader: BulkReader) {
    reader.forget(stream)
    let wasUnderWay = state.withLock { state in
      state.reception.stop(stream)
      return state.incoming.removeValue(forKey: stream) != nil
    }
    if wasUnderWay { events.received(stream, error) }
  }
}

/// The receiving thread's buffer, and the streams as it has them.
private final class BulkReader {
  /// Some frames, so that a read is worth its system call.
  static let byteCountMax = 8 * BulkFrame.byteCountMax

  /// A frame whose header was read and accepted.
  struct Frame {
    let stream: UInt32
    let byteCount: Int
    let body: BulkReception.Body
  }

  private let cipher = SecretStreamCipher()
  private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: byteCountMax, alignment: 4096)
  private var filled = 0..<0
  /// Those that have begun.
  private var openings: [UInt32: BulkStreamState] = [:]
  var frame: Frame?

  deinit { buffer.deallocate() }

  /// Between two frames.
  var isEmpty: Bool { filled.isEmpty && frame == nil }

  // MARK: Bytes

  /// Reads what has come, one byte at least; 0 at the end.
  func read(
    _ connection: borrowing UnixConnection, deadline: ContinuousClock.Instant
  ) throws(SocketError) -> Int {
    if filled.isEmpty {
      filled = 0..<0
    } else if buffer.count - filled.upperBound < BulkFrame.byteCountMax {
      buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: buffer[filled]))
      filled = 0..<filled.count
    }
    let room = UnsafeMutableRawBufferPointer(rebasing: buffer[filled.upperBound...])
    let count = try connection.receive(into: room, descriptorsMax: 0, deadline: deadline).byteCount
    filled = filled.lowerBound..<filled.upperBound + count
    return count
  }

  /// Stream and length of the next frame, when they are there.
  func takeHeader() -> (stream: UInt32, length: UInt32)? {
    take(BulkFrame.headerByteCount).map { BulkFrame.readHeader($0) }
  }

  /// The frame and its body, valid until the next read, when all of it is there.
  func takeBody() -> (Frame, UnsafeRawBufferPointer)? {
    guard let frame, let bytes = take(frame.byteCount) else { return nil }
    self.frame = nil
    return (frame, bytes)
  }

  private func take(_ count: Int) -> UnsafeRawBufferPointer? {
    guard filled.count >= count else { return nil }
    defer { filled = filled.lowerBound + count..<filled.upperBound }
    return UnsafeRawBufferPointer(rebasing: buffer[filled.lowerBound..<filled.lowerBound + count])
  }

  // MARK: Streams

  func begin(_ stream: UInt32, key: Data, header: UnsafeRawBufferPointer) {
    openings[stream] = BulkStreamState.beginning(key: key, header: header)
  }

  /// The plaintext of the stream's next message, valid until the next one is opened.
  func open(
    _ message: UnsafeRawBufferPointer, of stream: UInt32, isLast: Bool
  ) throws(BulkFault) -> UnsafeRawBufferPointer {
    guard let opening = openings[stream] else {
      throw BulkFault(.streamDamaged, "a message of stream \(stream) before its header")
    }
    let (plaintext, tag): (UnsafeRawBufferPointer, SecretStreamTag?)
    do throws(CryptoError) {
      (plaintext, tag) = try cipher.pull(
        &opening.value, message, ad: UnsafeRawBufferPointer(start: nil, count: 0))
    } catch {
      throw BulkFault(.streamDamaged, "a message of stream \(stream): \(error)")
    }
    guard tag == (isLast ? .final : .message) else {
      throw BulkFault(.streamDamaged, "stream \(stream) ends where its announced count does not")
    }
    return plaintext
  }

  func forget(_ stream: UInt32) { openings[stream] = nil }
}
