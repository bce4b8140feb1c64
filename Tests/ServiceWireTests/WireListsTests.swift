import Foundation
import ServiceValues
import Testing

@testable import ServiceWire

/// Lists are counted in a frame before it is read, wherever service.proto has one.
@Suite struct WireListsTests {
  private struct Field {
    let number: UInt64
    let type: String
    let isRepeated: Bool
  }

  /// The fields of the messages of service.proto, by their full names: `Value.Array`.
  private static func definitions() throws -> [String: [Field]] {
    let file = URL(filePath: #filePath).deletingLastPathComponent()
      .appending(path: "../../Sources/ServiceWire/Messages/service.proto").standardizedFileURL
    var messages: [String: [Field]] = [:]
    /// Names of the blocks around a line; a `oneof` has none.
    var blocks: [String] = []
    for line in try String(contentsOf: file, encoding: .utf8).split(separator: "\n") {
      let words = line.prefix { $0 != "/" }.split { " ;=".contains($0) }.map(String.init)
      guard let first = words.first else { continue }
      if line.contains("{") {
        blocks.append(first == "message" ? words[1] : first == "enum" ? "enum" : "")
        if first == "message", !line.contains("}") { messages[name(blocks)] = [] }
      }
      if line.contains("}") {
        blocks.removeLast()
      } else if !line.contains("{"), !blocks.isEmpty, blocks.last != "enum", let number = UInt64(words.last!),
        first != "reserved"
      {
        let type = first == "repeated" || first == "optional" ? words[1] : first
        messages[name(blocks), default: []].append(
          Field(number: number, type: type, isRepeated: first == "repeated"))
      }
    }
    return messages
  }

  private static func name(_ blocks: [String]) -> String {
    blocks.filter { !$0.isEmpty }.joined(separator: ".")
  }

  /// Ways from a message to a list: numbers of fields, the last one the list's.
  private static func lists(from message: String) throws -> [[UInt64]] {
    let messages = try definitions()
    var found: [[UInt64]] = []
    func visit(_ message: String, _ way: [UInt64], _ around: [String]) {
      for field in messages[message] ?? [] {
        let type = messages["\(message).\(field.type)"] != nil ? "\(message).\(field.type)" : field.type
        let way = way + [field.number]
        if field.isRepeated { found.append(way) }
        if messages[type] != nil, !around.contains(type) { visit(type, way, around + [type]) }
      }
    }
    visit(message, [], [message])
    return found
  }

  private static func varint(_ value: Int) -> [UInt8] {
    value < 0x80 ? [UInt8(value)] : [UInt8(value & 0x7f) | 0x80] + varint(value >> 7)
  }

  /// So many elements, each empty, in the list at the end of the way.
  private static func frame(_ way: [UInt64], _ count: Int) -> Data {
    var bytes: [UInt8] = []
    for (i, number) in way.reversed().enumerated() {
      let tag = varint(Int(number) << 3 | 2)
      bytes =
        i == 0 ? (0..<count).flatMap { _ in tag + [0] } : tag + varint(bytes.count) + bytes
    }
    return Data(bytes)
  }

  /// How many of the messages on the way are elements of lists themselves.
  private func check<Message: WireMessage>(_: Message.Type, _ root: String, atLeast count: Int) throws {
    let lists = try Self.lists(from: root)
    #expect(lists.count >= count, "service.proto was not understood")
    for way in lists {
      // Nothing on the way counts more than the whole list does.
      let frame = Self.frame(way, 100)
      let error = #expect(throws: ProtocolFault.self, "\(root) \(way)") {
        try Message.read(frame, elementCountMax: 99)
      }
      #expect(error == .limitExceeded, "\(root) \(way)")
      #expect(throws: Never.self, "\(root) \(way)") {
        try Message.read(frame, elementCountMax: 100 + way.count)
      }
    }
  }

  @Test func countsEveryListThatThereIs() throws {
    try check(WireBrokerMessage.self, "BrokerMessage", atLeast: 20)
    try check(WireChannelMessage.self, "ChannelMessage", atLeast: 10)
  }

  @Test func countsAllListsTogether() throws {
    let value = ServiceValue.array([[1, 2, 3], [:], ["a": 1]])
    let frame = try WireChannelMessage.with { $0.request.params = WireValue(value) }.serializedData()
    // Three in the outermost, three in the first, one member in the last.
    #expect(try WireChannelMessage.read(frame, elementCountMax: 7) != nil)
    #expect(throws: ProtocolFault.limitExceeded) { try WireChannelMessage.read(frame, elementCountMax: 6) }
  }

  /// What is nested without end costs no more than its bytes.
  @Test func refusesWhatIsNestedDeeperThanAnyMessage() {
    let way: [UInt64] = [10, 5] + (0..<2000).flatMap { _ in [7, 1] as [UInt64] }
    #expect(throws: ProtocolFault.malformed) {
      try WireChannelMessage.read(Self.frame(way, 1), elementCountMax: 100_000)
    }
  }
}
