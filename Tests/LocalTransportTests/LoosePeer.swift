import Dispatch
import Foundation
import Locks
import ServiceWire
import SodiumPrimitives
import Testing
import UnixSockets

@testable import LocalTransport

/// A peer that speaks Noise, and after that whatever a test wants, while the test does something else: a thread writes, and another one reads.
final class LoosePeer: Sendable {
  private final class Socket: Sendable {
    let connection: UnixConnection
    init(_ connection: consuming UnixConnection) { self.connection = connection }
  }

  /// Nil once the peer has closed it.
  private let socket: Guarded<Socket?>
  private let sending: DispatchQueue
  private let state = Guarded<SealingByHand?>(nil)
  private let opening = Opening()
  private let received: AsyncStream<Data>
  private let mayRead = ReadingGate()

  init(_ descriptor: Int32, _ sealing: LaneSealing) throws {
    socket = Guarded(Socket(try UnixConnection(adopting: Descriptor(adopting: descriptor))))
    sending = DispatchQueue(label: "loose peer")
    let (received, continuation) = AsyncStream<Data>.makeStream()
    self.received = received
    Thread.detachNewThread {
      do {
        try self.shakeHands(sealing)
        self.opening.end()
        while let record = try self.readMessage() {
          guard let sealing = self.state.withLock({ $0 }) else { break }
          continuation.yield(Data(try sealing.plaintext(record)))
        }
      } catch {
        self.breakOff()
      }
      self.opening.end()
      continuation.finish()
      self.socket.withLock { $0 = nil }
    }
  }

  private func shakeHands(_ sealing: LaneSealing) throws {
    var handshake = try sealing.handshake()
    while !handshake.isComplete {
      if handshake.isWriting {
        try writeAll(SealingByHand.withLength(try handshake.write()))
      } else {
        guard let message = try readMessage() else { throw SocketError.closed }
        _ = try handshake.read(message)
      }
    }
    let sealing = try SealingByHand(handshake)
    state.withLock { $0 = sealing }
  }

  /// Without its length; nil at the end.
  private func readMessage() throws -> [UInt8]? {
    guard let length = try readBytes(2) else { return nil }
    return try readBytes(Int(length[0]) + Int(length[1]) << 8)
  }

  private func readBytes(_ count: Int) throws -> [UInt8]? {
    mayRead.wait()
    var bytes = [UInt8](repeating: 0, count: count)
    let read = try bytes.withUnsafeMutableBytes { try openSocket().connection.read(into: $0, deadline: nil) }
    return read == count ? bytes : nil
  }

  private func openSocket() throws -> Socket {
    guard let socket = socket.withLock({ $0 }) else { throw SocketError.closed }
    return socket
  }

  private func writeAll(_ bytes: [UInt8]) throws {
    try bytes.withUnsafeBytes { try openSocket().connection.write($0, deadline: nil) }
  }

  /// Throws when it failed.
  func handshake() async throws {
    await opening.wait()
    _ = try #require(state.withLock { $0 })
  }

  /// Seals the bytes, in as few records as there may be.
  func write(_ bytes: some Collection<UInt8>) {
    let bytes = Array(bytes)
    sending.async {
      do {
        let sealing = try #require(self.state.withLock { $0 })
        for begin in stride(from: 0, to: bytes.count, by: RecordCipher.plaintextByteCountMax) {
          // One that has ended takes no more.
          try? self.writeAll(
            sealing.record(Array(bytes[begin..<min(bytes.count, begin + RecordCipher.plaintextByteCountMax)]))
          )
        }
      } catch {
        Issue.record(error)
      }
    }
  }

  /// Without sealing them.
  func writeRaw(_ bytes: some Collection<UInt8>) {
    let bytes = Array(bytes)
    sending.async { try? self.writeAll(bytes) }
  }

  func setReads(_ reads: Bool) { mayRead.set(reads) }

  /// Without a word.
  func breakOff() { socket.withLock { $0 }?.connection.shutdown() }

  /// It reads on.
  func endWriting() { sending.sync { socket.withLock { $0 }?.connection.shutdown(.writing) } }

  /// The frames until the connection ends.
  func frames() async throws -> [WireChannelMessage] {
    var decoder = FrameDecoder(byteCountMax: 1 << 24)
    var messages: [WireChannelMessage] = []
    for await bytes in received {
      decoder.append(bytes)
      while let frame = try decoder.next() {
        messages += [try WireChannelMessage.read(frame, elementCountMax: 1000)].compactMap { $0 }
      }
    }
    return messages
  }
}

/// Holds a thread up until it may go on.
private final class ReadingGate: Sendable {
  private let state = Guarded((isOpen: true, waiting: [DispatchSemaphore]()))

  func wait() {
    let semaphore = DispatchSemaphore(value: 0)
    let isOpen = state.withLock { state in
      if !state.isOpen { state.waiting.append(semaphore) }
      return state.isOpen
    }
    if !isOpen { semaphore.wait() }
  }

  func set(_ isOpen: Bool) {
    let waiting = state.withLock { state in
      state.isOpen = isOpen
      defer { if isOpen { state.waiting = [] } }
      return isOpen ? state.waiting : []
    }
    for semaphore in waiting { semaphore.signal() }
  }
}

/// Something that happens once.
private final class Opening: Sendable {
  private let state = Guarded((hasEnded: false, waiting: [CheckedContinuation<Void, Never>]()))

  func end() {
    let waiting = state.withLock { state in
      state.hasEnded = true
      defer { state.waiting = [] }
      return state.waiting
    }
    for continuation in waiting { continuation.resume() }
  }

  func wait() async {
    await withCheckedContinuation { continuation in
      let hasEnded = state.withLock { state in
        if !state.hasEnded { state.waiting.append(continuation) }
        return state.hasEnded
      }
      if hasEnded { continuation.resume() }
    }
  }
}

/// The records of one side of a connection.
final class SealingByHand: Sendable {
  private let ciphers: Guarded<RecordCiphers>

  init(_ handshake: consuming NoiseHandshake) throws { ciphers = Guarded(try handshake.split()) }

  /// A message of a handshake, or what is in a record.
  static func withLength(_ bytes: [UInt8]) -> [UInt8] {
    [UInt8(truncatingIfNeeded: bytes.count), UInt8(truncatingIfNeeded: bytes.count >> 8)] + bytes
  }

  /// The next record that is sent.
  func record(_ plaintext: [UInt8]) throws -> [UInt8] {
    var record = [UInt8](repeating: 0, count: plaintext.count + RecordCipher.overheadByteCount)
    try plaintext.withUnsafeBytes { plaintext in
      try record.withUnsafeMutableBytes { record in
        try ciphers.withLock { try $0.sending.seal(plaintext, into: record) }
      }
    }
    return record
  }

  /// Of the next record that was received, without its length.
  func plaintext(_ sealed: [UInt8]) throws -> [UInt8] {
    guard sealed.count >= ChaChaPoly.tagByteCount else { throw CryptoError.notAuthentic }
    var plaintext = [UInt8](repeating: 0, count: sealed.count - ChaChaPoly.tagByteCount)
    try sealed.withUnsafeBytes { sealed in
      try plaintext.withUnsafeMutableBytes { plaintext in
        try ciphers.withLock { try $0.receiving.open(sealed, into: plaintext) }
      }
    }
    return plaintext
  }
}

/// The far end of a socket pair, sealed by hand and step by step.
struct PeerByHand {
  let sockets: SocketPair
  let sealing: SealingByHand
  /// What it wrote of the handshake.
  let handshakeMessage: [UInt8]

  /// Shakes hands with the near side.
  init(_ sockets: SocketPair, _ laneSealing: LaneSealing) async throws {
    self.sockets = sockets
    var handshake = try laneSealing.handshake()
    var written: [UInt8] = []
    while !handshake.isComplete {
      if handshake.isWriting {
        written = SealingByHand.withLength(try handshake.write())
        sockets.write(written)
      } else {
        let message = await sockets.read(2 + handshake.messageByteCount)
        _ = try handshake.read(Array(message.dropFirst(2)))
      }
    }
    handshakeMessage = written
    sealing = try SealingByHand(handshake)
  }

  /// A record with these messages.
  func record(_ messages: [WireChannelMessage]) throws -> [UInt8] {
    var frames: [UInt8] = []
    for message in messages { try message.appendFrame(to: &frames, byteCountMax: 1 << 24) }
    return try sealing.record(frames)
  }

  /// The plaintext of the next record of the near side; nil at the end of what it sends.
  func read() async throws -> [UInt8]? {
    let length = await sockets.read(2)
    guard length.count == 2 else { return nil }
    return try sealing.plaintext(await sockets.read(Int(length[0]) + Int(length[1]) << 8))
  }

  /// The near side sends nothing any more, and has not said goodbye.
  func expectSilentEnd(sourceLocation: SourceLocation = #_sourceLocation) async {
    #expect(await sockets.read(1).isEmpty, sourceLocation: sourceLocation)
    sockets.closeFar()
  }
}
