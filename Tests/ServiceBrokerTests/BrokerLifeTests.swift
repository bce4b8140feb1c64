import Foundation
import LocalTransport
import Locks
import Logging
import ServiceValues
import ServiceWire
import SodiumPrimitives
import Testing
import UnixSockets

@testable import ServiceBroker

/// A broker's files and socket, and peers that keep to nothing.
struct BrokerLifeTests {
  private let a = "com.example.a"

  @Test func whatItKnowsOutlivesIt() async throws {
    let world = World()
    var broker = try await world.broker()
    for appID in [a, "com.example.Capital", "com.example.small"] {
      let app = try await TestApp(world, appID, key: KeyPair())
      try await app.register([("com.example.s", "1")])
    }
    let before = try await world.administrator().apps()
    await broker.stop()
    #expect(!FileManager.default.fileExists(atPath: world.socketPath))
    broker = try await world.broker()
    let after = try await world.administrator().apps()
    #expect(before.apps.count == 3 && after.brokerFingerprint == before.brokerFingerprint)
    #expect(after.apps.map(\.provider.services) == before.apps.map(\.provider.services))
    #expect(after.apps.map(\.identity.keyFingerprint) == before.apps.map(\.identity.keyFingerprint))
    #expect(after.apps.allSatisfy { $0.provider.state == .notRunning })
    await #expect(throws: ProtocolFault.keyNotPinned) { try await TestApp(world, a, key: KeyPair()) }
    _ = try await world.administrator().ask(.administer(.with { $0.forget = a }))
    #expect(!FileManager.default.fileExists(atPath: world.statePath + "/apps/" + a))
    await broker.stop()
  }

  @Test func runsUntilItsTaskIsCancelled() async throws {
    let world = World()
    let first = try await world.broker()
    let broker = ServiceBroker(world.configuration(), logger: world.log.logger)
    await #expect(throws: ServiceBrokerError.self) { try await broker.run() }
    await first.stop()
    let run = Task { try await broker.run() }
    var app: TestApp?
    while app == nil {
      await Task.yield()
      app = try? await TestApp(world, a, key: KeyPair())
    }
    run.cancel()
    try await run.value
    #expect(await app?.end() == .shuttingDown)
    #expect(!FileManager.default.fileExists(atPath: world.socketPath))
  }

  @Test func itsFilesAreForItsUserOnly() async throws {
    let world = World()
    let broker = try await world.broker()
    _ = try await TestApp(world, a, key: KeyPair())
    for name in ["", "/broker.key", "/administrator.key", "/apps", "/apps/\(a)"] {
      let attributes = try FileManager.default.attributesOfItem(atPath: world.statePath + name)
      #expect((attributes[.posixPermissions] as? Int ?? 0) & 0o077 == 0, "\(name)")
    }
    await broker.stop()
    #expect(chmod(world.statePath, 0o755) == 0)
    await #expect(throws: SocketError.unsafeDirectory(path: world.statePath, fault: .openToOthers)) {
      try await world.broker()
    }
  }

  /// What is left of a file after a power cut, and what somebody else wrote into it.
  private static let damages: [(String, @Sendable (Data) -> Data)] = [
    ("empty", { _ in Data() }), ("cut", { $0.dropLast() }), ("zeros", { Data(count: $0.count) }),
    ("another", { _ in Data([1, 2, 3]) }), ("without its hash", { $0.dropFirst(32) }),
  ]

  private func damage(_ path: String, _ change: (Data) -> Data) throws -> Data {
    let bytes = try Data(contentsOf: URL(filePath: path))
    try change(bytes).write(to: URL(filePath: path))
    return bytes
  }

  @Test func aDamagedPinRefusesItsID() async throws {
    let world = World()
    let names = ["com.example.a", "com.example.Capital", "com.example.b"]
    var keys: [String: KeyPair] = [:]
    for appID in names { keys[appID] = try KeyPair() }
    var broker = try await world.broker()
    for appID in names { _ = try await TestApp(world, appID, key: #require(keys[appID])) }
    let key = try #require(keys["com.example.b"])
    await broker.stop()
    let files = try FileManager.default.contentsOfDirectory(atPath: world.statePath + "/apps")
      .filter { $0 != "com.example.b" }.map { world.statePath + "/apps/" + $0 }
    for (what, change) in Self.damages {
      let contents = try files.map { try damage($0, change) }
      broker = try await world.broker()
      for appID in names.dropLast() {
        for key in [try #require(keys[appID]), try KeyPair()] {
          await #expect(throws: ProtocolFault.keyNotPinned, "\(what)") {
            try await TestApp(world, appID, key: key)
          }
        }
      }
      _ = try await TestApp(world, "com.example.b", key: key)
      let apps = try await world.administrator().apps().apps
      #expect(apps.first { $0.provider.appID == a }?.isDamaged == true)
      await broker.stop()
      // It stays refused, and the file there.
      broker = try await world.broker()
      await #expect(throws: ProtocolFault.keyNotPinned) { try await TestApp(world, a, key: KeyPair()) }
      await broker.stop()
      for (file, contents) in zip(files, contents) { try contents.write(to: URL(filePath: file)) }
    }
    // Another app's record under a wrong name is none, either.
    try FileManager.default.copyItem(
      atPath: world.statePath + "/apps/com.example.b", toPath: world.statePath + "/apps/com.example.c")
    _ = try damage(world.statePath + "/apps/" + a) { _ in Data() }
    broker = try await world.broker()
    await #expect(throws: ProtocolFault.keyNotPinned) { try await TestApp(world, "com.example.c", key: key) }
    #expect(world.log.all.contains { $0.contains("its id refused") && $0.contains("apps/com.example.c") })
    // Until an administrator decides.
    _ = try await world.administrator().ask(.administer(.with { $0.forget = a }))
    _ = try await TestApp(world, a, key: KeyPair())
    await broker.stop()
  }

  @Test func aDamagedPolicyDeniesEverything() async throws {
    let world = World()
    let keys = [try KeyPair(), try KeyPair()]
    var broker = try await world.broker()
    let rule = WireRule.with {
      $0.consumer = "com.example.other"
      $0.effect = .deny
    }
    _ = try await world.administrator().ask(.administer(.with { $0.addRule = rule }))
    await broker.stop()
    let path = world.statePath + "/policy"
    for (what, change) in Self.damages {
      let bytes = try damage(path, change)
      broker = try await world.broker()
      let one = try await TestApp(world, a, key: keys[0])
      _ = try await TestApp(world, "com.example.b", key: keys[1])
      await #expect(throws: ServicesError(.notAllowed), "\(what)") {
        try await one.connect(to: "com.example.b")
      }
      do {
        _ = try await world.administrator().ask(.administer(.with { $0.listRules = .init() }))
        Issue.record("an error expected")
      } catch ServicesError.general {
      }
      #expect(world.log.all.last { $0.contains("the policy is damaged, and everything is denied") } != nil)
      await broker.stop()
      try bytes.write(to: URL(filePath: path))
    }
    broker = try await world.broker()
    #expect(
      try await world.administrator().ask(.administer(.with { $0.listRules = .init() })).rules.rules == [rule]
    )
    await broker.stop()
  }

  @Test func aDamagedProgramIsNotStarted() async throws {
    let world = World()
    var broker = try await world.broker()
    try await world.install(a, ["/bin/sleep", "60"])
    await broker.stop()
    _ = try damage(world.statePath + "/programs/" + a) { $0.dropLast() }
    broker = try await world.broker()
    let one = try await TestApp(world, "com.example.b", key: KeyPair())
    await #expect(throws: ServicesError(.applicationNotFound)) { try await one.connect(to: a) }
    #expect(try await world.app(a)?.isProgramDamaged == true)
    try await world.install(a, ["/bin/false"])
    await broker.stop()
    broker = try await world.broker()
    #expect(try await world.administrator().apps().apps.first?.program.path == "/bin/false")
    #expect(try await world.app(a)?.isProgramDamaged == false)
    await broker.stop()
  }

  @Test func aDamagedProgramStaysUntilItsAppIsForgotten() async throws {
    let world = World()
    var broker = try await world.broker()
    await broker.stop()
    let path = world.statePath + "/programs/" + a
    let bytes = Data([1, 2, 3])
    try bytes.write(to: URL(filePath: path))
    broker = try await world.broker()
    let tool = try await world.administrator()
    let approval = WireAdminister.with {
      $0.approve.appID = a
      $0.approve.keyFingerprint = Data(repeating: 7, count: KeyFingerprint.byteCount)
    }
    do {
      _ = try await tool.ask(.administer(approval))
      Issue.record("an error expected")
    } catch ServicesError.general {
    }
    #expect(try world.file("programs/" + a) == bytes)
    _ = try await tool.ask(.administer(.with { $0.forget = a }))
    #expect(try await world.app(a) == nil)
    #expect(access(path, F_OK) != 0)
    await broker.stop()
  }

  @Test func aPipeInThePlaceOfAFileIsDamage() async throws {
    let world = World()
    var broker = try await world.broker()
    await broker.stop()
    let path = world.statePath + "/programs/" + a
    #expect(mkfifo(path, 0o600) == 0)
    #expect(throws: ServiceBrokerError.stateDamaged(path: path)) {
      try StateFiles.read(path, byteCountMax: 1)
    }
    broker = try await world.broker()
    #expect(try await world.app(a)?.isProgramDamaged == true)
    _ = try await world.administrator().ask(.administer(.with { $0.uninstall = a }))
    #expect(try await world.app(a) == nil)
    #expect(access(path, F_OK) != 0)
    await broker.stop()
  }

  @Test func withADamagedKeyItDoesNotStart() async throws {
    let world = World()
    let broker = try await world.broker()
    _ = try await TestApp(world, a, key: KeyPair())
    await broker.stop()
    for name in ["broker.key", "administrator.key"] {
      let path = world.statePath + "/" + name
      let bytes = try damage(path) { _ in Data([1, 2, 3]) }
      await #expect(throws: ServiceBrokerError.self, "\(name)") { try await world.broker() }
      try bytes.write(to: URL(filePath: path))
    }
    unlink(world.statePath + "/broker.key")
    await #expect(throws: ServiceBrokerError.stateDamaged(path: world.statePath + "/broker.key")) {
      try await world.broker()
    }
  }

  /// A rule that could not be written is not acknowledged.
  @Test func acknowledgesNothingThatIsNotKept() async throws {
    let world = World()
    let broker = try await world.broker()
    let tool = try await world.administrator()
    // In the place of the file that is written first.
    try FileManager.default.createDirectory(
      atPath: world.statePath + "/new", withIntermediateDirectories: false)
    let add = WireAdminister.with {
      $0.addRule = .with {
        $0.consumer = "com.example.x"
        $0.effect = .deny
      }
    }
    let key = try KeyPair()
    // Also when it is asked for again, and is nothing new any more.
    for _ in 0..<2 {
      await #expect(throws: ServicesError(.general, detail: "the broker cannot write its state")) {
        try await tool.ask(.administer(add))
      }
      await #expect(throws: ProtocolFault.limitExceeded) { try await TestApp(world, a, key: key) }
    }
    try FileManager.default.removeItem(atPath: world.statePath + "/new")
    _ = try await tool.ask(.administer(add))
    _ = try await TestApp(world, a, key: key)
    await broker.stop()
  }

  @Test func aSecondBrokerFindsThePlaceTaken() async throws {
    let world = World()
    let broker = try await world.broker()
    await #expect(throws: ServiceBrokerError.stateInUse(path: world.statePath, process: getpid())) {
      try await world.broker()
    }
    var configuration = world.configuration()
    configuration.stateDirectory = world.path + "/other"
    await #expect(throws: SocketError.addressInUse(path: world.socketPath)) {
      try await ServiceBroker.start(configuration, logger: world.log.logger)
    }
    // The first one has lost nothing by it.
    _ = try await TestApp(world, a, key: KeyPair())
    await broker.stop()
  }

  @Test func aSocketThatNobodyAnswersIsTakenOver() async throws {
    let world = World()
    try FileManager.default.createDirectory(
      atPath: world.path + "/run", withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700])
    // A socket whose owner died.
    let number = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: world.socketPath.utf8) }
    let bound = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(number, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    #expect(bound == 0)
    close(number)
    #expect(FileManager.default.fileExists(atPath: world.socketPath))
    let broker = try await world.broker()
    _ = try await TestApp(world, a, key: KeyPair())
    await broker.stop()
    // What is no socket stays.
    try Data([1]).write(to: URL(filePath: world.socketPath))
    await #expect(throws: SocketError.notASocket(path: world.socketPath)) { try await world.broker() }
    #expect(FileManager.default.contents(atPath: world.socketPath) == Data([1]))
  }

  @Test func peersThatKeepToNothingEndAlone() async throws {
    let world = World()
    let broker = try await world.broker()
    let app = try await TestApp(world, a, key: KeyPair())
    for bytes in [Data(), Data([1]), Data(repeating: 0xff, count: 5000), Data("GET / HTTP/1.1\r\n\r\n".utf8)]
    {
      let dialled = try BrokerDial.dial(path: world.socketPath, pinned: nil)
      _ = try Descriptor(adopting: dialled.descriptorLane)
      let connection = try UnixConnection(adopting: Descriptor(adopting: dialled.socket))
      try? bytes.withUnsafeBytes { try connection.write($0, deadline: .now + .seconds(10)) }
      connection.shutdown(.writing)
      // It is closed, whatever is said before.
      var buffer = [UInt8](repeating: 0, count: 4096)
      while let count = try? buffer.withUnsafeMutableBytes({
        try connection.read(into: $0, deadline: .now + .seconds(60))
      }), count == buffer.count {}
    }
    try await app.register()
    await broker.stop()
  }

  @Test func thousandsOfConnectionsComeAndGo() async throws {
    let world = World()
    let broker = try await world.broker()
    let app = try await TestApp(world, a, key: KeyPair())
    for _ in 0..<2000 {
      let dialled = try BrokerDial.dial(path: world.socketPath, pinned: nil)
      _ = try Descriptor(adopting: dialled.descriptorLane)
      _ = try Descriptor(adopting: dialled.socket)
    }
    // Many at once: those that do not enrol go, the oldest first, and whoever has enrolled stays.
    var held: [BrokerDial.Dialled] = []
    for _ in 0..<200 { held.append(try BrokerDial.dial(path: world.socketPath, pinned: nil)) }
    try await app.register()
    let other = try await TestApp(world, "com.example.b", key: KeyPair())
    try await other.register()
    for dialled in held {
      close(dialled.socket)
      close(dialled.descriptorLane)
    }
    await broker.stop()
    #expect(await app.end() == .shuttingDown)
  }

  #if os(Linux)
    /// Whoever connects without end has no more than these in front of others.
    @Test func fewConnectionsWaitToBeAccepted() throws {
      let world = World()
      let acceptor = try BrokerAcceptor(path: world.socketPath, listening: nil, Logger(label: "test"))
      // Nobody accepts yet; Linux lets one more wait.
      var waiting: [Int32] = []
      defer { for socket in waiting { close(socket) } }
      #expect(throws: SocketError.timedOut(operation: "connect")) {
        while waiting.count < 100 {
          let connection = try UnixConnection.dial(path: world.socketPath, deadline: .now)
          waiting.append(connection.takeDescriptor().take())
        }
      }
      #expect(waiting.count == Int(BrokerAcceptor.backlog) + 1)
      #expect(acceptor.path == world.socketPath)
    }
  #endif

  @Test func appsEnrolWhileOthersConnectWithoutEnd() async throws {
    let world = World()
    let broker = try await world.broker()
    let (isOver, threads) = (Guarded(false), DispatchGroup())
    defer { isOver.withLock { $0 = true } }
    for _ in 0..<8 {
      threads.enter()
      Thread.detachNewThread { [path = world.socketPath] in
        while !isOver.withLock({ $0 }) {
          _ = try? UnixConnection.dial(path: path, deadline: nil).descriptorNumber
        }
        threads.leave()
      }
    }
    for i in 0..<5 {
      let app = try await TestApp(world, "com.example.app\(i)", key: KeyPair())
      try await app.register()
    }
    isOver.withLock { $0 = true }
    await withCheckedContinuation { done in threads.notify(queue: DispatchQueue.global()) { done.resume() } }
    await broker.stop()
  }

  @Test func placesAreThoseOfTheEnvironment() {
    let user = geteuid()
    #expect(BrokerPlaces.socketPath([:]) == "/tmp/opendynamics-\(user)/broker")
    #expect(BrokerPlaces.socketPath(["XDG_RUNTIME_DIR": "/run/user/1"]) == "/run/user/1/opendynamics/broker")
    #expect(BrokerPlaces.socketPath(["XDG_RUNTIME_DIR": "/r", "OPENDYNAMICS_BROKER": "/b"]) == "/b")
    #expect(BrokerPlaces.socketPath(["XDG_RUNTIME_DIR": ""]) == "/tmp/opendynamics-\(user)/broker")
    #expect(BrokerPlaces.stateDirectory(["HOME": "/h"]) == "/h/.local/state/opendynamics/broker")
    #expect(
      BrokerPlaces.stateDirectory(["HOME": "/h", "XDG_STATE_HOME": "/s"]) == "/s/opendynamics/broker")
    #expect(BrokerPlaces.stateDirectory(["OPENDYNAMICS_BROKER_STATE": "/x"]) == "/x")
  }
}
