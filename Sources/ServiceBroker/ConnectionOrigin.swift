import Foundation
import ServiceWire
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Reads where a connection comes from (BROKER-PROTOCOL.md, "Origins"), of /proc on Linux. On other
/// systems every process is plain.
enum ConnectionOrigin {
  /// Nil when it cannot be read, or the process has ended: such a connection is closed.
  static func read(_ connection: borrowing UnixConnection, process: Int32) -> BrokerOrigin? {
    #if os(Linux)
      guard process > 0, let peer = try? PeerProcess.of(connection) else {
        // The kernel has no such descriptors, or the process is gone.
        return isWithoutPeerProcesses ? readTwice(process) : nil
      }
      let origin = read(process)
      return peer.hasEnded ? nil : origin
    #else
      return .plain
    #endif
  }

  // MARK: /proc

  private static let isWithoutPeerProcesses: Bool = {
    guard let pair = try? SocketPair() else { return false }
    let first = pair.first
    do { return try PeerProcess.of(first) == nil } catch { return false }
  }()

  /// The number may be another process's by now: then the time of its start differs.
  private static func readTwice(_ process: Int32) -> BrokerOrigin? {
    guard let start = startTime(process), let origin = read(process), startTime(process) == start else {
      return nil
    }
    return origin
  }

  static func read(_ process: Int32) -> BrokerOrigin? {
    let place = "/proc/\(process)"
    guard let label = label(place + "/attr/current") else { return nil }
    if let confined = confinement(label) { return .sandbox(confined) }
    for name in ["user", "mnt", "pid"] {
      guard let own = namespace("/proc/self/ns/" + name), let theirs = namespace("\(place)/ns/" + name) else {
        return nil
      }
      if own == theirs { continue }
      guard let groups = try? text(place + "/cgroup") else { return nil }
      return .sandbox(controlGroup(groups))
    }
    return .plain
  }

  private static let fileByteCountMax = 16 << 10

  private static func text(_ path: String) throws(ServiceBrokerError) -> String? {
    try StateFiles.read(path, byteCountMax: fileByteCountMax).map { String(decoding: $0, as: UTF8.self) }
  }

  /// Empty where no security module labels processes; nil when the label cannot be read.
  private static func label(_ path: String) -> String? {
    do throws(ServiceBrokerError) {
      return try text(path) ?? ""
    } catch {
      if case .callFailed(_, _, EINVAL) = error { return "" }
      return nil
    }
  }

  /// What the link says, such as `mnt:[4026531841]`.
  private static func namespace(_ path: String) -> [CChar]? {
    var link = [CChar](repeating: 0, count: 64)
    let count = readlink(path, &link, link.count)
    return (1..<link.count).contains(count) ? Array(link.prefix(count)) : nil
  }

  private static func startTime(_ process: Int32) -> Substring? {
    // Behind the program's name, which may hold anything, in parentheses: field 22 of proc(5).
    guard let text = try? text("/proc/\(process)/stat"), let end = text.lastIndex(of: ")")
    else { return nil }
    let fields = text[text.index(after: end)...].split(separator: " ")
    return fields.count > 19 ? fields[19] : nil
  }

  // MARK: Texts

  private static let labelByteCountMax = 128

  /// The label of a confined process: `name (enforce)` of AppArmor, or a context of SELinux whose type is
  /// not `unconfined_t`. Nil for one that is not confined.
  static func confinement(_ text: String) -> String? {
    let label = text.trimmingCharacters(in: .whitespacesAndNewlines.union(["\0"]))
    if label.hasSuffix(" (enforce)") { return short(String(label.dropLast(" (enforce)".count))) }
    let parts = label.split(separator: ":", omittingEmptySubsequences: false)
    guard parts.count >= 3, parts[2] != "unconfined_t" else { return nil }
    return short(label)
  }

  /// The last part of the control group that is no number, without what differs from one instance of an app to the next: so instances of
  /// one sandbox share it, and to start more of them gains an app nothing.
  static func controlGroup(_ text: String) -> String {
    let line = text.split(separator: "\n").first { $0.hasPrefix("0::") }
    let parts = (line ?? "").dropFirst("0::".count).split(separator: "/")
    let leaf = parts.last { !isNumber($0) }
    return short(leaf.map(withoutInstance) ?? "sandbox")
  }

  /// Units of apps are named `app-…-RANDOM.scope` and `app-…@RANDOM.service` (Desktop Environments, systemd.io). Flatpak's are of the first
  /// kind, with a number of the instance; older ones begin with `flatpak-`. Where another launcher leaves RANDOM out, the last part is no number.
  private static func withoutInstance(_ unit: Substring) -> String {
    guard unit.hasPrefix("app-") || unit.hasPrefix("flatpak-") else { return String(unit) }
    let isScope = unit.hasSuffix(".scope")
    guard isScope || unit.hasSuffix(".service"), let dot = unit.lastIndex(of: "."),
      let separator = unit[..<dot].lastIndex(of: isScope ? "-" : "@")
    else { return String(unit) }
    let instance = unit[unit.index(after: separator)..<dot]
    guard !instance.isEmpty, unit[..<separator].contains("-"),
      !isScope || isNumber(instance)
    else { return String(unit) }
    return String(unit[..<separator])
  }

  private static func isNumber(_ text: Substring) -> Bool { text.utf8.allSatisfy { (48...57).contains($0) } }

  private static func short(_ label: String) -> String {
    String(decoding: label.utf8.prefix(labelByteCountMax), as: UTF8.self)
  }
}
