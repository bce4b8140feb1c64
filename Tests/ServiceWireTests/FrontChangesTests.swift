import Testing

@testable import ServiceWire

/// Who is asked for as the app in front, and in which order.
struct FrontChangesTests {
  private static let (a, b, c) = ("com.example.a", "com.example.b", "com.example.c")

  /// Three apps that run, of which `a` is in front. A question has the number of its asker's connection.
  private struct Fixture {
    var presence = AppPresence()
    var policy = BrokerPolicy()
    var answers = BrokerAnswers()
    var changes: FrontChanges
    private var nextQuestion: UInt64 = 1

    init() {
      var limits = BrokerLimits()
      limits.compositorTime = 1000
      changes = FrontChanges(limits: limits)
      for (n, appID) in [a, b, c].enumerated() {
        presence.begin(appID, ConnectionNumber(UInt64(n)), process: 1, .running)
      }
      presence.setFront(a)
    }

    /// Adds a wish, whose question has the next number. Asks for nothing.
    mutating func add(_ asker: String?, _ appID: String?) -> [String] {
      let number = presence.running[asker ?? ""]?.connection ?? ConnectionNumber(99)
      let question = BrokerQuestion(asker: number, number: nextQuestion)
      nextQuestion += 1
      answers.open(question)
      changes.add(FrontChanges.Wish(question: question, asker: asker, appID: appID), &answers)
      return answers.takeOutputs().map(\.text)
    }

    mutating func ask(now: UInt64 = 0) -> [String] {
      changes.askCompositor(presence, policy, now: now, &answers)
      return answers.takeOutputs().map(\.text)
    }
  }

  @Test func asksForOneChangeAtATime() {
    var it = Fixture()
    #expect(it.ask() == [] && !it.changes.isAsked)
    #expect(it.add(Self.a, Self.b) == [] && it.add(Self.a, Self.c) == [])
    #expect(it.ask() == ["front com.example.b 1"] && it.changes.isAsked)
    #expect(it.ask() == [] && it.changes.wishes.count == 1)
    let ended = it.changes.end(FrontChange(number: 1), it.presence)
    #expect(ended?.wish.appID == Self.b && ended?.holds == true && !it.changes.isAsked)
    // It did not come to front after all, so that the other wish is still one of the app in front.
    #expect(it.ask() == ["front com.example.c 2"])
  }

  /// Much may have changed since a wish was added.
  @Test func checksAWishWhenItsTurnComes() {
    var it = Fixture()
    _ = it.add(Self.b, Self.c)
    #expect(it.ask() == ["fail 1 notInFront"])
    _ = it.add(Self.a, Self.b)
    it.policy.add(
      .with {
        $0.consumer = Self.a
        $0.provider = Self.b
      })
    #expect(it.ask() == ["fail 2 notAllowed"])
    _ = it.add(Self.a, Self.c)
    _ = it.add(Self.a, "com.example.none")
    _ = it.presence.end(Self.c, ConnectionNumber(2))
    // Those that are refused hold up nobody.
    _ = it.add(nil, Self.b)
    #expect(it.ask() == ["front com.example.b 1"])
    _ = it.changes.end(FrontChange(number: 1), it.presence)
    _ = it.add(Self.a, Self.c)
    _ = it.add(Self.a, "com.example.none")
    _ = it.add(Self.a, Self.a)
    #expect(
      it.ask() == ["fail 6 applicationNotFound", "fail 7 applicationNotFound", "front com.example.a 2"])
  }

  /// The user is asked by no rule, and by no app in front.
  @Test func theUserMayBringEveryAppToFrontThatRunsOrNone() {
    var it = Fixture()
    it.presence.setFront(nil)
    it.policy = .damaged
    _ = it.add(nil, Self.b)
    #expect(it.ask() == ["front com.example.b 1"])
    #expect(it.changes.end(FrontChange(number: 1), it.presence)?.holds == true)
    _ = it.add(nil, nil)
    #expect(it.ask() == ["front none 2"])
    #expect(it.changes.end(FrontChange(number: 2), it.presence)?.holds == true)
    _ = it.add(nil, "com.example.none")
    #expect(it.ask() == ["fail 3 applicationNotFound"])
  }

  @Test func aWishOfTheUserEndsThoseOfAppsThatWait() {
    var it = Fixture()
    _ = it.add(Self.a, Self.b)
    #expect(it.ask() == ["front com.example.b 1"])
    _ = it.add(nil, Self.c)
    _ = it.add(Self.a, Self.c)
    _ = it.add(Self.a, Self.b)
    // An earlier wish of the user stays, and one that the compositor has is no more waiting.
    #expect(it.add(nil, nil) == ["fail 3 frontRefused", "fail 4 frontRefused"])
    #expect(it.changes.wishes.map(\.appID) == [Self.c, nil])
    #expect(it.changes.end(FrontChange(number: 1), it.presence)?.holds == true)
    #expect(it.ask() == ["front com.example.c 2"])
  }

  @Test func aConnectionTakesItsWaitingWishesAlong() {
    var it = Fixture()
    _ = it.add(Self.a, Self.b)
    _ = it.ask()
    _ = it.add(Self.a, Self.c)
    _ = it.add(nil, Self.c)
    _ = it.add(Self.a, Self.b)
    it.changes.remove(asker: ConnectionNumber(0))
    #expect(it.changes.wishes.map(\.asker) == [nil] && it.changes.isAsked)
    it.changes.remove(asker: ConnectionNumber(7))
    #expect(it.changes.wishes.count == 1)
  }

  /// Whether what the compositor has done still holds.
  @Test func aChangeHoldsWhileBothAppsAreAsTheyWere() {
    func holds(of asker: String?, _ change: (inout AppPresence) -> Void) -> Bool? {
      var it = Fixture()
      _ = it.add(asker, Self.b)
      _ = it.ask()
      change(&it.presence)
      return it.changes.end(FrontChange(number: 1), it.presence)?.holds
    }
    #expect(holds(of: Self.a) { _ in } == true)
    #expect(holds(of: Self.a) { $0.setFront(Self.c) } == false)
    #expect(holds(of: Self.a) { _ = $0.end(Self.a, ConnectionNumber(0)) } == false)
    #expect(holds(of: Self.a) { _ = $0.end(Self.b, ConnectionNumber(1)) } == false)
    #expect(holds(of: nil) { $0.setFront(Self.c) } == true)
    #expect(holds(of: nil) { _ = $0.end(Self.b, ConnectionNumber(1)) } == false)
  }

  @Test func aChangeEndsOnce() {
    var it = Fixture()
    #expect(it.changes.end(FrontChange(number: 1), it.presence) == nil)
    _ = it.add(Self.a, Self.b)
    _ = it.ask(now: 5)
    #expect(it.changes.end(FrontChange(number: 2), it.presence) == nil && it.changes.isAsked)
    #expect(it.changes.overdue(now: 1004) == nil)
    #expect(it.changes.overdue(now: 1005) == FrontChange(number: 1))
    #expect(it.changes.end(FrontChange(number: 1), it.presence) != nil)
    #expect(it.changes.end(FrontChange(number: 1), it.presence) == nil)
    #expect(it.changes.overdue(now: .max) == nil)
  }
}
