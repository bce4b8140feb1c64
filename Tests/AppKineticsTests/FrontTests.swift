import AppKinetics
import AppKineticsTesting
import Foundation
import SecureFiles
import Testing

/// Who is in front, and who brings whom there, among apps in processes of their own.
@Suite(.timeLimit(.minutes(5)))
struct FrontTests {
  private let a = "com.example.consumer"
  private let b = "com.example.provider"

  /// A consumer and a provider that run; the user has brought one of them to front.
  private func withApps(
    front: String, _ body: (TestApps, _ consumer: FrontApp, _ provider: FrontApp) async throws -> Void
  ) async throws {
    try await withTestApps { world in
      let (consumer, provider) = try await (world.frontApp(a), world.frontApp(b))
      try await world.choose(front)
      try await (front == a ? consumer : provider).expect("in front")
      try await body(world, consumer, provider)
      try await consumer.end()
      try await provider.end()
    }
  }

  /// The app in front has asked for nothing: what it had asked for would stand before the user's choice.
  private func expectNothingAsked(of app: FrontApp, _ world: TestApps) async throws {
    #expect(try await app.result(of: "look") == "done")
    try await world.choose(app.id)
    #expect(world.frontIDs == [app.id, app.id])
  }

  // MARK: Front requests

  @Test func aProviderThatNeedsTheFrontAsksForItAndGivesItBack() async throws {
    try await withApps(front: a) { world, consumer, provider in
      #expect(try await consumer.result(of: "send \(b) none") == "done")
      try await provider.expect("show of \(a)")
      #expect(try await provider.result(of: "bring \(a)") == "notInFront")
      #expect(try await provider.result(of: "request-front \(a)") == "done")
      try await consumer.expect("front request of \(b)")
      #expect(try await consumer.result(of: "bring \(b)") == "done")
      try await consumer.expect("not in front")
      try await provider.expect("in front")
      #expect(try await provider.result(of: "reply peer") == "done")
      #expect(try await consumer.value(of: "outcome") == "replied")
      try await provider.expect("not in front")
      try await consumer.expect("in front")
      #expect(world.frontIDs == [a, b, a])
    }
  }

  @Test func aConsumerThatIgnoresAFrontRequestStaysInFront() async throws {
    try await withApps(front: a) { world, consumer, provider in
      #expect(try await consumer.result(of: "send \(b) none") == "done")
      try await provider.expect("show of \(a)")
      #expect(try await provider.result(of: "request-front \(a)") == "done")
      try await consumer.expect("front request of \(b)")
      #expect(try await provider.result(of: "fail none") == "done")
      #expect(try await consumer.value(of: "outcome") == "error 5")
      try await expectNothingAsked(of: consumer, world)
    }
  }

  // MARK: Preferences

  @Test(arguments: ["me", "peer", "none"], ["", " /file"])
  func thePreferenceOfARequestTakesEffect(foreground: String, file: String) async throws {
    try await withApps(front: a) { world, consumer, provider in
      #expect(try await consumer.result(of: "send \(b) \(foreground)\(file)") == "done")
      try await provider.expect("show of \(a)")
      if foreground == "peer" {
        try await provider.expect("in front")
        #expect(world.frontIDs == [a, b])
      } else {
        try await expectNothingAsked(of: consumer, world)
      }
      #expect(try await provider.result(of: "reply none") == "done")
      #expect(try await consumer.value(of: "outcome") == "replied")
    }
  }

  @Test(arguments: ["me", "peer", "none"], ["", " /file"])
  func thePreferenceOfAReplyTakesEffect(foreground: String, file: String) async throws {
    try await withApps(front: b) { world, consumer, provider in
      // One of the two messages has a file: the reply goes through the outbox in both cases.
      #expect(try await consumer.result(of: "send \(b) none\(file.isEmpty ? " /request" : "")") == "done")
      try await provider.expect("show of \(a)")
      #expect(try await provider.result(of: "reply \(foreground)\(file)") == "done")
      #expect(try await consumer.value(of: "outcome") == "replied")
      try await provider.expect("reply arrived")
      if foreground == "peer" {
        try await consumer.expect("in front")
        #expect(world.frontIDs == [b, a])
      } else {
        try await expectNothingAsked(of: provider, world)
      }
    }
  }

  /// Over the channel: neither the request nor the reply has a file.
  @Test(arguments: ["reply", "fail"], ["me", "peer", "none"])
  func thePreferenceOfAReplyWithoutFilesTakesEffect(command: String, foreground: String) async throws {
    try await withApps(front: b) { world, consumer, provider in
      #expect(try await consumer.result(of: "send \(b) none") == "done")
      try await provider.expect("show of \(a)")
      #expect(try await provider.result(of: "\(command) \(foreground)") == "done")
      #expect(try await consumer.value(of: "outcome") == (command == "reply" ? "replied" : "error 5"))
      try await provider.expect("reply arrived")
      if foreground == "peer" {
        try await consumer.expect("in front")
        #expect(world.frontIDs == [b, a])
      } else {
        try await expectNothingAsked(of: provider, world)
      }
    }
  }

  /// The user unlocks the receiver in front: a request that waits for that brings it there. So does one that
  /// waits for the receiver to be resumed, which only those with files do.
  @Test(
    arguments: [true, false],
    [("locked", ""), ("locked", " /file"), ("suspended", " /file")])
  func thePreferenceOfARequestThatWaitsTakesEffect(
    hasChannel: Bool, receiver: (state: String, file: String)
  ) async throws {
    try await withApps(front: a) { world, consumer, provider in
      if hasChannel {
        #expect(try await consumer.result(of: "send \(b) none") == "done")
        try await provider.expect("show of \(a)")
        #expect(try await provider.result(of: "reply none") == "done")
        #expect(try await consumer.value(of: "outcome") == "replied")
      }
      #expect(try await provider.result(of: "state \(receiver.state)") == "done")
      try consumer.tell("send \(b) peer\(receiver.file)")
      try await provider.expect("in front")
      // Once: the user's choice stands, also when the provider has the request.
      try await world.choose(a)
      try await consumer.expect("in front")
      #expect(try await provider.result(of: "state running") == "done")
      #expect(try await consumer.value(of: "send") == "done")
      try await provider.expect("show of \(a)")
      #expect(try await provider.result(of: "reply none") == "done")
      #expect(try await consumer.value(of: "outcome") == "replied")
      #expect(try await consumer.result(of: "look") == "done")
      #expect(world.frontIDs == [a, b, a])
    }
  }

  /// The front that the request passes to the provider comes after the reply.
  @Test(arguments: ["", " /file"])
  func thePreferenceOfAFastReplyTakesEffect(file: String) async throws {
    try await withApps(front: a) { world, consumer, provider in
      world.compositorGate.shut()
      defer { world.compositorGate.open() }
      #expect(try await consumer.result(of: "send \(b) peer\(file)") == "done")
      try await provider.expect("show of \(a)")
      #expect(try await provider.result(of: "reply peer") == "done")
      #expect(try await consumer.value(of: "outcome") == "replied")
      try await provider.expect("reply arrived")
      world.compositorGate.open()
      try await provider.expect("in front")
      try await consumer.expect("in front")
      #expect(world.frontIDs == [a, b, a])
    }
  }

  @Test func thePreferenceOfAnErrorWithFilesTakesEffect() async throws {
    try await withApps(front: b) { world, consumer, provider in
      #expect(try await consumer.result(of: "send \(b) none") == "done")
      try await provider.expect("show of \(a)")
      #expect(try await provider.result(of: "fail peer /file") == "done")
      #expect(try await consumer.value(of: "outcome") == "error 5")
      try await consumer.expect("in front")
      #expect(world.frontIDs == [b, a])
    }
  }

  @Test(arguments: ["", " /file"])
  func aRefusalOfTheCompositorChangesNothingForTheMessage(file: String) async throws {
    try await withApps(front: a) { world, consumer, provider in
      world.refusesFront = true
      #expect(try await consumer.result(of: "send \(b) peer\(file)") == "done")
      try await provider.expect("show of \(a)")
      #expect(try await consumer.result(of: "bring \(b)") == "frontRefused")
      #expect(try await provider.result(of: "reply peer") == "done")
      #expect(try await consumer.value(of: "outcome") == "replied")
      #expect(world.frontIDs == [a, b, b])
    }
  }

  /// Only the app in front passes the front on; the message arrives all the same.
  @Test func thePreferenceOfAnAppThatIsNotInFrontHasNoEffect() async throws {
    try await withApps(front: a) { world, consumer, provider in
      #expect(try await consumer.result(of: "send \(b) none") == "done")
      try await provider.expect("show of \(a)")
      #expect(try await provider.result(of: "reply peer") == "done")
      #expect(try await consumer.value(of: "outcome") == "replied")
      #expect(try await provider.result(of: "send \(a) peer") == "done")
      try await consumer.expect("show of \(b)")
      #expect(try await consumer.result(of: "reply none") == "done")
      #expect(try await provider.value(of: "outcome") == "replied")
      #expect(try await provider.result(of: "look") == "done")
      try await expectNothingAsked(of: consumer, world)
    }
  }

  // MARK: Within a request

  @Test func anAppBringsAnotherToFrontWithinARequestOnly() async throws {
    try await withApps(front: a) { world, consumer, provider in
      #expect(try await consumer.result(of: "bring \(b)") == "notAllowed")
      // Its own request.
      #expect(try await consumer.result(of: "send \(b) none") == "done")
      try await provider.expect("show of \(a)")
      #expect(try await consumer.result(of: "bring com.example.other") == "notAllowed")
      #expect(try await consumer.result(of: "bring \(b)") == "done")
      try await provider.expect("in front")
      #expect(try await consumer.result(of: "bring \(b)") == "notInFront")
      // That of the other app.
      #expect(try await provider.result(of: "bring \(a)") == "done")
      try await consumer.expect("in front")
      #expect(try await provider.result(of: "reply none") == "done")
      #expect(try await consumer.value(of: "outcome") == "replied")
      #expect(try await consumer.result(of: "bring \(b)") == "notAllowed")
      try await world.choose(b)
      try await provider.expect("not in front")
      try await provider.expect("in front")
      #expect(try await provider.result(of: "bring \(a)") == "notAllowed")
      #expect(world.frontIDs == [a, b, a, b])
    }
  }

  /// The front request alone is enough, also when its handler has returned; not when it is over.
  @Test func aFrontRequestCountsUntilTheFrontIsLost() async throws {
    try await withApps(front: a) { world, consumer, provider in
      for _ in 0..<2 {
        #expect(try await provider.result(of: "request-front \(a)") == "done")
        try await consumer.expect("front request of \(b)")
        #expect(try await consumer.result(of: "bring \(b)") == "done")
        try await consumer.expect("not in front")
        try await world.choose(a)
        try await consumer.expect("in front")
        #expect(try await consumer.result(of: "bring \(b)") == "notAllowed")
      }
    }
  }

  // MARK: Apps that do not run

  /// Runs `body` with a consumer in front, and a provider that runs no more and is installed.
  private func withEndedProvider(
    leaving prepare: (_ consumer: FrontApp, _ provider: FrontApp) async throws -> Void = { _, _ in },
    _ body: (TestApps, _ consumer: FrontApp, _ provider: FrontApp) async throws -> Void
  ) async throws {
    try await withTestApps { world in
      let (consumer, provider) = try await (world.frontApp(a), world.frontApp(b))
      try await world.choose(a)
      try await consumer.expect("in front")
      try await prepare(consumer, provider)
      try await provider.end()
      try await world.awaitEnd(of: provider)
      try await world.install(provider)
      try await body(world, consumer, provider)
      try await consumer.end()
      try provider.tell("quit")
      try await world.awaitEnd(of: provider)
    }
  }

  @Test func anAppThatIsBroughtToFrontIsStarted() async throws {
    try await withEndedProvider { consumer, provider in
      #expect(try await provider.result(of: "request-front \(a)") == "done")
      try await consumer.expect("front request of \(b)")
    } _: { world, consumer, provider in
      #expect(try await consumer.result(of: "bring \(b)") == "done")
      try await provider.expect("ready")
      try await provider.expect("in front")
      #expect(world.frontIDs == [a, b])
    }
  }

  @Test func aPersonLaunchesAnyApp() async throws {
    try await withEndedProvider { world, consumer, provider in
      let found = "a request is what bringing to front needs, and launching does not"
      #expect(try await consumer.result(of: "bring \(b)") == "notAllowed", Comment(rawValue: found))
      #expect(try await consumer.result(of: "launch \(b)") == "done")
      try await provider.expect("ready")
      try await provider.expect("in front")
      #expect(try await consumer.result(of: "launch \(b)") == "notInFront")
      #expect(try await provider.result(of: "launch com.example.nobody") == "applicationNotFound")
      #expect(try await provider.result(of: "launch \(a)") == "done")
      try await consumer.expect("in front")
      #expect(world.frontIDs == [a, b, a])
    }
  }

  @Test func theUserChoosesAnAppThatDoesNotRun() async throws {
    try await withEndedProvider { world, _, provider in
      try await world.choose(b)
      try await provider.expect("in front")
      #expect(world.frontIDs == [a, b])
    }
  }

  @Test(arguments: ["", " /file"])
  func anAppThatARequestPrefersInFrontIsStarted(file: String) async throws {
    try await withEndedProvider { world, consumer, provider in
      #expect(try await consumer.result(of: "send \(b) peer\(file)") == "done")
      try await provider.expect("in front")
      try await provider.expect("show of \(a)")
      #expect(try await provider.result(of: "reply peer") == "done")
      #expect(try await consumer.value(of: "outcome") == "replied")
      try await consumer.expect("in front")
      #expect(world.frontIDs == [a, b, a])
    }
  }

  /// The consumer has gone: its next process gets the reply, and comes to front.
  @Test func anAppThatAReplyPrefersInFrontIsStarted() async throws {
    try await withEndedProvider { consumer, provider in
      #expect(try await provider.result(of: "send \(a) none /file") == "done")
      try await consumer.expect("show of \(b)")
    } _: { world, consumer, provider in
      #expect(try await consumer.result(of: "reply peer") == "done")
      try await provider.expect("unclaimed reply")
      try await provider.expect("in front")
      #expect(world.frontIDs == [a, b])
    }
  }
}
