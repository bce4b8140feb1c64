import Foundation
import SodiumPrimitives

@testable import ServiceWire

/// One exchange of `com.example.a`, and what its peer `com.example.b` sends.
enum ExchangeFixture {
  static let number = ChannelNumber(1)
  static let process = Identifier(high: 1, low: 2)

  static func id(_ n: UInt64) -> Identifier { Identifier(high: 0, low: n) }

  static func ticket(_ n: UInt64) -> Data { Data(repeating: UInt8(n), count: Exchange.ticketByteCount) }

  static func request(_ n: UInt64) -> WireRequest { .with { $0.id = id(n).data } }

  static func closed(limits: ExchangeLimits = ExchangeLimits()) -> Exchange {
    Exchange(ownAppID: "com.example.a", peerAppID: "com.example.b", process: id(1), limits: limits)
  }

  /// With one channel: ``number``, with ticket 1.
  static func opened(limits: ExchangeLimits = ExchangeLimits(), credit: UInt32 = 8, frame: UInt32 = 1 << 21)
    -> Exchange
  {
    var exchange = closed(limits: limits)
    _ = exchange.channelOpened(number, ticket: ticket(1), now: 0)
    _ = exchange.receive(hello(ticket: 1, credit: credit, frame: frame), on: number, now: 0)
    return exchange
  }

  static func hello(
    ticket n: UInt64, credit: UInt32 = 8, frame: UInt32 = 1 << 21, process: Identifier = process
  ) -> WireChannelMessage {
    .with {
      $0.hello = .with {
        $0.version = Exchange.versionMax
        $0.ticket = ticket(n)
        $0.appID = "com.example.b"
        $0.process = process.data
        $0.requests = credit
        $0.frameByteCount = frame
      }
    }
  }

  static func fault(_ outputs: [ExchangeOutput]) -> ProtocolFault? {
    for case .close(_, let fault, _) in outputs { return fault }
    return nil
  }

  /// The credit of the `Hello` among these.
  static func credit(_ outputs: [ExchangeOutput]) -> UInt32? {
    for case .send(let message, _) in outputs { return message.hello.requests }
    return nil
  }
}
