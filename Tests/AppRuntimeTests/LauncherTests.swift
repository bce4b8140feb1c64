import AppKineticsTesting
import Foundation
import Locks
import ServiceWire
import Testing

@testable import AppRuntime

/// The launcher of an app that runs.
@Suite(.timeLimit(.minutes(2)))
struct LauncherTests {
  /// Writes down what it is told, and launches when the test says so.
  private final class Teller: LauncherDelegate {
    let told = Guarded<[String]>([])
    let deferred = Guarded<(@Sendable () -> Void)?>(nil)
    let logsAreReady = Guarded<(@Sendable () -> Void)?>(nil)
    private let defers: Bool
    init(defers: Bool = false) { self.defers = defers }

    private func tell(_ text: String) { told.withLock { $0.append(text) } }
    func take() -> [String] {
      told.withLock { told in
        defer { told = [] }
        return told
      }
    }

    func launcherWillOpen(_ launcher: Launcher) { tell("will open") }
    func launcherWillClose(_ launcher: Launcher) { tell("will close") }
    func launcher(
      _ launcher: Launcher, shouldLaunch application: ApplicationID, launch: @escaping @Sendable () -> Void
    ) -> Bool {
      tell("launch \(application)")
      if defers { deferred.withLock { $0 = launch } }
      return !defers
    }
    func launcher(_ launcher: Launcher, didSelectSectionAt location: String) { tell("section \(location)") }
    func launcher(_ launcher: Launcher, didSelectActionAt location: String) { tell("action \(location)") }
    func launcher(_ launcher: Launcher, didSelect service: ServiceIdentifier, of providers: [ApplicationID]) {
      tell("\(service) of \(providers.map(\.text).joined(separator: ", "))")
    }
    func launcher(_ launcher: Launcher, didSelectSetting id: String) { tell("setting \(id)") }
    func launcherChangesPassword(_ launcher: Launcher) { tell("password") }
    func launcher(_ launcher: Launcher, beforeUploadingLogs done: @escaping @Sendable () -> Void) {
      tell("logs")
      logsAreReady.withLock { $0 = done }
    }
  }

  /// Waits for a state.
  private func until(
    _ launcher: Launcher, sourceLocation: SourceLocation = #_sourceLocation,
    _ isMeant: (LauncherModel) -> Bool
  ) async {
    for await model in launcher.changes where isMeant(model) { return }
    Issue.record("it did not come to that", sourceLocation: sourceLocation)
  }

  private func launcher(of app: ManagedTestApp) throws -> Launcher { try #require(app.runtime.launcher) }

  @Test func itStartsWithTheFirstAuthorization() async throws {
    try await withTestApps { world in
      let app = try world.managedApp("com.example.app")
      try await app.start()
      #expect(app.runtime.launcher == nil)
      try await app.typePassword()
      let launcher = try launcher(of: app)
      #expect(launcher.model.isAuthorized && launcher.model.view == .closed)
      // What the app says before anybody sees it.
      let quiet = try world.managedApp(
        "com.example.quiet", options: { $0.launcher = [.setShowsCoachMark(false), .setButtonHidden(true)] })
      try await quiet.start()
      try await quiet.typePassword()
      let model = try self.launcher(of: quiet).model
      #expect(model.presented == .nothing && model.isButtonHidden)
      let disabled = try world.managedApp("com.example.other", options: { $0.startsLauncher = false })
      try await disabled.start()
      try await disabled.typePassword()
      #expect(disabled.runtime.launcher == nil)
    }
  }

  @Test func aPersonSeesAppsAndBringsOneToFront() async throws {
    try await withTestApps { world in
      let other = try await world.start("com.example.other")
      var fronts = other.services.frontChanges.makeAsyncIterator()
      let app = try await world.startManaged("com.example.app")
      let launcher = try launcher(of: app)
      let teller = Teller(defers: true)
      launcher.delegate = teller
      await until(launcher) { $0.apps.count == 2 }
      // Also one that offers nothing, and the app itself.
      #expect(launcher.model.apps.map(\.application) == [app.id, other.id])
      #expect(launcher.model.apps.map(\.isOwn) == [true, false])
      launcher.apply(.dismiss)
      launcher.isOpen = true
      #expect(launcher.model.isOpen)
      launcher.apply(.selectApp(other.id))
      await app.settle()
      #expect(teller.take() == ["will open", "launch \(other.id)"])
      #expect(launcher.model.launching.isEmpty)
      // The app is not in front, and passes nothing on; then it is.
      teller.deferred.withLock { $0 }?()
      await until(launcher) { $0.failedLaunch != nil }
      #expect(launcher.model.failedLaunch == .init(application: other.id, code: .notInFront))
      try await world.bringToFront(app.id)
      launcher.apply(.selectApp(other.id))
      await app.settle()
      teller.deferred.withLock { $0 }?()
      await until(launcher) { !$0.isOpen }
      #expect(await fronts.next() == true)
      await app.settle()
      #expect(teller.take() == ["launch \(other.id)", "will close"])
    }
  }

  @Test func whatAPersonSelectsIsToldInOrder() async throws {
    try await withTestApps { world in
      let app = try await world.startManaged("com.example.app")
      let launcher = try launcher(of: app)
      let teller = Teller()
      launcher.delegate = teller
      launcher.apply(.register(.init(id: "docs", title: "Docs", location: "docs://")))
      launcher.apply(.registerAction(.init(location: "compose", title: "Compose")))
      launcher.apply(.setSettings([.init(.own("x"), text: "X"), .init(.changePassword, text: "Password")]))
      #expect(launcher.isSectionEnabled("docs") && !launcher.isSectionEnabled("other"))
      launcher.apply(.buttonTapped)
      launcher.apply(.selectSection(id: "docs"))
      launcher.apply(.buttonTapped)
      launcher.apply(.selectAction(location: "compose"))
      launcher.apply(.presentSettings)
      launcher.apply(.selectSetting(.own("x")))
      launcher.apply(.selectSetting(.changePassword))
      await app.settle()
      #expect(
        teller.take() == [
          "will open", "will close", "section docs://", "will open", "will close", "action compose",
          "setting x",
          "password",
        ])
    }
  }

  @Test func theButtonAndTheCoachMarkAreRememberedAndNothingElse() async throws {
    try await withTestApps { world in
      _ = try await world.start("com.example.secret")
      let app = try await world.startManaged("com.example.app")
      var launcher = try launcher(of: app)
      await until(launcher) { $0.apps.count == 2 }
      #expect(launcher.model.presented == .coachMark)
      let place = LauncherModel.Place(x: 0.5, y: 0.25)
      launcher.apply(.buttonMoved(to: place, .portrait))
      launcher.apply(.dismiss)
      await app.end()
      let text = try String(contentsOfFile: app.url.path + ".runtime/launcher", encoding: .utf8)
      #expect(text.hasPrefix("dynamics-launcher 1 ") && !text.contains("secret"))
      try await app.start()
      try await app.typePassword()
      launcher = try self.launcher(of: app)
      #expect(launcher.model.presented == .nothing && launcher.model.buttonPlace(.portrait) == place)
      // A damaged file is forgotten.
      await app.end()
      try Data("dynamics-launcher 1 5 x\n{}".utf8).write(
        to: URL(filePath: app.url.path + ".runtime/launcher"))
      try await app.start()
      try await app.typePassword()
      #expect(try self.launcher(of: app).model.memory == .init())
    }
  }

  @Test func aLockLeavesNothingOfOthers() async throws {
    try await withTestApps { world in
      _ = try await world.start("com.example.other")
      let app = try await world.startManaged("com.example.app")
      let launcher = try launcher(of: app)
      let teller = Teller()
      launcher.delegate = teller
      await until(launcher) { $0.apps.count == 2 }
      launcher.isOpen = true
      app.runtime.block(LocalBlock(id: "block", notice: Notice(title: "Blocked", text: "")))
      // At once: the keys are there, and the screen is not.
      #expect(launcher.model.apps.isEmpty && !launcher.model.isOpen && !launcher.model.isAuthorized)
      #expect(await launcher.certificates() == nil)
      await app.settle()
      #expect(teller.take() == ["will open", "will close"])
      app.runtime.unblock(id: "block")
      await until(launcher) { $0.apps.count == 2 }
      try await app.lock(code: "4711")
      #expect(launcher.model.apps.isEmpty)
      try await app.typeCode("4711")
      try await app.typePassword()
      await until(launcher) { $0.apps.count == 2 }
      #expect(app.runtime.launcher === launcher)
      var last: LauncherModel?
      let changes = launcher.changes
      await app.end()
      for await model in changes { last = model }
      #expect(last?.apps.isEmpty == true)
    }
  }

  @Test func keysAreThoseOfTheApp() async throws {
    try await withTestApps { world in
      let other = try await world.start("com.example.other") { try $0.offer(echo) { .reply($0.params) } }
      let app = try await world.startManaged("com.example.app")
      _ = try await app.services.call(ServiceRequest(echo, "echo", params: 1), to: other.id)
      let certificates = try #require(await launcher(of: app).certificates())
      #expect(try certificates.own == app.services.keyFingerprint)
      #expect(certificates.peers.map(\.application) == [other.id])
    }
  }

  @Test func logsAreSentOnceWhenTheAppIsReadyOrAfterHalfAMinute() async throws {
    let clock = ManualClock()
    var options = TestApps.Options()
    options.clock = clock
    try await withTestApps(options) { world in
      let (sent, sending) = AsyncStream.makeStream(of: Void.self)
      let count = Guarded(0)
      let app = try world.managedApp(
        "com.example.app",
        options: {
          $0.uploadLogs = {
            count.withLock { $0 += 1 }
            sending.yield()
          }
        })
      try await app.start()
      try await app.typePassword()
      let launcher = try launcher(of: app)
      var wakes = sent.makeAsyncIterator()
      launcher.apply(.presentSettings)
      // Without a delegate there is nobody to wait for.
      launcher.apply(.selectSetting(.uploadLogs))
      await wakes.next()
      let teller = Teller()
      launcher.delegate = teller
      launcher.apply(.selectSetting(.uploadLogs))
      await app.settle()
      #expect(teller.take() == ["logs"] && count.withLock { $0 } == 1)
      clock.advance(by: .seconds(29))
      #expect(count.withLock { $0 } == 1)
      clock.advance(by: .seconds(2))
      await wakes.next()
      // The app's late answer is none.
      teller.logsAreReady.withLock { $0 }?()
      launcher.apply(.selectSetting(.uploadLogs))
      await app.settle()
      teller.logsAreReady.withLock { $0 }?()
      await wakes.next()
      clock.advance(by: .seconds(60))
      await app.settle()
      #expect(count.withLock { $0 } == 3)
    }
  }

  // MARK: One for all apps

  @Test func itSeesWhatAppsHaveOnTheirWayAndLaunchesWithoutBeingInFront() async throws {
    try await withTestApps { world in
      let receiver = try await world.start("com.example.receiver")
      let sender = try await world.start("com.example.sender")
      try receiver.services.offer(WellKnownService.saveFiles.definition) { _ in .noReply }
      let locked = try await world.start("com.example.locked")
      try await locked.services.setState(.locked)
      receiver.faults.hasFullDisk = true
      try sender.put(Data(count: 5_000), at: "/secret plans.txt")
      func send() async throws -> SentRequest {
        try await sender.services.send(
          ServiceRequest(
            WellKnownService.saveFiles.definition, "saveFiles", attachments: ["/secret plans.txt"]),
          to: receiver.id)
      }
      // Before the launcher runs, and while it does.
      let first = try await send()
      let launcher = try self.launcher(of: try await world.startLauncher())
      await until(launcher) { $0.traffic[sender.id]?.sent.count == 1 && $0.isOpen }
      let second = try await send()
      await until(launcher) {
        guard let sent = $0.traffic[sender.id]?.sent, let arriving = $0.traffic[receiver.id]?.arriving else {
          return false
        }
        return sent.count == 2 && sent.waitingCount == 2 && sent.byteCount == 10_000 && arriving.count == 2
          && arriving.waitingCount == 2
      }
      // It is no app itself, and the others hear nothing of this.
      #expect(launcher.model.apps.map(\.application) == [locked.id, receiver.id, sender.id])
      #expect(launcher.model.apps.map(\.state) == [.locked, .running, .running])
      let seen = try await sender.services.providers(includesNonProviders: true)
      #expect(seen.map(\.application) == [locked.id, receiver.id] && seen.allSatisfy { $0.traffic == nil })
      // Whoever is in front, and nobody at first.
      for app in [sender, locked] {
        launcher.apply(.selectApp(app.id))
        await until(launcher) { model in model.apps.contains { $0.application == app.id && $0.isInFront } }
      }
      receiver.faults.hasFullDisk = false
      for request in [first, second] { try await request.delivered() }
      await until(launcher) { $0.traffic.values.allSatisfy { $0.sent.count == 0 && $0.arriving.count == 0 } }
      #expect(launcher.model.isOpen && launcher.model.failedLaunch == nil)
    }
  }

  /// It says when what it shows is how it was.
  @Test func aBrokerThatGoesIsSeen() async throws {
    try await withTestApps { world in
      let app = try await world.start("com.example.app")
      let launcher = try self.launcher(of: try await world.startLauncher())
      await until(launcher) { $0.isConnected && $0.apps.map(\.application) == [app.id] }
      await world.stopBroker()
      await until(launcher) { !$0.isConnected && $0.apps.count == 1 }
      try await world.startBroker()
      await until(launcher) { $0.isConnected && $0.apps.count == 1 }
    }
  }

  /// Of a message whose other side has ended nothing moves.
  @Test func whatBrokeOffWaits() async throws {
    try await withTestApps { world in
      let receiver = try await world.start("com.example.receiver")
      let sender = try await world.start("com.example.sender")
      try receiver.services.offer(WellKnownService.saveFiles.definition) { _ in .noReply }
      let launcher = try self.launcher(of: try await world.startLauncher())
      receiver.faults.hasFullDisk = true
      try sender.put(Data(count: 5_000), at: "/file")
      _ = try await sender.services.send(
        ServiceRequest(WellKnownService.saveFiles.definition, "saveFiles", attachments: ["/file"]),
        to: receiver.id)
      await until(launcher) { $0.traffic[receiver.id]?.arriving.count == 1 }
      await world.kill(receiver)
      await until(launcher) {
        $0.traffic[sender.id]?.sent.waitingCount == 1 && $0.traffic[receiver.id] == nil
      }
    }
  }

  /// A reader that is cancelled while a state is shown to it holds up nobody.
  @Test func readersAreCancelledWhileItIsShown() async throws {
    let launcher = Launcher(LauncherModel.Memory(), AppRuntime.Options(), on: DispatchQueue(label: "events"))
    { _ in }
    let isOver = Guarded(false)
    Thread.detachNewThread {
      var count = 0
      while !isOver.withLock({ $0 }) {
        launcher.apply(.setBase("\(count)"))
        count += 1
      }
    }
    defer { isOver.withLock { $0 = true } }
    for _ in 0..<3_000 {
      let reader = Task { for await _ in launcher.changes {} }
      await Task.yield()
      reader.cancel()
      await reader.value
    }
  }

  /// A rule keeps an app from it as from anybody, and a key that nobody approved is no launcher.
  @Test func rulesHoldForItToo() async throws {
    try await withTestApps { world in
      let hidden = try await world.start("com.example.hidden")
      let shown = try await world.start("com.example.shown")
      let administrator = try await world.administrator()
      defer { administrator.close() }
      let rule = WireRule.with {
        ($0.consumer, $0.provider, $0.effect) = (ApplicationID.launcher.text, hidden.id.text, .deny)
      }
      _ = try await administrator.ask(.administer(.with { $0.addRule = rule }))
      let launcher = try self.launcher(of: try await world.startLauncher())
      await until(launcher) { $0.apps.map(\.application) == [shown.id] }
      #expect(launcher.apply(.selectApp(hidden.id)) == .unknown)
    }
    try await withTestApps { world in
      let impostor = try await world.app(Application(id: .launcher, name: "Launcher"))
      await #expect { try await impostor.services.start() } throws: {
        ($0 as? ServicesError)?.code == .approvalPending && "\($0)".contains("dynamics launcher --install")
      }
    }
  }
}
