/// A server behind services of the type `server`, as the app that stands for it states it.
public struct AppServer: Hashable, Sendable {
  /// A host name, or an IP address; one of IPv6 without brackets.
  public let host: String
  /// The TCP port, from 1 to 65,535.
  public let port: Int
  /// It is from 1 to 65,535. Servers of priority 1 are tried first.
  public let priority: Int

  /// The most servers of one app.
  public static let countMax = 32
  private static let hostByteCountMax = 253
  private static let addressByteCountMax = 45

  /// Checks a server. Throws `invalidRegistration` with the path `host`, `port` or `priority` and the rule
  /// that it breaks. A host name has parts with dots between them, each of 1 to 63 letters of ASCII, digits
  /// and hyphens, no hyphen at its ends, and 253 bytes in all.
  public init(host: String, port: Int, priority: Int = 1) throws(ServicesError) {
    if let fault = Self.fault(ofHost: host) {
      throw ServicesError(.invalidRegistration, path: "host", detail: fault)
    }
    for (path, number) in [("port", port), ("priority", priority)] where !(1...65_535 ~= number) {
      throw ServicesError(
        .invalidRegistration, path: path, detail: "it is \(number), and 1 to 65535 are allowed")
    }
    self.host = host
    self.port = port
    self.priority = priority
  }

  /// The order in which to try servers until one answers: by priority, and those of one priority at random.
  public static func attemptOrder(
    _ servers: some Sequence<AppServer>, using generator: inout some RandomNumberGenerator
  ) -> [AppServer] {
    var order: [AppServer] = []
    for (_, equals) in Dictionary(grouping: servers, by: \.priority).sorted(by: { $0.key < $1.key }) {
      order += equals.shuffled(using: &generator)
    }
    return order
  }

  /// What keeps `text` from being a host; nil if nothing does. It looks at bytes alone: the text is a peer's.
  private static func fault(ofHost text: String) -> String? {
    let bytes = text.utf8
    if bytes.isEmpty { return "it is empty" }
    if bytes.count > hostByteCountMax {
      return "it has \(bytes.count) bytes, and \(hostByteCountMax) are allowed"
    }
    return bytes.contains(UInt8(ascii: ":")) ? fault(ofAddress: bytes) : fault(ofName: bytes)
  }

  /// An address of IPv6: that its groups are right finds out who connects.
  private static func fault(ofAddress bytes: String.UTF8View) -> String? {
    let isAddress = bytes.allSatisfy {
      switch $0 {
      case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"),
        UInt8(ascii: "A")...UInt8(ascii: "F"), UInt8(ascii: ":"), UInt8(ascii: "."):
        true
      default: false
      }
    }
    return isAddress && bytes.count <= addressByteCountMax
      && bytes.count(where: { $0 == UInt8(ascii: ":") }) > 1
      ? nil : "it has a colon, and is no address of IPv6: the port is stated beside it"
  }

  private static func fault(ofName bytes: String.UTF8View) -> String? {
    for part in bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false) {
      if part.isEmpty { return "a part between dots is empty" }
      if part.count > 63 { return "a part has \(part.count) bytes, and 63 are allowed" }
      if part.first == UInt8(ascii: "-") || part.last == UInt8(ascii: "-") {
        return "a part begins or ends with a hyphen"
      }
      let isName = part.allSatisfy {
        switch $0 {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"):
          true
        default: false
        }
      }
      if !isName { return "it has something other than letters of ASCII, digits, hyphens and dots" }
    }
    return nil
  }
}

extension AppServer: CustomStringConvertible {
  /// Host and port with a colon between them; an address of IPv6 is in brackets.
  public var description: String {
    host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]:\(port)" : "\(host):\(port)"
  }
}
