import BlackBerryDynamicsTesting
import Testing

@testable import BlackBerryDynamics

/// Calls `authorize` again when that has failed.
private final class RetryingHandler: NSObject, GDiOSDelegate, Sendable {
  let told = Told()
  private let prepare: @Sendable () -> Void

  init(_ prepare: @escaping @Sendable () -> Void) { self.prepare = prepare }

  func handle(_ anEvent: GDAppEvent) {
    told.add("event \(anEvent.type.rawValue) \(anEvent.code.rawValue)")
    guard anEvent.type == .notAuthorized else { return }
    prepare()
    GDiOS.sharedInstance().authorize()
  }
}

extension AppTests {
  struct AuthorizationTests {
    @Test func theStateIsSetBeforeTheEventAndTheNotificationComesBetween() async throws {
      try await withGDApp { _, app in
        try await withHandler { handler in
          let gd = GDiOS.sharedInstance()
          #expect(!gd.activationComplete && !gd.state.isAuthorized)
          gd.authorize(handler)
          try await handler.told.wait(for: "event 0 0")
          #expect(handler.told.all == ["state isAuthorized true", "event 0 0"])
          #expect(gd.activationComplete && gd.state.isAuthorized)
          #expect(gd.state.activationState == .activated && gd.state.currentScreen == .none)
          #expect(gd.state.userInterfaceState == .GDUIStateApplicationInFront)
          #expect(app.asked == [.firstPassword] && app.misuses.all.isEmpty)
        }
      }
    }

    /// As in a fresh account.
    @Test func theFoldersAboveTheContainerAreMade() async throws {
      try await withTestApps { apps in
        let place = apps.directory.appendingPathComponent("share/apps/gd")
        let app = GDTestApp("com.example.gd", in: apps) { $0.container = place }
        // It reads no state yet.
        GDConfiguration.noteActivity()
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        await app.end()
        let mode = try FileManager.default.attributesOfItem(atPath: place.deletingLastPathComponent().path)
        #expect(mode[.posixPermissions] as? Int == 0o700)
      }
    }

    /// Existing code asserts that there are no codes but those of an activation by a person.
    @Test func anActivationThatFailsHasTheCodeOfOneByAPerson() async throws {
      try await withTestApps { apps in
        let app = GDTestApp("com.example.gd", in: apps) {
          $0.serviceOptions.broker = apps.directory.path + "/nobody.sock"
        }
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 1 -101")
        #expect(GDiOS.sharedInstance().state.reasonNotAuthorized == .errorActivationFailed)
        await app.end()
      }
    }

    @Test func theNextProcessAsksForThePassword() async throws {
      try await withTestApps { apps in
        for question in [GDQuestion.Kind.firstPassword, .password] {
          let app = GDTestApp("com.example.gd", in: apps)
          let handler = Handler()
          if question == .password { app.type("wrong") }
          GDiOS.sharedInstance().authorize(handler)
          try await handler.told.wait(for: "event 0 0")
          // A wrong password is no event.
          #expect(handler.told.events == ["event 0 0"])
          #expect(app.asked == (question == .password ? [question, question] : [question]))
          await app.end()
        }
      }
    }

    @Test func anAppThatIsAuthorizedHearsItAgain() async throws {
      try await withGDApp { _, app in
        let handler = Handler()
        let gd = GDiOS.sharedInstance()
        gd.delegate = handler
        gd.authorize()
        gd.authorize()
        try await handler.told.wait(for: "event 0 0")
        gd.authorize()
        try await handler.told.wait(for: "event 0 0", count: 2)
        #expect(handler.told.events.count == 2 && app.asked.count == 1)
      }
    }

    @Test func whoDoesNotAnswerTheFirstQuestionIsNotActivated() async throws {
      try await withGDApp { _, app in
        let handler = Handler()
        app.setAnswers(false)
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 1 -102")
        #expect(GDiOS.sharedInstance().state.reasonNotAuthorized == .errorProvisioningFailed)
        app.setAnswers(true)
        GDiOS.sharedInstance().authorize()
        try await handler.told.wait(for: "event 0 0")
        #expect(GDiOS.sharedInstance().state.reasonNotAuthorized == .errorNone)
      }
    }

    /// The handler may run before the attempt that has failed is over.
    @Test(arguments: 0..<10) func aHandlerOfAFailureMayTryAgain(round: Int) async throws {
      try await withGDApp { _, app in
        let handler = RetryingHandler { app.setAnswers(true) }
        app.setAnswers(false)
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        #expect(handler.told.events == ["event 1 -102", "event 0 0"])
      }
    }

    @Test func idleKeepsTheAppAuthorizedAndAsksByItself() async throws {
      let clock = ManualClock()
      try await withGDApp(clock: clock) { _, app in
        try await app.manage(["passwordRules": ["idleSeconds": 60]])
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        app.setAnswers(false)
        clock.advance(by: .seconds(60))
        try await handler.told.wait(for: "event 1 -300")
        let state = GDiOS.sharedInstance().state
        #expect(state.isAuthorized && state.reasonNotAuthorized == .errorIdleLockout)
        #expect(state.userInterfaceState == .GDUIStateGDLibraryInFront && state.currentScreen == .other)
        #expect(GDFileManager.default().createFile(atPath: "/Documents/a", contents: nil))
        app.setAnswers(true)
        GDiOS.sharedInstance().authorize()
        try await handler.told.wait(for: "event 0 0", count: 2)
      }
    }

    @Test func aBlockByTheOwnerTakesTheFilesAndIsNoMisuse() async throws {
      try await withGDApp { _, app in
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        #expect(GDFileManager.default().createFile(atPath: "/Documents/a", contents: nil))
        // What was written in the last 50 ms is lost otherwise, as at a kill.
        try await GDConfiguration.runtime?.container.synchronize()
        try await app.manage(["blocked": ["title": "Blocked", "text": "Call."]])
        try await handler.told.wait(for: "event 1 -301")
        #expect(!GDiOS.sharedInstance().state.isAuthorized)
        #expect(!GDFileManager.default().fileExists(atPath: "/Documents/a"))
        #expect(throws: (any Error).self) { try GDFileManager.default().removeItem(atPath: "/Documents/a") }
        #expect(app.misuses.all.isEmpty)
        GDiOS.sharedInstance().authorize()
        try await handler.told.wait(for: "event 1 -301", count: 2)
        try await app.manage(["blocked": nil])
        try await handler.told.wait(for: "event 0 0", count: 2)
        #expect(GDFileManager.default().fileExists(atPath: "/Documents/a"))
      }
    }

    @Test func aKeyOpensTheAppInTheBackgroundAndThePasswordIsAskedInFront() async throws {
      let key = String(repeating: "k", count: 32)
      try await withTestApps { apps in
        let first = GDTestApp("com.example.gd", in: apps)
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        try GDConfiguration.runtime?.container.store.addKey(.rawKey(SecretBytes(utf8: key)))
        await first.end()

        let app = GDTestApp("com.example.gd", in: apps) { $0.rawKey = { try SecretBytes(utf8: key) } }
        let gd = GDiOS.sharedInstance()
        let next = Handler()
        #expect(!gd.canAuthorizeAutonomously && !gd.authorizeAutonomously(next))
        try GDConfiguration.setForeground(false)
        #expect(gd.canAuthorizeAutonomously && gd.authorizeAutonomously(next))
        try await next.told.wait(for: "event 7 0")
        #expect(gd.state.isAuthorized && gd.state.userInterfaceState != .GDUIStateApplicationInFront)
        #expect(GDFileManager.default().createFile(atPath: "/Documents/a", contents: nil))
        #expect(app.asked.isEmpty)
        try GDConfiguration.setForeground(true)
        try await next.told.wait(for: "event 0 0")
        #expect(next.told.events == ["event 7 0", "event 1 -300", "event 0 0"])
        #expect(app.asked == [.password])
        await app.end()
      }
    }

    @Test func aWipeIsTheEndOfTheProcessAndTheNextOneIsActivatedAnew() async throws {
      try await withTestApps { apps in
        let app = GDTestApp("com.example.gd", in: apps)
        let handler = Handler()
        let gd = GDiOS.sharedInstance()
        gd.authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        try await app.wipe()
        try await handler.told.wait(for: "event 1 -302")
        gd.authorize()
        try await handler.told.wait(for: "event 1 -302", count: 2)
        #expect(!gd.state.isAuthorized && gd.state.reasonNotAuthorized == .errorWiped)
        #expect(app.asked == [.firstPassword])
        await app.end()

        let next = GDTestApp("com.example.gd", in: apps)
        gd.authorize(handler)
        try await handler.told.wait(for: "event 0 0", count: 2)
        #expect(next.asked == [.firstPassword])
        await next.end()
      }
    }

    @Test func aRemoteLockAsksForTheCodeAndThenForThePassword() async throws {
      try await withGDApp { _, app in
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        app.type("0000", "4711")
        try await app.lock(code: "4711")
        try await handler.told.wait(for: "event 0 0", count: 2)
        #expect(handler.told.events == ["event 0 0", "event 1 -303", "event 0 0"])
        #expect(app.asked == [.firstPassword, .unlockCode, .unlockCode, .password])
      }
    }

    @Test func whatALockHasTakenIsNoMisuse() async throws {
      try await withTestApps { apps in
        let first = GDTestApp("com.example.gd", in: apps)
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        first.setAnswers(false)
        try await first.lock(code: "4711")
        await first.end()
        let app = GDTestApp("com.example.gd", in: apps)
        app.setAnswers(false)
        let (gd, next) = (GDiOS.sharedInstance(), Handler())
        gd.authorize(next)
        try await next.told.wait(for: "event 1 -303")
        #expect(gd.getApplicationConfig().isEmpty && gd.getServiceProviders().isEmpty)
        let completion = Told()
        try GDService.bring(toFront: "com.example.peer") { completion.add("front \($0)") }
        try await completion.wait(for: "front false")
        #expect(app.misuses.all.isEmpty)
        await app.end()
      }
    }

    @Test func newRulesAskForANewPassword() async throws {
      try await withTestApps { apps in
        let first = GDTestApp("com.example.gd", in: apps)
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        try await first.manage(["passwordRules": ["minimumLength": 20]])
        await first.end()
        let app = GDTestApp("com.example.gd", in: apps)
        app.type("correct horse", "short", "a password that is long enough")
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0", count: 2)
        #expect(handler.told.events == ["event 0 0", "event 1 -304", "event 0 0"])
        #expect(app.asked == [.password, .passwordChange, .passwordChange])
        await app.end()
      }
    }

    @Test func aPersonChangesThePasswordAndTheActivationIsTold() async throws {
      try await withTestApps { apps in
        let app = GDTestApp("com.example.gd", in: apps)
        let (gd, handler) = (GDiOS.sharedInstance(), Handler())
        #expect(!gd.showPreferenceUI(nil) && gd.getAuthDelegate().name.isEmpty)
        gd.authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        #expect(app.callbacks.map(\.name).contains("GDActivationChangeNotification"))
        #expect(app.callbacks.last?.description == "handle 0 0")
        app.type("another horse")
        #expect(gd.showPreferenceUI(nil))
        while app.asked.count < 2 { try await Task.sleep(for: .milliseconds(10)) }
        // It is asked once at a time, and nothing is told.
        while !gd.showPreferenceUI(nil) { try await Task.sleep(for: .milliseconds(10)) }
        await app.end()
        let next = GDTestApp("com.example.gd", in: apps, password: "another horse")
        gd.authorize(handler)
        try await handler.told.wait(for: "event 0 0", count: 2)
        #expect(next.asked == [.password] && !GDLogManager.sharedInstance().startUpload())
        await next.end()
      }
    }

    @Test func blocksOfTheAppItselfAreStacked() async throws {
      try await withGDApp { _, _ in
        let handler = Handler()
        let gd = GDiOS.sharedInstance()
        gd.authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        gd.executeBlock("a", withTitle: "A", withMessage: "")
        gd.executeBlock("b", withTitle: "B", withMessage: "")
        gd.executeUnblock("a")
        try await handler.told.wait(for: "event 1 -301", count: 2)
        #expect(gd.state.isAuthorized && gd.state.reasonNotAuthorized == .errorBlocked)
        gd.executeUnblock("b")
        try await handler.told.wait(for: "event 0 0", count: 2)
        #expect(gd.state.reasonNotAuthorized == .errorNone)
        #expect(!gd.executeRemoteLock())
      }
    }

    @Test func whatTheOwnerDecidedIsReadUnderTheVendorsNames() async throws {
      try await withGDApp { _, app in
        let handler = Handler()
        let gd = GDiOS.sharedInstance()
        gd.authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        let before = gd.getApplicationConfig()
        #expect(before[GDAppConfigKeyPreventDataLeakageOut] as? Int == 0)
        #expect(before[GDAppConfigKeyExtraInfo] == nil)
        #expect(gd.getApplicationPolicy().isEmpty && gd.getApplicationPolicyString() == "{}")
        try await app.manage([
          "configuration": [
            "preventDataLeakageOut": true, "userID": "user", "extraInfo": "{}",
            "servers": [["host": "server.example.com", "port": 8443]],
          ],
          "appPolicy": ["theme": "dark", "list": [["a": 1], []]],
        ])
        try await handler.told.wait(for: "event 2 0")
        try await handler.told.wait(for: "event 4 0")
        let after = gd.getApplicationConfig()
        #expect(after[GDAppConfigKeyPreventDataLeakageOut] as? Bool == true)
        #expect((after as NSDictionary)[GDAppConfigKeyUserId] as? String == "user")
        #expect(UUID(uuidString: after[GDAppConfigKeyInstanceIdentifier] as? String ?? "") != nil)
        let servers = try #require(after[GDAppConfigKeyServers] as? [GDAppServer])
        #expect(servers.map(\.server) == ["server.example.com"] && servers[0].port.intValue == 8443)
        #expect(servers[0].priority == 1)
        #expect(gd.getApplicationPolicy()["theme"] as? String == "dark")
        #expect(gd.getApplicationPolicyString() == #"{"list":[{"a":1},[]],"theme":"dark"}"#)
      }
    }

    /// A switch in existing code ends in an assertion for other codes.
    @Test func updatesHaveTheirNotificationBeforeTheEvent() async throws {
      try await withGDApp { _, app in
        let handler = Handler()
        let told = handler.told
        let observer = NotificationCenter.default.addObserver(
          forName: .GDPolicyUpdate, object: GDiOS.sharedInstance().state, queue: nil
        ) { _ in told.add("policy") }
        defer { NotificationCenter.default.removeObserver(observer) }
        GDiOS.sharedInstance().authorize(handler)
        try await told.wait(for: "event 0 0")
        try await app.manage(["appPolicy": ["a": 1]])
        try await told.wait(for: "event 4 0")
        #expect(told.all.suffix(2) == ["policy", "event 4 0"])
      }
    }
  }
}
