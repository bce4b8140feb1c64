package import Foundation
package import SodiumPrimitives

/// How a delivery ended for its sender.
package enum SentDeliveryEnd: Sendable, Equatable {
  /// The receiver has it, for good.
  case committed
  /// The receiver does not have it and never will.
  case refused(WireFailure)
  /// This side cannot go on with it, and whether the receiver has it, or will have it, is not known.
  case lost(WireFailure)
  /// Withdrawn: the receiver does not have it and never will.
  case cancelled
}

/// What ``Deliveries`` want done, in this order.
package enum DeliveryOutput: Sendable, Equatable {
  case send(WireChannelMessage, on: ChannelNumber)
  /// Say goodbye if the connection takes it at once, and close both lanes. The deliveries have forgotten the channel.
  case close(ChannelNumber, ProtocolFault, detail: String)
  /// Deliveries wait and there is no channel: `channelOpened` or `channelRefused` follows.
  case connect

  // MARK: For the sender

  /// ``Deliveries/offer(_:)`` follows, with the message from the outbox; or ``Deliveries/fail(_:_:)``.
  case wantsOffer(Identifier)
  /// ``Deliveries/page(_:from:_:)`` follows, or ``Deliveries/fail(_:_:)``.
  case wantsPage(Identifier, from: UInt64)
  /// The contents from position `from` on go over the bulk lane of that channel, in a stream under the key. With `checking`, the
  /// segment at that position did not open at the receiver: it is looked up and opened here before.
  case beginStream(
    Identifier, on: ChannelNumber, stream: UInt32, key: Data, from: UInt64, credit: UInt64,
    checking: UInt64?)
  /// Frames that may be sent, in all since the stream began.
  case raiseCredit(Identifier, on: ChannelNumber, stream: UInt32, to: UInt64)
  /// Nothing more of it is read or sent. One follows each `beginStream`, also when all was sent.
  case endStream(Identifier, on: ChannelNumber, stream: UInt32)
  /// The receiver is locked or suspended, and answers when it runs; told again with another reason.
  case waiting(Identifier)
  /// The receiver takes it; told once.
  case accepted(Identifier)
  /// The position up to which the receiver has the contents.
  case progressed(Identifier, received: UInt64)
  /// The receiver has it, and so many messages under the incarnation of the offer; that it is settled follows.
  case delivered(Identifier, WireIncarnation, count: UInt64)
  /// Forgotten here: the owner ends its outbox record.
  case settled(Identifier, SentDeliveryEnd)
  /// The receiver cannot take the number under the incarnation of the offer, and has seen incarnations up to that generation: the owner
  /// draws another one before it answers the `wantsOffer` that follows, unless it has done so.
  case numberTaken(Identifier, WireIncarnation, generation: UInt64)
  /// The receiver's container was put back: it has `count` messages under the incarnation of the offer, not as many as that says. An
  /// answer to the offer follows.
  case putBack(Identifier, WireIncarnation, count: UInt64, delivered: UInt64)
  /// A cancel came too late; that it was committed follows.
  case tooLate(Identifier)

  // MARK: For the receiver

  /// The owner answers with `wantPages`, `accept`, `refuse` or, when it has it already, `committed`.
  case offered(WireOffer)
  /// The next files of its manifest. After the last ones the owner answers with `accept` or `refuse`.
  case page(Identifier, [WireOfferedFile])
  /// Before the sender hears of it: a stream comes on the bulk lane of that channel.
  case expect(Identifier, on: ChannelNumber, stream: UInt32, key: Data)
  /// What still comes of the stream is to be skipped. Not put out for a stream that was received as a whole and committed.
  case endExpecting(Identifier, on: ChannelNumber, stream: UInt32)
  /// Forgotten here, because its channel went: what is staged is kept, for the next offer. Nothing that was to be
  /// answered for it may be answered any more.
  case interrupted(Identifier)
  /// It was cancelled, or its sender cannot read it: the owner discards what it has, then calls ``Deliveries/discarded(_:)``.
  case withdrawn(Identifier)
  /// It was cancelled when it had been committed.
  case resultUnwanted(Identifier)
  /// Every number below it that the peer had for this app is settled.
  case acknowledged(floor: UInt64, incarnation: WireIncarnation)

  // MARK: About replies

  /// The peer asks whether a reply may still come: ``Deliveries/standing(_:isAwaited:)`` follows.
  case inquired(request: Identifier)
  /// What the peer answered: false says that there will be no reply.
  case standing(request: Identifier, isAwaited: Bool)
  /// The peer says that there will be no reply.
  case requestEnded(Identifier, isReplyLost: Bool)
}
