import ServiceWire
import SodiumPrimitives
import UnixSockets

extension BulkLane {
  /// A frame of a stream whose header was accepted.
  private struct Frame {
    let stream: UInt32
    let blockByteCount: Int
    let contentsByteCount: Int
    let isFirst: Bool
    let isSkipped: Bool
    /// The slot that the contents are in.
    let slot: BulkContents.Slot?
  }

  /// Runs the receiving thread: reads one frame after another, opens its block, and calls the sink.
  func receiveStreams() {
    do throws(BulkFault) {
      let end = try state.withLock { state throws(BulkFault) in
        if let fault = state.fault { throw fault }
        return state.end
      }
      guard let end else { return }
      let reader = BulkReader(end, takesMemory: slotCountMax > 0)
      while true {
        switch try reader.next(within: idleTime) {
        case .header(let header): try take(header, reader)
        case .idle: if endReceiving() { return }
        case .ended: throw endBetweenFrames()
        }
      }
    } catch {
      fail(error)
    }
  }

  /// Lets the thread end, unless a stream is awaited or the peer reads slots.
  private func endReceiving() -> Bool {
    state.withLock { state in
      guard state.reception.isIdle, state.sending.slots == nil || state.outgoing.isEmpty else {
        return false
      }
      state.isReceiving = false
      return true
    }
  }

  private func endBetweenFrames() -> BulkFault {
    state.withLock { $0.reception.isIdle && $0.outgoing.isEmpty }
      ? BulkFault(.noError, "the peer closed the bulk lane")
      : BulkFault(.connectionLost, "the peer closed the bulk lane while streams were under way")
  }

  private func take(_ header: BulkFrame.Header, _ reader: BulkReader) throws(BulkFault) {
    switch header {
    case .memory(let slotCount): try takeMemory(slotCount: slotCount, reader)
    case .slotsRead(let count): try free(count)
    case .unknown(let kind): throw BulkFault(.streamDamaged, "a frame of the lane of kind \(kind)")
    case .stream(let stream, let block, let contents, let isInSlot):
      let frame = try state.withLock { state throws(BulkFault) in
        let accepted = try state.reception.begin(
          stream, block: block, contents: contents, isInSlot: isInSlot)
        var slot: BulkContents.Slot?
        if isInSlot {
          guard let memory = state.receiving?.reader, let number = try state.receiving?.slots.take() else {
            throw BulkFault(.streamDamaged, "contents of stream \(stream) in a slot that is not there")
          }
          slot = BulkContents.Slot(number: number, memory: memory)
        }
        return Frame(
          stream: stream, blockByteCount: Int(block), contentsByteCount: Int(contents),
          isFirst: accepted.isFirst, isSkipped: accepted.isSkipped, slot: slot)
      }
      try take(frame, reader)
    }
  }

  /// Takes memory that the peer gives to this side.
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
      state.receiving = TakenBulkMemory(reader: memory, slots: BulkTakenSlots(count: Int(slotCount)))
    }
  }

  /// Counts slots of this side's memory that the peer has read.
  private func free(_ count: UInt32) throws(BulkFault) {
    var fault: BulkFault?
    change { state in
      do throws(BulkFault) {
        guard try state.sending.slots?.free(count) != nil else {
          throw BulkFault(.streamDamaged, "slots were read that are not there")
        }
      } catch { fault = error }
    }
    if let fault { throw fault }
  }

  private func take(_ frame: Frame, _ reader: BulkReader) throws(BulkFault) {
    let sealed = try reader.take(frame.blockByteCount)
    // Asked for only now: it may have been stopped since the frame began.
    guard !frame.isSkipped, let incoming = state.withLock({ $0.incoming[frame.stream] }) else {
      if let slot = frame.slot {
        release(slot.number, tellsAtOnce: true)
      } else {
        try reader.skip(frame.contentsByteCount)
      }
      return
    }
    let (isLast, error) = try give(frame, sealed, to: incoming, reader)
    if isLast || error != nil { finish(frame.stream, isLast: isLast, error) }
  }

  /// Calls the sink with a frame; returns what it threw. The contents are gone by then, unless the
  /// sink keeps them.
  private func give(
    _ frame: Frame, _ sealed: UnsafeRawBufferPointer, to incoming: IncomingBulkStream, _ reader: BulkReader
  ) throws(BulkFault) -> (isLast: Bool, error: (any Error)?) {
    let block: UnsafeRawBufferPointer
    let tag: SecretStreamTag?
    do throws(CryptoError) {
      (block, tag) = try incoming.open(sealed, isFirst: frame.isFirst, reader.cipher)
    } catch {
      throw BulkFault(.streamDamaged, "a block of stream \(frame.stream): \(error)")
    }
    // It has keys, and is in memory that this thread's cipher owns.
    defer { wipe(UnsafeMutableRawBufferPointer(mutating: block)) }
    guard tag == .message || tag == .final else {
      throw BulkFault(.streamDamaged, "a block of stream \(frame.stream) with another tag")
    }
    let contents = BulkContents(byteCount: frame.contentsByteCount, try place(of: frame, reader))
    do {
      try incoming.sink.receive(block, contents, isLast: tag == .final)
      return (tag == .final, nil)
    } catch {
      return (tag == .final, error)
    }
  }

  private func place(of frame: Frame, _ reader: BulkReader) throws(BulkFault) -> BulkContents.Place {
    if let slot = frame.slot { return .slot(slot, self) }
    let count = frame.contentsByteCount
    guard count > 0 else { return .nowhere }
    let memory = reader.pool.take(count)
    try reader.read(into: UnsafeMutableRawBufferPointer(rebasing: memory.bytes[..<count]))
    return .memory(memory, of: reader.pool)
  }

  private func finish(_ stream: UInt32, isLast: Bool, _ error: (any Error)?) {
    let (ended, isUntold) = state.withLock { state in
      if isLast { state.reception.end(stream) } else { state.reception.stop(stream) }
      let isUntold = state.receiving.map { $0.slots.untoldCount > 0 } ?? false
      return (state.incoming.removeValue(forKey: stream), isUntold)
    }
    if isUntold { tellSlotsRead() }
    if ended != nil { events.received(stream, error) }
  }
}

// MARK: Slots that were read

extension BulkLane {
  /// Frees a slot of the peer's memory: nobody reads it any more. Tells the peer, at the latest of
  /// a quarter of the slots. Does nothing when the lane is closed. Any thread.
  func release(_ slot: Int, tellsAtOnce: Bool = false) {
    let tells = state.withLock { state in
      state.receiving?.slots.release(slot)
      guard let slots = state.receiving?.slots, slots.untoldCount > 0 else { return false }
      // Without a stream, nothing comes that would tell the rest.
      return tellsAtOnce || slots.untoldCount >= max(1, slots.count / 4) || state.reception.isIdle
    }
    if tells { tellSlotsRead() }
  }

  /// Tells the peer which slots were read: at once, unless the socket is in use or full; then the
  /// sending thread does it. So neither the receiving thread nor an owner of contents waits for a
  /// peer to read, whose own receiving thread might wait for this one.
  private func tellSlotsRead() {
    let wasTold = writing.withLockIfFree { _ in
      guard let end = state.withLock({ $0.end }), let count = takeUntold() else { return true }
      return BulkFrame.Header.slotsRead(count).bytes.withUnsafeBytes { bytes in
        guard let sent = try? end.connection.sendIfReady(bytes) else {
          state.withLock { $0.receiving?.slots.untell(count) }
          return false
        }
        // So few bytes go together or not at all; if not, the lane is of no further use.
        if sent < bytes.count { end.connection.shutdown() }
        return true
      }
    }
    guard wasTold != true else { return }
    change { state in
      state.receiving?.isOwed = true
      startSending(&state)
    }
  }

  /// The slots that the peer has to be told of, which count as told. To be called while `writing`
  /// is held.
  func takeUntold() -> UInt32? {
    state.withLock { state in
      state.receiving?.isOwed = false
      return state.receiving?.slots.tell()
    }
  }
}
