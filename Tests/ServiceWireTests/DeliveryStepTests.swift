import Foundation
import Testing

@testable import ServiceWire

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
    offer.id = one.data
    offer.request.id = one.data
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

    let credit = DeliveryLimits().creditFrameCount
    let accepted = Fixture.accepted(1, from: 10, credit: credit)
    #expect(
      receiver.accept(one, from: 10, key: key) == [
        .expect(one, on: number, stream: 1, key: key),
        .send(accepted, on: number),
      ])
    #expect(
      sender.receive(accepted, on: number) == [
        .accepted(one), .progressed(one, received: 10),
        .beginStream(one, on: number, stream: 1, key: key, from: 10, credit: credit, checking: nil),
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

  /// A restored sender's message is offered again under another incarnation, on the same channel; a receiver that
  /// never takes it cannot go on for ever.
  @Test func offersAgainWhatHasANumberThatIsTaken() {
    var sender = Fixture.offered()
    var receiver = Fixture.arrived()
    var refused = Fixture.refused(1, 25)
    refused.deliveryRefused.generation = 5
    var offer = Fixture.offer(1)
    for generation in 6...13 as ClosedRange<UInt64> {
      #expect(receiver.refuseNumber(one, generation: 5) == [.send(refused, on: number)])
      #expect(
        sender.receive(refused, on: number) == [
          .numberTaken(one, offer.incarnation, generation: 5), .wantsOffer(one),
        ])
      offer.incarnation.generation = generation
      #expect(sender.offer(offer) == [.send(Fixture.message(offer), on: number)])
      #expect(receiver.receive(Fixture.message(offer), on: number) == [.offered(offer)])
    }
    #expect(receiver.refuseNumber(one, generation: 5) == [.send(refused, on: number)])
    #expect(
      sender.receive(refused, on: number) == [.settled(one, .refused(.with { $0.error = 25 }))])
    #expect(sender.isIdle && receiver.isIdle)
    // Nobody drives it to the last generation.
    for (more, isPossible) in [(1 << 20, true), (1 << 20 + 1, false), (.max - 3, false)] as [(UInt64, Bool)] {
      var other = Fixture.offered()
      var far = refused
      far.deliveryRefused.generation = 3 + more
      #expect((Fixture.fault(other.receive(far, on: number)) == nil) == isPossible, "\(more)")
    }
    // What was refused for another reason does not come again on this channel.
    var other = Fixture.arrived()
    _ = other.refuse(one, .with { $0.error = 7 })
    #expect(Fixture.fault(other.receive(Fixture.message(offer), on: number)) == .unexpectedMessage)
    // What was cancelled meanwhile has ended.
    sender = Fixture.offered()
    _ = sender.cancel(one)
    #expect(sender.receive(refused, on: number) == [.settled(one, .cancelled)])
  }

  /// The count begins anew when more has arrived than ever before.
  @Test func aNumberMayBeTakenAgainWhenMoreHasArrived() {
    var sender = Fixture.offered()
    var refused = Fixture.refused(1, 25)
    refused.deliveryRefused.generation = 5
    func offerAgainEightTimes() {
      for _ in 0..<8 {
        let outputs = sender.receive(refused, on: number)
        #expect(
          Array(outputs.suffix(2)) == [
            .numberTaken(one, Fixture.incarnation, generation: 5), .wantsOffer(one),
          ])
        _ = sender.offer(Fixture.offer(1))
      }
    }
    func receiveTenBytes(stream: UInt32) {
      _ = sender.receive(Fixture.accepted(1, stream: stream), on: number)
      let outputs = sender.receive(Fixture.progress(1, 10, credit: 50), on: number)
      #expect(outputs == [.progressed(one, received: 10)])
    }
    offerAgainEightTimes()
    receiveTenBytes(stream: 1)
    offerAgainEightTimes()
    // The same bytes once more.
    receiveTenBytes(stream: 2)
    #expect(
      sender.receive(refused, on: number) == [
        .endStream(one, on: number, stream: 2), .settled(one, .refused(.with { $0.error = 25 })),
      ])
    #expect(sender.isIdle)
  }

  /// It does not have what the sender was told that it has.
  @Test func aReceiverThatWasPutBackSaysSo() {
    var offer = Fixture.offer(1)
    offer.delivered = 9
    func offered() -> Deliveries {
      var sender = Fixture.offered()
      // Once more, with that.
      _ = sender.receive(Fixture.refused(1, 25), on: number)
      _ = sender.offer(offer)
      return sender
    }
    func putBack(_ count: UInt64) -> WireChannelMessage {
      .with {
        $0.putBack = .with {
          $0.id = one.data
          $0.count = count
        }
      }
    }
    var receiver = Fixture.arrived()
    #expect(receiver.putBack(one, count: 4) == [.send(putBack(4), on: number)])
    var sender = offered()
    #expect(
      sender.receive(putBack(4), on: number) == [.putBack(one, Fixture.incarnation, count: 4, delivered: 9)])
    // Once, before the other answers.
    #expect(Fixture.fault(sender.receive(putBack(4), on: number)) == .unexpectedMessage)
    sender = offered()
    _ = sender.receive(Fixture.wanted(1, from: 0), on: number)
    #expect(Fixture.fault(sender.receive(putBack(4), on: number)) == .unexpectedMessage)
    sender = offered()
    #expect(Fixture.fault(sender.receive(putBack(9), on: number)) == .malformed)
    sender = offered()
    _ = sender.cancel(one)
    #expect(
      sender.receive(putBack(0), on: number) == [.putBack(one, Fixture.incarnation, count: 0, delivered: 9)])
    _ = receiver.accept(one, from: 0, key: Data(repeating: 1, count: 32))
    #expect(receiver.putBack(one, count: 4) == [])
  }

  /// The sender is told, and the offer is answered when the receiver is unlocked.
  @Test func anOfferWaitsForALockedReceiver() {
    var suspended = Fixture.waiting(1)
    suspended.deliveryWaiting.reason = .resumption
    var receiver = Fixture.arrived()
    #expect(receiver.isMoving)
    #expect(receiver.hold(one, for: .unlock) == [.send(Fixture.waiting(1), on: number)])
    #expect(!receiver.isMoving && !receiver.isIdle)
    #expect(receiver.hold(one, for: .resumption) == [.send(suspended, on: number)])
    // Not before it runs.
    #expect(receiver.hold(one, for: .resumption) == [])
    #expect(receiver.wantPages(one, from: 0) == [])
    #expect(receiver.accept(one, from: 0, key: key) == [])
    #expect(receiver.putBack(one, count: 4) == [])
    #expect(receiver.release(one) == [])
    #expect(receiver.isMoving)
    // It is said once, however often the offer is looked at again.
    #expect(receiver.hold(one, for: .resumption) == [])
    #expect(!receiver.isMoving)
    #expect(receiver.release(one) == [])
    #expect(receiver.putBack(one, count: 4) == [])
    #expect(receiver.wantPages(one, from: 0) == [.send(Fixture.wanted(1, from: 0), on: number)])
    #expect(receiver.hold(one, for: .unlock) == [])

    var sender = Fixture.offered()
    #expect(sender.isMoving && sender.waitReason == nil)
    #expect(sender.receive(Fixture.waiting(1), on: number) == [.waiting(one)])
    #expect(!sender.isMoving && !sender.isIdle && sender.waitReason == .unlock)
    #expect(sender.receive(suspended, on: number) == [.waiting(one)])
    #expect(!sender.isMoving && sender.waitReason == .resumption)
    #expect(sender.receive(Fixture.wanted(1, from: 0), on: number) == [.wantsPage(one, from: 0)])
    #expect(sender.isMoving && sender.waitReason == nil)
  }

  /// Whatever answers an offer may answer one that has waited.
  @Test func aWaitingOfferEndsInEveryWay() {
    func waiting(files: UInt64 = 1) -> Deliveries {
      var sender = Fixture.offered(files: files)
      _ = sender.receive(Fixture.waiting(1), on: number)
      return sender
    }
    var sender = waiting()
    #expect(sender.receive(Fixture.accepted(1), on: number).first == .accepted(one))
    sender = waiting()
    #expect(sender.receive(Fixture.committed(1), on: number) == [.settled(one, .committed)])
    sender = waiting()
    #expect(
      sender.receive(Fixture.refused(1, 7), on: number)
        == [.settled(one, .refused(.with { $0.error = 7 }))])
    #expect(sender.isIdle && sender.waitReason == nil)
    sender = waiting()
    #expect(sender.channelClosed(number) == [])
    #expect(sender.waitsForChannel && sender.waitReason == nil && !sender.isMoving)
    sender = waiting()
    #expect(sender.fail(one, .with { $0.error = 23 }).count == 2)
    #expect(sender.waitReason == nil)
    // Taken back: what the receiver said before it knew of that has crossed.
    sender = waiting()
    #expect(sender.cancel(one) == [.send(Fixture.cancelled(1), on: number)])
    #expect(sender.waitReason == nil && sender.isMoving)
    #expect(sender.receive(Fixture.cancelled(1), on: number) == [.settled(one, .cancelled)])
    sender = Fixture.offered()
    _ = sender.cancel(one)
    #expect(sender.receive(Fixture.waiting(1), on: number) == [])

    var receiver = Fixture.arrived()
    _ = receiver.hold(one, for: .unlock)
    #expect(receiver.receive(Fixture.cancelled(1), on: number) == [.withdrawn(one)])
    #expect(receiver.discarded(one) == [.send(Fixture.cancelled(1), on: number)])
    receiver = Fixture.arrived()
    _ = receiver.hold(one, for: .unlock)
    #expect(receiver.channelClosed(number) == [.interrupted(one)])
    #expect(receiver.release(one) == [])
    #expect(receiver.isIdle)
    receiver = Fixture.arrived()
    _ = receiver.hold(one, for: .unlock)
    #expect(receiver.refuse(one, .with { $0.error = 7 }) == [.send(Fixture.refused(1, 7), on: number)])
  }

  @Test func anOfferWaitsOnceAndBeforeOtherAnswers() {
    var sender = Fixture.offered()
    var unknown = Fixture.waiting(1)
    unknown.deliveryWaiting.reason = .UNRECOGNIZED(2)
    #expect(Fixture.fault(sender.receive(unknown, on: number)) == .malformed)
    sender = Fixture.offered()
    _ = sender.receive(Fixture.waiting(1), on: number)
    #expect(Fixture.fault(sender.receive(Fixture.waiting(1), on: number)) == .unexpectedMessage)
    sender = Fixture.offered()
    _ = sender.receive(Fixture.wanted(1, from: 0), on: number)
    #expect(Fixture.fault(sender.receive(Fixture.waiting(1), on: number)) == .unexpectedMessage)
    sender = Fixture.offered()
    _ = sender.receive(Fixture.accepted(1), on: number)
    #expect(Fixture.fault(sender.receive(Fixture.waiting(1), on: number)) == .unexpectedMessage)
    sender = Fixture.opened()
    #expect(Fixture.fault(sender.receive(Fixture.waiting(1), on: number)) == .unexpectedMessage)
    sender = Fixture.offered()
    _ = sender.receive(Fixture.waiting(1), on: number)
    let putBack = WireChannelMessage.with { $0.putBack.id = one.data }
    #expect(Fixture.fault(sender.receive(putBack, on: number)) == .unexpectedMessage)
    // Nobody sends contents of what waits.
    var receiver = Fixture.arrived()
    _ = receiver.hold(one, for: .unlock)
    let page = Fixture.page(1, [Fixture.file()])
    #expect(Fixture.fault(receiver.receive(page, on: number)) == .unexpectedMessage)
  }

  @Test func tellsWhatTheReceiverHas() {
    var receiver = Fixture.arrived()
    var committed = Fixture.committed(1)
    committed.committed.count = 12
    #expect(receiver.committed(one, count: 12) == [.send(committed, on: number)])
    var sender = Fixture.offered()
    #expect(
      sender.receive(committed, on: number) == [
        .delivered(one, Fixture.incarnation, count: 12), .settled(one, .committed),
      ])
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
    let request = WireRequest.with { $0.id = one.data }
    let wrong: [(inout WireOffer) -> Void] = [
      { $0.id = Data(count: 15) }, { $0.incarnation.draw = Data(count: 15) }, { $0.number = 0 },
      { $0.floor = 2 },
      { $0.incarnation.generation = 0 }, { $0.incarnation.generation = 1 << 62 }, { $0.number = 1 << 62 },
      { $0.delivered = 1 << 62 },
      { $0.byteCount = 1 << 62 }, { $0.storedByteCount = 1 << 62 }, { $0.byteCount = 0 },
      { $0.fileCount = 0 }, { $0.request.attachments = 0 }, { $0.message = nil },
      { $0.request = request }, { $0.request.id = DeliveryFixture.id(2).data },
      { $0.request.foreground = .UNRECOGNIZED(9) },
      { $0.request.method = String(repeating: "m", count: 256) },
      {
        $0.reply = .with {
          $0.id = Data()
          $0.attachments = 1
        }
      },
      { $0.reply = .with { $0.id = DeliveryFixture.id(2).data } },
      {
        $0.reply = .with {
          $0.id = DeliveryFixture.id(2).data
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
      { $0.byteCount = 1 << 62 - 1 }, { $0.storedByteCount = 1 << 62 - 1 }, { $0.storedByteCount = 0 },
      { ($0.byteCount, $0.storedByteCount) = (0, 0) }, { $0.floor = 0 },
      { $0.request.method = String(repeating: "m", count: 255) },
      {
        $0.reply = .with {
          $0.id = DeliveryFixture.id(2).data
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
      .with { $0.replyStanding.id = one.data }, .with { $0.ping.number = 1 },
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
      Fixture.progress(1, 19, credit: 50), Fixture.progress(1, 19, credit: 60),
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

  /// What does not open is asked for again, once for each offer.
  @Test func contentsThatDoNotOpenAreAskedForAgainOnce() {
    var sender = Fixture.offered()
    var receiver = Fixture.arrived()
    _ = receiver.accept(one, from: 0, key: key)
    _ = sender.receive(Fixture.accepted(1, credit: 8), on: number)
    let other = Data(repeating: 9, count: 32)
    let credit = DeliveryLimits().creditFrameCount
    let again = Fixture.accepted(1, from: 30, stream: 2, credit: credit, key: other, damaged: 41)
    var early = Fixture.offered()
    #expect(Fixture.fault(early.receive(again, on: number)) == .malformed)
    #expect(
      receiver.askAgain(one, from: 30, damaged: 40, key: other) == [
        .endExpecting(one, on: number, stream: 1), .expect(one, on: number, stream: 2, key: other),
        .send(again, on: number),
      ])
    for wrong in [
      Fixture.accepted(1, from: 30, stream: 2, key: other),
      Fixture.accepted(1, from: 30, stream: 2, key: other, damaged: 30),
      Fixture.accepted(1, from: 30, stream: 2, key: other, damaged: 101),
      Fixture.accepted(1, from: 100, stream: 0, credit: 0, key: Data(), damaged: 101),
      Fixture.accepted(1, from: 30, stream: 1, key: other, damaged: 41),
    ] {
      var sender = sender
      let fault = Fixture.fault(sender.receive(wrong, on: number))
      #expect(fault == (wrong.deliveryAccepted.damaged == 0 ? .unexpectedMessage : .malformed))
    }
    #expect(
      sender.receive(again, on: number) == [
        .endStream(one, on: number, stream: 1), .progressed(one, received: 30),
        .beginStream(one, on: number, stream: 2, key: other, from: 30, credit: credit, checking: 40),
      ])
    let third = Fixture.accepted(1, from: 30, stream: 3, key: other, damaged: 41)
    #expect(Fixture.fault(sender.receive(third, on: number)) == .unexpectedMessage)
    let closed = receiver.askAgain(one, from: 30, damaged: 40, key: other)
    #expect(Fixture.fault(closed) == .streamDamaged)
    #expect(closed.contains(.interrupted(one)))
    // Over another channel it may be asked for again.
    let second = ChannelNumber(2)
    _ = receiver.channelOpened(second)
    _ = receiver.receive(Fixture.message(Fixture.offer(1)), on: second)
    _ = receiver.accept(one, from: 30, key: key)
    #expect(Fixture.fault(receiver.askAgain(one, from: 30, damaged: 40, key: other)) == nil)
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
    let credit = DeliveryLimits().creditFrameCount
    #expect(
      receiver.accept(Fixture.id(2), from: 0, key: key).last
        == .send(Fixture.accepted(2, stream: 2, credit: credit), on: number))
  }
}
