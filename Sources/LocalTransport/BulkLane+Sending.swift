import Dispatch
import ServiceWire
import SodiumPrimitives
import UnixSockets

extension BulkLane {
  /// What the sending thread does next.
  private enum Step {
    case seal(BulkTurns.Turn, Outgoing)
    /// No stream has something to send and the credit for it.
    case wait(hasStreams: Bool)
    case fail(BulkFault)
    case end
  }

  /// The sending thread: seals messages in turn until its buffer is full or nothing may go, writes them with one call, and reports what ended.
  func sendStreams() {
    let writer = BulkWriter()
    var ended: [(UInt32, Outgoing, (any Error)?)] = []
    while true {
      switch nextStep() {
      case .seal(let turn, let outgoing):
        do {
          try writer.seal(turn, of: outgoing)
          if turn.isLast { ended.append((turn.stream, outgoing, nil)) }
        } catch {
          state.withLock { $0.turns.stop(turn.stream) }
          ended.append((turn.stream, outgoing, error))
        }
        if writer.hasRoom { continue }
      case .wait(let hasStreams) where writer.isEmpty && ended.isEmpty:
        if !waitForChange(), !hasStreams, endSending() { return }
        continue
      case .wait: break
      case .fail(let fault): return fail(fault)
      case .end: return
      }
      guard write(writer) else { return }
      for (stream, outgoing, error) in ended { reportSent(stream, outgoing, error) }
      ended = []
      writer.keep { number, outgoing in state.withLock { $0.outgoing[number] === outgoing } }
    }
  }

  private func nextStep() -> Step {
    state.withLock { state in
      if let fault = state.fault { return .fail(fault) }
      if state.end == nil { return .end }
      guard let turn = state.turns.next(), let outgoing = state.outgoing[turn.stream] else {
        state.isWaiting = true
        return .wait(hasStreams: !state.turns.isEmpty)
      }
      state.isWaiting = false
      return .seal(turn, outgoing)
    }
  }

  /// False when nothing changed for the idle time.
  private func waitForChange() -> Bool {
    changed.wait(timeout: .now() + .nanoseconds(Int(clamping: Int64(idleTime / .nanoseconds(1))))) == .success
  }

  /// Lets the thread end, unless a stream came in the last moment.
  private func endSending() -> Bool {
    state.withLock { state in
      guard state.turns.isEmpty, state.fault == nil else { return false }
      state.isSending = false
      state.isWaiting = false
      return true
    }
  }

  /// False when the lane has ended.
  private func write(_ writer: BulkWriter) -> Bool {
    guard let end = state.withLock({ $0.end }) else { return false }
    do throws(SocketError) {
      try end.connection.write(writer.sealed, deadline: nil)
      writer.removeAll()
      return true
    } catch {
      fail(BulkFault(.connectionLost, error.what))
      return false
    }
  }

  private func reportSent(_ stream: UInt32, _ outgoing: Outgoing, _ error: (any Error)?) {
    let isReported = state.withLock { state in
      guard state.outgoing[stream] === outgoing else { return false }
      state.outgoing[stream] = nil
      return true
    }
    if isReported { events.sent(stream, error) }
  }
}

/// The sending thread's buffers: plaintext of each stream, and the frames that are written next.
private final class BulkWriter {
  /// Sixteen messages, and the header of a stream before each.
  static let byteCountMax = 16 * (BulkFrame.byteCountMax + firstByteCount)
  static let firstByteCount = BulkFrame.headerByteCount + BulkFrame.streamHeaderByteCount

  private let cipher = SecretStreamCipher()
  private let output = UnsafeMutableRawBufferPointer.allocate(byteCount: byteCountMax, alignment: 4096)
  private var byteCount = 0
  private var streams: [UInt32: OutgoingStream] = [:]
  /// Of the last stream that went, for the next one.
  private var spare: PlaintextBuffer?

  deinit { output.deallocate() }

  var isEmpty: Bool { byteCount == 0 }
  var hasRoom: Bool { output.count - byteCount >= BulkFrame.byteCountMax + Self.firstByteCount }
  var sealed: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: output[0..<byteCount]) }

  func removeAll() { byteCount = 0 }

  /// Appends the frames of a turn. Throws what the source throws, and `BulkSourceError`; then nothing was appended.
  func seal(_ turn: BulkTurns.Turn, of outgoing: BulkLane.Outgoing) throws {
    let stream = stream(turn.stream, outgoing)
    let message = try stream.message(turn.byteCount)
    if turn.isFirst {
      appendHeader(turn.stream, length: BulkFrame.streamHeaderByteCount)
      append(BulkFrame.streamHeaderByteCount) { $0.copyBytes(from: stream.header) }
    }
    let length = message.count + BulkFrame.overheadByteCount
    appendHeader(turn.stream, length: length)
    append(length) {
      cipher.push(
        &stream.state.value, message, ad: UnsafeRawBufferPointer(start: nil, count: 0),
        tag: turn.isLast ? .final : .message, into: $0)
    }
  }

  private func appendHeader(_ stream: UInt32, length: Int) {
    append(BulkFrame.headerByteCount) { BulkFrame.writeHeader(stream: stream, length: length, to: $0) }
  }

  private func append(_ count: Int, _ write: (UnsafeMutableRawBufferPointer) -> Void) {
    write(UnsafeMutableRawBufferPointer(rebasing: output[byteCount..<byteCount + count]))
    byteCount += count
  }

  private func stream(_ number: UInt32, _ outgoing: BulkLane.Outgoing) -> OutgoingStream {
    if let stream = streams[number], stream.outgoing === outgoing { return stream }
    let stream = OutgoingStream(outgoing, spare ?? PlaintextBuffer())
    spare = nil
    streams[number] = stream
    return stream
  }

  /// Lets go of the streams that have ended.
  func keep(_ isUnderWay: (UInt32, BulkLane.Outgoing) -> Bool) {
    for (number, stream) in streams where !isUnderWay(number, stream.outgoing) {
      streams[number] = nil
      stream.buffer.wipe()
      spare = stream.buffer
    }
  }
}

/// A stream as the sending thread has it.
private final class OutgoingStream {
  let outgoing: BulkLane.Outgoing
  let header: [UInt8]
  let state: BulkStreamState
  let buffer: PlaintextBuffer
  private var readByteCount: UInt64 = 0

  init(_ outgoing: BulkLane.Outgoing, _ buffer: PlaintextBuffer) {
    self.outgoing = outgoing
    self.buffer = buffer
    header = Random.bytes(BulkFrame.streamHeaderByteCount)
    state = header.withUnsafeBytes { BulkStreamState.beginning(key: outgoing.key, header: $0) }
  }

  /// The next bytes, read ahead as the source gives them.
  func message(_ count: Int) throws -> UnsafeRawBufferPointer {
    while buffer.count < count {
      let read = try buffer.read(outgoing.source)
      guard read > 0 else {
        throw BulkSourceError.tooShort(byteCount: readByteCount, announced: outgoing.byteCount)
      }
      readByteCount += UInt64(read)
      guard readByteCount <= outgoing.byteCount else {
        throw BulkSourceError.tooLong(announced: outgoing.byteCount)
      }
    }
    return buffer.take(count)
  }
}

/// Plaintext that was read and not sealed yet.
private final class PlaintextBuffer {
  /// What is left of a read is less than a message, and a whole read follows it.
  private let bytes = UnsafeMutableRawBufferPointer.allocate(
    byteCount: BulkFrame.messageByteCountMax + BulkLane.readByteCount, alignment: 4096)
  private var range = 0..<0
  /// How far it was ever filled.
  private var usedByteCount = 0

  deinit {
    wipe()
    bytes.deallocate()
  }

  var count: Int { range.count }

  func wipe() {
    SodiumPrimitives.wipe(UnsafeMutableRawBufferPointer(rebasing: bytes[0..<usedByteCount]))
    (range, usedByteCount) = (0..<0, 0)
  }

  func take(_ count: Int) -> UnsafeRawBufferPointer {
    defer { range = range.lowerBound + count..<range.upperBound }
    return UnsafeRawBufferPointer(rebasing: bytes[range.lowerBound..<range.lowerBound + count])
  }

  /// Moves what is left to the front and reads after it; returns how much.
  func read(_ source: any BulkSource) throws -> Int {
    if range.lowerBound > 0 {
      bytes.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[range]))
    }
    range = 0..<range.count
    let room = UnsafeMutableRawBufferPointer(
      rebasing: bytes[range.upperBound..<range.upperBound + BulkLane.readByteCount])
    let count: Int
    do {
      count = try source.read(into: room)
    } catch {
      // What it may have written before it threw is wiped, too.
      usedByteCount = max(usedByteCount, range.upperBound + room.count)
      throw error
    }
    precondition(0...room.count ~= count, "a source gives no more than there is room for")
    range = 0..<range.upperBound + count
    usedByteCount = max(usedByteCount, range.upperBound)
    return count
  }
}
