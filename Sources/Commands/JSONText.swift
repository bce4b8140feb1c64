#if canImport(FoundationEssentials)
  // Without the tables for languages and calendars that Foundation brings: they cost start-up time and memory.
  import FoundationEssentials
#else
  import Foundation
#endif

/// One JSON value on a line of its own, with sorted keys.
enum JSONText {
  static func of(_ value: some Encodable) throws -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    return PrintableText.ofJSON(String(decoding: try encoder.encode(value), as: UTF8.self)) + "\n"
  }
}
