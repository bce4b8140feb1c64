import Testing

@testable import ServiceWire

struct BulkReceptionTests {
  static let fullContents = UInt32(BulkFrame.contentsByteCountMax)

  /// The fault of a frame; nil when it is accepted.
  static func fault(
    _ reception: inout BulkReception, _ stream: UInt32, block: UInt32 = 100, contents: UInt32 = 0,
    isInSlot: Bool = false
  ) -> ProtocolFault? {
    do throws(BulkFault) {
      _ = try reception.begin(stream, block: block, contents: contents, isInSlot: isInSlot)
      return nil
    } catch { return error.fault }
  }

  static func begin(_ reception: inout BulkReception, _ stream: UInt32) throws -> BulkReception.Frame {
    try reception.begin(stream, block: 100, contents: 0, isInSlot: false)
  }

  @Test func takesBlocksOfPossibleLengths() {
    // The first block has the stream's header in front of it.
    for (lengths, accepted): ([UInt32], Bool) in [([0, 29, 52, 13_366, .max], false), ([53, 13_365], true)] {
      for length in lengths {
        var reception = BulkReception()
        reception.expect(1, credit: 1)
        #expect((Self.fault(&reception, 1, block: length) == nil) == accepted, "\(length)")
      }
    }
    for (lengths, accepted): ([UInt32], Bool) in [
      ([0, 12, 28, 13_342, 13_365, .max], false), ([29, 13_341], true),
    ] {
      for length in lengths {
        var reception = BulkReception()
        reception.expect(1, credit: 2)
        #expect(Self.fault(&reception, 1) == nil)
        let fault = Self.fault(&reception, 1, block: length)
        #expect(fault == (accepted ? nil : .streamDamaged), "\(length)")
      }
    }
  }

  @Test func takesContentsOfPossibleLengths() {
    for (length, isInSlot, accepted) in [
      (0, false, true), (0, true, false), (1, true, true), (Self.fullContents, false, true),
      (Self.fullContents, true, true), (Self.fullContents + 1, false, false),
      (Self.fullContents + 1, true, false), (UInt32.max >> 1, false, false),
    ] {
      var reception = BulkReception()
      reception.expect(1, credit: 1)
      let fault = Self.fault(&reception, 1, contents: length, isInSlot: isInSlot)
      #expect(fault == (accepted ? nil : .streamDamaged), "\(length), in a slot: \(isInSlot)")
    }
  }

  @Test func knowsTheFirstFrameOfAStream() throws {
    var reception = BulkReception()
    for stream: UInt32 in 1...2 { reception.expect(stream, credit: 3) }
    #expect(try Self.begin(&reception, 1) == .init(isFirst: true, isSkipped: false))
    #expect(try Self.begin(&reception, 1) == .init(isFirst: false, isSkipped: false))
    #expect(try Self.begin(&reception, 2) == .init(isFirst: true, isSkipped: false))
  }

  @Test func takesNothingOfAStreamThatWasNotAnnouncedOrHasEnded() throws {
    var reception = BulkReception()
    #expect(Self.fault(&reception, 1) == .streamDamaged)
    reception.expect(1, credit: .max)
    #expect(!reception.isIdle)
    #expect(Self.fault(&reception, 2) == .streamDamaged)
    _ = try Self.begin(&reception, 1)
    reception.end(1)
    #expect(Self.fault(&reception, 1) == .streamDamaged)
    #expect(reception.isIdle)
    reception.end(1)
    reception.stop(1)
    #expect(reception.isIdle)
  }

  @Test func holdsTheCreditOfEachStream() throws {
    var reception = BulkReception()
    reception.expect(1, credit: 1)
    reception.expect(2, credit: 5)
    _ = try Self.begin(&reception, 1)
    #expect(Self.fault(&reception, 1) == .limitExceeded)
    reception.raiseCredit(1, to: 2)
    reception.raiseCredit(1, to: 0)
    reception.raiseCredit(5, to: .max)
    _ = try Self.begin(&reception, 1)
    #expect(Self.fault(&reception, 1) == .limitExceeded)
    for _ in 0..<5 { _ = try Self.begin(&reception, 2) }
    #expect(Self.fault(&reception, 2) == .limitExceeded)
    reception.expect(3, credit: 0)
    #expect(Self.fault(&reception, 3) == .limitExceeded)
  }

  @Test func skipsAStoppedStreamWithinItsCredit() throws {
    var reception = BulkReception()
    reception.expect(1, credit: 2)
    reception.expect(2, credit: 2)
    _ = try Self.begin(&reception, 2)
    for stream: UInt32 in 1...3 { reception.stop(stream) }
    #expect(reception.isIdle)
    #expect(try Self.begin(&reception, 1) == .init(isFirst: true, isSkipped: true))
    reception.raiseCredit(1, to: .max)
    #expect(try Self.begin(&reception, 1) == .init(isFirst: false, isSkipped: true))
    #expect(Self.fault(&reception, 1) == .limitExceeded)
    // What is skipped is no less checked.
    #expect(Self.fault(&reception, 2, block: 28) == .streamDamaged)
    #expect(Self.fault(&reception, 3) == .streamDamaged)
    // It may end while it is stopped, and takes no room among the stopped then.
    reception.end(2)
    #expect(Self.fault(&reception, 2) == .streamDamaged)
    #expect(reception.isIdle)
    reception.expect(4, credit: 1)
    #expect(!reception.isIdle)
  }

  @Test func forgetsTheOldestOfTooManyStoppedStreams() throws {
    var reception = BulkReception()
    let count = UInt32(BulkReception.stoppedCountMax)
    for stream in 1...count {
      reception.expect(stream, credit: 1)
      reception.stop(stream)
    }
    var one = reception
    #expect(try Self.begin(&one, 1).isSkipped)
    reception.expect(count + 1, credit: 1)
    reception.stop(count + 1)
    #expect(Self.fault(&reception, 1) == .streamDamaged)
    #expect(try Self.begin(&reception, 2).isSkipped)
    #expect(reception.isIdle)
  }
}
