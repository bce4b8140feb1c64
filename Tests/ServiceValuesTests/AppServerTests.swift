import ServiceValues
import TestSupport
import Testing

struct AppServerTests {
  @Test func takesNamesAndAddresses() throws {
    let longest = Array(repeating: String(repeating: "x", count: 63), count: 3).joined(separator: ".")
    let hosts = [
      "mail.example.com", "Mail", "localhost", "192.0.2.1", "2001:db8::1", "::", "::ffff:192.0.2.1",
      longest + "." + String(repeating: "y", count: 61),
    ]
    for host in hosts {
      let server = try AppServer(host: host, port: 443, priority: 2)
      #expect(server.host == host && server.port == 443 && server.priority == 2)
    }
    #expect(try AppServer(host: "a", port: 1).priority == 1)
    #expect(try "\(AppServer(host: "a.example", port: 80))" == "a.example:80")
    #expect(try "\(AppServer(host: "2001:db8::1", port: 80))" == "[2001:db8::1]:80")
  }

  @Test func saysWhatIsWrongAndWhere() throws {
    let longest = Array(repeating: String(repeating: "x", count: 63), count: 3).joined(separator: ".")
    let hosts: [(host: String, fault: String)] = [
      ("", "it is empty"),
      (longest + "." + String(repeating: "y", count: 62), "it has 254 bytes, and 253 are allowed"),
      ("a..b", "a part between dots is empty"), ("a.", "a part between dots is empty"),
      (String(repeating: "x", count: 64), "a part has 64 bytes, and 63 are allowed"),
      ("-a.example", "a part begins or ends with a hyphen"), ("a-", "a part begins or ends with a hyphen"),
      ("a b", "it has something other than letters of ASCII, digits, hyphens and dots"),
      ("ä.example", "it has something other than letters of ASCII, digits, hyphens and dots"),
      ("a\n", "it has something other than letters of ASCII, digits, hyphens and dots"),
      ("a.example:80", "it has a colon, and is no address of IPv6: the port is stated beside it"),
      ("a:80", "it has a colon, and is no address of IPv6: the port is stated beside it"),
      ("[::1]", "it has a colon, and is no address of IPv6: the port is stated beside it"),
      (
        String(repeating: ":1", count: 23),
        "it has a colon, and is no address of IPv6: the port is stated beside it"
      ),
    ]
    for (host, fault) in hosts {
      let error = try servicesError(.invalidRegistration) { _ = try AppServer(host: host, port: 1) }
      #expect(place(error) == "host: " + fault)
    }
    for number in [Int.min, 0, 65_536] {
      let fault = "it is \(number), and 1 to 65535 are allowed"
      let port = try servicesError(.invalidRegistration) { _ = try AppServer(host: "a", port: number) }
      #expect(place(port) == "port: " + fault)
      let priority = try servicesError(.invalidRegistration) {
        _ = try AppServer(host: "a", port: 1, priority: number)
      }
      #expect(place(priority) == "priority: " + fault)
    }
    for number in [1, 65_535] { _ = try AppServer(host: "a", port: number, priority: number) }
  }

  /// By priority, and within one priority each order is as likely as the others.
  @Test func isTriedByPriorityAndThenAtRandom() throws {
    let names = ["a", "b", "c"]
    let first = try names.map { try AppServer(host: $0, port: 1, priority: 1) }
    let second = try AppServer(host: "d", port: 1, priority: 7)
    let last = try names.map { try AppServer(host: $0, port: 2, priority: 65_535) }
    let all = [second] + last + first
    var random = SplitMix64(seed: 5)
    var counts: [[String]: Int] = [:]
    for _ in 0..<6000 {
      let order = AppServer.attemptOrder(all, using: &random)
      #expect(order.map(\.priority) == [1, 1, 1, 7, 65_535, 65_535, 65_535])
      #expect(Set(order) == Set(all))
      counts[order.prefix(3).map(\.host), default: 0] += 1
    }
    // Six orders, 1000 times each: the seed is always the same, so that this cannot fail now and then.
    #expect(counts.count == 6 && counts.values.allSatisfy { (850...1150).contains($0) })
    var (one, same) = (SplitMix64(seed: 9), SplitMix64(seed: 9))
    #expect(AppServer.attemptOrder(all, using: &one) == AppServer.attemptOrder(all, using: &same))
    #expect(AppServer.attemptOrder([], using: &one) == [])
  }
}
