import AppKinetics
import Foundation
import SecureFiles
import ServiceValues
import Testing

/// `app run` and `services call`, each in a process of its own, with a broker in a third.
struct ServiceCommandTests {
  private let notes = "com.example.notes"
  private let mail = "com.example.mail"

  /// A broker, and the containers of two apps.
  final class World {
    let broker: BrokerProcess
    let notes: String
    let mail: String
    var running: DynamicsProcess?

    init(_ options: String = "") throws {
      broker = try BrokerProcess(options)
      notes = try broker.folder.makeContainer("notes")
      mail = try broker.folder.makeContainer("mail")
    }

    deinit {
      running?.signal(SIGKILL)
      _ = try? running?.finish()
    }

    /// Returns when the app runs.
    @discardableResult
    func runNotes(_ options: String..., until line: String = "ready") throws -> DynamicsProcess {
      let arguments = ["app", "run", notes, "--id", "com.example.notes"] + options + broker.folder.key
      let app = try DynamicsProcess(
        arguments.map { Array($0.utf8) }, in: broker.folder, environment: broker.environment)
      running = app
      try app.wait(line) { try text(app).contains(line) }
      return app
    }

    /// Ends the app, and gives it another container in the place of the one that it had.
    func replaceNotes() throws {
      running?.signal(SIGTERM)
      _ = try running?.finish()
      running = nil
      try FileManager.default.removeItem(atPath: notes)
      _ = try broker.folder.run("container", "create", notes)
    }

    func call(_ arguments: String..., expecting status: Int32 = 0) throws -> DynamicsProcess.Outcome {
      let all = ["services", "call", mail] + arguments + ["--id", "com.example.mail"] + broker.folder.key
      let outcome = try DynamicsProcess(
        all.map { Array($0.utf8) }, in: broker.folder, environment: broker.environment
      ).finish()
      #expect(outcome.status == status, "\(arguments): \(outcome.errors)")
      return outcome
    }

    func text(_ process: DynamicsProcess) throws -> String {
      String(decoding: try readBytes(process.outputPath), as: UTF8.self)
    }
  }

  @Test func drawsABarOfWhatArrives() throws {
    let world = try World()
    let app = try world.runNotes("--progress")
    try Data(repeating: 1, count: 3 << 20).write(to: URL(fileURLWithPath: world.broker.folder.path("large")))
    _ = try world.broker.folder.run("put", world.mail, world.broker.folder.path("large"), "/large")
    let arguments =
      ["send", world.mail, "/large", "--from", "com.example.mail", "--to", "com.example.notes"]
      + world.broker.folder.key
    let outcome = try DynamicsProcess(
      arguments.map { Array($0.utf8) }, in: world.broker.folder, environment: world.broker.environment
    ).finish()
    #expect(outcome.status == 0, "\(outcome.errors)")
    try app.wait("saved") { try world.text(app).contains("saved com.example.mail /Documents/large") }
    app.signal(SIGTERM)
    let ended = try app.finish()
    #expect(ended.status == 0)
    #expect(ended.errors.contains("receive  "))
    #expect(try world.text(app).contains("receiving com.example.mail"))
    #expect(try !world.text(app).contains("receive  "))
  }

  /// A reply, and an error's text, that would tell the terminal what to do.
  @Test func escapesWhatAnotherAppReplies() async throws {
    let world = try World()
    let url = URL(fileURLWithPath: world.broker.folder.path("evil"))
    let key = try SecretBytes(utf8: String(repeating: "k", count: 32))
    let container = try await SecureContainer.create(at: url, rawKey: key)
    var options = AppServices.Options()
    options.broker = world.broker.socket
    let evil = try await AppServices(
      Application(id: ApplicationID("com.example.evil"), name: "Evil"), container: container, options: options
    )
    let text = "a\u{1b}[31m\u{9b}2J\u{202e}\u{7f}b"
    let definition = try ServiceDefinition(
      jsonText: #"""
        {"service-id": "com.example.evil", "version": "1", "methods": {
          "text": {"result-value": {"type": "any"}}, "error": {"errors": [{"code": 1}]}}}
        """#)
    try evil.offer(definition) { request in
      guard request.method == "text" else { throw ServiceReplyError(code: 1, text: text) }
      return .reply(.object([text: .string(text)]))
    }
    try await evil.start()
    let words = ["--service", "com.example.evil", "--version", "1", "--to", "com.example.evil"]
    for (method, status) in [("text", Int32(0)), ("error", 1)] {
      let all = ["services", "call", world.mail, method] + words + ["--id", mail] + world.broker.folder.key
      let outcome = try DynamicsProcess(
        all.map { Array($0.utf8) }, in: world.broker.folder, environment: world.broker.environment
      ).finish()
      #expect((outcome.status == 0) == (status == 0), "\(outcome.errors)")
      let printed = outcome.text + outcome.errors
      #expect(printed.contains("a") && printed.contains("b"))
      let obeyed = printed.unicodeScalars.filter {
        ($0.value < 0x20 && $0 != "\n") || (0x7f...0x9f).contains($0.value) || $0.value == 0x202e
      }
      #expect(obeyed.isEmpty, "\(method): \(obeyed.map(\.value))")
    }
    await evil.stop()
    try await container.close()
  }

  @Test func printsTheReply() throws {
    let world = try World()
    let app = try world.runNotes()
    #expect(try world.text(app) == "ready \(notes)\n")
    let reply = "\"Hello, \(mail).\"\n"
    // Who offers it is found, or named.
    #expect(try world.call("greetMe|0", "--service", "greetings").text == reply)
    let service = "com.good.gd.example.services.greetings"
    #expect(
      try world.call("greetMe|1", "--service", service, "--version", "1.0.0", "--to", notes).text == reply)
    let line = "request \(mail) \(service) greetMe|"
    #expect(try world.text(app) == "ready \(notes)\n\(line)0\n\(line)1\n")
    #expect(
      try world.call("greetMe|0", "--service", "greetings", "--to", notes, "--no-wait").text == "delivered\n")
  }

  @Test func printsJSON() throws {
    struct Answer: Decodable, Equatable {
      var request, app, status: String
      var params: String?
      var attachments: [String]
    }
    struct Event: Decodable, Equatable {
      var event: String
      var app, service, method, id: String?
    }
    let world = try World()
    let app = try world.runNotes("--json", "--name", "Notes", "--user", NSUserName())
    let output = try world.call("greetMe|0", "--service", "greetings", "--json").output
    let answer = try JSONDecoder().decode(Answer.self, from: Data(output))
    #expect(
      answer
        == Answer(
          request: answer.request, app: notes, status: "replied", params: "\"Hello, \(mail).\"",
          attachments: [])
    )
    let events = try world.text(app).split(separator: "\n").map {
      try JSONDecoder().decode(Event.self, from: Data($0.utf8))
    }
    let service = "com.good.gd.example.services.greetings"
    #expect(
      events == [
        Event(event: "ready", app: notes),
        Event(event: "request", app: mail, service: service, method: "greetMe|0", id: answer.request),
      ])
  }

  @Test func saysWhatIsNotThere() throws {
    let world = try World()
    try world.runNotes()
    func code(_ arguments: String..., expecting status: Int32 = 5) throws -> String? {
      let all =
        ["services", "call", world.mail, "--id", mail, "--json"] + arguments + world.broker.folder.key
      let outcome = try DynamicsProcess(
        all.map { Array($0.utf8) }, in: world.broker.folder, environment: world.broker.environment
      ).finish()
      #expect(outcome.status == status, "\(arguments): \(outcome.errors)")
      #expect(outcome.text == "")
      return outcome.errors.firstMatch(of: /"code":"([A-Za-z]*)"/).map { String($0.1) }
    }
    #expect(try code("greetMe|9", "--service", "greetings", "--to", notes) == "methodNotFound")
    #expect(try code("m", "--service", "com.example.s", "--to", notes) == "serviceNotFound")
    #expect(
      try code("greetMe|0", "--service", "greetings", "--to", notes, "--version", "9") == "versionNotFound")
    #expect(
      try code("greetMe|0", "--service", "greetings", "--to", "com.example.none") == "applicationNotFound")
    #expect(try code("m", "--service", "com.example.s") == "applicationNotFound")
    #expect(
      try code("sendFiles", "--service", "greetings", "--to", notes, "--attach", "/none")
        == "attachmentNotFound")
    #expect(
      try code("greetMe|0", "--service", "greetings", "--to", notes, "--params", #"{"a":1}"#, expecting: 1)
        == "invalidParams")
    _ = try world.broker.run(
      "apps", "policy", "add", "disable", "--service", "com.good.gd.example.services.greetings")
    #expect(
      try code("greetMe|0", "--service", "greetings", "--to", notes, expecting: 1) == "serviceDisabled")
    for wrong in [
      ["--service", "Greetings"], ["--service", "greetings", "--to", "x"],
      ["--service", "greetings", "--version", "01"], ["--service", "greetings", "--params", "{"],
    ] {
      let all = ["services", "call", world.mail, "m", "--id", mail] + wrong
      #expect(
        try DynamicsProcess(all.map { Array($0.utf8) }, in: world.broker.folder).finish().status == 64)
    }
    for wrong in [
      ["--user", ""], ["--name", ""], ["--user", String(repeating: "u", count: 257)], ["--save-to", "/"],
      ["--save-to", "/.opendynamics/x"], ["--save-to", "/Documents/../Inbox"],
    ] {
      let all = ["app", "run", world.mail, "--id", mail] + wrong
      #expect(
        try DynamicsProcess(all.map { Array($0.utf8) }, in: world.broker.folder).finish().status == 64)
    }
    world.broker.process?.signal(SIGTERM)
    _ = try world.broker.process?.finish()
    world.broker.process = nil
    // The running app is not found without the broker.
    #expect(try code("greetMe|0", "--service", "greetings", "--to", notes) == "brokerUnavailable")
  }

  @Test func anAppHasItsContainerForItself() throws {
    let world = try World()
    try world.runNotes()
    let again = ["app", "run", world.notes, "--id", notes] + world.broker.folder.key
    let outcome = try DynamicsProcess(
      again.map { Array($0.utf8) }, in: world.broker.folder, environment: world.broker.environment
    ).finish()
    #expect(outcome.status == 4 && outcome.text == "")
  }

  @Test func anotherUserIsRefusedUntilTheAppIsForgotten() throws {
    let world = try World()
    try world.runNotes()
    // The other app is of the system's user: it is not found, and refused when it is named.
    let unseen = try world.call("greetMe|0", "--service", "greetings", "--user", "one", expecting: 5)
    #expect(unseen.errors.contains("nobody offers"))
    let other = try world.call(
      "greetMe|0", "--service", "greetings", "--user", "one", "--to", notes, expecting: 1)
    #expect(other.errors.contains("another user") && !other.errors.contains("apps forget"))
    let changed = try world.call("greetMe|0", "--service", "greetings", expecting: 1)
    #expect(changed.errors.contains("apps forget"))
    _ = try world.broker.run("apps", "forget", mail)
    _ = try world.call("greetMe|0", "--service", "greetings")
  }

  /// Where new apps are asked for, they wait until an administrator has compared fingerprints.
  @Test func newAppsWaitForApproval() throws {
    let world = try World("--plain-apps ask")
    let app = try world.runNotes(until: "waiting for approval")
    let words = try #require(try world.text(app).firstMatch(of: /dynamics (apps approve .*)\n/))
    let command = words.1.split(separator: " ").map(String.init)
    // Itself, and nobody else's: the app that calls waits, too.
    let refused = try world.call("greetMe|0", "--service", "greetings", expecting: 1)
    #expect(refused.errors.contains("dynamics apps approve \(mail) "))
    let list = try world.broker.run("apps", "list")
    #expect(list.text.contains("\(notes) waits for approval, process "))
    #expect(list.text.contains("  dynamics \(words.1)\n"))
    #expect(try world.broker.run("apps", "list", "--json").text.contains("\"pending\":[{"))
    #expect(try world.broker.run("services", "list").text == "")

    _ = try world.broker.run("apps", "approve", notes, "0000", expecting: 64)
    _ = try world.broker.run("apps", "approve", "x y", String(repeating: "0", count: 32), expecting: 64)
    #expect(try world.broker.run(command).errors.isEmpty)
    try app.wait("ready") { try world.text(app).contains("ready \(notes)\n") }
    #expect(try !world.broker.run("apps", "list").text.contains("not approved"))
    // Approved before it comes.
    let own = try world.broker.folder.run("peers", "list", world.mail).text
    let fingerprint = own.replacing("own key ", with: "").replacing("\n", with: "")
    _ = try world.broker.run("apps", "approve", mail, fingerprint)
    _ = try world.call("greetMe|0", "--service", "greetings")
    _ = try world.broker.run("apps", "forget", mail)
    _ = try world.call("greetMe|0", "--service", "greetings", expecting: 1)
  }

  /// The administrator has taken the fingerprint of another app, or somebody else waits under the id.
  @Test func approvingAnotherKeyNamesTheOneThatWaits() throws {
    let world = try World("--plain-apps ask")
    let app = try world.runNotes(until: "waiting for approval")
    let words = try #require(try world.text(app).firstMatch(of: /apps approve \S+ (.*)\n/))
    let approved = try world.broker.run("apps", "approve", notes, String(repeating: "0", count: 32))
    #expect(approved.errors.contains("has another key, and is refused: \(words.1)\n"))
    #expect(try app.finish().status == 1)
  }

  @Test func newAppsAreRefusedWhereOnlyApprovedOnesMayCome() throws {
    let world = try World("--plain-apps installed")
    let refused = try world.call("greetMe|0", "--service", "greetings", expecting: 1)
    #expect(refused.errors.contains("approved before"))
    let wrong = try DynamicsProcess(
      ["broker", "--plain-apps", "open"].map { Array($0.utf8) }, in: world.broker.folder,
      environment: world.broker.environment
    ).finish()
    #expect(wrong.status == 64)
  }

  /// An app that has lost its container: nothing goes to it before its new key is trusted.
  @Test func anotherKeyIsTrustedByHand() throws {
    let world = try World()
    try world.runNotes()
    _ = try world.call("greetMe|0", "--service", "greetings")
    let folder = world.broker.folder
    let own = try folder.run("peers", "list", world.mail)
    #expect(own.text.hasPrefix("\(notes)\n  key  ") && own.text.contains("own key "))

    try world.replaceNotes()
    _ = try world.broker.run("apps", "forget", notes)
    try world.runNotes()
    let refused = try world.call("greetMe|0", "--service", "greetings", expecting: 1)
    #expect(refused.errors.contains("dynamics peers trust"))
    let list = try folder.run("peers", "list", world.mail)
    let match = try #require(list.text.firstMatch(of: /\n  new  ([0-9a-f ]{39}), not trusted/))
    let fingerprint = String(match.1)
    #expect(try world.broker.run("apps", "list").text.contains("  key  \(fingerprint)\n"))
    #expect(try folder.run("peers", "list", "--json", world.mail).text.contains("\"\(fingerprint)\""))

    let wrong = (fingerprint.hasPrefix("0") ? "1" : "0") + fingerprint.dropFirst()
    _ = try folder.run("peers", "trust", world.mail, notes, wrong, expecting: 1)
    _ = try folder.run("peers", "trust", world.mail, "com.example.nobody", fingerprint, expecting: 5)
    _ = try folder.run("peers", "trust", world.mail, "x y", fingerprint, expecting: 64)
    _ = try world.call("greetMe|0", "--service", "greetings", expecting: 1)
    // In groups, as it is printed.
    let words = fingerprint.split(separator: " ").map(String.init)
    _ = try folder.run(["peers", "trust", world.mail, notes] + words)
    _ = try world.call("greetMe|0", "--service", "greetings")
    #expect(try !folder.run("peers", "list", world.mail).text.contains("not trusted"))
    _ = try folder.run("peers", "forget", world.mail, notes)
    _ = try folder.run("peers", "forget", world.mail, notes, expecting: 5)
    #expect(try folder.run("peers", "list", world.mail).text.hasPrefix("own key "))
  }

  @Test(arguments: [SIGTERM, SIGINT, SIGHUP])
  func aSignalEndsAnAppInGoodOrder(signal: Int32) throws {
    let world = try World()
    let app = try world.runNotes()
    world.running = nil
    app.signal(signal)
    let outcome = try app.finish()
    #expect(outcome.status == 0 && outcome.errors == "")
    // The broker heard a goodbye, and finds no fault.
    let broker = try #require(world.broker.process)
    #expect(try world.broker.run("services", "list").text.contains("\(notes) (not running)"))
    let log = String(decoding: try readBytes(broker.errorPath), as: UTF8.self).split(separator: "\n")
    #expect(log.filter { $0.contains("app=\(notes)") } == [])
    // Who is not running is not asked.
    _ = try world.call("greetMe|0", "--service", "greetings", "--to", notes, expecting: 5)
  }

  @Test func showsWhatAServiceTakesAndAnswers() throws {
    let world = try World()
    try world.runNotes()
    let shown = try world.broker.run("services", "show", "greetings").text
    let definition = try ServiceDefinition(jsonText: shown)
    #expect(definition == WellKnownService.greetings.definition)
    #expect(
      shown.contains("\n") && shown.contains(#""service-id" : "com.good.gd.example.services.greetings""#))
    let line = try world.broker.run("services", "show", "greetings", "--app", notes, "--json").text
    #expect(line == definition.jsonText + "\n")
    let missing = try world.broker.run("services", "show", "com.example.none", expecting: 5)
    #expect(missing.errors.contains("nobody offers com.example.none"))
    let other = try world.broker.run("services", "show", "greetings", "--version", "9", expecting: 5)
    #expect(other.errors.contains("which of: 1.0.0 of \(notes)"))
    _ = try world.broker.run("services", "show", "greetings", "--app", "x y", expecting: 64)
  }

  /// A broker that runs and has lost the file with its key: no state directory is named, so that nothing else tells the key.
  @Test func saysThatTheKeyOfTheBrokerIsMissing() throws {
    let broker = try BrokerProcess()
    let key = broker.socket + ".key.pub"
    try FileManager.default.removeItem(atPath: key)
    let words = [
      "services", "list", "--socket", broker.socket, "--state", broker.folder.path("none"), "--json",
    ]
    let outcome = try broker.run(words, expecting: 5)
    #expect(
      outcome.text.isEmpty && outcome.errors.contains(#""code":"brokerKeyMissing""#), "\(outcome.errors)")
    #expect(outcome.errors.contains("broker.key.pub") && !outcome.errors.contains("no broker runs"))
  }

  @Test func saysThatNoBrokerRuns() throws {
    let folder = try TemporaryFolder()
    for place in [folder.root, folder.path("never-made")] {
      let words = ["services", "list", "--socket", place + "/broker", "--state", place]
      let outcome = try DynamicsProcess(words.map { Array($0.utf8) }, in: folder).finish()
      #expect(outcome.status == 5 && outcome.text.isEmpty)
      #expect(outcome.errors.contains("no broker runs") && outcome.errors.contains("dynamics broker"))
    }
  }

  /// The table of the services' page, line by line; what runs until a signal goes on in the background.
  @Test func everyLineOfTheTableWorks() throws {
    let folder = try TemporaryFolder()
    var environment = TaskTableTests.environment
    environment["OPENDYNAMICS_BROKER"] = folder.path("run/broker")
    environment["OPENDYNAMICS_BROKER_STATE"] = folder.path("state")
    environment["XDG_RUNTIME_DIR"] = folder.root
    let commands = TaskTableTests.commands(try TaskTableTests.page(), "## Services: I want → I type")
    #expect((10...20).contains(commands.count))
    var background: [DynamicsProcess] = []
    defer {
      for process in background.reversed() {
        process.signal(SIGTERM)
        _ = try? process.finish()
      }
    }
    for container in ["notes", "mail"] {
      let words = ["-ec", "cd \(folder.root); dynamics container create \(container)"]
      let made = try DynamicsProcess(
        words.map { Array($0.utf8) }, in: folder, environment: environment, executable: "/bin/sh"
      ).finish()
      #expect(made.status == 0, "\(made.errors)")
    }
    let words = ["-ec", "cd \(folder.root); echo text >file; dynamics put mail file /Documents/"]
    let put = try DynamicsProcess(
      words.map { Array($0.utf8) }, in: folder, environment: environment, executable: "/bin/sh"
    ).finish()
    #expect(put.status == 0, "\(put.errors)")
    var outputs: [String: String] = [:]
    for command in commands {
      let words = ["-ec", "cd \(folder.root); exec \(command)"].map { Array($0.utf8) }
      let process = try DynamicsProcess(words, in: folder, environment: environment, executable: "/bin/sh")
      let firstWord = [
        "dynamics broker": "listening", "dynamics app run": "ready", "dynamics launcher": "launcher",
      ].first { command.hasPrefix($0.key) && !command.hasSuffix("--install") }?.value
      if let firstWord {
        background.append(process)
        try process.wait(firstWord) {
          try String(decoding: readBytes(process.outputPath), as: UTF8.self).hasPrefix(firstWord)
        }
      } else {
        let outcome = try process.finish()
        #expect(outcome.status == 0, "\(command): \(outcome.errors)")
        outputs[command] = outcome.text
      }
    }
    #expect(outputs.values.contains("\"Hello, com.example.mail.\"\n"))
  }
}
