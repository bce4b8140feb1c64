import Foundation
import Locks
import ServiceWire
import SodiumPrimitives
import Testing

@testable import LocalTransport

/// The keys of two apps, and what their introduction says.
struct LaneWorld {
  let near: KeyPair
  let far: KeyPair
  let prologue = Prologue.channel(
    ticket: Data(Random.bytes(32)), dialler: ("near", "user"), acceptor: ("far", "user"))

  init() throws {
    near = try KeyPair()
    far = try KeyPair()
  }

  /// How the far side is sealed.
  func farSealing(
    isDialler: Bool, as own: KeyPair? = nil, expecting peer: KeyPair? = nil, prologue: [UInt8]? = nil
  ) -> LaneSealing {
    .channel(
      isDialler: isDialler, own: own ?? far, peer: Data((peer ?? near).publicKey),
      prologue: prologue ?? self.prologue)
  }

  /// A lane of the near app, which expects the far one.
  func lane(
    isDialler: Bool, _ descriptor: Int32, expecting peer: KeyPair? = nil, limits: LaneLimits = .patient,
    answer: @escaping EventLog.Answer = { _, _ in }
  ) throws -> (ControlLane, EventLog) {
    let sealing = LaneSealing.channel(
      isDialler: isDialler, own: near, peer: Data((peer ?? far).publicKey), prologue: prologue)
    return try lane(sealing, descriptor, limits: limits, answer: answer)
  }

  func lane(
    _ sealing: LaneSealing, _ descriptor: Int32, limits: LaneLimits = .patient,
    answer: @escaping EventLog.Answer = { _, _ in }
  ) throws -> (ControlLane, EventLog) {
    let events = EventLog(answer)
    let lane = try ControlLane.open(
      descriptor: descriptor, sealing: sealing, limits: limits, events: events.events)
    return (lane, events)
  }

  /// Two lanes that have opened to one another.
  func openLanes(
    limits: LaneLimits = .patient,
    answers: (near: EventLog.Answer, far: EventLog.Answer) = ({ _, _ in }, { _, _ in })
  ) async throws -> (near: (ControlLane, EventLog), far: (ControlLane, EventLog)) {
    let sockets = try SocketPair()
    let near = try lane(isDialler: true, sockets.near, limits: limits, answer: answers.near)
    let far = try lane(
      farSealing(isDialler: false), sockets.far, limits: limits, answer: answers.far)
    #expect(await near.1.next() == .opened)
    #expect(await far.1.next() == .opened)
    return (near, far)
  }
}

/// Two connected stream sockets.
struct SocketPair {
  let near: Int32
  let far: Int32
  private let inode: ino_t

  init() throws {
    var ends: [Int32] = [0, 0]
    #if canImport(Glibc)
      let type = Int32(SOCK_STREAM.rawValue)
    #else
      let type = SOCK_STREAM
    #endif
    try #require(socketpair(AF_UNIX, type, 0, &ends) == 0)
    (near, far) = (ends[0], ends[1])
    var status = stat()
    try #require(fstat(near, &status) == 0)
    inode = status.st_ino
  }

  /// Whether a descriptor of the process is still the near socket.
  var isNearOpen: Bool {
    (0..<4096 as Range<Int32>).contains { descriptor in
      var status = stat()
      return fstat(descriptor, &status) == 0 && status.st_ino == inode && status.st_mode & S_IFMT == S_IFSOCK
    }
  }

  func write(_ bytes: some Collection<UInt8>) {
    let bytes = Array(bytes)
    #expect(send(far, bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count)
  }

  /// As much as the near side takes: one that has ended takes no more.
  func offer(_ bytes: some Collection<UInt8>) {
    let bytes = Array(bytes)
    _ = send(far, bytes, bytes.count, Int32(MSG_NOSIGNAL))
  }

  /// Bytes that the near side sends; fewer at the end of what it sends. Waits on a thread of its own.
  func read(_ count: Int) async -> [UInt8] {
    let far = far
    return await withCheckedContinuation { continuation in
      Thread.detachNewThread {
        var bytes = [UInt8](repeating: 0, count: count)
        var done = 0
        while done < count {
          let part = bytes.withUnsafeMutableBytes { recv(far, $0.baseAddress! + done, count - done, 0) }
          if part <= 0 { break }
          done += part
        }
        continuation.resume(returning: Array(bytes.prefix(done)))
      }
    }
  }

  func closeFar() { #expect(close(far) == 0) }
}

/// The events of one lane, in order.
final class EventLog: Sendable {
  typealias Answer = @Sendable (ControlLane, Event) -> Void

  enum Event: Equatable, Sendable {
    case opened
    case received([WireChannelMessage])
    case isFull(Bool)
    case closed(LaneEnd)
  }

  private let stream: AsyncStream<Event>
  private let continuation: AsyncStream<Event>.Continuation
  private let state = Guarded((isWithinEvent: false, isClosed: false))
  private let answer: Answer

  init(_ answer: @escaping Answer) {
    (stream, continuation) = AsyncStream.makeStream()
    self.answer = answer
  }

  var events: LaneEvents<WireChannelMessage> {
    LaneEvents(
      opened: { self.tell($0, .opened) }, received: { self.tell($0, .received($1)) },
      isFull: { self.tell($0, .isFull($1)) }, closed: { self.tell($0, .closed($1)) })
  }

  private func tell(_ lane: ControlLane, _ event: Event) {
    state.withLock {
      if $0.isWithinEvent { Issue.record("\(event) within another event") }
      if $0.isClosed { Issue.record("\(event) after the end") }
      $0.isWithinEvent = true
      if case .closed = event { $0.isClosed = true }
    }
    answer(lane, event)
    state.withLock { $0.isWithinEvent = false }
    continuation.yield(event)
  }

  func next() async -> Event? {
    for await event in stream { return event }
    return nil
  }

  func end() async -> LaneEnd? {
    while let event = await next() {
      if case .closed(let end) = event { return end }
    }
    return nil
  }

  /// The next event is this end.
  func expectEnd(
    _ side: LaneEnd.Side, _ fault: ProtocolFault, _ comment: Comment? = nil,
    sourceLocation: SourceLocation = #_sourceLocation
  ) async {
    let event = await next()
    guard case .closed(let end)? = event else {
      Issue.record("\(String(describing: event)) before the end", sourceLocation: sourceLocation)
      return
    }
    #expect(end.side == side && end.fault == fault, comment, sourceLocation: sourceLocation)
  }

  /// The next messages, as many as are wanted, whatever reads they came by.
  func messages(_ count: Int) async -> [WireChannelMessage] {
    var messages: [WireChannelMessage] = []
    while messages.count < count, case .received(let more)? = await next() { messages += more }
    return messages
  }
}

extension WireChannelMessage {
  static func ping(_ number: Int) -> WireChannelMessage { .with { $0.ping.number = UInt64(number) } }

  /// A message of so many bytes.
  static func filler(byteCount: Int) -> WireChannelMessage {
    // Two tags and two lengths, which are shorter for short texts.
    for overhead in 4...12 where byteCount > overhead {
      let message = WireChannelMessage.with {
        $0.request.method = String(repeating: "m", count: byteCount - overhead)
      }
      if (try? message.serializedData().count) == byteCount { return message }
    }
    preconditionFailure("no message has \(byteCount) bytes")
  }

  static func goodbye(_ error: UInt32, _ detail: String = "") -> WireChannelMessage {
    .with {
      $0.goodbye.error = error
      $0.goodbye.detail = detail
    }
  }
}

extension LaneLimits {
  /// Nothing ends because a busy machine lets a test wait.
  static var patient: LaneLimits {
    var limits = LaneLimits()
    limits.beginningTime = .seconds(600)
    limits.frameTime = .seconds(600)
    limits.idleTime = .seconds(600)
    return limits
  }
}
