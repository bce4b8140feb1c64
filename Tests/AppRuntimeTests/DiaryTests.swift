import AppKineticsTesting
import ContainerStore
import Foundation
import ServiceWire
import TestSupport
import Testing

@testable import AppKinetics

/// The example app with a runtime, as a process: its person types, its owner writes a management file, and it is killed.
@Suite(.timeLimit(.minutes(10)))
struct DiaryTests {
  /// What happens to the diary, in order, and what it has to say then. The password changes from `first` to `second`.
  private enum Step: CaseIterable {
    case start, activate, write, read, lock, code, unlock, block, unblock, unlockAgain, ask, change, wipe

    /// What the owner decides.
    var members: String? {
      switch self {
      case .lock: #""serial": 2, "locked": 2, "unlockCode": "\#(Device.codeHash)""#
      case .block: #""serial": 3, "blocked": {"text": "Call the help desk."}"#
      case .unblock: #""serial": 4"#
      default: nil
      }
    }

    /// What the person types.
    var line: String? {
      switch self {
      case .activate, .unlock, .unlockAgain: "first"
      case .write: "one"
      case .read: ""
      case .code: "4711"
      case .ask: "password"
      case .change: "first second"
      default: nil
      }
    }

    var screen: String? {
      switch self {
      case .start: "-- choose a password"
      case .activate, .unlock, .unlockAgain: "-- diary"
      case .write: nil
      case .read: "one"
      case .lock: "-- unlock code?"
      case .code, .unblock: "-- password?"
      case .block, .wipe: "-- closed"
      case .ask: "-- the password, a space, and a new one?"
      case .change: "the password was changed"
      }
    }
  }

  private struct Place {
    let world: TestApps
    var container: String { world.directory.path + "/Diary" }
    var management: String { world.directory.path + "/managed.json" }

    func start(failAt point: String = "") throws -> Program {
      try Program(
        "Diary", [container, management],
        environment: [
          "OPENDYNAMICS_BROKER": world.socketPath, "HOME": world.directory.path,
          "OPENDYNAMICS_FAIL_AT": point,
        ])
    }

    func manage(_ members: String) throws {
      try Data(#"{"version": 1, \#(members)}"#.utf8).write(
        to: URL(fileURLWithPath: management), options: .atomic)
    }

    /// Goes through the steps until the process ends. Returns the step in which it did.
    func perform(_ program: Program) async throws -> Step? {
      for step in Step.allCases {
        if let members = step.members { try manage(members) }
        if step == .wipe { try manage(#""serial": 5, "wipe": "\#(Container.id(at: container))""#) }
        // A process that has ended reads nothing.
        if let line = step.line { try? program.type(line) }
        if let screen = step.screen, await !program.says(screen) { return step }
        // What was written is stored within 50 ms.
        if step == .read { try await Task.sleep(for: .milliseconds(300)) }
      }
      return nil
    }

    /// The next process after one that was killed in a step: what it asks for is answered until the diary is open. Returns what is in it.
    func recover(after step: Step) async throws -> String {
      let program = try start()
      let order = Step.allCases.firstIndex(of: step)!
      func isBefore(_ other: Step) -> Bool { order <= Step.allCases.firstIndex(of: other)! }
      var isLocked = step == .lock || step == .code
      var serial = 10
      while let line = await program.line() {
        switch line {
        case "-- choose a password":
          #expect(step == .start || step == .activate || step == .wipe, "\(step)")
          try program.type("first")
        case "-- password?":
          // The code may have been accepted.
          if step == .lock { #expect(!isLocked) }
          isLocked = false
          try program.type(step == .change ? "second" : "first")
        case _ where line.contains("the password is wrong"):
          #expect(step == .change)
          try program.type("first")
        case _ where line.contains("cannot be activated"):
          // It was killed between the wipe and its leave.
          #expect(step == .wipe)
          let administrator = try await world.administrator()
          _ = try await administrator.ask(.administer(.with { $0.forget = "com.example.diary" }))
          administrator.close()
          try program.type("first")
        case "-- unlock code?":
          #expect(isLocked, "\(step)")
          isLocked = false
          try program.type("4711")
        case "-- closed":
          #expect(step == .block || step == .unblock, "\(step)")
          serial += 1
          try manage(#""serial": \#(serial)"#)
        case "-- diary":
          #expect(!isLocked, "\(step)")
          try program.type("")
          let text = await program.line() ?? ""
          program.signal(SIGTERM)
          #expect(await program.end() == 0)
          return text
        case _ where line.hasPrefix("*"): break
        default:
          Issue.record("after \(step) it says \(line)")
          return ""
        }
      }
      Issue.record("the next process after \(step) has ended")
      return ""
    }
  }

  @Test func livesTheLifeOfAnApp() async throws {
    try await withTestApps { world in
      let place = Place(world: world)
      let program = try place.start()
      #expect(try await place.perform(program) == nil)
      #expect(await program.end() == 0)
      #expect(!FileManager.default.fileExists(atPath: place.container))
    }
  }

  /// The second of two processes ends, and the first one goes on.
  @Test func isRunByOneProcess() async throws {
    try await withTestApps { world in
      let place = Place(world: world)
      let first = try place.start()
      #expect(await first.says("-- choose a password"))
      #expect(await (try place.start()).end() == 1)
      try first.type("first")
      #expect(await first.says("-- diary"))
      #expect(await (try place.start()).end() == 1)
      first.signal(SIGKILL)
      #expect(await first.end() == SIGKILL)
      // Its lock went with it.
      let next = try place.start()
      #expect(await next.says("-- password?"))
      next.signal(SIGTERM)
      #expect(await next.end() == 0)
    }
  }

  #if DEBUG
    private static let points: [FailPoint] = [
      .created, .enrolled, .counted, .unsealed, .prepared, .decided, .saved, .told, .givingWay, .standingIn,
      .replaced, .noted, .wiping, .destroyed, .leaving,
    ]

    /// Killed at each effect: what the owner decided holds in the next process, what was written is there, and no attempt opens what is closed.
    @Test(arguments: points) func losesNothingWhenItIsKilled(at point: FailPoint) async throws {
      // In the short form some of the moments, other ones in each run.
      var count = TestEffort.count(.random(in: 1...3), long: 1)
      let begin = count
      while try await isKilled(at: "\(point.rawValue):\(count)") {
        count += TestEffort.count(5, long: 1)
      }
      #expect(count > begin || begin > 1, "it never came to \(point)")
    }

    /// False when it came to its end before.
    private func isKilled(at moment: String) async throws -> Bool {
      try await withTestApps { world in
        let place = Place(world: world)
        let program = try place.start(failAt: moment)
        let step = try await place.perform(program)
        let status = await program.end()
        if step == nil, status == 0 { return false }
        #expect(status == SIGKILL, "\(moment)")
        guard status == SIGKILL else { return false }
        // What it said last may have come before the moment.
        let text = try await place.recover(after: step ?? .wipe)
        if let step, ![.start, .activate, .write, .read, .wipe].contains(step) {
          #expect(text == "one", "\(moment) \(step)")
        }
        return true
      }
    }
  #endif
}

extension Program {
  /// Whether it says so before it ends.
  fileprivate func says(_ expected: String) async -> Bool {
    while let line = await line() {
      if line == expected { return true }
      guard line.hasPrefix("*") else {
        Issue.record("it says \(line) and not \(expected)")
        signal(SIGTERM)
        return false
      }
    }
    return false
  }
}
