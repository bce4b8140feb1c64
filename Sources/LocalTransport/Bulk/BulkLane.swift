import Dispatch
package import Foundation
import Locks
package import ServiceWire
import SodiumPrimitives
import UnixSockets

/// Source of the frames of a stream.
package protocol BulkSource: AnyObject, Sendable {
  /// Makes the next frame: `block` has room for ``BulkFrame/blockByteCountMax`` bytes and `contents`
  /// for ``BulkFrame/contentsByteCountMax``, or ``BulkLane/socketContentsByteCountMax`` where they go
  /// over the socket; both are filled from the beginning. Called
  /// on the lane's sending thread, which may block here; other streams wait meanwhile. `contents`
  /// may be memory that another process reads. Both may be zero or have anything else in them, and
  /// are not to be kept.
  ///
  /// Whatever it throws ends the stream without a last frame.
  func next(
    block: UnsafeMutableRawBufferPointer, contents: UnsafeMutableRawBufferPointer
  ) throws -> BulkPart
}

/// The extent of a frame that a source has made.
package struct BulkPart: Sendable, Equatable {
  /// ``BulkFrame/blockByteCountMin`` to ``BulkFrame/blockByteCountMax``.
  package var blockByteCount: Int
  /// 0 to ``BulkFrame/contentsByteCountMax``.
  package var contentsByteCount: Int
  /// The last frame of the stream: its block is tagged FINAL.
  package var isLast: Bool

  package init(blockByteCount: Int, contentsByteCount: Int, isLast: Bool) {
    self.blockByteCount = blockByteCount
    self.contentsByteCount = contentsByteCount
    self.isLast = isLast
  }
}

/// Receiver of the frames of a stream.
package protocol BulkSink: AnyObject, Sendable {
  /// Takes the next frame, in order. `block` is its opened block, authentic and valid during the
  /// call; `contents` are not authenticated, and live as long as somebody holds them. Called on the
  /// lane's receiving thread, which may block here: that is the flow control of the whole lane.
  ///
  /// It must not wait for what this lane sends: that may wait for slots, which this thread learns
  /// of. Whatever it throws ends the stream; what still comes of it is skipped.
  func receive(_ block: UnsafeRawBufferPointer, _ contents: BulkContents, isLast: Bool) throws
}

/// Reports of a bulk lane to its owner, on the lane's threads.
package struct BulkEvents: Sendable {
  /// The stream's last frame was written, or the source threw: then the stream ended without its
  /// last frame.
  package var sent: @Sendable (_ stream: UInt32, (any Error)?) -> Void
  /// The sink was given all of the stream, or threw: then what still comes of it is skipped.
  package var received: @Sendable (_ stream: UInt32, (any Error)?) -> Void
  /// The lane is closed and reports nothing more, also not the end of the streams that were under
  /// way. `connectionLost` or `noError`: the peer closed while streams were under way or none. Any
  /// other fault is what the peer did wrong.
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

/// Streams of frames over a Unix stream socket, in both directions (DELIVERY-PROTOCOL.md, "The bulk
/// lane"). A frame is a block, which the lane seals, and contents, which it carries as they are.
/// What a stream is for, and who is at the other end, the lane does not know: keys and numbers come
/// over the control lane.
///
/// One thread sends and one receives, with blocking calls; each begins with the first stream of its
/// direction and ends some time after the last. They hold the lane while they run, and so do
/// contents in slots. Every call here returns at once; an event that has begun is not waited for.
package final class BulkLane: Sendable {
  /// The slots of shared memory that a lane takes from its peer unless it is told otherwise; 0
  /// where the system has no such memory.
  package static let slotCountMax = SharedMemory.isAvailable ? 4 : 0
  /// The contents of a frame that goes over the socket at most: 16 full stored segments. They pass
  /// through memory of each lane.
  package static let socketContentsByteCountMax = BulkFrame.contentsByteCountMax / 4
  /// Bytes of a stream that is worth memory.
  static let sharedByteCountMin: UInt64 = 1 << 20

  /// How long memory that was given is kept for its taker when the lane has ended.
  private static let lingerTime: DispatchTimeInterval = .seconds(2)

  struct State {
    /// Nil once the lane is closed.
    var end: End?
    var turns = BulkTurns()
    var reception = BulkReception()
    var outgoing: [UInt32: OutgoingBulkStream] = [:]
    var incoming: [UInt32: IncomingBulkStream] = [:]
    /// The fault that the next thread to run reports before anything else.
    var fault: BulkFault?
    var isSending = false
    var isReceiving = false
    /// The sending thread waits for `changed`.
    var isWaiting = false
    var sending = SentBulkMemory()
    var receiving: TakenBulkMemory?
  }

  /// The socket, closed when the lane and both threads have let go of it.
  final class End: Sendable {
    let connection: UnixConnection

    init(_ connection: consuming UnixConnection) { self.connection = connection }
  }

  let events: BulkEvents
  let idleTime: Duration
  /// The slots of shared memory that this lane takes at most, as the peer knows.
  let slotCountMax: Int
  private let sharedByteCountMin: UInt64
  let socketContentsByteCountMax: Int
  let budget: BulkSlotBudget
  let state: Guarded<State>
  /// Signalled for the sending thread when it waits.
  let changed = DispatchSemaphore(value: 0)
  /// Held by the thread that writes to the socket. (What has no bytes would have the address of
  /// something else.)
  let writing = Guarded<UInt8>(0)

  /// Takes over a connected Unix stream socket. With anything else, the lane is closed from the
  /// beginning, and `failed` says so when the first stream is begun. A thread without work ends
  /// after `idleTime`. Memory of more than `slotCountMax` slots that the peer shares fails the
  /// lane. `budget`: what it may give itself.
  package convenience init(
    descriptor: Int32, events: BulkEvents, slotCountMax: Int = BulkLane.slotCountMax,
    budget: BulkSlotBudget, idleTime: Duration = .seconds(10)
  ) {
    self.init(
      descriptor: descriptor, events: events, slotCountMax: slotCountMax, budget: budget,
      sharedByteCountMin: Self.sharedByteCountMin,
      socketContentsByteCountMax: Self.socketContentsByteCountMax, idleTime: idleTime)
  }

  init(
    descriptor: Int32, events: BulkEvents, slotCountMax: Int, budget: BulkSlotBudget,
    sharedByteCountMin: UInt64, socketContentsByteCountMax: Int, idleTime: Duration
  ) {
    self.events = events
    self.slotCountMax = slotCountMax
    self.sharedByteCountMin = sharedByteCountMin
    self.socketContentsByteCountMax = socketContentsByteCountMax
    self.budget = budget
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

  /// Sends the frames of the source, one in turn with those of other streams, within the credit: a
  /// number of frames since the stream began. `byteCount` is about how much it is, which decides
  /// whether shared memory is worth making. The number, the key of 32 bytes and the credit are the
  /// receiver's: when the number is in use or 0, or the key is no key, the lane fails with
  /// `malformed`. Does nothing on a closed lane.
  package func send(
    stream: UInt32, key: Data, byteCount: UInt64, credit: UInt64, from source: any BulkSource
  ) {
    change { state in
      if key.count != BulkFrame.keyByteCount {
        state.fault = BulkFault(.malformed, "the key of stream \(stream) has \(key.count) bytes")
      } else if stream == BulkFrame.laneNumber || state.outgoing[stream] != nil {
        state.fault = BulkFault(.malformed, "stream \(stream) was asked for, which is no new number")
      } else {
        state.outgoing[stream] = OutgoingBulkStream(key: key, source: source)
        state.turns.begin(stream, credit: credit)
        if state.sending.slots != nil {
          startReceiving(&state)
        } else if byteCount >= sharedByteCountMin, state.sending.slotCountMax > 0 {
          state.sending.isWanted = true
        }
      }
      startSending(&state)
    }
  }

  /// The peer takes contents in so many slots of shared memory, as it said. Does nothing on a
  /// closed lane.
  package func allowSlots(_ count: Int) {
    change { $0.sending.slotCountMax = min(count, Self.slotCountMax) }
  }

  /// Raises the number of frames that may be sent of the stream; never lowers it. Does nothing for
  /// a stream that is not under way.
  package func raiseCredit(_ stream: UInt32, to total: UInt64) {
    change { $0.turns.raiseCredit(stream, to: total) }
  }

  /// Ends the stream where it is. The source may be asked once more, and a frame that is sealed
  /// already still goes. No `sent` follows, unless it has begun. Does nothing for a stream that is
  /// not under way.
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

  /// Expects a stream under a number that was never in use on this lane, and gives its frames to
  /// the sink. To be called before the peer hears of it. The credit is a number of frames; one
  /// beyond it fails the lane with `limitExceeded`. Does nothing on a closed lane.
  package func expect(stream: UInt32, key: Data, credit: UInt64, sink: any BulkSink) {
    precondition(key.count == BulkFrame.keyByteCount, "a key has \(BulkFrame.keyByteCount) bytes")
    change { state in
      state.reception.expect(stream, credit: credit)
      state.incoming[stream] = IncomingBulkStream(key: key, sink: sink)
      startReceiving(&state)
    }
  }

  /// Raises the number of frames that may come of the stream; never lowers it. Does nothing for a
  /// stream that is not under way.
  package func raiseReceivingCredit(_ stream: UInt32, to total: UInt64) {
    state.withLock { $0.reception.raiseCredit(stream, to: total) }
  }

  /// Lets what still comes of the stream be skipped. A call of the sink that has begun goes on; no
  /// `received` follows, unless it has begun. Does nothing for a stream that is not under way.
  package func stopReceiving(_ stream: UInt32) {
    let ended = state.withLock { state in
      state.reception.stop(stream)
      return state.incoming.removeValue(forKey: stream)
    }
    withExtendedLifetime(ended) {}
  }

  // MARK: The end

  /// Ends the lane at once, wherever its threads wait; the socket is closed when they have ended.
  /// Contents that are held can still be read. No event follows, unless it has begun. Does nothing
  /// the second time.
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
    // The peer may be reading what was sent last; then the pages are given back.
    if let memory = last.sending.memory {
      DispatchQueue.global().asyncAfter(deadline: .now() + Self.lingerTime) {
        withExtendedLifetime(memory) {}
      }
    }
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
