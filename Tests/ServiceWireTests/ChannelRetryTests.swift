import Testing

@testable import ServiceWire

/// When an app asks for a channel to another one.
struct ChannelRetryTests {
  private static let limits: ExchangeLimits = {
    var limits = ExchangeLimits()
    limits.retryPauseMin = 100
    limits.retryPauseMax = 1000
    limits.failedBeginningCountMax = 3
    return limits
  }()

  private static func connects(_ work: (inout [ExchangeOutput]) -> Void) -> Bool {
    var outputs: [ExchangeOutput] = []
    work(&outputs)
    return outputs == [.connect]
  }

  /// A channel as it was when it ended, opened at this time; `isOpen` says that the peer's `Hello` came.
  private static func channel(opened: UInt64, isOpen: Bool) throws -> ExchangeChannels.Channel {
    var channels = ExchangeChannels(limits: limits)
    let number = ExchangeFixture.number
    _ = channels.insert(number, ticket: ExchangeFixture.ticket(1), now: opened)
    if isOpen {
      _ = try channels.take(ExchangeFixture.hello(ticket: 1).hello, of: "com.example.b", number)
    }
    let removed = channels.remove(number)
    return try #require(removed)
  }

  @Test func asksOnceUntilThereIsAnAnswer() {
    var retry = ChannelRetry(limits: Self.limits)
    #expect(Self.connects { retry.connect(&$0) } && retry.isConnecting)
    #expect(!Self.connects { retry.connect(&$0) })
    retry.answered()
    #expect(!retry.isConnecting && Self.connects { retry.connect(&$0) })
  }

  /// Each pause is twice as long as the one before, up to the longest.
  @Test func pausesGrow() {
    var retry = ChannelRetry(limits: Self.limits)
    var now: UInt64 = 7
    for pause in [100, 200, 400, 800, 1000, 1000] as [UInt64] {
      retry.wait(now: now)
      #expect(retry.time == now + pause)
      #expect(!Self.connects { retry.connect(&$0) })
      #expect(retry.endPause(now: now + pause - 1) == false)
      #expect(retry.endPause(now: now + pause) == true)
      #expect(retry.time == nil)
      #expect(retry.endPause(now: now + pause) == false)
      now += pause
    }
    #expect(Self.connects { retry.connect(&$0) })
  }

  @Test func theFirstChannelThatEndsIsReplacedAtOnce() throws {
    var retry = ChannelRetry(limits: Self.limits)
    #expect(Self.connects { retry.connect(&$0) })
    retry.answered()
    retry.opened()
    retry.closed(try Self.channel(opened: 0, isOpen: true), now: 10)
    #expect(Self.connects { retry.reconnect(now: 10, &$0) } && retry.isConnecting && retry.time == nil)
    retry.answered()
    retry.opened()
    retry.closed(try Self.channel(opened: 10, isOpen: true), now: 20)
    #expect(!Self.connects { retry.reconnect(now: 20, &$0) } && retry.time == 120)
  }

  /// One that was open as long as the longest pause was no fault of the way.
  @Test(arguments: [(999, true, false), (1000, true, true), (1000, false, false)] as [(UInt64, Bool, Bool)])
  func pausesBeginAnewAfterAChannelThatLasted(time: UInt64, isOpen: Bool, isAtOnce: Bool) throws {
    var retry = ChannelRetry(limits: Self.limits)
    for now in [0, 100] as [UInt64] {
      retry.wait(now: now)
      #expect(retry.endPause(now: 1000) == true)
    }
    retry.opened()
    retry.closed(try Self.channel(opened: 5000, isOpen: isOpen), now: 5000 + time)
    #expect(Self.connects { retry.reconnect(now: 5000 + time, &$0) } == isAtOnce)
    #expect(retry.time == (isAtOnce ? nil : 5000 + time + 400))
    if isAtOnce {
      retry.answered()
      retry.closed(try Self.channel(opened: 6000, isOpen: true), now: 6001)
      #expect(!Self.connects { retry.reconnect(now: 6001, &$0) } && retry.time == 6101)
    }
  }

  @Test func aChannelThatComesEndsThePause() {
    var retry = ChannelRetry(limits: Self.limits)
    retry.wait(now: 0)
    retry.opened()
    #expect(retry.time == nil && Self.connects { retry.connect(&$0) })
  }

  /// After a refusal a new request learns at once whether there is a way now; after a break it waits like the others.
  @Test func aNewRequestEndsThePauseOfARefusalAlone() {
    var retry = ChannelRetry(limits: Self.limits)
    retry.wait(now: 0)
    retry.submitted()
    #expect(retry.time == 100)
    retry.refused()
    retry.submitted()
    #expect(retry.time == nil && Self.connects { retry.connect(&$0) })
    retry.answered()
    retry.opened()
    retry.wait(now: 50)
    retry.submitted()
    #expect(retry.time == 250)
  }

  /// While a channel is asked for the pause goes on, and ends when the answer is there.
  @Test func aPauseDoesNotEndWhileAChannelIsAskedFor() {
    var retry = ChannelRetry(limits: Self.limits)
    #expect(Self.connects { retry.connect(&$0) })
    retry.wait(now: 0)
    #expect(retry.endPause(now: 500) == false)
    #expect(retry.time == 100)
    retry.answered()
    #expect(retry.endPause(now: 500) == true)
  }

  @Test func givesUpAfterSoManyBeginningsThatFailed() throws {
    var retry = ChannelRetry(limits: Self.limits)
    let (failed, open) = (
      try Self.channel(opened: 0, isOpen: false), try Self.channel(opened: 0, isOpen: true)
    )
    for _ in 0..<2 {
      for _ in 0..<2 {
        retry.closed(failed, now: 1)
        #expect(retry.givesUp() == false)
      }
      retry.closed(failed, now: 1)
      // The count begins again, also when nobody looked in between.
      #expect(retry.givesUp() == true)
      #expect(retry.givesUp() == false)
    }
    for interruption in [{ $0.tookHello() }, { $0.closed(open, now: 1) }] as [(inout ChannelRetry) -> Void] {
      for _ in 0..<2 { retry.closed(failed, now: 1) }
      interruption(&retry)
      for _ in 0..<2 { retry.closed(failed, now: 1) }
      #expect(retry.givesUp() == false)
      retry.tookHello()
    }
  }
}
