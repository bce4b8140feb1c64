extension StringProtocol {
  /// Whether the text is digits alone. `Int` also reads a sign.
  var isDecimal: Bool {
    !isEmpty && utf8.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
  }
}
