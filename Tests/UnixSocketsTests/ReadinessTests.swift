import Foundation
import Testing
import UnixSockets

/// One thread that waits for everything that may happen on a connection.
struct ReadinessTests {
  private final class Ends: Sendable {
    let first: UnixConnection
    let second: UnixConnection
    let wakeup: Wakeup

    init() throws {
      let pair = try SocketPair()
      first = pair.first
      second = pair.second
      wakeup = try Wakeup()
    }
  }

  private let pair: Ends

  init() throws { pair = try Ends() }

  private func readiness(
    forRoom isRoomWanted: Bool = false, until deadline: ContinuousClock.Instant? = .now
  ) throws -> ConnectionReadiness {
    try pair.first.awaitReadiness(forRoom: isRoomWanted, or: pair.wakeup, until: deadline)
  }

  @Test func tellsWhatIsThere() throws {
    #expect(try readiness().isEmpty)
    #expect(try readiness(forRoom: true) == .writing)
    try pair.second.write(pattern(3), deadline: minutes)
    #expect(try readiness(until: nil) == .reading)
    try pair.first.fill()
    #expect(try readiness(forRoom: true, until: minutes) == .reading)
    pair.second.shutdown()
    #expect(try readiness().contains(.reading))
  }

  @Test func waitsUntilTheDeadline() throws {
    let begin = ContinuousClock.now
    #expect(try readiness(until: begin + .milliseconds(30)).isEmpty)
    #expect(ContinuousClock.now - begin >= .milliseconds(30))
  }

  @Test func isWokenUntilThatIsCleared() throws {
    pair.wakeup.wake()
    pair.wakeup.wake()
    #expect(try readiness(until: nil) == .woken)
    #expect(try readiness(until: nil) == .woken)
    pair.wakeup.clear()
    #expect(try readiness().isEmpty)
    pair.wakeup.clear()
    #expect(try readiness().isEmpty)
  }

  @Test func isWokenWhileItWaits() throws {
    let waiting = Running { [pair] in
      Thread.sleep(forTimeInterval: 0.02)
      pair.wakeup.wake()
    }
    #expect(try readiness(until: minutes) == .woken)
    try waiting.value()
  }

  // MARK: Without waiting

  @Test(arguments: [UnixConnection.Mode.blocking, .nonblocking])
  func readsWhatIsThereAndNoMore(mode: UnixConnection.Mode) throws {
    try pair.first.setMode(mode)
    var buffer = [UInt8](repeating: 0, count: 8)
    func read() throws -> Int? {
      try buffer.withUnsafeMutableBytes { try pair.first.readAvailable(into: $0) }
    }
    #expect(try read() == nil)
    try pair.second.write(pattern(11), deadline: minutes)
    #expect(try read() == 8)
    #expect(buffer == Array(pattern(11)[..<8]))
    #expect(try read() == 3)
    #expect(Array(buffer[..<3]) == Array(pattern(11)[8...]))
    #expect(try read() == nil)
    pair.second.shutdown()
    #expect(try read() == 0)
  }

  @Test(arguments: [UnixConnection.Mode.blocking, .nonblocking])
  func writesWhatThereIsRoomFor(mode: UnixConnection.Mode) throws {
    try pair.first.setMode(mode)
    let bytes = pattern(8_000_001)
    let written = try bytes.withUnsafeBytes { try pair.first.writeAvailable($0) }
    #expect(written > 0 && written < bytes.count)
    #expect(try bytes.withUnsafeBytes { try pair.first.writeAvailable($0) } == 0)
    #expect(try readiness(forRoom: true).isEmpty)
    #expect(try pair.second.readWhole(written, deadline: minutes) == Array(bytes[..<written]))
    #expect(try readiness(forRoom: true) == .writing)
    #expect(try bytes[..<0].withUnsafeBytes { try pair.first.writeAvailable($0) } == 0)
  }

  @Test func tellsOfAnEnd() throws {
    pair.second.shutdown()
    #expect(throws: SocketError.closed) {
      _ = try pattern(1).withUnsafeBytes { try pair.first.writeAvailable($0) }
    }
  }
}
