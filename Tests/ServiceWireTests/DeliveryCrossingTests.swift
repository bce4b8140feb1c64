import Foundation
import Testing

@testable import ServiceWire

/// Cancels, failures and broken channels, which cross what the other side does.
struct DeliveryCrossingTests {
  private typealias Fixture = DeliveryFixture
  private let number = DeliveryFixture.number
  private let key = DeliveryFixture.key
  private let one = DeliveryFixture.id(1)

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
    #expect(other.received(one, 50, frameCount: 9) == [])
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
        $0.id = one.data
        $0.failure = failure
      }
    }
    // Without a channel its end depends on whether the receiver can have it.
    for (wasOffered, end) in [(false, SentDeliveryEnd.refused(failure)), (true, .lost(failure))] {
      var other = Deliveries()
      _ = other.enqueue(one, number: 1, fileCount: 1, byteCount: 100, wasOffered: wasOffered)
      #expect(other.fail(one, failure) == [.settled(one, end)])
      other = Deliveries()
      _ = other.channelOpened(number)
      #expect(
        other.enqueue(one, number: 1, fileCount: 1, byteCount: 100, wasOffered: wasOffered)
          == [.wantsOffer(one)])
      #expect(other.fail(one, failure) == [.settled(one, end)])
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

  @Test func anOfferOnAnotherChannelWaitsForTheEndOfTheFirst() {
    var receiver = Fixture.arrived()
    _ = receiver.accept(one, from: 0, key: key)
    let second = ChannelNumber(2)
    _ = receiver.channelOpened(second)
    // Which of the two the sender has closed, only their ends tell.
    let offer = Fixture.offer(1)
    #expect(receiver.receive(Fixture.message(offer), on: second) == [])
    var other = receiver
    #expect(other.channelClosed(second) == [])
    #expect(other.incomingCount == 1)
    #expect(
      receiver.channelClosed(number)
        == [.endExpecting(one, on: number, stream: 1), .interrupted(one), .offered(offer)])
  }

  @Test func allOffersOfOneDeliveryAreAnswered() {
    var receiver = Fixture.arrived()
    _ = receiver.accept(one, from: 0, key: key)
    let second = ChannelNumber(2)
    _ = receiver.channelOpened(second)
    _ = receiver.receive(Fixture.message(Fixture.offer(1)), on: second)
    var other = receiver
    #expect(
      Fixture.fault(other.receive(Fixture.message(Fixture.offer(1)), on: second)) == .unexpectedMessage)
    other = receiver
    #expect(
      other.refuse(one, .with { $0.error = 22 }) == [
        .endExpecting(one, on: number, stream: 1), .send(Fixture.refused(1, 22), on: number),
        .send(Fixture.refused(1, 22), on: second),
      ])
    _ = receiver.beginCommit(one)
    other = receiver
    #expect(other.receive(Fixture.cancelled(1), on: second) == [])
    #expect(
      other.committed(one) == [
        .send(Fixture.committed(1), on: number), .send(Fixture.committed(1), on: second),
        .resultUnwanted(one),
      ])
    #expect(other.receive(Fixture.cancelled(1), on: number) == [])
    _ = receiver.committed(one)
    #expect(receiver.receive(Fixture.cancelled(1), on: second) == [.resultUnwanted(one)])
    #expect(receiver.receive(Fixture.cancelled(1), on: number) == [])
    #expect(receiver.isIdle)
  }

  @Test func anOfferThatWaitsMayBeWithdrawn() {
    var receiver = Fixture.arrived()
    let second = ChannelNumber(2)
    _ = receiver.channelOpened(second)
    let offer = Fixture.offer(1)
    _ = receiver.receive(Fixture.message(offer), on: second)
    #expect(receiver.receive(Fixture.cancelled(1), on: second) == [])
    var other = receiver
    #expect(Fixture.fault(other.receive(Fixture.cancelled(1), on: second)) == .unexpectedMessage)
    #expect(receiver.channelClosed(number) == [.interrupted(one), .offered(offer), .withdrawn(one)])
    #expect(receiver.discarded(one) == [.send(Fixture.cancelled(1), on: second)])
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

  /// After a failed commit or discard the receiver tells nobody that the message was not delivered.
  @Test func whatIsNotKnownIsLeftOpenOnAllChannels() {
    let second = ChannelNumber(2)
    let closing = DeliveryOutput.close(second, .limitExceeded, detail: "disk")
    var committing = Fixture.arrived()
    _ = committing.accept(one, from: 0, key: key)
    _ = committing.beginCommit(one)
    var withdrawn = Fixture.arrived()
    _ = withdrawn.receive(Fixture.cancelled(1), on: number)
    var offered = Fixture.arrived()
    for isBroken in [true, false] {
      for receiver in [committing, withdrawn, offered] {
        var receiver = receiver
        _ = receiver.channelOpened(second)
        _ = receiver.receive(Fixture.message(Fixture.offer(1)), on: second)
        if isBroken { _ = receiver.channelClosed(number) }
        let outputs = receiver.leaveOpen(one, detail: "disk")
        #expect(
          outputs.filter { if case .endExpecting = $0 { false } else { true } }
            == (isBroken ? [closing] : [.close(number, .limitExceeded, detail: "disk"), closing]))
        #expect(receiver.isIdle)
        #expect(receiver.leaveOpen(one, detail: "disk") == [])
      }
    }
    #expect(
      offered.leaveOpen(one, detail: "disk") == [.close(number, .limitExceeded, detail: "disk")])
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
    let inquiry = WireChannelMessage.with { $0.replyInquiry.id = one.data }
    #expect(consumer.channelOpened(number) == [.send(inquiry, on: number)])
    #expect(consumer.inquire(one) == [])
    var provider = Fixture.opened()
    #expect(provider.receive(inquiry, on: number) == [.inquired(request: one)])
    var other = provider
    #expect(Fixture.fault(other.receive(inquiry, on: number)) == .unexpectedMessage)
    let standing = WireChannelMessage.with {
      $0.replyStanding = .with {
        $0.id = one.data
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
    let ended = WireChannelMessage.with { $0.requestEnded.id = one.data }
    #expect(provider.endRequest(one) == [.send(ended, on: number)])
    #expect(consumer.receive(ended, on: ChannelNumber(2)) == [.requestEnded(one, isReplyLost: false)])
  }

  /// The consumer asks over the next channel: nothing is dialled, and nothing waits, for a reply that is lost.
  @Test func aLostReplyIsSaidOverTheChannelThereIs() {
    var provider = Deliveries()
    #expect(provider.replyLost(one) == [])
    #expect(provider.isIdle && !provider.waitsForChannel)
    _ = provider.channelOpened(number)
    let lost = WireChannelMessage.with {
      $0.requestEnded = .with {
        $0.id = one.data
        $0.isReplyLost = true
      }
    }
    #expect(provider.replyLost(one) == [.send(lost, on: number)])
    #expect(provider.isIdle)
    var consumer = Deliveries()
    _ = consumer.channelOpened(number)
    #expect(consumer.receive(lost, on: number) == [.requestEnded(one, isReplyLost: true)])
  }
}
