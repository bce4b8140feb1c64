#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// An IPv4 or IPv6 address, without a scope.
package struct IPAddress: Hashable, Sendable, CustomStringConvertible {
  /// 4 or 16 bytes, most significant first.
  package let bytes: [UInt8]

  /// Returns nil unless there are 4 or 16 bytes.
  package init?(bytes: [UInt8]) {
    guard bytes.count == 4 || bytes.count == 16 else { return nil }
    self.bytes = bytes
  }

  /// Reads the usual notation: four decimal numbers, or RFC 4291's.
  package init?(_ text: String) {
    var four = in_addr()
    var six = in6_addr()
    if inet_pton(AF_INET, text, &four) == 1 {
      bytes = withUnsafeBytes(of: four) { Array($0) }
    } else if inet_pton(AF_INET6, text, &six) == 1 {
      bytes = withUnsafeBytes(of: six) { Array($0) }
    } else {
      return nil
    }
  }

  package var isIPv4: Bool { bytes.count == 4 }

  package var description: String {
    var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
    let end = bytes.withUnsafeBytes {
      inet_ntop(isIPv4 ? AF_INET : AF_INET6, $0.baseAddress!, &text, socklen_t(text.count))
    }
    precondition(end != nil, "4 or 16 bytes always have a text")
    return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  /// What limits of an address count: an IPv4 address, or the /64 of an IPv6 address, since whoever has one
  /// address of it has all. Another text stands for itself.
  package static func group(_ text: String) -> String {
    guard let address = IPAddress(String(text.prefix { $0 != "%" })) else { return text }
    if address.isIPv4 { return address.description }
    if Network.mapped.contains(address) { return address.embeddedIPv4!.description }
    return IPAddress(bytes: address.bytes[..<8] + [UInt8](repeating: 0, count: 8))!.description + "/64"
  }

  /// The IPv4 address to which packets to this IPv6 address may go in the end: of mapped addresses
  /// (RFC 4291), NAT64 (RFC 6052) and 6to4 (RFC 3056).
  package var embeddedIPv4: IPAddress? {
    guard !isIPv4 else { return nil }
    if Network.mapped.contains(self) || Network.nat64.contains(self) {
      return IPAddress(bytes: Array(bytes[12...]))
    }
    return Network.sixToFour.contains(self) ? IPAddress(bytes: Array(bytes[2..<6])) : nil
  }
}

/// The addresses with a common prefix, as in `10.0.0.0/8`.
package struct Network: Hashable, Sendable, CustomStringConvertible {
  private let address: IPAddress
  private let prefixLength: Int

  /// Reads `ADDRESS/BITS`, or an address alone for itself. Returns nil if bits behind the prefix are set.
  package init?(_ text: String) {
    let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
    guard let address = IPAddress(String(parts[0])) else { return nil }
    let width = address.bytes.count * 8
    var prefixLength = width
    if parts.count == 2 {
      guard parts[1].isDecimal, let length = Int(parts[1]), length <= width
      else { return nil }
      prefixLength = length
    }
    self.address = address
    self.prefixLength = prefixLength
    let isSet = { (bit: Int) in address.bytes[bit / 8] & (0x80 >> UInt8(bit % 8)) != 0 }
    guard !(prefixLength..<width).contains(where: isSet) else { return nil }
  }

  package func contains(_ other: IPAddress) -> Bool {
    guard address.bytes.count == other.bytes.count else { return false }
    let whole = prefixLength / 8
    guard address.bytes[..<whole] == other.bytes[..<whole] else { return false }
    guard prefixLength % 8 != 0 else { return true }
    let mask = ~(UInt8(0xff) >> UInt8(prefixLength % 8))
    return (address.bytes[whole] ^ other.bytes[whole]) & mask == 0
  }

  package var description: String { "\(address)/\(prefixLength)" }

  fileprivate static let mapped = Network("::ffff:0:0/96")!
  fileprivate static let nat64 = Network("64:ff9b::/96")!
  fileprivate static let sixToFour = Network("2002::/16")!
}

/// Which addresses the relay calls back. Sources: the special-purpose registries of RFC 6890.
package struct AddressPolicy: Sendable {
  /// Networks that the operator allows although they are special.
  package var allowed: [Network]

  package init(allowed: [Network] = []) {
    self.allowed = allowed
  }

  package func permits(_ address: IPAddress) -> Bool {
    if allowed.contains(where: { $0.contains(address) }) { return true }
    if let embedded = address.embeddedIPv4 { return permits(embedded) }
    if address.isIPv4 { return !Self.specialIPv4.contains { $0.contains(address) } }
    return Self.globalUnicast.contains(address) && !Self.specialIPv6.contains { $0.contains(address) }
  }

  private static let globalUnicast = Network("2000::/3")!

  private static let specialIPv4: [Network] = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
    "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
  ].map { Network($0)! }

  private static let specialIPv6: [Network] = [
    // Protocol assignments, among them Teredo; documentation.
    "2001::/23", "2001:db8::/32", "3fff::/20",
  ].map { Network($0)! }
}

extension IPAddress {
  /// All addresses of a host, in the order of the system; none if it has none or cannot be resolved. Blocks
  /// while the system asks.
  package static func resolve(_ host: String) -> [IPAddress] {
    var hints = addrinfo()
    hints.ai_family = AF_UNSPEC
    #if canImport(Glibc)
      hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    #else
      hints.ai_socktype = SOCK_STREAM
    #endif
    var list: UnsafeMutablePointer<addrinfo>?
    guard getaddrinfo(host, nil, &hints, &list) == 0 else { return [] }
    defer { freeaddrinfo(list) }
    var addresses: [IPAddress] = []
    var entry = list
    while let current = entry {
      let raw = UnsafeRawPointer(current.pointee.ai_addr!)
      let bytes: [UInt8]
      switch current.pointee.ai_family {
      case AF_INET:
        bytes = withUnsafeBytes(of: raw.loadUnaligned(as: sockaddr_in.self).sin_addr) { Array($0) }
      case AF_INET6:
        bytes = withUnsafeBytes(of: raw.loadUnaligned(as: sockaddr_in6.self).sin6_addr) { Array($0) }
      default: bytes = []
      }
      if let address = IPAddress(bytes: bytes), !addresses.contains(address) { addresses.append(address) }
      entry = current.pointee.ai_next
    }
    return addresses
  }
}
