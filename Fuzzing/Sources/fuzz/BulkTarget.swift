@testable import ServiceWire

extension Target {
  /// Frame headers of a bulk lane's peer between what the owner of the lane asks for: nothing is taken beyond a stream's announced count or credit.
  static let bulk = Target(
    name: "bulk", inputByteCountMax: 1024,
    seeds: {
      var whole = Script()
      whole.expect(3, byteCount: 65_536 + 7, credit: 65_536)
      whole.frame(3, length: 24)
      whole.frame(3, length: 65_536 + 17)
      whole.raise(3, to: 100_000)
      whole.frame(3, length: 7 + 17)
      var stopped = Script()
      stopped.expect(1, byteCount: 70_000, credit: 70_000)
      stopped.expect(2, byteCount: 1, credit: 1)
      stopped.frame(1, length: 24)
      stopped.stop(1)
      stopped.frame(2, length: 24)
      stopped.frame(1, length: 65_536 + 17)
      stopped.frame(2, length: 18)
      var beyond = Script()
      beyond.expect(1, byteCount: 70_000, credit: 65_535)
      beyond.frame(1, length: 24)
      beyond.frame(1, length: 65_536 + 17)
      return [
        Seed("whole", whole.bytes), Seed("stopped", stopped.bytes),
        Seed("beyond", beyond.bytes, isAccepted: false),
      ]
    },
    accepts: { bytes in
      var input = Input(bytes)
      var reception = BulkReception()
      var expected: [UInt32: Expected] = [:]
      while !input.isEmpty {
        let operation = input.byte() % 4
        let stream = operation == 0 ? input.number(UInt32.self) : UInt32(input.byte())
        let count = UInt64(input.number(UInt32.self))
        switch operation {
        case 0:
          guard let body = try? reception.begin(stream: stream, length: UInt32(count)) else { return false }
          guard var of = expected[stream] else { fatalError("a frame of an unknown stream was taken") }
          of.take(body, length: count)
          expected[stream] = of
        case 1:
          guard expected[stream] == nil, count > 0 else { continue }
          let credit = UInt64(input.number(UInt32.self))
          expected[stream] = Expected(byteCount: count, credit: credit)
          reception.expect(stream, byteCount: count, credit: credit)
        case 2:
          let before = expected[stream]?.credit ?? 0
          expected[stream]?.credit = max(before, count)
          reception.raiseCredit(stream, to: count)
        default:
          expected[stream]?.isStopped = true
          reception.stop(stream)
        }
      }
      return true
    })

  /// What a stream may be, kept in another way.
  private struct Expected {
    let byteCount: UInt64
    var credit: UInt64
    var received: UInt64 = 0
    var hasHeader = false
    var isStopped = false

    mutating func take(_ body: BulkReception.Body, length: UInt64) {
      require((body == .skipped) == isStopped, "a stopped stream goes on, or another is skipped")
      guard hasHeader else {
        require(length == 24 && (body == .header || isStopped), "a stream without a header")
        hasHeader = true
        return
      }
      require(18...65_553 ~= length, "a length out of range")
      received += length - 17
      require(received <= credit, "a frame beyond the credit")
      require(received <= byteCount, "a frame beyond the announced count")
      require(length == 65_553 || received == byteCount, "a message that is not full, and not the last")
      require(isStopped || body == .message(isLast: received == byteCount), "the last message is another one")
    }
  }
}

extension Script {
  fileprivate mutating func frame(_ stream: UInt32, length: UInt32) {
    add([0])
    add(stream)
    add(length)
  }

  fileprivate mutating func expect(_ stream: UInt8, byteCount: UInt32, credit: UInt32) {
    add([1, stream])
    add(byteCount)
    add(credit)
  }

  fileprivate mutating func raise(_ stream: UInt8, to total: UInt32) {
    add([2, stream])
    add(total)
  }

  fileprivate mutating func stop(_ stream: UInt8) {
    add([3, stream])
    add(UInt32(0))
  }
}
