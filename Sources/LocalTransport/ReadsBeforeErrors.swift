import NIOCore

/// Has what was read delivered before the error that came with it: the TLS handler above keeps plaintext until a read is complete, and
/// after an error no read is. A peer that says goodbye and closes with bytes of ours unread gives just this: its goodbye, and a reset. Not every goodbye is saved by it: see SERVICE-PROTOCOL.md, "State of the implementation".
final class ReadsBeforeErrors: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    context.fireChannelReadComplete()
    context.fireErrorCaught(error)
  }
}
