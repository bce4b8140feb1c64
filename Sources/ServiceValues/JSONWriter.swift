/// Writes canonical JSON: no white space, members in the order of their names' UTF-8 bytes, nothing escaped that need not be, each number in the
/// shortest form that reads back as the same one.
package struct JSONWriter {
  private var text = ""

  /// Numbers must be finite.
  package static func text(of value: ServiceValue) -> String {
    var writer = JSONWriter()
    writer.write(value)
    return writer.text
  }

  private mutating func write(_ value: ServiceValue) {
    switch value {
    case .null: text += "null"
    case .boolean(let value): text += value ? "true" : "false"
    case .integer(let value): text += String(value)
    case .number(let value):
      precondition(value.isFinite, "JSON has finite numbers only")
      text += value.description
    case .string(let value): write(value)
    case .bytes: preconditionFailure("JSON has no bytes; they are marked before they are written")
    case .array(let elements):
      text += "["
      for (i, element) in elements.enumerated() {
        if i > 0 { text += "," }
        write(element)
      }
      text += "]"
    case .object(let members):
      text += "{"
      for (i, key) in members.keys.sorted(by: utf8Order).enumerated() {
        if i > 0 { text += "," }
        write(key)
        text += ":"
        write(members[key] ?? .null)
      }
      text += "}"
    }
  }

  private mutating func write(_ string: String) {
    text += "\""
    for scalar in string.unicodeScalars {
      switch scalar {
      case "\"": text += "\\\""
      case "\\": text += "\\\\"
      case "\n": text += "\\n"
      case "\r": text += "\\r"
      case "\t": text += "\\t"
      case "\u{8}": text += "\\b"
      case "\u{C}": text += "\\f"
      case "\u{0}"..<"\u{20}":
        let digits = String(scalar.value, radix: 16)
        text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
      default: text.unicodeScalars.append(scalar)
      }
    }
    text += "\""
  }
}
