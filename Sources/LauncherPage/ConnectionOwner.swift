import Foundation

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Whose the other end of a connection on this machine is, as the kernel says.
enum ConnectionOwner {
  /// An end of a connection over IPv4.
  struct End: Hashable {
    /// In the order of the network.
    var address: [UInt8]
    var port: UInt16

    /// As the kernel writes it: the address is a number of the machine's byte order.
    fileprivate var text: String {
      let number = address.reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
      let (a, b) = (String(UInt32(littleEndian: number), radix: 16), String(port, radix: 16))
      return
        (String(repeating: "0", count: 8 - a.count) + a + ":" + String(repeating: "0", count: 4 - b.count) + b)
        .uppercased()
    }
  }

  /// Whether this user has the socket at `other` that is connected to `own`. What the kernel does not say is not so. Reads a file of the
  /// kernel's.
  static func isThisUser(_ other: End, connectedTo own: End) -> Bool {
    // The list is read in parts, while others come and go.
    for _ in 0..<3 {
      guard let list = connections() else { return false }
      if let user = user(of: other, connectedTo: own, in: list) { return user == geteuid() }
    }
    return false
  }

  /// Why nothing is known of the users of connections; nil when it is.
  static var fault: String? {
    guard connections() != nil else { return "this system does not say whose a connection is" }
    let unmapped = (try? String(contentsOfFile: "/proc/sys/kernel/overflowuid", encoding: .utf8))
      .flatMap { uid_t($0.trimmingCharacters(in: .whitespacesAndNewlines)) }
    return geteuid() == unmapped ? "the user of this process looks like any other to it" : nil
  }

  /// A thread's own: the process has none any more once its main thread has ended. The kernel gives a part with each read and says no size,
  /// and Foundation takes the first part for the whole.
  private static func connections() -> [UInt8]? {
    let file = open("/proc/thread-self/net/tcp", O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return nil }
    defer { close(file) }
    var list: [UInt8] = []
    var part = [UInt8](repeating: 0, count: 65_536)
    while true {
      let count = read(file, &part, part.count)
      if count < 0, errno == EINTR { continue }
      guard count >= 0, list.count < listByteCountMax else { return nil }
      if count == 0 { return list }
      list += part[..<count]
    }
  }

  /// A hundred thousand connections.
  private static let listByteCountMax = 16 << 20

  /// The user of an established connection in the kernel's list (proc(5)); nil when it is not there.
  static func user(of other: End, connectedTo own: End, in list: [UInt8]) -> uid_t? {
    // One that is not established belongs to nobody any more, which reads as root.
    let connection = Array("\(other.text) \(own.text) 01 ".utf8)
    for line in list.split(separator: UInt8(ascii: "\n")).dropFirst() {
      // Behind the line's number.
      guard let number = line.firstIndex(of: UInt8(ascii: ":")),
        line[(number + 1)...].dropFirst().starts(with: connection)
      else { continue }
      let fields = line.split(separator: UInt8(ascii: " "))
      return fields.count > 7 ? uid_t(String(decoding: fields[7], as: UTF8.self)) : nil
    }
    return nil
  }
}
