import Foundation
import LocalTransport
import ServiceBroker
import ServiceValues
import ServiceWire
import SodiumPrimitives
import Testing
import UnixSockets

/// `broker` in a process of its own, and the commands that ask it.
struct BrokerCommandTests {
  private let a = "com.example.a"
  private let b = "com.example.b"

  @Test func listsTheServersBehindAService() async throws {
    let broker = try BrokerProcess()
    let app = try await broker.app(a)
    func server(_ host: String, _ port: UInt32, _ priority: UInt32) -> WireAppServer {
      .with {
        $0.host = host
        $0.port = port
        $0.priority = priority
      }
    }
    func service(_ id: String, _ type: WireServiceType) -> WireService {
      .with {
        $0.id = id
        $0.version = "1"
        $0.type = type
      }
    }
    _ = try await app.ask(
      .register(
        .with {
          $0.services = [service("com.example.time", .server), service("com.example.zone", .application)]
          $0.servers = [server("::1", 80, 2), server("one.example", 443, 1)]
        }))
    #expect(
      try broker.run("services", "list").text
        == "com.example.time 1 com.example.a (running) at one.example:443, [::1]:80\n"
        + "com.example.zone 1 com.example.a (running)\n")
    let json = try broker.run("services", "list", "--json", "--service", "com.example.time").text
    let servers = #"{"host":"one.example","port":443,"priority":1},{"host":"::1","port":80,"priority":2}"#
    #expect(json.contains(#""servers":[\#(servers)]"#), "\(json)")
    #expect(
      try !broker.run("services", "list", "--json", "--service", "com.example.zone").text.contains("servers"))
    let show = ["services", "show", "com.example.time", "--servers"]
    #expect(
      try broker.run(show).text == "1 one.example:443 of com.example.a\n2 [::1]:80 of com.example.a\n")
    let first = #"[{"appID":"com.example.a","host":"one.example","port":443,"priority":1},"#
    #expect(try broker.run(show + ["--json"]).text.hasPrefix(first))
    #expect(try broker.run(show + ["--version", "2"], expecting: 5).errors.contains("service of servers"))
    let zone = ["services", "show", "com.example.zone", "--servers"]
    #expect(try broker.run(zone, expecting: 5).errors.contains("service of servers"))
  }

  @Test func listsAppsAndServices() async throws {
    let broker = try BrokerProcess()
    let app = try await broker.app(a)
    #expect(try broker.run("services", "list").text == "com.example.greetings 1.0 com.example.a (running)\n")
    #expect(try broker.run("services", "list", "--service", "com.example.other").text == "")
    let json = try broker.run("services", "list", "--json").text
    #expect(json.contains(#""appID":"com.example.a""#) && json.contains(#""version":"1.0""#))
    let list = try broker.run("apps", "list").text
    #expect(
      list.hasPrefix("com.example.a, running, process \(getpid()), not approved\n  user u\n  key  ")
        && list.contains("\nbroker key "))
    #expect(try broker.run("apps", "list", "--json").text.contains(#""apps":[{"appID":"com.example.a""#))
    #expect(try broker.run("front").text == "")
    _ = try broker.run("front", a)
    #expect(try broker.run("front").text == a + "\n")
    _ = try broker.run("front", "--none")
    #expect(try broker.run("front").text == "")
    #expect(try broker.run("front", b, expecting: 5).errors.hasPrefix("dynamics: there is no app"))
    _ = try broker.run("apps", "forget", a)
    await #expect(throws: ProtocolFault.forgotten) { try await app.find(WireFind()) }
    _ = try broker.run("apps", "forget", a, expecting: 5)
    #expect(try broker.run("services", "list").text == "")
  }

  @Test func installsApps() throws {
    let broker = try BrokerProcess()
    _ = try broker.run("apps", "install", a, "--", "/bin/echo", "-n", "a b")
    #expect(
      try broker.run("apps", "list").text.hasPrefix(
        "\(a), not running, not registered\n  run  /bin/echo -n a b\n"))
    #expect(try broker.run("apps", "list", "--json").text.contains(#""program":["/bin/echo","-n","a b"]"#))
    _ = try broker.run("apps", "install", a, "--", "echo", expecting: 64)
    _ = try broker.run("apps", "install", a, expecting: 64)
    _ = try broker.run("apps", "install", "x y", "--", "/bin/echo", expecting: 64)
    _ = try broker.run("apps", "uninstall", a)
    _ = try broker.run("apps", "uninstall", a, expecting: 5)
    #expect(try broker.run("apps", "list").text.hasPrefix("broker key "))
  }

  @Test func listsAProgramThatIsDamaged() throws {
    let broker = try BrokerProcess()
    broker.process?.signal(SIGTERM)
    _ = try broker.process?.finish()
    let file = URL(filePath: broker.folder.path("state/programs/" + a))
    try Data([1, 2, 3]).write(to: file)
    try broker.start()
    #expect(
      try broker.run("apps", "list").text.hasPrefix(
        "\(a), not running, not registered, its program is damaged: install or uninstall it"))
    #expect(try broker.run("apps", "list", "--json").text.contains(#""isProgramDamaged":true"#))
    _ = try broker.run("apps", "install", a, "--", "/bin/echo")
    #expect(try !broker.run("apps", "list").text.contains("damaged"))
    #expect(try broker.run("apps", "list", "--json").text.contains(#""isProgramDamaged":false"#))
  }

  /// The units that come with the package, and what they start: the socket is there before the broker, and after it.
  @Test func isStartedByAServiceManager() throws {
    let folder = try TemporaryFolder()
    let units = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appending(path: "Support/systemd/user")
    let service = try String(contentsOf: units.appending(path: "dynamics-broker.service"), encoding: .utf8)
    let socket = try String(contentsOf: units.appending(path: "dynamics-broker.socket"), encoding: .utf8)
    let start = try #require(service.split(separator: "\n").first { $0.hasPrefix("ExecStart=") })
    #expect(start == "ExecStart=/usr/bin/dynamics broker")
    try service.replacing("/usr/bin/dynamics", with: DynamicsProcess.executable).write(
      toFile: folder.path("dynamics-broker.service"), atomically: true, encoding: .utf8)
    try socket.write(toFile: folder.path("dynamics-broker.socket"), atomically: true, encoding: .utf8)
    func shell(_ script: String) throws -> DynamicsProcess {
      try DynamicsProcess(
        ["-c", script].map { Array($0.utf8) }, in: folder,
        environment: [
          "XDG_RUNTIME_DIR": folder.root, "OPENDYNAMICS_BROKER_STATE": folder.path("state"),
          "OPENDYNAMICS_BROKER": folder.path("opendynamics/broker"),
        ], executable: "/bin/bash")
    }
    #if os(Linux)
      let check = "systemd-analyze verify --user ./dynamics-broker.service ./dynamics-broker.socket"
      let verified = try shell("cd \(folder.root) && \(check)").finish()
      #expect(verified.status == 0 && verified.errors.isEmpty, "\(verified.errors)")
    #endif
    #expect(socket.contains("ListenStream=%t/opendynamics/broker\n"))
    try FileManager.default.createDirectory(
      atPath: folder.path("opendynamics"), withIntermediateDirectories: true,
      attributes: [.posixPermissions: 0o700])
    // What the manager does: it listens, and starts the command with the socket as descriptor 3, twice.
    let manager = """
      import os, socket, sys
      listening = socket.socket(socket.AF_UNIX)
      listening.bind(sys.argv[1])
      listening.listen()
      for _ in range(2):
          if (child := os.fork()) == 0:
              os.dup2(listening.fileno(), 3)
              os.set_inheritable(3, True)
              os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
              os.execv(sys.argv[2], [sys.argv[2], "broker"])
          print(child, flush=True)
          os.waitpid(child, 0)
      """
    try manager.write(toFile: folder.path("manager.py"), atomically: true, encoding: .utf8)
    let path = folder.path("opendynamics/broker")
    let running = try shell(
      "exec /usr/bin/python3 \(folder.path("manager.py")) \(path) \(DynamicsProcess.executable)")
    defer { running.signal(SIGKILL) }
    for life in 1...2 {
      try running.wait("the broker, \(life)") {
        let lines = String(decoding: try readBytes(running.outputPath), as: UTF8.self).split(separator: "\n")
        return lines.count { $0 == "listening at \(path)" } == life
      }
      let list = try shell("exec \(DynamicsProcess.executable) apps list").finish()
      #expect(list.status == 0 && list.text.hasPrefix("broker key "), "\(list.errors)")
      let lines = String(decoding: try readBytes(running.outputPath), as: UTF8.self).split(separator: "\n")
      let child = try #require(lines.compactMap { pid_t($0) }.last)
      kill(child, SIGTERM)
      if life == 2 { _ = try running.finish() }
    }
    #expect(FileManager.default.fileExists(atPath: path))
  }

  /// More lines than the pipe holds, and nobody reads them.
  @Test func goesOnWhenNobodyReadsItsLog() throws {
    let broker = try BrokerProcess("2> >(exec sleep 60)")
    let garbage = [UInt8](repeating: 0xff, count: 200)
    for _ in 0..<1500 {
      let connection = try UnixConnection.dial(path: broker.socket, deadline: .now + .seconds(30))
      try garbage.withUnsafeBytes { _ = try connection.writeAvailable($0) }
    }
    #expect(try broker.run("apps", "list").text.hasPrefix("broker key "))
  }

  @Test func setsPolicy() throws {
    let broker = try BrokerProcess()
    _ = try broker.run("apps", "policy", "add", "deny", "--consumer", a, "--provider", b)
    _ = try broker.run("apps", "policy", "add", "disable", "--service", "com.example.s", "--version", "1")
    let rules = try broker.run("apps", "policy", "list").text
    #expect(rules == "deny --consumer \(a) --provider \(b)\ndisable --service com.example.s --version 1\n")
    _ = try broker.run("apps", "policy", "add", "deny", "--everybody")
    _ = try broker.run("apps", "policy", "add", "allow", "--provider", b)
    #expect(
      try broker.run("apps", "policy", "list").text == rules + "deny --everybody\nallow --provider \(b)\n")
    _ = try broker.run("apps", "policy", "remove", "deny", "--everybody")
    _ = try broker.run("apps", "policy", "remove", "allow", "--provider", b)
    _ = try broker.run("apps", "policy", "add", "allow", "--everybody", "--provider", b, expecting: 64)
    _ = try broker.run("apps", "policy", "add", "disable", expecting: 64)
    _ = try broker.run("apps", "policy", "add", "deny", expecting: 64)
    _ = try broker.run("apps", "policy", "add", "deny", "--consumer", "", expecting: 64)
    _ = try broker.run("front", "", expecting: 64)
    _ = try broker.run("apps", "forget", "x y", expecting: 64)
    _ = try broker.run("services", "list", "--service", "no id", expecting: 64)
    #expect(try broker.run("services", "list", "--service", "transfer-file").text == "")
    _ = try broker.run("apps", "policy", "add", "nonsense", expecting: 64)
    _ = try broker.run("apps", "policy", "remove", "deny", "--consumer", a, "--provider", b)
    _ = try broker.run("apps", "policy", "remove", "deny", expecting: 1)
    #expect(
      try broker.run("apps", "policy", "list", "--json").text
        == #"[{"effect":"disable","service":"com.example.s","version":"1"}]"# + "\n")
  }

  @Test func watchesServices() async throws {
    let broker = try BrokerProcess()
    let watch = try DynamicsProcess(
      ["services", "watch"].map { Array($0.utf8) }, in: broker.folder, environment: broker.environment)
    defer { _ = try? watch.finish() }
    defer { watch.signal(SIGKILL) }
    func lines() throws -> String { String(decoding: try readBytes(watch.outputPath), as: UTF8.self) }
    let key = try KeyPair()
    let app = try await broker.app(a, key: key)
    try watch.wait("the app") {
      try lines().contains("+ com.example.greetings 1.0 com.example.a (running)\n")
    }
    app.close()
    try watch.wait("its end") {
      try lines().contains("+ com.example.greetings 1.0 com.example.a (not running)\n")
    }
    let again = try await broker.app(a, key: key)
    _ = try await again.ask(.unregister(WireUnregister()))
    try watch.wait("its registration's end") { try lines().hasSuffix("- com.example.a\n") }
  }

  @Test func endsInGoodOrderAndTakesOverAfterAKill() async throws {
    let broker = try BrokerProcess()
    let key = try KeyPair()
    let app = try await broker.app(a, key: key)
    // Killed: the socket stays, and the next one takes it over.
    broker.process?.signal(SIGKILL)
    #expect(try broker.process?.finish().status == 137)
    #expect(exists(broker.socket))
    await #expect(throws: ProtocolFault.connectionLost) { try await app.find(WireFind()) }
    #expect(try broker.run("services", "list", expecting: 5).errors.contains("dynamics broker"))
    #expect(
      try broker.run("services", "list", "--json", expecting: 5).errors.contains(
        #""code":"brokerUnavailable""#))
    try broker.start()
    #expect(
      try broker.run("services", "list").text == "com.example.greetings 1.0 com.example.a (not running)\n")
    let again = try await broker.app(a, key: key)
    // A second one finds the place taken.
    _ = try broker.run("broker", expecting: 4)
    broker.process?.signal(SIGTERM)
    #expect(try broker.process?.finish().status == 0)
    await #expect(throws: ProtocolFault.shuttingDown) { try await again.find(WireFind()) }
    #expect(!exists(broker.socket))
    broker.process = nil
  }

  @Test func goesOnWhenItRanOutOfDescriptors() async throws {
    let broker = try BrokerProcess(descriptorCountMax: 40)
    let (dialler, acceptor) = (try await broker.app(a), try await broker.app(b))
    let connect = WireQuestion.OneOf_Kind.connect(.with { $0.appID = b })
    var held: [Int32] = []
    let process = try #require(broker.process)
    try process.wait("running out") {
      // A connection is refused when the backlog is full.
      let connection = try? UnixConnection.dial(path: broker.socket, deadline: .now + .milliseconds(100))
      if let descriptor = connection?.takeDescriptor().take() { held.append(descriptor) }
      return try String(decoding: readBytes(process.errorPath), as: UTF8.self)
        .contains("cannot accept connections")
    }
    let wanted = ServicesError(.limitExceeded, detail: "descriptors of the broker")
    // It stops to accept while there are enough for one introduction, or a few less.
    do { _ = try await dialler.ask(connect) } catch { #expect(error as? ServicesError == wanted) }
    for descriptor in held { close(descriptor) }
    let app = try await broker.app("com.example.c")
    #expect(try await app.find(WireFind()).map(\.appID) == [a, b])
    // Descriptors come back as the broker sees that their connections have ended.
    var ticket: Data?
    while ticket == nil {
      do {
        ticket = try await dialler.ask(connect).introduced.ticket
      } catch ServicesError.limitExceeded {
        try await Task.sleep(for: .milliseconds(50))
      }
    }
    #expect(ticket?.count == 32)
    acceptor.close()
  }

  @Test func onlyTheRightStateDirectoryAdministers() throws {
    let (one, two) = (try BrokerProcess(), try BrokerProcess())
    let outcome = try one.run("apps", "list", "--state", two.folder.path("state"), expecting: 1)
    #expect(outcome.errors.contains("not the one that this app enrolled with"))
    _ = try one.run("apps", "list", "--state", one.folder.path("none"), expecting: 5)
    // Without the broker's key the administrator's decides.
    let copy = try one.folder.makeFolder("copy")
    try FileManager.default.copyItem(
      atPath: two.folder.path("state") + "/administrator.key", toPath: copy + "/administrator.key")
    _ = try one.run("apps", "list", "--state", copy, expecting: 3)
  }

  @Test func theDoctorFindsWhatIsWrong() throws {
    let broker = try BrokerProcess()
    let healthy = try broker.run("doctor").text
    #expect(!healthy.contains("!") && healthy.contains("broker key") && healthy.contains("libcrypto"))
    let key = try #require(try broker.run("apps", "list").text.split(separator: "broker key ").last)
    #expect(key.count == 40 && healthy.contains(key))
    #expect(chmod(broker.folder.path("run"), 0o755) == 0)
    let open = try broker.run("doctor", expecting: 1).text
    #expect(open.contains("! socket directory") && open.contains("chmod go-rwx"))
    #expect(chmod(broker.folder.path("run"), 0o700) == 0)
    #expect(truncate(broker.folder.path("state/administrator.key"), 5) == 0)
    #expect(try broker.run("doctor", expecting: 1).text.contains("! administrator"))
    broker.process?.signal(SIGTERM)
    _ = try broker.process?.finish()
    broker.process = nil
    #expect(try broker.run("doctor", "--json", expecting: 1).text.contains(#""isRight":false"#))
  }
}

extension BrokerCommandTests {
  @Test func leavesADirectoryOfSomethingElseAlone() throws {
    let broker = try BrokerProcess()
    let other = try broker.folder.makeFolder("other")
    #expect(chmod(other, 0o700) == 0)
    #expect(FileManager.default.createFile(atPath: other + "/superblock", contents: Data()))
    let outcome = try broker.run("broker", "--state", other, "--socket", other + "/s", expecting: 6)
    #expect(outcome.errors.contains("not a broker's"))
    #expect(try FileManager.default.contentsOfDirectory(atPath: other) == ["superblock"])
  }
}
