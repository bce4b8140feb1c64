import Dispatch
import ServiceWire
import SodiumPrimitives
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

extension BulkLane {
  /// What the sending thread does next.
  private enum Step {
    /// Into a slot, when there is one.
    case seal(BulkTurns.Turn, Outgoing, BulkWriter.Slot?)
    /// Makes memory of so many slots, for the peer.
    case share(slotCount: Int)
    /// Tells the peer which slots were read.
    case freeSlots
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
      case .seal(let turn, let outgoing, let slot):
        do {
          try writer.seal(turn, of: outgoing, into: slot)
          if turn.isLast { ended.append((turn.stream, outgoing, nil)) }
        } catch {
          state.withLock { state in
            state.turns.stop(turn.stream)
            if slot != nil { state.sending.slots?.unuse() }
          }
          ended.append((turn.stream, outgoing, error))
        }
        if writer.hasRoom { continue }
      case .wait(let hasStreams) where writer.isEmpty && ended.isEmpty:
        if !waitForChange(), !hasStreams, endSending() { return }
        continue
      case .wait: break
      case .share(let slotCount):
        guard share(slotCount) else { return }
        continue
      case .freeSlots:
        guard sayFreed() else { return }
        continue
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
      if state.receiving?.isOwed == true { return .freeSlots }
      if state.sending.isWanted { return .share(slotCount: state.sending.slotCountMax) }
      guard state.sending.slots?.isFull != true, let turn = state.turns.next(),
        let outgoing = state.outgoing[turn.stream]
      else {
        state.isWaiting = true
        return .wait(hasStreams: !state.turns.isEmpty)
      }
      state.isWaiting = false
      guard let memory = state.sending.memory, let slot = state.sending.slots?.use() else {
        return .seal(turn, outgoing, nil)
      }
      return .seal(turn, outgoing, BulkWriter.Slot(memory: memory, number: slot))
    }
  }

  /// False when nothing changed for the idle time.
  private func waitForChange() -> Bool {
    changed.wait(timeout: .now() + .nanoseconds(Int(clamping: Int64(idleTime / .nanoseconds(1))))) == .success
  }

  /// Lets the thread end, unless a stream came in the last moment.
  private func endSending() -> Bool {
    state.withLock { state in
      guard state.turns.isEmpty, state.fault == nil, state.receiving?.isOwed != true else { return false }
      state.isSending = false
      state.isWaiting = false
      return true
    }
  }

  /// False when the lane has ended.
  private func write(_ writer: BulkWriter) -> Bool {
    defer { writer.removeAll() }
    state.withLock { $0.sending.slots?.announce() }
    return write { connection throws(SocketError) in try connection.write(writer.sealed, deadline: nil) }
  }

  /// False when the lane has ended.
  private func write(_ body: (borrowing UnixConnection) throws(SocketError) -> Void) -> Bool {
    guard let end = state.withLock({ $0.end }) else { return false }
    do throws(SocketError) {
      try writing.withLock { _ throws(SocketError) in try body(end.connection) }
      return true
    } catch {
      fail(BulkFault(.connectionLost, error.what))
      return false
    }
  }

  /// Gives the peer memory, when the system does. False when the lane has ended.
  private func share(_ slotCount: Int) -> Bool {
    let memory: SharedMemory
    let descriptor: Descriptor
    do throws(SocketError) {
      memory = try SharedMemory(byteCount: slotCount * BulkSlots.byteCount)
      descriptor = try memory.duplicateDescriptor()
    } catch {
      // Everything goes over the socket, then.
      state.withLock { $0.sending = SendingMemory() }
      return true
    }
    var descriptors = DescriptorList()
    descriptors.append(descriptor)
    var isOnItsWay = true
    guard
      write({ connection throws(SocketError) in
        do throws(SocketError) {
          try connection.send(BulkFrame.memory(slotCount: slotCount), descriptors: descriptors)
        } catch .callFailed(_, _, ETOOMANYREFS) {
          // Nothing was sent: too many descriptors of this user wait for their receivers.
          isOnItsWay = false
        }
      })
    else { return false }
    change { state in
      guard isOnItsWay else {
        state.sending = SendingMemory()
        return
      }
      state.sending.isWanted = false
      state.sending.slots = BulkSlots(count: slotCount)
      state.sending.memory = memory
      startReceiving(&state)
    }
    return true
  }

  /// False when the lane has ended.
  private func sayFreed() -> Bool {
    write { connection throws(SocketError) in
      guard let total = freedSlots() else { return }
      try connection.send(BulkFrame.freed(total), descriptors: DescriptorList())
    }
  }

  /// How many slots the peer has to be told of; what is told is never less than what was told before. To be called while `writing` is held.
  private func freedSlots() -> UInt64? {
    state.withLock { state in
      guard let readCount = state.receiving?.readCount else { return nil }
      state.receiving?.isOwed = false
      state.receiving?.toldCount = readCount
      return readCount
    }
  }

  /// Tells the peer which slots were read: at once, unless the socket is in use or full; then the sending thread does it. So the
  /// receiving thread never waits for a peer to read, whose own receiving thread might wait for this one.
  func tellFreed() {
    let wasTold = writing.withLockIfFree { _ in
      guard let end = state.withLock({ $0.end }), let total = freedSlots() else { return true }
      return BulkFrame.freed(total).withUnsafeBytes { bytes in
        guard let count = try? end.connection.sendIfReady(bytes) else { return false }
        // So few bytes go together or not at all; if not, the lane is of no further use.
        if count < bytes.count { end.connection.shutdown() }
        return true
      }
    }
    guard wasTold != true else { return }
    change { state in
      state.receiving?.isOwed = true
      startSending(&state)
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
  var hasRoom: Bool {
    output.count - byteCount >= BulkFrame.byteCountMax + Self.firstByteCount
      && slotMessageCount < Self.slotMessageCountMax
  }
  var sealed: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: output[0..<byteCount]) }

  func removeAll() { (byteCount, slotMessageCount) = (0, 0) }

  /// One slot of shared memory.
  struct Slot {
    let memory: SharedMemory
    let number: Int

    /// Where the next message goes.
    func bytes(_ count: Int) -> UnsafeMutableRawBufferPointer {
      let begin = number * BulkSlots.byteCount
      return UnsafeMutableRawBufferPointer(rebasing: memory.bytes[begin..<begin + count])
    }
  }

  /// Messages in slots that the peer hears of with one write.
  static let slotMessageCountMax = 8
  private var slotMessageCount = 0

  /// Appends the frames of a turn. Throws what the source and the cipher throw, and `BulkSourceError`; then nothing was appended.
  func seal(_ turn: BulkTurns.Turn, of outgoing: BulkLane.Outgoing, into slot: Slot?) throws {
    let stream = stream(turn.stream, outgoing)
    let message = try stream.message(turn.byteCount)
    let begin = byteCount
    do {
      try seal(message, turn, stream, into: slot)
    } catch {
      byteCount = begin
      throw error
    }
  }

  private func seal(
    _ message: UnsafeRawBufferPointer, _ turn: BulkTurns.Turn, _ stream: OutgoingStream, into slot: Slot?
  ) throws {
    if turn.isFirst {
      appendHeader(turn.stream, length: BulkFrame.streamHeaderByteCount)
      append(BulkFrame.streamHeaderByteCount) { $0.copyBytes(from: stream.header) }
    }
    let length = message.count + BulkFrame.overheadByteCount
    appendHeader(turn.stream, length: length, isInSlot: slot != nil)
    if let slot {
      stream.state.seal(
        message, isLast: turn.isLast, into: slot.bytes(length),
        through: UnsafeMutableRawBufferPointer(rebasing: output[(output.count - length)...]), cipher)
      slotMessageCount += 1
    } else {
      append(length) {
        stream.state.seal(message, isLast: turn.isLast, into: $0, through: nil, cipher)
      }
    }
  }

  private func appendHeader(_ stream: UInt32, length: Int, isInSlot: Bool = false) {
    append(BulkFrame.headerByteCount) {
      BulkFrame.writeHeader(stream: stream, length: length, isInSlot: isInSlot, to: $0)
    }
  }

  private func append(_ count: Int, _ write: (UnsafeMutableRawBufferPointer) throws -> Void) rethrows {
    try write(UnsafeMutableRawBufferPointer(rebasing: output[byteCount..<byteCount + count]))
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
    state = header.withUnsafeBytes { BulkStreamState(key: outgoing.key, header: $0) }
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

extension UnixConnection {
  /// All bytes, the descriptors with the first.
  fileprivate func send(
    _ bytes: [UInt8], descriptors: borrowing DescriptorList
  ) throws(SocketError) {
    try bytes.withUnsafeBufferPointer { bytes throws(SocketError) in
      try send(UnsafeRawBufferPointer(bytes), descriptors: descriptors, deadline: nil)
    }
  }
}
