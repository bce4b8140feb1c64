import Foundation
import Testing

@testable import ServiceWire

/// Starts, and who is in front.
struct BrokerFrontTests {
  private let a = "com.example.a"
  private let b = "com.example.b"
  private let c = "com.example.c"

  // MARK: Starts

  private func registered(_ world: BrokerWorld, _ appID: String) {
    let app = world.enrol(appID)
    world.register(app)
    world.install(appID, "/usr/bin/app")
    world.disconnect(app)
  }

  @Test func anAppThatComesAndGoesIsNotStartedAgainWithinStartTime() {
    let world = BrokerWorld()
    registered(world, b)
    let one = world.enrol(a)
    // The dialler comes and goes.
    for _ in 0..<3 {
      let dialler = world.enrol(c)
      world.ask(dialler, .connect(.with { $0.appID = b }))
      world.disconnect(dialler)
    }
    #expect(world.starts == [b])
    let first = world.ask(one, .connect(.with { $0.appID = b }))
    let app = world.enrol(b)
    #expect(world.failure(one, first) == 0)
    world.disconnect(app)
    let second = world.ask(one, .connect(.with { $0.appID = b }))
    world.tick(9_999)
    #expect(world.starts == [b] && world.failure(one, second) == nil)
    world.tick(1)
    #expect(world.starts == [b, b] && world.failure(one, second) == nil)
    _ = world.enrol(b)
    #expect(world.failure(one, second) == 0)
  }

  @Test func soManyProgramsAreStartedAtOnce() {
    var limits = BrokerLimits()
    limits.startCountMax = 2
    let world = BrokerWorld(limits: limits)
    let apps = (0..<4).map { "com.example.app\($0)" }
    for app in apps { registered(world, app) }
    let one = world.enrol(a)
    let dials = apps.map { app in world.ask(one, .connect(.with { $0.appID = app })) }
    #expect(world.starts == Array(apps[..<2]))
    _ = world.enrol(apps[0])
    #expect(world.starts == Array(apps[..<3]))
    // The one that cannot be started makes room, too.
    world.perform(world.state.startFailed(apps[1], now: world.now))
    #expect(world.starts == apps && world.failure(one, dials[1]) == 3)
    // No room in time.
    registered(world, b)
    let late = world.ask(one, .connect(.with { $0.appID = b }))
    world.perform(world.state.tick(now: world.now))
    #expect(world.starts == apps)
    world.now += 1
    let later = world.ask(one, .connect(.with { $0.appID = b }))
    world.tick(9_999)
    #expect(world.starts == apps + [b])
    #expect(world.failure(one, late) == nil && world.failure(one, later) == nil)
    #expect(world.failure(one, dials[2]) == 3)
  }

  /// Who dials everything at once keeps nobody else's apps from being started.
  @Test func whoDialsHasHalfOfTheStartsThatOthersLeave() {
    var limits = BrokerLimits()
    #expect(limits.startCountMax == 8)
    limits.plainApps = .open(.max)
    limits.sandboxedApps = .open(.max)
    let world = BrokerWorld(limits: limits)
    let apps = (0..<9).map { "com.example.app\($0)" }
    for app in apps + [b, c] { registered(world, app) }
    let greedy = world.enrol("com.example.greedy", origin: .sandbox("box"))
    // Another connection of the same sandbox.
    let second = world.enrol("com.example.second", origin: .sandbox("box"))
    for app in apps { world.ask(greedy, .connect(.with { $0.appID = app })) }
    world.ask(second, .connect(.with { $0.appID = c }))
    #expect(world.starts == Array(apps[..<4]))
    let one = world.enrol(a)
    let dial = world.ask(one, .connect(.with { $0.appID = b }))
    #expect(world.starts == Array(apps[..<4]) + [b])
    // What the sandbox waits for already, somebody else may have started.
    world.ask(one, .connect(.with { $0.appID = c }))
    #expect(world.starts == Array(apps[..<4]) + [b, c])
    _ = world.enrol(b)
    #expect(world.failure(one, dial) == 0)
    _ = world.enrol(apps[0])
    #expect(world.starts == Array(apps[..<4]) + [b, c])
    _ = world.enrol(apps[1])
    #expect(world.starts == Array(apps[..<4]) + [b, c, apps[4]])
  }

  @Test func endsAProgramWhoseAppDoesNotComeInTime() {
    let world = BrokerWorld()
    registered(world, b)
    registered(world, c)
    let one = world.enrol(a)
    world.ask(one, .connect(.with { $0.appID = b }))
    world.ask(one, .connect(.with { $0.appID = c }))
    _ = world.enrol(c)
    world.tick(9_999)
    #expect(world.endedPrograms.isEmpty)
    world.tick(1)
    #expect(world.endedPrograms == [b])
    world.tick(60_000)
    #expect(world.endedPrograms == [b])
  }

  @Test func aDialThatFindsNoRoomToStartInTimeSaysSo() {
    var limits = BrokerLimits()
    limits.startCountMax = 1
    let world = BrokerWorld(limits: limits)
    registered(world, b)
    registered(world, c)
    let one = world.enrol(a)
    let first = world.ask(one, .connect(.with { $0.appID = b }))
    world.tick(1)
    // b does not come; another dial to it starts it again just when its time is over, before c.
    let second = world.ask(one, .connect(.with { $0.appID = c }))
    world.tick(10_000)
    #expect(world.failure(one, first) == 3)
    #expect(world.starts == [b, c] && world.failure(one, second) == nil)
  }

  @Test func anAppThatStartsLockedWaitsForItsUnlocking() {
    let world = BrokerWorld()
    registered(world, b)
    let one = world.enrol(a)
    let dial = world.ask(one, .connect(.with { $0.appID = b }))
    let app = world.enrol(b, state: .locked)
    #expect(world.introductions.isEmpty && world.failure(one, dial) == nil)
    let reasons = (world.sent[one] ?? []).compactMap { message in
      if case .waiting(let waiting)? = message.kind { waiting.reason } else { nil }
    }
    #expect(reasons == [.start, .unlock])
    world.tick(29_999)
    #expect(world.failure(one, dial) == nil)
    world.ask(app, .state(.with { $0.state = .running }))
    #expect(world.introductions.map(\.acceptor) == [app] && world.failure(one, dial) == 0)
  }

  // MARK: Front

  private func frontWorld() -> (BrokerWorld, [ConnectionNumber], ConnectionNumber) {
    let world = BrokerWorld()
    let apps = [a, b, c].map { world.enrol($0) }
    let tool = world.attend()
    #expect(world.error(tool, .administer(.with { $0.front = a })) == 0)
    world.compositor = nil
    return (world, apps, tool)
  }

  private func answer(_ world: BrokerWorld, _ isDone: Bool = true) {
    world.perform(world.state.compositorAnswered(world.asked.removeFirst(), isDone: isDone, now: world.now))
  }

  @Test func theAppInFrontIsInFrontAtOnce() {
    let (world, apps, _) = frontWorld()
    #expect(world.error(apps[0], .bringToFront(.with { $0.appID = a })) == 0)
    #expect(world.asked.isEmpty)
  }

  @Test func changesAreAskedForOneAfterAnother() {
    let (world, apps, _) = frontWorld()
    let first = world.ask(apps[0], .bringToFront(.with { $0.appID = b }))
    let second = world.ask(apps[0], .bringToFront(.with { $0.appID = c }))
    #expect(world.asked.count == 1)
    answer(world)
    // It is not in front any more when its second turn comes.
    #expect(world.failure(apps[0], first) == 0 && world.failure(apps[0], second) == 20)
    #expect(world.state.presence.front == b && world.asked.isEmpty)
    // Who loses it hears of it first.
    let order = (apps[0], apps[1])
    #expect(world.sent[order.0]?.contains { $0.frontChanged == .with { $0.isInFront = false } } == true)
    #expect(world.last(order.1)?.frontChanged.isInFront == true)
  }

  @Test func whoLosesTheFrontHearsOfItFirst() {
    let (world, apps, _) = frontWorld()
    _ = world.ask(apps[0], .bringToFront(.with { $0.appID = b }))
    let outputs = world.state.compositorAnswered(world.asked[0], isDone: true, now: world.now)
    let told = outputs.compactMap { output in
      if case .send(let message, let to) = output, case .frontChanged(let change)? = message.kind {
        (to, change.isInFront)
      } else {
        nil
      }
    }
    #expect(told.map(\.0) == [apps[0], apps[1]] && told.map(\.1) == [false, true])
  }

  @Test func theUsersChoiceWins() {
    let (world, apps, tool) = frontWorld()
    let underWay = world.ask(apps[0], .bringToFront(.with { $0.appID = b }))
    let queued = world.ask(apps[0], .bringToFront(.with { $0.appID = b }))
    let choice = world.ask(tool, .administer(.with { $0.front = c }))
    #expect(world.failure(apps[0], queued) == 21 && world.failure(apps[0], underWay) == nil)
    #expect(world.asked.count == 1)
    answer(world)
    #expect(world.failure(apps[0], underWay) == 0 && world.state.presence.front == b)
    answer(world)
    #expect(world.failure(tool, choice) == 0 && world.state.presence.front == c)
    // Also when its tool has gone meanwhile.
    world.ask(tool, .administer(.with { $0.front = a }))
    world.disconnect(tool)
    answer(world)
    #expect(world.state.presence.front == a)
  }

  @Test func whatAConnectionAskedForGoesWithIt() {
    let (world, apps, tool) = frontWorld()
    world.ask(tool, .administer(.with { $0.front = b }))
    let other = world.attend()
    world.ask(other, .administer(.with { $0.front = c }))
    world.disconnect(other)
    answer(world)
    #expect(world.state.presence.front == b && world.asked.isEmpty && world.state.frontChanges.wishes.isEmpty)
    // The target goes.
    let lost = world.ask(apps[1], .bringToFront(.with { $0.appID = c }))
    world.disconnect(apps[2])
    answer(world)
    #expect(world.failure(apps[1], lost) == 21 && world.state.presence.front == b)
  }

  @Test func aCompositorThatDoesNotAnswerIsNotWaitedForLong() {
    let (world, apps, _) = frontWorld()
    let first = world.ask(apps[0], .bringToFront(.with { $0.appID = b }))
    let second = world.ask(apps[0], .bringToFront(.with { $0.appID = c }))
    world.tick(9_999)
    #expect(world.failure(apps[0], first) == nil)
    world.tick(1)
    #expect(world.failure(apps[0], first) == 21 && world.asked.count == 2)
    // Its late answer counts for nothing.
    answer(world)
    #expect(world.state.presence.front == a)
    answer(world)
    #expect(world.failure(apps[0], second) == 0 && world.state.presence.front == c)
  }

  // MARK: Front of an app that does not run

  private let installed = "com.example.installed"

  /// The app in front asks for an installed app that does not run; returns the question.
  private func frontOfInstalled(
    _ world: BrokerWorld, _ apps: [ConnectionNumber], program: String = "/usr/bin/app"
  ) -> UInt64 {
    world.install(installed, program)
    return world.ask(apps[0], .bringToFront(.with { $0.appID = installed }))
  }

  @Test(arguments: [WireAppState.running, .locked, .suspended])
  func anInstalledAppIsStartedBeforeItComesToFront(state: WireAppState) {
    let (world, apps, _) = frontWorld()
    world.compositor = true
    let question = frontOfInstalled(world, apps)
    #expect(world.starts == [installed] && world.failure(apps[0], question) == nil)
    #expect(world.last(apps[0])?.waiting == .with { $0.number = question })
    let app = world.enrol(installed, state: state)
    #expect(world.failure(apps[0], question) == 0 && world.state.presence.front == installed)
    #expect(world.sent[app]?.contains { $0.frontChanged == .with { $0.isInFront = true } } == true)
    #expect(world.introductions.isEmpty)
  }

  @Test func anAppThatIsDialledAndWantedInFrontIsStartedOnce() {
    let (world, apps, _) = frontWorld()
    world.compositor = true
    let question = frontOfInstalled(world, apps)
    let dial = world.ask(apps[0], .connect(.with { $0.appID = installed }))
    #expect(world.starts == [installed])
    _ = world.enrol(installed)
    #expect(world.failure(apps[0], question) == 0 && world.failure(apps[0], dial) == 0)
    #expect(world.introductions.count == 1 && world.state.presence.front == installed)
  }

  @Test func onlyTheAppInFrontHasAnotherOneStarted() {
    let (world, apps, tool) = frontWorld()
    world.install(installed, "/usr/bin/app")
    #expect(world.error(apps[1], .bringToFront(.with { $0.appID = installed })) == 20)
    let denial = WireRule.with {
      $0.consumer = a
      $0.provider = installed
      $0.effect = .deny
    }
    #expect(world.error(tool, .administer(.with { $0.addRule = denial })) == 0)
    #expect(world.error(apps[0], .bringToFront(.with { $0.appID = installed })) == 7)
    #expect(world.starts.isEmpty)
  }

  @Test func anAppThatDoesNotStartLeavesTheFrontWhereItIs() {
    let (world, apps, _) = frontWorld()
    let first = frontOfInstalled(world, apps)
    world.perform(world.state.startFailed(installed, now: world.now))
    #expect(world.failure(apps[0], first) == 3)
    world.tick(10_000)
    let second = world.ask(apps[0], .bringToFront(.with { $0.appID = installed }))
    #expect(world.starts == [installed, installed])
    world.tick(10_000)
    #expect(world.failure(apps[0], second) == 3 && world.state.presence.front == a)
    #expect(world.asked.isEmpty)
  }

  @Test func whoLostTheFrontMeanwhileBringsNobodyThere() {
    let (world, apps, tool) = frontWorld()
    world.compositor = true
    let question = frontOfInstalled(world, apps)
    // The user's choice, also of the app that is in front.
    #expect(world.error(tool, .administer(.with { $0.front = a })) == 0)
    #expect(world.failure(apps[0], question) == 21)
    let next = world.ask(apps[0], .bringToFront(.with { $0.appID = installed }))
    #expect(world.error(apps[0], .bringToFront(.with { $0.appID = b })) == 0)
    _ = world.enrol(installed)
    #expect(world.failure(apps[0], next) == 20 && world.state.presence.front == b)
  }

  @Test(arguments: [WireAppState.running, .locked])
  func anInstalledAppThatTheUserChoosesIsStarted(state: WireAppState) {
    let (world, _, tool) = frontWorld()
    world.compositor = true
    #expect(world.error(tool, .administer(.with { $0.front = installed })) == 3)
    world.install(installed, "/usr/bin/app")
    let choice = world.ask(tool, .administer(.with { $0.front = installed }))
    #expect(world.starts == [installed] && world.failure(tool, choice) == nil)
    #expect(world.last(tool)?.waiting == .with { $0.number = choice })
    // A rule between apps is none for the user.
    let app = world.enrol(installed, state: state)
    #expect(world.failure(tool, choice) == 0 && world.state.presence.front == installed)
    #expect(world.introductions.isEmpty && world.sent[app]?.contains { $0.frontChanged.isInFront } == true)
  }

  @Test func theUsersChoiceOfAnAppThatDoesNotStartChangesNothing() {
    let (world, apps, tool) = frontWorld()
    world.compositor = true
    let wish = frontOfInstalled(world, apps)
    // The wishes of apps end with the user's, which has the same start.
    let choice = world.ask(tool, .administer(.with { $0.front = installed }))
    #expect(world.failure(apps[0], wish) == 21 && world.starts == [installed])
    world.perform(world.state.startFailed(installed, now: world.now))
    #expect(world.failure(tool, choice) == 3 && world.state.presence.front == a)
    // A later choice of the user replaces one that waits.
    world.tick(10_000)
    let waiting = world.ask(tool, .administer(.with { $0.front = installed }))
    #expect(world.error(tool, .administer(.with { $0.front = b })) == 0)
    #expect(world.failure(tool, waiting) == 21)
    _ = world.enrol(installed)
    #expect(world.state.presence.front == b)
  }

  /// Also when its app has to be started, behind as many as may be started at once.
  @Test func theUsersChoiceOfAnInstalledAppWaitsForNobody() {
    let (world, apps, tool) = frontWorld()
    _ = world.ask(apps[0], .bringToFront(.with { $0.appID = b }))
    let waiting = world.ask(apps[0], .bringToFront(.with { $0.appID = c }))
    let others = (0..<12).map { "com.example.other\($0)" }
    for other in others {
      world.install(other, "/usr/bin/app")
      world.ask(apps[1], .connect(.with { $0.appID = other }))
    }
    #expect(world.starts.count < others.count)
    world.install(installed, "/usr/bin/app")
    _ = world.ask(tool, .administer(.with { $0.front = installed }))
    #expect(world.starts.last == installed)
    #expect(world.failure(apps[0], waiting) == 21)
  }

  @Test func forgettingAnAppIsToldToAllThatRun() {
    let (world, apps, tool) = frontWorld()
    #expect(world.error(tool, .administer(.with { $0.forget = b })) == 0)
    #expect(world.last(apps[0])?.forgotten.appID == b && world.last(apps[2])?.forgotten.appID == b)
    #expect(world.closed[apps[1]] == .forgotten)
  }

  /// Channels outlive the connection to the broker: who was away hears with whom none may go on.
  @Test func whoWasAwayHearsWhatWasForgotten() throws {
    let (world, apps, tool) = frontWorld()
    let first = world.sent[apps[0]]?.first?.enrolled
    let base = try #require(first?.forgottenCount)
    #expect(first?.forgotten == [])
    world.disconnect(apps[0])
    #expect(world.error(tool, .administer(.with { $0.forget = b })) == 0)
    func enrolled(_ known: UInt64?) -> WireEnrolled? {
      let app = world.enrol(a) { enrol in if let known { enrol.forgottenCount = base + known } }
      return world.sent[app]?.first?.enrolled
    }
    #expect(enrolled(0)?.forgotten == [b])
    #expect(enrolled(1)?.forgotten == [] && enrolled(1)?.forgotOthers == false)
    // A process that knows nobody yet needs not hear.
    #expect(enrolled(nil)?.forgotten == [] && enrolled(nil)?.forgottenCount == base + 1)
    // The broker's state was put back.
    #expect(enrolled(2)?.forgotOthers == true)
    // Of many, no more is kept than the last ones.
    for i in 0..<1000 {
      let id = "com.example.gone\(i)"
      world.disconnect(world.enrol(id))
      #expect(world.error(tool, .administer(.with { $0.forget = id })) == 0)
    }
    #expect(enrolled(0)?.forgotOthers == true)
    #expect(enrolled(1)?.forgotten.count == 1000)
  }
}
