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
  /// The next task of the sending thread.
  private enum Step {
    /// Sends a frame, with its contents in a slot when there is one.
    case frame(UInt32, OutgoingBulkStream, BulkWriter.Slot?)
    /// Makes memory of so many slots, for the peer.
    case share(slotCount: Int)
    /// Tells the peer which slots were read.
    case tellSlotsRead
    /// No stream has something to send and the credit for it.
    case wait(hasStreams: Bool)
    case fail(BulkFault)
    case end
  }

  /// Runs the sending thread: lets each source in turn make a frame, seals its block, and writes
  /// it.
  func sendStreams() {
    let writer = BulkWriter(contentsByteCount: socketContentsByteCountMax)
    var isOpen = true
    while isOpen {
      switch nextStep() {
      case .frame(let stream, let outgoing, let slot): isOpen = sendFrame(stream, outgoing, slot, writer)
      case .share(let slotCount): isOpen = share(slotCount)
      case .tellSlotsRead:
        isOpen = write { connection throws(SocketError) in
          guard let count = takeUntold() else { return }
          try connection.send(.slotsRead(count), descriptors: DescriptorList())
        }
      case .wait(let hasStreams): if !waitForChange(), !hasStreams, endSending() { return }
      case .fail(let fault): return fail(fault)
      case .end: return
      }
    }
  }

  private func nextStep() -> Step {
    state.withLock { state in
      if let fault = state.fault { return .fail(fault) }
      if state.end == nil { return .end }
      if state.receiving?.isOwed == true { return .tellSlotsRead }
      if state.sending.isWanted { return .share(slotCount: state.sending.slotCountMax) }
      let number = state.sending.slots?.next
      guard state.sending.slots == nil || number != nil, let stream = state.turns.next(),
        let outgoing = state.outgoing[stream]
      else {
        state.isWaiting = true
        return .wait(hasStreams: !state.turns.isEmpty)
      }
      state.isWaiting = false
      guard let number, let memory = state.sending.memory else { return .frame(stream, outgoing, nil) }
      return .frame(stream, outgoing, BulkWriter.Slot(memory: memory.memory, number: number))
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
  private func sendFrame(
    _ stream: UInt32, _ outgoing: OutgoingBulkStream, _ slot: BulkWriter.Slot?, _ writer: BulkWriter
  ) -> Bool {
    let part: BulkPart
    do {
      part = try writer.fill(from: outgoing.source, slot)
    } catch {
      reportSent(stream, outgoing, error)
      return true
    }
    let usesSlot = slot != nil && part.contentsByteCount > 0
    let isUnderWay = state.withLock { state in
      guard state.outgoing[stream] === outgoing else { return false }
      if usesSlot { state.sending.slots?.use() }
      return true
    }
    // One that was stopped meanwhile leaves the slot to the next frame.
    guard isUnderWay else {
      writer.wipeBlock()
      return true
    }
    let frame = writer.seal(part, stream, outgoing, usesSlot: usesSlot)
    guard write({ connection throws(SocketError) in try connection.write(frame, deadline: nil) }) else {
      return false
    }
    if part.isLast { reportSent(stream, outgoing, nil) }
    return true
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

  /// Gives the peer memory, when the budget and the system do. False when the lane has ended.
  private func share(_ slotCountMax: Int) -> Bool {
    let slotCount = budget.take(upTo: slotCountMax)
    guard slotCount > 0 else {
      state.withLock { $0.sending.isWanted = false }
      return true
    }
    let memory: GivenBulkMemory
    let descriptor: Descriptor
    do throws(SocketError) {
      let shared = try SharedMemory(byteCount: slotCount * BulkSlots.byteCount)
      descriptor = try shared.duplicateDescriptor()
      memory = GivenBulkMemory(shared, slotCount: slotCount, budget)
    } catch {
      budget.giveBack(slotCount)
      // Everything goes over the socket, then.
      state.withLock { $0.sending = SentBulkMemory() }
      return true
    }
    var descriptors = DescriptorList()
    descriptors.append(descriptor)
    var isOnItsWay = true
    guard
      write({ connection throws(SocketError) in
        do throws(SocketError) {
          try connection.send(.memory(slotCount: UInt32(slotCount)), descriptors: descriptors)
        } catch .callFailed(_, _, ETOOMANYREFS) {
          // Nothing was sent: too many descriptors of this user wait for their receivers.
          isOnItsWay = false
        }
      })
    else { return false }
    change { state in
      guard isOnItsWay else {
        state.sending = SentBulkMemory()
        return
      }
      state.sending.isWanted = false
      state.sending.slots = BulkSlots(count: slotCount)
      state.sending.memory = memory
      startReceiving(&state)
    }
    return true
  }

  private func reportSent(_ stream: UInt32, _ outgoing: OutgoingBulkStream, _ error: (any Error)?) {
    let isReported = state.withLock { state in
      guard state.outgoing[stream] === outgoing else { return false }
      state.turns.stop(stream)
      state.outgoing[stream] = nil
      return true
    }
    if isReported { events.sent(stream, error) }
  }
}

/// The memory that the sending thread makes a frame in.
private final class BulkWriter {
  /// One slot of shared memory.
  struct Slot {
    let memory: SharedMemory
    let number: Int

    /// The contents' place.
    var bytes: UnsafeMutableRawBufferPointer {
      let begin = number * BulkSlots.byteCount
      return UnsafeMutableRawBufferPointer(
        rebasing: memory.bytes[begin..<begin + BulkFrame.contentsByteCountMax])
    }
  }

  /// Room for header and sealed block, so that contents behind it begin with a page.
  private static let prefixByteCount = 16 << 10

  private let cipher = SecretStreamCipher()
  /// The opened block, which has keys: wiped as soon as it is sealed.
  private let block = UnsafeMutableRawBufferPointer.allocate(
    byteCount: BulkFrame.blockByteCountMax, alignment: 16)
  /// Header and sealed block at the end of the prefix, contents behind it: they go with one call.
  /// Where contents are in slots, the system gives no pages for them here.
  private let frame: UnsafeMutableRawBufferPointer

  init(contentsByteCount: Int) {
    frame = .allocate(byteCount: Self.prefixByteCount + contentsByteCount, alignment: 4096)
  }

  deinit {
    wipeBlock()
    block.deallocate()
    frame.deallocate()
  }

  func wipeBlock() { wipe(block) }

  /// Lets the source make a frame, with its contents in the slot or here.
  func fill(from source: any BulkSource, _ slot: Slot?) throws -> BulkPart {
    let contents =
      slot?.bytes ?? UnsafeMutableRawBufferPointer(rebasing: frame[Self.prefixByteCount...])
    let part: BulkPart
    do {
      part = try source.next(block: block, contents: contents)
    } catch {
      wipeBlock()
      throw error
    }
    // The memory of a slot stays mapped till here, also when the lane was closed.
    withExtendedLifetime(slot?.memory) {}
    precondition(
      BulkFrame.blockByteCountMin...BulkFrame.blockByteCountMax ~= part.blockByteCount
        && 0...contents.count ~= part.contentsByteCount, "a source keeps to the room that it was given")
    return part
  }

  /// The frame's bytes for the socket, valid until the next frame is filled.
  func seal(
    _ part: BulkPart, _ stream: UInt32, _ outgoing: OutgoingBulkStream, usesSlot: Bool
  ) -> UnsafeRawBufferPointer {
    let prefix = UnsafeMutableRawBufferPointer(rebasing: frame[..<Self.prefixByteCount])
    let plaintext = UnsafeRawBufferPointer(rebasing: block[..<part.blockByteCount])
    let sealedCount = outgoing.seal(plaintext, isLast: part.isLast, atEndOf: prefix, cipher)
    wipeBlock()
    let header = BulkFrame.Header.stream(
      stream, block: UInt32(sealedCount), contents: UInt32(part.contentsByteCount), isInSlot: usesSlot)
    let begin = prefix.count - sealedCount - BulkFrame.headerByteCount
    UnsafeMutableRawBufferPointer(rebasing: prefix[begin...]).copyBytes(from: header.bytes)
    return UnsafeRawBufferPointer(
      rebasing: frame[begin..<prefix.count + (usesSlot ? 0 : part.contentsByteCount)])
  }
}

extension UnixConnection {
  /// Sends a frame of the lane, the descriptors with its first byte.
  fileprivate func send(
    _ header: BulkFrame.Header, descriptors: borrowing DescriptorList
  ) throws(SocketError) {
    try header.bytes.withUnsafeBufferPointer { bytes throws(SocketError) in
      try send(UnsafeRawBufferPointer(bytes), descriptors: descriptors, deadline: nil)
    }
  }
}
