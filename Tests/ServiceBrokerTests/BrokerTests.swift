import Foundation
import LocalTransport
import ServiceValues
import ServiceWire
import SodiumPrimitives
import TestSupport
import Testing
import UnixSockets

@testable import ServiceBroker

/// A broker with real sockets, and apps that talk to it.
struct BrokerTests {
  private let a = "com.example.a"
  private let b = "com.example.B"
  private let greetings = "com.example.greetings"

  // MARK: Beginning

  @Test func anAppEnrolsAndKeepsItsId() async throws {
    let world = World()
    let broker = try await world.broker()
    let key = try KeyPair()
    let app = try await TestApp(world, a, key: key)
    #expect(app.enrolled.version == 1)
    // The handshake has proved the key of the state directory, which is beside the socket, too.
    #expect(try app.client.brokerKey == world.brokerKey())
    #expect(try BrokerKeyFile.read(besideSocket: world.socketPath) == world.brokerKey())
    // Another key is refused, and the first stays.
    await #expect(throws: ProtocolFault.keyNotPinned) { try await TestApp(world, a, key: KeyPair()) }
    try await app.register()
    // The same key takes its place.
    let again = try await TestApp(world, a, key: key)
    #expect(await app.end() == .replaced)
    try await again.register()
    await broker.stop()
    #expect(await again.end() == .shuttingDown)
    #expect(world.log.all.contains { $0.contains("fault=keyNotPinned") && $0.contains("pid=\(getpid())") })
  }

  @Test func anAppThatPinnedAnotherBrokerGoes() async throws {
    let world = World()
    let broker = try await world.broker()
    await #expect(throws: ProtocolFault.brokerNotTrusted) {
      try await TestApp(world, a, key: KeyPair(), broker: Data(KeyPair().publicKey))
    }
    _ = try await TestApp(world, a, key: KeyPair(), broker: world.brokerKey())
    // The key beside the socket is that of another broker: nobody is taken in, with a pin or without one.
    let path = BrokerKeyFile.path(besideSocket: world.socketPath)
    try BrokerKeyFile.contents(KeyPair().publicKey).write(to: URL(filePath: path))
    await #expect(throws: ProtocolFault.brokerNotTrusted) {
      try await TestApp(world, a, key: KeyPair(), broker: world.brokerKey())
    }
    await #expect(throws: ProtocolFault.connectionLost) { try await TestApp(world, a, key: KeyPair()) }
    // Without the file a pin suffices.
    unlink(path)
    _ = try await TestApp(world, b, key: KeyPair(), broker: world.brokerKey())
    await #expect(throws: BrokerKeyError.missing(path: path)) {
      try await TestApp(world, a, key: KeyPair())
    }
    await broker.stop()
  }

  @Test func onlyTheAdministratorsKeyAdministers() async throws {
    let world = World()
    let broker = try await world.broker()
    _ = try await TestApp(world, a, key: KeyPair())
    let (apps, _, fingerprint) = try await world.administrator().apps()
    #expect(
      apps.map(\.provider.appID) == [a] && apps[0].process == getpid()
        && fingerprint.count == KeyFingerprint.byteCount)
    await #expect(throws: ProtocolFault.keyNotPinned) {
      try await BrokerClient.attend(
        path: world.socketPath, name: "thief", broker: nil, administrator: KeyPair())
    }
    await #expect(throws: ProtocolFault.unexpectedMessage) { try await world.tool().apps() }
    await broker.stop()
  }

  // MARK: Discovery

  @Test func findsAndWatches() async throws {
    let world = World()
    let broker = try await world.broker()
    let tool = try await world.tool()
    var changes = tool.watch(.with { $0.serviceID = greetings }).makeAsyncIterator()
    guard case .list(let none, isLast: true)? = try await changes.next() else {
      throw TestFailure("no list")
    }
    #expect(none.isEmpty)
    let app = try await TestApp(world, a, key: KeyPair())
    try await app.register([(greetings, "1.0")])
    guard case .changed(let present, _)? = try await changes.next() else { throw TestFailure("no change") }
    #expect(present.map(\.appID) == [a] && present[0].state == .running)
    #expect(try await tool.find(.with { $0.serviceID = greetings }).map(\.appID) == [a])
    app.client.close()
    guard case .changed(let gone, _)? = try await changes.next() else { throw TestFailure("no change") }
    #expect(gone.first?.state == .notRunning)
    await broker.stop()
  }

  // MARK: Introduction

  @Test func introducesTwoAppsWithSocketsOfTheirOwn() async throws {
    let world = World()
    let broker = try await world.broker()
    let (one, two) = (
      try await TestApp(world, a, key: KeyPair()), try await TestApp(world, b, key: KeyPair())
    )
    try await two.register()
    let ticket = try await one.connect(to: b)
    let (dialled, accepted) = (try await one.introduction(), try await two.introduction())
    #expect(dialled.ticket == ticket && accepted.ticket == ticket && ticket.count == 32)
    #expect(
      dialled.appID == b && accepted.appID == a && dialled.role == .dialler && accepted.role == .acceptor)
    let (mine, other) = (try await one.handed(), try await two.handed())
    #expect(mine.ticket == ticket && other.ticket == ticket)
    // What goes in at one end of each comes out at the other.
    #expect(try carry(7, from: mine.control, to: other.control) == [7])
    #expect(try carry(8, from: other.bulk, to: mine.bulk) == [8])
    // The broker has kept no end of them.
    await broker.stop()
  }

  @Test func whoIsDialledTooOftenKeepsItsConnection() async throws {
    let world = World()
    let broker = try await world.broker()
    // Never reads its descriptor lane.
    let gate = DispatchSemaphore(value: 0)
    let (acceptor, _) = try await BrokerClient.begin(
      path: world.socketPath, key: KeyPair(), broker: nil,
      .with {
        $0.enrol.version = 1
        $0.enrol.appID = b
        $0.enrol.activationUser = "u"
        $0.enrol.state = .running
      },
      descriptors: { _, control, bulk in
        gate.wait()
        gate.signal()
        close(control)
        close(bulk)
      })
    let one = try await TestApp(world, a, key: KeyPair())
    var dialled = 0
    do {
      while dialled < 100_000 {
        _ = try await one.connect(to: b)
        dialled += 1
      }
      Issue.record("there is room without end")
    } catch ServicesError.limitExceeded {}
    // Both are there, and go on.
    for client in [acceptor, one.client] { #expect(try await client.find(WireFind()).isEmpty) }
    gate.signal()
    while (try? await one.connect(to: b)) == nil { await Task.yield() }
    await broker.stop()
  }

  @Test func aLockedAppIsWaitedFor() async throws {
    let world = World()
    let broker = try await world.broker()
    let one = try await TestApp(world, a, key: KeyPair())
    let two = try await TestApp(world, b, key: KeyPair(), state: .locked)
    async let ticket = one.connect(to: b)
    let reason: WireWaiting.Reason = try await one.next {
      if case .waiting(let waiting)? = $0.kind { waiting.reason } else { nil }
    }
    #expect(reason == .unlock)
    try await two.become(.running)
    let introduction = try await two.introduction()
    #expect(try await ticket == introduction.ticket)
    await broker.stop()
  }

  @Test func policyIsToldAndHolds() async throws {
    let world = World()
    var broker = try await world.broker()
    let (keyA, keyB) = (try KeyPair(), try KeyPair())
    let (one, two) = (try await TestApp(world, a, key: keyA), try await TestApp(world, b, key: keyB))
    try await two.register([("com.example.service", "1.0")])
    #expect(try await one.client.find(WireFind()).map(\.appID) == [b])
    let rule = WireRule.with {
      $0.consumer = a
      $0.provider = b
      $0.effect = .deny
    }
    _ = try await world.administrator().ask(.administer(.with { $0.addRule = rule }))
    let policy: WirePolicy = try await one.next {
      if case .policy(let policy)? = $0.kind { policy } else { nil }
    }
    #expect(policy.access == [rule])
    await #expect(throws: ServicesError(.notAllowed)) { try await one.connect(to: b) }
    #expect(try await one.client.find(WireFind()).isEmpty)
    // It outlives the broker.
    await broker.stop()
    broker = try await world.broker()
    let again = try await TestApp(world, a, key: keyA)
    #expect(again.enrolled.policy.access == [rule])
    await #expect(throws: ServicesError(.notAllowed)) { try await again.connect(to: b) }
    await broker.stop()
  }

  @Test func forgettingIsToldAndFreesTheId() async throws {
    let world = World()
    let broker = try await world.broker()
    let (one, two) = (
      try await TestApp(world, a, key: KeyPair()), try await TestApp(world, b, key: KeyPair())
    )
    _ = try await world.administrator().ask(.administer(.with { $0.forget = b }))
    let forgotten: String = try await one.next {
      if case .forgotten(let forgotten)? = $0.kind { forgotten.appID } else { nil }
    }
    #expect(forgotten == b)
    #expect(await two.end() == .forgotten)
    _ = try await TestApp(world, b, key: KeyPair())
    await broker.stop()
  }

  // MARK: Programs

  /// And the broker's place, which may be given to it in other ways. Nothing that somebody keeps secret there.
  @Test func givesAProgramWhatAnAppNeedsOfTheEnvironment() async throws {
    let own = [
      "HOME": "/h", "PATH": "/b", "LC_ALL": "C", "XDG_RUNTIME_DIR": "/r", "OPENDYNAMICS_BROKER": "/other",
      "OPENDYNAMICS_BROKER_STATE": "/state", "PASSPHRASE": "secret", "LD_PRELOAD": "/x.so", "LISTEN_FDS": "2",
    ]
    #expect(
      ChildProgram.appEnvironment(own, broker: "/run/broker") == [
        "HOME": "/h", "PATH": "/b", "LC_ALL": "C", "XDG_RUNTIME_DIR": "/r",
        "OPENDYNAMICS_BROKER": "/run/broker",
      ])
    let world = World()
    let broker = try await world.broker()
    let pipe = world.path + "/pipe"
    #expect(mkfifo(pipe, 0o600) == 0)
    setenv("ODK_TEST_SECRET", "secret", 1)
    defer { unsetenv("ODK_TEST_SECRET") }
    try await world.install(
      b, ["/bin/sh", "-c", "echo $OPENDYNAMICS_BROKER ${ODK_TEST_SECRET:-none} > \(pipe)"])
    let one = try await TestApp(world, a, key: KeyPair())
    async let refused = one.connect(to: b)
    #expect(try await contents(ofPipe: pipe) == "\(world.socketPath) none\n")
    await broker.stop()
    _ = try? await refused
  }

  @Test func startsAProgramInASessionOfItsOwn() async throws {
    let world = World()
    let broker = try await world.broker()
    let key = try KeyPair()
    // It says who it is by a pipe, which a test can wait for.
    let pipe = world.path + "/pipe"
    #expect(mkfifo(pipe, 0o600) == 0)
    try await world.install(
      b, ["/bin/sh", "-c", "echo $$ $(ps -o sid= -p $$) $(ls /proc/self/fd | wc -l) > \(pipe)"])
    let one = try await TestApp(world, a, key: KeyPair())
    async let ticket = one.connect(to: b)
    let words = try await contents(ofPipe: pipe).split(separator: " ").map(String.init)
    #expect(words.count == 3 && words[0] == words[1])
    let started = try await TestApp(world, b, key: key)
    let introduction = try await started.introduction()
    #expect(try await ticket == introduction.ticket)
    await broker.stop()
  }

  /// With what it has started itself.
  /// Also what it has left behind, and when it does not heed the first signal.
  @Test(arguments: ["trap '' TERM;", ""], ["while :; do wait; done", "exit 0"])
  func aProgramWhoseAppDoesNotComeIsEnded(begin: String, end: String) async throws {
    let world = World()
    let broker = try await world.broker { $0.startTime = 2000 }
    let pipe = world.path + "/pipe"
    #expect(mkfifo(pipe, 0o600) == 0)
    try await world.install(b, ["/bin/sh", "-c", "\(begin) sleep 3600 & echo $$ $! > \(pipe); \(end)"])
    let one = try await TestApp(world, a, key: KeyPair())
    async let refusal = #expect(throws: ServicesError(.applicationNotFound)) { try await one.connect(to: b) }
    let processes = try await contents(ofPipe: pipe).split(whereSeparator: \.isWhitespace).compactMap {
      pid_t($0)
    }
    #expect(processes.count == 2)
    _ = await refusal
    // Until somebody has waited for it, one that has ended can still be signalled.
    func runs(_ process: pid_t) -> Bool {
      let state = (try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8))?
        .split(separator: ")").last?.split(separator: " ").first
      return state != nil && state != "Z"
    }
    while processes.contains(where: runs) { try await Task.sleep(for: .milliseconds(20)) }
    await broker.stop()
  }

  @Test func aProgramThatFailsIsNotWaitedFor() async throws {
    let world = World()
    let broker = try await world.broker()
    let gone = world.path + "/gone"
    try Data().write(to: URL(filePath: gone))
    #expect(chmod(gone, 0o700) == 0)
    for (appID, start) in [(b, "/bin/false"), ("com.example.c", gone)] {
      let two = try await TestApp(world, appID, key: KeyPair())
      try await two.register()
      try await world.install(appID, [start])
      two.client.close()
      _ = await two.end()
    }
    #expect(unlink(gone) == 0)
    let one = try await TestApp(world, a, key: KeyPair())
    for appID in [b, "com.example.c"] {
      await #expect(throws: ServicesError(.applicationNotFound)) { try await one.connect(to: appID) }
    }
    await broker.stop()
  }

  @Test func theCompositorDecides() async throws {
    let world = World()
    let broker = try await world.broker(
      .program("/bin/sh", arguments: ["-c", #"test "$0" = com.example.a"#]))
    let one = try await TestApp(world, a, key: KeyPair())
    _ = try await TestApp(world, b, key: KeyPair())
    let administrator = try await world.administrator()
    func front(_ appID: String) async throws {
      _ = try await administrator.ask(.administer(.with { $0.front = appID }))
    }
    try await front(a)
    let came: Bool = try await one.next {
      if case .frontChanged(let change)? = $0.kind { change.isInFront } else { nil }
    }
    #expect(came)
    await #expect(throws: ServicesError(.frontRefused)) { try await front(b) }
    await broker.stop()
    let embedded = try await world.broker(.function { $0 == nil })
    await #expect(throws: ServicesError(.applicationNotFound)) {
      _ = try await world.administrator().ask(.administer(.with { $0.front = a }))
    }
    _ = try await world.administrator().ask(.administer(.with { $0.front = "" }))
    await embedded.stop()
  }
}

/// What comes out at one end when a byte goes in at the other.
private func carry(
  _ byte: UInt8, from: borrowing UnixConnection, to: borrowing UnixConnection
) throws -> [UInt8] {
  var read: [UInt8] = [0]
  try Data([byte]).withUnsafeBytes { try from.write($0, deadline: .now + .seconds(60)) }
  _ = try read.withUnsafeMutableBytes { try to.read(into: $0, deadline: .now + .seconds(60)) }
  return read
}

/// What somebody writes to a pipe until its end.
private func contents(ofPipe path: String) async throws -> String {
  try await withCheckedThrowingContinuation { continuation in
    Thread.detachNewThread {
      var bytes = [UInt8](repeating: 0, count: 1000)
      let number = open(path, O_RDONLY | O_CLOEXEC)
      let count = read(number, &bytes, bytes.count)
      close(number)
      if count > 0 {
        continuation.resume(returning: String(decoding: bytes[..<count], as: UTF8.self))
      } else {
        continuation.resume(throwing: TestFailure("nothing came"))
      }
    }
  }
}
