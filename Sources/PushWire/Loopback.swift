#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// This machine, as a host is named.
package enum Loopback {
  /// Whether a host is this machine whatever a name server says: `localhost`, `::1`, with brackets or without, or an address of 127/8 in
  /// four numbers. `127.example.com` is a name like any other.
  package static func isHost(_ host: String) -> Bool {
    if ["localhost", "::1", "[::1]"].contains(host.lowercased()) { return true }
    var address = in_addr()
    return inet_pton(AF_INET, host, &address) == 1 && UInt32(bigEndian: address.s_addr) >> 24 == 127
  }
}
