import Foundation
import Testing

@testable import ServiceWire

/// Apps that give up what the broker keeps of them, and those that come back as they were.
struct BrokerLeavingTests {
  private let a = "com.example.a"
  private let b = "com.example.b"

  @Test func anotherKeyCanEnrolWithTheID() {
    let world = BrokerWorld()
    let app = world.enrol(a) { $0.presenceKey = BrokerWorld.key("presence") }
    world.register(app, [("com.example.echo", "1.0.0.0")])
    let other = world.enrol(b)
    #expect(world.closed[world.enrol(a, key: "new")] == .keyNotPinned)
    let question = world.ask(app, .leave(.init()))
    #expect(world.answers(app, question) == [.with { $0.number = question }])
    #expect(world.closed[app] == .forgotten)
    #expect(world.last(other)?.forgotten.appID == a)
    #expect(world.find(other).isEmpty)
    let place = world.enrol(a, key: "presence", state: .locked) { $0.standsIn = true }
    #expect(world.closed[place] == .keyNotPinned)
    let next = world.enrol(a, key: "new")
    #expect(world.closed[next] == nil && world.last(next)?.enrolled.version == 1)
    // The old key is another one now.
    #expect(world.closed[world.enrol(a)] == .keyNotPinned)
  }

  /// They are the user's decisions.
  @Test func theProgramAndTheApprovalStay() {
    let world = BrokerWorld()
    world.install(a, "/usr/bin/app")
    let app = world.enrol(a)
    world.ask(app, .leave(.init()))
    let tool = world.attend()
    world.ask(tool, .administer(.with { $0.listApps = .init() }))
    let listed = world.last(tool)?.answer.apps.apps
    #expect(listed?.map(\.provider.appID) == [a] && listed?.first?.hasIdentity == false)
    #expect(listed?.first?.program.path == "/usr/bin/app")
  }

  @Test func whoWaitsForItIsRefused() {
    let world = BrokerWorld()
    let app = world.enrol(a, state: .locked)
    let dialler = world.enrol(b)
    let question = world.ask(dialler, .connect(.with { $0.appID = a }))
    world.ask(app, .leave(.init()))
    #expect(world.failure(dialler, question) == 3)
  }

  @Test func isChargedAsARegistration() {
    let world = BrokerWorld()
    var count = 0
    while count < 100 {
      let app = world.enrol(a)
      let question = world.ask(app, .leave(.init()))
      if world.failure(app, question) != 0 { break }
      count += 1
    }
    #expect(count == 30)
  }

  /// Else 200 unlocks in a minute would use up the allowance, and the last ones fail.
  @Test func theSameRegistrationCostsNothing() {
    let world = BrokerWorld()
    let app = world.enrol(a)
    func register(_ name: String) -> Bool {
      world.failure(app, world.ask(app, .register(.with { $0.name = name }))) == 0
    }
    for _ in 0..<200 { #expect(register("same")) }
    var count = 0
    while count < 100, register("name \(count)") { count += 1 }
    #expect(count == 29)
    #expect(register("name \(count - 1)"))
  }
}
