import ServiceWire
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// What a lane sends, and how it ends: a value under the lane's lock. Whoever sends seals and writes at once what the socket takes; the rest
/// waits for the lane's reader, which learns when there is room.
///
/// Frames wait as they are, and are sealed when they are written: so what comes meanwhile goes in as few records as there can be.
struct LaneOutput: ~Copyable {
  /// The owner of a socket, which is closed with it.
  final class Socket: Sendable {
    let connection: UnixConnection
    init(_ connection: consuming UnixConnection) { self.connection = connection }
  }

  enum Phase {
    case open
    /// Nothing is taken any more. The reader closes the socket when the peer has closed it, or at that time.
    case ending(LaneEnd, at: ContinuousClock.Instant)
  }

  private(set) var phase = Phase.open
  /// A write failed, for this reason: what the peer has said before is still read, and then the lane ends with it.
  private var broken: LaneEnd?
  /// Nil once the lane is closed. The reader has another reference, and gives it up before.
  private(set) var socket: Socket?
  /// Nil until the handshake is complete.
  private var cipher: RecordCipher?
  private let limits: LaneLimits
  /// The longest frame that the peer takes.
  var frameByteCountMax: Int

  private var frames = ByteQueue()
  /// Goes with what is sent next, or at that time.
  private var unhurried = (frames: [UInt8](), due: ContinuousClock.now)
  private var sealed = ByteQueue()
  /// Of the frames that are sealed.
  private var sealedFrameByteCount = 0
  /// Of frames that were sent and that the system did not take whole yet.
  private(set) var queuedByteCount = 0
  /// The socket has no room: since then, or since it last took something.
  private var blockedSince: ContinuousClock.Instant?
  /// The thread that is telling an event: what it sends is written after that, all at once.
  private var tellingThread: pthread_t?
  /// What the owner was told, and what it is to be told.
  private var isFull = (told: false, due: false)
  private var isAskedForRoom = false

  /// Of what is sealed and written at once: about what a socket takes.
  static var writeByteCountMax: Int { 128 << 10 }

  init(_ socket: Socket, _ limits: LaneLimits) {
    self.socket = socket
    self.limits = limits
    frameByteCountMax = limits.frameByteCountMax
  }

  var isOpen: Bool { if case .open = phase { true } else { false } }
  private var takesFrames: Bool { isOpen && broken == nil }
  var sealedByteCount: Int { sealed.count }

  // MARK: Sending

  /// True when the reader has something to do for it, and may be asleep: as for all that returns this.
  typealias IsReaderWanted = Bool

  /// When more would wait than may, the batch is dropped and the lane ends.
  mutating func send(_ batch: [UInt8]) -> IsReaderWanted {
    guard takesFrames, !batch.isEmpty else { return false }
    // The reader may be held up in an event: then nobody else writes what the peer has made room for.
    if blockedSince != nil, queuedByteCount > limits.queuedByteCountMax { writeAvailable() }
    guard queuedByteCount + batch.count <= limits.queuedByteCountMax * limits.queuedFactorMax else {
      return end(LaneEnd(.here, .tooSlow, "too much waits to be written"))
    }
    queuedByteCount += batch.count
    hurry()
    frames.append(batch)
    if isTelling, queuedByteCount < Self.writeByteCountMax { return false }
    return write()
  }

  /// For what nobody waits for, of the thread that is telling an event: elsewhere it is sent at once.
  mutating func sendUnhurried(_ batch: [UInt8]) -> IsReaderWanted {
    guard takesFrames, !batch.isEmpty, frames.isEmpty, isTelling,
      queuedByteCount + batch.count < Self.writeByteCountMax
    else { return send(batch) }
    queuedByteCount += batch.count
    if unhurried.frames.isEmpty { unhurried.due = .now + limits.unhurriedTime }
    unhurried.frames += batch
    return false
  }

  private mutating func hurry() {
    guard !unhurried.frames.isEmpty else { return }
    frames.append(unhurried.frames)
    unhurried.frames = []
  }

  mutating func awaitRoom() -> IsReaderWanted {
    isAskedForRoom = isOpen
    return isOpen
  }

  // MARK: Writing

  /// A message of the handshake.
  mutating func write(message: [UInt8]) -> IsReaderWanted {
    sealed.append(message)
    return write()
  }

  /// The handshake is complete: what was sent before goes out.
  mutating func open(_ cipher: consuming RecordCipher) -> IsReaderWanted {
    self.cipher = consume cipher
    return write()
  }

  /// Writes what there is room for, unless it is known that there is none.
  private mutating func write() -> IsReaderWanted {
    var isReaderWanted = false
    if blockedSince == nil {
      writeAvailable()
      isReaderWanted = blockedSince != nil || broken != nil
    }
    if queuedByteCount > limits.queuedByteCountMax, !isFull.due {
      isFull.due = true
      isReaderWanted = true
    }
    return isReaderWanted
  }

  private mutating func writeAvailable() {
    guard let socket, broken == nil else { return }
    do throws(SocketError) {
      while true {
        while !sealed.isEmpty {
          let count = try sealed.withFirst { bytes throws(SocketError) in
            try socket.connection.writeAvailable(bytes)
          }
          guard count > 0 else {
            if blockedSince == nil { blockedSince = .now }
            return
          }
          if blockedSince != nil { blockedSince = .now }
          sealed.removeFirst(count)
        }
        queuedByteCount -= sealedFrameByteCount
        sealedFrameByteCount = 0
        blockedSince = nil
        guard sealNext() else { break }
      }
    } catch {
      return breakOff(LaneEnd(.neither, .connectionLost, "\(error)"))
    }
    if case .ending = phase { socket.connection.shutdown(.writing) }
  }

  /// False when there is nothing to seal.
  private mutating func sealNext() -> Bool {
    guard var cipher = cipher.take() else { return false }
    let count = min(frames.count, Self.writeByteCountMax)
    var failure: ProtocolFault?
    if count > 0 {
      frames.withFirst { bytes in
        do throws(ProtocolFault) {
          sealed.append(try cipher.records(of: UnsafeRawBufferPointer(rebasing: bytes[..<count])))
        } catch {
          failure = error
        }
      }
      frames.removeFirst(count)
      sealedFrameByteCount = count
    }
    self.cipher = consume cipher
    if let failure { breakOff(LaneEnd(.here, failure, "records of one connection")) }
    return count > 0 && failure == nil
  }

  // MARK: The reader

  /// What the reader has to do, and what to wait for when that is nothing.
  struct Look {
    var phase: Phase
    /// Read what is there, and end with this.
    var broken: LaneEnd?
    /// To be told.
    var isFull: Bool?
    var isRoomWanted = false
    /// Of what waits to be written.
    var deadline: ContinuousClock.Instant?
  }

  /// `hasRoom` when the reader found that there is some.
  mutating func look(hasRoom: Bool = false) -> Look {
    let now = ContinuousClock.now
    let isIdle = blockedSince.map { $0 + limits.idleTime <= now } ?? false
    // The reader may have been held up itself: only who takes nothing now has read nothing.
    if hasRoom && blockedSince != nil || isIdle { writeAvailable() }
    if !unhurried.frames.isEmpty, unhurried.due <= now {
      hurry()
      _ = write()
    }
    if isOpen, isIdle, let blockedSince, blockedSince + limits.idleTime <= now {
      _ = end(LaneEnd(.here, .tooSlow, "the peer reads nothing"))
    }
    var look = Look(phase: phase, broken: broken)
    guard case .open = phase else {
      look.isRoomWanted = blockedSince != nil
      return look
    }
    if isFull.due, !isFull.told {
      isFull.told = true
      look.isFull = true
    } else if queuedByteCount <= limits.queuedByteCountMax / 2, isFull.told || isAskedForRoom {
      isFull = (false, false)
      isAskedForRoom = false
      look.isFull = false
    }
    look.isRoomWanted = blockedSince != nil
    look.deadline = blockedSince.map { $0 + limits.idleTime }
    if !unhurried.frames.isEmpty { look.deadline = min(look.deadline ?? unhurried.due, unhurried.due) }
    return look
  }

  /// This thread tells an event.
  private var isTelling: Bool { tellingThread.map { pthread_equal($0, pthread_self()) != 0 } ?? false }

  /// What this thread sends waits until the event was told.
  mutating func beginTelling() { tellingThread = pthread_self() }

  mutating func endTelling() {
    tellingThread = nil
    _ = write()
  }

  /// The event goes on with what is nothing of this lane: nothing waits for that.
  mutating func endTellingEarly() {
    if isTelling { endTelling() }
  }

  // MARK: The end

  /// Only the first end counts. A `goodbye` is written behind what waits, and the reader lingers for the peer; without one, or when the peer
  /// reads nothing, it closes the socket at once.
  mutating func end(_ end: LaneEnd, goodbye: [UInt8]? = nil) -> IsReaderWanted {
    guard isOpen else { return false }
    let waits = cipher != nil && !(end.fault == .tooSlow && blockedSince != nil)
    if waits { hurry() }
    if waits, let goodbye {
      frames.append(goodbye)
      queuedByteCount += goodbye.count
      phase = .ending(end, at: .now + limits.lingerTime)
    } else {
      phase = .ending(end, at: .now)
    }
    if waits, blockedSince == nil { writeAvailable() }
    return true
  }

  /// Nothing can be written any more.
  private mutating func breakOff(_ end: LaneEnd) {
    broken = end
    forgetWaiting()
    if case .ending(let first, _) = phase { phase = .ending(first, at: .now) }
  }

  private mutating func forgetWaiting() {
    (frames, unhurried.frames, sealed) = (ByteQueue(), [], ByteQueue())
    (queuedByteCount, sealedFrameByteCount, blockedSince) = (0, 0, nil)
  }

  /// Lets go of the socket.
  mutating func close() {
    forgetWaiting()
    cipher = nil
    socket = nil
  }
}

/// Bytes that are taken from the front.
struct ByteQueue {
  private var bytes: [UInt8] = []
  private var begin = 0

  /// How much memory is kept when nothing is left.
  private static let keptByteCountMax = 1 << 16

  var count: Int { bytes.count - begin }
  var isEmpty: Bool { begin == bytes.count }

  mutating func append(_ more: [UInt8]) {
    letGo()
    if bytes.isEmpty, more.count > bytes.capacity { bytes = more } else { bytes += more }
  }

  func withFirst<R, E: Error>(_ body: (UnsafeRawBufferPointer) throws(E) -> R) throws(E) -> R {
    try bytes.span.bytes.extracting(begin...).withUnsafeBytes(body)
  }

  mutating func removeFirst(_ count: Int) {
    begin += count
    guard begin == bytes.count else { return }
    begin = 0
    if bytes.capacity > Self.keptByteCountMax { bytes = [] } else { bytes.removeAll(keepingCapacity: true) }
  }

  /// What was taken is let go of when it is more than what is left: so every byte is moved once at most.
  private mutating func letGo() {
    guard begin > bytes.count - begin else { return }
    bytes.removeSubrange(..<begin)
    begin = 0
  }
}
