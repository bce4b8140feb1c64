import AppKinetics
import Foundation

/// A clock with another date, which stands still unless it is moved.
struct DateClock: AppClock {
  private let clock: any AppClock
  private let makeDate: @Sendable () -> Date

  init(of clock: any AppClock = SystemClock(), _ makeDate: @escaping @Sendable () -> Date) {
    (self.clock, self.makeDate) = (clock, makeDate)
  }

  var now: Duration { clock.now }
  var date: Date { makeDate() }
  func makeTimer(_ wake: @escaping @Sendable () -> Void) -> any AppTimer { clock.makeTimer(wake) }
}
