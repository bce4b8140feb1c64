import Foundation
import ServiceValues
import SodiumPrimitives
import SwiftProtobuf
import TestSupport
import Testing

@testable import ServiceWire

struct FrameTests {
  @Test func cutsAnyStreamIntoItsFrames() throws {
    let seed = UInt64.random(in: 0...UInt64.max)
    var random = SplitMix64(seed: seed)
    for _ in 0..<50 {
      let frames = (0..<20).map { _ in
        Data(
          (0..<Int.random(in: 1...100, using: &random)).map { _ in UInt8.random(in: 0...255, using: &random) }
        )
      }
      var stream = frames.reduce(into: Data()) { $0 += Data(FrameDecoder.length($1.count)) + $1 }[...]
      var decoder = FrameDecoder(byteCountMax: 100)
      var found: [Data] = []
      while !stream.isEmpty {
        let piece = stream.prefix(Int.random(in: 1...150, using: &random))
        stream = stream.dropFirst(piece.count)
        decoder.append(piece)
        while let frame = try decoder.next() { found.append(frame) }
      }
      #expect(found == frames, "seed \(seed)")
      #expect(!decoder.isWithinFrame)
    }
  }

  @Test(arguments: [0, 11, Int(Int32.max), 0xffff_ffff])
  func refusesALengthOutOfRangeForGood(length: Int) throws {
    var decoder = FrameDecoder(byteCountMax: 10)
    decoder.append((0..<4).map { UInt8(truncatingIfNeeded: length >> (8 * $0)) })
    #expect(throws: ProtocolFault.frameTooLong) { try decoder.next() }
    decoder.append(FrameDecoder.length(1) + [1])
    #expect(throws: ProtocolFault.frameTooLong) { try decoder.next() }
  }

  @Test func takesAFrameOfTheGreatestLength() throws {
    var decoder = FrameDecoder(byteCountMax: 10)
    decoder.append(FrameDecoder.length(10) + Array(repeating: 7, count: 9))
    #expect(try decoder.next() == nil)
    #expect(decoder.isWithinFrame)
    decoder.append([7])
    #expect(try decoder.next() == Data(repeating: 7, count: 10))
  }

  /// So long that the memory of those that were taken is given back.
  @Test func cutsLongFramesThatComeInPieces() throws {
    let frames = (1...5).map { Data(repeating: UInt8($0), count: 60_000 + $0) }
    let stream = frames.reduce(into: Data()) { $0 += Data(FrameDecoder.length($1.count)) + $1 }
    for byteCount in [1000, 60_006, 130_000, 400_000] {
      var decoder = FrameDecoder(byteCountMax: 100_000)
      var found: [Data] = []
      var rest = stream[...]
      while !rest.isEmpty {
        Array(rest.prefix(byteCount)).withUnsafeBytes { decoder.append($0) }
        rest = rest.dropFirst(byteCount)
        while let frame = try decoder.next() { found.append(frame) }
      }
      #expect(found == frames, "pieces of \(byteCount)")
      #expect(!decoder.isWithinFrame)
    }
  }

  @Test func appendsFramesAndNothingOfOneThatIsTooLong() throws {
    let (first, second) = (
      WireChannelMessage.with { $0.ping.number = 1 }, WireChannelMessage.with { $0.ping.number = 300 }
    )
    var bytes: [UInt8] = []
    try first.appendFrame(to: &bytes, byteCountMax: 100)
    let one = bytes
    #expect(throws: ProtocolFault.frameTooLong) { try second.appendFrame(to: &bytes, byteCountMax: 1) }
    #expect(bytes == one)
    try second.appendFrame(to: &bytes, byteCountMax: 100)
    #expect(Data(bytes) == (try first.frame(byteCountMax: 100) + second.frame(byteCountMax: 100)))
  }

  // MARK: Messages

  @Test func readsWhatItWrote() throws {
    let message = WireChannelMessage.with {
      $0.request = .with {
        $0.id = Identifier.random().data
        $0.params = WireValue(["to": ["a"], "size": 5])
      }
    }
    var decoder = FrameDecoder(byteCountMax: 1000)
    decoder.append(try message.frame(byteCountMax: 1000))
    let frame = try #require(try decoder.next())
    #expect(try WireChannelMessage.read(frame, elementCountMax: 1000) == message)
    let byteCount = frame.count
    #expect(try message.frame(byteCountMax: byteCount).count == byteCount + 4)
    #expect(throws: ProtocolFault.frameTooLong) { try message.frame(byteCountMax: byteCount - 1) }
  }

  /// Field numbers from 1000 on are those that may be ignored.
  @Test(
    arguments: [
      ([0xc2, 0x3e, 0x00], true),  // field 1000, empty message
      ([0xba, 0x3e, 0x00], false),  // field 999
      ([0xc2, 0x3e, 0x00, 0xba, 0x3e, 0x00], false), ([0x9a, 0x06, 0x00], false), ([], false),
      ([0xc2, 0x3e, 0x05], false), ([0xc3, 0x3e], false), ([0xff], false),
      ([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], false),
    ] as [([UInt8], Bool)])
  func ignoresOnlyWhatMayBeIgnored(bytes: [UInt8], isIgnored: Bool) throws {
    if isIgnored {
      #expect(try WireChannelMessage.read(Data(bytes), elementCountMax: 1000) == nil)
      #expect(try WireBrokerMessage.read(Data(bytes), elementCountMax: 1000) == nil)
    } else {
      #expect(throws: ProtocolFault.malformed) {
        try WireChannelMessage.read(Data(bytes), elementCountMax: 1000)
      }
      #expect(throws: ProtocolFault.malformed) {
        try WireBrokerMessage.read(Data(bytes), elementCountMax: 1000)
      }
    }
  }

  @Test func dropsFieldsOfKnownMessagesThatItDoesNotKnow() throws {
    // Accepted {id: 01, field 99: 32 bytes}, and field 1001 beside it.
    let known: [UInt8] = [0x5a, 0x03, 0x0a, 0x01, 0x01]
    var bytes: [UInt8] = [0x5a, 0x26, 0x0a, 0x01, 0x01, 0x9a, 0x06, 0x20]
    bytes += Array(repeating: 7, count: 32) + [0xca, 0x3e, 0x00]
    let message = try #require(try WireChannelMessage.read(Data(bytes), elementCountMax: 1000))
    #expect(message.accepted.id == Data([1]))
    #expect(try message.serializedData() == Data(known))
  }

  @Test func takesValuesOfTheGreatestDepthAndRefusesBottomlessOnes() throws {
    func nested(_ depth: Int) -> WireValue {
      (1..<depth).reduce(WireValue.with { $0.integer = 1 }) { value, _ in
        .with { $0.object.members = [.with { $0.value = value }] }
      }
    }
    func message(_ depth: Int) throws -> Data {
      try WireChannelMessage.with { $0.request.params = nested(depth) }.serializedData()
    }
    #expect(try WireChannelMessage.read(message(32), elementCountMax: 1000) != nil)
    #expect(throws: ProtocolFault.malformed) {
      try WireChannelMessage.read(message(200), elementCountMax: 1000)
    }
  }

  // MARK: Values

  @Test func valuesCrossAsTheyAreOfTheirKinds() throws {
    let value: ServiceValue = [
      "text": "1", "number": .number(1), "integer": 1, "truth": true, "nothing": .null,
      "bytes": .bytes([0, 255]),
      "list": [1, 2], "object": ["": ["é": .string("\u{0}")]], "no": [:],
    ]
    let bytes = try WireValue(value).serializedData()
    #expect(try ServiceValue(WireValue(serializedBytes: bytes)) == value)
    #expect(try WireValue(value).serializedData() == bytes)
    #expect(bytes.count <= value.byteCount)
  }

  @Test func refusesValuesThatAreNone() {
    let twice = WireValue.with {
      $0.object.members = Array(
        repeating: .with {
          $0.name = "a"
          $0.value.integer = 1
        }, count: 2)
    }
    let mixed = WireValue.with { $0.array.elements = [.with { $0.integer = 1 }, .with { $0.number = 1 }] }
    let infinite = WireValue.with { $0.number = .infinity }
    for (wire, path) in [
      (twice, "params.a"), (mixed, "params[1]"), (infinite, "params"), (WireValue(), "params"),
    ] {
      let error = #expect(throws: ServicesError.self) { try ServiceValue(wire) }
      #expect(error?.code == .invalidParams)
      #expect(error?.path == path)
    }
  }

  @Test func takesAsDeepAsTheLimitAndNotOneDeeper() throws {
    func nested(_ depth: Int) -> WireValue {
      (0..<depth).reduce(WireValue.with { $0.integer = 1 }) { value, _ in
        .with { $0.object.members = [.with { $0.value = value }] }
      }
    }
    _ = try ServiceValue(nested(32))
    #expect(throws: ServicesError.self) { try ServiceValue(nested(33)) }
    let frame = try WireChannelMessage.with { $0.reply.error.details = nested(32) }.serializedData()
    #expect(try WireChannelMessage.read(frame, elementCountMax: 1000) != nil)
  }
}
