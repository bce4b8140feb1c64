#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Where the system sends what is for nobody near.
enum DefaultRoute {
  static var status: GDReachabilityStatus {
    #if os(Linux)
      status(
        ipv4: text(of: "/proc/net/route"), ipv6: text(of: "/proc/net/ipv6_route"),
        isWireless: { access("/sys/class/net/\($0)/wireless", F_OK) == 0 })
    #else
      .viaWiFi
    #endif
  }

  /// Of the two tables of the kernel (proc_net(5)); nil for one that cannot be read. Interfaces of modems are named `ww…`
  /// (systemd.net-naming-scheme(7)).
  static func status(ipv4: String?, ipv6: String?, isWireless: (String) -> Bool) -> GDReachabilityStatus {
    // What is not known counts as there.
    if ipv4 == nil, ipv6 == nil { return .viaWiFi }
    let interfaces = interfaces(ipv4: ipv4 ?? "", ipv6: ipv6 ?? "")
    if interfaces.isEmpty { return .notReachable }
    return interfaces.allSatisfy { $0.hasPrefix("ww") && !isWireless($0) } ? .viaCellular : .viaWiFi
  }

  /// Of the routes to everywhere that are up and refuse nothing.
  private static func interfaces(ipv4: String, ipv6: String) -> Set<String> {
    var interfaces: Set<String> = []
    for line in ipv4.split(separator: "\n").dropFirst() {
      let columns = line.split(whereSeparator: { $0 == "\t" || $0 == " " })
      guard columns.count >= 8, isZero(columns[1]), isZero(columns[7]), isUsable(columns[3]) else { continue }
      interfaces.insert(String(columns[0]))
    }
    for line in ipv6.split(separator: "\n") {
      let columns = line.split(separator: " ")
      guard columns.count >= 10, isZero(columns[0]), isZero(columns[1]), isUsable(columns[8]),
        columns[9] != "lo"
      else { continue }
      interfaces.insert(String(columns[9]))
    }
    return interfaces
  }

  private static func isZero(_ hex: Substring) -> Bool { hex.allSatisfy { $0 == "0" } }

  /// RTF_UP, and not RTF_REJECT.
  private static func isUsable(_ flags: Substring) -> Bool {
    guard let flags = UInt32(flags, radix: 16) else { return false }
    return flags & 0x1 != 0 && flags & 0x200 == 0
  }

  /// A file of the kernel comes in parts, and Foundation takes the first for the whole.
  private static func text(of path: String) -> String? {
    #if os(Linux)
      let file = open(path, O_RDONLY | O_CLOEXEC)
      guard file >= 0 else { return nil }
      defer { close(file) }
      var bytes: [UInt8] = []
      var buffer = [UInt8](repeating: 0, count: 16_384)
      // A machine with more routes than this has one to everywhere.
      while bytes.count < 16 << 20 {
        let count = read(file, &buffer, buffer.count)
        if count < 0, errno == EINTR { continue }
        guard count >= 0 else { return nil }
        if count == 0 { break }
        bytes += buffer[..<count]
      }
      return String(decoding: bytes, as: UTF8.self)
    #else
      return nil
    #endif
  }
}
