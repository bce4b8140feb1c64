/// The 16-byte label that opens associated data and derivations: ASCII, padded with zeros.
public func label(_ text: StaticString) -> [UInt8] {
  precondition(text.utf8CodeUnitCount <= 16, "a label has at most 16 bytes")
  return text.withUTF8Buffer { Array($0) + [UInt8](repeating: 0, count: 16 - $0.count) }
}
