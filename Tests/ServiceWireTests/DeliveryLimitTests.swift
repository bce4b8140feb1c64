import Foundation
import SodiumPrimitives
import Testing

@testable import ServiceWire

/// What one peer can make deliveries keep, and what ours keep to: each limit as it is, and one more.
struct DeliveryLimitTests {
  private typealias Fixture = DeliveryFixture
  private let number = DeliveryFixture.number
  private let key = DeliveryFixture.key
  private let one = DeliveryFixture.id(1)

  private func limits(_ change: (inout DeliveryLimits) -> Void) -> DeliveryLimits {
    var limits = DeliveryLimits()
    change(&limits)
    return limits
  }

  @Test func offersAsManyAtOnceAsTheLimitAndNotOneMore() {
    var sender = Fixture.opened(limits: limits { $0.sentCountMax = 2 })
    // The order is that of the numbers.
    #expect(
      sender.enqueue(Fixture.id(3), number: 3, fileCount: 1, byteCount: 100) == [.wantsOffer(Fixture.id(3))])
    #expect(
      sender.enqueue(Fixture.id(4), number: 4, fileCount: 1, byteCount: 100) == [.wantsOffer(Fixture.id(4))])
    for n: UInt64 in [2, 1] {
      #expect(sender.enqueue(Fixture.id(n), number: n, fileCount: 1, byteCount: 100) == [])
    }
    _ = sender.offer(Fixture.offer(3))
    #expect(
      sender.receive(Fixture.committed(3), on: number) == [
        .settled(Fixture.id(3), .committed), .wantsOffer(one),
      ])
  }

  private func offered(_ outputs: [DeliveryOutput]) -> [Identifier] {
    outputs.compactMap { if case .wantsOffer(let id) = $0 { id } else { nil } }
  }

  /// Half of them after each refusal, and one more after eight that have arrived.
  @Test func offersFewerAtOnceWhenThereIsNoRoomForThemTogether() {
    var sender = Deliveries(limits: DeliveryLimits())
    for n: UInt64 in 1...20 { _ = sender.enqueue(Fixture.id(n), number: n, fileCount: 1, byteCount: 100) }
    // The receiver has nothing yet, then one message: that says nothing of the others.
    for (channel, takenCount) in [(1, 0), (2, 1), (3, 8)] as [(UInt64, UInt64)] {
      let number = ChannelNumber(channel)
      #expect(offered(sender.channelOpened(number)) == (1...8).map(Fixture.id))
      for n in 0..<takenCount { _ = sender.offer(Fixture.offer(n + 1)) }
      #expect(offered(sender.channelClosed(number, isOverLimit: true)) == [])
    }
    for (channel, count) in [(4, 4), (5, 2), (6, 1)] as [(UInt64, UInt64)] {
      let number = ChannelNumber(channel)
      #expect(offered(sender.channelOpened(number)) == (1...count).map(Fixture.id))
      for n in 1...count { _ = sender.offer(Fixture.offer(n)) }
      #expect(offered(sender.channelClosed(number, isOverLimit: true)) == [])
    }
    let number = ChannelNumber(7)
    #expect(offered(sender.channelOpened(number)) == [Fixture.id(1)])
    var next: UInt64 = 2
    for n: UInt64 in 1...16 {
      _ = sender.offer(Fixture.offer(n))
      let more = offered(sender.receive(Fixture.committed(n), on: number))
      #expect(more == (next..<next + (n % 8 == 0 ? 2 : 1)).map(Fixture.id))
      next += UInt64(more.count)
    }
    // As many as were on their way: the receiver has not said that there is no room.
    #expect(offered(sender.channelClosed(number)) == [])
    #expect(offered(sender.channelOpened(ChannelNumber(8))).count == 3)
  }

  /// A receiver that is locked may wait for them, or have nothing to hold.
  @Test func repliesAndCancelsDoNotWaitUntilThereIsMoreRoom() {
    var sender = Fixture.opened()
    for n: UInt64 in 1...4 {
      _ = sender.enqueue(Fixture.id(n), number: n, fileCount: 1, byteCount: 100)
      if n < 3 { _ = sender.offer(Fixture.offer(n)) }
    }
    _ = sender.channelClosed(number, isOverLimit: true)
    #expect(offered(sender.channelOpened(ChannelNumber(2))) == [Fixture.id(1)])
    _ = sender.offer(Fixture.offer(1))
    _ = sender.receive(Fixture.waiting(1), on: ChannelNumber(2))
    #expect(offered(sender.cancel(Fixture.id(2))) == [Fixture.id(2)])
    #expect(
      offered(sender.enqueue(Fixture.id(5), number: 5, fileCount: 1, byteCount: 100)) == [])
    #expect(
      offered(sender.enqueue(Fixture.id(6), number: 6, fileCount: 1, byteCount: 100, isReply: true))
        == [Fixture.id(6)])
  }

  @Test func takesAsManyAtOnceAsTheLimitAndNotOneMore() {
    var receiver = Fixture.opened(limits: limits { $0.receivedCountMax = 3 })
    for n: UInt64 in 1...3 {
      #expect(Fixture.fault(receiver.receive(Fixture.message(Fixture.offer(n)), on: number)) == nil)
    }
    var other = receiver
    #expect(
      other.receive(Fixture.message(Fixture.offer(4)), on: number).first
        == .close(number, .limitExceeded, detail: "deliveries under way"))
    _ = receiver.refuse(one, .with { $0.error = 4 })
    #expect(Fixture.fault(receiver.receive(Fixture.message(Fixture.offer(4)), on: number)) == nil)
    // On another channel as many again.
    let second = ChannelNumber(2)
    _ = receiver.channelOpened(second)
    #expect(Fixture.fault(receiver.receive(Fixture.message(Fixture.offer(5)), on: second)) == nil)
  }

  @Test func remembersAsManyEndsAsMayBeUnderWay() {
    var receiver = Fixture.opened(limits: limits { $0.receivedCountMax = 3 })
    for n: UInt64 in 1...4 {
      _ = receiver.receive(Fixture.message(Fixture.offer(n)), on: number)
      _ = receiver.committed(Fixture.id(n))
    }
    #expect(receiver.receive(Fixture.failed(2), on: number) == [])
    var other = receiver
    #expect(Fixture.fault(other.receive(Fixture.message(Fixture.offer(2)), on: number)) == .unexpectedMessage)
    #expect(Fixture.fault(receiver.receive(Fixture.cancelled(1), on: number)) == .unexpectedMessage)
  }

  @Test func aPageHasAsManyFilesAsTheLimitAndNotOneMore() throws {
    let limits = limits { $0.pageFileCountMax = 3 }
    let files = (0..<4).map { Fixture.file("/\($0)", bytes: 0) }
    var sender = Fixture.opened(limits: limits)
    _ = sender.enqueue(one, number: 1, fileCount: 4, byteCount: 0)
    _ = sender.offer(Fixture.offer(1))
    _ = sender.receive(Fixture.wanted(1, from: 0), on: number)
    let page = Fixture.page(1, Array(files.prefix(3)))
    #expect(sender.page(one, from: 0, files) == [.send(page, on: number)])
    var receiver = Fixture.arrived(files: 4, limits: limits)
    _ = receiver.wantPages(one, from: 0)
    var other = receiver
    #expect(Fixture.fault(other.receive(Fixture.page(1, files), on: number)) == .malformed)
    #expect(Fixture.fault(receiver.receive(page, on: number)) == nil)
    #expect(Fixture.fault(receiver.receive(Fixture.page(1, from: 3, []), on: number)) == .malformed)
  }

  @Test func aPageHasAsManyBytesAsTheLimitAndNotOneMore() throws {
    let path = "/" + Array(repeating: String(repeating: "n", count: 255), count: 4).joined(separator: "/")
    let files = [Fixture.file(path), Fixture.file(path), Fixture.file(path)]
    let byteCount = try Fixture.page(1, files).manifestPage.serializedData().count
    for (limit, fault) in [(byteCount, nil), (byteCount - 1, ProtocolFault.malformed)] {
      var receiver = Fixture.arrived(files: 3, limits: limits { $0.pageByteCountMax = limit })
      _ = receiver.wantPages(one, from: 0)
      #expect(Fixture.fault(receiver.receive(Fixture.page(1, files), on: number)) == fault)
    }
    // The sender keeps to the limit and to the peer's frames, and fails when not even one file fits.
    for (limit, frame) in [(1 << 16, 2500), (2500, Int.max)] {
      var sender = Deliveries(limits: limits { $0.pageByteCountMax = limit })
      _ = sender.channelOpened(number, frameByteCountMax: frame)
      _ = sender.enqueue(one, number: 1, fileCount: 3, byteCount: 100)
      _ = sender.offer(Fixture.offer(1))
      _ = sender.receive(Fixture.wanted(1, from: 0), on: number)
      var other = sender
      let page = Fixture.page(1, Array(files.prefix(2)))
      #expect(sender.page(one, from: 0, files) == [.send(page, on: number)])
      let long = Fixture.file(path + path + path)
      let outputs = other.page(one, from: 0, [long, Fixture.file()])
      let failure = WireFailure.with {
        $0.error = 16
        $0.detail = "manifest page"
      }
      #expect(outputs.last == .settled(one, .refused(failure)))
    }
  }

  @Test func anOfferBringsAListThatIsShortAndFits() throws {
    func sent(_ files: [WireOfferedFile], frame: Int = .max) -> [DeliveryOutput] {
      var sender = Deliveries()
      _ = sender.channelOpened(number, frameByteCountMax: frame)
      _ = sender.enqueue(one, number: 1, fileCount: 3, byteCount: 100)
      return sender.offer(Fixture.offer(1, files: 3, listed: files))
    }
    func offer(_ files: [WireOfferedFile]) -> [DeliveryOutput] {
      [.send(Fixture.message(Fixture.offer(1, files: 3, listed: files)), on: number)]
    }
    let files = [Fixture.file("/a"), Fixture.file("/b")]
    #expect(sent(files) == offer(files))
    // The limit itself fits, and one byte more does not.
    let rest = DeliveryLimits.offeredFilesByteCountMax - Fixture.file().encodedByteCount
    let other = rest - Fixture.file(String(repeating: "/", count: 2000)).encodedByteCount + 2000
    let full = [Fixture.file(), Fixture.file(String(repeating: "/", count: other))]
    #expect(full.reduce(0) { $0 + $1.encodedByteCount } == DeliveryLimits.offeredFilesByteCountMax)
    #expect(sent(full) == offer(full))
    #expect(sent([full[0], Fixture.file(String(repeating: "/", count: other + 1))]) == offer([]))
    // A list that makes the frame too long is left out; the message goes.
    let frame = Fixture.message(Fixture.offer(1, files: 3, listed: files)).encodedByteCount
    #expect(sent(files, frame: frame) == offer(files))
    #expect(sent(files, frame: frame - 1) == offer([]))
  }

  @Test func anOfferBringsNoMoreThanAPage() throws {
    let files = (0..<4).map { Fixture.file("/\($0)", bytes: 25) }
    let byteCount = files.dropLast().reduce(0) { $0 + $1.encodedByteCount }
    for (limits, fault) in [
      (limits { $0.pageFileCountMax = 3 }, nil),
      (limits { $0.pageFileCountMax = 2 }, ProtocolFault.malformed),
      (limits { $0.pageByteCountMax = byteCount }, nil),
      (limits { $0.pageByteCountMax = byteCount - 1 }, ProtocolFault.malformed),
    ] {
      var receiver = Fixture.opened(limits: limits)
      let offer = Fixture.offer(1, files: 4, listed: files.dropLast())
      let outputs = receiver.receive(Fixture.message(offer), on: number)
      #expect(Fixture.fault(outputs) == fault)
      if fault == nil { #expect(outputs == [.offered(offer)]) }
    }
  }

  @Test(arguments: [
    Fixture.file("a"), Fixture.file(""), Fixture.file("/"), Fixture.file("/a//b"), Fixture.file("/a\0"),
    Fixture.file("/" + String(repeating: "n", count: 256)), Fixture.file("/a", bytes: 101),
  ]) func anOfferBringsFilesThatAreRight(_ file: WireOfferedFile) {
    for files in [[file], [Fixture.file(), file]] {
      var receiver = Fixture.opened()
      let offer = Fixture.message(Fixture.offer(1, files: 2, listed: files))
      #expect(Fixture.fault(receiver.receive(offer, on: number)) == .malformed)
    }
    // More than there are.
    var receiver = Fixture.opened()
    let offer = Fixture.message(
      Fixture.offer(1, files: 1, listed: [Fixture.file(), Fixture.file("/b", bytes: 0)]))
    #expect(Fixture.fault(receiver.receive(offer, on: number)) == .malformed)
  }

  @Test func offersNoMoreFilesAndBytesThanThePeerTakes() throws {
    var sender = Deliveries()
    _ = sender.channelOpened(number, attachmentCountMax: 2)
    #expect(sender.enqueue(one, number: 1, fileCount: 2, byteCount: 100) == [.wantsOffer(one)])
    let failure = WireFailure.with {
      $0.error = 16
      $0.detail = "attachments of a message"
    }
    #expect(
      sender.enqueue(Fixture.id(2), number: 2, fileCount: 3, byteCount: 100)
        == [.settled(Fixture.id(2), .refused(failure))])
    // One that may be there already: the receiver knows.
    #expect(
      sender.enqueue(Fixture.id(3), number: 3, fileCount: 3, byteCount: 100, wasOffered: true)
        == [.wantsOffer(Fixture.id(3))])

    let frame = try Fixture.message(Fixture.offer(1)).serializedData().count
    for (limit, isSent) in [(frame, true), (frame - 1, false)] {
      var sender = Deliveries()
      _ = sender.channelOpened(number, frameByteCountMax: limit)
      _ = sender.enqueue(one, number: 1, fileCount: 1, byteCount: 100)
      let outputs = sender.offer(Fixture.offer(1))
      if isSent {
        #expect(outputs == [.send(Fixture.message(Fixture.offer(1)), on: number)])
      } else {
        guard case .settled(one, .refused(let failure))? = outputs.first else {
          Issue.record("\(outputs)")
          return
        }
        #expect(failure.detail == "channel frame bytes")
        #expect(sender.isIdle)
      }
    }
  }

  @Test func refusesMoreFilesAndBytesThanTheLimit() {
    let receiver = Fixture.opened(
      limits: limits {
        $0.attachmentCountMax = 2
        $0.attachmentByteCountMax = 100
      })
    #expect(receiver.refusal(of: Fixture.offer(1, files: 2)) == nil)
    #expect(receiver.refusal(of: Fixture.offer(1, files: 3))?.detail == "attachments of a message")
    #expect(
      receiver.refusal(of: Fixture.offer(1, bytes: 101))?.detail == "bytes of the attachments of a message")
    #expect(Fixture.opened().refusal(of: Fixture.offer(1, files: .max, bytes: 1 << 62)) == nil)
  }

  @Test func tellsTheSenderBeforeItHasToWait() {
    for (credit, progress, step) in [(100, 10, 10), (100, 1000, 50), (1, 1, 1)] as [(UInt64, UInt64, UInt64)]
    {
      let limits = limits {
        $0.creditFrameCount = credit
        $0.progressFrameCount = progress
      }
      var receiver = Fixture.arrived(limits: limits)
      _ = receiver.accept(one, from: 7, key: key)
      if step > 1 { #expect(receiver.received(one, 8, frameCount: step - 1) == []) }
      #expect(
        receiver.received(one, 9, frameCount: step)
          == [.send(Fixture.progress(1, 9, credit: step + credit), on: number)])
      #expect(receiver.received(one, 9, frameCount: step) == [])
      // Nothing was stored meanwhile, and the sender may go on.
      #expect(receiver.received(one, 9, frameCount: 2 * step).count == 1)
    }
  }

  @Test func asksAsManyQuestionsAsTheLimitAndNotOneMore() {
    let limits = limits { $0.inquiryCountMax = 2 }
    var consumer = Fixture.opened(limits: limits)
    for n: UInt64 in 1...2 { #expect(consumer.inquire(Fixture.id(n)).count == 1) }
    #expect(consumer.inquire(Fixture.id(3)) == [])
    let answer = WireChannelMessage.with { $0.replyStanding.id = one.data }
    #expect(
      consumer.receive(answer, on: number) == [
        .standing(request: one, isAwaited: false),
        .send(.with { $0.replyInquiry.id = Fixture.id(3).data }, on: number),
      ])
    var provider = Fixture.opened(limits: limits)
    for n: UInt64 in 1...2 {
      #expect(
        Fixture.fault(provider.receive(.with { $0.replyInquiry.id = Fixture.id(n).data }, on: number)) == nil
      )
    }
    #expect(
      Fixture.fault(provider.receive(.with { $0.replyInquiry.id = Fixture.id(3).data }, on: number))
        == .limitExceeded)
  }

  /// Offered again over other channels before the first has ended: no more of that is kept than a sender needs.
  @Test func offersThatWaitAreCounted() {
    var receiver = Fixture.opened(limits: limits { $0.waitingOfferByteCountMax = 2500 })
    var offer = Fixture.offer(1)
    offer.request.params.bytes = Data(count: 1000)
    #expect(Fixture.fault(receiver.receive(Fixture.message(offer), on: number)) == nil)
    for n: UInt64 in 2...4 {
      let another = ChannelNumber(n)
      _ = receiver.channelOpened(another)
      let outputs = receiver.receive(Fixture.message(offer), on: another)
      if n < 4 {
        #expect(Fixture.fault(outputs) == nil)
      } else {
        #expect(outputs.first == .close(another, .limitExceeded, detail: "bytes of offers that wait"))
      }
    }
    // The channel of the first ends: the last of those that wait goes on, and makes room.
    #expect(receiver.channelClosed(number).contains(.offered(offer)))
    let fifth = ChannelNumber(5)
    _ = receiver.channelOpened(fifth)
    #expect(Fixture.fault(receiver.receive(Fixture.message(offer), on: fifth)) == nil)
  }

  @Test func anOfferThatWaitsListsNothing() {
    var receiver = Fixture.opened()
    let offer = Fixture.offer(1, listed: [Fixture.file()])
    #expect(receiver.receive(Fixture.message(offer), on: number) == [.offered(offer)])
    let another = ChannelNumber(2)
    _ = receiver.channelOpened(another)
    #expect(receiver.receive(Fixture.message(offer), on: another) == [])
    #expect(receiver.channelClosed(number).contains(.offered(Fixture.offer(1))))
    // So the receiver asks for the list.
    #expect(receiver.wantPages(one, from: 0) == [.send(Fixture.wanted(1, from: 0), on: another)])
  }

  @Test func theDetailOfAFailureIsNoLongerThanTheLimit() {
    func failed(_ count: Int) -> WireChannelMessage {
      .with {
        $0.deliveryFailed = .with {
          $0.id = Fixture.id(1).data
          $0.failure.detail = String(repeating: "d", count: count)
        }
      }
    }
    func refused(_ count: Int) -> WireChannelMessage {
      .with {
        $0.deliveryRefused = .with { refusal in
          refusal.id = Fixture.id(1).data
          refusal.failure.detail = String(repeating: "d", count: count)
        }
      }
    }
    for (count, fault) in [(4096, nil), (4097, ProtocolFault.malformed)] {
      var receiver = Fixture.arrived()
      #expect(Fixture.fault(receiver.receive(failed(count), on: number)) == fault)
      var sender = Fixture.offered()
      #expect(Fixture.fault(sender.receive(refused(count), on: number)) == fault)
    }
    // Our own are cut.
    var receiver = Fixture.arrived()
    #expect(
      receiver.refuse(one, .with { $0.detail = String(repeating: "d", count: 5000) })
        == [.send(refused(4096), on: number)])
  }
}
