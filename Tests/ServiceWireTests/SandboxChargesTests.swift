import SodiumPrimitives
import Testing

@testable import ServiceWire

/// Apps of one sandbox share what is kept for them.
struct SandboxChargesTests {
  private typealias Charge = SandboxCharges.Charge

  @Test func appsOfASandboxHaveWhatTheOthersLeave() {
    var charges = SandboxCharges(limit: Charge(requestByteCount: 100, replyByteCount: 50, channelCount: 4))
    let (none, first) = (Charge(), Charge(requestByteCount: 70, replyByteCount: 0, channelCount: 1))
    charges.change(1, from: none, to: first)
    #expect(
      charges.room(in: 1, own: none) == Charge(requestByteCount: 30, replyByteCount: 50, channelCount: 3))
    // One's own counts for oneself.
    #expect(charges.room(in: 1, own: first) == charges.limit)
    #expect(charges.room(in: 2, own: none) == charges.limit)
    let later = Charge(requestByteCount: 10, replyByteCount: 5, channelCount: 2)
    charges.change(1, from: first, to: later)
    #expect(
      charges.room(in: 1, own: none) == Charge(requestByteCount: 90, replyByteCount: 45, channelCount: 2))
    charges.change(1, from: later, to: none)
    #expect(charges.room(in: 1, own: none) == charges.limit)
  }

  /// Apps are told of a sandbox, not of its name, and no two brokers tell them the same.
  @Test func originsHaveNumbers() {
    let (secret, another) = (Random.bytes(32), Random.bytes(32))
    #expect(BrokerOrigin.plain.number(secret) == 0)
    let number = BrokerOrigin.sandbox("box").number(secret)
    #expect(number != 0 && number == BrokerOrigin.sandbox("box").number(secret))
    #expect(number != BrokerOrigin.sandbox("other").number(secret))
    #expect(number != BrokerOrigin.sandbox("box").number(another))
  }

  @Test func introductionsNameTheOtherOnesOrigin() throws {
    var limits = BrokerLimits()
    limits.sandboxedApps = .open(.max)
    let world = BrokerWorld(limits: limits)
    let plain = world.enrol("com.example.plain")
    let boxed = world.enrol("com.example.boxed", origin: .sandbox("box"))
    let mate = world.enrol("com.example.mate", origin: .sandbox("box"))
    func origins(_ dialler: ConnectionNumber, _ appID: String) throws -> (UInt64, UInt64) {
      _ = world.ask(dialler, .connect(.with { $0.appID = appID }))
      let (_, acceptor, ticket) = try #require(world.introductions.last)
      func origin(at number: ConnectionNumber) -> UInt64? {
        world.sent[number]?.last { $0.introduction.ticket == ticket }?.introduction.origin
      }
      return (try #require(origin(at: dialler)), try #require(origin(at: acceptor)))
    }
    let (ofBoxed, ofPlain) = try origins(plain, "com.example.boxed")
    #expect(ofBoxed != 0 && ofPlain == 0)
    #expect(try origins(boxed, "com.example.plain") == (0, ofBoxed))
    #expect(try origins(mate, "com.example.boxed") == (ofBoxed, ofBoxed))
  }
}
