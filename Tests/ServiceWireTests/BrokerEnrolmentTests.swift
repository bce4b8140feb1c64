import Foundation
import Testing

@testable import ServiceWire

/// Who may become an app, and what one origin can take of others.
struct BrokerEnrolmentTests {
  private let sandbox = BrokerOrigin.sandbox("box")

  private func fingerprint(_ appID: String, _ key: String? = nil) -> Data {
    KeyFingerprint.of(BrokerWorld.key(key ?? "key of \(appID)"))
  }

  private func approve(_ appID: String, key: String? = nil, _ world: BrokerWorld) -> UInt32? {
    let tool = world.attend()
    defer { world.disconnect(tool) }
    return world.error(
      tool,
      .administer(
        .with {
          $0.approve.appID = appID
          $0.approve.keyFingerprint = fingerprint(appID, key)
        }))
  }

  private func isPending(_ number: ConnectionNumber, _ world: BrokerWorld) -> Bool {
    world.closed[number] == nil && world.state.connections[number]?.phase == .pending
      && world.sent[number]?.last?.kind == .pending(.init())
  }

  private func isEnrolled(_ number: ConnectionNumber, _ world: BrokerWorld) -> Bool {
    world.closed[number] == nil && world.state.appID(of: number) != nil
  }

  private func id(_ n: Int) -> String { "com.example.a\(n)" }

  @Test func takesSomeAppsOfAnOriginAndAsksForFurtherOnes() {
    let world = BrokerWorld(plainApps: .open(3))
    let apps = (0..<4).map { world.enrol(id($0)) }
    for app in apps.prefix(3) { #expect(isEnrolled(app, world)) }
    #expect(isPending(apps[3], world))
    // Gone or not: ids are counted.
    world.disconnect(apps[0])
    #expect(isPending(world.enrol(id(4)), world))
    // An approved one makes room for another.
    #expect(approve(id(1), world) == 0)
    #expect(isEnrolled(world.enrol(id(5)), world))
    #expect(isPending(world.enrol(id(6)), world))
    // One that is known comes back at any time.
    #expect(isEnrolled(world.enrol(id(0)), world))
  }

  @Test func asksForEveryAppOfASandbox() {
    let world = BrokerWorld()
    let app = world.enrol(id(1), origin: sandbox)
    #expect(isPending(app, world))
    #expect(world.state.records.apps.isEmpty && world.saved.isEmpty)
    // It has all the time, may ask nothing, and nobody sees it.
    world.tick(1_000_000)
    #expect(world.closed[app] == nil)
    let other = world.enrol(id(2))
    world.ask(other, .connect(.with { $0.appID = id(1) }))
    #expect(world.last(other)?.answer.failure.error == 3)
    let tool = world.attend()
    world.ask(tool, .administer(.with { $0.listApps = .init() }))
    let list = world.last(tool)?.answer.apps
    #expect(list?.apps.map(\.provider.appID) == [id(2)])
    #expect(list?.pending.map(\.provider.appID) == [id(1)])
    #expect(list?.pending.map(\.identity.keyFingerprint) == [fingerprint(id(1))])
    #expect(list?.pending.map(\.identity.origin) == ["box"])
    #expect(approve(id(1), key: "another key", world) == 0)
    #expect(world.closed[app] == .keyNotPinned)

    #expect(approve(id(1), world) == 0)
    let again = world.enrol(id(1), origin: sandbox)
    #expect(isEnrolled(again, world))
    #expect(world.state.records.apps[id(1)]?.origin == sandbox)
    #expect(world.saved.contains(.app(id(1))) && world.saved.contains(.program(id(1))))
    world.ask(again, .find(WireFind()))
    #expect(world.closed[again] == nil)
    let asking = world.enrol(id(3), origin: sandbox)
    world.ask(asking, .find(WireFind()))
    #expect(world.closed[asking] == .unexpectedMessage)
  }

  @Test func letsThoseInThatWait() {
    let world = BrokerWorld()
    let app = world.enrol(id(1), origin: sandbox)
    let impostor = world.enrol(id(1), key: "impostor", origin: sandbox)
    #expect(isPending(app, world) && isPending(impostor, world))
    #expect(approve(id(1), world) == 0)
    #expect(isEnrolled(app, world) && world.closed[impostor] == .keyNotPinned)
    // Another key of an app that is known is nothing to approve.
    #expect(approve(id(1), key: "impostor", world) == 9)
    #expect(isEnrolled(app, world))
  }

  @Test func takesOnlyApprovedAppsWhereThatIsWanted() {
    let world = BrokerWorld(plainApps: .installed)
    let stranger = world.enrol(id(1))
    #expect(world.closed[stranger] == .notAllowed)
    let tool = world.attend()
    let install = WireInstall.with {
      $0.appID = id(1)
      $0.program.path = "/bin/app"
      $0.program.keyFingerprint = fingerprint(id(1))
    }
    #expect(world.error(tool, .administer(.with { $0.install = install })) == 0)
    #expect(world.closed[world.enrol(id(1), key: "another")] == .notAllowed)
    #expect(isEnrolled(world.enrol(id(1)), world))
    // The program goes, the key stays; another program does not change it.
    #expect(world.error(tool, .administer(.with { $0.uninstall = id(1) })) == 0)
    #expect(world.error(tool, .administer(.with { $0.uninstall = id(1) })) == 3)
    var other = install
    other.program.keyFingerprint = Data()
    #expect(world.error(tool, .administer(.with { $0.install = other })) == 0)
    #expect(world.state.records.isApproved(id(1), BrokerWorld.key("key of \(id(1))")))
    #expect(world.error(tool, .administer(.with { $0.forget = id(1) })) == 0)
    #expect(world.closed[world.enrol(id(1))] == .notAllowed)
    #expect(world.state.records.programs[id(1)]?.path == "/bin/app")
  }

  /// Nothing that one origin does takes an id from another, or its room.
  @Test func noAppGivesWayToAnother() {
    var limits = BrokerLimits()
    limits.appCountMax = 4
    limits.unapprovedCountMax = 3
    let world = BrokerWorld(limits: limits)
    let first = world.enrol(id(0))
    world.disconnect(first)
    for n in 1..<3 { #expect(isEnrolled(world.enrol(id(n)), world)) }
    #expect(isPending(world.enrol(id(3)), world))
    #expect(approve(id(4), world) == 0)
    #expect(isEnrolled(world.enrol(id(4)), world))
    #expect(approve(id(5), world) == 0)
    #expect(world.closed[world.enrol(id(5))] == .limitExceeded)
    #expect(isEnrolled(world.enrol(id(0)), world))
  }

  @Test func refusesSecondIdsOfAKeyAndLookAlikes() {
    let world = BrokerWorld()
    _ = world.enrol("com.example.Notes", key: "one")
    #expect(world.closed[world.enrol("com.example.other", key: "one")] == .keyNotPinned)
    #expect(world.closed[world.enrol("com.example.notes", key: "two")] == .keyNotPinned)
    #expect(isEnrolled(world.enrol("com.example.notes2", key: "two"), world))
  }

  @Test func boundsThoseThatWait() {
    var limits = BrokerLimits()
    limits.pendingCountMax = 12
    let world = BrokerWorld(limits: limits)
    for n in 0..<8 { #expect(isPending(world.enrol(id(n), origin: sandbox), world)) }
    #expect(world.closed[world.enrol(id(8), origin: sandbox)] == .limitExceeded)
    for n in 9..<13 { #expect(isPending(world.enrol(id(n), origin: .sandbox("other")), world)) }
    #expect(world.closed[world.enrol(id(13), origin: .sandbox("third"))] == .limitExceeded)
    #expect(isEnrolled(world.enrol(id(14)), world))
  }

  /// Forgetting refuses one that waits, and takes an approval back.
  @Test func forgetsWhatWaitsAndWhatWasApproved() {
    let world = BrokerWorld()
    let app = world.enrol(id(1), origin: sandbox)
    let tool = world.attend()
    #expect(world.error(tool, .administer(.with { $0.forget = id(1) })) == 0)
    #expect(world.closed[app] == .forgotten)
    #expect(world.error(tool, .administer(.with { $0.forget = id(1) })) == 3)
    #expect(approve(id(1), world) == 0)
    #expect(world.error(tool, .administer(.with { $0.forget = id(1) })) == 0)
    #expect(isPending(world.enrol(id(1), origin: sandbox), world))
    #expect(world.state.records.programs.isEmpty)
  }

  // MARK: Shares

  @Test func whoConnectsFastKeepsNobodyOut() {
    let world = BrokerWorld()
    let honest = world.connect(process: 1)
    for _ in 0..<1_000 { _ = world.connect(key: nil, process: 2) }
    #expect(world.closed[honest] == nil)
    for _ in 0..<1_000 { _ = world.connect(key: nil, origin: sandbox) }
    #expect(world.closed[honest] == nil)
    let late = world.enrol(id(1))
    #expect(isEnrolled(late, world))
  }

  @Test func noProcessTakesAllConnections() {
    var limits = BrokerLimits()
    limits.connectionCountMax = 40
    limits.attendingCountMax = 40
    let world = BrokerWorld(limits: limits)
    func attend(_ process: Int32, administers: Bool = false) -> ConnectionNumber {
      let key = administers ? BrokerWorld.administratorKey : BrokerWorld.key("tool")
      let number = world.connect(key: String(decoding: key, as: UTF8.self), process: process)
      world.send(
        .with {
          $0.attend.version = 1
          $0.attend.administers = administers
        }, from: number)
      return number
    }
    let first = (0..<30).map { _ in attend(1) }
    #expect(first.count { world.closed[$0] == nil } == 20)
    let second = (0..<30).map { _ in attend(2) }
    #expect(second.count { world.closed[$0] == nil } == 10)
    let third = (0..<30).map { _ in attend(3) }
    #expect(third.count { world.closed[$0] == nil } == 8)
    #expect(world.closed[attend(4, administers: true)] == nil)
  }

  @Test func administratorsAttendWhenOthersTakeAllPlaces() {
    var limits = BrokerLimits()
    limits.attendingCountMax = 2
    let world = BrokerWorld(limits: limits)
    let tools = (0..<3).map { _ in world.attend(administers: false) }
    #expect(tools.map { world.closed[$0] } == [nil, nil, .limitExceeded])
    #expect(world.closed[world.attend()] == nil)
  }
}
