import AppKineticsTesting
import Foundation
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
      await scenario.expect("notAuthorized \(code.prefix(4))")
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
      try await scenario.app.manage(["configuration": ["config": "a"], "appPolicy": 1])
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
}
