package import Foundation

/// The text that names a channel to back ends. Source: PUSH-PROTOCOL.md, *Tokens*.
package struct PushToken: Hashable, Sendable {
  /// Whatever a back end sends is refused above this, before anything else is looked at.
  package static let byteCountMax = 512
  package static let secretByteCount = 32

  /// The whole token. Whoever has it may send to the channel; it does not belong into a log.
  package let text: String
  /// The first three components. They name the channel in pings and logs and give no right.
  package let prefix: String
  /// The last component, of tokens that a relay has made.
  package let secret: String

  /// A token for a new channel.
  package init(relay name: RelayName) {
    var generator = SystemRandomNumberGenerator()
    let number: UInt64 = generator.next()
    let words: [UInt64] = (0..<4).map { _ in generator.next() }
    self.init(
      number: number & 0xffff_ffff_ffff, relay: name,
      secret: words.withUnsafeBytes { Data($0) })
  }

  /// `number` has 48 bits, `secret` 32 bytes.
  package init(number: UInt64, relay name: RelayName, secret: Data) {
    precondition(
      number >> 48 == 0 && secret.count == Self.secretByteCount, "both were made for a token")
    let digits = String(number, radix: 16)
    let padded = String(repeating: "0", count: 12 - digits.count) + digits
    prefix = "\(padded.prefix(8)) \(padded.suffix(4)) app.gdpush.\(name.text)"
    self.secret = secret.base64URL
    text = "\(prefix) \(self.secret)"
  }

  /// Reads what a back end sends in `X-Good-GNP-Token`. Returns nil when it does not have a token's
  /// format; whether the token exists is the relay's affair.
  package init?(_ text: String) {
    let bytes = text.utf8
    guard bytes.count <= Self.byteCountMax, bytes.allSatisfy({ (0x20...0x7e).contains($0) }) else {
      return nil
    }
    let components = text.split(separator: " ", omittingEmptySubsequences: false)
    guard components.count >= 3, components.allSatisfy({ !$0.isEmpty }) else { return nil }
    self.text = text
    prefix = components[..<3].joined(separator: " ")
    secret = String(components[components.count - 1])
  }
}

/// A relay's name in the tokens that it makes: 1 to 63 of `a`–`z`, `0`–`9`, `.` and `-`.
package struct RelayName: Hashable, Sendable {
  package static let local = RelayName("local")!

  package let text: String

  package init?(_ text: String) {
    let isAllowed = { (byte: UInt8) in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"): true
      case UInt8(ascii: "."), UInt8(ascii: "-"): true
      default: false
      }
    }
    guard (1...63).contains(text.utf8.count), text.utf8.allSatisfy(isAllowed) else { return nil }
    self.text = text
  }
}

extension Data {
  /// Base64 with the URL alphabet, without padding. Source: RFC 4648, section 5.
  package var base64URL: String {
    var text = ""
    for character in base64EncodedString() {
      switch character {
      case "+": text.append("-")
      case "/": text.append("_")
      case "=": break
      default: text.append(character)
      }
    }
    return text
  }

  /// Returns nil for other digits, for padding, and for a last digit whose unused bits are not 0.
  package init?(base64URL text: String) {
    guard text.utf8.count % 4 != 1 else { return nil }
    var base64 = ""
    for character in text {
      switch character {
      case "-": base64.append("+")
      case "_": base64.append("/")
      case "+", "/", "=": return nil
      default: base64.append(character)
      }
    }
    base64.append(String(repeating: "=", count: (4 - text.utf8.count % 4) % 4))
    guard let data = Data(base64Encoded: base64), data.base64URL == text else { return nil }
    self = data
  }
}
