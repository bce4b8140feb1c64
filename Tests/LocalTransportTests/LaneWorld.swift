import Foundation
import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS
import ServiceWire
import Synchronization
import Testing

@testable import LocalTransport

/// An authority, and apps that it certified.
struct LaneWorld {
  let authority: CertificateAuthority

  init() throws { authority = try CertificateAuthority() }

  struct Identity {
    let key: AppKey
    let certificate: Data
  }

  func identity(
    _ appID: String, user: String = "user", by issuer: CertificateAuthority? = nil
  ) throws -> Identity {
    let key = AppKey()
    let certificate = try (issuer ?? authority).issue(
      appID: appID, activationUser: user, publicKey: key.publicKey, notAfter: UInt64.max)
    return Identity(key: key, certificate: certificate)
  }

  /// A lane of the app "near", which expects the app "far".
  func lane(
    _ role: LaneRole, _ descriptor: Int32, as identity: Identity? = nil, expecting: String = "far",
    limits: LaneLimits = .patient, answer: @escaping EventLog.Answer = { _, _ in }
  ) throws -> (ControlLane, EventLog) {
    let identity = try identity ?? self.identity("near")
    let events = EventLog(answer)
    let lane = try ControlLane.open(
      descriptor: descriptor, role: role, key: identity.key, certificate: identity.certificate,
      peer: .leaf(authority: authority.certificate, appID: expecting, activationUser: "user"),
      limits: limits, events: events.events, on: LanePlace.tested)
    return (lane, events)
  }

  /// Two lanes that have opened to one another.
  func openLanes(
    limits: LaneLimits = .patient,
    answers: (near: EventLog.Answer, far: EventLog.Answer) = ({ _, _ in }, { _, _ in })
  ) async throws -> (near: (ControlLane, EventLog), far: (ControlLane, EventLog)) {
    let sockets = try SocketPair()
    let near = try lane(.dialler, sockets.near, limits: limits, answer: answers.near)
    let far = try lane(
      .acceptor, sockets.far, as: identity("far"), expecting: "near", limits: limits, answer: answers.far)
    #expect(await near.1.next() == .opened)
    #expect(await far.1.next() == .opened)
    return (near, far)
  }

  /// What a peer that keeps to no rule of ours does TLS with.
  func configuration(
    _ role: LaneRole, as identity: Identity?, versions: (TLSVersion, TLSVersion) = (.tlsv13, .tlsv13)
  ) throws -> TLSConfiguration {
    var configuration = TLSConfiguration.makeClientConfiguration()
    if let identity {
      let chain = [
        NIOSSLCertificateSource.certificate(
          try NIOSSLCertificate(bytes: Array(identity.certificate), format: .der))
      ]
      let key = NIOSSLPrivateKeySource.privateKey(
        try NIOSSLPrivateKey(bytes: Array(identity.key.key.derRepresentation), format: .der))
      if role == .acceptor {
        configuration = .makeServerConfiguration(certificateChain: chain, privateKey: key)
      }
      configuration.certificateChain = chain
      configuration.privateKey = key
    }
    (configuration.minimumTLSVersion, configuration.maximumTLSVersion) = versions
    configuration.certificateVerification = .none
    return configuration
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
  private let state = Mutex((isWithinEvent: false, isClosed: false))
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

  /// The next messages, as many as are wanted, whatever reads they came by.
  func messages(_ count: Int) async -> [WireChannelMessage] {
    var messages: [WireChannelMessage] = []
    while messages.count < count, case .received(let more)? = await next() { messages += more }
    return messages
  }
}

/// A peer that speaks TLS, and after that whatever a test wants.
final class LoosePeer: Sendable {
  private let channel: any Channel
  private let inbound: Inbound

  private final class Inbound: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer
    let stream: AsyncStream<Data>
    let continuation: AsyncStream<Data>.Continuation
    let handshake: EventLoopPromise<Void>

    init(_ eventLoop: any EventLoop) {
      (stream, continuation) = AsyncStream.makeStream()
      handshake = eventLoop.makePromise()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
      if case TLSUserEvent.handshakeCompleted = event { handshake.succeed() }
    }
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      continuation.yield(Data(unwrapInboundIn(data).readableBytesView))
    }
    func errorCaught(context: ChannelHandlerContext, error: any Error) { handshake.fail(error) }
    func channelInactive(context: ChannelHandlerContext) {
      handshake.fail(ChannelError.eof)
      continuation.finish()
    }
  }

  init(_ role: LaneRole, _ descriptor: Int32, _ configuration: TLSConfiguration) async throws {
    let context = try NIOSSLContext(configuration: configuration)
    let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
    let inbound = Inbound(eventLoop)
    self.inbound = inbound
    channel = try await ClientBootstrap(group: eventLoop).channelInitializer { channel in
      channel.eventLoop.makeCompletedFuture {
        let tls: NIOSSLHandler =
          role == .dialler
          ? try NIOSSLClientHandler(context: context, serverHostname: nil)
          : NIOSSLServerHandler(context: context)
        try channel.pipeline.syncOperations.addHandlers(tls, inbound)
      }
    }.withConnectedSocket(descriptor).get()
  }

  /// Throws when it failed.
  func handshake() async throws { try await inbound.handshake.futureResult.get() }

  func write(_ bytes: some Collection<UInt8>) {
    channel.writeAndFlush(ByteBuffer(bytes: Array(bytes)), promise: nil)
  }

  func setReads(_ reads: Bool) async throws { try await channel.setOption(.autoRead, value: reads).get() }

  /// Without a word of TLS.
  func breakOff() {
    channel.eventLoop.execute {
      guard let tls = try? self.channel.pipeline.syncOperations.context(handlerType: NIOSSLHandler.self)
      else {
        return
      }
      tls.close(mode: .all, promise: nil)
    }
  }

  /// With TLS's own end, and no goodbye.
  func closeTLS() { channel.close(promise: nil) }

  /// The frames until the connection ends.
  func frames() async throws -> [WireChannelMessage] {
    var decoder = FrameDecoder(byteCountMax: 1 << 24)
    var messages: [WireChannelMessage] = []
    for await bytes in inbound.stream {
      decoder.append(bytes)
      while let frame = try decoder.next() {
        messages += [try WireChannelMessage.read(frame)].compactMap { $0 }
      }
    }
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
