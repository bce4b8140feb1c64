internal import Foundation

/// A URL of a back end that the relay calls: `http` or `https`, with a host, without a user name and a
/// fragment. Its address is checked when it is called.
package struct CallbackURL: Hashable, Sendable {
  package static let byteCountMax = 2048

  /// The URL as the back end gave it.
  package let text: String
  package let isSecure: Bool
  /// The host in one spelling: lower case, without the brackets of an IPv6 address and without a dot at the
  /// end.
  package let host: String
  package let port: Int
  /// Path and query, as they stand in the request.
  package let target: String

  /// Returns nil for a URL that is not allowed.
  package init?(_ text: String) {
    // What a URL cannot contain is refused rather than encoded: the back end has to get what it gave.
    guard text.utf8.count <= Self.byteCountMax, text.utf8.allSatisfy({ (0x21...0x7e).contains($0) }),
      !text.contains("\\"),
      let parts = URLComponents(string: text, encodingInvalidCharacters: false),
      let scheme = parts.scheme?.lowercased(), scheme == "http" || scheme == "https",
      let encodedHost = parts.encodedHost, let host = Self.host(encodedHost),
      parts.user == nil, parts.password == nil, parts.fragment == nil
    else { return nil }
    let port = parts.port ?? (scheme == "https" ? 443 : 80)
    guard (1...65535).contains(port) else { return nil }
    self.text = text
    self.host = host
    self.port = port
    isSecure = scheme == "https"
    let path = parts.percentEncodedPath.isEmpty ? "/" : parts.percentEncodedPath
    target = parts.percentEncodedQuery.map { "\(path)?\($0)" } ?? path
  }

  /// Scheme, host and port in one spelling: URLs that differ in these reach different servers.
  package var origin: String {
    let literal = host.contains(":") ? "[\(host)]" : host
    return "\(isSecure ? "https" : "http")://\(literal):\(port)"
  }

  /// The URL with its host in the spelling of ``host``, which is the one that was resolved and checked.
  package var requestText: String { origin + target }

  /// The host in one spelling. Nil unless it is an IPv6 address in brackets, or labels of letters, digits,
  /// `-` and `_`. Names in other letters come as `xn--` labels.
  private static func host(_ text: String) -> String? {
    if text.hasPrefix("[") {
      guard text.hasSuffix("]"), let address = IPAddress(String(text.dropFirst().dropLast())),
        !address.isIPv4
      else { return nil }
      return address.description
    }
    let name = text.hasSuffix(".") ? text.dropLast() : text[...]
    let labels = name.split(separator: ".", omittingEmptySubsequences: false)
    guard name.utf8.count <= 253, labels.allSatisfy({ (1...63).contains($0.utf8.count) }),
      name.utf8.allSatisfy(isNameByte)
    else { return nil }
    return name.lowercased()
  }

  private static func isNameByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
    case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."): true
    default: false
    }
  }
}
