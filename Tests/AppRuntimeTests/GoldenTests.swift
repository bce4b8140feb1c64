import AppKineticsTesting
import Foundation
import Locks
import SodiumPrimitives
import Testing

@testable import AppRuntime

/// What an app is told in each documented scenario, in order (Documentation/RUNTIME.md, and the table of states of the interface).
@Suite(.timeLimit(.minutes(2)))
struct GoldenTests {
  private struct Scenario {
    let apps: TestApps
    let app: ManagedTestApp
    let clock: ManualClock

    /// Checks and forgets what the app was told since the last check.
    func expect(_ calls: String..., sourceLocation: SourceLocation = #_sourceLocation) async {
      await app.settle()
      #expect(apps.callbacks.take().map(\.call) == calls, sourceLocation: sourceLocation)
    }
  }

  /// An app that is not started yet.
  private func installed(
    rawKey: (@Sendable () throws -> SecretBytes)? = nil, _ body: (Scenario) async throws -> Void
  ) async throws {
    let clock = ManualClock()
    var options = TestApps.Options()
    options.clock = clock
    try await withTestApps(options) { apps in
      try await body(
        Scenario(
          apps: apps, app: apps.managedApp("com.example.app", options: { $0.rawKey = rawKey }), clock: clock))
    }
  }

  /// An app that is authorized, with nothing told.
  private func authorized(_ body: (Scenario) async throws -> Void) async throws {
    try await installed { scenario in
      try await scenario.app.start()
      try await scenario.app.typePassword()
      await scenario.expect("prepare", "authorized")
      try await body(scenario)
    }
  }

  @Test func firstStartAndEachStart() async throws {
    try await authorized { scenario in
      for _ in 0..<2 {
        await scenario.app.end()
        try await scenario.app.start()
        await scenario.expect()
        try await scenario.app.typePassword()
        await scenario.expect("prepare", "authorized")
      }
    }
  }

  @Test func failedActivation() async throws {
    try await installed { scenario in
      try await scenario.app.start()
      await scenario.apps.stopBroker()
      await #expect(throws: AppRuntimeError.self) { try await scenario.app.typePassword() }
      await scenario.expect("prepare", "notAuthorized -601")
      try await scenario.apps.startBroker()
      try await scenario.app.typePassword()
      await scenario.expect("prepare", "authorized")
    }
  }

  @Test func idleLock() async throws {
    try await authorized { scenario in
      try await scenario.app.manage(["passwordRules": ["idleSeconds": 60]])
      scenario.clock.advance(by: .seconds(60))
      await scenario.expect("notAuthorized -300 idle")
      try await scenario.app.typeWrongPassword(times: 2)
      await scenario.expect()
      try await scenario.app.typePassword()
      await scenario.expect("authorized")
    }
  }

  @Test func newPassword() async throws {
    try await authorized { scenario in
      try await scenario.app.manage(["passwordRules": ["minimumLength": 20, "idleSeconds": 60]])
      scenario.clock.advance(by: .seconds(60))
      try await scenario.app.typePassword()
      await scenario.expect("notAuthorized -300 idle", "notAuthorized -304 passwordChange")
      try await scenario.app.changePassword(to: "battery staple and more")
      await scenario.expect("authorized")
      await scenario.app.end()
      try await scenario.app.start()
      try await scenario.app.typePassword()
      await scenario.expect("prepare", "authorized")
    }
  }

  @Test func localBlocks() async throws {
    try await authorized { scenario in
      let notice = Notice(title: "", text: "")
      scenario.app.runtime.block(LocalBlock(id: "a", notice: notice))
      scenario.app.runtime.block(LocalBlock(id: "b", notice: notice))
      await scenario.expect("notAuthorized -301 localBlock", "notAuthorized -301 localBlock")
      // The one that is shown ends; then the other one.
      scenario.app.runtime.unblock(id: "b")
      await scenario.expect("notAuthorized -301 localBlock")
      scenario.app.runtime.unblock(id: "a")
      await scenario.expect("authorized")
    }
  }

  @Test(
    arguments: [
      ("blocked", ["text": "Call the help desk."], "-301 managementBlock"),
      ("entitlements", [:], "-104 notEntitled"),
      ("entitlements", ["com.example.app": ["9"]], "-105 versionNotEntitled"),
    ] as [(String, ServiceValue, String)])
  func ownersDecision(member: String, value: ServiceValue, code: String) async throws {
    try await authorized { scenario in
      try await scenario.app.manage([member: value])
      await scenario.expect("notAuthorized \(code)")
      await #expect(throws: AppRuntimeError.self) { try await scenario.app.typePassword() }
      await scenario.expect("notAuthorized \(code)")
      try await scenario.app.manage([member: nil])
      await scenario.expect()
      try await scenario.app.typePassword()
      let updates = member == "entitlements" ? ["entitlementsUpdate"] : []
      await scenario.app.settle()
      #expect(scenario.apps.callbacks.take().map(\.call) == ["prepare", "authorized"] + updates)
    }
  }

  @Test func remoteLock() async throws {
    try await authorized { scenario in
      try await scenario.app.lock(code: "4711")
      await scenario.expect("notAuthorized -303 remoteLock")
      try await scenario.app.typeCode("4711")
      await scenario.expect()
      try await scenario.app.typePassword()
      await scenario.expect("prepare", "authorized")
      #expect(await scenario.app.runtime.remoteLock())
      await scenario.expect("notAuthorized -303 remoteLock")
    }
  }

  @Test func tooManyPasswords() async throws {
    try await authorized { scenario in
      try await scenario.app.lock(code: "4711")
      try await scenario.app.typeCode("4711")
      try await scenario.app.manage(["passwordRules": ["attempts": 3]])
      await scenario.expect("notAuthorized -303 remoteLock")
      try await scenario.app.typeWrongPassword(times: 2)
      await scenario.expect()
      try await scenario.app.typeWrongPassword()
      await scenario.expect("notAuthorized -303 remoteLock")
      scenario.clock.advance(by: .seconds(1))
      try await scenario.app.typeCode("4711")
      try await scenario.app.typePassword()
      await scenario.expect("prepare", "authorized")
    }
  }

  @Test func wipe() async throws {
    try await authorized { scenario in
      try await scenario.app.wipe()
      await scenario.expect("notAuthorized -302 wiped")
      #expect(!FileManager.default.fileExists(atPath: scenario.app.url.path))
      await #expect(throws: AppRuntimeError.self) { try await scenario.app.typePassword() }
      await scenario.expect()
      await scenario.app.end()
      try await scenario.app.start()
      try await scenario.app.typePassword()
      await scenario.expect("prepare", "authorized")
    }
  }

  /// The strongest is shown; what ends beneath it is no event, and what shows when it ends is one.
  @Test func severalWithdrawals() async throws {
    try await authorized { scenario in
      let block = LocalBlock(id: "a", notice: Notice(title: "", text: ""))
      try await scenario.app.manage(["passwordRules": ["idleSeconds": 60]])
      scenario.clock.advance(by: .seconds(60))
      scenario.app.runtime.block(block)
      await scenario.expect("notAuthorized -300 idle", "notAuthorized -301 localBlock")
      try await scenario.app.typePassword()
      await scenario.expect()
      scenario.app.runtime.unblock(id: "a")
      await scenario.expect("authorized")
    }
  }

  @Test func updates() async throws {
    try await authorized { scenario in
      try await scenario.app.manage(
        [
          "configuration": ["config": "a", "servers": [["host": "a.example", "port": 1, "priority": 1]]],
          "appPolicy": 1,
        ])
      await scenario.expect("settingsUpdate", "policyUpdate")
      try await scenario.app.manage(["blocked": [:], "appPolicy": 2])
      try await scenario.app.manage(["blocked": nil, "appPolicy": 3])
      await scenario.expect("notAuthorized -301 managementBlock")
      try await scenario.app.typePassword()
      await scenario.expect("prepare", "authorized", "policyUpdate")
    }
  }

  @Test func withoutAPerson() async throws {
    let key = String(repeating: "k", count: 32)
    let rawKey: @Sendable () throws -> SecretBytes = { try SecretBytes(utf8: key) }
    try await installed(rawKey: rawKey) { scenario in
      let app = scenario.app
      try await app.start()
      try await app.typePassword()
      try app.container.store.addKey(.rawKey(SecretBytes(utf8: key)))
      await app.end()
      try await app.start().setForeground(false)
      scenario.apps.callbacks.take()
      #expect(await app.runtime.authorizeAutonomously())
      await scenario.expect("prepare", "backgroundAuthorized")
      #expect(app.runtime.authorization.presentation == .asking(.nothing))
      app.runtime.setForeground(true)
      await scenario.expect("notAuthorized -300 idle")
      try await app.typePassword()
      await scenario.expect("authorized")
      await app.end()
      try await app.start().setForeground(false)
      #expect(await app.runtime.authorizeAutonomously())
      try await app.manage(["blocked": [:]])
      await scenario.expect("prepare", "backgroundAuthorized", "backgroundNotAuthorized -301 managementBlock")
      #expect(await !app.runtime.authorizeAutonomously())
      await scenario.expect()
      // And what comes while the key opens it.
      try await app.manage(["blocked": nil])
      await app.end()
      try await app.start(prepare: { _, _ in try await app.manage(["blocked": [:]]) }, options: { _ in })
        .setForeground(false)
      #expect(await app.runtime.authorizeAutonomously())
      await scenario.expect("prepare", "backgroundNotAuthorized -301 managementBlock")
      // A local block leaves the keys.
      await app.end()
      try await app.manage(["blocked": nil])
      try await app.start().setForeground(false)
      app.runtime.block(LocalBlock(id: "a", notice: Notice(title: "", text: "")))
      #expect(await app.runtime.authorizeAutonomously() && app.runtime.authorization.isAuthorized)
      await scenario.expect(
        "notAuthorized -301 localBlock", "prepare", "backgroundNotAuthorized -301 localBlock")
    }
  }

  @Test func tooEarly() async throws {
    try await installed { scenario in
      try await scenario.app.start()
      #expect(throws: AppRuntimeError.self) { try scenario.app.container }
      await scenario.expect("misuse container")
      try await scenario.app.typePassword()
      try await scenario.app.manage(["blocked": [:]])
      #expect(throws: AppRuntimeError.self) { try scenario.app.container }
      await scenario.expect("prepare", "authorized", "notAuthorized -301 managementBlock")
      // What the owner has taken is asked for in good faith, and a block of the app's own is not.
      await scenario.app.end()
      try await scenario.app.start()
      #expect(throws: AppRuntimeError.self) { try scenario.app.container }
      await scenario.expect()
      try await scenario.app.manage(["blocked": nil])
      scenario.app.runtime.block(LocalBlock(id: "a", notice: Notice(title: "", text: "")))
      await scenario.expect("notAuthorized -301 localBlock")
      #expect(throws: AppRuntimeError.self) { try scenario.app.services }
      await scenario.expect("misuse services")
    }
  }

  @Test func refusedManagementFiles() async throws {
    try await authorized { scenario in
      try await scenario.app.manage(["blocked": [:]])
      await scenario.expect("notAuthorized -301 managementBlock")
      for text in [#"{"version": 1, "serial": 1}"#, #"{"version": 2, "serial": 9}"#, #"{"version": 1, "ser"#]
      {
        await #expect(throws: AppRuntimeError.self) { try await scenario.app.manage(text: Data(text.utf8)) }
      }
      await scenario.expect()
      #expect(scenario.app.runtime.authorization.shown?.code == .blocked)
    }
  }

  /// What a person cannot end is shown before what is asked about, and a locked app that is not activated asks for the code.
  @Test func lockedAndBlocked() async throws {
    try await authorized { scenario in
      try await scenario.app.lock(code: "4711")
      try await scenario.app.manage(["blocked": ["title": "No", "text": "Call us."]])
      await scenario.expect("notAuthorized -303 remoteLock", "notAuthorized -301 managementBlock")
      #expect(scenario.app.runtime.authorization.message == "No: Call us.")
      await #expect(throws: AppRuntimeError.self) { try await scenario.app.typeCode("4711") }
      await scenario.expect("notAuthorized -301 managementBlock")
      try await scenario.app.manage(["blocked": nil])
      await scenario.expect("notAuthorized -303 remoteLock")
      #expect(scenario.app.runtime.authorization.presentation == .asking(.unlockCode))
    }
    try await installed { scenario in
      try await scenario.app.lock(code: "4711")
      let runtime = try await scenario.app.start()
      #expect(runtime.authorization.presentation == .asking(.unlockCode))
      try await scenario.app.typeCode("4711")
      #expect(runtime.authorization.presentation == .nothing)
      try await scenario.app.typePassword()
      await scenario.expect("prepare", "authorized")
    }
  }

  // MARK: Failures

  @Test func openingsThatFail() async throws {
    let fails = Guarded(true)
    try await withTestApps { apps in
      let app = try apps.managedApp(
        "com.example.app", prepare: { _, _ in if fails.withLock({ $0 }) { throw POSIXError(.EIO) } })
      let scenario = Scenario(apps: apps, app: app, clock: ManualClock())
      try await app.start()
      await #expect(throws: AppRuntimeError.self) { try await app.typePassword() }
      await scenario.expect("prepare", "notAuthorized -600")
      fails.withLock { $0 = false }
      try await app.typePassword()
      await scenario.expect("prepare", "authorized")
      await app.end()
      fails.withLock { $0 = true }
      try await app.start()
      await #expect(throws: AppRuntimeError.self) { try await app.typePassword() }
      await scenario.expect("prepare", "notAuthorized -100")
    }
  }

  @Test func aFullDisk() async throws {
    try await installed { scenario in
      try await scenario.app.start()
      scenario.app.faults.hasFullDisk = true
      await #expect(throws: AppRuntimeError.self) { try await scenario.app.typePassword() }
      await scenario.expect("notAuthorized -102")
      scenario.app.faults.hasFullDisk = false
      try await scenario.app.typePassword()
      await scenario.expect("prepare", "authorized")
      // A password that cannot be counted opens nothing.
      await scenario.app.end()
      try await scenario.app.start()
      scenario.app.faults.hasFullDisk = true
      await #expect(throws: AppRuntimeError.self) { try await scenario.app.typePassword() }
      await scenario.expect()
      scenario.app.faults.hasFullDisk = false
      try await scenario.app.typePassword()
      await scenario.expect("prepare", "authorized")
    }
  }

  @Test func attemptsWithoutAnUnlockCode() async throws {
    try await authorized { scenario in
      try await scenario.app.manage(["passwordRules": ["attempts": 2]])
      await scenario.app.end()
      try await scenario.app.start()
      try await scenario.app.typeWrongPassword(times: 2)
      let error = await #expect(throws: AppRuntimeError.self) { try await scenario.app.typePassword() }
      #expect(error?.code == .tooManyAttempts && error?.pause == .seconds(1))
      await scenario.expect()
      scenario.clock.advance(by: .seconds(1))
      try await scenario.app.typePassword()
      await scenario.expect("prepare", "authorized")
    }
  }

  @Test func aRemovedState() async throws {
    try await authorized { scenario in
      try await scenario.app.lock(code: "4711")
      try await scenario.app.typeCode("4711")
      try await scenario.app.typePassword()
      await scenario.app.end()
      await scenario.expect("notAuthorized -303 remoteLock", "prepare", "authorized")
      try FileManager.default.removeItem(atPath: scenario.app.url.path + ".runtime/state")
      try await scenario.app.manage(["locked": nil])
      try await scenario.app.start()
      await #expect(throws: AppRuntimeError.self) { try await scenario.app.typePassword() }
      await scenario.expect("notAuthorized -303 remoteLock")
      try await scenario.app.typeCode("4711")
      try await scenario.app.typePassword()
      await scenario.expect("prepare", "authorized")
    }
  }

  // MARK: Ends

  @Test func wipesOfClosedApps() async throws {
    try await authorized { scenario in
      try await scenario.app.manage(["blocked": [:]])
      await scenario.expect("notAuthorized -301 managementBlock")
      try await scenario.app.wipe()
      await scenario.expect("notAuthorized -302 wiped")
      #expect(!FileManager.default.fileExists(atPath: scenario.app.url.path))
    }
    // The next process finishes it, and says nothing: it is not activated.
    try await authorized { scenario in
      await scenario.app.end()
      try await scenario.app.wipe()
      #expect(try await scenario.app.start().authorization.activation == .notActivated)
      await scenario.expect()
      #expect(!FileManager.default.fileExists(atPath: scenario.app.url.path))
    }
  }

  /// What was decided holds in the next process, and what was under way is not told.
  @Test func killedProcesses() async throws {
    try await authorized { scenario in
      let app = scenario.app
      try app.put("one", at: "/one")
      try await app.container.synchronize()
      await app.kill()
      await app.kill()
      #expect(throws: AppRuntimeError.self) { try app.files }
      await #expect(throws: AppRuntimeError.self) { try await app.typePassword() }
      #expect(await app.breakChannels() == 0)
      try await app.start()
      try await app.typePassword()
      #expect(try app.files.data(atPath: "/one") == Data("one".utf8))
      try await app.manage(["blocked": [:]])
      await app.settle()
      await app.kill()
      #expect(try await app.start().authorization.shown?.code == .blocked)
      await scenario.expect("prepare", "authorized", "notAuthorized -301 managementBlock")
      try await app.manage(["blocked": nil])
      try await app.typePassword()
      await app.kill()
      #expect(throws: AppRuntimeError.self) { try app.container }
    }
  }

  @Test func killedWhileItIsActivated() async throws {
    let (isPreparing, killing) = (Guarded<ManagedTestApp?>(nil), Guarded<Task<Void, Never>?>(nil))
    try await withTestApps { apps in
      let app = try apps.managedApp(
        "com.example.app",
        prepare: { _, _ in
          guard let app = isPreparing.withLock({ $0.take() }) else { return }
          killing.withLock { $0 = Task { await app.kill() } }
          try await Task.sleep(for: .milliseconds(200))
        })
      isPreparing.withLock { $0 = app }
      try await app.start()
      await #expect(throws: AppRuntimeError.self) { try await app.typePassword() }
      await killing.withLock { $0 }?.value
      // The container that was made is there, with its password.
      #expect(FileManager.default.fileExists(atPath: app.url.path))
      #expect(try await app.start().authorization.activation == .activated)
      try await app.typePassword()
      await app.settle()
      #expect(apps.callbacks.take().map(\.call) == ["prepare", "prepare", "authorized"])
    }
  }

  @Test func wrongPasswordsBeforeTheFirst() async throws {
    try await installed { scenario in
      try await scenario.app.start()
      let error = await #expect(throws: AppRuntimeError.self) {
        try await scenario.app.typeWrongPassword()
      }
      #expect(error?.code == .notActivated)
      try await scenario.app.typePassword("another one")
      await scenario.app.end()
      try await scenario.app.start()
      try await scenario.app.typePassword()
      // A file that is refused leaves the members as they were.
      await #expect(throws: AppRuntimeError.self) { try await scenario.app.manage(["lokced": 1]) }
      try await scenario.app.manage(text: Data(#"{"version": 1, "serial": 9}"#.utf8))
      try await scenario.app.manage(["blocked": [:]])
      await scenario.expect(
        "prepare", "authorized", "prepare", "authorized", "notAuthorized -301 managementBlock")
    }
  }

  // MARK: Mail

  /// A request waits for the app's password, and its handler runs behind the event's state.
  @Test func mailForALockedApp() async throws {
    let transfer = WellKnownService.transferFile.definition
    try await withTestApps { apps in
      let app = try await apps.startManaged(
        "com.example.app", prepare: { _, services in try services.offer(transfer) { _ in .reply() } })
      let scenario = Scenario(apps: apps, app: app, clock: ManualClock())
      let sender = try await apps.start("com.example.sender")
      try sender.put("one", at: "/one")
      try await app.manage(["blocked": [:]])
      let sent = try await sender.services.send(
        ServiceRequest(transfer, "transferFile", attachments: ["/one"]), to: app.id)
      while try await sender.services.outbox().first?.state != .locked { await Task.yield() }
      try await app.manage(["blocked": nil])
      try await app.typePassword()
      _ = try await sent.reply()
      await app.settle()
      var calls = apps.callbacks.take().map(\.call).filter { $0 != "servicesUpdate" }
      // The services start before the event is told.
      #expect(calls.contains("authorized"))
      if let place = calls.lastIndex(of: "authorized") { calls.remove(at: place) }
      #expect(
        calls == [
          "prepare", "authorized", "notAuthorized -301 managementBlock", "prepare",
          "request transferFile from com.example.sender", "reply to com.example.sender",
        ])
      #expect(try app.inboxFiles().count == 1)
      try await apps.bringToFront(app.id)
      #expect(try app.services.isInFront)
      await scenario.app.end()
    }
  }
}
