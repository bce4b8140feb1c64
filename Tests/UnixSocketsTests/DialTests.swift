import CPosix
import Foundation
import TestSupport
import Testing
import UnixSockets

struct DialTests {
  @Test func saysWhenNobodyIsThere() throws {
    let folder = TemporaryDirectory()
    #expect(throws: SocketError.nobodyAnswers(path: folder["none"])) {
      _ = try UnixConnection.dial(path: folder["none"], deadline: nil)
    }
    #expect(throws: SocketError.nobodyAnswers(path: folder["none/s"])) {
      _ = try UnixConnection.dial(path: folder["none/s"], deadline: .now)
    }
  }

  #if os(Linux)
    @Test func waitsForRoomInTheQueueUntilTheDeadline() throws {
      let folder = TemporaryDirectory()
      let path = folder["s"]
      let listener = try UnixListener(path: path, backlog: 0)
      // Linux lets one more wait than the backlog says.
      let first = try UnixConnection.dial(path: path, deadline: .now)
      for deadline in [ContinuousClock.now, .now + .milliseconds(5)] {
        #expect(throws: SocketError.timedOut(operation: "connect")) {
          _ = try UnixConnection.dial(path: path, deadline: deadline)
        }
      }
      let waiting = [nil, minutes].map { deadline in
        Running { () -> Bool in
          let connection = try UnixConnection.dial(path: path, deadline: deadline)
          return try connection.readWhole(1, deadline: nil) == [7]
        }
      }
      for _ in 0..<3 { try listener.accept(deadline: minutes).write([7], deadline: minutes) }
      for running in waiting { #expect(try running.value()) }
      #expect(try first.readWhole(1, deadline: minutes) == [7])
    }

    @Test func deadlineOfDiallingDoesNotBoundLaterWrites() throws {
      let folder = TemporaryDirectory()
      let listener = try UnixListener(path: folder["s"])
      let dialled = try UnixConnection.dial(path: folder["s"], deadline: minutes)
      var timeout = timeval(tv_sec: 1, tv_usec: 1)
      var size = socklen_t(MemoryLayout<timeval>.size)
      try #require(getsockopt(dialled.descriptorNumber, SOL_SOCKET, SO_SNDTIMEO, &timeout, &size) == 0)
      #expect(timeout.tv_sec == 0 && timeout.tv_usec == 0)
      listener.close()
    }
  #endif

  @Test func signalsDoNotEndAWaitForRoom() throws {
    try letInterrupt(SIGURG)
    let folder = TemporaryDirectory()
    let path = folder["s"]
    let listener = try UnixListener(path: path, backlog: 0)
    let last = try SocketPair()
    let end = SharedConnection(last.first)
    let other = last.second
    let running = Running { () -> Bool in
      var isGreeted = true
      for deadline in [nil, minutes] {
        for _ in 0..<20 {
          let connection = try UnixConnection.dial(path: path, deadline: deadline)
          isGreeted = try connection.readWhole(1, deadline: deadline) == [7] && isGreeted
        }
      }
      _ = try? end.connection.read(1, deadline: minutes)  // signals may still come
      return isGreeted
    }
    for _ in 0..<40 {
      for _ in 0..<20 { running.signal(SIGURG) }
      try listener.accept(deadline: minutes).write([7], deadline: minutes)
    }
    other.shutdown()
    #expect(try running.value())
  }
}
