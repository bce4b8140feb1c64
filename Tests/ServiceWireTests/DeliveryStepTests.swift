import Foundation
import Testing

@testable import ServiceWire

/// One machine and what its peer sends, one step at a time.
enum DeliveryFixture {
  static let number = ChannelNumber(1)
  static let key = Data(repeating: 7, count: 32)
  static let incarnation = Data(repeating: 3, count: 16)

  static func id(_ n: UInt64) -> WireID { WireID(high: 4, low: n) }

  static func opened(limits: DeliveryLimits = DeliveryLimits()) -> Deliveries {
    var deliveries = Deliveries(limits: limits)
    _ = deliveries.channelOpened(number)
    return deliveries
  }

  static func offer(_ n: UInt64, files: UInt64 = 1, bytes: UInt64 = 100) -> WireOffer {
    .with {
      $0.id = id(n).bytes
      $0.number = n
      $0.incarnation = incarnation
      $0.floor = 1
      $0.fileCount = files
      $0.byteCount = bytes
      $0.request.id = id(n).bytes
      $0.request.attachments = files
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
        $0.id = id(n).bytes
        $0.from = from
        $0.files = files
      }
    }
  }

  static func wanted(_ n: UInt64, from: UInt64) -> WireChannelMessage {
    .with {
      $0.manifestWanted = .with {
        $0.id = id(n).bytes
        $0.from = from
      }
    }
  }

  static func accepted(
    _ n: UInt64, from: UInt64 = 0, stream: UInt32 = 1, credit: UInt64 = 50, key: Data = key
  ) -> WireChannelMessage {
    .with {
      $0.deliveryAccepted = .with {
        $0.id = id(n).bytes
        $0.resumeFrom = from
        $0.stream = stream
        $0.credit = credit
        $0.key = key
      }
    }
  }

  static func progress(_ n: UInt64, _ received: UInt64, credit: UInt64) -> WireChannelMessage {
    .with {
      $0.deliveryProgress = .with {
        $0.id = id(n).bytes
        $0.received = received
        $0.credit = credit
      }
    }
  }

  static func cancelled(_ n: UInt64) -> WireChannelMessage { .with { $0.deliveryCancelled.id = id(n).bytes } }
  static func failed(_ n: UInt64) -> WireChannelMessage { .with { $0.deliveryFailed.id = id(n).bytes } }
  static func committed(_ n: UInt64) -> WireChannelMessage { .with { $0.committed.id = id(n).bytes } }
  static func refused(_ n: UInt64, _ error: UInt32) -> WireChannelMessage {
    .with {
      $0.deliveryRefused = .with {
        $0.id = id(n).bytes
        $0.failure.error = error
      }
    }
  }

  /// With an offer of ours on its way.
  static func offered(_ n: UInt64 = 1, files: UInt64 = 1, bytes: UInt64 = 100) -> Deliveries {
    var deliveries = opened()
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

struct DeliveryStepTests {
  private typealias Fixture = DeliveryFixture
  private let number = DeliveryFixture.number
  private let key = DeliveryFixture.key
  private let one = DeliveryFixture.id(1)

  @Test func goesFromTheOutboxToTheCommit() throws {
    var sender = Deliveries()
    #expect(sender.enqueue(one, number: 5, fileCount: 2, byteCount: 100) == [.connect])
    #expect(sender.waitsForChannel && !sender.isIdle)
    #expect(sender.retry() == [])
    #expect(sender.channelOpened(number) == [.wantsOffer(one)])
    // What it says of the files is what was enqueued.
    var offer = Fixture.offer(5, files: 2)
    offer.id = one.bytes
    offer.request.id = one.bytes
    var careless = offer
    careless.number = 0
    careless.fileCount = 0
    careless.byteCount = 0
    careless.request.attachments = 0
    #expect(sender.offer(careless) == [.send(Fixture.message(offer), on: number)])
    #expect(sender.offer(careless) == [])

    var receiver = Fixture.opened()
    #expect(receiver.receive(Fixture.message(offer), on: number) == [.offered(offer)])
    #expect(receiver.wantPages(one, from: 0) == [.send(Fixture.wanted(1, from: 0), on: number)])
    #expect(sender.receive(Fixture.wanted(1, from: 0), on: number) == [.wantsPage(one, from: 0)])
    let files = [Fixture.file("/a"), Fixture.file("/b/c", bytes: 0)]
    #expect(sender.page(one, from: 1, files) == [])
    let first = Fixture.page(1, [files[0]])
    #expect(sender.page(one, from: 0, [files[0]]) == [.send(first, on: number)])
    #expect(
      receiver.receive(first, on: number)
        == [.page(one, [files[0]]), .send(Fixture.wanted(1, from: 1), on: number)])
    #expect(sender.receive(Fixture.wanted(1, from: 1), on: number) == [.wantsPage(one, from: 1)])
    let second = Fixture.page(1, from: 1, [files[1]])
    #expect(sender.page(one, from: 1, [files[1]]) == [.send(second, on: number)])
    #expect(receiver.receive(second, on: number) == [.page(one, [files[1]])])

    let credit = DeliveryLimits().creditByteCount
    let accepted = Fixture.accepted(1, from: 10, credit: credit)
    #expect(
      receiver.accept(one, from: 10, key: key) == [
        .expect(one, on: number, stream: 1, key: key, from: 10, byteCount: 90), .send(accepted, on: number),
      ])
    #expect(
      sender.receive(accepted, on: number) == [
        .accepted(one), .progressed(one, received: 10),
        .beginStream(one, on: number, stream: 1, key: key, from: 10, credit: credit),
      ])
    let canBegin = receiver.beginCommit(one)
    #expect(canBegin)
    let again = receiver.beginCommit(one)
    #expect(!again)
    #expect(receiver.committed(one) == [.send(Fixture.committed(1), on: number)])
    #expect(
      sender.receive(Fixture.committed(1), on: number)
        == [.endStream(one, on: number, stream: 1), .settled(one, .committed)])
    #expect(sender.isIdle && receiver.isIdle)
    let floor = WireChannelMessage.with {
      $0.acknowledged = .with {
        $0.floor = 6
        $0.incarnation = Fixture.incarnation
      }
    }
    #expect(sender.acknowledge(floor: 6, incarnation: Fixture.incarnation) == [.send(floor, on: number)])
    #expect(
      receiver.receive(floor, on: number) == [.acknowledged(floor: 6, incarnation: Fixture.incarnation)])
  }

  @Test func whatTheReceiverHasNeedsNoStream() {
    var receiver = Fixture.arrived()
    let accepted = Fixture.accepted(1, from: 100, stream: 0, credit: 0, key: Data())
    #expect(receiver.accept(one, from: 100, key: Data()) == [.send(accepted, on: number)])
    var sender = Fixture.offered()
    #expect(
      sender.receive(accepted, on: number) == [.accepted(one), .progressed(one, received: 100)])
    #expect(
      Fixture.fault(sender.receive(Fixture.progress(1, 100, credit: 0), on: number)) == .unexpectedMessage)
    // A reply without files.
    sender = Fixture.offered(files: 0, bytes: 0)
    #expect(
      sender.receive(Fixture.accepted(1, stream: 0, credit: 0, key: Data()), on: number) == [.accepted(one)])
  }

  @Test func anOfferMustBeRight() {
    let request = WireRequest.with { $0.id = one.bytes }
    let wrong: [(inout WireOffer) -> Void] = [
      { $0.id = Data(count: 15) }, { $0.incarnation = Data(count: 15) }, { $0.number = 0 }, { $0.floor = 2 },
      { $0.byteCount = 1 << 63 }, { $0.fileCount = 0 }, { $0.request.attachments = 0 }, { $0.message = nil },
      { $0.request = request }, { $0.request.id = DeliveryFixture.id(2).bytes },
      { $0.request.foreground = .UNRECOGNIZED(9) },
      { $0.request.method = String(repeating: "m", count: 256) },
      {
        $0.reply = .with {
          $0.id = Data()
          $0.attachments = 1
        }
      },
      { $0.reply = .with { $0.id = DeliveryFixture.id(2).bytes } },
      {
        $0.reply = .with {
          $0.id = DeliveryFixture.id(2).bytes
          $0.attachments = 1
          $0.error.text = String(repeating: "t", count: 4097)
        }
      },
    ]
    for (i, change) in wrong.enumerated() {
      var receiver = Fixture.opened()
      var offer = Fixture.offer(1)
      change(&offer)
      #expect(Fixture.fault(receiver.receive(Fixture.message(offer), on: number)) == .malformed, "\(i)")
      #expect(receiver.isIdle && !receiver.isOpen(number))
    }
    let right: [(inout WireOffer) -> Void] = [
      { $0.byteCount = 1 << 63 - 1 }, { $0.byteCount = 0 }, { $0.floor = 0 },
      { $0.request.method = String(repeating: "m", count: 255) },
      {
        $0.reply = .with {
          $0.id = DeliveryFixture.id(2).bytes
          $0.attachments = 1
          $0.error.text = String(repeating: "t", count: 4096)
        }
      },
    ]
    for (i, change) in right.enumerated() {
      var receiver = Fixture.opened()
      var offer = Fixture.offer(1)
      change(&offer)
      #expect(receiver.receive(Fixture.message(offer), on: number) == [.offered(offer)], "\(i)")
    }
  }

  @Test func aFileMustBeRight() {
    let name = String(repeating: "n", count: 255)
    let wrong: [(inout WireOfferedFile) -> Void] = [
      { $0.path = Data() }, { $0.path = Data("a".utf8) }, { $0.path = Data("/".utf8) },
      { $0.path = Data("/a//b".utf8) }, { $0.path = Data("/a/".utf8) }, { $0.path = Data("/a\0".utf8) },
      { $0.path = Data("/\(name)n".utf8) }, { $0.byteCount = 101 }, { $0.permissions = 0o10000 },
    ]
    for (i, change) in wrong.enumerated() {
      var receiver = Fixture.arrived()
      _ = receiver.wantPages(one, from: 0)
      var file = Fixture.file()
      change(&file)
      #expect(Fixture.fault(receiver.receive(Fixture.page(1, [file]), on: number)) == .malformed, "\(i)")
    }
    for path in ["/\(name)", "/\(name)/\(name)", "/..", "/a/./b"] {
      var receiver = Fixture.arrived()
      _ = receiver.wantPages(one, from: 0)
      let file = Fixture.file(path)
      #expect(receiver.receive(Fixture.page(1, [file]), on: number) == [.page(one, [file])])
    }
  }

  @Test func closesOnWhatMayNotComeNow() {
    // Nothing was offered.
    for message in [
      Fixture.wanted(1, from: 0), Fixture.accepted(1), Fixture.progress(1, 1, credit: 50),
      Fixture.refused(1, 4),
      Fixture.committed(1), Fixture.cancelled(1), Fixture.failed(1), Fixture.page(1, [Fixture.file()]),
      .with { $0.replyStanding.id = one.bytes }, .with { $0.ping.number = 1 },
    ] {
      var deliveries = Fixture.opened()
      #expect(Fixture.fault(deliveries.receive(message, on: number)) == .unexpectedMessage)
      #expect(deliveries.receive(message, on: number) == [])
    }
    // Offered by us.
    let asSender: [(WireChannelMessage, ProtocolFault)] = [
      (Fixture.message(Fixture.offer(1)), .unexpectedMessage), (Fixture.cancelled(1), .unexpectedMessage),
      (Fixture.failed(1), .unexpectedMessage), (Fixture.page(1, [Fixture.file()]), .unexpectedMessage),
      (Fixture.progress(1, 1, credit: 50), .unexpectedMessage), (Fixture.wanted(1, from: 1), .malformed),
      (Fixture.accepted(1, from: 101), .malformed), (Fixture.accepted(1, stream: 0), .malformed),
      (Fixture.accepted(1, credit: 0), .malformed), (Fixture.accepted(1, key: Data(count: 31)), .malformed),
      (Fixture.accepted(1, from: 100), .malformed),
    ]
    for (message, fault) in asSender {
      var deliveries = Fixture.offered()
      let outputs = deliveries.receive(message, on: number)
      #expect(Fixture.fault(outputs) == fault)
      #expect(deliveries.waitsForChannel)
    }
    // A page is being loaded; pages are missing; an accepted one is not accepted again.
    var loading = Fixture.offered(files: 2)
    _ = loading.receive(Fixture.wanted(1, from: 0), on: number)
    var other = loading
    #expect(Fixture.fault(other.receive(Fixture.wanted(1, from: 0), on: number)) == .unexpectedMessage)
    _ = loading.page(one, from: 0, [Fixture.file()])
    other = loading
    #expect(Fixture.fault(other.receive(Fixture.wanted(1, from: 0), on: number)) == .unexpectedMessage)
    #expect(Fixture.fault(loading.receive(Fixture.accepted(1), on: number)) == .unexpectedMessage)
    var accepted = Fixture.offered()
    _ = accepted.receive(Fixture.accepted(1), on: number)
    for message in [Fixture.accepted(1, stream: 2), Fixture.wanted(1, from: 0)] {
      other = accepted
      #expect(Fixture.fault(other.receive(message, on: number)) == .unexpectedMessage)
    }
    // Offered by the peer.
    for message in [
      Fixture.message(Fixture.offer(1)), Fixture.page(1, [Fixture.file()]), Fixture.committed(1),
      Fixture.accepted(1), Fixture.wanted(1, from: 0),
    ] {
      var receiver = Fixture.arrived()
      let outputs = receiver.receive(message, on: number)
      #expect(Fixture.fault(outputs) == .unexpectedMessage)
      #expect(outputs.last == .interrupted(one))
    }
    var receiver = Fixture.arrived(files: 2)
    _ = receiver.wantPages(one, from: 1)
    other = receiver
    #expect(
      Fixture.fault(other.receive(Fixture.page(1, [Fixture.file()]), on: number)) == .unexpectedMessage)
    let files = [Fixture.file(), Fixture.file()]
    #expect(Fixture.fault(receiver.receive(Fixture.page(1, from: 1, files), on: number)) == .malformed)
  }

  @Test func creditAndWhatWasReceivedNeverFall() {
    var sender = Fixture.offered()
    _ = sender.receive(Fixture.accepted(1, from: 20, credit: 50), on: number)
    for message in [
      Fixture.progress(1, 19, credit: 50), Fixture.progress(1, 71, credit: 60),
      Fixture.progress(1, 101, credit: 200), Fixture.progress(1, 30, credit: 49),
    ] {
      var other = sender
      #expect(Fixture.fault(other.receive(message, on: number)) == .malformed)
    }
    #expect(
      sender.receive(Fixture.progress(1, 70, credit: 51), on: number) == [
        .progressed(one, received: 70), .raiseCredit(one, on: number, stream: 1, to: 51),
      ])
    #expect(sender.receive(Fixture.progress(1, 70, credit: 51), on: number) == [])
  }

  @Test func numbersOfStreamsRise() {
    var sender = Fixture.opened()
    for n: UInt64 in 1...2 {
      _ = sender.enqueue(Fixture.id(n), number: n, fileCount: 1, byteCount: 100)
      _ = sender.offer(Fixture.offer(n))
    }
    _ = sender.receive(Fixture.accepted(1, stream: 5), on: number)
    var other = sender
    #expect(Fixture.fault(other.receive(Fixture.accepted(2, stream: 5), on: number)) == .malformed)
    #expect(Fixture.fault(sender.receive(Fixture.accepted(2, stream: 6), on: number)) == nil)
    var receiver = Fixture.arrived()
    _ = receiver.receive(Fixture.message(Fixture.offer(2)), on: number)
    _ = receiver.accept(one, from: 0, key: key)
    let credit = DeliveryLimits().creditByteCount
    #expect(
      receiver.accept(Fixture.id(2), from: 0, key: key).last
        == .send(Fixture.accepted(2, stream: 2, credit: credit), on: number))
  }

  // MARK: Cancel

  @Test func aCancelIsDecidedByTheReceiver() {
    var sender = Deliveries()
    _ = sender.enqueue(one, number: 1, fileCount: 1, byteCount: 100)
    var other = sender
    #expect(other.cancel(one) == [.settled(one, .cancelled)])
    _ = sender.channelOpened(number)
    other = sender
    #expect(other.cancel(one) == [.settled(one, .cancelled)])
    #expect(other.offer(Fixture.offer(1)) == [])
    _ = sender.offer(Fixture.offer(1))
    _ = sender.receive(Fixture.accepted(1), on: number)
    #expect(
      sender.cancel(one)
        == [.endStream(one, on: number, stream: 1), .send(Fixture.cancelled(1), on: number)])
    #expect(sender.cancel(one) == [])
    #expect(sender.receive(Fixture.progress(1, 10, credit: 60), on: number) == [])
    other = sender
    #expect(other.receive(Fixture.cancelled(1), on: number) == [.settled(one, .cancelled)])
    other = sender
    #expect(other.receive(Fixture.refused(1, 7), on: number) == [.settled(one, .cancelled)])
    other = sender
    #expect(
      other.receive(Fixture.committed(1), on: number) == [.tooLate(one), .settled(one, .committed)])
    // Without an answer it is offered once more, and cancelled at once.
    #expect(sender.channelClosed(number) == [])
    #expect(sender.waitsForChannel)
    #expect(sender.retry() == [.connect])
    let second = ChannelNumber(2)
    #expect(sender.channelOpened(second) == [.wantsOffer(one)])
    #expect(
      sender.offer(Fixture.offer(1)) == [
        .send(Fixture.message(Fixture.offer(1)), on: second), .send(Fixture.cancelled(1), on: second),
      ])
    #expect(sender.receive(Fixture.cancelled(1), on: second) == [.settled(one, .cancelled)])
  }

  @Test func aCancelAndACommitMayCross() {
    var receiver = Fixture.arrived()
    _ = receiver.accept(one, from: 0, key: key)
    var other = receiver
    #expect(
      other.receive(Fixture.cancelled(1), on: number)
        == [.endExpecting(one, on: number, stream: 1), .withdrawn(one)])
    let begins = other.beginCommit(one)
    #expect(!begins)
    #expect(other.received(one, 50) == [])
    #expect(other.refuse(one, .with { $0.error = 22 }) == [])
    #expect(other.discarded(one) == [.send(Fixture.cancelled(1), on: number)])
    #expect(other.discarded(one) == [])
    #expect(other.isIdle)

    _ = receiver.beginCommit(one)
    other = receiver
    #expect(other.receive(Fixture.cancelled(1), on: number) == [])
    #expect(other.committed(one) == [.send(Fixture.committed(1), on: number), .resultUnwanted(one)])
    // The commit fails: nothing is unwanted.
    other = receiver
    _ = other.receive(Fixture.cancelled(1), on: number)
    #expect(other.refuse(one, .with { $0.error = 22 }) == [.send(Fixture.refused(1, 22), on: number)])
    // Twice, or a sender that cannot read what it has sent.
    other = receiver
    _ = other.receive(Fixture.cancelled(1), on: number)
    #expect(Fixture.fault(other.receive(Fixture.cancelled(1), on: number)) == .unexpectedMessage)
    other = receiver
    #expect(Fixture.fault(other.receive(Fixture.failed(1), on: number)) == .unexpectedMessage)

    #expect(receiver.committed(one) == [.send(Fixture.committed(1), on: number)])
    #expect(receiver.receive(Fixture.cancelled(1), on: number) == [.resultUnwanted(one)])
    #expect(receiver.receive(Fixture.cancelled(1), on: number) == [])
  }

  @Test func aSourceThatCannotBeReadEndsIt() {
    var sender = Fixture.offered()
    _ = sender.receive(Fixture.wanted(1, from: 0), on: number)
    let failure = WireFailure.with {
      $0.error = 23
      $0.detail = "/a"
    }
    let failed = WireChannelMessage.with {
      $0.deliveryFailed = .with {
        $0.id = one.bytes
        $0.failure = failure
      }
    }
    #expect(sender.fail(one, failure) == [.send(failed, on: number), .settled(one, .refused(failure))])
    #expect(!sender.isIdle)
    #expect(sender.receive(Fixture.cancelled(1), on: number) == [])
    #expect(sender.isIdle)
    var receiver = Fixture.arrived()
    #expect(receiver.receive(failed, on: number) == [.withdrawn(one)])
    #expect(receiver.discarded(one) == [.send(Fixture.cancelled(1), on: number)])
  }

  // MARK: Channels

  @Test func aBrokenChannelLeavesTheCommitAlone() {
    var receiver = Fixture.arrived()
    _ = receiver.accept(one, from: 0, key: key)
    var other = receiver
    #expect(
      other.channelClosed(number) == [.endExpecting(one, on: number, stream: 1), .interrupted(one)])
    _ = receiver.beginCommit(one)
    #expect(receiver.channelClosed(number) == [])
    let second = ChannelNumber(2)
    _ = receiver.channelOpened(second)
    other = receiver
    #expect(other.committed(one) == [])
    // Offered again meanwhile: it is answered there.
    #expect(receiver.receive(Fixture.message(Fixture.offer(1)), on: second) == [])
    #expect(receiver.committed(one) == [.send(Fixture.committed(1), on: second)])
  }

  @Test func anOfferOnAnotherChannelTakesThePlaceOfTheFirst() {
    var receiver = Fixture.arrived()
    _ = receiver.accept(one, from: 0, key: key)
    let second = ChannelNumber(2)
    _ = receiver.channelOpened(second)
    let offer = Fixture.offer(1)
    #expect(
      receiver.receive(Fixture.message(offer), on: second)
        == [.endExpecting(one, on: number, stream: 1), .interrupted(one), .offered(offer)])
    #expect(receiver.receive(Fixture.cancelled(1), on: number) == [])
    #expect(receiver.channelClosed(number) == [])
    #expect(receiver.incomingCount == 1)
  }

  @Test func isOfferedAgainWhenTheFirstIsDiscarded() {
    var receiver = Fixture.arrived()
    _ = receiver.receive(Fixture.cancelled(1), on: number)
    _ = receiver.channelClosed(number)
    let second = ChannelNumber(2)
    _ = receiver.channelOpened(second)
    let offer = Fixture.offer(1)
    #expect(receiver.receive(Fixture.message(offer), on: second) == [])
    var other = receiver
    #expect(other.discarded(one) == [.offered(offer)])
    #expect(receiver.receive(Fixture.cancelled(1), on: second) == [])
    other = receiver
    #expect(other.discarded(one) == [.send(Fixture.cancelled(1), on: second)])
    #expect(receiver.committed(one) == [.send(Fixture.committed(1), on: second), .resultUnwanted(one)])
  }

  @Test func asksForAChannelAtOnceOnlyAfterOneThatServed() {
    var sender = Fixture.offered()
    var other = sender
    #expect(other.channelClosed(number) == [])
    #expect(other.retry() == [.connect])
    #expect(other.channelRefused() == [])
    #expect(other.waitsForChannel)
    #expect(other.retry() == [.connect])
    _ = sender.receive(Fixture.accepted(1), on: number)
    _ = sender.receive(Fixture.progress(1, 10, credit: 60), on: number)
    #expect(sender.channelClosed(number) == [.endStream(one, on: number, stream: 1), .connect])
    // It is taken for accepted once.
    let second = ChannelNumber(2)
    _ = sender.channelOpened(second)
    _ = sender.offer(Fixture.offer(1))
    #expect(!sender.receive(Fixture.accepted(1), on: second).contains(.accepted(one)))
  }

  // MARK: Replies

  @Test func asksAboutReplies() {
    var consumer = Deliveries()
    #expect(consumer.inquire(one) == [.connect])
    let inquiry = WireChannelMessage.with { $0.replyInquiry.id = one.bytes }
    #expect(consumer.channelOpened(number) == [.send(inquiry, on: number)])
    #expect(consumer.inquire(one) == [])
    var provider = Fixture.opened()
    #expect(provider.receive(inquiry, on: number) == [.inquired(request: one)])
    var other = provider
    #expect(Fixture.fault(other.receive(inquiry, on: number)) == .unexpectedMessage)
    let standing = WireChannelMessage.with {
      $0.replyStanding = .with {
        $0.id = one.bytes
        $0.isAwaited = true
      }
    }
    #expect(provider.standing(one, isAwaited: true) == [.send(standing, on: number)])
    #expect(provider.standing(one, isAwaited: true) == [])
    other = consumer
    #expect(other.receive(standing, on: number) == [.standing(request: one, isAwaited: true)])
    #expect(Fixture.fault(other.receive(standing, on: number)) == .unexpectedMessage)
    // Asked again when the answer is lost.
    _ = consumer.channelClosed(number)
    #expect(consumer.channelOpened(ChannelNumber(2)) == [.send(inquiry, on: ChannelNumber(2))])
    let ended = WireChannelMessage.with { $0.requestEnded.id = one.bytes }
    #expect(provider.endRequest(one) == [.send(ended, on: number)])
    #expect(consumer.receive(ended, on: ChannelNumber(2)) == [.requestEnded(one)])
  }
}
