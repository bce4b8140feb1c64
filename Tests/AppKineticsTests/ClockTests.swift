import AppKinetics
import AppKineticsTesting
import Foundation
import Locks
import Testing

/// The clocks that apps and tests get.
struct ClockTests {
  /// Numbers of the timers that fired, in order.
  private final class Diary: Sendable {
    private let entries = Guarded<[Int]>([])
    var all: [Int] { entries.withLock { $0 } }
    func write(_ entry: Int) { entries.withLock { $0.append(entry) } }
  }

  @Test func firesInTheOrderOfTimesAndMovesTheDate() {
    let begin = Date(timeIntervalSince1970: 1_000_000)
    let (clock, diary) = (ManualClock(date: begin), Diary())
    let start = clock.now
    let timers = (0..<5).map { number in clock.makeTimer { diary.write(number) } }
    for (number, seconds) in [30, 10, 20, 10, 40].enumerated() {
      timers[number].set(to: start + .seconds(seconds))
    }
    #expect(clock.nextWake == start + .seconds(10))
    clock.advance(by: .seconds(30))
    #expect(diary.all == [1, 3, 2, 0])
    #expect(clock.now == start + .seconds(30))
    #expect(clock.date == begin + 30)
    timers[4].cancel()
    #expect(clock.nextWake == nil)
    clock.advance(by: .seconds(30))
    #expect(diary.all.count == 4)
  }

  /// A timer that is set for a past time fires on another thread, which may start late.
  @Test func advancingFiresTimersThatAreDueAlready() {
    for _ in 0..<200 {
      let (clock, diary) = (ManualClock(), Diary())
      let timer = clock.makeTimer { diary.write(1) }
      timer.set(to: clock.now)
      #expect(clock.nextWake == nil)
      clock.advance(by: .zero)
      #expect(diary.all == [1])
    }
  }

  /// Its timer would fire without end, and advancing the clock would not return.
  @Test(.timeLimit(.minutes(1))) func anAppThatIsRefusedForGoodIsNotWoken() async throws {
    let clock = ManualClock()
    var options = TestApps.Options()
    options.clock = clock
    try await withTestApps(options) { apps in
      try await apps.end(apps.start("com.example.app"))
      // The next one has another key.
      try FileManager.default.removeItem(at: apps.directory.appendingPathComponent("com.example.app"))
      let app = try await apps.app("com.example.app")
      await #expect(throws: ServicesError.self) { try await app.services.start() }
      clock.advance(by: .seconds(3600))
      while clock.nextWake != nil { clock.advance(by: .seconds(60)) }
      #expect(app.services.connectionError?.code == .certificateNotFound)
    }
  }

  @Test func aTimerMayAdvanceTheClock() {
    let (clock, diary) = (ManualClock(), Diary())
    let start = clock.now
    let timer = clock.makeTimer { [clock] in
      diary.write(diary.all.count)
      if diary.all.count == 1 { clock.advance(by: .seconds(5)) }
    }
    timer.set(to: start + .seconds(1))
    clock.advance(by: .seconds(1))
    #expect(diary.all == [0])
    #expect(clock.now == start + .seconds(6))
    timer.set(to: start + .seconds(7))
    clock.advance(by: .seconds(1))
    #expect(diary.all == [0, 1])
  }

  @Test(.timeLimit(.minutes(1))) func sleepEndsAtItsTimeOrWithItsTask() async throws {
    let clock = ManualClock()
    let sleeping = Task { try await clock.sleep(for: .seconds(3_600)) }
    while clock.nextWake == nil { await Task.yield() }
    clock.advance(by: .seconds(3_600))
    try await sleeping.value
    let cancelled = Task { try await clock.sleep(for: .seconds(3_600)) }
    while clock.nextWake == nil { await Task.yield() }
    cancelled.cancel()
    await #expect(throws: CancellationError.self) { try await cancelled.value }
    #expect(clock.nextWake == nil)
  }

  @Test(.timeLimit(.minutes(1))) func theSystemsClockWakesAndSleeps() async throws {
    let clock = SystemClock()
    let begin = clock.now
    try await clock.sleep(for: .milliseconds(20))
    #expect(clock.now - begin >= .milliseconds(20))
    let cancelled = Task { try await clock.sleep(for: .seconds(3_600)) }
    cancelled.cancel()
    await #expect(throws: CancellationError.self) { try await cancelled.value }
  }
}
