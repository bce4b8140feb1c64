/// The rules that ids of services and of apps share.
enum ReverseDNSName {
  static let byteCountMax = 255
  static let partByteCountMax = 63

  /// What keeps `text` from being an id; nil if nothing does.
  static func fault(in text: String, takesCapitals: Bool = false) -> String? {
    let bytes = text.utf8
    if bytes.isEmpty { return "it is empty" }
    if bytes.count > byteCountMax { return "it has \(bytes.count) bytes, and \(byteCountMax) are allowed" }
    for byte in bytes {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."),
        UInt8(ascii: "-"):
        break
      case UInt8(ascii: "A")...UInt8(ascii: "Z"):
        if !takesCapitals { return "it has capital letters: write it in lower case" }
      default:
        let letters = takesCapitals ? "letters of ASCII" : "the letters a to z"
        return "it has something other than \(letters), digits, hyphens and dots"
      }
    }
    let parts = bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
    if parts.count < 2 { return "it has one part: write it like com.example.name" }
    for part in parts {
      if part.isEmpty { return "a part between dots is empty" }
      if part.count > partByteCountMax {
        return "a part has \(part.count) bytes, and \(partByteCountMax) are allowed"
      }
      if part.first == UInt8(ascii: "-") || part.last == UInt8(ascii: "-") {
        return "a part begins or ends with a hyphen"
      }
    }
    return nil
  }
}
