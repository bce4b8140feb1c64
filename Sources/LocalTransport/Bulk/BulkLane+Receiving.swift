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
        default:
          try takeFrames(reader)
          try reader.requireNoDescriptor()
        }
      }
    } catch {
      fail(error)
    }
  }

  /// Nil when nothing came for the idle time, 0 at the end.
  private func read(_ reader: BulkReader, from end: End) throws(BulkFault) -> Int? {
    do throws(SocketError) {
      return try reader.read(
        end.connection, descriptorsMax: slotCountMax > 0 ? 1 : 0, deadline: .now + idleTime)
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
      guard state.reception.isIdle, state.sending.slots == nil || state.outgoing.isEmpty else {
        return false
      }
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
        if header.stream == BulkFrame.laneNumber {
          reader.frame = try BulkReader.Frame(ofLane: header.length, isInSlot: header.isInSlot)
        } else {
          let body = try state.withLock { state throws(BulkFault) in
            try state.reception.begin(
              stream: header.stream, length: header.length, isInSlot: header.isInSlot)
          }
          let frame = BulkReader.Frame(
            stream: header.stream, byteCount: Int(header.length), body: .ofStream(body))
          if header.isInSlot {
            try takeSlot(frame, body, reader)
            continue
          }
          reader.frame = frame
        }
      }
      guard let (frame, bytes) = reader.takeBody() else { return }
      switch frame.body {
      case .memory: try takeMemory(slotCount: BulkFrame.readMemory(bytes), reader)
      case .freed: try freed(BulkFrame.readFreed(bytes))
      case .ofStream(let body): try take(frame, body, bytes, reader)
      }
    }
  }

  /// The peer has given memory to this side.
  private func takeMemory(slotCount: UInt32, _ reader: BulkReader) throws(BulkFault) {
    guard let descriptor = reader.takeDescriptor() else {
      throw BulkFault(.malformed, "shared memory without a descriptor")
    }
    guard slotCount > 0, slotCount <= slotCountMax else {
      throw BulkFault(.limitExceeded, "shared memory of \(slotCount) slots")
    }
    let memory = SharedMemory.Reader(descriptor, byteCount: Int(slotCount) * BulkSlots.byteCount)
    guard let memory else { throw BulkFault(.malformed, "a descriptor that is no shared memory") }
    try state.withLock { state throws(BulkFault) in
      guard state.receiving == nil else { throw BulkFault(.unexpectedMessage, "shared memory twice") }
      state.receiving = ReceivingMemory(reader: memory, slotCount: Int(slotCount))
    }
  }

  /// The peer is done with slots of this side's.
  private func freed(_ total: UInt64) throws(BulkFault) {
    var fault: BulkFault?
    change { state in
      do throws(BulkFault) {
        guard try state.sending.slots?.free(total) != nil else {
          throw BulkFault(.streamDamaged, "slots were freed that are not there")
        }
      } catch { fault = error }
    }
    if let fault { throw fault }
  }

  /// Copies the body out of its slot: what the peer does to the memory from now on makes no difference.
  private func takeSlot(
    _ frame: BulkReader.Frame, _ body: BulkReception.Body, _ reader: BulkReader
  ) throws(BulkFault) {
    guard let memory = state.withLock({ $0.receiving }) else {
      throw BulkFault(.streamDamaged, "a frame of stream \(frame.stream) in a slot that is not there")
    }
    let slot = Int(memory.readCount % UInt64(memory.slotCount))
    let bytes = try reader.copy(frame.byteCount, from: memory.reader, at: slot * BulkSlots.byteCount)
    let untoldCount = state.withLock { state in
      state.receiving?.readCount += 1
      return memory.readCount + 1 - memory.toldCount
    }
    // Told of some at once, and of all at a stream's end.
    if untoldCount >= max(1, memory.slotCount / 4) || body == .message(isLast: true) { tellFreed() }
    try take(frame, body, bytes, reader)
  }

  private func take(
    _ frame: BulkReader.Frame, _ body: BulkReception.Body, _ bytes: UnsafeRawBufferPointer,
    _ reader: BulkReader
  ) throws(BulkFault) {
    let stream = frame.stream
    // Asked for only now: it may have been stopped since the frame began.
    guard body != .skipped, let incoming = state.withLock({ $0.incoming[stream] }) else {
      reader.forget(stream)
      return
    }
    guard case .message(let isLast) = body else {
      reader.begin(stream, key: incoming.key, header: bytes)
      return
    }
    var end: Result<Void, any Error>?
    try reader.open(bytes, of: stream, isLast: isLast) { plaintext in
      do {
        try incoming.sink.receive(plaintext)
        if isLast { end = .success(()) }
      } catch {
        end = .failure(error)
      }
    }
    switch end {
    case .success: finish(stream, nil, reader)
    case .failure(let error): finish(stream, error, reader)
    case nil: break
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
    enum Body: Equatable {
      case ofStream(BulkReception.Body)
      /// Of the lane: memory of the peer's, with a descriptor.
      case memory
      /// Of the lane: slots of this side's memory that the peer has read.
      case freed
    }

    let stream: UInt32
    let byteCount: Int
    let body: Body

    init(stream: UInt32, byteCount: Int, body: Body) {
      (self.stream, self.byteCount, self.body) = (stream, byteCount, body)
    }

    init(ofLane length: UInt32, isInSlot: Bool) throws(BulkFault) {
      let body: Body? =
        switch Int(length) {
        case BulkFrame.memoryByteCount: .memory
        case BulkFrame.freedByteCount: .freed
        default: nil
        }
      guard let body, !isInSlot else {
        throw BulkFault(.streamDamaged, "a frame of the lane of \(length) bytes")
      }
      self.init(stream: BulkFrame.laneNumber, byteCount: Int(length), body: body)
    }
  }

  private let cipher = SecretStreamCipher()
  private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: byteCountMax, alignment: 4096)
  /// A message out of a slot.
  private let message = UnsafeMutableRawBufferPointer.allocate(
    byteCount: BulkSlots.byteCount, alignment: 4096)
  private var filled = 0..<0
  /// That came, and belong to a frame that was not read yet.
  private var descriptors = DescriptorList()
  /// Those that have begun.
  private var openings: [UInt32: BulkStreamState] = [:]
  var frame: Frame?

  deinit {
    buffer.deallocate()
    message.deallocate()
  }

  /// Between two frames.
  var isEmpty: Bool { filled.isEmpty && frame == nil }

  // MARK: Bytes

  /// Reads what has come, one byte at least; 0 at the end.
  func read(
    _ connection: borrowing UnixConnection, descriptorsMax: Int, deadline: ContinuousClock.Instant
  ) throws(SocketError) -> Int {
    if filled.isEmpty {
      filled = 0..<0
    } else if buffer.count - filled.upperBound < BulkFrame.byteCountMax {
      buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: buffer[filled]))
      filled = 0..<filled.count
    }
    let room = UnsafeMutableRawBufferPointer(rebasing: buffer[filled.upperBound...])
    var received = try connection.receive(
      into: room, descriptorsMax: descriptorsMax - descriptors.count, deadline: deadline)
    while let descriptor = received.descriptors.popFirst() { descriptors.append(descriptor) }
    filled = filled.lowerBound..<filled.upperBound + received.byteCount
    return received.byteCount
  }

  /// What the next frame begins with, when it is there.
  func takeHeader() -> BulkFrame.Header? {
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

  /// The descriptor that came with the frame that was read last.
  func takeDescriptor() -> Descriptor? { descriptors.popFirst() }

  /// One that came belongs to a frame of which something is missing.
  func requireNoDescriptor() throws(BulkFault) {
    guard descriptors.isEmpty || !isEmpty else {
      throw BulkFault(.unexpectedDescriptors, "a descriptor on the bulk lane, without its frame")
    }
  }

  // MARK: Streams

  /// A message out of a slot, valid until the next one.
  func copy(
    _ count: Int, from memory: borrowing SharedMemory.Reader, at offset: Int
  ) throws(BulkFault) -> UnsafeRawBufferPointer {
    let target = UnsafeMutableRawBufferPointer(rebasing: message[0..<count])
    do throws(SocketError) {
      try memory.read(at: offset, into: target)
    } catch {
      throw BulkFault(.streamDamaged, "shared memory: \(error.what)")
    }
    return UnsafeRawBufferPointer(target)
  }

  func begin(_ stream: UInt32, key: Data, header: UnsafeRawBufferPointer) {
    openings[stream] = BulkStreamState(key: key, header: header)
  }

  /// Calls `body` with the plaintext of the stream's next message.
  func open(
    _ message: UnsafeRawBufferPointer, of stream: UInt32, isLast: Bool,
    _ body: (UnsafeRawBufferPointer) -> Void
  ) throws(BulkFault) {
    guard let opening = openings[stream] else {
      throw BulkFault(.streamDamaged, "a message of stream \(stream) before its header")
    }
    var endsHere = isLast
    do {
      try opening.open(message, cipher) { plaintext, isTaggedAsLast in
        endsHere = isTaggedAsLast
        if isTaggedAsLast == isLast { body(plaintext) }
      }
    } catch {
      throw BulkFault(.streamDamaged, "a message of stream \(stream): \(error)")
    }
    guard endsHere == isLast else {
      throw BulkFault(.streamDamaged, "stream \(stream) ends where its announced count does not")
    }
  }

  func forget(_ stream: UInt32) { openings[stream] = nil }
}
