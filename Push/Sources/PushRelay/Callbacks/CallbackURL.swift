internal import Foundation

/// A URL of a back end that the relay calls: `http` or `https`, with a host, without a user name and a
/// fragment. Its address is checked when it is called.
package struct CallbackURL: Hashable, Sendable {
  package static let byteCountMax = 2048

  package let text: String
  package let isSecure: Bool
  /// Without the brackets of an IPv6 address.
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
      var host = parts.encodedHost, !host.isEmpty, !host.contains("%"),
      parts.user == nil, parts.password == nil, parts.fragment == nil
    else { return nil }
    if host.hasPrefix("[") {
      host = String(host.dropFirst().dropLast())
      guard IPAddress(host) != nil else { return nil }
    }
    let port = parts.port ?? (scheme == "https" ? 443 : 80)
    guard (1...65535).contains(port) else { return nil }
    self.text = text
    self.host = host.lowercased()
    self.port = port
    isSecure = scheme == "https"
    let path = parts.percentEncodedPath.isEmpty ? "/" : parts.percentEncodedPath
    target = parts.percentEncodedQuery.map { "\(path)?\($0)" } ?? path
  }
}
