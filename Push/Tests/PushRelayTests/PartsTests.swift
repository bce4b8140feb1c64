import CoreMetrics
import Foundation
import PushTestSupport
import PushWire
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

struct ListenAddressTests {
  @Test(arguments: [
    ("127.0.0.1:80", "127.0.0.1", 80, true), ("[::1]:0", "::1", 0, true),
    ("localhost:1", "localhost", 1, true),
    ("0.0.0.0:443", "0.0.0.0", 443, false), ("push.example:65535", "push.example", 65535, false),
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
