internal import Foundation
internal import Locks
internal import NIOCore
internal import NIOWebSocket
internal import PushWire
internal import Synchronization

/// The WebSocket of a device. It lives on the loop of its channel.
final class DeviceConnection: ChannelInboundHandler {
  typealias InboundIn = WebSocketFrame
  typealias OutboundOut = WebSocketFrame

  private enum Phase {
    /// Nothing was said yet. Ends at that time.
    case greeting(until: Int64)
    case welcome(DeviceKey, silentAfter: Int64)
    case ended
  }

  private final class Pong {
    let data: ByteBuffer

    init(_ data: ByteBuffer) { self.data = data }
  }

  let id: Hub.ConnectionID
  private let relay: Relay
  private let address: String
  private let link: SocketLink
  private var onWelcome: (() -> Void)?
  private var phase: Phase
  private var lastRead: Int64
  /// The fragments so far of a message that is not complete.
  private var fragments: ByteBuffer?
  /// `Open` and `Close` that are not done.
  private var requests = 0
  /// A pong is not written yet. Of the pings that come meanwhile the last one is answered (RFC 6455, 5.5.3).
  private var isWritingPong = false
  /// An object, and not a value, since few connections have one. So is the next.
  private var nextPong: Pong?
  private var progress: WriteProgress?

  /// `onWelcome` is called when the device was admitted.
  init(_ channel: any Channel, _ id: Hub.ConnectionID, _ relay: Relay, onWelcome: @escaping () -> Void) {
    self.id = id
    self.relay = relay
    self.onWelcome = onWelcome
    address = channel.remoteAddress?.ipAddress ?? "local"
    lastRead = relay.clock.now()
    phase = .greeting(until: lastRead + relay.configuration.greetingTime)
    link = SocketLink(channel, relay)
  }

  func handlerAdded(context: ChannelHandlerContext) {
    let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
    link.onFinishedRequest.withLock { $0 = { bound.value.finishedRequest() } }
  }

  /// Ends the connection when it is silent for too long.
  func check(now: Int64) {
    switch phase {
    case .greeting(let until): if now >= until { link.close() }
    case .welcome(_, let time):
      if now - lastRead > time { return end(.silent) }
      checkProgress(now: now)
    case .ended: break
    }
  }

  /// Ends the connection when the device's system takes nothing for too long.
  private func checkProgress(now: Int64) {
    guard let sent = link.unacknowledgedSince else {
      progress = nil
      return
    }
    let progress = progress ?? WriteProgress()
    self.progress = progress
    let verdict = progress.check(sent: sent, now: now, writeTime: relay.configuration.hub.writeTime) {
      TransportState(link.channel)
    }
    switch verdict {
    case .open: break
    case .moving: if !link.channel.isWritable { relay.progressed(id) }
    case .drained: link.acknowledged(now: 0)
    case .stalled: end(.slow)
    }
  }

  func breakOff() { link.close() }

  // MARK: From the device

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    lastRead = relay.clock.now()
    let frame = unwrapInboundIn(data)
    // Nothing follows a Close frame, in either direction.
    if link.hasEnded { phase = .ended }
    guard case .ended = phase else { return read(frame, context) }
    if frame.opcode == .connectionClose { context.close(promise: nil) }
  }

  /// Refuses what the decoder lets pass and RFC 6455 does not: frames without a mask (5.1), reserved bits
  /// and unknown opcodes (5.2), fragments in the wrong order (5.4).
  private func read(_ frame: WebSocketFrame, _ context: ChannelHandlerContext) {
    guard frame.maskKey != nil, frame.reservedBits.isEmpty else { return malformed(.protocolError) }
    switch frame.opcode {
    case .text: malformed(.unacceptableData)
    case .binary:
      guard fragments == nil else { return malformed(.protocolError) }
      if frame.fin { read(message: frame.unmaskedData) } else { fragments = frame.unmaskedData }
    case .continuation:
      guard var message = fragments else { return malformed(.protocolError) }
      message.writeImmutableBuffer(frame.unmaskedData)
      guard message.readableBytes <= FrameLimits.deviceMessage else { return malformed(.messageTooLarge) }
      fragments = frame.fin ? nil : message
      if frame.fin { read(message: message) }
    case .ping: pong(frame.unmaskedData, context)
    case .pong: break
    case .connectionClose:
      phase = .ended
      relay.closed(id)
      guard link.endOnce() else { return }
      let answer = WebSocketFrame(fin: true, opcode: .connectionClose, data: frame.unmaskedData)
      let channel = context.channel
      context.writeAndFlush(wrapOutboundOut(answer)).whenComplete { _ in channel.close(promise: nil) }
    default: malformed(.protocolError)
    }
  }

  /// A device that does not read its pongs has one that waits, and not one for each ping.
  private func pong(_ data: ByteBuffer, _ context: ChannelHandlerContext) {
    guard !isWritingPong else {
      nextPong = Pong(data)
      return
    }
    isWritingPong = true
    let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
    context.writeAndFlush(wrapOutboundOut(WebSocketFrame(fin: true, opcode: .pong, data: data))).whenComplete
    {
      _ in
      let (connection, context) = bound.value
      connection.isWritingPong = false
      guard let next = connection.nextPong, !connection.link.hasEnded else { return }
      connection.nextPong = nil
      connection.pong(next.data, context)
    }
  }

  private func read(message: ByteBuffer) {
    let frame: DeviceFrame
    do {
      frame = try DeviceFrame(bytes: Data(message.readableBytesView))
    } catch {
      relay.logger.debug(
        "a device sent no message", metadata: ["address": "\(address)", "reason": "\(error.reason)"])
      return malformed(.dataInconsistentWithMessage)
    }
    switch (phase, frame) {
    case (.greeting, .hello(let hello)):
      guard let seconds = relay.hello(hello, at: address, id, link) else {
        phase = .ended
        return
      }
      phase = .welcome(
        TokenVault.key(ofDevice: hello.deviceSecret), silentAfter: Int64(seconds) * 2000 + 10_000)
      onWelcome?()
      onWelcome = nil
    case (.welcome(let device, _), _):
      if frame.isTaken {
        // More may wait, if the transport is full.
        link.acknowledged(now: link.channel.isWritable ? 0 : lastRead)
      } else {
        requests += 1
      }
      if requests >= relay.configuration.requestsOfConnection { link.setReading(false) }
      do {
        try relay.receive(frame, from: device, at: address, id, link)
      } catch {
        relay.logger.debug(
          "a device breaks the protocol",
          metadata: ["address": "\(address)", "reason": "\(error.reason)"])
        malformed(.dataInconsistentWithMessage)
      }
    case (.greeting, _): malformed(.dataInconsistentWithMessage)
    case (.ended, _): break
    }
  }

  private func finishedRequest() {
    requests -= 1
    if requests == relay.configuration.requestsOfConnection - 1 { link.setReading(true) }
  }

  private func malformed(_ code: WebSocketErrorCode) {
    phase = .ended
    relay.closed(id)
    relay.metrics.goodbye(.malformed)
    link.end(.malformed, retryAfterSeconds: 0, code: code)
  }

  private func end(_ reason: GoodbyeReason) {
    phase = .ended
    relay.end(id, reason)
  }

  // MARK: The transport

  func channelWritabilityChanged(context: ChannelHandlerContext) {
    if case .welcome = phase { relay.setWritable(context.channel.isWritable, id) }
    context.fireChannelWritabilityChanged()
  }

  func channelInactive(context: ChannelHandlerContext) {
    phase = .ended
    relay.closed(id)
    link.onFinishedRequest.withLock { $0 = nil }
    context.fireChannelInactive()
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    // What follows on a connection that is about to be closed.
    if case .ended = phase { return }
    switch error {
    case NIOWebSocketError.invalidFrameLength: malformed(.messageTooLarge)
    case is NIOWebSocketError: malformed(.protocolError)
    default: context.close(promise: nil)
    }
  }
}

/// What the relay sends to a device, from any thread.
private final class SocketLink: DeviceLink {
  fileprivate let channel: any Channel
  private let relay: Relay
  let onFinishedRequest = Guarded<(@Sendable () -> Void)?>(nil)
  private let isEnded = Atomic<Bool>(false)
  /// When an event was given to the transport of which nothing was acknowledged since; 0 for none.
  private let sentSince = Atomic<Int64>(0)
  /// Done when the last answer to an `Open` was written.
  private let lastAnswer = Guarded<EventLoopFuture<Void>?>(nil)

  init(_ channel: any Channel, _ relay: Relay) {
    self.channel = channel
    self.relay = relay
  }

  /// The end of the WebSocket was sent, or is about to be.
  var hasEnded: Bool { isEnded.load(ordering: .acquiring) }

  /// Returns whether this is the first end.
  func endOnce() -> Bool { !isEnded.exchange(true, ordering: .acquiringAndReleasing) }

  var unacknowledgedSince: Int64? {
    let time = sentSince.load(ordering: .relaxed)
    return time == 0 ? nil : time
  }

  /// The device has acknowledged an event, or its system has acknowledged everything. `now` is 0 unless more
  /// waits.
  func acknowledged(now: Int64) { sentSince.store(now, ordering: .relaxed) }

  func send(_ frame: RelayFrame) {
    guard !hasEnded else { return }
    switch frame {
    case .event(_, _, let event):
      _ = sentSince.compareExchange(expected: 0, desired: relay.clock.now(), ordering: .relaxed)
      guard event.byteCount > 0 else { return write(frame, promise: nil) }
      let byteCount = event.byteCount
      let written = channel.eventLoop.makePromise(of: Void.self)
      written.futureResult.whenComplete { [relay] _ in relay.written(byteCount) }
      write(frame, promise: written)
    case .opened, .failed:
      let written = channel.eventLoop.makePromise(of: Void.self)
      let future = written.futureResult
      lastAnswer.withLock { $0 = future }
      future.whenComplete { [weak self] _ in
        self?.lastAnswer.withLock { if $0 === future { $0 = nil } }
      }
      write(frame, promise: written)
    case .welcome, .goodbye: write(frame, promise: nil)
    }
  }

  private func write(_ frame: RelayFrame, promise: EventLoopPromise<Void>?) {
    channel.eventLoop.execute { [channel] in
      let data = ByteBuffer(bytes: frame.bytes)
      channel.writeAndFlush(WebSocketFrame(fin: true, opcode: .binary, data: data), promise: promise)
    }
  }

  func end(_ reason: GoodbyeReason, retryAfterSeconds: UInt32) {
    end(reason, retryAfterSeconds: retryAfterSeconds, code: .normalClosure)
  }

  func end(_ reason: GoodbyeReason, retryAfterSeconds: UInt32, code: WebSocketErrorCode) {
    guard endOnce() else { return }
    write(.goodbye(reason, retryAfterSeconds: retryAfterSeconds), promise: nil)
    close(code: code)
  }

  /// Sends the end of the WebSocket, and closes the connection when the device has answered, or soon.
  private func close(code: WebSocketErrorCode) {
    channel.eventLoop.execute { [channel] in
      var data = ByteBuffer()
      data.write(webSocketErrorCode: code)
      channel.writeAndFlush(WebSocketFrame(fin: true, opcode: .connectionClose, data: data), promise: nil)
      channel.eventLoop.scheduleTask(in: .seconds(2)) { channel.close(promise: nil) }
    }
  }

  func close() {
    channel.close(promise: nil)
  }

  /// Not before the answer was written: a device that does not read makes no answers that wait in memory.
  func finishedRequest() {
    let written = lastAnswer.withLock { $0 } ?? channel.eventLoop.makeSucceededVoidFuture()
    written.whenComplete { _ in self.onFinishedRequest.withLock { $0 }?() }
  }

  func setReading(_ isReading: Bool) {
    channel.setOption(ChannelOptions.autoRead, value: isReading).whenFailure { _ in }
  }
}

extension DeviceFrame {
  fileprivate var isTaken: Bool {
    if case .taken = self { true } else { false }
  }
}
