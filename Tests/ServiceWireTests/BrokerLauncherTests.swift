import Foundation
import ServiceValues
import Testing

@testable import ServiceWire

/// The app with the reserved id, which is shown what all apps have on their way.
struct BrokerLauncherTests {
  private let a = "com.example.a"
  private let b = "com.example.b"
  private let id = ApplicationID.launcher.text

  private func approve(_ world: BrokerWorld, _ appID: String, key: String) {
    let tool = world.attend()
    world.ask(
      tool,
      .administer(
        .with {
          $0.approve.appID = appID
          $0.approve.keyFingerprint = KeyFingerprint.of(BrokerWorld.key(key))
        }))
    world.disconnect(tool)
  }

  private func launcher(_ world: BrokerWorld) -> ConnectionNumber {
    approve(world, id, key: "key of \(id)")
    return world.enrol(id)
  }

  private func traffic(_ count: UInt64) -> WireTraffic {
    .with { ($0.sent.count, $0.sent.byteCount, $0.arriving.count) = (count, 1_000, 1) }
  }

  private func wanted(_ world: BrokerWorld, _ number: ConnectionNumber) -> [Bool] {
    world.sent[number, default: []].compactMap {
      if case .trafficWanted(let message)? = $0.kind { message.isWanted } else { nil }
    }
  }

  private func shown(_ world: BrokerWorld, to number: ConnectionNumber) -> [String: WireTraffic] {
    let question = world.ask(number, .find(.with { $0.includesNonProviders = true }))
    let providers = world.answers(number, question).flatMap(\.providers.providers)
    return Dictionary(uniqueKeysWithValues: providers.filter(\.hasTraffic).map { ($0.appID, $0.traffic) })
  }

  @Test(arguments: [BrokerAdmission.open(.max), .ask, .installed])
  func noModeTakesItWithoutAnApprovedKey(_ mode: BrokerAdmission) {
    let world = BrokerWorld(plainApps: mode)
    // In capitals it would keep the id from the launcher.
    for id in [id, "OpenDynamics.Launcher"] {
      let refused = world.enrol(id)
      #expect(world.closed[refused] == .notAllowed)
    }
    approve(world, id, key: "key of \(id)")
    #expect(world.closed[world.enrol(id, key: "another")] == .notAllowed)
    let taken = world.enrol(id)
    #expect(world.closed[taken] == nil)
    // Another key does not take its place.
    #expect(world.closed[world.enrol(id, key: "another")] == .notAllowed)
    #expect(world.closed[taken] == nil)
  }

  /// What an earlier broker, or another decision, has left of the id is no approval.
  @Test func anOldPinIsNoLauncher() {
    var records = BrokerRecords()
    records.apps[id] = BrokerRecords.App(
      publicKey: BrokerWorld.key("key of \(id)"), activationUser: "u", enrolled: 0, origin: .plain,
      presenceKey: Data())
    let world = BrokerWorld(records: records)
    #expect(world.closed[world.enrol(id)] == .notAllowed)
    approve(world, id, key: "key of \(id)")
    #expect(world.closed[world.enrol(id)] == nil)
  }

  @Test func nobodyReachesIt() {
    let world = BrokerWorld()
    let launcher = launcher(world)
    let app = world.enrol(a)
    #expect(
      world.error(app, .connect(.with { $0.appID = id })) == UInt32(ServicesError.Code.notAllowed.rawValue))
    #expect(world.introductions.isEmpty && world.closed[launcher] == nil)
  }

  /// A rule keeps an app from being asked, too.
  @Test func onlyAppsThatItMaySeeAreAsked() {
    let world = BrokerWorld()
    let (one, other) = (world.enrol(a), world.enrol("com.example.theirs", user: "other"))
    let rule = WireRule.with { ($0.consumer, $0.provider, $0.effect) = (id, a, .deny) }
    let tool = world.attend()
    world.ask(tool, .administer(.with { $0.addRule = rule }))
    _ = launcher(world)
    #expect(wanted(world, one) == [false] && wanted(world, other) == [false])
    world.ask(tool, .administer(.with { $0.removeRule = rule }))
    #expect(wanted(world, one).last == true && wanted(world, other).last == false)
    let late = world.enrol("com.example.late", user: "other")
    #expect(world.sent[late]?.first?.enrolled.trafficIsWanted == false)
  }

  /// Apps of one sandbox that move much do not keep others from hearing that one of them is locked.
  @Test func itDelaysNoOtherNews() {
    let world = BrokerWorld()
    world.state = BrokerState(
      publicKey: BrokerWorld.brokerKey, administratorKey: BrokerWorld.administratorKey,
      limits: {
        var limits = BrokerLimits()
        (limits.plainApps, limits.sandboxedApps) = (.open(.max), .open(.max))
        return limits
      }(), programFault: { _ in nil })
    _ = launcher(world)
    let apps = (0..<10).map { world.enrol("com.example.box\($0)", origin: .sandbox("box")) }
    for app in apps { world.register(app) }
    world.tick(60_000)
    let watcher = world.enrol(b)
    world.ask(watcher, .watch(.with { $0.includesNonProviders = true }))
    for count in 1...100 { for app in apps { world.ask(app, .traffic(traffic(UInt64(count)))) } }
    let before = world.changes(watcher).count
    world.ask(apps[0], .state(.with { $0.state = .locked }))
    #expect(world.changes(watcher).count == before + 1)
  }

  @Test func appsSayWhatTheyHaveOnTheirWayWhileItRuns() {
    let world = BrokerWorld()
    let early = world.enrol(a)
    world.register(early)
    #expect(world.sent[early]?.first?.enrolled.trafficIsWanted == false)
    // Before, it is not kept.
    #expect(world.error(early, .traffic(traffic(1))) == 0)
    var launcher = launcher(world)
    #expect(wanted(world, early) == [true] && shown(world, to: launcher) == [:])
    let late = world.enrol(b)
    world.register(late)
    #expect(world.sent[late]?.first?.enrolled.trafficIsWanted == true)
    world.ask(early, .traffic(traffic(2)))
    world.ask(late, .traffic(traffic(3)))
    #expect(shown(world, to: launcher) == [a: traffic(2), b: traffic(3)])
    // Of an app that has ended nothing is left, nor of the time before the launcher's end.
    world.disconnect(late)
    #expect(shown(world, to: launcher) == [a: traffic(2)])
    world.disconnect(launcher)
    #expect(wanted(world, early) == [true, false])
    launcher = world.enrol(id)
    #expect(wanted(world, early) == [true, false, true] && shown(world, to: launcher) == [:])
  }

  @Test func nobodyElseIsShownIt() {
    let world = BrokerWorld()
    let launcher = launcher(world)
    let (one, other) = (world.enrol(a), world.enrol(b))
    for app in [one, other] { world.register(app) }
    world.ask(one, .traffic(traffic(2)))
    #expect(shown(world, to: launcher) == [a: traffic(2)])
    for asker in [other, world.attend(), world.attend(administers: false, key: BrokerWorld.key("tool"))] {
      #expect(shown(world, to: asker) == [:])
    }
    let tool = world.attend()
    world.ask(tool, .administer(.with { $0.listApps = .init() }))
    #expect(world.last(tool)?.answer.apps.apps.contains { $0.provider.hasTraffic } == false)
  }

  /// Others that watch hear nothing of it, and of an app that says it again and again the launcher hears once a second.
  @Test func itIsNewsForTheLauncherAlone() {
    let world = BrokerWorld()
    let launcher = launcher(world)
    let (one, other) = (world.enrol(a), world.enrol(b))
    for app in [one, other] { world.register(app) }
    for watcher in [launcher, other] { world.ask(watcher, .watch(.with { $0.includesNonProviders = true })) }
    let before = world.changes(other).count
    for count in 1...1_000 { world.ask(one, .traffic(traffic(UInt64(count)))) }
    #expect(world.changes(other).count == before)
    #expect(world.changes(launcher).count <= Int(BrokerLimits().registrationBurstMax))
    world.tick(1_000)
    #expect(world.changes(launcher).last?.present.first?.traffic == traffic(1_000))
    // The same is no news.
    let told = world.changes(launcher).count
    world.ask(one, .traffic(traffic(1_000)))
    world.tick(5_000)
    #expect(world.changes(launcher).count == told)
  }

  @Test func unknownFieldsOfItAreNotPassedOn() throws {
    let world = BrokerWorld()
    let launcher = launcher(world)
    let app = world.enrol(a)
    world.register(app)
    // Field 9, a text.
    let bytes = try traffic(2).serializedBytes() as [UInt8] + [9 << 3 | 2, 3, 1, 2, 3]
    world.ask(app, .traffic(try WireTraffic(serializedBytes: bytes)))
    #expect(shown(world, to: launcher) == [a: traffic(2)])
  }

  @Test func itsChoiceIsTheUsers() {
    let world = BrokerWorld()
    let launcher = launcher(world)
    let (one, other) = (world.enrol(a), world.enrol(b))
    world.ask(world.attend(), .administer(.with { $0.front = a }))
    // What an app has asked for, and what it would ask for, gives way.
    world.compositor = nil
    let wish = world.ask(one, .bringToFront(.with { $0.appID = b }))
    let waiting = world.ask(one, .bringToFront(.with { $0.appID = b }))
    let choice = world.ask(launcher, .bringToFront(.with { $0.appID = b }))
    #expect(world.failure(one, waiting) == UInt32(ServicesError.Code.frontRefused.rawValue))
    for _ in 0..<2 {
      world.perform(world.state.compositorAnswered(world.asked.removeLast(), isDone: true, now: world.now))
    }
    #expect(world.failure(one, wish) == 0 && world.failure(launcher, choice) == 0)
    #expect(world.state.presence.front == b && world.closed[other] == nil)
  }

  @Test func itStartsAppsAsFarAsRulesAllow() {
    let world = BrokerWorld()
    let launcher = launcher(world)
    for app in [a, b] { world.installStopped(app) }
    let question = world.ask(launcher, .bringToFront(.with { $0.appID = a }))
    #expect(world.starts == [a])
    _ = world.enrol(a)
    #expect(world.failure(launcher, question) == 0 && world.state.presence.front == a)
    // One that is denied after its start began does not come to front.
    let late = world.ask(launcher, .bringToFront(.with { $0.appID = b }))
    let rule = WireRule.with { ($0.consumer, $0.provider, $0.effect) = (id, b, .deny) }
    world.ask(world.attend(), .administer(.with { $0.addRule = rule }))
    let app = world.enrol(b)
    let notAllowed = UInt32(ServicesError.Code.notAllowed.rawValue)
    #expect(world.failure(launcher, late) == notAllowed && world.state.presence.front == a)
    #expect(world.error(launcher, .bringToFront(.with { $0.appID = b })) == notAllowed)
    // Nor is it shown.
    world.ask(app, .traffic(traffic(1)))
    #expect(shown(world, to: launcher) == [:] && world.find(launcher) == [])
    // Of another user it sees and starts nothing.
    _ = world.enrol("com.example.theirs", user: "other")
    #expect(world.error(launcher, .bringToFront(.with { $0.appID = "com.example.theirs" })) != 0)
  }
}
