import Foundation

@testable import ServiceWire
@testable import SodiumPrimitives

/// Deliveries with one channel, and an owner that does what they ask for at once.
struct DeliveryPeer {
  private(set) var deliveries = Deliveries(limits: DeliveryLimits())
  private let number: ChannelNumber
  private var byteCounts: [Identifier: UInt64] = [:]

  private static func sent(_ n: UInt64) -> Identifier { Identifier(high: 8, low: n) }

  init(_ number: ChannelNumber) {
    self.number = number
    perform(deliveries.channelOpened(number), choice: 0)
    for n: UInt64 in 1...3 {
      perform(deliveries.enqueue(Self.sent(n), number: n, fileCount: 3, byteCount: 30), choice: 0)
    }
    perform(deliveries.inquire(Self.sent(9)), choice: 0)
  }

  // Not a constant: the leak checker does not see what one holds.
  private static var incarnation: WireIncarnation {
    .with {
      $0.generation = 2
      $0.draw = Data(repeating: 7, count: 16)
    }
  }

  /// The peer's side of two deliveries, one in each direction.
  static func seed() throws -> [UInt8] {
    let id = Identifier(high: 0, low: 7).data
    let own = sent(1).data
    let messages: [WireChannelMessage] = [
      .with { $0.replyInquiry.id = id },
      .with {
        $0.offer = .with {
          $0.id = id
          $0.number = 1
          $0.incarnation = incarnation
          $0.delivered = 3
          $0.fileCount = 1
          $0.byteCount = 9
          $0.request.id = id
          $0.request.attachments = 1
        }
      },
      .with {
        $0.manifestPage = .with {
          $0.id = id
          $0.files = [
            .with {
              $0.path = Data("/a/b".utf8)
              $0.byteCount = 9
            }
          ]
        }
      },
      .with { $0.deliveryCancelled.id = id },
      .with {
        $0.putBack = .with {
          $0.id = sent(3).data
          $0.count = 4
        }
      },
      .with { $0.deliveryWaiting.id = sent(3).data },
      .with { $0.manifestWanted.id = sent(3).data },
      .with {
        $0.deliveryAccepted = .with {
          $0.id = own
          $0.credit = 20
          $0.stream = 1
          $0.key = Data(count: 32)
        }
      },
      .with {
        $0.deliveryProgress = .with {
          $0.id = own
          $0.received = 10
          $0.credit = 25
        }
      },
      .with { $0.committed.id = own },
      .with {
        $0.deliveryRefused = .with {
          $0.id = sent(2).data
          $0.failure.error = 7
        }
      },
      .with {
        $0.acknowledged = .with {
          $0.floor = 2
          $0.incarnation = incarnation
        }
      },
      .with { $0.replyStanding.id = sent(9).data }, .with { $0.requestEnded.id = id },
    ]
    var script = Script()
    for message in messages { script.addPiece(try Array(message.serializedData())) }
    return script.bytes
  }

  mutating func receive(_ message: WireChannelMessage, choice: UInt64) {
    perform(deliveries.receive(message, on: number), choice: choice)
    require(
      deliveries.incomingCount <= deliveries.limits.receivedCountMax, "more deliveries than may be under way")
    require(deliveries.outgoingCount <= 3, "a delivery that nobody sent")
  }

  private mutating func perform(_ outputs: [DeliveryOutput], choice: UInt64) {
    for output in outputs {
      switch output {
      case .wantsOffer(let id):
        perform(
          deliveries.offer(
            .with {
              $0.id = id.data
              $0.incarnation = Self.incarnation
              $0.delivered = 9
              $0.request.id = id.data
            }), choice: choice)
      case .wantsPage(let id, let from):
        require(from < 3, "a page behind the last file")
        let file = WireOfferedFile.with { $0.path = Data("/f".utf8) }
        perform(deliveries.page(id, from: from, [file]), choice: choice)
        if choice % 3 == 0 { perform(deliveries.cancel(id), choice: choice) }
      case .beginStream(_, _, _, let key, let from, let credit, let checking):
        require(key.count == 32 && from < 30 && credit > 0, "a stream of nothing")
        require(checking.map { from <= $0 && $0 < 30 } ?? true, "what is not sent is checked")
      case .putBack(_, _, let count, let delivered):
        require(count < delivered && delivered == 9, "nothing is missing")
      case .progressed(_, let received): require(received <= 30, "more than there is")
      case .offered(let offer):
        guard let id = Identifier(exactly: offer.id) else { fatalError("an offer without an id") }
        byteCounts[id] = offer.byteCount
        if choice % 7 == 0 {
          perform(deliveries.hold(id, for: .unlock), choice: choice)
          perform(deliveries.release(id), choice: choice)
        }
        switch choice % 4 {
        case 0: perform(deliveries.committed(id), choice: choice)
        case 1: perform(deliveries.refuse(id, .with { $0.error = 7 }), choice: choice)
        case _ where offer.fileCount > 0: perform(deliveries.wantPages(id, from: 0), choice: choice)
        default: accept(id, choice)
        }
      case .page(let id, _): accept(id, choice)
      case .withdrawn(let id): perform(deliveries.discarded(id), choice: choice)
      case .inquired(let id): perform(deliveries.standing(id, isAwaited: choice % 2 == 0), choice: choice)
      default: break
      }
    }
  }

  /// Nothing before the last page came.
  private mutating func accept(_ id: Identifier, _ choice: UInt64) {
    let byteCount = byteCounts[id] ?? 0
    let outputs = deliveries.accept(id, from: 0, key: byteCount > 0 ? Data(count: 32) : Data())
    guard !outputs.isEmpty else { return }
    perform(outputs, choice: choice)
    _ = deliveries.received(id, byteCount / 2, frameCount: 3)
    if choice % 5 == 0, byteCount > 0 {
      let from = byteCount / 2
      _ = deliveries.askAgain(id, from: from, damaged: from, key: Data(count: 32))
    }
    if choice % 2 == 0, deliveries.beginCommit(id) { perform(deliveries.committed(id), choice: choice) }
  }
}
