import BlackBerryDynamicsTesting
import Testing

@testable import Jotter

/// What main.swift configures.
@Sendable private func asJotter(_ configuration: inout GDConfiguration) {
  configuration.applicationID = "com.example.jotter"
  configuration.services = [GDConfiguration.Service(AppendNote.service, version: AppendNote.version)]
}

/// A process of Jotter, with the objects that main.swift makes, and a screen that writes lines down.
private final class Session: JotterScreen {
  let told = Told()
  private let app: GDTestApp
  private let jotter = JotterApp()

  init(_ app: GDTestApp, _ command: Command = .serve) {
    self.app = app
    jotter.screen = self
    jotter.finish = { [told] in told.add("exit \($0)") }
    jotter.start(command)
  }

  /// Calls the app where the runtime calls it.
  func with<R>(_ body: (JotterApp) throws -> R) rethrows -> R {
    try app.queue.sync { try body(jotter) }
  }

  func perform(_ command: Command) { with { $0.perform(command) } }

  var notes: [String] { get throws { try with { try $0.store.notes() } } }

  func show(_ line: String) { told.add(line) }
  func showError(_ line: String) { told.add("error \(line)") }
  func cover(_ reason: String) { told.add("cover \(reason)") }
  func uncover() { told.add("uncover") }
}

extension AppTests {
  /// The tests of an app that was written for the vendor's interface. Nothing in its sources is for tests.
  struct JotterTests {
    private let jotter: ApplicationID
    /// What another app offers that takes notes.
    private let definition: ServiceDefinition

    init() throws {
      jotter = try ApplicationID("com.example.jotter")
      definition = try ServiceDefinition(
        jsonText: """
          {"service-id": "\(AppendNote.service)", "version": "\(AppendNote.version)", "methods": {
            "\(AppendNote.method)": {"result-value": {"type": "object"}}}}
          """)
    }

    private func nextProcess(in apps: TestApps) -> GDTestApp {
      GDTestApp("com.example.gd", in: apps, configuration: asJotter)
    }

    /// A native file, for `share`.
    private func makeFile(in apps: TestApps) throws -> String {
      let file = apps.directory.appendingPathComponent("list.txt")
      try Data("eggs".utf8).write(to: file)
      return file.path
    }

    private func request(_ text: String, _ attachments: [String] = []) -> ServiceRequest {
      ServiceRequest(
        service: definition.serviceID, version: definition.version, method: AppendNote.method,
        params: ["text": .string(text)], attachments: attachments)
    }

    // MARK: Its life

    @Test func aNoteOfTheFirstProcessIsThereInTheNext() async throws {
      try await withGDApp(asJotter) { apps, app in
        let first = Session(app, .add("milk"))
        try await first.told.wait(for: "exit 0")
        #expect(app.asked == [.firstPassword])
        await app.end()
        let next = nextProcess(in: apps)
        let second = Session(next, .list)
        try await second.told.wait(for: "exit 0")
        #expect(second.told.all == ["uncover", "milk", "exit 0"])
        #expect(next.asked == [.password] && next.misuses.all.isEmpty)
      }
    }

    @Test func aWrongPasswordIsNothingThatTheAppNotices() async throws {
      try await withGDApp(asJotter) { apps, app in
        let first = Session(app, .add("milk"))
        try await first.told.wait(for: "exit 0")
        await app.end()
        let next = nextProcess(in: apps)
        next.type("wrong")
        let second = Session(next)
        try await second.told.wait(for: "ready, 1 notes")
        #expect(second.told.all == ["uncover", "ready, 1 notes"])
        #expect(next.asked == [.password, .password])
      }
    }

    /// The event *authorized* repeats; what runs at the start does not.
    @Test func anIdleAppGoesOnInTheBackgroundAndStartsOnce() async throws {
      let clock = ManualClock()
      let (person, comes) = AsyncStream<Void>.makeStream()
      let change: @Sendable (inout GDConfiguration) -> Void = {
        asJotter(&$0)
        let answer = $0.answer
        $0.answer = { question in
          if question.kind == .password { for await _ in person { break } }
          return await answer(question)
        }
      }
      try await withGDApp(clock: clock, change) { _, app in
        try await app.manage(["passwordRules": ["idleSeconds": 60]])
        let session = Session(app)
        try await session.told.wait(for: "ready, 0 notes")
        clock.advance(by: .seconds(60))
        try await session.told.wait(for: "cover locked")
        session.perform(.add("milk"))
        comes.yield()
        try await session.told.wait(for: "uncover", count: 2)
        #expect(session.told.all == ["uncover", "ready, 0 notes", "cover locked", "exit 0", "uncover"])
        #expect(try session.notes == ["milk"])
        #expect(app.asked == [.firstPassword, .password])
      }
    }

    // MARK: Its owner

    @Test func aBlockByTheOwnerTakesTheNotesUntilItEnds() async throws {
      try await withGDApp(asJotter) { _, app in
        let session = Session(app)
        try await session.told.wait(for: "ready, 0 notes")
        session.perform(.add("milk"))
        try await app.manage(["blocked": ["title": "Blocked", "text": "Call the help desk."]])
        try await session.told.wait(for: "cover Blocked: Call the help desk.")
        #expect(throws: (any Error).self) { try session.notes }
        session.perform(.add("bread"))
        #expect(session.told.all.suffix(2) == ["error the notes cannot be opened", "exit 1"])
        try await app.manage(["blocked": nil])
        try await session.told.wait(for: "uncover", count: 2)
        #expect(try session.notes == ["milk"])
        #expect(app.misuses.all.isEmpty)
      }
    }

    @Test func aRemoteLockIsEndedByItsCodeAndThePassword() async throws {
      try await withGDApp(asJotter) { _, app in
        let session = Session(app)
        try await session.told.wait(for: "ready, 0 notes")
        session.perform(.add("milk"))
        app.type("0000", "4711")
        try await app.lock(code: "4711")
        try await session.told.wait(for: "uncover", count: 2)
        let told = session.told.all.map { $0.hasPrefix("cover") ? "cover" : $0 }
        #expect(told == ["uncover", "ready, 0 notes", "exit 0", "cover", "uncover"])
        #expect(app.asked == [.firstPassword, .unlockCode, .unlockCode, .password])
        #expect(try session.notes == ["milk"])
      }
    }

    @Test func aWipeEndsTheProcessAndTheNextOneBeginsEmpty() async throws {
      try await withGDApp(asJotter) { apps, app in
        let session = Session(app)
        try await session.told.wait(for: "ready, 0 notes")
        session.perform(.add("milk"))
        try await app.wipe()
        try await session.told.wait(for: "exit 77")
        #expect(session.told.all.suffix(2) == ["cover erased", "exit 77"])
        await app.end()
        let next = nextProcess(in: apps)
        let empty = Session(next)
        try await empty.told.wait(for: "ready, 0 notes")
        #expect(next.asked == [.firstPassword])
      }
    }

    // MARK: Other apps

    @Test func aNoteOfAnotherAppIsKeptWithItsFile() async throws {
      try await withGDApp(asJotter) { apps, app in
        let peer = try await apps.start("com.example.peer")
        let session = Session(app)
        try await session.told.wait(for: "ready, 0 notes")
        try peer.put("eggs", at: "/Documents/list.txt")
        let reply = try await peer.services.call(request("milk", ["/Documents/list.txt"]), to: jotter)
        #expect(reply?.params == ["count": 1])
        #expect(session.told.all.last == "note from com.example.peer: milk [list.txt]")
        #expect(try session.notes == ["milk [list.txt]"])
        let files = GDFileManager.default()
        let clipping = session.with { $0.store.clippings + "/list.txt" }
        #expect(files.contents(atPath: clipping) == Data("eggs".utf8))
        // It was in the inbox, from where Jotter has removed it with the directory of its message.
        let line = try #require(session.told.all.first { $0.hasPrefix("receiving ") })
        let (path, original) = (line.dropFirst("receiving ".count), "/Documents/list.txt")
        #expect(path.contains("/Inbox/com.example.peer/") && path.hasSuffix(original))
        #expect(!files.fileExists(atPath: String(path.dropLast(original.count))))

        // What Jotter refuses is an NSError there, and here what it was made from.
        var other = request("milk")
        other.version = try ServiceVersion("2.0.0.0")
        let unknown = await #expect(throws: ServiceReplyError.self) {
          try await peer.services.call(other, to: jotter)
        }
        #expect(unknown?.code == Int64(GDServicesErrorServiceVersionNotFound))
        let tooLong = await #expect(throws: ServiceReplyError.self) {
          try await peer.services.call(request(String(repeating: "a", count: 1001)), to: jotter)
        }
        #expect(tooLong?.code == 1 && tooLong?.text == "the note is too long")
        #expect(tooLong?.details == ["maximum": 1000] && tooLong?.domain?.text == AppendNote.service)
      }
    }

    /// The receiver has to show something first, and asks for the front.
    @Test func anErrorIsTheReplyToANoteWithAFile() async throws {
      try await withGDApp(asJotter) { apps, app in
        let peer = try await apps.start("com.example.peer") { services in
          try services.offer(definition) { [weak services] request in
            guard let services else { return .noReply }
            let changes = services.frontChanges
            try await services.requestFront(from: request.sender)
            for await isInFront in changes where isInFront { break }
            throw ServiceReplyError(code: 2, text: "no room", details: ["free": 0])
          }
        }
        let session = Session(app)
        try await session.told.wait(for: "ready, 0 notes")
        try await apps.bringToFront(jotter)
        session.perform(.share(file: try makeFile(in: apps), receiver: "com.example.peer"))
        try await session.told.wait(for: "exit 69")
        // The front has its own way, which may be longer than that of the reply.
        try await session.told.wait(for: "com.example.peer is in front")
        let told = session.told.all.dropFirst(2).filter { !$0.hasSuffix("in front") }
        #expect(
          told == [
            "com.example.peer gets list.txt", "sending list.txt", "com.example.peer has the note",
            "error com.example.peer: no room (2)", "exit 69",
          ])
        #expect(apps.fronts == [jotter, peer.id])
        let files = try peer.inboxFiles()
        #expect(files.count == 1 && files[0].hasPrefix("/Inbox/com.example.jotter/"))
        #expect(try peer.files.data(atPath: files[0]) == Data("eggs".utf8))
      }
    }

    @Test func aNoteWaitsForALockedAppAndCanBeTakenBack() async throws {
      try await withGDApp(asJotter) { apps, app in
        let ended = try await apps.start("com.example.peer") { try $0.offer(definition) { _ in .reply() } }
        let session = Session(app)
        try await session.told.wait(for: "ready, 0 notes")
        let share = Command.share(file: try makeFile(in: apps), receiver: "com.example.peer")

        // An app that has ended is found, and cannot be reached.
        try await apps.end(ended)
        let services = try #require(try GDConfiguration.runtime?.services)
        while try await services.providers().first?.state != .notRunning {
          try await Task.sleep(for: .milliseconds(10))
        }
        session.perform(share)
        #expect(session.told.all.suffix(2) == ["error com.example.peer: the app does not run", "exit 69"])

        let peer = try await apps.restart(ended) {
          try $0.offer(definition) { _ in .reply(["count": 3]) }
        }
        try await peer.services.setState(.locked)
        session.perform(share)
        #expect(session.told.all.last == "com.example.peer gets list.txt")
        session.with { $0.cancel() }
        #expect(session.told.all.suffix(2) == ["error taken back", "exit 69"])
        try await peer.services.setState(.running)

        session.perform(share)
        try await session.told.wait(for: "com.example.peer keeps 3 notes")
        #expect(try peer.inboxFiles().count == 1)
        #expect(session.told.all.count { $0 == "sending list.txt" } == 1)
      }
    }

    @Test func decisionsOfTheOwnerAndNewAppsComeWhileItRuns() async throws {
      try await withGDApp(asJotter) { apps, app in
        let session = Session(app)
        try await session.told.wait(for: "ready, 0 notes")
        try await app.manage(["appPolicy": ["readOnly": true], "configuration": ["userID": "ann"]])
        try await session.told.wait(for: "read only")
        session.perform(.add("milk"))
        #expect(session.told.all.suffix(2) == ["error the policy forbids new notes", "exit 77"])
        try await app.manage(["appPolicy": ["readOnly": false]])
        await app.settle()
        session.perform(.add("milk"))
        #expect(try session.notes == ["milk (ann)"])

        session.perform(.share(file: try makeFile(in: apps), receiver: "com.example.peer"))
        #expect(session.told.all.last == "waiting for com.example.peer")
        _ = try await apps.start("com.example.peer") {
          try $0.offer(definition) { _ in .reply(["count": 2]) }
        }
        try await session.told.wait(for: "com.example.peer keeps 2 notes")
      }
    }
  }
}
