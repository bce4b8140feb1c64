/// Names as they are printed: whoever chose a name must not move the cursor, forge lines or reverse the writing direction.
enum PrintableText {
  /// Control characters, line and paragraph separators and direction marks as escapes; the backslash too, so that the text can be
  /// taken back.
  static func of(_ text: String) -> String {
    var printable = String.UnicodeScalarView()
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\\": printable += "\\\\".unicodeScalars
      case "\n": printable += "\\n".unicodeScalars
      case "\r": printable += "\\r".unicodeScalars
      case "\t": printable += "\\t".unicodeScalars
      case _ where isHarmful(scalar): printable += escape(scalar).unicodeScalars
      default: printable.append(scalar)
      }
    }
    return String(printable)
  }

  /// JSON text with the same characters as escapes of JSON, so that it stays the same value. They occur within strings only, but for
  /// the spaces of JSON, which stay.
  static func ofJSON(_ text: String) -> String {
    guard text.unicodeScalars.contains(where: isHarmfulInJSON) else { return text }
    var printable = String.UnicodeScalarView()
    for scalar in text.unicodeScalars {
      guard isHarmfulInJSON(scalar) else {
        printable.append(scalar)
        continue
      }
      let digits = String(scalar.value, radix: 16)
      printable += ("\\u" + String(repeating: "0", count: 4 - digits.utf8.count) + digits).unicodeScalars
    }
    return String(printable)
  }

  private static func isHarmfulInJSON(_ scalar: Unicode.Scalar) -> Bool {
    scalar != "\n" && scalar != "\r" && scalar != "\t" && isHarmful(scalar)
  }

  private static func isHarmful(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.value {
    case 0..<0x20, 0x7f..<0xa0: true
    case 0x061c, 0x200e, 0x200f, 0x2028...0x202e, 0x2066...0x2069: true
    default: false
    }
  }

  /// `\x1b` for one byte, `\u{202e}` otherwise.
  private static func escape(_ scalar: Unicode.Scalar) -> String {
    let digits = String(scalar.value, radix: 16)
    if scalar.value < 0x80 { return "\\x" + (digits.utf8.count == 1 ? "0" : "") + digits }
    return "\\u{" + digits + "}"
  }
}
