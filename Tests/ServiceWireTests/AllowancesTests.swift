import Testing

@testable import ServiceWire

/// How often apps may register.
struct AllowancesTests {
  private static func limits(burst: UInt64 = 3, time: UInt64 = 100) -> BrokerLimits {
    var limits = BrokerLimits()
    limits.registrationBurstMax = burst
    limits.registrationTime = time
    return limits
  }

  private static func charge(_ rates: inout Allowances, _ times: Int, _ now: UInt64) -> Int {
    (0..<times).count { _ in rates.charge("com.example.a", from: .plain, now: now) }
  }

  @Test(arguments: [0, 5000] as [UInt64])
  func soManyAtOnceAndThenOneATime(begin: UInt64) {
    var rates = Allowances(limits: Self.limits())
    #expect(Self.charge(&rates, 5, begin) == 3)
    // One millisecond too early, and in time.
    #expect(Self.charge(&rates, 5, begin + 99) == 0)
    #expect(Self.charge(&rates, 5, begin + 100) == 1)
    #expect(Self.charge(&rates, 5, begin + 199) == 0)
    #expect(Self.charge(&rates, 5, begin + 350) == 2)
  }

  /// Time that passes unused is worth no more than the burst.
  @Test func theAllowanceDoesNotGrow() {
    var rates = Allowances(limits: Self.limits())
    #expect(Self.charge(&rates, 1, 0) == 1)
    #expect(Self.charge(&rates, 10, 1_000_000) == 3)
  }

  @Test func aRefusalCostsNothing() {
    var rates = Allowances(limits: Self.limits())
    #expect(Self.charge(&rates, 1000, 0) == 3)
    #expect(Self.charge(&rates, 1000, 99) == 0)
    #expect(Self.charge(&rates, 1000, 300) == 3)
  }

  /// An app pays for itself, and a sandbox for all of its apps, whatever they are called.
  @Test func appsPayAloneAndSandboxesTogether() {
    var rates = Allowances(limits: Self.limits())
    func charge(_ appID: String, _ origin: BrokerOrigin) -> Bool {
      rates.charge(appID, from: origin, now: 0)
    }
    for _ in 0..<3 { #expect(charge("box", .plain)) }
    #expect(!charge("box", .plain))
    #expect(charge("com.example.b", .plain))
    for n in 0..<3 { #expect(charge("com.example.n\(n)", .sandbox("box"))) }
    #expect(!charge("com.example.n4", .sandbox("box")))
    #expect(charge("com.example.n4", .sandbox("other")))
  }

  @Test func whoHasTheWholeAllowanceIsForgotten() {
    var rates = Allowances(limits: Self.limits())
    #expect(rates.isEmpty)
    #expect(Self.charge(&rates, 3, 0) == 3)
    #expect(rates.charge("com.example.b", from: .plain, now: 0) == true)
    rates.tick(now: 299)
    #expect(!rates.isEmpty)
    #expect(Self.charge(&rates, 3, 299) == 2)
    rates.tick(now: 498)
    #expect(!rates.isEmpty)
    rates.tick(now: 500)
    #expect(rates.isEmpty)
    #expect(Self.charge(&rates, 4, 500) == 3)
  }

  @Test func withoutAnAllowanceNobodyRegisters() {
    var rates = Allowances(limits: Self.limits(burst: 0))
    #expect(Self.charge(&rates, 3, 1000) == 0 && rates.isEmpty)
  }
}
