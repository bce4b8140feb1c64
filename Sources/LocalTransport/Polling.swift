/// When a thread asks again and again for a moment before it sleeps: when what it waits for comes soon as a rule. To sleep and to be woken is most of what a
/// short call takes; to ask in vain takes a processor from others, so each time in vain makes it rarer.
struct Polling {
  /// How long it asks; zero for never.
  let time: Duration
  /// Short waits before it asks.
  private var shortWaitsLeft = 1
  private var failureCount = 0

  /// Without asking, a wait takes so many times as long: two threads are woken in it.
  private static let shortFactor = 5
  private static let failureCountMax = 10

  init(time: Duration) { self.time = time }

  var isDue: Bool { time > .zero && shortWaitsLeft == 0 }

  mutating func found() { failureCount = 0 }

  mutating func failed() {
    failureCount = min(failureCount + 1, Self.failureCountMax)
    shortWaitsLeft = 1 << failureCount
  }

  /// It slept, from the beginning of the wait.
  mutating func waited(_ duration: Duration) {
    if shortWaitsLeft > 0, duration <= time * Self.shortFactor { shortWaitsLeft -= 1 }
  }
}
