import CoreMetrics
import Foundation
import PushWire
import TestSupport
import Testing

@testable import PushRelay

struct TokenVaultTests {
  @Test func aTokenComesBackWithTheSameKeyAlone() throws {
    let token = PushToken(relay: .local)
    let stored = TokenVault(key: Data(repeating: 1, count: 32)).stored(token)
    #expect(try TokenVault(key: Data(repeating: 1, count: 32)).open(stored.sealed) == token.text)
    #expect(throws: StoreFailure.self) {
      try TokenVault(key: Data(repeating: 2, count: 32)).open(stored.sealed)
    }
    for index in stored.sealed.indices {
      var damaged = stored.sealed
      damaged[index] ^= 1
      #expect(throws: StoreFailure.self) {
        try TokenVault(key: Data(repeating: 1, count: 32)).open(damaged)
      }
    }
    #expect(stored.sealed.range(of: Data(token.secret.utf8)) == nil)
    #expect(stored.tokenHash != stored.secretHash && stored.prefix == token.prefix)
  }

  @Test func theKeyFileIsMadeOnceAndForItsOwner() throws {
    let folder = try TemporaryFolder()
    let path = folder.url.appending(path: "relay.key").path
    let stored = try TokenVault(keyFile: path).stored(PushToken(relay: .local))
    #expect(try TokenVault(keyFile: path).open(stored.sealed).hasSuffix(" ") == false)
    let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
    #expect(mode == 0o600)
    try Data(count: 31).write(to: URL(filePath: path))
    let failure = #expect(throws: TokenVault.Failure.self) { try TokenVault(keyFile: path) }
    #expect(failure?.description.contains("31 bytes") == true)
  }
}

struct RateLimiterTests {
  @Test func aBucketEmptiesAndFillsAgain() {
    let limiter = RateLimiter<String>(rate: 10, burst: 3)
    #expect((0..<5).map { _ in limiter.allows("a", now: 1000) } == [true, true, true, false, false])
    #expect(limiter.allows("b", now: 1000))
    #expect(limiter.allows("a", now: 1099) == false && limiter.allows("a", now: 1100))
    // A clock that was set back gives nothing.
    #expect(limiter.allows("a", now: 0) == false)
    limiter.sweep(now: 5000)
    #expect((0..<4).map { _ in limiter.allows("a", now: 5000) } == [true, true, true, false])
  }
}

extension RateLimiterTests {
  /// Whoever makes up keys makes no more buckets than there may be, and shares one with others who do.
  @Test func theTableHasABound() {
    let limiter = RateLimiter<Int>(rate: 1, burst: 2, countMax: 100)
    #expect(limiter.allows(-1, now: 0))
    #expect((0..<10_000).count { limiter.allows($0, now: 0) } == 99 + 2)
    #expect(limiter.count == 100)
    // A key that has a bucket keeps it.
    #expect(limiter.allows(-1, now: 0) && !limiter.allows(-1, now: 0))
    // Buckets that are full again make room.
    #expect(limiter.allows(50_000, now: 10_000) && limiter.count == 1)
  }

  @Test func askingMakesNoBucket() {
    let limiter = RateLimiter<Int>(rate: 1, burst: 2)
    #expect(limiter.wouldAllow(1, now: 0) && limiter.count == 0)
    for _ in 0..<10 { limiter.charge(1, now: 0) }
    #expect(!limiter.wouldAllow(1, now: 2999) && limiter.wouldAllow(1, now: 3000))
    // In a full table too, a new key has what all new keys share.
    let full = RateLimiter<Int>(rate: 1, burst: 2, countMax: 1)
    full.charge(0, now: 0)
    for key in 1...2 {
      #expect(full.wouldAllow(key, now: 0))
      full.charge(key, now: 0)
    }
    #expect(!full.wouldAllow(3, now: 0))
  }
}

struct AddressGroupTests {
  @Test func anIPv6NetworkCountsOnce() {
    #expect(IPAddress.group("1.2.3.4") == "1.2.3.4" && IPAddress.group("::ffff:1.2.3.4") == "1.2.3.4")
    #expect(IPAddress.group("2001:db8:1:2:3::4") == "2001:db8:1:2::/64")
    #expect(IPAddress.group("2001:db8:1:2::9%eth0") == "2001:db8:1:2::/64")
    #expect(IPAddress.group("local") == "local")
  }
}

struct ListenAddressTests {
  @Test(arguments: [
    ("127.0.0.1:80", "127.0.0.1", 80, true), ("[::1]:0", "::1", 0, true),
    ("localhost:1", "localhost", 1, true),
    ("0.0.0.0:443", "0.0.0.0", 443, false), ("push.example:65535", "push.example", 65535, false),
    ("127.0.0.1.example.com:80", "127.0.0.1.example.com", 80, false),
  ])
  func readsHostAndPort(text: String, host: String, port: Int, isLoopback: Bool) throws {
    let address = try #require(ListenAddress(text))
    #expect(address.host == host && address.port == port && address.isLoopback == isLoopback)
    #expect(address.description == text)
  }

  @Test(arguments: ["", ":", "x", "x:", ":1", "x:65536", "x:-1", "::1:80", "x:y"])
  func refusesTheRest(_ text: String) {
    #expect(ListenAddress(text) == nil)
  }
}

struct PrometheusMetricsTests {
  @Test func writesWhatPrometheusReads() {
    let metrics = PrometheusMetrics()
    Counter(label: "a_total", dimensions: [("x", "1")], factory: metrics).increment(by: 2)
    Counter(label: "a_total", dimensions: [("x", "1")], factory: metrics).increment()
    Counter(label: "a_total", dimensions: [("x", "2")], factory: metrics).increment()
    Gauge(label: "b", factory: metrics).record(1.5)
    let recorder = Recorder(label: "c_seconds", aggregate: true, factory: metrics)
    for seconds in [0.0005, 0.02, 20] { recorder.record(seconds) }
    let lines = metrics.text().split(separator: "\n").map(String.init)
    #expect(
      lines.prefix(6) == [
        "# TYPE a_total counter", "a_total{x=\"1\"} 3", "a_total{x=\"2\"} 1", "# TYPE b gauge", "b 1.5",
        "# TYPE c_seconds histogram",
      ])
    #expect(
      lines.contains("c_seconds_bucket{le=\"0.001\"} 1") && lines.contains("c_seconds_bucket{le=\"10\"} 2"))
    #expect(lines.contains("c_seconds_bucket{le=\"+Inf\"} 3") && lines.last == "c_seconds_count 3")
  }
}
