import ServiceValues
import Testing

@testable import ServiceWire

/// Who may call whom, and what the others see of it.
struct BrokerPolicyTests {
  private static let (mail, notes, other) = ("com.example.mail", "com.example.notes", "com.example.other")

  private static func rule(_ effect: WireEffect, _ consumer: String?, _ provider: String?) -> WireRule {
    .with {
      $0.effect = effect
      if let consumer { $0.consumer = consumer }
      if let provider { $0.provider = provider }
    }
  }

  /// The rule that says most decides, in whatever order they were added.
  @Test func theRuleThatSaysMostDecides() {
    let (mail, notes, other) = (Self.mail, Self.notes, Self.other)
    let rules = [
      Self.rule(.deny, nil, nil), Self.rule(.allow, mail, notes), Self.rule(.allow, nil, other),
      Self.rule(.deny, mail, nil),
    ]
    for rules in [rules, rules.reversed()] {
      let access = AccessRules(rules)
      #expect(!access.denies(mail, notes))
      #expect(access.denies(notes, mail) && access.denies(other, notes))
      #expect(!access.denies(notes, other))
      // One allows and one denies: each names one app.
      #expect(access.denies(mail, other))
    }
    #expect(!AccessRules([Self.rule(.allow, nil, nil)]).denies(mail, notes))
    var changed = AccessRules(rules)
    changed.remove(rules[1])
    #expect(changed.denies(mail, notes))
  }

  /// A provider that only one app may call: no other id gets there, also one that enrols later.
  @Test func anAppIsCalledByThoseAloneWhoMay() {
    let world = BrokerWorld()
    let (mail, notes, other) = (Self.mail, Self.notes, Self.other)
    let provider = world.enrol(notes)
    world.register(provider, [("com.example.service", "1.0")])
    let (one, two) = (world.enrol(mail), world.enrol(other))
    let tool = world.attend()
    for rule in [Self.rule(.deny, nil, notes), Self.rule(.allow, mail, notes)] {
      #expect(world.error(tool, .administer(.with { $0.addRule = rule })) == 0)
    }
    #expect(world.error(one, .connect(.with { $0.appID = notes })) == 0)
    #expect(world.error(two, .connect(.with { $0.appID = notes })) == 7)
    #expect(world.find(one) == [notes] && world.find(two) == [])
    let late = world.enrol("com.example.late")
    #expect(world.error(late, .connect(.with { $0.appID = notes })) == 7)
    // Both sides know, and hold each other to it.
    #expect(world.sent[provider]?.contains { $0.policy.access.count == 2 } == true)
    #expect(world.sent[late]?.first?.enrolled.policy.access == [Self.rule(.deny, nil, notes)])
    let wrong = WireRule.with {
      $0.effect = .allow
      $0.serviceID = "com.example.service"
    }
    #expect(world.error(tool, .administer(.with { $0.addRule = wrong })) == 8)
  }

  /// A client of a sandbox sees no more than every app of it may, and no client or app of one what the user does when.
  @Test func aSandboxSeesWhatItsAppsMayAndNothingOfTheUser() throws {
    var limits = BrokerLimits()
    limits.sandboxedApps = .open(8)
    let world = BrokerWorld(limits: limits)
    let (mail, notes, other) = (Self.mail, Self.notes, Self.other)
    for id in [notes, other] { world.register(world.enrol(id), [("com.example.service", "1.0")]) }
    let boxed = world.enrol(mail, origin: .sandbox("box"))
    let tool = world.attend()
    #expect(world.error(tool, .administer(.with { $0.addRule = Self.rule(.deny, mail, notes) })) == 0)
    #expect(world.error(tool, .administer(.with { $0.front = other })) == 0)
    func attend(_ origin: BrokerOrigin) -> ConnectionNumber {
      let client = world.connect(key: "client \(origin)", origin: origin)
      world.send(.with { $0.attend.version = 1 }, from: client)
      return client
    }
    func seen(_ number: ConnectionNumber) -> [WireProvider] {
      world.answers(number, world.ask(number, .find(.init()))).flatMap(\.providers.providers)
    }
    let client = attend(.sandbox("box"))
    #expect(seen(client).map(\.appID) == [other] && seen(boxed).map(\.appID) == [other])
    for number in [client, boxed] {
      #expect(seen(number).first?.state == .hidden && seen(number).first?.isInFront == false)
    }
    let plain = attend(.plain)
    #expect(seen(plain).map(\.appID) == [notes, other])
    #expect(seen(plain).last?.state == .running && seen(plain).last?.isInFront == true)
    #expect(seen(tool).count == 2)
    // A sandbox without an app can call nobody.
    #expect(seen(attend(.sandbox("empty"))) == [])
    // What it may see changes for those who watch, too.
    _ = world.ask(client, .watch(.init()))
    #expect(world.error(tool, .administer(.with { $0.removeRule = Self.rule(.deny, mail, notes) })) == 0)
    #expect(world.changes(client).flatMap(\.present).map(\.appID) == [notes])
  }
}
