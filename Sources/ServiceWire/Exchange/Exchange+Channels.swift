package import Foundation
package import SodiumPrimitives

extension Exchange {
  /// Both sides have proved who they are; the ticket is that of the introduction.
  package mutating func channelOpened(_ number: ChannelNumber, ticket: Data, now: UInt64) -> [ExchangeOutput]
  {
    note(now)
    retry.answered()
    guard channels.insert(number, ticket: ticket, now: now) else {
      return [.close(number, .limitExceeded, detail: "channels of a pair")]
    }
    retry.opened()
    let credit = received.channelOpened(number)
    return [
      .send(
        .with {
          $0.hello = .with {
            $0.version = Self.versionMax
            $0.ticket = ticket
            $0.appID = ownAppID
            $0.process = process.data
            $0.requests = UInt32(credit)
            $0.frameByteCount = UInt32(limits.frameByteCountMax)
            $0.attachments = limits.attachmentCountMax
            $0.slots = UInt32(limits.slotCountMax)
          }
        }, on: number)
    ]
  }

  /// There is no way to the peer now: what waits in the queue has ended, but for `kept`, for which a
  /// channel is asked for once more at once. What became of requests that were sent is asked after a
  /// pause.
  package mutating func channelRefused(
    _ failure: WireFailure, besides kept: Set<Identifier> = [], now: UInt64
  ) -> [ExchangeOutput] {
    note(now)
    retry.answered()
    guard channels.isEmpty else { return [] }
    retry.refused()
    var outputs: [ExchangeOutput] = []
    sent.endQueue(.refused(failure), besides: kept, &outputs)
    if sent.hasQueued {
      retry.connect(&outputs)
    } else if sent.needsChannel {
      retry.wait(now: now)
    }
    return outputs
  }

  /// The channel has ended, in good order or not.
  package mutating func channelClosed(_ number: ChannelNumber, now: UInt64) -> [ExchangeOutput] {
    note(now)
    guard let closed = channels.remove(number) else { return [] }
    sent.channelClosed(number, now: now)
    received.channelClosed(number, now: now)
    var outputs: [ExchangeOutput] = []
    retry.closed(closed, now: now)
    if channels.isEmpty, !retry.isConnecting {
      if retry.givesUp() { sent.endQueue(.lost(arrived: false), &outputs) }
      // The owner's next request asks for a channel by itself.
      if sent.needsChannel { retry.reconnect(now: now, &outputs) }
    }
    if let newest = channels.newest {
      sent.inquire(over: newest, channels, &outputs)
      flush(&outputs)
    }
    received.payCredit(channels, &outputs)
    return outputs
  }

  /// The owner's queue of bytes for the channel is full, or has room again. While it is full no
  /// request is sent there, and no answer that the app gives; a peer that goes on asking without
  /// reading is closed as too slow.
  package mutating func channelIsFull(_ number: ChannelNumber, _ isFull: Bool) -> [ExchangeOutput] {
    guard channels[number] != nil else { return [] }
    channels.setFull(number, isFull)
    var outputs: [ExchangeOutput] = []
    received.sendAnswers(on: number, &channels, &outputs)
    flush(&outputs)
    return outputs
  }

  mutating func fail(
    _ number: ChannelNumber, _ fault: ProtocolFault, detail: String = "", now: UInt64
  ) -> [ExchangeOutput] {
    [.close(number, fault, detail: detail)] + channelClosed(number, now: now)
  }
}
