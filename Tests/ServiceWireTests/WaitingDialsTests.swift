import Testing

@testable import ServiceWire

/// Dials that wait, and the programs that are started for them.
struct WaitingDialsTests {
  private static let (a, b, c) = ("com.example.a", "com.example.b", "com.example.c")

  private struct Fixture {
    var presence = AppPresence()
    var programs: [String: WireProgram] = [:]
    var answers = BrokerAnswers()
    var dials: WaitingDials

    init(startCountMax: Int = 8) {
      var limits = BrokerLimits()
      limits.startTime = 1000
      limits.unlockTime = 3000
      limits.startCountMax = startCountMax
      dials = WaitingDials(limits: limits)
      for appID in [a, b, c] { install(appID) }
    }

    mutating func install(_ appID: String) { programs[appID] = .with { $0.path = "/bin/app" } }

    /// The outputs since the last call.
    mutating func outputs() -> [String] { answers.takeOutputs().map(\.text) }

    /// Adds a dial whose question has this number, of a connection with the same number.
    mutating func dial(
      _ n: UInt64, _ target: String, isRunning: Bool = false, now: UInt64, process: Int32 = 1,
      _ purpose: WaitingDials.Dial.Purpose = .channel
    ) -> [String] {
      let question = BrokerQuestion(asker: ConnectionNumber(n), number: n)
      answers.open(question)
      dials.add(
        WaitingDials.Dial(
          question, dialler: "com.example.dialler\(n)", owner: .process(process), purpose: purpose),
        to: target, isRunning: isRunning, now: now, &answers)
      return outputs() + startNext(now)
    }

    mutating func startNext(_ now: UInt64) -> [String] {
      dials.startNext(programs, presence, now: now, &answers)
      return outputs()
    }

    /// As the broker does it.
    mutating func tick(_ now: UInt64) -> [String] {
      dials.endStarts(now: now, &answers)
      dials.startNext(programs, presence, now: now, &answers)
      dials.refuseOverdue(now: now, &answers)
      return outputs()
    }

    /// The questions to answer when the app is in this state.
    mutating func proceed(_ target: String, _ state: WireAppState, now: UInt64) -> [UInt64] {
      dials.proceed(to: target, state, now: now, &answers).map(\.question.number)
    }
  }

  // MARK: Unlocking

  @Test func whoWaitsForAnUnlockingIsRefusedInTime() {
    var it = Fixture()
    #expect(it.dials.isEmpty)
    #expect(it.dial(1, Self.a, isRunning: true, now: 10) == ["wait 1 unlock"])
    #expect(it.dial(2, Self.a, isRunning: true, now: 20) == ["wait 2 unlock"])
    #expect(it.tick(3009) == [])
    #expect(it.tick(3010) == ["fail 1 notAllowed"])
    #expect(it.proceed(Self.a, .running, now: 3011) == [2])
    #expect(it.dials.isEmpty && it.tick(.max / 2) == [])
  }

  @Test func anAppThatIsSuspendedRefusesAllThatWait() {
    var it = Fixture()
    _ = it.dial(1, Self.a, isRunning: true, now: 0)
    _ = it.dial(2, Self.b, isRunning: true, now: 0)
    #expect(it.proceed(Self.a, .suspended, now: 1) == [] && it.outputs() == ["fail 1 processSuspended"])
    #expect(it.proceed(Self.b, .running, now: 1) == [2])
  }

  /// Only those that waited for the start get the time of an unlocking anew.
  @Test func anAppThatStartsLockedIsWaitedFor() {
    var it = Fixture()
    _ = it.dial(1, Self.a, isRunning: true, now: 0)
    #expect(it.dial(2, Self.a, now: 900) == ["wait 2 start", "start com.example.a"])
    #expect(it.proceed(Self.a, .locked, now: 1000) == [] && it.outputs() == ["wait 2 unlock"])
    #expect(it.proceed(Self.a, .locked, now: 2000) == [] && it.outputs() == [])
    #expect(it.dials.startIsOver(of: Self.a) == true)
    #expect(it.tick(2999) == [])
    #expect(it.tick(3000) == ["fail 1 notAllowed"])
    #expect(it.tick(3999) == [])
    #expect(it.tick(4000) == ["fail 2 notAllowed"])
    #expect(it.dials.isEmpty)
  }

  // MARK: Starting

  @Test func oneStartIsForAllWhoWait() {
    var it = Fixture()
    #expect(it.dial(1, Self.a, now: 0) == ["wait 1 start", "start com.example.a"])
    #expect(it.dial(2, Self.a, now: 10) == ["wait 2 start"])
    #expect(it.dials.startIsOver(of: Self.a) == true)
    #expect(it.dials.startIsOver(of: Self.a) == false)
    #expect(it.proceed(Self.a, .running, now: 20) == [1, 2])
    #expect(it.dials.startIsOver(of: Self.b) == false)
    // The start is remembered until *start time* is over, and nothing is ended then.
    #expect(it.tick(999) == [] && !it.dials.isEmpty)
    #expect(it.tick(1000) == [] && it.dials.isEmpty)
  }

  /// Those who came while it was being started have nothing more to wait for.
  @Test func aProgramThatDoesNotComeInTimeIsEndedForAllWhoWait() {
    var it = Fixture()
    _ = it.dial(1, Self.a, now: 0)
    _ = it.dial(2, Self.a, now: 900)
    #expect(it.tick(999) == [])
    #expect(
      it.tick(1000) == ["end com.example.a", "fail 1 applicationNotFound", "fail 2 applicationNotFound"])
    #expect(it.dial(4, Self.a, now: 1000) == ["wait 4 start", "start com.example.a"])
  }

  @Test func anAppThatCameAndWentIsStartedAgainAfterStartTime() {
    var it = Fixture()
    _ = it.dial(1, Self.a, now: 0)
    _ = it.dials.startIsOver(of: Self.a)
    #expect(it.proceed(Self.a, .running, now: 1) == [1])
    #expect(it.dial(2, Self.a, now: 500) == ["wait 2 start"])
    #expect(it.tick(999) == [])
    #expect(it.tick(1000) == ["start com.example.a"])
    // It has a whole start time from then on.
    #expect(it.tick(1999) == [])
    #expect(it.tick(2000) == ["end com.example.a", "fail 2 applicationNotFound"])
    #expect(it.dials.isEmpty)
  }

  @Test func whoFindsNoRoomInTimeIsToldSo() {
    var it = Fixture(startCountMax: 1)
    _ = it.dial(1, Self.a, now: 0)
    #expect(it.dial(2, Self.b, now: 0) == ["wait 2 start"])
    #expect(it.dial(3, Self.c, now: 1) == ["wait 3 start"])
    #expect(it.tick(1000) == ["end com.example.a", "fail 1 applicationNotFound", "start com.example.b"])
    #expect(it.tick(1001) == ["fail 3 limitExceeded: programs being started"])
    #expect(it.tick(2000) == ["end com.example.b", "fail 2 applicationNotFound"])
  }

  @Test func anOwnerHasTwoStartsAndHalfOfWhatOthersLeave() {
    var it = Fixture(startCountMax: 8)
    let apps = (0..<9).map { "com.example.app\($0)" }
    for app in apps { it.install(app) }
    func started(_ outputs: [String]) -> Bool { outputs.contains { $0.hasPrefix("start") } }
    var count = 0
    for (n, app) in apps.enumerated() where started(it.dial(UInt64(n), app, now: 0, process: 1)) {
      count += 1
    }
    #expect(count == 4)
    // Another one has half of the rest.
    count = 0
    for (n, app) in [Self.a, Self.b, Self.c].enumerated()
    where started(it.dial(UInt64(20 + n), app, now: 0, process: 2)) { count += 1 }
    #expect(count == 2)
    // Two are for everybody, as long as there is room at all.
    #expect(started(it.dial(30, apps[8], now: 0, process: 3)))
    #expect(started(it.dial(31, apps[7], now: 0, process: 3)))
    #expect(!started(it.dial(32, apps[6], now: 0, process: 3)))
    #expect(!started(it.dial(33, apps[5], now: 0, process: 4)))
    // A start that is over makes room for who waits longest and may.
    #expect(it.dials.startIsOver(of: apps[0]) == true)
    #expect(it.startNext(1) == ["start \(apps[5])"])
  }

  /// Nothing is started for somebody who has gone, or once there is nothing to start.
  @Test func startsNothingThatNobodyWaitsFor() {
    var it = Fixture(startCountMax: 1)
    _ = it.dial(1, Self.a, now: 0)
    _ = it.dial(2, Self.b, now: 0)
    _ = it.dial(3, Self.c, now: 0)
    it.dials.remove(dialler: ConnectionNumber(2))
    it.programs[Self.c] = nil
    #expect(it.dials.startIsOver(of: Self.a) == true)
    #expect(it.startNext(1) == [])
    #expect(it.tick(1000) == ["fail 1 applicationNotFound", "fail 3 applicationNotFound"])
    #expect(it.dials.isEmpty)
    // It has come by itself.
    it = Fixture()
    it.presence.begin(Self.a, ConnectionNumber(5), process: 5, .running)
    #expect(it.dial(1, Self.a, now: 0) == ["wait 1 start"])
    #expect(it.proceed(Self.a, .running, now: 1) == [1] && it.dials.isEmpty)
  }

  // MARK: The front

  @Test func wishesForTheFrontWaitForTheStartAlone() {
    var it = Fixture()
    _ = it.dial(1, Self.a, now: 0, .front)
    _ = it.dial(2, Self.a, now: 0)
    #expect(it.dials.removeFrontDials(to: Self.a).map(\.question.number) == [1])
    #expect(it.dials.removeFrontDials(to: Self.a).isEmpty && it.dials.removeFrontDials(to: Self.b).isEmpty)
    #expect(it.proceed(Self.a, .running, now: 1) == [2])
  }

  @Test func theUsersChoiceRefusesThemAll() {
    var it = Fixture()
    _ = it.dial(1, Self.b, now: 0, .front)
    _ = it.dial(2, Self.a, now: 0, .front)
    _ = it.dial(3, Self.a, now: 0)
    it.dials.refuseFrontDials(&it.answers)
    #expect(it.outputs() == ["fail 2 frontRefused", "fail 1 frontRefused"])
    it.dials.refuse(Self.a, .applicationNotFound, detail: "d", &it.answers) { _ in true }
    #expect(it.outputs() == ["fail 3 applicationNotFound: d"])
    #expect(it.tick(1000) == ["end com.example.a", "end com.example.b"] && it.dials.isEmpty)
  }
}
