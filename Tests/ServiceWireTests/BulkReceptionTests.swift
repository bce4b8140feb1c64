import Testing

@testable import ServiceWire

struct BulkReceptionTests {
  static let message = UInt64(BulkFrame.messageByteCountMax)
  static let fullLength = UInt32(BulkFrame.messageByteCountMax + BulkFrame.overheadByteCount)

  /// Stream 1, whose header has come.
  static func begun(byteCount: UInt64, credit: UInt64 = .max) throws -> BulkReception {
    var reception = BulkReception()
    reception.expect(1, byteCount: byteCount, credit: credit)
    #expect(try reception.begin(stream: 1, length: 24) == .header)
    return reception
  }

  static func fault(_ body: () throws -> BulkReception.Body) -> ProtocolFault? {
    do {
      _ = try body()
      return nil
    } catch { return (error as? BulkFault)?.fault }
  }

  @Test func takesOneLengthOnlyForEachFrame() throws {
    var reception = try Self.begun(byteCount: Self.message + 7)
    for length in [0, 17, 24, Self.fullLength - 1, Self.fullLength + 1, .max] {
      #expect(Self.fault { try reception.begin(stream: 1, length: length) } == .streamDamaged)
    }
    #expect(try reception.begin(stream: 1, length: Self.fullLength) == .message(isLast: false))
    for length: UInt32 in [17, 23, 25] {
      #expect(Self.fault { try reception.begin(stream: 1, length: length) } == .streamDamaged)
    }
    #expect(try reception.begin(stream: 1, length: 24) == .message(isLast: true))
    #expect(Self.fault { try reception.begin(stream: 1, length: 24) } == .streamDamaged)
    #expect(reception.isIdle)
  }

  @Test func tagsTheLastFullMessageAsTheLast() throws {
    var reception = try Self.begun(byteCount: 2 * Self.message)
    #expect(try reception.begin(stream: 1, length: Self.fullLength) == .message(isLast: false))
    #expect(try reception.begin(stream: 1, length: Self.fullLength) == .message(isLast: true))
  }

  @Test func holdsTheCreditOfEachStream() throws {
    var reception = try Self.begun(byteCount: 3 * Self.message, credit: Self.message)
    #expect(try reception.begin(stream: 1, length: Self.fullLength) == .message(isLast: false))
    reception.raiseCredit(1, to: 2 * Self.message - 1)
    #expect(Self.fault { try reception.begin(stream: 1, length: Self.fullLength) } == .limitExceeded)
    reception.raiseCredit(1, to: 2 * Self.message)
    reception.raiseCredit(1, to: 0)
    reception.raiseCredit(5, to: .max)
    #expect(try reception.begin(stream: 1, length: Self.fullLength) == .message(isLast: false))
    #expect(Self.fault { try reception.begin(stream: 1, length: Self.fullLength) } == .limitExceeded)
  }

  @Test func skipsAStoppedStreamToItsEndWithinItsCredit() throws {
    var reception = BulkReception()
    reception.expect(1, byteCount: 2 * Self.message, credit: Self.message)
    reception.expect(2, byteCount: 2, credit: 2)
    reception.stop(1)
    reception.stop(2)
    reception.stop(3)
    #expect(reception.isIdle)
    for stream: UInt32 in [1, 2] { #expect(try reception.begin(stream: stream, length: 24) == .skipped) }
    #expect(try reception.begin(stream: 1, length: Self.fullLength) == .skipped)
    #expect(try reception.begin(stream: 2, length: 19) == .skipped)
    reception.raiseCredit(1, to: .max)
    #expect(Self.fault { try reception.begin(stream: 1, length: Self.fullLength) } == .limitExceeded)
    #expect(Self.fault { try reception.begin(stream: 2, length: 19) } == .streamDamaged)
    // What was skipped to its end takes no room among the stopped.
    #expect(reception.isIdle)
  }

  @Test func forgetsTheOldestOfTooManyStoppedStreams() throws {
    var reception = BulkReception()
    let count = UInt32(BulkReception.stoppedCountMax)
    for stream in 0..<count {
      reception.expect(stream, byteCount: 1, credit: 1)
      reception.stop(stream)
    }
    var one = reception
    #expect(try one.begin(stream: 0, length: 24) == .skipped)
    reception.expect(count, byteCount: 1, credit: 1)
    reception.stop(count)
    #expect(Self.fault { try reception.begin(stream: 0, length: 24) } == .streamDamaged)
    #expect(try reception.begin(stream: 1, length: 24) == .skipped)
    #expect(reception.isIdle)
  }
}
