import AppKineticsTesting
import Foundation
import Locks
import SecureFiles
import SodiumPrimitives
import TestSupport
import Testing

@testable import AppRuntime

/// One app after another: activated, locked, unlocked, blocked, wiped, with a real container, a real broker and a clock of the test's.
@Suite(.timeLimit(.minutes(2)))
struct LifeTests {
  private func told(_ kind: AuthorizationEvent.Kind, _ code: AuthorizationCode = .none) -> Device.Told {
    Device.Told(kind: kind, code: code)
  }

  @Test func isActivatedOnceAndAuthorizedInEachProcess() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.start()
      #expect(runtime.authorization.activation == .notActivated && runtime.authorization.asks == .password)
      #expect(try await code { try await runtime.authorize(passphrase: password()) } == .notActivated)
      try await runtime.activate(passphrase: password())
      #expect(await device.events() == [told(.authorized)])
      try runtime.container.files.write(Data("a".utf8), toPath: "/a")
      let instance = try #require(runtime.instanceIdentifier)
      #expect(try await code { try await runtime.activate(passphrase: password()) } == .alreadyActivated)

      let next = try await device.restart()
      #expect(next.authorization.activation == .activated && !next.authorization.isAuthorized)
      try await next.authorize(passphrase: password())
      #expect(await device.events() == [told(.authorized)])
      #expect(try next.container.files.data(atPath: "/a") == Data("a".utf8))
      #expect(next.instanceIdentifier == instance && device.preparationCount == 2)
      await device.stop()
    }
  }

  /// Nothing of the container is left, and the id is free again.
  @Test func anActivationThatFailsLeavesNothing() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      await world.stopBroker()
      let fails = Guarded(false)
      let runtime = try await device.start(prepare: { _, _ in
        if fails.withLock({ $0 }) { throw POSIXError(.EIO) }
      })
      #expect(try await code { try await runtime.activate(passphrase: password()) } == .activationFailed)
      #expect(await device.events() == [told(.notAuthorized, .noNetwork)])
      #expect(!FileManager.default.fileExists(atPath: device.url.path))
      try await world.startBroker()
      fails.withLock { $0 = true }
      #expect(try await code { try await runtime.activate(passphrase: password()) } == .activationFailed)
      #expect(await device.events() == [told(.notAuthorized, .activationUnknown)])
      #expect(!FileManager.default.fileExists(atPath: device.url.path))
      #expect(runtime.authorization.activation == .notActivated)
      await device.stop()
      // The broker knows no key of the container that is gone.
      try await device.start().activate(passphrase: password())
      #expect(await device.events() == [told(.authorized)])
      await device.stop()
    }
  }

  @Test(arguments: [false, true]) func aContainerFromBeforeIsActivated(isManaged: Bool) async throws {
    try await withTestApps { world in
      let device = try Device(world)
      try await device.write(#""serial": 1"#)
      try await SecureContainer.create(at: device.url, passphrase: password(), options: cheapOptions).close()
      let runtime = try await device.start(isManaged: isManaged)
      #expect(runtime.authorization.activation == .activated)
      try await runtime.authorize(passphrase: password())
      #expect(runtime.instanceIdentifier != nil)
      await device.stop()
    }
  }

  @Test func locksAfterIdleTimeAndKeepsTheContainerOpen() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated(#""serial": 1, "passwordRules": {"idleSeconds": 60}"#)
      _ = await device.events()
      device.clock.advance(by: .seconds(59))
      runtime.noteActivity()
      device.clock.advance(by: .seconds(59))
      #expect(runtime.authorization.shown == nil)
      device.clock.advance(by: .seconds(1))
      #expect(await device.events() == [told(.notAuthorized, .idleLockout)])
      #expect(runtime.authorization.isAuthorized && runtime.authorization.asks == .password)
      try runtime.container.files.write(Data("a".utf8), toPath: "/background")
      // Activity after the deadline is no activity.
      runtime.noteActivity()
      #expect(runtime.authorization.shown == .idle)
      #expect(try await code { try await runtime.authorize(passphrase: password("wrong")) } == .wrongPassword)
      #expect(await device.events() == [])
      let container = try runtime.container
      try await runtime.authorize(passphrase: password())
      #expect(await device.events() == [told(.authorized)])
      // No new objects, and nothing is set up a second time.
      #expect(try runtime.container === container && device.preparationCount == 1)
      await device.stop()
    }
  }

  @Test func aBlockByManagementTakesTheKeys() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated()
      let container = try runtime.container
      try container.files.write(Data("a".utf8), toPath: "/a")
      try await container.synchronize()
      let handle = try #require(SecureFileHandle(forReadingAtPath: "/a", in: container.files))
      try await device.write(#""serial": 1, "blocked": {"title": "No", "text": "Call us."}"#)
      #expect(await device.events() == [told(.notAuthorized, .blocked)])
      #expect(throws: CocoaError.self) { try handle.readToEnd() }
      #expect(throws: CocoaError.self) { try container.files.data(atPath: "/a") }
      let error = #expect(throws: AppRuntimeError.self) { try runtime.container }
      #expect(error?.withdrawal == .managementBlock(Notice(title: "No", text: "Call us.")))
      #expect(runtime.authorization.asks == .nothing)
      #expect(try await code { try await runtime.authorize(passphrase: password()) } == .notAuthorized)
      #expect(await device.events() == [told(.notAuthorized, .blocked)])

      try await device.write(#""serial": 2"#)
      #expect(await device.events() == [] && runtime.authorization.asks == .password)
      try await runtime.authorize(passphrase: password())
      #expect(await device.events() == [told(.authorized)])
      #expect(try runtime.container !== container && device.preparationCount == 2)
      #expect(try runtime.container.files.data(atPath: "/a") == Data("a".utf8))
      await device.stop()
    }
  }

  /// Not by a later start, and not by leaving the option out.
  @Test func whatAnOwnerDecidedHoldsInTheNextProcess() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      _ = try await device.activated()
      try await device.write(#""serial": 1, "entitlements": {"com.example.other": ["1.0.0.0"]}"#)
      #expect(device.runtime.authorization.shown == .notEntitled)
      try FileManager.default.removeItem(atPath: device.managementPath)
      for isManaged in [true, false] {
        let runtime = try await device.restart(isManaged: isManaged)
        #expect(runtime.authorization.shown == .notEntitled && runtime.authorization.asks == .nothing)
        #expect(try await code { try await runtime.authorize(passphrase: password()) } == .notAuthorized)
      }
      // An older decision, and one that is no file of this kind, change nothing.
      try await device.restart()
      await #expect(throws: AppRuntimeError.self) { try await device.write(#""serial": 0"#) }
      await #expect(throws: AppRuntimeError.self) { try await device.write(#""serial": 1"#) }
      #expect(device.runtime.authorization.shown == .notEntitled)
      try await device.write(#""serial": 2, "entitlements": {"com.example.app": ["2.0.0.0"]}"#)
      #expect(device.runtime.authorization.shown == .versionNotEntitled)
      try await device.write(#""serial": 3, "entitlements": {"com.example.app": ["1.0.0.0"]}"#)
      try await device.runtime.authorize(passphrase: password())
      await device.stop()
    }
  }

  @Test func localBlocksAreKeptAndKeepTheKeys() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated()
      runtime.block(LocalBlock(id: "a", notice: Notice(title: "A", text: "a")))
      #expect(await device.events() == [told(.notAuthorized, .blocked)])
      #expect(runtime.authorization.isAuthorized)
      try runtime.container.files.write(Data(), toPath: "/a")
      let next = try await device.restart()
      try await next.authorize(passphrase: password())
      #expect(await device.events() == [told(.notAuthorized, .blocked)])
      #expect(next.authorization.isAuthorized && next.authorization.presentation == .asking(.nothing))
      next.unblock(id: "a")
      #expect(await device.events() == [told(.authorized)])
      await device.stop()
    }
  }

  // MARK: Passwords and codes

  @Test func tooManyWrongPasswordsLockAnAppWithAnUnlockCode() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      _ = try await device.activated(#""serial": 1, "unlockCode": "CODE", "passwordRules": {"attempts": 3}"#)
      for i in 1...3 {
        // Counted over processes, and with a container that a handle keeps.
        let runtime = try await device.restart()
        #expect(
          try await code { try await runtime.authorize(passphrase: password("wrong")) } == .wrongPassword,
          "\(i)")
      }
      #expect(await device.events() == [told(.notAuthorized, .remoteLockout)])
      let runtime = try await device.restart()
      #expect(runtime.authorization.asks == .unlockCode)
      #expect(try await code { try await runtime.authorize(passphrase: password()) } == .notAuthorized)
      // The code has a pause, too.
      #expect(try await code { try await runtime.unlock(code: password("4711")) } == .tooManyAttempts)
      device.clock.advance(by: .seconds(2))
      #expect(try await code { try await runtime.unlock(code: password("4712")) } == .wrongUnlockCode)
      #expect(try await code { try await runtime.unlock(code: password("4711")) } == .tooManyAttempts)
      device.clock.advance(by: .seconds(300))
      try await runtime.unlock(code: password("4711"))
      #expect(runtime.authorization.asks == .password)
      try await runtime.authorize(passphrase: password())
      await device.stop()
    }
  }

  @Test func withoutAnUnlockCodeEachFurtherAttemptWaits() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      _ = try await device.activated(#""serial": 1, "passwordRules": {"attempts": 2}"#)
      let runtime = try await device.restart()
      func attempt(_ text: String = "wrong") async throws -> AppRuntimeError.Code? {
        try await code { try await runtime.authorize(passphrase: password(text)) }
      }
      #expect(try await attempt() == .wrongPassword)
      #expect(try await attempt() == .wrongPassword)
      for pause in [1, 2, 4, 8] {
        device.clock.advance(by: .milliseconds(pause * 1000 - 1))
        #expect(try await attempt("correct horse") == .tooManyAttempts, "\(pause)")
        // Setting the clock helps nobody.
        device.clock.set(date: device.clock.date + 86_400)
        #expect(try await attempt("correct horse") == .tooManyAttempts)
        device.clock.advance(by: .milliseconds(1))
        #expect(try await attempt() == .wrongPassword)
      }
      // Nor does a new process.
      let next = try await device.restart()
      #expect(try await code { try await next.authorize(passphrase: password()) } == .tooManyAttempts)
      device.clock.advance(by: .seconds(16))
      try await next.authorize(passphrase: password())
      #expect(next.authorization.isAuthorized)
      await device.stop()
    }
  }

  @Test func remoteLockNeedsAKnownCode() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated()
      #expect(await !runtime.remoteLock() && runtime.authorization.isAuthorized)
      try await device.write(#""serial": 1, "unlockCode": "CODE""#)
      #expect(await runtime.remoteLock())
      #expect(await device.events() == [told(.notAuthorized, .remoteLockout)])
      #expect(!runtime.authorization.isAuthorized)
      let next = try await device.restart()
      #expect(next.authorization.asks == .unlockCode)
      try await next.unlock(code: password("4711"))
      try await next.authorize(passphrase: password())
      await device.stop()
    }
  }

  @Test func aStateThatWasRemovedAsksForTheUnlockCode() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      _ = try await device.activated(#""serial": 1, "unlockCode": "CODE""#)
      await device.stop()
      let state = device.url.path + ".runtime/state"
      let old = try Data(contentsOf: URL(fileURLWithPath: state))
      try await device.start().authorize(passphrase: password())
      try await device.write(#""serial": 2, "unlockCode": "CODE""#)
      await device.stop()
      // Removed, damaged, put back.
      let contents: [Data?] = [nil, Data("x".utf8), old]
      for content in contents {
        try FileManager.default.removeItem(atPath: state)
        try content?.write(to: URL(fileURLWithPath: state))
        let runtime = try await device.start()
        let error = try await code { try await runtime.authorize(passphrase: password()) }
        #expect(error == .notAuthorized && runtime.authorization.asks == .unlockCode)
        #expect(throws: AppRuntimeError.self) { try runtime.container }
        try await runtime.unlock(code: password("4711"))
        try await runtime.authorize(passphrase: password())
        #expect(runtime.authorization.isAuthorized)
        try await device.restart().authorize(passphrase: password())
        await device.stop()
      }
    }
  }

  @Test func aNewPasswordFollowsTheRules() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      _ = try await device.activated()
      try await device.write(
        #""serial": 1, "passwordRules": {"minimumLength": 8, "requiresDigit": true, "history": 2}"#)
      let runtime = try await device.restart()
      try await runtime.authorize(passphrase: password())
      #expect(await device.events() == [told(.notAuthorized, .passwordChangeRequired)])
      #expect(runtime.authorization.asks == .newPassword && runtime.authorization.isAuthorized)
      func change(_ old: String, _ new: String) async throws -> AppRuntimeError.Code? {
        try await code { try await runtime.changePassword(password(old), to: password(new)) }
      }
      #expect(try await change("correct horse", "short1") == .passwordRefused)
      #expect(try await change("wrong", "correct horse 1") == .wrongPassword)
      #expect(await device.events() == [])
      #expect(try await change("correct horse", "correct horse 1") == nil)
      #expect(await device.events() == [told(.authorized)])
      #expect(try await change("correct horse 1", "correct horse 1") == .passwordRefused)
      #expect(try await change("correct horse 1", "correct horse 2") == nil)
      #expect(try await change("correct horse 2", "correct horse 1") == .passwordRefused)
      #expect(try await change("correct horse 2", "correct horse 3") == nil)
      #expect(try await change("correct horse 3", "correct horse 1") == nil)
      let next = try await device.restart()
      #expect(
        try await code { try await next.authorize(passphrase: password("correct horse 3")) } == .wrongPassword
      )
      try await next.authorize(passphrase: password("correct horse 1"))
      // The password grows old, and a clock that is set back makes it no younger.
      try await device.write(#""serial": 2, "passwordRules": {"maximumDays": 30}"#)
      device.clock.advance(by: .seconds(31 * 86_400))
      try await device.restart().authorize(passphrase: password("correct horse 1"))
      #expect(device.runtime.authorization.shown == .passwordChange)
      device.clock.set(date: device.clock.date - 300 * 86_400)
      try await device.restart().authorize(passphrase: password("correct horse 1"))
      #expect(device.runtime.authorization.shown == .passwordChange)
      await device.stop()
    }
  }

  // MARK: Without a person

  @Test func isAuthorizedWithoutAPersonInTheBackgroundAlone() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let key = String(repeating: "k", count: 32)
      let runtime = try await device.activated()
      try runtime.container.store.addKey(.rawKey(SecretBytes(utf8: key)))
      await device.stop()
      let next = try await device.start(rawKey: { try SecretBytes(utf8: key) })
      #expect(next.autonomousObstacle == .inForeground)
      #expect(await !next.authorizeAutonomously())
      #expect(await device.events() == [])
      next.setForeground(false)
      #expect(await next.authorizeAutonomously())
      #expect(await device.events() == [told(.backgroundAuthorized)])
      #expect(next.authorization.keys == .openedWithoutPerson && next.autonomousObstacle == .authorized)
      try next.container.files.write(Data(), toPath: "/a")
      next.setForeground(true)
      #expect(await device.events() == [told(.notAuthorized, .idleLockout)])
      #expect(next.authorization.asks == .password)
      try await next.authorize(passphrase: password())
      #expect(await device.events() == [told(.authorized)])
      #expect(next.authorization.keys == .openedByPerson)
      await device.stop()

      let wrong = try await device.start(rawKey: { try SecretBytes(utf8: String(repeating: "x", count: 32)) })
      wrong.setForeground(false)
      #expect(await wrong.authorizeAutonomously())
      #expect(await device.events() == [told(.backgroundNotAuthorized, .securityError)])
      await device.stop()
    }
  }

  // MARK: Wiping

  @Test func aWipeNamesItsContainerAndTheAppCanBeActivatedAnew() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated()
      let container = try runtime.container
      try container.files.write(Data("a".utf8), toPath: "/a")
      try await device.write(#""serial": 1, "wipe": "\#(Identifier.random().hex)""#)
      #expect(runtime.authorization.isAuthorized)
      let waiting = Task { try await runtime.whenAuthorized() }
      _ = try await waiting.value
      try await device.write(#""serial": 2, "wipe": "\#(container.store.id.hex)""#)
      #expect(await device.events() == [told(.notAuthorized, .wiped)])
      #expect(!FileManager.default.fileExists(atPath: device.url.path))
      #expect(runtime.authorization.asks == .nothing)
      #expect(try await code { _ = try await runtime.whenAuthorized() } == .notAuthorized)
      #expect(try await code { try await runtime.activate(passphrase: password()) } == .notAuthorized)

      let next = try await device.restart()
      #expect(next.authorization.activation == .notActivated && next.authorization.shown == nil)
      try await next.activate(passphrase: password("another password"))
      #expect(await device.events() == [told(.authorized)])
      #expect(try !next.container.files.fileExists(atPath: "/a"))
      await device.stop()
    }
  }

  /// Decided, or begun, and then the process was killed.
  @Test(arguments: [false, true]) func aWipeThatWasInterruptedIsFinishedByTheNextProcess(hasBegun: Bool)
    async throws
  {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated()
      let id = try runtime.container.store.id
      await device.stop()
      do {
        let file = try StateFile(PosixBlockIO(device.url.path + ".runtime"))
        var kept = try #require(try file.read())
        if hasBegun {
          kept.wiping = id
        } else {
          kept.managed = Data(#"{"version": 1, "serial": 1, "wipe": "\#(id.hex)"}"#.utf8)
        }
        try file.write(kept)
      }
      let next = try await device.start()
      #expect(next.authorization.activation == .notActivated)
      #expect(!FileManager.default.fileExists(atPath: device.url.path))
      await device.stop()
    }
  }

  // MARK: Races and mistakes

  /// While the password is being hashed, while the app is being set up, or just before or after.
  @Test func aBlockAtAnyMomentWins() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      _ = try await device.activated()
      var random = SplitMix64(seed: 7)
      var refusedCount = 0
      for serial in stride(from: 1, to: 2 * TestEffort.count(30, long: 300), by: 2) {
        try await device.write(#""serial": \#(serial)"#)
        if serial == 1 { try await device.restart() }
        let runtime = device.runtime
        let opening = Task { try await code { try await runtime.authorize(passphrase: password()) } }
        try await Task.sleep(for: .microseconds(random.below(20_000)))
        try await device.write(#""serial": \#(serial + 1), "blocked": {}"#)
        let result = try await opening.value
        #expect(result == nil || result == .notAuthorized, "\(String(describing: result))")
        if result != nil { refusedCount += 1 }
        #expect(!runtime.authorization.isAuthorized && runtime.authorization.asks == .nothing)
        #expect(throws: AppRuntimeError.self) { try runtime.container }
        // The container was let go: somebody else could open it.
        try await SecureContainer.open(at: device.url, passphrase: password(), options: cheapOptions).close()
      }
      await device.stop()
      #expect(refusedCount > 0)
    }
  }

  /// While the app is being set up its keys are open already, and go with a withdrawal, a wipe and the end.
  @Test(arguments: ["block", "wipe", "stop"]) func anOpeningUnderWayIsSealed(by end: String) async throws {
    try await withTestApps { world in
      let device = try Device(world)
      _ = try await device.activated()
      await device.stop()
      let gate = Guarded(false)
      let opened = Guarded<SecureContainer?>(nil)
      let runtime = try await device.start(prepare: { container, _ in
        opened.withLock { $0 = container }
        while !gate.withLock({ $0 }) { await Task.yield() }
      })
      let opening = Task { try await code { try await runtime.authorize(passphrase: password()) } }
      while opened.withLock({ $0 }) == nil { await Task.yield() }
      let container = try #require(opened.withLock { $0 })
      #expect(throws: Never.self) { try container.files.contentsOfDirectory(atPath: "/") }
      switch end {
      case "block": try await device.write(#""serial": 1, "blocked": {}"#)
      case "wipe": try await device.write(#""serial": 1, "wipe": "\#(container.store.id.hex)""#)
      default: break
      }
      // It waits for the app's own code.
      let stopping = Task { if end == "stop" { await device.stop() } }
      while end == "stop", (try? container.files.contentsOfDirectory(atPath: "/")) != nil {
        await Task.yield()
      }
      #expect(throws: CocoaError.self) { try container.files.contentsOfDirectory(atPath: "/") }
      if end == "wipe" {
        await runtime.settle()
        #expect(!FileManager.default.fileExists(atPath: device.url.path))
      }
      gate.withLock { $0 = true }
      #expect(try await opening.value == .notAuthorized)
      #expect(!runtime.authorization.isAuthorized)
      await stopping.value
      if end != "stop" { await device.stop() }
    }
  }

  @Test func nothingIsMadeForAnAppThatIsBlocked() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      try await device.write(#""serial": 1, "blocked": {}"#)
      let runtime = try await device.start()
      #expect(try await code { try await runtime.activate(passphrase: password()) } == .notAuthorized)
      #expect(!FileManager.default.fileExists(atPath: device.url.path) && device.preparationCount == 0)
      await device.stop()
    }
  }

  @Test func aPersonWhoComesWhileTheKeyOpensIsAsked() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let key = String(repeating: "k", count: 32)
      try await device.activated().container.store.addKey(.rawKey(SecretBytes(utf8: key)))
      await device.stop()
      let comes = Guarded<(@Sendable () -> Void)?>(nil)
      let runtime = try await device.start(
        rawKey: { try SecretBytes(utf8: key) }, prepare: { _, _ in comes.withLock { $0 }?() })
      comes.withLock { $0 = { runtime.setForeground(true) } }
      runtime.setForeground(false)
      #expect(await runtime.authorizeAutonomously())
      #expect(runtime.authorization.shown == .idle && runtime.authorization.asks == .password)
      comes.withLock { $0 = nil }
      await device.stop()
    }
  }

  /// Links to one container have one count of attempts.
  @Test func aLinkToTheContainerHasItsState() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      _ = try await device.activated(#""serial": 1, "unlockCode": "CODE", "passwordRules": {"attempts": 1}"#)
      await device.stop()
      let link = world.directory.appendingPathComponent("link")
      try FileManager.default.createSymbolicLink(at: link, withDestinationURL: device.url)
      let runtime = try await device.start(at: link)
      #expect(try await code { try await runtime.authorize(passphrase: password("wrong")) } == .wrongPassword)
      await device.stop()
      #expect(try await device.start().authorization.asks == .unlockCode)
      await device.stop()
    }
  }

  /// The owner's lock is there before the app, and outlives a wipe.
  @Test func anAppThatIsLockedBeforeItsActivationTakesTheCode() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      try await device.write(#""serial": 1, "unlockCode": "CODE", "locked": 1"#)
      let runtime = try await device.start()
      #expect(try await code { try await runtime.activate(passphrase: password()) } == .notAuthorized)
      try await runtime.unlock(code: password("4711"))
      try await runtime.activate(passphrase: password())
      let id = try runtime.container.store.id
      try await device.write(#""serial": 2, "unlockCode": "CODE", "locked": 2, "wipe": "\#(id.hex)""#)
      let next = try await device.restart()
      #expect(next.authorization.activation == .notActivated && next.authorization.asks == .unlockCode)
      try await next.unlock(code: password("4711"))
      try await next.activate(passphrase: password())
      await device.stop()
    }
  }

  @Test func codesHaveALimitWithoutARule() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated(#""serial": 1, "unlockCode": "CODE""#)
      #expect(await runtime.remoteLock())
      for _ in 0..<5 {
        #expect(try await code { try await runtime.unlock(code: password("4712")) } == .wrongUnlockCode)
      }
      #expect(try await code { try await runtime.unlock(code: password("4711")) } == .tooManyAttempts)
      device.clock.advance(by: .seconds(1))
      try await runtime.unlock(code: password("4711"))
      await device.stop()
    }
  }

  @Test func whatTheAppThrowsClosesEverythingAgain() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      _ = try await device.activated()
      await device.stop()
      let runtime = try await device.start(prepare: { _, _ in throw POSIXError(.EIO) })
      #expect(try await code { try await runtime.authorize(passphrase: password()) } == .preparationFailed)
      #expect(await device.events() == [told(.notAuthorized, .securityError)])
      #expect(!runtime.authorization.isAuthorized)
      try await SecureContainer.open(at: device.url, passphrase: password(), options: cheapOptions).close()
      await device.stop()
    }
  }

  @Test func oneProcessRunsTheApp() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      try await device.start()
      let second = try Device(world)
      #expect(try await code { try await second.start() } == .alreadyRunning)
      await device.stop()
      try await second.start()
      await second.stop()
    }
  }

  @Test func askingBeforeTheFirstAuthorizationIsAMistake() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.start()
      #expect(throws: AppRuntimeError.self) { try runtime.container }
      #expect(throws: AppRuntimeError.self) { try runtime.services }
      #expect(device.misuses == ["misuse container", "misuse services"])
      try await runtime.activate(passphrase: password())
      try await device.write(#""serial": 1, "blocked": {}"#)
      // That is no mistake: it may happen at any time.
      #expect(throws: AppRuntimeError.self) { try runtime.container }
      #expect(device.misuses.count == 2)
      await device.stop()
    }
  }

  @Test func waitsToBeAuthorizedOverASeal() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated()
      try await device.write(#""serial": 1, "blocked": {}"#)
      let waiting = Task { try await runtime.whenAuthorized().container }
      let cancelled = Task { try await runtime.whenAuthorized() }
      while runtime.state.withLock({ $0.waiting.count }) < 2 { await Task.yield() }
      cancelled.cancel()
      await #expect(throws: CancellationError.self) { try await cancelled.value }
      try await device.write(#""serial": 2"#)
      try await runtime.authorize(passphrase: password())
      #expect(try await waiting.value === runtime.container)
      let last = Task { try await runtime.whenAuthorized() }
      _ = try await last.value
      await device.stop()
      #expect(try await code { _ = try await runtime.whenAuthorized() } == .notAuthorized)
    }
  }

  @Test func newProvidersAreAnUpdate() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated()
      let other = try await world.start("com.example.other") { try $0.offer(echo) { .reply($0.params) } }
      var events: [Device.Told] = []
      var count = 0
      // What the runtime finds first is no update, whenever that is.
      while !events.contains(told(.servicesUpdate)) {
        count += 1
        let next = ServiceDefinition(
          serviceID: echo.serviceID, version: try ServiceVersion("2.0.0.\(count)"), methods: echo.methods)
        try other.services.offer(next) { .reply($0.params) }
        try await Task.sleep(for: .milliseconds(20))
        events += await device.events()
      }
      _ = try await runtime.services.providers()
      try await Task.sleep(for: .milliseconds(100))
      _ = await device.events()
      // It goes to sleep, and offers the same.
      try await other.services.setState(.locked)
      while try await runtime.services.providers(of: echo.serviceID).first?.state != .locked {
        await Task.yield()
      }
      #expect(await device.events() == [])
      await device.stop()
    }
  }

  @Test func updatesAreToldOnceAndOnlyToAnAuthorizedApp() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated()
      try await device.write(#""serial": 1, "configuration": {"config": "a"}, "appPolicy": 1"#)
      #expect(await device.events() == [told(.settingsUpdate), told(.policyUpdate)])
      #expect(runtime.configuration.config == "a" && runtime.appPolicy == .integer(1))
      try await device.write(#""serial": 2, "configuration": {"config": "a"}, "appPolicy": 2, "blocked": {}"#)
      #expect(await device.events() == [told(.notAuthorized, .blocked)])
      try await device.write(#""serial": 3, "configuration": {"config": "a"}, "appPolicy": 3"#)
      #expect(await device.events() == [])
      try await runtime.authorize(passphrase: password())
      #expect(await device.events() == [told(.authorized), told(.policyUpdate)])
      await device.stop()
    }
  }
}
