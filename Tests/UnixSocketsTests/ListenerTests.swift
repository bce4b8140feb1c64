import CPosix
import Foundation
import TestSupport
import Testing
import UnixSockets

/// A descriptor that another thread closes.
private final class SharedDescriptor: Sendable {
  let number: Int32

  init(_ descriptor: consuming Descriptor) { number = descriptor.take() }

  func close() { _ = Foundation.close(number) }
}

struct ListenerTests {
  private static func inode(_ path: String) -> ino_t? {
    var status = stat()
    return lstat(path, &status) == 0 ? status.st_ino : nil
  }

  /// A bound socket without the lock, as a program of another kind makes it; `backlog` nil does not listen.
  private static func foreignSocket(_ path: String, backlog: Int32?) throws -> Descriptor {
    let descriptor = try Descriptor(adopting: cposix_unix_socket())
    guard cposix_unix_bind(descriptor.number, path) == 0 else { throw TestFailure("bind \(path)") }
    if let backlog, listen(descriptor.number, backlog) != 0 { throw TestFailure("listen \(path)") }
    return descriptor
  }

  private static func start(_ path: String) throws(SocketError) { _ = try UnixListener(path: path) }

  // MARK: Life

  @Test func acceptsWhoDialsAndIsRemovedAtItsEnd() throws {
    let folder = TemporaryDirectory()
    do {
      let listener = try UnixListener(path: folder["s"])
      #expect(isClosedOnExec(listener.descriptorNumber))
      let nobody = try listener.acceptIfWaiting()
      if nobody != nil { Issue.record("somebody was accepted before anybody dialled") }
      let dialled = try UnixConnection.dial(path: folder["s"], deadline: minutes)
      let accepted = try listener.accept(deadline: minutes)
      #expect(isClosedOnExec(dialled.descriptorNumber))
      #expect(isClosedOnExec(accepted.descriptorNumber))
      try dialled.write(pattern(3), deadline: minutes)
      #expect(try accepted.readWhole(3, deadline: minutes) == pattern(3))
    }
    #expect(!folder.exists("s"))
    #expect(throws: SocketError.nobodyAnswers(path: folder["s"])) {
      _ = try UnixConnection.dial(path: folder["s"], deadline: minutes)
    }
    try Self.start(folder["s"])
  }

  @Test func socketAndLockBelongToTheUserAlone() throws {
    let folder = TemporaryDirectory()
    try folder.setMode(0o755)
    let listener = try UnixListener(path: folder["s"])
    for name in ["s", "s" + UnixListener.lockSuffix] {
      var status = stat()
      try #require(lstat(folder[name], &status) == 0)
      #expect(status.st_mode & 0o777 == 0o600)
    }
    listener.close()
  }

  @Test func acceptEndsAtItsDeadlineAndByShutdown() throws {
    let folder = TemporaryDirectory()
    let shared = SharedListener(try UnixListener(path: folder["s"]))
    for deadline in [ContinuousClock.now, .now + .milliseconds(5)] {
      #expect(throws: SocketError.timedOut(operation: "accept")) {
        _ = try shared.listener.accept(deadline: deadline)
      }
    }
    let running = Running { _ = try shared.listener.accept(deadline: nil) }
    shared.listener.shutdown()
    #expect(throws: SocketError.closed) { try running.value() }
    #expect(throws: SocketError.closed) { _ = try shared.listener.acceptIfWaiting() }
  }

  // MARK: Sockets of a service manager

  @Test func acceptsAtASocketThatSomebodyElseMade() throws {
    let folder = TemporaryDirectory()
    let path = folder["s"]
    let manager = try UnixListener(path: folder["other"])
    try FileManager.default.moveItem(atPath: folder["other"], toPath: path)
    // It listens at the name that it was given.
    #expect(try UnixListener.path(ofListening: manager.descriptorNumber) == folder["other"])
    try FileManager.default.moveItem(atPath: path, toPath: folder["other"])
    try FileManager.default.removeItem(atPath: folder["other"] + UnixListener.lockSuffix)
    for _ in 0..<2 {
      let listener = try UnixListener(adopting: dup(manager.descriptorNumber))
      #expect(listener.path == folder["other"])
      let dialled = try UnixConnection.dial(path: listener.path, deadline: .now + .seconds(60))
      let accepted = try listener.accept(deadline: .now + .seconds(60))
      #expect(accepted.descriptorNumber != dialled.descriptorNumber)
      // Nobody else accepts there meanwhile.
      #expect(throws: SocketError.addressInUse(path: listener.path)) {
        _ = try UnixListener(adopting: dup(manager.descriptorNumber)).path
      }
      listener.shutdown()
      listener.close()
      // It goes on listening for the next.
      _ = try UnixConnection.dial(path: folder["other"], deadline: .now + .seconds(60)).descriptorNumber
      while try manager.acceptIfWaiting() != nil {}
    }
  }

  @Test func takesNothingElseThanASocketThatListens() throws {
    let pair = try SocketPair()
    #expect(try UnixListener.path(ofListening: pair.first.descriptorNumber) == nil)
    var ends: [Int32] = [-1, -1]
    #expect(pipe(&ends) == 0)
    defer { close(ends[1]) }
    for number in [dup(pair.first.descriptorNumber), ends[0]] {
      let taken = inode(number)
      #expect(throws: SocketError.notASocket(path: nil)) { _ = try UnixListener(adopting: number).path }
      // It is closed, and its number may be another's already.
      #expect(inode(number) != taken)
    }
    #expect(throws: SocketError.self) { _ = try UnixListener.path(ofListening: 9999) }
  }

  private func inode(_ number: Int32) -> UInt64? {
    var status = stat()
    return fstat(number, &status) == 0 ? UInt64(status.st_ino) : nil
  }

  @Test func whatSomebodyPutInItsPlaceStays() throws {
    let folder = TemporaryDirectory()
    do {
      let listener = try UnixListener(path: folder["s"])
      try FileManager.default.removeItem(atPath: folder["s"])
      try Data("other".utf8).write(to: URL(filePath: folder["s"]))
      _ = listener.path
    }
    #expect(try Data(contentsOf: URL(filePath: folder["s"])) == Data("other".utf8))
  }

  // MARK: Paths

  @Test(arguments: ["s", "é"])
  func takesThePathThatJustFitsAndRefusesOneByteMore(letter: String) throws {
    let folder = TemporaryDirectory()
    let prefix = folder[""].utf8.count
    let room = SocketPath.byteCountMax - prefix
    let name =
      String(repeating: letter, count: room / letter.utf8.count)
      + String(repeating: "x", count: room % letter.utf8.count)
    #expect(folder[name].utf8.count == SocketPath.byteCountMax)
    do {
      let listener = try UnixListener(path: folder[name])
      let dialled = try UnixConnection.dial(path: folder[name], deadline: minutes)
      let accepted = try listener.accept(deadline: minutes)
      try dialled.write(pattern(1), deadline: minutes)
      #expect(try accepted.readWhole(1, deadline: minutes) == pattern(1))
      #expect(folder.exists(name))
    }
    let long = folder[name + "x"]
    let error = SocketError.pathTooLong(path: long, byteCountMax: SocketPath.byteCountMax)
    #expect(throws: error) { try Self.start(long) }
    #expect(throws: error) { _ = try UnixConnection.dial(path: long, deadline: minutes) }
    #expect(!folder.exists(name + "x" + UnixListener.lockSuffix))
    #expect(error.description.contains("at most \(SocketPath.byteCountMax) bytes"))
    #if os(Linux)
      #expect(SocketPath.byteCountMax == 107)
    #endif
  }

  @Test(arguments: ["", "a\0b"])
  func refusesWhatIsNoPath(path: String) {
    let error = SocketError.callFailed(operation: "bind or connect", path: path, errno: EINVAL)
    #expect(throws: error) { try Self.start(path) }
    #expect(throws: error) { _ = try UnixConnection.dial(path: path, deadline: minutes) }
  }

  @Test func directoryOfAPath() {
    #expect(SocketDirectory.directory(of: "/a/b/c") == "/a/b")
    #expect(SocketDirectory.directory(of: "/a") == "/")
    #expect(SocketDirectory.directory(of: "a/b") == "a")
    #expect(SocketDirectory.directory(of: "a") == ".")
  }

  // MARK: What is at the path already

  @Test func replacesTheSocketOfAKilledListener() throws {
    let folder = TemporaryDirectory()
    let peer = try PeerProcess("listen", folder["s"])
    try peer.tell()
    _ = try peer.line()
    #expect(try peer.line() == "listening")
    peer.kill()
    #expect(folder.exists("s"))
    #expect(throws: SocketError.nobodyAnswers(path: folder["s"])) {
      _ = try UnixConnection.dial(path: folder["s"], deadline: minutes)
    }
    let listener = try UnixListener(path: folder["s"])
    let dialled = try UnixConnection.dial(path: folder["s"], deadline: minutes)
    let accepted = try listener.accept(deadline: minutes)
    try dialled.write(pattern(1), deadline: minutes)
    #expect(try accepted.readWhole(1, deadline: minutes) == pattern(1))
  }

  @Test func leavesALiveListenerAlone() throws {
    let folder = TemporaryDirectory()
    let peer = try PeerProcess("accept", folder["s"])
    #expect(try peer.line() == "listening")
    let inode = Self.inode(folder["s"])
    for _ in 0..<2 {
      #expect(throws: SocketError.addressInUse(path: folder["s"])) { try Self.start(folder["s"]) }
    }
    #expect(Self.inode(folder["s"]) == inode)
    let connection = try UnixConnection.dial(path: folder["s"], deadline: minutes)
    #expect(try peer.line() == "accepted \(getpid())")
    _ = connection.takeDescriptor()
  }

  @Test(arguments: [16, 0])
  func leavesALiveListenerWithoutALockAlone(backlog: Int32) throws {
    let folder = TemporaryDirectory()
    let other = try Self.foreignSocket(folder["s"], backlog: backlog)
    let inode = Self.inode(folder["s"])
    // A full queue, too, is somebody: with 0 the second attempt meets one.
    for _ in 0..<3 {
      #expect(throws: SocketError.addressInUse(path: folder["s"])) { try Self.start(folder["s"]) }
    }
    #expect(Self.inode(folder["s"]) == inode)
    #expect(OpenFile(other.number) != nil)
  }

  #if os(Linux)
    @Test func leavesASocketOfAnotherKindAlone() throws {
      let folder = TemporaryDirectory()
      do {
        let datagram = try Descriptor(adopting: socket(AF_UNIX, Int32(datagramKind), 0))
        try #require(cposix_unix_bind(datagram.number, folder["s"]) == 0)
        #expect(throws: SocketError.addressInUse(path: folder["s"])) { try Self.start(folder["s"]) }
        #expect(throws: SocketError.notASocket(path: folder["s"])) {
          _ = try UnixConnection.dial(path: folder["s"], deadline: minutes)
        }
        #expect(folder.exists("s"))
        _ = datagram.take()
      }
    }
  #endif

  @Test func replacesASocketThatNobodyListensAt() throws {
    let folder = TemporaryDirectory()
    do { _ = try Self.foreignSocket(folder["s"], backlog: nil) }
    #expect(folder.exists("s"))
    let listener = try UnixListener(path: folder["s"])
    _ = try UnixConnection.dial(path: listener.path, deadline: minutes)
  }

  @Test(arguments: ["file", "directory", "link", "dangling link", "link to a stale socket"])
  func neverRemovesWhatIsNoSocket(kind: String) throws {
    let folder = TemporaryDirectory()
    let path = folder["s"]
    switch kind {
    case "file": try Data("content".utf8).write(to: URL(filePath: path))
    case "directory":
      try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
    case "link":
      try Data("content".utf8).write(to: URL(filePath: folder["target"]))
      try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: folder["target"])
    case "dangling link":
      try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: folder["target"])
    default:
      do { _ = try Self.foreignSocket(folder["target"], backlog: nil) }
      try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: folder["target"])
    }
    let inode = Self.inode(path)
    for _ in 0..<2 {  // a failed start also lets its lock go
      #expect(throws: SocketError.notASocket(path: path)) { try Self.start(path) }
    }
    #expect(Self.inode(path) == inode)
    if kind == "file" || kind == "link" {
      #expect(try Data(contentsOf: URL(filePath: path)) == Data("content".utf8))
      #expect(throws: SocketError.notASocket(path: path)) {
        _ = try UnixConnection.dial(path: path, deadline: minutes)
      }
    }
  }

  @Test func refusesALockThatIsALink() throws {
    let folder = TemporaryDirectory()
    let lock = folder["s" + UnixListener.lockSuffix]
    try FileManager.default.createSymbolicLink(atPath: lock, withDestinationPath: folder["target"])
    #expect(throws: SocketError.callFailed(operation: "open", path: lock, errno: ELOOP)) {
      try Self.start(folder["s"])
    }
    #expect(!folder.exists("target"))
  }

  // MARK: Two starters

  @Test(arguments: [false, true])
  func oneOfSeveralProcessesWins(overAStaleSocket isStale: Bool) throws {
    let folder = TemporaryDirectory()
    for round in 0..<8 {
      let path = folder["s\(round)"]
      if isStale { _ = try Self.foreignSocket(path, backlog: nil) }
      let peers = try (0..<4).map { _ in try PeerProcess("listen", path) }
      for peer in peers { #expect(try peer.line() == "ready") }
      for peer in peers { try peer.tell() }
      let answers = try peers.map { try $0.line() }
      #expect(answers.sorted() == ["listening", "refused", "refused", "refused"])
      // The one that won is who answers.
      let winner = try #require(zip(peers, answers).first { $0.1 == "listening" }).0
      #expect(try UnixConnection.dial(path: path, deadline: minutes).peerCredentials().process == winner.id)
      for peer in peers { peer.finish() }
      #expect(!folder.exists("s\(round)"))
    }
  }

  @Test func oneOfSeveralThreadsWins() throws {
    let folder = TemporaryDirectory()
    let path = folder["s"]
    for _ in 0..<20 {
      do { _ = try Self.foreignSocket(path, backlog: nil) }
      let starters = (0..<4).map { _ in
        Running { () -> SharedListener? in
          do { return SharedListener(try UnixListener(path: path)) } catch SocketError.addressInUse(path) {
            return nil
          }
        }
      }
      let listeners = try starters.map { try $0.value() }
      #expect(listeners.count { $0 != nil } == 1)
      try? FileManager.default.removeItem(atPath: path)
    }
  }

  /// A process that was killed while it started a program listens on until its child calls exec.
  @Test func aStarterBearsASocketThatIsClosedSoon() throws {
    let folder = TemporaryDirectory()
    let path = folder["s"]
    let dying = SharedDescriptor(try Self.foreignSocket(path, backlog: 16))
    let starter = Running { SharedListener(try UnixListener(path: path)) }
    // The starter's first look; then nobody listens any more.
    var entry = pollfd(fd: dying.number, events: Int16(POLLIN), revents: 0)
    #expect(poll(&entry, 1, 120_000) == 1)
    dying.close()
    let listener = try starter.value()
    let connection = try UnixConnection.dial(path: path, deadline: minutes)
    #expect(try connection.peerCredentials().process == getpid())
    _ = listener.listener.descriptorNumber
  }

  // MARK: The directory

  @Test(
    arguments: [
      (0o700, nil, nil), (0o500, nil, nil), (0o755, nil, .openToOthers), (0o711, nil, .openToOthers),
      (0o740, nil, .openToOthers), (0o770, .writableForOthers, .writableForOthers),
      (0o720, .writableForOthers, .writableForOthers), (0o702, .writableForOthers, .writableForOthers),
      (0o777, .writableForOthers, .writableForOthers), (0o1777, .writableForOthers, .writableForOthers),
    ] as [(mode_t, SocketDirectory.Fault?, SocketDirectory.Fault?)])
  func refusesADirectoryThatDoesNotKeepOthersOut(
    mode: mode_t, fault: SocketDirectory.Fault?, faultWhenClosed: SocketDirectory.Fault?
  ) throws {
    let folder = TemporaryDirectory()
    defer { try? folder.setMode(0o700) }
    try folder.setMode(mode)
    for (requirement, fault) in [
      (SocketDirectory.Requirement.notWritableForOthers, fault), (.closedToOthers, faultWhenClosed),
    ] {
      let error = fault.map { SocketError.unsafeDirectory(path: folder.path, fault: $0) }
      #expect(
        thrown { () throws(SocketError) in try SocketDirectory.check(folder.path, requirement) } == error)
      if mode == 0o500 { continue }  // nothing can be made in it, unless by root
      #expect(
        thrown { () throws(SocketError) in
          _ = try UnixListener(path: folder["s"], directory: requirement)
        } == error)
    }
    #expect(!folder.exists("s"))
  }

  @Test func refusesADirectoryOfAnotherUser() throws {
    let folder = TemporaryDirectory()
    // Only root can give a directory away; others find the root directory in another's hands.
    let path = geteuid() == 0 ? folder.path : "/"
    if geteuid() == 0 { try #require(chown(path, 1, 1) == 0) }
    let error = SocketError.unsafeDirectory(path: path, fault: .ownedByAnotherUser)
    #expect(throws: error) { try Self.start(path == "/" ? "/s" : folder["s"]) }
  }

  @Test func refusesADirectoryThatIsNoneOrMissing() throws {
    let folder = TemporaryDirectory()
    try Data().write(to: URL(filePath: folder["file"]))
    #expect(throws: SocketError.unsafeDirectory(path: folder["file"], fault: .notADirectory)) {
      try Self.start(folder["file/s"])
    }
    #expect(throws: SocketError.callFailed(operation: "stat", path: folder["none"], errno: ENOENT)) {
      try Self.start(folder["none/s"])
    }
  }

  private func thrown(_ body: () throws(SocketError) -> Void) -> SocketError? {
    do {
      try body()
      return nil
    } catch {
      return error
    }
  }
}
