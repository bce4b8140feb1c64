import CPosix
import Foundation
import TestSupport
import Testing
import UnixSockets

struct ConnectionTests {
  @Test func pairIsConnectedAndClosedByExec() throws {
    let pair = try SocketPair()
    #expect(isClosedOnExec(pair.first.descriptorNumber))
    #expect(isClosedOnExec(pair.second.descriptorNumber))
    try pair.first.write(pattern(3), deadline: minutes)
    try pair.second.write(pattern(4), deadline: minutes)
    #expect(try pair.first.readWhole(4, deadline: minutes) == pattern(4))
    #expect(try pair.second.readWhole(3, deadline: minutes) == pattern(3))
  }

  @Test(
    arguments: [UnixConnection.Mode.blocking, .nonblocking], [false, true])
  func movesMoreThanTheBuffersHold(mode: UnixConnection.Mode, hasDeadline: Bool) throws {
    let pair = try SocketPair()
    try pair.first.setMode(mode)
    try pair.second.setMode(mode)
    let bytes = pattern(5_000_003)
    let deadline = hasDeadline ? minutes : nil
    let sender = SharedConnection(pair.first)
    let second = pair.second
    let running = Running { try sender.connection.write(bytes, deadline: deadline) }
    #expect(try second.readWhole(bytes.count, deadline: deadline) == bytes)
    try running.value()
  }

  @Test func deadlineEndsAReadAndAWrite() throws {
    let pair = try SocketPair()
    for deadline in [ContinuousClock.now, .now + .milliseconds(5)] {
      #expect(throws: SocketError.timedOut(operation: "read")) {
        _ = try pair.first.read(1, deadline: deadline)
      }
    }
    try pair.second.write(pattern(2), deadline: .now)  // what is possible at once is done
    #expect(throws: SocketError.timedOut(operation: "read")) {
      _ = try pair.first.readWhole(3, deadline: .now + .milliseconds(5))
    }
    try pair.first.fill()
    for deadline in [ContinuousClock.now, .now + .milliseconds(5)] {
      #expect(throws: SocketError.timedOut(operation: "write")) {
        try pair.first.write(pattern(1), deadline: deadline)
      }
    }
  }

  #if os(Linux)
    @Test func seesThatTheOtherEndIsClosed() throws {
      let pair = try SocketPair()
      let first = pair.first
      do {
        let second = pair.second
        try second.write(pattern(1), deadline: minutes)
        second.shutdown(.writing)
        let isClosed = first.isClosedByPeer
        #expect(!isClosed)
      }
      let isClosed = first.isClosedByPeer
      #expect(isClosed)
      #expect(try first.readWhole(1, deadline: minutes) == pattern(1))
    }
  #endif

  @Test func endOfTheStreamIsAShortReadAndNoWholeOne() throws {
    let pair = try SocketPair()
    try pair.first.write(pattern(10), deadline: minutes)
    pair.first.shutdown(.writing)
    #expect(try pair.second.read(4, deadline: nil) == Array(pattern(10)[..<4]))
    #expect(throws: SocketError.closed) { _ = try pair.second.readWhole(7, deadline: nil) }
    #expect(try pair.second.read(4, deadline: nil).isEmpty)
    #expect(throws: SocketError.closed) { try pair.first.write(pattern(1), deadline: nil) }
    // The other direction still works.
    try pair.second.write(pattern(2), deadline: nil)
    #expect(try pair.first.readWhole(2, deadline: nil) == pattern(2))
  }

  @Test(arguments: [true, false])
  func shutdownFromAnotherThreadEndsAReader(hasDeadline: Bool) throws {
    let pair = try SocketPair()
    let shared = SharedConnection(pair.first)
    let second = pair.second
    let deadline = hasDeadline ? minutes : nil
    let running = Running { try shared.connection.read(10, deadline: deadline) }
    try second.write(pattern(3), deadline: minutes)
    shared.connection.shutdown()
    #expect(try running.value().count <= 3)
    #expect(throws: SocketError.closed) { try second.write(pattern(1), deadline: minutes) }
  }

  @Test(arguments: [true, false])
  func shutdownFromAnotherThreadEndsAWriter(hasDeadline: Bool) throws {
    let pair = try SocketPair()
    let shared = SharedConnection(pair.first)
    let second = pair.second
    let deadline = hasDeadline ? minutes : nil
    let running = Running { try shared.connection.write(plenty, deadline: deadline) }
    _ = try second.readWhole(1, deadline: minutes)  // it is at work, and can never finish
    #expect(running.isRunning)
    shared.connection.shutdown()
    #expect(throws: SocketError.closed) { try running.value() }
  }

  @Test func peerThatDiesWithinAMessage() throws {
    let folder = TemporaryDirectory()
    let listener = try UnixListener(path: folder["s"])
    let peer = try PeerProcess("write", folder["s"], "5")
    let connection = try listener.accept(deadline: minutes)
    #expect(try peer.line() == "written")
    let shared = SharedConnection(connection)
    let running = Running { try shared.connection.readWhole(8, deadline: nil) }
    peer.kill()
    #expect(throws: SocketError.closed) { try running.value() }
  }

  @Test func peerThatDiesWithoutReading() throws {
    let folder = TemporaryDirectory()
    let listener = try UnixListener(path: folder["s"])
    let peer = try PeerProcess("write", folder["s"], "5")
    let connection = try listener.accept(deadline: minutes)
    #expect(try peer.line() == "written")
    let shared = SharedConnection(connection)
    let running = Running { try shared.connection.write(plenty, deadline: nil) }
    peer.kill()
    #expect(throws: SocketError.closed) { try running.value() }
    // Linux reports the unread bytes as a reset, once; afterwards what the peer had written can be read.
    #expect(throws: SocketError.closed) {
      _ = try shared.connection.readWhole(8, deadline: minutes)
    }
  }

  @Test func writingToTheEndRaisesNoSignal() throws {
    let peer = try PeerProcess("write to the end")
    #expect(try peer.line() == "closed")
    #expect(try peer.line() == "closed")
  }

  @Test(arguments: [true, false])
  func signalsInterruptNothing(hasDeadline: Bool) throws {
    try letInterrupt(SIGURG)
    let pair = try SocketPair()
    let bytes = pattern(2_000_000)
    let deadline = hasDeadline ? minutes : nil
    let (sender, receiver) = (SharedConnection(pair.first), SharedConnection(pair.second))
    let last = try SocketPair()
    let end = SharedConnection(last.first)
    let other = last.second
    let reading = Running {
      let read = try receiver.connection.readWhole(bytes.count, deadline: deadline)
      _ = try? end.connection.read(1, deadline: minutes)  // signals may still come
      return read
    }
    let writing = Running {
      for chunk in stride(from: 0, to: bytes.count, by: 10_000) {
        reading.signal(SIGURG)
        try sender.connection.write(
          Array(bytes[chunk..<min(chunk + 10_000, bytes.count)]), deadline: deadline)
      }
    }
    try writing.value()
    other.shutdown()
    #expect(try reading.value() == bytes)
  }

  @Test func adoptsOnlyStreamSocketsOfThisKind() throws {
    let pipe = try Pipe()
    let file = try #require(OpenFile(pipe.readEnd.number))
    #expect(throws: SocketError.notASocket(path: nil)) {
      _ = try UnixConnection(adopting: try pipe.readEnd.duplicate())
    }
    #expect(try file.descriptorCount == 2)
    let internet = try Descriptor(adopting: socket(AF_INET, Int32(streamKind), 0))
    #expect(throws: SocketError.notASocket(path: nil)) {
      _ = try UnixConnection(adopting: try internet.duplicate())
    }
    let datagram = try Descriptor(adopting: socket(AF_UNIX, Int32(datagramKind), 0))
    #expect(throws: SocketError.notASocket(path: nil)) {
      _ = try UnixConnection(adopting: try datagram.duplicate())
    }
    let pair = try SocketPair()
    let adopted = try UnixConnection(adopting: pair.first.takeDescriptor())
    try adopted.write(pattern(1), deadline: minutes)
    #expect(try pair.second.readWhole(1, deadline: minutes) == pattern(1))
  }

  @Test func connectionIsClosedAtItsEnd() throws {
    let pair = try SocketPair()
    let second = pair.second
    _ = pair.first.takeDescriptor()
    #expect(try second.read(1, deadline: minutes).isEmpty)
  }

  @Test func credentialsAreThoseOfTheOtherProcess() throws {
    let folder = TemporaryDirectory()
    let listener = try UnixListener(path: folder["s"])
    let dialler = try PeerProcess("write", folder["s"], "1")
    let connection = try listener.accept(deadline: minutes)
    let credentials = try connection.peerCredentials()
    #expect(credentials.process == dialler.id)
    #expect(credentials.user == geteuid())
    #expect(credentials.group == getegid())

    let acceptor = try PeerProcess("accept", folder["t"])
    #expect(try acceptor.line() == "listening")
    let dialled = try UnixConnection.dial(path: folder["t"], deadline: minutes)
    #expect(try dialled.peerCredentials().process == acceptor.id)
    #expect(try acceptor.line() == "accepted \(getpid())")
  }

  @Test func credentialsOfWhatIsNoSocketAreRefused() throws {
    let pipe = try Pipe()
    #expect(throws: SocketError.callFailed(operation: "getsockopt", path: nil, errno: ENOTSOCK)) {
      _ = try PeerCredentials(of: pipe.readEnd)
    }
  }

  @Test func buffersAndModeAreSetAndRead() throws {
    let pair = try SocketPair()
    let small = try pair.first.setBufferByteCounts(BufferByteCounts(send: 20_000, receive: 30_000))
    #expect(small.send >= 20_000)
    #expect(small.receive >= 30_000)
    #expect(try pair.first.bufferByteCounts() == small)
    let large = try pair.first.setBufferByteCounts(BufferByteCounts(send: 100_000, receive: 90_000))
    #expect(large.send > small.send)
    #expect(large.receive > small.receive)
    #expect(try pair.second.bufferByteCounts() != large)

    #expect(try pair.first.mode() == .blocking)
    try pair.first.setMode(.nonblocking)
    #expect(try pair.first.mode() == .nonblocking)
    #expect(try pair.second.mode() == .blocking)
    try pair.first.setMode(.blocking)
    #expect(try pair.first.mode() == .blocking)
  }

  @Test func sendBufferBoundsWhatIsOnItsWay() throws {
    let small = try SocketPair()
    let large = try SocketPair()
    try small.first.setBufferByteCounts(BufferByteCounts(send: 8_192, receive: 8_192))
    try large.first.setBufferByteCounts(BufferByteCounts(send: 131_072, receive: 131_072))
    let counts = try [small.first.bytesUntilFull(), large.first.bytesUntilFull()]
    #expect(counts[0] < counts[1])
  }
}

extension UnixConnection {
  borrowing func bytesUntilFull() throws -> Int {
    var sum = 0
    while let count = try pattern(1000).withUnsafeBytes({ try sendIfReady($0) }) { sum += count }
    return sum
  }
}

#if canImport(Glibc)
  let streamKind = SOCK_STREAM.rawValue
  let datagramKind = SOCK_DGRAM.rawValue
#else
  let streamKind = SOCK_STREAM
  let datagramKind = SOCK_DGRAM
#endif
