@testable import ServiceWire

extension Target {
  /// Frame headers of a bulk lane's peer between what the owner of the lane asks for: nothing is
  /// taken beyond a stream's credit or in a slot that is not free, and no slot is freed twice.
  static let bulk = Target(
    name: "bulk", inputByteCountMax: 1024,
    seeds: {
      var whole = Script()
      whole.expect(3, credit: 1)
      whole.frame(3, block: 29 + 24, contents: 0)
      whole.raise(3, to: 3)
      whole.frame(3, block: 13_341, contents: 1_051_200)
      whole.frame(3, block: 29, contents: 1 | Script.isInSlot)
      // Its slot is released, and the peer is told.
      whole.add([5, 0, 1])
      var stopped = Script()
      stopped.expect(1, credit: 2)
      stopped.expect(2, credit: 2)
      stopped.frame(1, block: 100, contents: 5)
      stopped.stop(1)
      stopped.frame(2, block: 100, contents: 5)
      stopped.frame(1, block: 100, contents: 5)
      stopped.add([4, 2, 4, 1])
      var slots = Script()
      slots.add([6, 6])
      slots.slotsRead(1)
      slots.add([6, 6])
      slots.slotsRead(3)
      var beyond = Script()
      beyond.expect(1, credit: 1)
      for _ in 0..<2 { beyond.frame(1, block: 100, contents: 5) }
      return [
        Seed("whole", whole.bytes), Seed("stopped", stopped.bytes),
        Seed("slots", slots.bytes), Seed("beyond", beyond.bytes, isAccepted: false),
      ]
    },
    accepts: { bytes in
      var input = Input(bytes)
      var world = World()
      while !input.isEmpty {
        switch input.byte() % 7 {
        case 0: guard world.take(input.bytes(12)) else { return false }
        case 1: world.expect(UInt32(input.byte()), credit: UInt64(input.number(UInt32.self)))
        case 2: world.raise(UInt32(input.byte()), to: UInt64(input.number(UInt32.self)))
        case 3: world.stop(UInt32(input.byte()))
        case 4: world.end(UInt32(input.byte()))
        case 5: world.release(Int(input.byte()), tells: input.byte() & 1 == 1)
        default: world.use()
        }
      }
      return true
    })

  /// A lane's values, and what they may be, kept in another way.
  private struct World {
    struct Stream {
      var left: UInt64
      var sent: UInt64 = 0
      var isStopped = false
    }

    static let slotCount = 3

    var reception = BulkReception()
    var streams: [UInt32: Stream] = [:]
    var taken = BulkTakenSlots(count: slotCount)
    /// Slots by the order of their use: whether each one is read still; those that were told are gone.
    var reading: [(slot: Int, isHeld: Bool)] = []
    var slots = BulkSlots(count: slotCount)
    var usedCount = 0

    /// False when the frame is refused.
    mutating func take(_ bytes: [UInt8]) -> Bool {
      guard bytes.count == 12 else { return false }
      let header = bytes.withUnsafeBytes { BulkFrame.Header($0) }
      switch header {
      case .stream(let number, let block, let contents, let isInSlot):
        require(header.bytes == bytes, "a header is written otherwise")
        guard
          let frame = try? reception.begin(number, block: block, contents: contents, isInSlot: isInSlot)
        else { return false }
        guard let stream = streams[number] else { fatalError("a frame of an unknown stream was taken") }
        require(frame.isSkipped == stream.isStopped, "a stopped stream goes on, or another is skipped")
        require(frame.isFirst == (stream.sent == 0), "the first frame is another one")
        require(stream.left > 0, "a frame beyond the credit")
        let least = UInt32(stream.sent == 0 ? 53 : 29)
        require(least...least + 13_312 ~= block, "a block's length out of range")
        require((isInSlot ? 1 : 0)...1_051_200 ~= contents, "the contents' length out of range")
        streams[number] = Stream(
          left: stream.left - 1, sent: stream.sent + 1, isStopped: stream.isStopped)
        return !isInSlot || takeSlot()
      case .memory(let slotCount):
        require(header.bytes == bytes, "a header is written otherwise")
        return 1...UInt32(Self.slotCount) ~= slotCount
      case .slotsRead(let count):
        require(header.bytes == bytes, "a header is written otherwise")
        guard (try? slots.free(count)) != nil else { return false }
        require(count > 0 && Int(count) <= usedCount, "a slot was freed that was not used")
        usedCount -= Int(count)
        return true
      case .unknown(let kind):
        require(kind != 1 && kind != 2, "a frame of the lane was not known")
        return false
      }
    }

    private mutating func takeSlot() -> Bool {
      guard let slot = try? taken.take() else {
        require(reading.count == Self.slotCount, "a free slot was refused")
        return false
      }
      require(!reading.contains { $0.slot == slot }, "a slot was taken that is not free")
      reading.append((slot, true))
      return true
    }

    mutating func expect(_ number: UInt32, credit: UInt64) {
      guard number > 0, streams[number] == nil else { return }
      streams[number] = Stream(left: credit)
      reception.expect(number, credit: credit)
    }

    mutating func raise(_ number: UInt32, to total: UInt64) {
      if let stream = streams[number], !stream.isStopped, total > stream.sent + stream.left {
        streams[number]?.left = total - stream.sent
      }
      reception.raiseCredit(number, to: total)
    }

    mutating func stop(_ number: UInt32) {
      streams[number]?.isStopped = true
      reception.stop(number)
    }

    mutating func end(_ number: UInt32) {
      streams[number] = nil
      reception.end(number)
      require(reception.isIdle == streams.values.allSatisfy(\.isStopped), "the lane is idle, or is not")
    }

    mutating func release(_ index: Int, tells: Bool) {
      if reading.indices.contains(index), reading[index].isHeld {
        reading[index].isHeld = false
        taken.release(reading[index].slot)
      }
      let free = reading.firstIndex { $0.isHeld } ?? reading.count
      require(taken.untoldCount == free, "another number of slots is free")
      guard tells else { return }
      require(taken.tell() == (free == 0 ? nil : UInt32(free)), "another number of slots is told")
      reading.removeFirst(free)
    }

    mutating func use() {
      require((slots.next == nil) == (usedCount == Self.slotCount), "a slot too many, or too few")
      guard slots.next != nil else { return }
      slots.use()
      usedCount += 1
    }
  }
}

extension Script {
  fileprivate static let isInSlot: UInt32 = 1 << 31

  fileprivate mutating func frame(_ stream: UInt32, block: UInt32, contents: UInt32) {
    add([0])
    for word in [stream, block, contents] { add(word) }
  }

  fileprivate mutating func slotsRead(_ count: UInt32) { frame(0, block: 2, contents: count) }

  fileprivate mutating func expect(_ stream: UInt8, credit: UInt32) {
    add([1, stream])
    add(credit)
  }

  fileprivate mutating func raise(_ stream: UInt8, to total: UInt32) {
    add([2, stream])
    add(total)
  }

  fileprivate mutating func stop(_ stream: UInt8) { add([3, stream]) }
}
