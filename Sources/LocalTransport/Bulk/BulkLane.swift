import Dispatch
package import Foundation
import Locks
package import ServiceWire
import SodiumPrimitives
import UnixSockets

/// What a stream of a bulk lane is read from.
package protocol BulkSource: AnyObject, Sendable {
  /// The plaintext that comes next: at least one byte, 0 at the end. The buffer has room for ``BulkLane/readByteCount`` bytes. Called on
  /// the lane's sending thread, which may block here; other streams wait meanwhile.
  func read(into buffer: UnsafeMutableRawBufferPointer) throws -> Int
}

/// What a stream of a bulk lane is given to.
package protocol BulkSink: AnyObject, Sendable {
  /// What came next, authentic, in order; it is valid during the call. Called on the lane's receiving thread, which may block here:
  /// that is the flow control of the whole lane. It must not wait for what this lane sends: that may wait for slots, of which this thread hears.
  func receive(_ plaintext: UnsafeRawBufferPointer) throws
}

/// What a bulk lane tells its owner, on its threads.
package struct BulkEvents: Sendable {
  /// The stream's last frame was written, or the source threw: then the stream ended without its last frame.
  package var sent: @Sendable (_ stream: UInt32, (any Error)?) -> Void
  /// The sink was given all of the stream, or threw: then what still comes of it is skipped.
  package var received: @Sendable (_ stream: UInt32, (any Error)?) -> Void
  /// The lane is closed and tells nothing more, also not of the streams that were under way: `streamDamaged` or `limitExceeded` for what
  /// came, `connectionLost` or `noError` when the peer closed while streams were under way or none.
  package var failed: @Sendable (ProtocolFault, String) -> Void

  package init(
    sent: @escaping @Sendable (_ stream: UInt32, (any Error)?) -> Void,
    received: @escaping @Sendable (_ stream: UInt32, (any Error)?) -> Void,
    failed: @escaping @Sendable (ProtocolFault, String) -> Void
  ) {
    self.sent = sent
    self.received = received
    self.failed = failed
  }
}

/// Why a stream was not sent to its end.
package enum BulkSourceError: Error, Equatable, Sendable {
  /// The source ended before the announced count.
  case tooShort(byteCount: UInt64, announced: UInt64)
  /// The source gave more than the announced count.
  case tooLong(announced: UInt64)
}

/// Sealed streams of bytes over a Unix stream socket, in both directions (SERVICE-PROTOCOL.md, "The bulk lane"). What a stream is for, and who
/// is at the other end, it does not know: keys and numbers come over the control lane.
///
/// One thread sends and one receives, with blocking calls; each begins with the first stream of its direction and ends some time after
/// the last. They hold the lane while they run. Every call here returns at once; an event that has begun is not waited for.
package final class BulkLane: Sendable {
  /// The room that a source is given at least.
  package static let readByteCount = 1 << 20
  /// The slots of shared memory that a lane takes from its peer unless told otherwise; 0 where the system has no such memory.
  package static let slotCountMax = SharedMemory.isAvailable ? 32 : 0
  /// Plaintext bytes of a stream that is worth memory.
  static let sharedByteCountMin: UInt64 = 1 << 20

  struct State {
    /// Nil once the lane is closed.
    var end: End?
    var turns = BulkTurns()
    var reception = BulkReception()
    var outgoing: [UInt32: Outgoing] = [:]
    var incoming: [UInt32: Incoming] = [:]
    /// What the sending thread has to report before anything else.
    var fault: BulkFault?
    var isSending = false
    var isReceiving = false
    /// The sending thread waits for `changed`.
    var isWaiting = false
    /// Of the memory that this side writes.
    var sending = SendingMemory()
    /// The memory that the peer writes.
    var receiving: ReceivingMemory?
  }

  /// The memory that the peer's messages come in.
  struct ReceivingMemory {
    let reader: SharedMemory.Reader
    let slotCount: Int
    /// Slots that were read, and how many of them the peer was told of.
    var readCount: UInt64 = 0
    var toldCount: UInt64 = 0
    /// The sending thread has to tell it.
    var isOwed = false
  }

  /// The memory that messages are sent in.
  struct SendingMemory {
    /// What the peer takes at most.
    var slotCountMax = 0
    /// The next turn begins with making it.
    var isWanted = false
    var slots: BulkSlots?
    /// Nil until there are slots.
    var memory: SharedMemory?
  }

  /// The socket, closed when the lane and both threads have let go of it.
  final class End: Sendable {
    let connection: UnixConnection

    init(_ connection: consuming UnixConnection) { self.connection = connection }
  }

  final class Outgoing: Sendable {
    let key: Data
    let byteCount: UInt64
    let source: any BulkSource

    init(key: Data, byteCount: UInt64, source: any BulkSource) {
      self.key = key
      self.byteCount = byteCount
      self.source = source
    }
  }

  final class Incoming: Sendable {
    let key: Data
    let sink: any BulkSink

    init(key: Data, sink: any BulkSink) {
      self.key = key
      self.sink = sink
    }
  }

  let events: BulkEvents
  let idleTime: Duration
  /// The slots of shared memory that this lane takes at most, as the peer knows.
  let slotCountMax: Int
  private let sharedByteCountMin: UInt64
  let state: Guarded<State>
  /// Signalled for the sending thread when it waits.
  let changed = DispatchSemaphore(value: 0)
  /// Held by the thread that writes to the socket. (What has no bytes would have the address of something else.)
  let writing = Guarded<UInt8>(0)

  /// Takes over a connected Unix stream socket. With anything else, the lane is closed from the beginning, and `failed` says so when the
  /// first stream is begun. A thread without work ends after `idleTime`. Memory of more than `slotCountMax` slots that the peer shares fails the lane.
  package convenience init(
    descriptor: Int32, events: BulkEvents, slotCountMax: Int = BulkLane.slotCountMax,
    idleTime: Duration = .seconds(10)
  ) {
    self.init(
      descriptor: descriptor, events: events, slotCountMax: slotCountMax,
      sharedByteCountMin: Self.sharedByteCountMin, idleTime: idleTime)
  }

  init(
    descriptor: Int32, events: BulkEvents, slotCountMax: Int, sharedByteCountMin: UInt64, idleTime: Duration
  ) {
    self.events = events
    self.slotCountMax = slotCountMax
    self.sharedByteCountMin = sharedByteCountMin
    self.idleTime = idleTime
    var state = State()
    do throws(SocketError) {
      state.end = End(try UnixConnection.adopting(descriptor))
    } catch {
      state.fault = BulkFault(.connectionLost, error.what)
    }
    self.state = Guarded(state)
  }

  // MARK: Sending

  /// Sends `byteCount` bytes of the source, one frame in turn with those of other streams, within the credit: counts are of plaintext, since the
  /// stream began. The number, the key of 32 bytes and the credit are the receiver's; when the number is in use or the key is no key, the lane fails
  /// with `malformed`. Does nothing on a closed lane.
  package func send(
    stream: UInt32, key: Data, byteCount: UInt64, credit: UInt64, from source: any BulkSource
  ) {
    precondition(byteCount > 0, "a stream of no bytes does not exist")
    change { state in
      if key.count != BulkFrame.keyByteCount {
        state.fault = BulkFault(.malformed, "the key of stream \(stream) has \(key.count) bytes")
      } else if state.outgoing[stream] != nil {
        state.fault = BulkFault(.malformed, "stream \(stream) was asked for twice")
      } else {
        state.outgoing[stream] = Outgoing(key: key, byteCount: byteCount, source: source)
        state.turns.begin(stream, byteCount: byteCount, credit: credit)
        if state.sending.slots != nil {
          startReceiving(&state)
        } else if byteCount >= sharedByteCountMin, state.sending.slotCountMax > 0 {
          state.sending.isWanted = true
        }
      }
      startSending(&state)
    }
  }

  /// The peer takes messages in so many slots of shared memory, as it said. Does nothing on a closed lane.
  package func allowSlots(_ count: Int) {
    change { $0.sending.slotCountMax = min(count, Self.slotCountMax) }
  }

  /// Never lowers the credit. Does nothing for a stream that is not under way.
  package func raiseCredit(_ stream: UInt32, to total: UInt64) {
    change { $0.turns.raiseCredit(stream, to: total) }
  }

  /// The stream ends where it is. The source may be read once more, and frames that are sealed already still go. No `sent` follows, unless it
  /// has begun. Does nothing for a stream that is not under way.
  package func stopSending(_ stream: UInt32) {
    // Its end may be the caller's business: not within the lock.
    let ended = state.withLock { state in
      state.turns.stop(stream)
      return state.outgoing.removeValue(forKey: stream)
    }
    withExtendedLifetime(ended) {}
  }

  /// Changes the state of a lane that is open, and wakes the sending thread.
  func change(_ body: (inout State) -> Void) {
    let isWaiting = state.withLock { state in
      guard state.end != nil || state.fault != nil else { return false }
      body(&state)
      defer { state.isWaiting = false }
      return state.isWaiting
    }
    if isWaiting { changed.signal() }
  }

  // MARK: Receiving

  /// Takes a stream of `byteCount` bytes under a number that is not in use on this lane and never was, and gives it to the sink. To be called
  /// before the peer hears of it. Counts are of plaintext; a frame beyond the credit fails the lane with `limitExceeded`. Does nothing on a
  /// closed lane.
  package func expect(stream: UInt32, key: Data, byteCount: UInt64, credit: UInt64, sink: any BulkSink) {
    precondition(key.count == BulkFrame.keyByteCount, "a key has \(BulkFrame.keyByteCount) bytes")
    change { state in
      state.reception.expect(stream, byteCount: byteCount, credit: credit)
      state.incoming[stream] = Incoming(key: key, sink: sink)
      startReceiving(&state)
    }
  }

  /// Never lowers the credit. Does nothing for a stream that is not under way.
  package func raiseReceivingCredit(_ stream: UInt32, to total: UInt64) {
    state.withLock { $0.reception.raiseCredit(stream, to: total) }
  }

  /// What still comes of the stream is skipped. A call of the sink that has begun goes on; no `received` follows, unless it has begun. Does nothing
  /// for a stream that is not under way.
  package func stopReceiving(_ stream: UInt32) {
    let ended = state.withLock { state in
      state.reception.stop(stream)
      return state.incoming.removeValue(forKey: stream)
    }
    withExtendedLifetime(ended) {}
  }

  // MARK: The end

  /// Ends the lane at once, wherever its threads wait; the socket is closed when they have ended. No event follows, unless it has
  /// begun. Does nothing the second time.
  package func close() { _ = end() }

  /// Ends the lane, and tells its owner when it had not ended before.
  func fail(_ fault: BulkFault) {
    if end() { events.failed(fault.fault, fault.detail) }
  }

  /// False when it had ended before.
  private func end() -> Bool {
    let last = state.withLock { state in
      let last = state
      state = State()
      state.isSending = last.isSending
      state.isReceiving = last.isReceiving
      return last
    }
    last.end?.connection.shutdown()
    if last.isWaiting { changed.signal() }
    return last.end != nil || last.fault != nil
  }

  /// Whether each of the two threads runs, for tests.
  var isRunning: (sending: Bool, receiving: Bool) { state.withLock { ($0.isSending, $0.isReceiving) } }

  func startSending(_ state: inout State) {
    guard !state.isSending else { return }
    state.isSending = true
    startThread("bulk sending") { $0.sendStreams() }
  }

  func startReceiving(_ state: inout State) {
    guard !state.isReceiving else { return }
    state.isReceiving = true
    startThread("bulk receiving") { $0.receiveStreams() }
  }

  private func startThread(_ name: String, _ body: @escaping @Sendable (BulkLane) -> Void) {
    do throws(SocketError) {
      try DetachedThread.start(name) { body(self) }
    } catch {
      // Not within the change that wanted the thread.
      let detail = "\(error)"
      DispatchQueue.global().async { self.fail(BulkFault(.connectionLost, detail)) }
    }
  }
}
