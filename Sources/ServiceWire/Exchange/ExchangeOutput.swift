package import SodiumPrimitives

/// What an ``Exchange`` wants done, in this order.
package enum ExchangeOutput: Sendable, Equatable {
  case send(WireChannelMessage, on: ChannelNumber)
  /// Say goodbye if the connection takes it at once, and close. The exchange has forgotten the channel.
  case close(ChannelNumber, ProtocolFault, detail: String)
  /// There is something to send or to ask and no channel: `channelOpened` or `channelRefused` follows.
  case connect
  /// So much was put out for the channel that more waits: ``Exchange/channelIsFull(_:_:)`` with false follows as soon as there is room.
  case awaitRoom(on: ChannelNumber)
  case consumer(Identifier, ConsumerEvent)
  case provider(Identifier, ProviderEvent)
}

/// The number that a process gave to one of its channels.
package struct ChannelNumber: Hashable, Sendable {
  package let number: UInt64

  package init(_ number: UInt64) { self.number = number }
}

/// What becomes of a request that was sent.
package enum ConsumerEvent: Sendable, Equatable {
  /// The provider is locked, and answers when it is unlocked, or not in time.
  case waitsForUnlock
  /// The provider has a copy of everything.
  case accepted
  /// Ended: the provider's runtime, or the way to it, refused. After `accepted`: the handler replied, and the reply could not be sent.
  case refused(WireFailure)
  /// Ended.
  case replied(WireReply)
  /// Ended: the provider will not reply.
  case noReply
  /// Ended, for the exchange: a delivery brings the reply.
  case replyIsDelivered
  /// Ended: withdrawn before the provider's handler saw it.
  case cancelled
  /// It was too late to cancel.
  case notCancelled
  /// Ended: the connection broke. `arrived` is false when it is certain that the provider never had it.
  case lost(arrived: Bool)
}

/// What becomes of a request that came.
package enum ProviderEvent: Sendable, Equatable {
  /// ``Exchange/admit(_:)`` or ``Exchange/refuse(_:_:)`` follows.
  case arrived(WireRequest)
  /// Not to be handled any more.
  case withdrawn
  /// The consumer does not need the result any more; the handler may go on.
  case cancelRequested
  /// The consumer has the reply.
  case replyAccepted
  /// Nobody asked for the reply in time, or nobody is left who could.
  case replyExpired
  /// The reply cannot be sent: the consumer gets this failure in its place. When it comes of ``Exchange/reply(_:now:)``, that is what the
  /// app's call throws.
  case replyRefused(WireFailure)
}
