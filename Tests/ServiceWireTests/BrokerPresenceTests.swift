import Foundation
import Testing

@testable import ServiceWire

/// Processes of an app that have its presence key, and not its container.
struct BrokerPresenceTests {
  private let a = "com.example.a"
  private let b = "com.example.b"

  /// An app that has run, with a presence key, and does not run any more.
  private func enrolOnce(_ world: BrokerWorld) {
    world.disconnect(enrolWithKey(world))
  }

  private func enrolWithKey(_ world: BrokerWorld, _ key: String = "presence") -> ConnectionNumber {
    world.enrol(a) { $0.presenceKey = BrokerWorld.key(key) }
  }

  private func standIn(
    _ world: BrokerWorld, key: String = "presence", changing change: (inout WireEnrol) -> Void = { _ in }
  ) -> ConnectionNumber {
    world.enrol(a, key: key, state: .locked) {
      $0.standsIn = true
      change(&$0)
    }
  }

  private func reasons(_ world: BrokerWorld, _ number: ConnectionNumber) -> [WireWaiting.Reason] {
    world.sent[number, default: []].compactMap {
      if case .waiting(let waiting) = $0.kind { waiting.reason } else { nil }
    }
  }

  @Test func standsInForTheAppUntilItRuns() {
    let world = BrokerWorld()
    enrolOnce(world)
    let place = standIn(world)
    #expect(world.last(place)?.enrolled == .with { $0.version = 1 })
    let dialler = world.enrol(b)
    let question = world.ask(dialler, .connect(.with { $0.appID = a }))
    #expect(reasons(world, dialler) == [.unlock] && world.waitingPeers(place) == [b])
    #expect(world.introductions.isEmpty)
    let tool = world.attend()
    world.ask(tool, .administer(.with { $0.listApps = .init() }))
    #expect(world.last(tool)?.answer.apps.apps.first?.provider.state == .locked)

    let app = world.enrol(a)
    #expect(world.closed == [place: .replaced])
    #expect(world.last(app)?.introduction.appID == b && world.introductions.count == 1)
    #expect(world.answers(dialler, question).count == 1)
  }

  @Test func neverTakesThePlaceOfTheApp() {
    let world = BrokerWorld()
    let app = enrolWithKey(world)
    let place = standIn(world)
    #expect(world.closed == [place: .replaced])
    #expect(world.state.appID(of: app) == a)
    // Nor while the app itself is locked.
    world.ask(app, .state(.with { $0.state = .locked }))
    #expect(world.closed[standIn(world)] == .replaced && world.closed[app] == nil)
  }

  // MARK: Giving way

  private func giveWay(_ world: BrokerWorld, _ app: ConnectionNumber) {
    world.ask(app, .state(.with { ($0.state, $0.givesWay) = (.locked, true) }))
  }

  /// Nobody who waits is refused, nothing is started, and the front stays.
  @Test func takesThePlaceOfAnAppThatGivesWay() {
    let world = BrokerWorld()
    let app = enrolWithKey(world)
    world.install(a, "/usr/bin/app")
    world.ask(world.attend(), .administer(.with { $0.front = a }))
    giveWay(world, app)
    #expect(world.closed[app] == nil && world.state.presence.front == a)
    let dialler = world.enrol(b)
    let question = world.ask(dialler, .connect(.with { $0.appID = a }))
    #expect(reasons(world, dialler) == [.unlock])

    let place = standIn(world)
    #expect(world.closed[app] == .replaced && world.closed[place] == nil)
    #expect(world.last(place)?.peerWaits.appID == b)
    #expect(world.sent[place, default: []].contains { $0.frontChanged.isInFront })
    #expect(world.answers(dialler, question).isEmpty && reasons(world, dialler) == [.unlock])
    let unlocked = enrolWithKey(world)
    #expect(world.closed[place] == .replaced && world.state.presence.front == a)
    #expect(world.answers(dialler, question).count == 1)
    #expect(world.last(unlocked)?.introduction.appID == b)
  }

  /// Locks and unlocks are no copies of the app, however often they come, and the app may come back before anybody stood in.
  @Test(arguments: [false, true]) func countsNoReplacementOfAnAppThatGivesWay(hasStandIn: Bool) {
    let world = BrokerWorld()
    var app = enrolWithKey(world)
    for _ in 0..<20 {
      giveWay(world, app)
      if hasStandIn { #expect(world.closed[standIn(world)] == nil) }
      let next = enrolWithKey(world)
      #expect(world.closed[app] == .replaced)
      #expect(world.sent[next]?.first?.enrolled.isDuplicated == false)
      app = next
    }
    #expect(world.closed[app] == nil)
  }

  @Test func takesTheOfferBackWithAnotherState() {
    for state in [WireAppState.running, .locked, .suspended] {
      let world = BrokerWorld()
      let app = enrolWithKey(world)
      giveWay(world, app)
      world.ask(app, .state(.with { $0.state = state }))
      #expect(world.closed[standIn(world)] == .replaced && world.closed[app] == nil)
    }
    for state in [WireAppState.running, .suspended] {
      let world = BrokerWorld()
      let app = enrolWithKey(world)
      world.ask(app, .state(.with { ($0.state, $0.givesWay) = (state, true) }))
      #expect(world.closed[app] == .malformed)
    }
  }

  /// An app that ends before anybody stood in has ended.
  @Test func anAppThatGivesWayAndEndsIsGone() {
    let world = BrokerWorld()
    let app = enrolWithKey(world)
    giveWay(world, app)
    let dialler = world.enrol(b)
    let question = world.ask(dialler, .connect(.with { $0.appID = a }))
    world.disconnect(app)
    #expect(world.failure(dialler, question) == 3)
  }

  @Test func asksNothing() {
    let questions: [WireQuestion.OneOf_Kind] = [
      .register(.init()), .unregister(.init()), .find(.init()), .watch(.init()), .unwatch(.init()),
      .connect(.with { $0.appID = b }), .bringToFront(.with { $0.appID = b }),
      .state(.with { $0.state = .running }), .administer(.with { $0.listApps = .init() }), .leave(.init()),
    ]
    for question in questions {
      let world = BrokerWorld()
      enrolOnce(world)
      let place = standIn(world)
      world.ask(place, question)
      #expect(world.closed[place] == .unexpectedMessage, "\(question)")
    }
  }

  @Test func isRefusedWhatItMayNotSay() {
    let world = BrokerWorld()
    enrolOnce(world)
    // It is no key of an app, and the app's own one is none to stand in with.
    #expect(world.closed[world.enrol(a, key: "presence")] == .keyNotPinned)
    #expect(world.closed[standIn(world, key: "key of \(a)")] == .keyNotPinned)
    #expect(world.closed[standIn(world, key: "another")] == .keyNotPinned)
    #expect(world.closed[standIn(world) { $0.state = .running }] == .malformed)
    #expect(world.closed[standIn(world) { $0.state = .suspended }] == .malformed)
    #expect(world.closed[standIn(world) { $0.presenceKey = BrokerWorld.key("next") }] == .malformed)
    #expect(world.closed[standIn(world) { $0.activationUser = "another" }] == .enterpriseUserNotMatch)
    for count in [1, 31, 33] {
      let app = world.enrol(a) { $0.presenceKey = Data(repeating: 1, count: count) }
      #expect(world.closed[app] == .malformed)
    }
    // What was refused has changed nothing.
    #expect(world.closed[standIn(world)] == nil)
  }

  @Test func hearsOnlyWhoWaitsAndTheFront() {
    let world = BrokerWorld()
    enrolOnce(world)
    let place = standIn(world)
    world.disconnect(world.enrol(b))
    let tool = world.attend()
    world.ask(
      tool,
      .administer(
        .with {
          $0.addRule.effect = .deny
          $0.addRule.provider = a
        }))
    world.ask(tool, .administer(.with { $0.forget = b }))
    #expect(world.sent[place]?.count == 1)
    world.ask(tool, .administer(.with { $0.front = a }))
    #expect(world.last(place)?.frontChanged.isInFront == true)
    // Another one that stands in was not chosen by the user.
    let other = standIn(world)
    #expect(world.closed[place] == .duplicated && world.state.presence.front == nil)
    #expect(world.sent[other]?.count == 1)
    world.ask(tool, .administer(.with { $0.front = a }))
    // Whoever unlocks the app stays in front with it.
    let app = world.enrol(a)
    #expect(world.closed[other] == .replaced)
    #expect(world.last(app)?.frontChanged.isInFront == true && world.state.presence.front == a)
    // Of an app that takes the place of its own earlier process nobody knows what it shows.
    #expect(world.last(world.enrol(a))?.enrolled.version == 1 && world.state.presence.front == nil)
  }

  @Test func theLastKeyOfTheAppCounts() {
    let world = BrokerWorld()
    enrolOnce(world)
    world.disconnect(enrolWithKey(world, "next"))
    #expect(world.closed[standIn(world)] == .keyNotPinned)
    let place = standIn(world, key: "next")
    #expect(world.closed[place] == nil)
    world.disconnect(place)
    // A process that says nothing of it, such as a tool with the container, leaves it.
    world.disconnect(world.enrol(a))
    #expect(world.closed[standIn(world, key: "next")] == nil)
  }

  /// Each change is a file that is written.
  @Test func tooManyKeysAreRefused() {
    let world = BrokerWorld()
    let apps = (0..<200).map { i in
      let app = enrolWithKey(world, "key \(i)")
      world.disconnect(app)
      return app
    }
    let count = world.saved.count { $0 == .app(a) }
    #expect(count > 1 && count < 40)
    #expect(apps.count { world.closed[$0] == .limitExceeded } == 200 - count)
    // The last one that was taken counts, and the app itself comes in with it.
    #expect(world.closed[standIn(world, key: "key \(count - 1)")] == nil)
    #expect(world.closed[enrolWithKey(world, "key \(count - 1)")] == nil)
    world.tick(60_000)
    world.disconnect(enrolWithKey(world, "last"))
    #expect(world.closed[standIn(world, key: "last")] == nil)
  }

  @Test func twoThatStandInAreTold() {
    let world = BrokerWorld()
    enrolOnce(world)
    let places = (0..<4).map { _ in standIn(world) }
    #expect(places.map { world.closed[$0] } == [.duplicated, .duplicated, .duplicated, nil])
    // The app is no copy of what stood in for it.
    let app = world.enrol(a)
    #expect(world.closed[places[3]] == .replaced && world.last(app)?.enrolled.isDuplicated == false)
  }

  /// Nothing is pinned for the key, nor waits for approval: else it would be the app's from then on.
  @Test(arguments: [BrokerAdmission.open(8), .ask, .installed])
  func isNobodyWithoutTheApp(mode: BrokerAdmission) {
    let world = BrokerWorld(plainApps: mode)
    #expect(world.closed[standIn(world)] == .keyNotPinned)
    let tool = world.attend()
    let fingerprint = KeyFingerprint.of(BrokerWorld.key("key of \(a)"))
    world.ask(
      tool,
      .administer(
        .with {
          $0.approve.appID = a
          $0.approve.keyFingerprint = fingerprint
        }))
    enrolOnce(world)
    let place = standIn(world)
    world.ask(tool, .administer(.with { $0.forget = a }))
    #expect(world.closed[place] == .forgotten)
    #expect(world.closed[standIn(world)] == .keyNotPinned)
    #expect(world.state.records.apps.isEmpty && world.state.pending.enrolments(of: a).isEmpty)
    if case .open = mode { #expect(world.closed[world.enrol(a)] == nil) }
  }

  /// A key that another app has named keeps nobody out.
  @Test func aKeyThatIsNamedByAnotherAppIsStillItsOwners() {
    let world = BrokerWorld()
    _ = world.enrol(b) { $0.presenceKey = BrokerWorld.key("key of \(a)") }
    let app = world.enrol(a)
    #expect(world.closed[app] == nil && world.state.appID(of: app) == a)
  }

  @Test func aProgramMayStandIn() {
    let world = BrokerWorld()
    enrolOnce(world)
    world.install(a, "/usr/bin/app")
    let dialler = world.enrol(b)
    world.ask(dialler, .connect(.with { $0.appID = a }))
    #expect(world.starts == [a])
    let place = standIn(world)
    #expect(reasons(world, dialler) == [.start, .unlock] && world.waitingPeers(place) == [b])
  }

  @Test func isKeptWithTheApp() throws {
    let world = BrokerWorld()
    enrolOnce(world)
    let bytes = try #require(try world.state.records.encoded(.app(a)))
    var records = BrokerRecords()
    try records.decodeApp(bytes)
    #expect(records.apps == world.state.records.apps)
    var wrong = try WireRecord(serializedBytes: bytes)
    wrong.presenceKey = Data([1])
    let damaged = try wrong.serializedData()
    #expect(throws: ProtocolFault.malformed) {
      var records = BrokerRecords()
      try records.decodeApp(damaged)
    }
  }
}
