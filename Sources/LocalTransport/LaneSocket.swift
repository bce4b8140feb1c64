import NIOCore

/// The socket's side of a lane's pipeline: sees to it that a `Goodbye` arrives.
///
/// A Unix socket that is closed with bytes unread resets the connection, and its peer may then lose what it did not read yet. So whoever
/// spoke last lingers: it ends its own direction, reads on, and closes when the peer has closed, or after a time.
final class LaneSocket: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias InboundOut = ByteBuffer

  private let lingerTime: TimeAmount
  private var context: ChannelHandlerContext?
  private var isLingering = false
  private var timer: Scheduled<Void>?

  init(lingerTime: Duration) { self.lingerTime = TimeAmount(lingerTime) }

  func handlerAdded(context: ChannelHandlerContext) { self.context = context }

  func handlerRemoved(context: ChannelHandlerContext) { forget() }

  // MARK: The end

  /// Closes after what was written, and after the peer. From now on nothing is received.
  func linger() {
    guard let context, !isLingering else { return }
    isLingering = true
    timer = context.eventLoop.assumeIsolated().scheduleTask(in: lingerTime) { self.closeAtOnce() }
    context.close(mode: .output, promise: nil)
    context.read()
  }

  func closeAtOnce() {
    guard let context else { return }
    forget()
    context.close(mode: .all, promise: nil)
  }

  private func forget() {
    context = nil
    timer?.cancel()
    timer = nil
  }

  // MARK: What is received

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    if !isLingering { context.fireChannelRead(data) }
  }

  func channelReadComplete(context: ChannelHandlerContext) {
    if isLingering { context.read() } else { context.fireChannelReadComplete() }
  }

  func channelInactive(context: ChannelHandlerContext) {
    forget()
    context.fireChannelInactive()
  }
}
