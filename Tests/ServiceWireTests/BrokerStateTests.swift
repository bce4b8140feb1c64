import Foundation
import TestSupport
import Testing

@testable import ServiceWire

struct BrokerStateTests {
  private let a = "com.example.a"
  private let b = "com.example.b"
  private let greetings = "com.example.greetings"

  // MARK: Beginning

  @Test func enrolsAnAppAndKeepsItsKey() {
    let world = BrokerWorld()
    let first = world.enrol(a) { $0.version = 7 }
    #expect(world.sent[first]?.last?.enrolled.version == 1)
    #expect(world.saved == [.app(a)])
    // Again with the same key: the earlier connection goes. With another key: refused, and the earlier one stays.
    let second = world.enrol(a)
    #expect(world.closed[first] == .replaced)
    #expect(world.saved.count == 1)
    let thief = world.enrol(a, key: "another")
    #expect(world.closed[thief] == .keyNotPinned)
    #expect(world.closed[second] == nil)
    // Capitals do not make another app.
    let other = world.enrol("com.example.A", key: "another")
    #expect(world.closed[other] == .keyNotPinned)
  }

  /// Two copies of one container, each started again by something.
  @Test func twoThatReplaceEachOtherAreTold() {
    let world = BrokerWorld()
    var last = world.enrol(a)
    for (pause, isDuplicated) in [
      (0 as UInt64, false), (20_000, false), (39_999, true), (0, false), (30_000, false), (30_000, false),
      (29_999, true),
    ] {
      world.now += pause
      let next = world.enrol(a)
      #expect(world.closed[last] == (isDuplicated ? .duplicated : .replaced))
      #expect(world.sent[next]?.last?.enrolled.isDuplicated == isDuplicated)
      last = next
    }
    // One that ends and comes back replaces nobody.
    for _ in 0..<4 {
      world.disconnect(last)
      last = world.enrol(a)
      #expect(world.sent[last]?.last?.enrolled.isDuplicated == false)
    }
  }

  @Test func theUserIsPinnedWithTheKey() {
    let world = BrokerWorld()
    let first = world.enrol(a, user: "one")
    let second = world.enrol(a, user: "two")
    #expect(world.closed[second] == .enterpriseUserNotMatch && world.closed[first] == nil)
    #expect(world.state.records.apps[a]?.activationUser == "one" && world.saved == [.app(a)])
    // Forgotten, it is a new app, of whom it likes.
    let tool = world.attend()
    #expect(world.error(tool, .administer(.with { $0.forget = a })) == 0)
    let third = world.enrol(a, user: "two")
    #expect(world.closed[third] == nil && world.state.records.apps[a]?.activationUser == "two")
  }

  @Test func aClockThatIsSetMovesNoTimeout() {
    let world = BrokerWorld()
    world.dateOffset = 5_000_000
    let beginning = world.connect()
    _ = world.enrol(a, state: .locked)
    let enrolled = world.date
    #expect(world.state.records.apps[a]?.enrolled == enrolled)
    let dialler = world.enrol(b)
    let question = world.ask(dialler, .connect(.with { $0.appID = a }))
    for offset in [100_000_000, 0] as [UInt64] {
      world.dateOffset = offset
      world.tick(4_999)
      #expect(world.closed.isEmpty && world.answers(dialler, question).isEmpty)
    }
    world.tick(2)
    #expect(world.closed == [beginning: .timedOut])
    world.tick(20_000)
    #expect(world.failure(dialler, question) == 7)
  }

  @Test func refusesBeginningsThatBreakARule() {
    for (change, fault) in [
      ({ $0.appID = "example" }, .malformed), ({ $0.activationUser = "" }, .malformed),
      ({ $0.activationUser = String(repeating: "u", count: 257) }, .malformed),
      ({ $0.state = .notRunning }, .malformed), ({ $0.state = .UNRECOGNIZED(9) }, .malformed),
      ({ $0.version = 0 }, .versionNotSupported),
    ] as [((inout WireEnrol) -> Void, ProtocolFault)] {
      let world = BrokerWorld()
      let number = world.enrol(a, changing: change)
      #expect(world.closed[number] == fault)
      #expect(world.state.records.apps.isEmpty)
    }
    let world = BrokerWorld()
    let long = world.enrol(a, user: String(repeating: "u", count: 256))
    #expect(world.closed[long] == nil)
    let nameless = world.connect()
    world.send(
      .with {
        $0.attend.version = 1
        $0.attend.name = String(repeating: "n", count: 257)
      }, from: nameless)
    #expect(world.closed[nameless] == .malformed)
    let old = world.connect()
    world.send(.with { $0.attend = WireAttend() }, from: old)
    #expect(world.closed[old] == .versionNotSupported)
  }

  @Test func onlyTheAdministratorsKeyAdministers() {
    let world = BrokerWorld()
    let thief = world.attend(key: BrokerWorld.key("another"))
    #expect(world.closed[thief] == .keyNotPinned)
    let plain = world.attend(administers: false)
    #expect(world.find(plain) == [] && world.closed[plain] == nil)
    world.ask(plain, .administer(.with { $0.listApps = .init() }))
    #expect(world.closed[plain] == .unexpectedMessage)
    let administrator = world.attend()
    let question = world.ask(administrator, .administer(.with { $0.listApps = .init() }))
    #expect(
      world.answers(administrator, question).last?.apps.brokerFingerprint
        == KeyFingerprint.of(BrokerWorld.brokerKey))
  }

  @Test func closesOnMessagesThatMayNotComeNow() {
    let messages: [WireBrokerMessage] = [
      .with { $0.question = WireQuestion() }, .with { $0.answer = WireAnswer() },
      .with { $0.enrolled = WireEnrolled() },
    ]
    for message in messages {
      let world = BrokerWorld()
      let number = world.connect()
      world.send(message, from: number)
      #expect(world.closed[number] == .unexpectedMessage)
      #expect(world.state.connectionCount == 0)
    }
    let world = BrokerWorld()
    // The handshake has not shown a key yet.
    let early = world.connect(key: nil)
    world.send(.with { $0.enrol.appID = a }, from: early)
    #expect(world.closed[early] == .unexpectedMessage)
    let empty = world.connect()
    world.send(WireBrokerMessage(), from: empty)
    #expect(world.closed[empty] == .malformed)
    // A tool is no app, and an app no administrator.
    let tool = world.attend()
    world.ask(tool, .connect(.with { $0.appID = a }))
    #expect(world.closed[tool] == .unexpectedMessage)
    let app = world.enrol(a)
    world.ask(app, .administer(.with { $0.listApps = .init() }))
    #expect(world.closed[app] == .unexpectedMessage)
    let twice = world.enrol(b)
    world.send(.with { $0.enrol.appID = b }, from: twice)
    #expect(world.closed[twice] == .unexpectedMessage)
  }

  @Test func whoDoesNotEnrolInTimeGoes() {
    let world = BrokerWorld()
    let number = world.connect()
    let app = world.enrol(a)
    world.tick(9_999)
    #expect(world.closed.isEmpty)
    world.tick(1)
    #expect(world.closed == [number: .timedOut])
    world.tick(1_000_000)
    #expect(world.closed[app] == nil)
  }

  @Test func limitsHoldOneBelowAndOneAbove() {
    var limits = BrokerLimits()
    limits.connectionCountMax = 4
    limits.beginningCountMax = 2
    limits.appCountMax = 2
    limits.watchCountMax = 2
    limits.questionCountMax = 2
    limits.ruleCountMax = 2
    limits.serviceCountMax = 2
    let world = BrokerWorld(limits: limits)
    let oldest = world.connect(process: 1)
    let newest = world.connect(process: 1)
    #expect(world.closed.isEmpty)
    let other = world.connect(process: 2)
    #expect(world.closed == [oldest: .limitExceeded])
    for number in [newest, other] { world.disconnect(number) }
    let one = world.enrol(a)
    let two = world.enrol(b)
    #expect(world.closed[one] == nil && world.closed[two] == nil)
    let last = [world.connect(), world.connect()]
    #expect(last.allSatisfy { world.closed[$0] == nil })
    let many = world.connect()
    #expect(world.closed[many] == .limitExceeded)

    let apps = BrokerWorld(limits: limits)
    let first = apps.enrol(a)
    _ = apps.enrol(b)
    let third = apps.enrol("com.example.c")
    #expect(apps.closed[third] == .limitExceeded)
    apps.register(first, [(greetings, "1.0"), (greetings, "1.1")])
    #expect(
      apps.error(
        first,
        .register(
          .with {
            $0.services = (0..<3).map { n in
              .with {
                $0.id = "com.x\(n).y"
                $0.version = "1"
              }
            }
          })) == 24)
    for _ in 0..<2 { apps.ask(first, .watch(WireFind())) }
    #expect(apps.closed[first] == nil)
    apps.ask(first, .watch(WireFind()))
    #expect(apps.closed[first] == .limitExceeded)
    let tool = apps.attend()
    for n in 0..<3 {
      let rule = WireRule.with {
        $0.provider = "com.example.x\(n)"
        $0.effect = .deny
      }
      #expect(apps.error(tool, .administer(.with { $0.addRule = rule })) == (n < 2 ? 0 : 16))
      #expect(apps.error(tool, .administer(.with { $0.addRule = rule })) == (n < 2 ? 0 : 16))
    }
  }

  // MARK: Discovery

  @Test func findsProvidersAndTellsWatchersOfEveryChange() {
    let world = BrokerWorld()
    let tool = world.attend()
    #expect(world.find(tool, greetings) == [])
    let watch = world.ask(tool, .watch(.with { $0.serviceID = greetings }))
    let provider = world.enrol(a)
    world.register(provider, [(greetings, "1.0.0")])
    #expect(world.find(tool, greetings) == [a])
    #expect(world.find(tool, "com.example.other") == [])
    #expect(world.find(provider, greetings) == [])  // not oneself
    func changes() -> [WireProvidersChanged] { world.changes(tool) }
    #expect(changes().map(\.watch) == [watch])
    #expect(changes().last?.present.first?.state == .running)
    world.ask(provider, .state(.with { $0.state = .suspended }))
    #expect(changes().last?.present.first?.state == .suspended)
    world.register(provider, [(greetings, "1.0.0")])
    #expect(changes().count == 2)  // nothing is different
    world.disconnect(provider)
    #expect(changes().last?.present.first?.state == .notRunning)
    let again = world.enrol(a)
    world.register(again, [("com.example.other", "1.0")])
    #expect(changes().last?.gone == [a])
    let count = changes().count
    world.ask(tool, .unwatch(.with { $0.watch = watch }))
    world.register(again, [(greetings, "1.0")])
    #expect(changes().count == count)
  }

  /// Apps see those that they could call. Administrators' lists have everybody.
  @Test func appsSeeProvidersOfTheirOwnUserAlone() {
    let world = BrokerWorld()
    let services = [(greetings, "1.0")]
    let (one, other) = (world.enrol(a, user: "one"), world.enrol(b, user: "two"))
    let silent = world.enrol("com.example.silent", user: "one")
    world.register(one, services)
    world.register(other, services)
    world.register(silent)
    #expect(world.find(silent) == [a] && world.find(silent, greetings) == [a])
    #expect(world.find(one) == [] && world.find(other) == [])
    // Nor when the id is named.
    let named = world.ask(silent, .find(.with { $0.appID = b }))
    #expect(world.answers(silent, named).last?.providers.providers == [])
    // A plain client is of no user. Nobody is told of an app that offers nothing.
    #expect(world.find(world.attend(administers: false)) == [a, b])
    let own = world.ask(silent, .find(.with { $0.includesOwn = true }))
    #expect(world.answers(silent, own).last?.providers.providers.map(\.appID) == [a])
    let tool = world.attend()
    world.ask(tool, .administer(.with { $0.listApps = .init() }))
    #expect(world.last(tool)?.answer.apps.apps.map(\.provider.appID) == [a, b, "com.example.silent"])
  }

  @Test func appsThatOfferNothingAreFoundByWhoAsksForThem() {
    let world = BrokerWorld()
    let (one, other) = (world.enrol(a, user: "u"), world.enrol("com.example.other", user: "v"))
    let silent = world.enrol(b, user: "u")
    world.register(other)
    _ = world.enrol("com.example.unregistered", user: "u")
    func found(_ change: (inout WireFind) -> Void = { _ in }) -> [String] {
      var find = WireFind.with { $0.includesNonProviders = true }
      change(&find)
      let question = world.ask(one, .find(find))
      return world.answers(one, question).last?.providers.providers.map(\.appID) ?? []
    }
    let watch = world.ask(one, .watch(.with { $0.includesNonProviders = true }))
    #expect(found() == [])
    world.register(silent)
    // Those that it may call, and nobody who offers something else than what is asked for.
    #expect(
      found() == [b] && found { $0.serviceID = greetings } == [] && found { $0.type = .application } == [])
    #expect(world.answers(one, watch).map(\.providers.providers) == [[]])
    #expect(world.changes(one).map(\.present).map { $0.map(\.appID) } == [[b]])
    // Whether it can be started, also while nothing else changes.
    #expect(world.changes(one).last?.present.first?.isInstalled == false)
    world.install(b, "/usr/bin/b")
    #expect(world.changes(one).last?.present.first?.isInstalled == true)
    let tool = world.attend()
    #expect(world.error(tool, .administer(.with { $0.uninstall = b })) == 0)
    #expect(world.changes(one).last?.present.first?.isInstalled == false)
  }

  @Test func aProgramThatOthersCanChangeIsNotInstalled() {
    let world = BrokerWorld()
    let tool = world.attend()
    let install = WireAdminister.with {
      $0.install.appID = a
      $0.install.program.path = "/tmp/program"
    }
    #expect(world.error(tool, .administer(install)) == 8)
    #expect(world.last(tool)?.answer.failure.detail == "program: /tmp/program belongs to another user")
    #expect(world.saved.isEmpty && world.state.records.programs.isEmpty)
  }

  /// The user of an app changes when an administrator has forgotten the app, and in no other way.
  @Test func aWatchFollowsTheUserOfAnApp() {
    let world = BrokerWorld()
    let watcher = world.enrol(a, user: "one")
    let watch = world.ask(watcher, .watch(WireFind()))
    let provider = world.enrol(b, user: "two")
    world.register(provider, [(greetings, "1.0")])
    world.ask(provider, .state(.with { $0.state = .suspended }))
    #expect(world.answers(watcher, watch).map(\.providers.providers) == [[]])
    #expect(world.changes(watcher).isEmpty)
    let tool = world.attend()
    #expect(world.error(tool, .administer(.with { $0.forget = b })) == 0)
    #expect(world.changes(watcher).isEmpty)
    world.register(world.enrol(b, user: "one"), [(greetings, "1.0")])
    #expect(world.changes(watcher).last?.present.map(\.appID) == [b])
    #expect(world.error(tool, .administer(.with { $0.forget = b })) == 0)
    let count = world.changes(watcher).count
    #expect(world.changes(watcher).last?.gone == [b])
    world.register(world.enrol(b, user: "two"), [(greetings, "1.0")])
    #expect(world.changes(watcher).count == count)
    // Without services it goes, and the app itself stays.
    #expect(world.error(tool, .administer(.with { $0.forget = b })) == 0)
    let last = world.enrol(b, user: "one")
    world.register(last, [(greetings, "1.0")])
    world.register(last)
    #expect(world.changes(watcher).suffix(2).map(\.present.count) == [1, 0])
    #expect(world.changes(watcher).last?.gone == [b])
  }

  @Test func aSandboxOfTwoUsersSeesWhatNeitherIsKeptFrom() {
    var limits = BrokerLimits()
    limits.sandboxedApps = .open(8)
    let world = BrokerWorld(limits: limits)
    world.register(world.enrol(a, user: "one"), [(greetings, "1.0")])
    let box = BrokerOrigin.sandbox("box")
    let client = world.connect(key: "client", origin: box)
    world.send(.with { $0.attend.version = 1 }, from: client)
    _ = world.ask(client, .watch(WireFind()))
    #expect(world.find(client) == [])
    _ = world.enrol(b, user: "one", origin: box)
    #expect(world.find(client) == [a] && world.changes(client).last?.present.map(\.appID) == [a])
    let second = world.enrol("com.example.second", user: "two", origin: box)
    #expect(world.find(client) == [] && world.changes(client).last?.gone == [a])
    #expect(world.closed[second] == nil)
  }

  private func server(_ host: String, _ port: UInt32, _ priority: UInt32) -> WireAppServer {
    .with {
      $0.host = host
      $0.port = port
      $0.priority = priority
    }
  }

  @Test func tellsTheServersOfAProvider() throws {
    let world = BrokerWorld()
    let provider = world.enrol(a)
    let consumer = world.enrol(b)
    let watch = world.ask(consumer, .watch(.with { $0.type = .server }))
    var registration = WireRegister.with {
      $0.services = [
        .with {
          $0.id = greetings
          $0.version = "1.0"
          $0.type = .server
        }
      ]
      $0.servers = (1...32).map { server("h\($0).example", $0, 1) }
    }
    #expect(world.error(provider, .register(registration)) == 0)
    #expect(world.changes(consumer).last?.present.map(\.servers) == [registration.servers])
    // A change of nothing else is news.
    registration.servers[3].priority = 2
    #expect(world.error(provider, .register(registration)) == 0)
    #expect(world.changes(consumer).last?.present.map(\.servers) == [registration.servers])
    #expect(world.changes(consumer).map(\.watch) == [watch, watch])
    let found = world.ask(consumer, .find(.init()))
    #expect(world.answers(consumer, found).last?.providers.providers.map(\.servers) == [registration.servers])
    // They outlive the broker.
    var read = BrokerRecords()
    try read.decodeApp(try #require(try world.state.records.encoded(.app(a))))
    #expect(read.apps[a]?.registration == registration)
  }

  @Test func refusesRegistrationsAndSaysWhere() {
    let world = BrokerWorld()
    let app = world.enrol(a)
    let cases: [(String, (inout WireRegister) -> Void)] = [
      ("name", { $0.name = String(repeating: "n", count: 257) }), ("name", { $0.name = "a\nb" }),
      ("icon", { $0.icon = Data([1, 2, 3]) }),
      ("icon", { $0.icon = Data([0x89, 0x50, 0x4e, 0x47] + Array(repeating: 0, count: 65_533)) }),
      (
        "services[0].id",
        {
          $0.services = [
            .with {
              $0.id = "Greetings"
              $0.version = "1"
            }
          ]
        }
      ),
      (
        "services[0].version",
        {
          $0.services = [
            .with {
              $0.id = "com.example.x"
              $0.version = "01"
            }
          ]
        }
      ),
      (
        "services[1]",
        {
          $0.services = Array(
            repeating: .with {
              $0.id = "com.example.x"
              $0.version = "1"
            }, count: 2)
        }
      ),
      (
        "services[0].type",
        {
          $0.services = [
            .with {
              $0.id = "com.example.x"
              $0.version = "1"
              $0.type = .UNRECOGNIZED(7)
            }
          ]
        }
      ),
      (
        "services[0].definition",
        {
          $0.services = [
            .with {
              $0.id = "com.example.x"
              $0.version = "1"
              $0.definition = Data("{}".utf8)
            }
          ]
        }
      ),
      (
        "services[0].definition",
        {
          $0.services = [
            .with {
              $0.id = "com.example.x"
              $0.version = "1"
              $0.definition = Data(#"{"service-id":"com.example.y","version":"1","methods":{}}"#.utf8)
            }
          ]
        }
      ),
      ("servers[1].host", { $0.servers = [server("a", 1, 1), server("a\u{301}", 1, 1)] }),
      ("servers[0].port", { $0.servers = [server("a", 0, 1)] }),
      ("servers[0].port", { $0.servers = [server("a", .max, 1)] }),
      ("servers[0].priority", { $0.servers = [server("a", 1, 0)] }),
      ("servers", { $0.servers = Array(repeating: server("a", 1, 1), count: 33) }),
    ]
    for (path, change) in cases {
      var registration = WireRegister()
      change(&registration)
      let question = world.ask(app, .register(registration))
      let failure = world.answers(app, question).last?.failure
      #expect(failure?.error == 24, "\(path)")
      #expect(failure?.detail.hasPrefix(path) == true, "\(failure?.detail ?? "") for \(path)")
      #expect(world.state.records.apps[a]?.registration == nil)
    }
    #expect(
      world.error(
        app,
        .register(
          .with {
            $0.services = [
              .with {
                $0.id = "com.example.y"
                $0.version = "1"
                $0.definition = Data(#"{"service-id":"com.example.y","version":"1","methods":{}}"#.utf8)
              }
            ]
          }))
        == 0)
  }

  // MARK: Introduction

  @Test func introducesWhoMayBeIntroduced() {
    let world = BrokerWorld()
    let one = world.enrol(a)
    #expect(world.error(one, .connect(.with { $0.appID = b })) == 3)
    let two = world.enrol(b)
    world.register(two, [(greetings, "1.0")])
    #expect(world.find(one) == [b])
    #expect(world.error(one, .connect(.with { $0.appID = b })) == 0)
    #expect(world.introductions.map(\.acceptor) == [two])
    let toAcceptor = world.sent[two]?.last?.introduction
    #expect(
      toAcceptor?.role == .acceptor && toAcceptor?.appID == a
        && toAcceptor?.ticket == world.introductions[0].ticket)
    world.hasRoomForIntroductions = false
    #expect(world.error(one, .connect(.with { $0.appID = b })) == 16)
    world.hasRoomForIntroductions = true
    #expect(world.closed.isEmpty)
    // Suspended, locked, denied.
    world.ask(two, .state(.with { $0.state = .suspended }))
    #expect(world.error(one, .connect(.with { $0.appID = b })) == 2)
    world.ask(two, .state(.with { $0.state = .locked }))
    let waiting = world.ask(one, .connect(.with { $0.appID = b }))
    #expect(world.answers(one, waiting).isEmpty)
    world.tick(29_999)
    #expect(world.answers(one, waiting).isEmpty)
    world.tick(1)
    #expect(world.answers(one, waiting).last?.failure.error == 7)
    let unlocked = world.ask(one, .connect(.with { $0.appID = b }))
    world.ask(two, .state(.with { $0.state = .running }))
    #expect(world.answers(one, unlocked).last?.introduced.ticket == world.introductions.last?.ticket)
    let tool = world.attend()
    let rule = WireRule.with {
      $0.consumer = a
      $0.provider = b
      $0.effect = .deny
    }
    #expect(world.error(tool, .administer(.with { $0.addRule = rule })) == 0)
    #expect(world.sent[one]?.contains { $0.policy.access == [rule] } == true)
    #expect(world.sent[two]?.contains { $0.policy.access == [rule] } == true)
    #expect(world.error(one, .connect(.with { $0.appID = b })) == 7)
    #expect(world.find(one) == [])
    #expect(world.error(two, .connect(.with { $0.appID = a })) == 0)
    #expect(world.error(tool, .administer(.with { $0.removeRule = rule })) == 0)
    #expect(world.error(tool, .administer(.with { $0.removeRule = rule })) == 1)
    #expect(world.error(one, .connect(.with { $0.appID = b })) == 0)
  }

  /// An introduction names the user and the key of the other app: not to apps of other users.
  @Test func introducesNobodyToAppsOfOtherUsers() {
    let world = BrokerWorld()
    let one = world.enrol(a, user: "one")
    let provider = world.enrol(b, user: "two")
    #expect(world.error(one, .connect(.with { $0.appID = b })) == 13)
    world.disconnect(provider)
    world.install(b, "/usr/bin/b")
    // It is not started for that either.
    #expect(world.error(one, .connect(.with { $0.appID = b })) == 13)
    #expect(world.starts.isEmpty)
    // Whose it is nobody knows before it enrols.
    let late = "com.example.late"
    world.install(late, "/usr/bin/late")
    let question = world.ask(one, .connect(.with { $0.appID = late }))
    #expect(world.starts == [late] && world.failure(one, question) == nil)
    _ = world.enrol(late, user: "two")
    #expect(world.failure(one, question) == 13)
    #expect(world.introductions.isEmpty)
  }

  @Test func tellsAnAppWhoWaitsForItOnceOfEach() {
    let world = BrokerWorld()
    let (one, other) = (world.enrol(a), world.enrol("com.example.c"))
    let two = world.enrol(b, state: .locked)
    let dial = WireQuestion.OneOf_Kind.connect(.with { $0.appID = b })
    for _ in 0..<3 { world.ask(one, dial) }
    #expect(world.waitingPeers(two) == [a])
    world.ask(two, .state(.with { $0.state = .suspended }))
    #expect(world.error(other, dial) == 2 && world.error(one, dial) == 2)
    #expect(world.waitingPeers(two) == [a, "com.example.c"])
    // Whom a rule keeps away, who is of another user, and who asks for the front do not wait for it.
    let (tool, stranger) = (world.attend(), world.enrol("com.example.d", user: "v"))
    let rule = WireRule.with {
      $0.consumer = a
      $0.provider = b
      $0.effect = .deny
    }
    world.ask(two, .state(.with { $0.state = .running }))
    world.ask(two, .state(.with { $0.state = .locked }))
    world.ask(tool, .administer(.with { $0.addRule = rule }))
    #expect(world.error(one, dial) == 7)
    #expect(world.error(stranger, dial) == 13)
    world.ask(tool, .administer(.with { $0.front = "com.example.c" }))
    #expect(world.error(other, .bringToFront(.with { $0.appID = b })) == 0)
    #expect(world.waitingPeers(two) == [a, "com.example.c"])
    // It ran since then.
    world.ask(other, dial)
    #expect(world.waitingPeers(two) == [a, "com.example.c", "com.example.c"])
  }

  @Test func tellsAnAppThatStartsLockedWhoWaitsForIt() {
    let world = BrokerWorld()
    world.installStopped(b)
    let one = world.enrol(a)
    let question = world.ask(one, .connect(.with { $0.appID = b }))
    let again = world.enrol(b, state: .locked)
    #expect(world.waitingPeers(again) == [a] && world.answers(one, question).isEmpty)
    // A later process is told of those that dial it.
    world.disconnect(again)
    #expect(world.answers(one, question).last?.failure.error == 3)
    let last = world.enrol(b, state: .locked)
    #expect(world.waitingPeers(last) == [])
    world.ask(one, .connect(.with { $0.appID = b }))
    #expect(world.waitingPeers(last) == [a])
    world.disconnect(last)
    // One that starts suspended is told before the dial is refused.
    let second = world.ask(one, .connect(.with { $0.appID = b }))
    world.tick(10_000)
    let third = world.ask(one, .connect(.with { $0.appID = b }))
    let suspended = world.enrol(b, state: .suspended)
    #expect(world.waitingPeers(suspended) == [a])
    #expect(world.answers(one, second).count == 1)
    #expect(world.answers(one, third).last?.failure.error == 2)
    // Whom a rule has kept away since it dialled is not told.
    world.disconnect(suspended)
    world.tick(10_000)
    world.ask(one, .connect(.with { $0.appID = b }))
    let rule = WireRule.with {
      $0.consumer = a
      $0.provider = b
      $0.effect = .deny
    }
    world.ask(world.attend(), .administer(.with { $0.addRule = rule }))
    #expect(world.waitingPeers(world.enrol(b, state: .locked)) == [])
  }

  /// Another app may have the id of one that was forgotten.
  @Test func tellsOfAForgottenAppAnew() {
    let world = BrokerWorld()
    let two = world.enrol(b, state: .locked)
    let dial = WireQuestion.OneOf_Kind.connect(.with { $0.appID = b })
    world.ask(world.enrol(a), dial)
    world.ask(world.attend(), .administer(.with { $0.forget = a }))
    world.ask(world.enrol(a, key: "another"), dial)
    #expect(world.waitingPeers(two) == [a, a])
  }

  /// Whoever has enrolled and waits for nothing wakes nobody.
  @Test func hasNoDeadlinesWhileNothingIsUnderWay() {
    let world = BrokerWorld()
    #expect(!world.state.hasDeadlines)
    let stranger = world.connect(key: "stranger")
    #expect(world.state.hasDeadlines)
    world.disconnect(stranger)
    let one = world.enrol(a)
    let two = world.enrol(b, state: .locked)
    #expect(!world.state.hasDeadlines)
    world.register(one)
    #expect(world.state.hasDeadlines)
    world.tick(1000)
    #expect(!world.state.hasDeadlines)
    let question = world.ask(one, .connect(.with { $0.appID = b }))
    #expect(world.state.hasDeadlines)
    world.ask(two, .state(.with { $0.state = .running }))
    #expect(world.answers(one, question).count == 1 && !world.state.hasDeadlines)
  }

  @Test func startsAnAppOnceForAllWhoWait() {
    let world = BrokerWorld()
    world.installStopped(b)
    let one = world.enrol(a)
    let other = world.enrol("com.example.c")
    let first = world.ask(one, .connect(.with { $0.appID = b }))
    let second = world.ask(other, .connect(.with { $0.appID = b }))
    #expect(world.starts == [b])
    _ = world.enrol(b)
    #expect(world.answers(one, first).count == 1 && world.answers(other, second).count == 1)
    #expect(world.sent[one]?.contains { $0.waiting.number == first && $0.waiting.reason == .start } == true)
    #expect(world.introductions.count == 2)
    let late = world.state.records
    let again = BrokerWorld(records: late)
    let dialler = again.enrol(a)
    let lost = again.ask(dialler, .connect(.with { $0.appID = b }))
    again.tick(9_999)
    #expect(again.answers(dialler, lost).isEmpty)
    again.tick(1)
    #expect(again.answers(dialler, lost).last?.failure.error == 3)
  }

  /// What was once how an app named its own program: field 6 of a registration.
  @Test func anAppDoesNotNameTheProgramThatStartsIt() throws {
    let world = BrokerWorld()
    let two = world.enrol(b)
    let program = Data([10]) + Data([7]) + Data("/bin/sh".utf8)
    let registration = try WireRegister(
      serializedBytes: Data([10, 1, 65]) + Data([50, UInt8(program.count)]) + program)
    #expect(world.error(two, .register(registration)) == 0)
    world.disconnect(two)
    let one = world.enrol(a)
    #expect(world.error(one, .connect(.with { $0.appID = b })) == 3)
    // Nor for another app.
    let install = WireAdminister.with {
      $0.install.appID = b
      $0.install.program.path = "/bin/sh"
    }
    world.ask(one, .administer(install))
    #expect(world.closed[one] == .unexpectedMessage)
    #expect(world.starts.isEmpty && world.state.records.programs.isEmpty)
  }

  @Test func anAdministratorNamesTheProgramThatStartsAnApp() {
    let world = BrokerWorld()
    let tool = world.attend()
    func install(_ change: (inout WireInstall) -> Void) -> UInt32? {
      var install = WireInstall.with {
        $0.appID = b
        $0.program.path = "/usr/bin/b"
      }
      change(&install)
      let message = install
      return world.error(tool, .administer(.with { $0.install = message }))
    }
    #expect(install { $0.program.path = "bin/b" } == 8)
    #expect(install { $0.program.path = "" } == 8)
    #expect(install { $0.program.path = "/" + String(repeating: "b", count: 4096) } == 8)
    #expect(install { $0.program.arguments = ["a\0b"] } == 8)
    #expect(install { $0.program.arguments = Array(repeating: "a", count: 65) } == 8)
    #expect(install { $0.appID = "nonsense" } == 8)
    #expect(world.state.records.programs.isEmpty)
    #expect(install { $0.program.arguments = Array(repeating: "a", count: 64) } == 0)
    #expect(world.saved == [.program(b)])
    // It need not have enrolled before.
    world.ask(tool, .administer(.with { $0.listApps = .init() }))
    #expect(world.last(tool)?.answer.apps.apps.first?.program.path == "/usr/bin/b")
    let one = world.enrol(a)
    world.ask(one, .connect(.with { $0.appID = b }))
    #expect(world.starts == [b])
    #expect(world.error(tool, .administer(.with { $0.uninstall = b })) == 0)
    #expect(world.error(tool, .administer(.with { $0.uninstall = b })) == 3)
    #expect(world.error(one, .connect(.with { $0.appID = b })) == 3)
  }

  // MARK: Damage

  @Test func aDamagedPolicyDeniesEverything() {
    var records = BrokerRecords()
    records.policy = .damaged
    let world = BrokerWorld(records: records)
    let one = world.enrol(a)
    let two = world.enrol(b)
    world.register(two, [(greetings, "1.0")])
    #expect(world.sent[one]?.first?.enrolled.policy.access.first?.effect == .deny)
    #expect(world.error(one, .connect(.with { $0.appID = b })) == 7)
    #expect(world.find(one) == [])
    let tool = world.attend()
    let rule = WireRule.with {
      $0.consumer = a
      $0.effect = .deny
    }
    for message in [
      WireAdminister.with { $0.listRules = .init() }, .with { $0.addRule = rule },
      .with { $0.removeRule = rule },
    ] {
      let question = world.ask(tool, .administer(message))
      #expect(world.answers(tool, question).last?.failure.detail.contains("policy's file is damaged") == true)
    }
    #expect(!world.saved.contains(.policy))
  }

  @Test func aDamagedPinRefusesItsID() {
    var records = BrokerRecords()
    records.damagedApps = [a]
    let world = BrokerWorld(records: records)
    let refused = world.enrol(a)
    #expect(world.closed[refused] == .keyNotPinned)
    let one = world.enrol(b)
    #expect(world.closed[one] == nil)
    world.install(a, "/usr/bin/a")
    #expect(world.error(one, .connect(.with { $0.appID = a })) == 3)
    let tool = world.attend()
    world.ask(tool, .administer(.with { $0.listApps = .init() }))
    #expect(world.last(tool)?.answer.apps.apps.first { $0.provider.appID == a }?.isDamaged == true)
    #expect(world.error(tool, .administer(.with { $0.forget = a })) == 0)
    #expect(world.saved.contains(.app(a)))
    let next = world.enrol(a)
    #expect(world.closed[next] == nil)
  }

  @Test func aDamagedProgramIsListedUntilItIsReplaced() {
    var records = BrokerRecords()
    records.damagedPrograms = [a, b]
    let world = BrokerWorld(records: records)
    let tool = world.attend()
    func damaged() -> [String] {
      world.ask(tool, .administer(.with { $0.listApps = .init() }))
      return world.last(tool)?.answer.apps.apps.filter(\.isProgramDamaged).map(\.provider.appID) ?? []
    }
    #expect(damaged() == [a, b])
    world.install(a, "/usr/bin/a")
    #expect(damaged() == [b])
    #expect(world.error(tool, .administer(.with { $0.uninstall = b })) == 0)
    #expect(world.saved.contains(.program(b)) && damaged() == [])
    #expect(world.error(tool, .administer(.with { $0.uninstall = b })) == 3)
  }

  /// Which key was approved for it is not known.
  @Test func anAppWhoseProgramIsDamagedIsNotApproved() {
    var records = BrokerRecords()
    records.damagedPrograms = [a]
    let world = BrokerWorld(records: records)
    let tool = world.attend()
    let approval = WireAdminister.with {
      $0.approve.appID = a
      $0.approve.keyFingerprint = Data(repeating: 7, count: KeyFingerprint.byteCount)
    }
    #expect(world.error(tool, .administer(approval)) == 1)
    #expect(world.saved.isEmpty && world.state.records.programs.isEmpty)
    #expect(world.state.records.damagedPrograms == [a])
  }

  @Test(arguments: [false, true]) func forgettingAnAppRemovesItsDamagedProgram(hasEnrolled: Bool) {
    var records = BrokerRecords()
    records.damagedPrograms = [a]
    let world = BrokerWorld(records: records)
    if hasEnrolled { _ = world.enrol(a) }
    let tool = world.attend()
    #expect(world.error(tool, .administer(.with { $0.forget = a })) == 0)
    #expect(world.saved.contains(.program(a)) && world.state.records.damagedPrograms.isEmpty)
    #expect(world.error(tool, .administer(.with { $0.forget = a })) == 3)
  }

  // MARK: Front

  @Test func onlyTheAppInFrontPassesTheFrontOn() {
    let world = BrokerWorld()
    let one = world.enrol(a)
    let two = world.enrol(b)
    let tool = world.attend()
    #expect(world.error(one, .bringToFront(.with { $0.appID = b })) == 20)
    #expect(world.error(tool, .administer(.with { $0.front = "com.example.c" })) == 3)
    #expect(world.error(tool, .administer(.with { $0.front = a })) == 0)
    #expect(world.sent[one]?.last { $0.kind != nil }?.frontChanged.isInFront == true)
    #expect(world.error(two, .bringToFront(.with { $0.appID = b })) == 20)
    #expect(world.error(one, .bringToFront(.with { $0.appID = "com.example.c" })) == 3)
    #expect(world.error(one, .bringToFront(.with { $0.appID = b })) == 0)
    #expect(world.state.presence.front == b)
    world.compositor = false
    #expect(world.error(two, .bringToFront(.with { $0.appID = a })) == 21)
    #expect(world.state.presence.front == b)
    // The compositor takes its time, and the app in front goes meanwhile.
    world.compositor = nil
    let question = world.ask(two, .bringToFront(.with { $0.appID = a }))
    world.disconnect(two)
    #expect(world.state.presence.front == nil)
    world.perform(world.state.compositorAnswered(world.asked[0], isDone: true, now: world.now))
    #expect(world.state.presence.front == nil)
    #expect(world.answers(two, question).isEmpty)
  }

  // MARK: Administration, records

  @Test func forgetsAnAppAltogether() {
    let world = BrokerWorld()
    let app = world.enrol(a)
    world.register(app, [(greetings, "1.0")])
    let tool = world.attend()
    #expect(world.error(tool, .administer(.with { $0.forget = a })) == 0)
    #expect(world.closed[app] == .forgotten)
    #expect(world.find(tool, greetings) == [])
    #expect(world.error(tool, .administer(.with { $0.forget = a })) == 3)
    let other = world.enrol(a, key: "another")
    #expect(world.closed[other] == nil)
  }

  @Test func recordsReadAsTheyWereWritten() throws {
    let world = BrokerWorld()
    let app = world.enrol(a)
    world.register(app, [(greetings, "1.0")])
    world.install(a, "/usr/bin/a")
    let other = world.enrol(b)
    world.register(other)
    world.ask(other, .unregister(WireUnregister()))
    let tool = world.attend()
    _ = world.error(
      tool,
      .administer(
        .with {
          $0.addRule = .with {
            $0.serviceID = greetings
            $0.effect = .disable
          }
        }))
    let gone = world.enrol("com.example.gone")
    #expect(world.error(tool, .administer(.with { $0.forget = "com.example.gone" })) == 0)
    #expect(world.closed[gone] == .forgotten)
    world.saved.removeAll { $0 == .app("com.example.gone") }
    #expect(Set(world.saved) == [.app(a), .app(b), .program(a), .policy, .forgotten])
    var read = BrokerRecords()
    for part in Set(world.saved) {
      let bytes = try #require(try world.state.records.encoded(part))
      switch part {
      case .app(let appID): #expect(try read.decodeApp(bytes) == appID)
      case .program(let appID): #expect(try read.decodeProgram(bytes) == appID)
      case .policy: try read.decodePolicy(bytes)
      case .forgotten: try read.decodeForgotten(bytes)
      }
      #expect(try read.encoded(part) == bytes)
      #expect(throws: ProtocolFault.malformed) {
        var again = read
        switch part {
        case .app: try again.decodeApp(bytes)
        case .program: try again.decodeProgram(Data())
        case .policy: try again.decodePolicy(bytes + bytes)
        // More than were ever forgotten.
        case .forgotten: try again.decodeForgotten(bytes.prefix { _ in false } + [10, 1, 97])
        }
      }
      #expect(throws: ProtocolFault.malformed) {
        var cut = BrokerRecords()
        switch part {
        case .app: try cut.decodeApp(bytes.dropLast())
        case .program: try cut.decodeProgram(bytes.dropLast())
        case .policy: try cut.decodePolicy(bytes.dropLast())
        case .forgotten: try cut.decodeForgotten(bytes.dropLast())
        }
      }
    }
    #expect(read == world.state.records)
    #expect(try read.encoded(.app("com.example.none")) == nil)
  }

  @Test func rulesDisableWhatTheyName() {
    let service = WireRule.with {
      $0.serviceID = greetings
      $0.effect = .disable
    }
    var version = service
    version.version = "1.0"
    var method = version
    method.method = "greet"
    func code(_ rule: WireRule, _ version: String = "1.0", _ method: String = "greet") -> UInt32? {
      rule.disables(consumer: a, service: greetings, version: version, method: method)
    }
    #expect(code(service) == 12 && code(service, "2.0") == 12)
    #expect(code(version) == 11 && code(version, "2.0") == nil)
    #expect(code(method) == 10 && code(method, "1.0", "other") == nil)
    var foreign = service
    foreign.consumer = b
    #expect(code(foreign) == nil)
    let world = BrokerWorld()
    let tool = world.attend()
    for wrong: WireRule in [
      .with { $0.effect = .disable },
      .with {
        $0.serviceID = greetings
        $0.method = "m"
        $0.effect = .disable
      },
      .with {
        $0.serviceID = greetings
        $0.effect = .deny
      }, .with { $0.effect = .UNRECOGNIZED(5) },
    ] {
      #expect(world.error(tool, .administer(.with { $0.addRule = wrong })) == 8)
    }
  }

  // MARK: Any order

  @Test func anyOrderKeepsWatchersRightAndAnswersEveryQuestionOnce() {
    for _ in 0..<30 {
      let seed =
        ProcessInfo.processInfo.environment["OPENDYNAMICS_SEED"].flatMap(UInt64.init)
        ?? UInt64.random(in: 0...UInt64.max)
      var random = SplitMix64(seed: seed)
      let world = BrokerWorld()
      world.compositor = true
      let apps = (0..<5).map { "com.example.app\($0)" }
      let tool = world.attend()
      let watch = world.ask(tool, .watch(.with { $0.serviceID = greetings }))
      var live: [String: ConnectionNumber] = [:]
      var asked: [(ConnectionNumber, UInt64)] = []
      for _ in 0..<300 {
        let app = apps.randomElement(using: &random)!
        let other = apps.randomElement(using: &random)!
        guard let number = live[app], world.closed[number] == nil else {
          live[app] = world.enrol(app)
          continue
        }
        switch Int.random(in: 0..<10, using: &random) {
        case 0:
          world.disconnect(number)
          world.closed[number] = .noError
        case 1, 2:
          world.register(number, Bool.random(using: &random) ? [(greetings, "1.0")] : [])
          world.install(app, "/bin/app")
        case 3:
          asked.append(
            (
              number,
              world.ask(
                number,
                .state(.with { $0.state = [.running, .suspended, .locked].randomElement(using: &random)! }))
            ))
        case 4, 5: asked.append((number, world.ask(number, .connect(.with { $0.appID = other }))))
        case 6: asked.append((number, world.ask(number, .bringToFront(.with { $0.appID = other }))))
        case 7: asked.append((tool, world.ask(tool, .administer(.with { $0.front = app }))))
        case 8:
          let rule = WireRule.with {
            $0.consumer = app
            $0.provider = other
            $0.effect = .deny
          }
          let isThere = world.state.records.policy.rules.contains(rule)
          asked.append(
            (
              tool,
              world.ask(
                tool, .administer(.with { if isThere { $0.removeRule = rule } else { $0.addRule = rule } }))
            ))
        default: world.tick(UInt64.random(in: 0...15_000, using: &random))
        }
        #expect(
          world.state.presence.front.map { live[$0].map { world.closed[$0] == nil } ?? false } ?? true,
          "seed \(seed)")
      }
      // Second by second: a program that may be started again only now has its start time before it.
      for _ in 0..<100 { world.tick(1000) }
      for (number, question) in asked where world.closed[number] == nil {
        #expect(world.answers(number, question).count == 1, "seed \(seed), question \(question)")
      }
      // What the watcher heard adds up to what there is.
      var seen: [String: WireProvider] = [:]
      for message in world.sent[tool] ?? [] {
        guard case .providersChanged(let change)? = message.kind, change.watch == watch else { continue }
        for provider in change.present { seen[provider.appID] = provider }
        for appID in change.gone { seen[appID] = nil }
      }
      let question = world.ask(tool, .find(.with { $0.serviceID = greetings }))
      let found = world.answers(tool, question).flatMap(\.providers.providers)
      #expect(found == seen.values.sorted { $0.appID < $1.appID }, "seed \(seed)")
    }
  }
}
