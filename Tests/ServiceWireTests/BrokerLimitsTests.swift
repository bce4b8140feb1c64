import Foundation
import SwiftProtobuf
import Testing

@testable import ServiceWire

/// What a peer that keeps to nothing, or a great many of them, can make a broker hold.
struct BrokerLimitsTests {
  private let a = "com.example.a"
  private let b = "com.example.b"

  private func registration(definitions: Int, of byteCount: Int) -> WireRegister {
    .with {
      $0.services = (0..<definitions).map { n in
        .with {
          $0.id = "com.example.s\(n)"
          $0.version = "1"
          let begin = #"{"service-id":"com.example.s\#(n)","version":"1","methods":{},"description":""#
          $0.definition = Data(
            (begin + String(repeating: "d", count: byteCount - begin.utf8.count - 2) + "\"}").utf8)
        }
      }
    }
  }

  @Test func registrationsAreBoundedAsAWhole() {
    var limits = BrokerLimits()
    let one = registration(definitions: 3, of: 1000)
    limits.registrationByteCountMax = one.encodedByteCount
    let world = BrokerWorld(limits: limits)
    let app = world.enrol(a)
    #expect(world.error(app, .register(one)) == 0)
    var more = one
    more.name = "n"
    let question = world.ask(app, .register(more))
    #expect(world.answers(app, question).last?.failure.detail.hasPrefix("registration: ") == true)
    #expect(BrokerLimits().registrationByteCountMax == 512 << 10)
    // The largest registration, and all rules with a leaf, fit into a frame.
    #expect(
      BrokerLimits().pageByteCount + BrokerLimits().registrationByteCountMax
        < BrokerLimits().frameByteCountMax)
    #expect(BrokerLimits().ruleByteCountMax + 65_536 < BrokerLimits().frameByteCountMax)
  }

  /// Those of a sandbox together, and nobody else's.
  @Test func registrationsComeOneASecondAfterThirty() {
    var limits = BrokerLimits()
    limits.sandboxedApps = .open(.max)
    let world = BrokerWorld(limits: limits)
    let box = [a, b].map { world.enrol($0, origin: .sandbox("box")) }
    let other = world.enrol("com.example.c")
    func registered(_ number: ConnectionNumber, _ name: String) -> UInt32? {
      world.error(number, .register(.with { $0.name = name }))
    }
    for i in 0..<30 { #expect(registered(box[i % 2], "\(i)") == 0) }
    let refused = world.ask(box[0], .register(.with { $0.name = "30" }))
    #expect(world.answers(box[0], refused).last?.failure.detail == "registrations a second")
    #expect(registered(box[1], "30") == 16)
    #expect(world.state.records.apps[b]?.registration?.name == "29")
    #expect(registered(other, "0") == 0)
    world.tick(999)
    #expect(registered(box[1], "31") == 16)
    world.tick(1)
    #expect(registered(box[1], "31") == 0 && registered(box[0], "31") == 16)
    world.tick(30_000)
    for i in 0..<30 { #expect(registered(box[0], "again \(i)") == 0) }
    #expect(registered(box[0], "more") == 16)
    world.tick(40_000)
    #expect(world.state.paces.isEmpty)
  }

  /// Watchers are sent all that they want to know of an app, however little it said.
  @Test func watchersHearOfAnAppThatChangesAgainAndAgainOnceASecond() {
    let world = BrokerWorld()
    let watcher = world.attend()
    world.ask(watcher, .watch(WireFind()))
    let app = world.enrol(a)
    world.register(app, [("com.example.greetings", "1.0")])
    func state(_ state: WireAppState) { world.ask(app, .state(.with { $0.state = state })) }
    func heard() -> [WireAppState] {
      world.changes(watcher).flatMap { $0.present }.map(\.state)
    }
    let before = heard().count
    // Nothing is new.
    for _ in 0..<100 { state(.running) }
    #expect(heard().count == before)
    for i in 0..<100 { state(i % 2 == 0 ? .locked : .running) }
    // Its beginning was the first of thirty.
    #expect(heard().count == before + 29)
    state(.suspended)
    #expect(world.state.hasDeadlines)
    world.tick(1000)
    #expect(heard().count == before + 30 && heard().last == .suspended)
    #expect(world.state.paces.news.isEmpty)
    // Those who want something of it do not wait for that.
    state(.locked)
    let dialler = world.enrol(b)
    let dial = world.ask(dialler, .connect(.with { $0.appID = a }))
    #expect(world.answers(dialler, dial).isEmpty)
    state(.running)
    #expect(world.answers(dialler, dial).count == 1)
  }

  /// Whoever changes its state without end comes behind the others of its sandbox.
  @Test func watchersHearOfAllAppsOfASandbox() {
    var limits = BrokerLimits()
    limits.sandboxedApps = .open(.max)
    let world = BrokerWorld(limits: limits)
    let watcher = world.attend()
    world.ask(watcher, .watch(WireFind()))
    let box = [a, b].map { world.enrol($0, origin: .sandbox("box")) }
    for app in box { world.register(app, [("com.example.greetings", "1.0")]) }
    func toggle() {
      for state: WireAppState in [.locked, .running] { world.ask(box[0], .state(.with { $0.state = state })) }
    }
    for _ in 0..<50 { toggle() }
    world.ask(box[1], .state(.with { $0.state = .suspended }))
    func heard() -> [String] { world.changes(watcher).flatMap { $0.present }.map(\.appID) }
    let before = heard().count
    for _ in 0..<4 {
      world.tick(1000)
      toggle()
    }
    #expect(heard().dropFirst(before).contains(b))
    #expect(world.changes(watcher).last { $0.present.first?.appID == b }?.present.first?.state == .suspended)
  }

  @Test func rulesAreBoundedInTextsAndAsAWhole() {
    var limits = BrokerLimits()
    func rule(_ method: String) -> WireRule {
      .with {
        $0.serviceID = "com.example.s"
        $0.version = "1"
        $0.method = method
        $0.effect = .disable
      }
    }
    limits.ruleByteCountMax = 2 * rule("m1").encodedByteCount
    let world = BrokerWorld(limits: limits)
    let tool = world.attend()
    func add(_ rule: WireRule) -> UInt32? { world.error(tool, .administer(.with { $0.addRule = rule })) }
    #expect(add(rule("m1")) == 0)
    #expect(add(rule("m23")) == 16)
    #expect(add(rule("m2")) == 0)
    #expect(world.error(tool, .administer(.with { $0.removeRule = rule("m1") })) == 0)
    #expect(add(rule("m3")) == 0)
    let wide = BrokerWorld()
    let administrator = wide.attend()
    for (rule, code) in [
      (rule(String(repeating: "m", count: 255)), 0), (rule(String(repeating: "m", count: 256)), 8),
      (rule(""), 8),
      (.with { $0.consumer = "x" }, 8), (.with { $0.provider = "x" }, 8),
      (
        .with {
          $0.serviceID = "S.x"
          $0.effect = .disable
        }, 8
      ),
      (
        .with {
          $0.serviceID = "com.example.s"
          $0.version = "01"
          $0.effect = .disable
        }, 8
      ),
    ] as [(WireRule, UInt32)] {
      #expect(wide.error(administrator, .administer(.with { $0.addRule = rule })) == code)
    }
  }

  @Test func textsOfFiltersAreIDsAndVersions() {
    let longest = Array(repeating: String(repeating: "x", count: 63), count: 4).joined(separator: ".")
    let filters: [((inout WireFind, String) -> Void, right: String, wrong: String)] = [
      ({ $0.serviceID = $1 }, longest, longest + "x"), ({ $0.version = $1 }, "1.2.3.4", "1.2.3.4.5"),
      ({ $0.appID = $1 }, longest, longest + "x"), ({ $0.after = $1 }, longest, "com.example.\u{e9}"),
    ]
    for (change, right, wrong) in filters {
      let world = BrokerWorld()
      let tool = world.attend()
      var filter = WireFind()
      change(&filter, right)
      #expect(world.error(tool, .find(filter)) == 0)
      change(&filter, wrong)
      world.ask(tool, .find(filter))
      #expect(world.closed[tool] == .malformed)
      let watcher = world.attend()
      world.ask(watcher, .watch(filter))
      #expect(world.closed[watcher] == .malformed)
    }
    let world = BrokerWorld()
    let tool = world.attend()
    world.ask(tool, .find(.with { $0.type = .UNRECOGNIZED(9) }))
    #expect(world.closed[tool] == .malformed)
  }

  @Test func whatIsNotKnownIsNotKeptAndDoesNotGoOn() throws {
    let world = BrokerWorld()
    let app = world.enrol(a)
    // Field 999 with 3 bytes, in the registration and in a service of it.
    let unknown: [UInt8] = [0xba, 0x3e, 3, 1, 2, 3]
    let service =
      try WireService.with {
        $0.id = "com.example.s"
        $0.version = "1"
      }.serializedData() + unknown
    let bytes = unknown + [0x2a, UInt8(service.count)] + service
    let register = try WireRegister(serializedBytes: Data(bytes))
    #expect(register.services.count == 1 && !register.services[0].unknownFields.data.isEmpty)
    #expect(world.error(app, .register(register)) == 0)
    let kept = try #require(world.state.records.apps[a]?.registration)
    #expect(kept.unknownFields.data.isEmpty && kept.services[0].unknownFields.data.isEmpty)
    #expect(try world.state.records.encoded(.app(a))?.range(of: Data(unknown)) == nil)
    let tool = world.attend()
    let rule = try WireRule(
      serializedBytes: WireRule.with { $0.provider = a }.serializedData() + Data(unknown))
    #expect(world.error(tool, .administer(.with { $0.addRule = rule })) == 0)
    #expect(world.last(app)?.policy.access.map(\.unknownFields.data.isEmpty) == [true])
  }

  @Test func attendingConnectionsAreBounded() {
    var limits = BrokerLimits()
    limits.attendingCountMax = 2
    let world = BrokerWorld(limits: limits)
    let first = world.attend(administers: false)
    _ = world.attend(administers: false)
    let third = world.attend(administers: false)
    #expect(world.closed[third] == .limitExceeded && world.details[third] == "attending connections")
    world.disconnect(first)
    let fourth = world.attend(administers: false)
    #expect(world.closed[fourth] == nil)
  }

  @Test func watchesOfAllConnectionsAreBounded() {
    var limits = BrokerLimits()
    limits.watchTotalMax = 3
    let world = BrokerWorld(limits: limits)
    let (one, two) = (world.enrol(a), world.attend())
    func watch(_ number: ConnectionNumber) -> WireAnswer? {
      world.answers(number, world.ask(number, .watch(WireFind()))).last
    }
    let first = world.ask(one, .watch(WireFind()))
    #expect(watch(one)?.failure.error == 0 && watch(two)?.failure.error == 0)
    for number in [one, two] {
      let answer = watch(number)
      #expect(answer?.failure.error == 16 && answer?.failure.detail == "watches of all connections")
      #expect(world.closed[number] == nil)
    }
    world.ask(one, .unwatch(.with { $0.watch = first }))
    #expect(watch(two)?.failure.error == 0)
    #expect(watch(two)?.failure.error == 16)
    // Those of a connection go with it.
    world.disconnect(two)
    #expect(watch(one)?.failure.error == 0)
    #expect(BrokerLimits().watchTotalMax == 2048)
  }

  // MARK: Pages and room

  @Test func listsComeInPagesThatTheAskerTurns() {
    var limits = BrokerLimits()
    limits.pageByteCount = 2500
    let world = BrokerWorld(limits: limits)
    for n in 0..<5 {
      let app = world.enrol("com.example.a\(n)")
      world.ask(app, .register(registration(definitions: 1, of: 1000)))
    }
    let tool = world.attend()
    var (after, found, pages) = ("", [String](), 0)
    while true {
      let filter = WireFind.with {
        $0.includesContents = true
        $0.after = after
      }
      let answers = world.answers(tool, world.ask(tool, .find(filter)))
      #expect(answers.count == 1)
      found += answers[0].providers.providers.map(\.appID)
      pages += 1
      guard answers[0].providers.more, let last = found.last else { break }
      after = last
    }
    #expect(found == (0..<5).map { "com.example.a\($0)" } && pages == 3)
    let single = WireFind.with { $0.appID = "com.example.a3" }
    let answer = world.answers(tool, world.ask(tool, .find(single))).last?.providers
    #expect(answer?.providers.map(\.appID) == ["com.example.a3"] && answer?.more == false)
    // A watch gets a page whenever there is room.
    world.full.insert(tool)
    let watch = world.ask(tool, .watch(.with { $0.includesContents = true }))
    #expect(world.answers(tool, watch).isEmpty)
    for n in 1...3 {
      world.makeRoom(tool, once: true)
      #expect(world.answers(tool, watch).count == n)
    }
    #expect(world.answers(tool, watch).map(\.providers.more) == [true, true, false])
  }

  /// Who asks for more than its socket holds gets it as it reads; its watches are told in between.
  @Test func listsAreAnsweredAsThereIsRoom() {
    let world = BrokerWorld()
    let app = world.enrol(a)
    world.register(app, [("com.example.service", "1")])
    let tool = world.attend()
    world.ask(tool, .watch(WireFind()))
    world.full.insert(tool)
    let finds = (0..<3).map { _ in world.ask(tool, .find(WireFind())) }
    let apps = world.ask(tool, .administer(.with { $0.listApps = .init() }))
    world.ask(app, .state(.with { $0.state = .suspended }))
    let told = world.changes(tool).count
    func answered() -> Int { (finds + [apps]).count { !world.answers(tool, $0).isEmpty } }
    #expect(answered() == 0)
    world.makeRoom(tool, once: true)
    #expect(answered() == 1 && world.changes(tool).count == told)
    world.makeRoom(tool, once: true)
    #expect(answered() == 1 && world.changes(tool).count == told + 1)
    world.makeRoom(tool)
    #expect(answered() == 4)
    #expect(world.answers(tool, finds[2]).last?.providers.providers.map(\.state) == [.suspended])
    #expect(world.answers(tool, apps).last?.apps.apps.map(\.provider.appID) == [a])
    // What is asked is counted until it is answered.
    world.full.insert(tool)
    for _ in 0..<256 { world.ask(tool, .find(WireFind())) }
    #expect(world.closed[tool] == nil)
    world.ask(tool, .find(WireFind()))
    #expect(world.closed[tool] == .limitExceeded)
  }

  @Test func aWatcherWithoutRoomGetsTheLatestStateOnce() {
    let world = BrokerWorld()
    let app = world.enrol(a)
    world.register(app, [("com.example.service", "1")])
    let tool = world.attend(administers: false)
    world.ask(tool, .watch(WireFind()))
    world.full.insert(tool)
    let count = world.changes(tool).count
    for _ in 0..<100 {
      world.ask(app, .state(.with { $0.state = .suspended }))
      world.ask(app, .state(.with { $0.state = .locked }))
    }
    #expect(world.changes(tool).count == count)
    world.makeRoom(tool)
    #expect(world.changes(tool).count == count + 1)
    #expect(world.changes(tool).last?.present.map(\.state) == [.locked])
    // There and back again: nothing is new.
    world.full.insert(tool)
    world.ask(app, .state(.with { $0.state = .running }))
    world.ask(app, .state(.with { $0.state = .locked }))
    world.makeRoom(tool)
    #expect(world.changes(tool).count == count + 1)
  }

  @Test func whatAWatchRemembersIsBoundedByWhatThereIs() {
    var limits = BrokerLimits()
    limits.appCountMax = 3
    let world = BrokerWorld(limits: limits)
    let tool = world.attend()
    let watch = world.ask(tool, .watch(WireFind()))
    world.full.insert(tool)
    for n in 0..<50 {
      let app = world.enrol("com.example.a\(n)")
      world.register(app, [("com.example.service", "1")])
      #expect(world.error(tool, .administer(.with { $0.forget = "com.example.a\(n)" })) == 0)
      #expect((world.state.feeds[tool]?.watches[watch]?.dirty.count ?? 0) <= 4)
    }
    world.makeRoom(tool)
    #expect(world.state.feeds[tool]?.watches[watch]?.known.isEmpty == true)
    #expect(world.changes(tool).isEmpty)
  }

  @Test func aChangeOfPolicyGoesToThoseWhomItConcerns() {
    let world = BrokerWorld()
    let apps = (0..<4).map { world.enrol("com.example.a\($0)") }
    for app in apps { world.register(app, [("com.example.service", "1")]) }
    let tool = world.attend()
    let watchers = apps.map { world.ask($0, .watch(WireFind())) }
    let before = apps.map { world.sent[$0]?.count ?? 0 }
    let rule = WireRule.with {
      $0.consumer = "com.example.a0"
      $0.provider = "com.example.a1"
    }
    #expect(world.error(tool, .administer(.with { $0.addRule = rule })) == 0)
    func news(_ n: Int) -> [WireBrokerMessage] { Array((world.sent[apps[n]] ?? []).dropFirst(before[n])) }
    #expect(news(0).count == 2 && news(1).count == 1 && news(2).isEmpty && news(3).isEmpty)
    #expect(news(0).contains { $0.policy.access == [rule] })
    #expect(
      news(0).contains {
        $0.providersChanged.gone == ["com.example.a1"] && $0.providersChanged.watch == watchers[0]
      })
    #expect(news(1).first?.policy.access == [rule])
  }
}
