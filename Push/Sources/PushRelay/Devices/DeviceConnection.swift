internal import Foundation
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

  let id: Hub.ConnectionID
  private let relay: Relay
  private let address: String
  private let link: SocketLink
  private let onWelcome: () -> Void
  private var phase: Phase
  private var lastRead: Int64
  /// The fragments so far of a message that is not complete.
  private var fragments: ByteBuffer?
  /// `Open` and `Close` that are not done.
  private var requests = 0

  /// `onWelcome` is called when the device was admitted.
  init(_ channel: any Channel, _ relay: Relay, onWelcome: @escaping () -> Void) {
    id = relay.makeConnectionID()
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
    case .welcome(_, let time): if now - lastRead > time { end(.silent) }
    case .ended: break
    }
  }

  func breakOff() { link.close() }

  // MARK: From the device

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    lastRead = relay.clock.now()
    let frame = unwrapInboundIn(data)
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
    case .ping:
      // A device that does not read gets no pongs, which would pile up.
      guard context.channel.isWritable else { return }
      let pong = WebSocketFrame(fin: true, opcode: .pong, data: frame.unmaskedData)
      context.writeAndFlush(wrapOutboundOut(pong), promise: nil)
    case .pong: break
    case .connectionClose:
      phase = .ended
      relay.closed(id)
      let answer = WebSocketFrame(fin: true, opcode: .connectionClose, data: frame.unmaskedData)
      let channel = context.channel
      context.writeAndFlush(wrapOutboundOut(answer)).whenComplete { _ in channel.close(promise: nil) }
    default: malformed(.protocolError)
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
      guard let seconds = relay.hello(hello, id, link) else {
        phase = .ended
        return
      }
      phase = .welcome(
        TokenVault.key(ofDevice: hello.deviceSecret), silentAfter: Int64(seconds) * 2000 + 10_000)
      onWelcome()
    case (.welcome(let device, _), _):
      if !frame.isTaken { requests += 1 }
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
  private let channel: any Channel
  private let relay: Relay
  let onFinishedRequest = Mutex<(@Sendable () -> Void)?>(nil)

  init(_ channel: any Channel, _ relay: Relay) {
    self.channel = channel
    self.relay = relay
  }

  func send(_ frame: RelayFrame) {
    guard case .event(_, _, let event) = frame, event.byteCount > 0 else { return write(frame, promise: nil) }
    let byteCount = event.byteCount
    let written = channel.eventLoop.makePromise(of: Void.self)
    written.futureResult.whenComplete { [relay] _ in relay.written(byteCount) }
    write(frame, promise: written)
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
    write(.goodbye(reason, retryAfterSeconds: retryAfterSeconds), promise: nil)
    close(code: code)
  }

  /// Sends the end of the WebSocket, and closes the connection when the device has answered, or soon.
  func close(code: WebSocketErrorCode) {
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

  func finishedRequest() {
    channel.eventLoop.execute { self.onFinishedRequest.withLock { $0 }?() }
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
