import Foundation
import SodiumPrimitives

@testable import ServiceWire

/// One machine and what its peer sends, one step at a time.
enum DeliveryFixture {
  static let number = ChannelNumber(1)
  static let key = Data(repeating: 7, count: 32)
  static let incarnation = WireIncarnation.with {
    $0.generation = 3
    $0.draw = Data(repeating: 3, count: 16)
  }

  static func id(_ n: UInt64) -> Identifier { Identifier(high: 4, low: n) }

  static func opened(limits: DeliveryLimits = DeliveryLimits()) -> Deliveries {
    var deliveries = Deliveries(limits: limits)
    _ = deliveries.channelOpened(number)
    return deliveries
  }

  static func offer(
    _ n: UInt64, files: UInt64 = 1, bytes: UInt64 = 100, listed: [WireOfferedFile] = []
  ) -> WireOffer {
    .with {
      $0.id = id(n).data
      $0.number = n
      $0.incarnation = incarnation
      $0.floor = 1
      $0.fileCount = files
      $0.byteCount = bytes
      $0.storedByteCount = bytes == 0 ? 0 : bytes + 41
      $0.request.id = id(n).data
      $0.request.attachments = files
      $0.files = listed
    }
  }

  static func message(_ offer: WireOffer) -> WireChannelMessage { .with { $0.offer = offer } }

  static func file(_ path: String = "/a", bytes: UInt64 = 100) -> WireOfferedFile {
    .with {
      $0.path = Data(path.utf8)
      $0.byteCount = bytes
      $0.permissions = 0o644
    }
  }

  static func page(_ n: UInt64, from: UInt64 = 0, _ files: [WireOfferedFile]) -> WireChannelMessage {
    .with {
      $0.manifestPage = .with {
        $0.id = id(n).data
        $0.from = from
        $0.files = files
      }
    }
  }

  static func wanted(_ n: UInt64, from: UInt64) -> WireChannelMessage {
    .with {
      $0.manifestWanted = .with {
        $0.id = id(n).data
        $0.from = from
      }
    }
  }

  static func accepted(
    _ n: UInt64, from: UInt64 = 0, stream: UInt32 = 1, credit: UInt64 = 50, key: Data = key,
    damaged: UInt64 = 0
  ) -> WireChannelMessage {
    .with {
      $0.deliveryAccepted = .with {
        $0.id = id(n).data
        $0.resumeFrom = from
        $0.stream = stream
        $0.credit = credit
        $0.key = key
        $0.damaged = damaged
      }
    }
  }

  static func progress(_ n: UInt64, _ received: UInt64, credit: UInt64) -> WireChannelMessage {
    .with {
      $0.deliveryProgress = .with {
        $0.id = id(n).data
        $0.received = received
        $0.credit = credit
      }
    }
  }

  static func waiting(_ n: UInt64) -> WireChannelMessage { .with { $0.deliveryWaiting.id = id(n).data } }
  static func cancelled(_ n: UInt64) -> WireChannelMessage { .with { $0.deliveryCancelled.id = id(n).data } }
  static func failed(_ n: UInt64) -> WireChannelMessage { .with { $0.deliveryFailed.id = id(n).data } }
  static func committed(_ n: UInt64) -> WireChannelMessage { .with { $0.committed.id = id(n).data } }
  static func refused(_ n: UInt64, _ error: UInt32) -> WireChannelMessage {
    .with {
      $0.deliveryRefused = .with {
        $0.id = id(n).data
        $0.failure.error = error
      }
    }
  }

  /// With an offer of ours on its way.
  static func offered(
    _ n: UInt64 = 1, files: UInt64 = 1, bytes: UInt64 = 100, limits: DeliveryLimits = DeliveryLimits()
  ) -> Deliveries {
    var deliveries = opened(limits: limits)
    _ = deliveries.enqueue(id(n), number: n, fileCount: files, byteCount: bytes)
    _ = deliveries.offer(offer(n))
    return deliveries
  }

  /// With an offer of the peer's in the owner's hands.
  static func arrived(
    _ n: UInt64 = 1, files: UInt64 = 1, bytes: UInt64 = 100, limits: DeliveryLimits = DeliveryLimits()
  ) -> Deliveries {
    var deliveries = opened(limits: limits)
    _ = deliveries.receive(message(offer(n, files: files, bytes: bytes)), on: number)
    return deliveries
  }

  static func fault(_ outputs: [DeliveryOutput]) -> ProtocolFault? {
    for case .close(_, let fault, _) in outputs { return fault }
    return nil
  }
}
